/*
 * protocol/ollama_pull.c - POST /api/pull: fetches a model onto this machine, if whoever started
 * the server allows that, and tells how far it is. The served model is there already, and stays the
 * one that is served. Any thread; nothing here has state.
 */
#include "protocol/ollama_fields.h"
#include "protocol/ollama_write.h"

static const struct policy_field fields[] = {
    HONOURED("model", ollama_model, .schema = "{\"type\":\"string\"}",
             .note = "OWNER/REPO[:QUANT] or hf.co/OWNER/REPO[:QUANT] of the hub, or the served "
                     "model's name"),
    HONOURED("name", ollama_model, .schema = "{\"type\":\"string\"}", .same_as = "model",
             .note = "as model"),
    HONOURED("stream", policy_bool, MEMBER(stream), .note = "lines of JSON; true when absent"),
    REFUSED("insecure", policy_is_false, "the hub is asked as the server was told to"),
    REFUSED("username", policy_is_empty, "the server has a token of its own"),
    REFUSED("password", policy_is_empty, "the server has a token of its own"),
};

static t9_status parse(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    out->stream = true;
    T9_TRY(openai_parse(body, strict, fields, T9_COUNT(fields), out, err));
    return out->model.n ? T9_STATUS_OK : openai_missing("model", err);
}

struct told {
    bool begun;
};

static void write_progress(const struct chat_event *ev, struct buf *b)
{
    struct buf status;
    buf_init(&status, ev->text.n + 16);
    buf_puts(&status, "pulling ");
    buf_puts_str(&status, ev->text);
    b->failed |= status.failed;
    buf_putc(b, '{');
    openai_member_str(b, "status", buf_str(&status));
    buf_deinit(&status);
    buf_putc(b, ',');
    openai_member_str(b, "digest", ev->text);
    buf_putc(b, ',');
    openai_member_i64(b, "total", (int64_t)ev->total_bytes);
    buf_putc(b, ',');
    openai_member_i64(b, "completed", (int64_t)ev->done_bytes);
    buf_puts(b, "}\n");
}

static void stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    struct told *told = r->state;
    if (!told->begun && ev->kind != CHAT_EVENT_NONE)
        buf_puts(out, "{\"status\":\"pulling manifest\"}\n");
    told->begun |= ev->kind != CHAT_EVENT_NONE;
    if (ev->kind == CHAT_EVENT_PROGRESS && ev->total_bytes > 0)
        write_progress(ev, out);
    else if (ev->kind == CHAT_EVENT_END)
        buf_puts(out, "{\"status\":\"success\"}\n");
    else if (ev->kind == CHAT_EVENT_ERROR)
        ollama_write_stream_error(ev, out);
}

static t9_status answer(const struct prep *p, struct chat_request *r, struct buf *out,
                        struct chat_error *err)
{
    (void)p;
    (void)err;
    buf_puts(out, "{\"status\":\"success\"");
    openai_write_warnings(r, out);
    buf_putc(out, '}');
    return T9_STATUS_OK;
}

const struct chat_adapter ollama_pull_adapter = {
    .name = "ollama_pull",
    .path = "/api/pull",
    .summary = "Fetches a model onto this machine, if the server allows that.",
    .fields = fields,
    .n_fields = T9_COUNT(fields),
    .reply_schema = "{\"type\":\"object\",\"required\":[\"status\"],\"properties\":{\"status\":{"
                    "\"const\":\"success\"}}}",
    .error_schema = "{\"$ref\":\"#/components/schemas/OllamaError\"}",
    .stream_type = "application/x-ndjson",
    .id_prefix = "",
    .comment = "{\"status\":\"waiting\"}\n",
    .state_bytes = sizeof(struct told),
    .pulls = true,
    .parse = parse,
    .answer = answer,
    .error = ollama_error,
    .stream = stream,
};
