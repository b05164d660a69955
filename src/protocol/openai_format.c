/*
 * protocol/openai_format.c - writes chat completion replies, stream chunks and errors. Members keep
 * one fixed order so that transcripts can be compared. Any thread; nothing here has state.
 */
#include "protocol/openai_chat.h"

#include <math.h>

static void member_str(struct buf *b, const char *key, str v)
{
    json_write_key(b, key);
    json_write_str(b, v);
}

static void member_i64(struct buf *b, const char *key, int64_t v)
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

/* {"id":..,"object":..,"created":..,"model":..,"system_fingerprint":..  without the closing brace
 */
static void write_head(const struct chat_reply *r, const char *object, struct buf *b)
{
    buf_putc(b, '{');
    member_str(b, "id", str_from(r->id));
    buf_putc(b, ',');
    member_str(b, "object", str_from(object));
    buf_putc(b, ',');
    member_i64(b, "created", r->created_s);
    buf_putc(b, ',');
    member_str(b, "model", r->model);
    buf_putc(b, ',');
    member_str(b, "system_fingerprint", str_from(r->build));
}

static void write_usage(const struct chat_usage *u, struct buf *b)
{
    json_write_key(b, "usage");
    buf_putc(b, '{');
    member_i64(b, "prompt_tokens", u->n_prompt);
    buf_putc(b, ',');
    member_i64(b, "completion_tokens", u->n_completion);
    buf_putc(b, ',');
    member_i64(b, "total_tokens", (int64_t)u->n_prompt + u->n_completion);
    buf_putc(b, ',');
    json_write_key(b, "prompt_tokens_details");
    buf_putc(b, '{');
    member_i64(b, "cached_tokens", u->n_cached);
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
    member_i64(b, "prompt_n", end->usage.n_prompt - end->usage.n_cached);
    buf_putc(b, ',');
    member_i64(b, "cache_n", end->usage.n_cached);
    buf_putc(b, ',');
    member_i64(b, "predicted_n", end->usage.n_completion);
    buf_putc(b, ',');
    member_i64(b, "preemptions", t->n_preempted);
    buf_puts(b, "},");
}

/* Our extensions: timings when asked for, the seed that was used, warnings. */
static void write_extras(const struct chat_reply *r, const struct chat_event *end, struct buf *b)
{
    if (r->request->timings)
        write_timings(end, b);
    json_write_key(b, "tempo9");
    buf_printf(b, "{\"seed\":%llu}", (unsigned long long)r->seed);
    if (r->request->n_warnings == 0)
        return;
    buf_putc(b, ',');
    json_write_key(b, "warnings");
    for (size_t i = 0; i < r->request->n_warnings; i++) {
        buf_putc(b, i ? ',' : '[');
        json_write_str(b, r->request->warnings[i]);
    }
    buf_putc(b, ']');
}

static void write_chunk_open(const struct chat_reply *r, struct buf *b)
{
    buf_puts(b, "data: ");
    write_head(r, "chat.completion.chunk", b);
}

static void write_end(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    write_chunk_open(r, b);
    buf_puts(b, ",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,");
    member_str(b, "finish_reason", str_from(finish_reason_name(ev->finish)));
    buf_puts(b, "}],");
    write_extras(r, ev, b);
    buf_puts(b, "}\n\n");
    if (r->request->include_usage) {
        write_chunk_open(r, b);
        buf_puts(b, ",\"choices\":[],");
        write_usage(&ev->usage, b);
        buf_puts(b, "}\n\n");
    }
    buf_puts(b, "data: [DONE]\n\n");
}

void openai_chat_stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    switch (ev->kind) {
    case CHAT_EVENT_NONE: break;
    case CHAT_EVENT_BEGIN:
        write_chunk_open(r, out);
        buf_puts(out,
                 ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                 "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
        break;
    case CHAT_EVENT_TEXT:
        write_chunk_open(r, out);
        buf_puts(out, ",\"choices\":[{\"index\":0,\"delta\":{");
        member_str(out, "content", ev->text);
        buf_puts(out, "},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
        break;
    case CHAT_EVENT_END: write_end(r, ev, out); break;
    case CHAT_EVENT_ERROR:
        /* No [DONE] after it: a client must not take the answer for a complete one. */
        buf_puts(out, "data: ");
        openai_write_error(&ev->error, out);
        buf_puts(out, "\n\n");
        break;
    }
}

void openai_chat_whole(const struct chat_reply *r, str text, const struct chat_event *end,
                       struct buf *out)
{
    write_head(r, "chat.completion", out);
    buf_puts(out, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",");
    member_str(out, "content", text);
    buf_puts(out, ",\"refusal\":null},\"logprobs\":null,");
    member_str(out, "finish_reason", str_from(finish_reason_name(end->finish)));
    buf_puts(out, "}],");
    write_usage(&end->usage, out);
    buf_putc(out, ',');
    write_extras(r, end, out);
    buf_putc(out, '}');
}

void openai_write_error(const struct chat_error *e, struct buf *out)
{
    buf_puts(out, "{\"error\":{");
    member_str(out, "message", str_from(e->err.msg));
    buf_putc(out, ',');
    member_str(out, "type",
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
