/*
 * cli/cmd_openapi.c - `openapi`: the description of the HTTP interface, from the tables that the
 * server reads requests by. Needs no model.
 */
#include "cli/cli.h"

#include "protocol/endpoints.h"
#include "t9_build.h"

#define DOCUMENT_BYTES_MAX ((size_t)1 << 20)

int cmd_openapi(const struct cli_options *o)
{
    struct t9_err err = {0};
    struct buf b;
    (void)o;
    buf_init(&b, DOCUMENT_BYTES_MAX);
    openapi_write(T9_VERSION, &b);
    buf_putc(&b, '\n');
    t9_status s =
        b.failed ? t9_fail(&err, T9_STATUS_NOMEM, "no memory for the description") : T9_STATUS_OK;
    if (s == T9_STATUS_OK)
        cli_write(b.p, b.n);
    buf_deinit(&b);
    return s == T9_STATUS_OK ? cli_finish_stdout() : cli_fail(&err);
}
