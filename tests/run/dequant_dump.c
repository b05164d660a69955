/*
 * tests/run/dequant_dump.c - the seam of dequant_oracle.py.
 *
 *   dequant_dump TYPE < BLOCKS > VALUES        float32, little endian
 *   dequant_dump                               lists the types: name, id, values and bytes a block
 */
#include "gguf/dtype.h"

#include <stdio.h>

static int list(void)
{
    for (uint32_t id = 0; id < DTYPE_ID_END; id++) {
        const struct dtype_info *info = gguf_dtype_get(id);
        if (info && dtype_can_dequantize(id))
            printf("%s %u %u %u\n", info->name, id, info->block_elems, info->block_bytes);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t block[512];
    static float values[256];
    if (argc < 2)
        return list();
    const struct dtype_info *info = gguf_dtype_by_name(argv[1]);
    if (!info || !dtype_can_dequantize(info->id)) {
        fprintf(stderr, "dequant_dump: no type %s\n", argv[1]);
        return 2;
    }
    while (fread(block, info->block_bytes, 1, stdin) == 1) {
        if (dtype_dequantize_row(info->id, block, values, info->block_elems, NULL) !=
                T9_STATUS_OK ||
            fwrite(values, sizeof(float), info->block_elems, stdout) != info->block_elems)
            return 1;
    }
    return 0;
}
