#pragma once
#define KERNEL_VERSION(major, minor, patch)                                                        \
    (((major) << 16) + ((minor) << 8) + ((patch) > 255 ? 255 : (patch)))
#ifndef LINUX_VERSION_CODE
#define LINUX_VERSION_CODE KERNEL_VERSION(6, 1, 0)
#endif
