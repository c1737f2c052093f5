#pragma once
#define CONFIG_BPF_SYSCALL 1
#define CONFIG_64BIT 1
