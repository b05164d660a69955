/*
 * protocol/divergence.c - see divergence.h.
 */
#include "protocol/divergence.h"

#include "base/json.h"
#include "base/log.h"

#include <inttypes.h>

/* Bytes that are no whole character at the edges are shown as replacement characters. */
static void write_text(const struct tokenizer *t, const int32_t *tokens, int32_t n, struct buf *out)
{
    struct detok d;
    struct buf text;
    buf_init(&text, 1 << 16);
    detok_init(&d, tokenizer_vocab(t));
    for (int32_t i = 0; i < n; i++)
        detok_push(&d, tokens[i], &text, true);
    detok_finish(&d, &text);
    json_write_str(out, buf_str(&text));
    buf_deinit(&text);
}

void divergence_write(const struct tokenizer *t, const struct engine_divergence *d, struct buf *out)
{
    buf_puts(out, "cached ");
    write_text(t, d->cached, d->n_cached, out);
    buf_puts(out, ", asked for ");
    write_text(t, d->asked, d->n_asked, out);
}

void divergence_log(void *tokenizer, const struct engine_divergence *d)
{
    struct buf b;
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    buf_init(&b, 1 << 16);
    divergence_write(tokenizer, d, &b);
    if (!b.failed)
        LOG_DEBUG("prompt", "request %" PRIu64 " at token %d: " STR_FMT, d->request_id, d->at,
                  STR_ARG(buf_str(&b)));
    buf_deinit(&b);
}
