#pragma once
#include <asm/ptrace.h>
