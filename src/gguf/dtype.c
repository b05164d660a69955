/* gguf/dtype.c - the table of tensor types. Any thread, no state. */
#include "gguf/dtype.h"

#include "base/num.h"

#include <strings.h>

static const struct dtype_info dtype_table[DTYPE_ID_END] = {
#define X(name_, id_, elems, bytes)                                                                \
    [id_] = {.name = #name_, .id = (id_), .block_elems = (elems), .block_bytes = (bytes)},
    DTYPE_LIST(X)
#undef X
#define X(name_, id_) [id_] = {.name = #name_, .id = (id_), .removed = true},
        DTYPE_REMOVED_LIST(X)
#undef X
};

const struct dtype_info *gguf_dtype_get(uint32_t id)
{
    return id < DTYPE_ID_END && dtype_table[id].name ? &dtype_table[id] : NULL;
}

const struct dtype_info *gguf_dtype_by_name(const char *name)
{
    for (uint32_t i = 0; i < DTYPE_ID_END; i++) {
        if (dtype_table[i].name && strcasecmp(dtype_table[i].name, name) == 0)
            return &dtype_table[i];
    }
    return NULL;
}

const char *gguf_dtype_name(uint32_t id)
{
    const struct dtype_info *info = gguf_dtype_get(id);
    return info ? info->name : "?";
}

uint64_t dtype_row_bytes(uint32_t id, uint64_t n)
{
    const struct dtype_info *info = gguf_dtype_get(id);
    uint64_t bytes;
    if (!info || info->removed || n % info->block_elems != 0)
        return 0;
    return num_mul(n / info->block_elems, info->block_bytes, &bytes) ? bytes : 0;
}
