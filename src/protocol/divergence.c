/*
 * protocol/divergence.c - see divergence.h.
 */
#include "protocol/divergence.h"

#include "base/json.h"
#include "base/log.h"

#include <inttypes.h>

/* Bytes that are no whole character at the edges are shown as replacement characters. */
static void write_text(const t9_model *m, const int32_t *tokens, int32_t n, struct buf *out)
{
    t9_text text = {0};
    if (t9_detokenize(m, tokens, (size_t)n, T9_DETOKENIZE_SPECIAL, &text, NULL) != T9_STATUS_OK)
        out->failed = true;
    else
        json_write_str(out, (str){text.p, text.n});
    t9_text_free(&text);
    for (int32_t i = 0; i < n; i++)
        buf_printf(out, "%s%d", i ? " " : " (", tokens[i]);
    buf_puts(out, n > 0 ? ")" : "");
}

void divergence_write(const t9_model *m, const struct t9_divergence *d, struct buf *out)
{
    buf_puts(out, "cached ");
    write_text(m, d->cached, d->n_cached, out);
    buf_puts(out, ", asked for ");
    write_text(m, d->asked, d->n_asked, out);
}

void divergence_log(void *model, const struct t9_divergence *d)
{
    struct buf b;
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    buf_init(&b, 1 << 16);
    divergence_write(model, d, &b);
    if (!b.failed)
        LOG_DEBUG("prompt", "request %" PRIu64 " at token %d: " STR_FMT, d->request_id, d->at,
                  STR_ARG(buf_str(&b)));
    buf_deinit(&b);
}
