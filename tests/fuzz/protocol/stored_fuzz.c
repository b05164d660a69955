/*
 * tests/fuzz/protocol/stored_fuzz.c - any bytes as a stored row, its input before the first NUL and
 * its response behind it: its items are read or it is refused, and a request that goes on from them
 * is as any other.
 */
#include "check.h"
#include "protocol/responses.h"
#include "store/store.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t n_input = cut ? (size_t)(cut - data) : size, n = 0;
    struct store_row row = {.input = {(const char *)data, n_input}};
    struct buf body;
    if (cut)
        row.response = (str){(const char *)cut + 1, size - n_input - 1};
    buf_init(&body, (size_t)1 << 22);
    buf_puts(&body, "0{\"input\":[{\"role\":\"user\",\"content\":\"a\"}");
    if (responses_row_items(&row, &body, &n, NULL) == T9_STATUS_OK) {
        buf_puts(&body, "]}");
        if (!body.failed)
            check_parser(&responses_adapter, (const uint8_t *)body.p, body.n);
    }
    buf_deinit(&body);
    return 0;
}
