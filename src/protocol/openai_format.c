/*
 * protocol/openai_format.c - writes chat completion replies and stream chunks. Any thread; nothing
 * here has state.
 */
#include "protocol/openai_write.h"

/* ---- log probabilities ---- */

static void write_entry(const struct chat_reply *r, const struct t9_logprob *l, struct buf *b)
{
    buf_puts(b, "{\"token\":");
    openai_write_token(r, l->token, b);
    buf_puts(b, ",\"logprob\":");
    openai_write_logprob(l->logprob, b);
    buf_puts(b, ",\"bytes\":");
    openai_write_bytes(r, l->token, b);
}

static void write_logprobs(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b)
{
    buf_puts(b, "\"logprobs\":");
    if (!r->request->logprobs) {
        buf_puts(b, "null");
        return;
    }
    buf_puts(b, "{\"content\":[");
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
    buf_puts(b, "],\"refusal\":null}");
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

static void write_text(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    write_chunk_open(r, b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,\"delta\":{", ev->choice);
    openai_member_str(b, "content", ev->text);
    buf_puts(b, "},");
    write_logprobs(r, &ev->tokens, b);
    openai_write_token_ids(r, &ev->tokens, b);
    buf_puts(b, ",\"finish_reason\":null}]}\n\n");
}

static void write_finish(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    write_chunk_open(r, b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,\"delta\":{},\"logprobs\":null,", ev->choice);
    openai_write_finish(ev->finish, ev->stop_token, b);
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
    case CHAT_EVENT_NONE: break;
    case CHAT_EVENT_BEGIN: write_begin(r, ev, out); break;
    case CHAT_EVENT_TEXT: write_text(r, ev, out); break;
    case CHAT_EVENT_FINISH: write_finish(r, ev, out); break;
    case CHAT_EVENT_END: write_end(r, ev, out); break;
    case CHAT_EVENT_ERROR: openai_write_stream_error(ev, out); break;
    }
}

/* ---- whole replies ---- */

static void write_choice(const struct chat_reply *r, const struct chat_choice *c, size_t index,
                         struct buf *b)
{
    buf_printf(b, "{\"index\":%zu,\"message\":{\"role\":\"assistant\",", index);
    openai_member_str(b, "content", c->text);
    buf_puts(b, ",\"refusal\":null},");
    write_logprobs(r, &c->answer, b);
    openai_write_token_ids(r, &c->answer, b);
    buf_putc(b, ',');
    openai_write_finish(c->finish, c->stop_token, b);
    buf_putc(b, '}');
}

void openai_chat_whole(const struct chat_reply *r, const struct chat_choice *choices,
                       size_t n_choices, const struct chat_event *end, struct buf *out)
{
    openai_write_whole(r, "chat.completion", choices, n_choices, write_choice, end, out);
}
