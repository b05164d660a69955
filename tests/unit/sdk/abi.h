/* The library's own view of types that tempo9.h declares again. */
#ifndef T9_TESTS_SDK_ABI_H
#define T9_TESTS_SDK_ABI_H

#include <stddef.h>

size_t abi_err_bytes(void);
size_t abi_err_msg_offset(void);
int abi_status_count(void);

#endif
