/*
 * protocol/ollama_write.c - see ollama_write.h. Members keep one fixed order. Any thread; nothing
 * here has state.
 */
#include "protocol/ollama_write.h"

#include "base/clock.h"
#include "protocol/prep.h"

#include <math.h>

static void write_head(str model, int64_t created_s, struct buf *b)
{
    char at[32];
    clock_format_utc(created_s, at);
    buf_putc(b, '{');
    openai_member_str(b, "model", model);
    buf_putc(b, ',');
    openai_member_str(b, "created_at", str_from(at));
}

void ollama_write_head(const struct chat_reply *r, struct buf *b)
{
    write_head(r->model, r->created_s, b);
}

void ollama_write_logprobs(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b)
{
    if (!r->request->logprobs || t->n == 0)
        return;
    buf_puts(b, ",\"logprobs\":");
    openai_write_logprobs(r, t, b);
}

void ollama_write_more(struct buf *b)
{
    buf_puts(b, ",\"done\":false}\n");
}

static void member_ns(struct buf *b, const char *key, double ms)
{
    buf_putc(b, ',');
    openai_member_i64(b, key, llround(ms * 1e6));
}

static void member_count(struct buf *b, const char *key, int32_t n)
{
    buf_putc(b, ',');
    openai_member_i64(b, key, n);
}

void ollama_write_done(const struct chat_reply *r, t9_finish finish, const struct chat_event *end,
                       struct buf *b)
{
    const struct chat_timings *t = &end->timings;
    buf_puts(b, ",\"done\":true,");
    openai_member_str(b, "done_reason", str_from(t9_finish_name(finish)));
    member_ns(b, "total_duration", t->total_ms);
    /* The model is there; what is waited for is a place to compute. */
    member_ns(b, "load_duration", t->parse_ms + t->queue_ms + t->prefix_wait_ms);
    member_count(b, "prompt_eval_count", end->usage.n_prompt);
    member_ns(b, "prompt_eval_duration", t->prefill_ms);
    member_count(b, "eval_count", end->usage.n_completion);
    member_ns(b, "eval_duration", t->decode_ms);
    member_count(b, "prompt_cached_count", end->usage.n_cached);
    buf_putc(b, ',');
    openai_write_extras(r, end, b);
    buf_putc(b, '}');
}

void ollama_error(const struct chat_error *e, struct buf *out)
{
    buf_putc(out, '{');
    openai_member_str(out, "error", str_from(e->err.msg));
    buf_putc(out, '}');
}

void ollama_write_stream_error(const struct chat_event *ev, struct buf *b)
{
    ollama_error(&ev->error, b);
    buf_putc(b, '\n');
}

void ollama_write_loaded(const struct prep *p, const char *empty, const struct chat_request *r,
                         struct buf *b)
{
    write_head(str_from(prep_params_of(p)->model_name), clock_unix_s(), b);
    buf_printf(b, ",%s,\"done\":true,\"done_reason\":\"load\"", empty);
    openai_write_warnings(r, b);
    buf_putc(b, '}');
}
