/* What the library's own sources think of types that tempo9.h declares again; see sdk_test.c. */
#include "abi.h"

#include "base/err.h"

size_t abi_err_bytes(void)
{
    return sizeof(struct t9_err);
}

size_t abi_err_msg_offset(void)
{
    return offsetof(struct t9_err, msg);
}

int abi_status_count(void)
{
    return T9_STATUS_COUNT;
}
