/*
 * protocol/openai_write.c - what replies of several requests share: heads, usage, timings, tokens,
 * errors. Members keep one fixed order so that transcripts can be compared. Any thread; nothing
 * here has state.
 */
#include "protocol/openai_write.h"

#include "base/utf8.h"

#include <math.h>

#define LOGPROB_MIN (-9999.0) /* JSON has no infinity; clients know this number for it */

void openai_member_str(struct buf *b, const char *key, str v)
{
    json_write_key(b, key);
    json_write_str(b, v);
}

void openai_member_i64(struct buf *b, const char *key, int64_t v)
{
    json_write_key(b, key);
    json_write_i64(b, v);
}

/* Microseconds are enough, and they keep the line short. */
static void member_ms(struct buf *b, const char *key, double v)
{
    json_write_key(b, key);
    json_write_f64(b, round(v * 1000) / 1000);
}

void openai_write_head(const struct chat_reply *r, const char *object, struct buf *b)
{
    buf_putc(b, '{');
    openai_member_str(b, "id", str_from(r->id));
    buf_putc(b, ',');
    openai_member_str(b, "object", str_from(object));
    buf_putc(b, ',');
    openai_member_i64(b, "created", r->created_s);
    buf_putc(b, ',');
    openai_member_str(b, "model", r->model);
    buf_putc(b, ',');
    openai_member_str(b, "system_fingerprint", str_from(r->build));
}

void openai_write_usage(const struct chat_usage *u, struct buf *b)
{
    json_write_key(b, "usage");
    buf_putc(b, '{');
    openai_member_i64(b, "prompt_tokens", u->n_prompt);
    buf_putc(b, ',');
    openai_member_i64(b, "completion_tokens", u->n_completion);
    buf_putc(b, ',');
    openai_member_i64(b, "total_tokens", (int64_t)u->n_prompt + u->n_completion);
    buf_putc(b, ',');
    json_write_key(b, "prompt_tokens_details");
    buf_putc(b, '{');
    openai_member_i64(b, "cached_tokens", u->n_cached);
    buf_puts(b, "}}");
}

static void write_timings(const struct chat_event *end, struct buf *b)
{
    const struct chat_timings *t = &end->timings;
    const struct {
        const char *key;
        double v;
    } members[] = {
        {"parse_ms", t->parse_ms},
        {"queue_ms", t->queue_ms},
        {"prefix_wait_ms", t->prefix_wait_ms},
        {"prefill_ms", t->prefill_ms},
        {"decode_ms", t->decode_ms},
        {"preempted_ms", t->preempted_ms},
        {"first_token_ms", t->first_token_ms},
        {"first_byte_ms", t->first_byte_ms},
        {"last_token_ms", t->last_token_ms},
        {"prompt_per_second", t->prompt_per_s},
        {"predicted_per_second", t->decode_per_s},
    };
    json_write_key(b, "timings");
    buf_putc(b, '{');
    for (size_t i = 0; i < T9_COUNT(members); i++) {
        member_ms(b, members[i].key, members[i].v);
        buf_putc(b, ',');
    }
    openai_member_i64(b, "prompt_n", end->usage.n_prompt - end->usage.n_cached);
    buf_putc(b, ',');
    openai_member_i64(b, "cache_n", end->usage.n_cached);
    buf_putc(b, ',');
    openai_member_i64(b, "predicted_n", end->usage.n_completion);
    buf_putc(b, ',');
    openai_member_i64(b, "preemptions", t->n_preempted);
    buf_puts(b, "},");
}

void openai_write_warnings(const struct chat_request *r, struct buf *b)
{
    for (size_t i = 0; i < r->n_warnings; i++) {
        buf_puts(b, i ? "," : ",\"warnings\":[");
        json_write_str(b, r->warnings[i]);
    }
    if (r->n_warnings)
        buf_putc(b, ']');
}

void openai_write_extras(const struct chat_reply *r, const struct chat_event *end, struct buf *b)
{
    if (r->request->timings)
        write_timings(end, b);
    json_write_key(b, "tempo9");
    if (r->request->seed_is_negative)
        buf_printf(b, "{\"seed\":%lld}", (long long)r->seed);
    else
        buf_printf(b, "{\"seed\":%llu}", (unsigned long long)r->seed);
    openai_write_warnings(r->request, b);
}

/* ---- tokens ---- */

