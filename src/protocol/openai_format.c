/*
 * protocol/openai_format.c - writes chat completion replies and stream chunks. Any thread; nothing
 * here has state.
 */
#include "protocol/openai_write.h"

static void write_logprobs(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b)
{
    buf_puts(b, "\"logprobs\":");
    if (!r->request->logprobs) {
        buf_puts(b, "null");
        return;
    }
    buf_puts(b, "{\"content\":");
    openai_write_logprobs(r, t, b);
    buf_puts(b, ",\"refusal\":null}");
}

/* ---- streams ---- */

static void write_chunk_open(const struct chat_reply *r, struct buf *b)
{
    buf_puts(b, "data: ");
    openai_write_head(r, "chat.completion.chunk", b);
}

static void write_begin(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    write_chunk_open(r, b);
    if (ev->choice == 0)
        openai_write_prompt_ids(r, b);
    buf_printf(b,
               ",\"choices\":[{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
               "\"logprobs\":null,\"finish_reason\":null}]}\n\n",
               ev->choice);
}

static void write_call(const struct chat_event *ev, struct buf *b)
{
    buf_printf(b, "\"tool_calls\":[{\"index\":%d,", ev->call);
    if (ev->kind == CHAT_EVENT_CALL) {
        openai_member_str(b, "id", ev->call_id);
        buf_puts(b, ",\"type\":\"function\",");
    }
    buf_puts(b, "\"function\":{");
    if (ev->kind == CHAT_EVENT_CALL) {
        openai_member_str(b, "name", ev->text);
        buf_putc(b, ',');
    }
    openai_member_str(b, "arguments", ev->kind == CHAT_EVENT_ARGS ? ev->text : STR(""));
    buf_puts(b, "}}]");
}

/* Text, reasoning, or a piece of a call. */
static void write_delta(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    write_chunk_open(r, b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,\"delta\":{", ev->choice);
    if (ev->kind == CHAT_EVENT_TEXT)
        openai_member_str(b, "content", ev->text);
    else if (ev->kind == CHAT_EVENT_REASONING)
        openai_member_str(b, "reasoning_content", ev->text);
    else
        write_call(ev, b);
    buf_puts(b, "},");
    write_logprobs(r, &ev->tokens, b);
    openai_write_token_ids(r, &ev->tokens, b);
    buf_puts(b, ",\"finish_reason\":null}]}\n\n");
}

/* A finish by length says so, whatever calls came before. */
static void write_end_of_choice(t9_finish finish, int32_t stop_token, bool has_calls, struct buf *b)
{
    if (has_calls && finish == T9_FINISH_STOP)
        openai_member_str(b, "finish_reason", STR("tool_calls"));
    else
        openai_write_finish(finish, stop_token, b);
}

static void write_finish(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    write_chunk_open(r, b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,\"delta\":{},\"logprobs\":null,", ev->choice);
    write_end_of_choice(ev->finish, ev->stop_token, ev->has_calls, b);
    buf_puts(b, "}]");
    if (ev->is_last) {
        buf_putc(b, ',');
        openai_write_extras(r, ev, b);
    }
    buf_puts(b, "}\n\n");
}

static void write_end(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    if (r->request->include_usage) {
        write_chunk_open(r, b);
        buf_puts(b, ",\"choices\":[],");
        openai_write_usage(&ev->usage, b);
        buf_puts(b, "}\n\n");
    }
    buf_puts(b, "data: [DONE]\n\n");
}

void openai_chat_stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    switch (ev->kind) {
    case CHAT_EVENT_NONE:
    case CHAT_EVENT_PROGRESS: break;
    case CHAT_EVENT_BEGIN: write_begin(r, ev, out); break;
    case CHAT_EVENT_TEXT:
    case CHAT_EVENT_REASONING:
    case CHAT_EVENT_CALL:
    case CHAT_EVENT_ARGS: write_delta(r, ev, out); break;
    case CHAT_EVENT_CALL_END: break;
    case CHAT_EVENT_FINISH: write_finish(r, ev, out); break;
    case CHAT_EVENT_END: write_end(r, ev, out); break;
    case CHAT_EVENT_ERROR: openai_write_stream_error(ev, out); break;
    }
}

/* ---- whole replies ---- */

static void write_calls(const struct chat_choice *c, struct buf *b)
{
    const char *before = ",\"tool_calls\":[";
    for (size_t i = 0; i < c->n_parts; i++) {
        const struct chat_part *p = &c->parts[i];
        if (p->kind != CHAT_EVENT_CALL)
            continue;
        buf_puts(b, before);
        buf_putc(b, '{');
        openai_member_str(b, "id", p->call_id);
        buf_puts(b, ",\"type\":\"function\",\"function\":{");
        openai_member_str(b, "name", p->name);
        buf_putc(b, ',');
        openai_member_str(b, "arguments", p->text);
        buf_puts(b, "}}");
        before = ",";
    }
    if (*before == ',' && !before[1])
        buf_putc(b, ']');
}

static bool calls_only(const struct chat_choice *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        if (c->parts[i].kind == CHAT_EVENT_CALL)
            return c->text.n == 0;
    }
    return false;
}

static void write_choice(const struct chat_reply *r, const struct chat_choice *c, size_t index,
                         struct buf *b)
{
    buf_printf(b, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",", index);
    if (calls_only(c))
        buf_puts(b, "\"content\":null");
    else
        openai_member_str(b, "content", c->text);
    if (c->reasoning.n) {
        buf_putc(b, ',');
        openai_member_str(b, "reasoning_content", c->reasoning);
    }
    buf_puts(b, ",\"refusal\":null");
    write_calls(c, b);
    buf_puts(b, "},");
    write_logprobs(r, &c->answer, b);
    openai_write_token_ids(r, &c->answer, b);
    buf_putc(b, ',');
    write_end_of_choice(c->finish, c->stop_token, c->has_calls, b);
    buf_putc(b, '}');
}

void openai_chat_whole(const struct chat_reply *r, const struct chat_choice *choices,
                       size_t n_choices, const struct chat_event *end, struct buf *out)
{
    openai_write_whole(r, "chat.completion", choices, n_choices, write_choice, end, out);
}
