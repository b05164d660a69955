/*
 * http/tls.c - certificate and key for TLS, which the HTTP library does when it was built to.
 */
#include "base/file.h"
#include "http/internal.h"

#include <string.h>

enum { PEM_BYTES_MAX = 1 << 20 };

static t9_status read_pem(const char *path, const char *what, struct buf *out, struct t9_err *err)
{
    buf_init(out, PEM_BYTES_MAX);
    T9_TRY(file_read_all(path, out, err));
    bool is_pem =
        str_find(buf_str(out), STR("-----BEGIN "), 0) != (size_t)-1 && !memchr(out->p, 0, out->n);
    if (!is_pem)
        return t9_fail(err, T9_STATUS_INVALID, "%s: no %s in PEM form", path, what);
    buf_putc(out, 0);
    return out->failed ? t9_fail(err, T9_STATUS_NOMEM, "no memory") : T9_STATUS_OK;
}

t9_status tls_load(const struct http_params *p, struct buf *cert, struct buf *key,
                   struct t9_err *err)
{
    if (!p->tls_cert && !p->tls_key)
        return T9_STATUS_OK;
    if (!p->tls_cert || !p->tls_key)
        return t9_fail(err, T9_STATUS_INVALID, "--tls-cert and --tls-key: both are needed");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "--tls-cert: this system's libmicrohttpd was built without TLS; put a proxy "
                       "in front");
    T9_TRY(read_pem(p->tls_cert, "certificate", cert, err));
    return read_pem(p->tls_key, "key", key, err);
}

void tls_unload(struct buf *cert, struct buf *key)
{
    if (key->n)
        explicit_bzero(key->p, key->n);
    buf_deinit(cert);
    buf_deinit(key);
}