void openai_write_token(const struct chat_reply *r, int32_t id, struct buf *b)
{
    str piece = r->piece(r->piece_ctx, id);
    if (utf8_valid(piece)) {
        json_write_str(b, piece);
        return;
    }
    buf_puts(b, "\"bytes:");
    for (size_t i = 0; i < piece.n; i++)
        buf_printf(b, "\\\\x%02x", (unsigned)(unsigned char)piece.p[i]);
    buf_putc(b, '"');
}

void openai_write_bytes(const struct chat_reply *r, int32_t id, struct buf *b)
{
    str piece = r->piece(r->piece_ctx, id);
    buf_putc(b, '[');
    for (size_t i = 0; i < piece.n; i++)
        buf_printf(b, "%s%u", i ? "," : "", (unsigned)(unsigned char)piece.p[i]);
    buf_putc(b, ']');
}

void openai_write_logprob(float logprob, struct buf *b)
{
    json_write_f64(b, (double)logprob > LOGPROB_MIN ? (double)logprob : LOGPROB_MIN);
}

static void write_entry(const struct chat_reply *r, const struct t9_logprob *l, struct buf *b)
{
    buf_puts(b, "{\"token\":");
    openai_write_token(r, l->token, b);
    buf_puts(b, ",\"logprob\":");
    openai_write_logprob(l->logprob, b);
    buf_puts(b, ",\"bytes\":");
    openai_write_bytes(r, l->token, b);
}

void openai_write_logprobs(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b)
{
    buf_putc(b, '[');
    for (int32_t i = 0; i < t->n; i++) {
        const struct t9_logprob *row = t->logprobs + (size_t)i * (size_t)(1 + t->n_top);
        if (i)
            buf_putc(b, ',');
        write_entry(r, row, b);
        buf_puts(b, ",\"top_logprobs\":[");
        for (int32_t k = 1; k <= t->n_top && row[k].token >= 0; k++) {
            if (k > 1)
                buf_putc(b, ',');
            write_entry(r, &row[k], b);
            buf_putc(b, '}');
        }
        buf_puts(b, "]}");
    }
    buf_putc(b, ']');
}

void openai_write_ids(const int32_t *ids, size_t n, struct buf *b)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(b, "%s%d", i ? "," : "", ids[i]);
    buf_putc(b, ']');
}

void openai_write_finish(t9_finish finish, int32_t stop_token, struct buf *b)
{
    openai_member_str(b, "finish_reason", str_from(t9_finish_name(finish)));
    if (stop_token >= 0)
        buf_printf(b, ",\"stop_reason\":%d", stop_token);
}

void openai_write_prompt_ids(const struct chat_reply *r, struct buf *b)
{
    if (!r->request->token_ids)
        return;
    buf_puts(b, ",\"prompt_token_ids\":");
    openai_write_ids(r->prompt_ids, r->n_prompt_ids, b);
}

void openai_write_token_ids(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b)
{
    if (!r->request->token_ids)
        return;
    buf_puts(b, ",\"token_ids\":");
    openai_write_ids(t->ids, (size_t)t->n, b);
}

/* ---- errors ---- */

void openai_write_whole(const struct chat_reply *r, const char *object,
                        const struct chat_choice *choices, size_t n_choices,
                        openai_choice_fn write_choice, const struct chat_event *end, struct buf *b)
{
    openai_write_head(r, object, b);
    openai_write_prompt_ids(r, b);
    buf_puts(b, ",\"choices\":[");
    for (size_t i = 0; i < n_choices; i++) {
        if (i)
            buf_putc(b, ',');
        write_choice(r, &choices[i], i, b);
    }
    buf_puts(b, "],");
    openai_write_usage(&end->usage, b);
    buf_putc(b, ',');
    openai_write_extras(r, end, b);
    buf_putc(b, '}');
}

void openai_write_stream_error(const struct chat_event *ev, struct buf *b)
{
    /* No [DONE] after it: a client must not take the answer for a complete one. */
    buf_puts(b, "data: ");
    openai_write_error(&ev->error, b);
    buf_puts(b, "\n\n");
}

void openai_write_error(const struct chat_error *e, struct buf *out)
{
    buf_puts(out, "{\"error\":{");
    openai_member_str(out, "message", str_from(e->err.msg));
    buf_putc(out, ',');
    openai_member_str(out, "type",
                      e->http_status == 429 ? STR("rate_limit_error")
                                            : str_from(t9_status_openai_type(e->err.code)));
    buf_puts(out, ",\"param\":");
    if (e->param[0])
        json_write_str(out, str_from(e->param));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"code\":");
    if (e->code)
        json_write_str(out, str_from(e->code));
    else
        buf_puts(out, "null");
    buf_puts(out, "}}");
}
