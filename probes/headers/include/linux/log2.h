#pragma once
#define roundup_pow_of_two(n) (n)
