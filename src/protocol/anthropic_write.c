/*
 * protocol/anthropic_write.c - replies of the Messages API: whole, as events, errors. Members keep
 * one fixed order so that transcripts can be compared. Any thread; what a stream remembers is in
 * its reply's state.
 */
#include "protocol/anthropic_impl.h"

#include "base/hash.h"
#include "protocol/openai_write.h"

/* ---- signatures ---- */

void anthropic_seal_add(struct anthropic_seal *s, str text)
{
    /* FNV-1a: the same however the text is cut into pieces. */
    uint64_t h = s->n_bytes ? s->hash : 0xcbf29ce484222325u;
    for (size_t i = 0; i < text.n; i++)
        h = (h ^ (unsigned char)text.p[i]) * 0x100000001b3u;
    s->hash = h;
    s->n_bytes += text.n;
}

str anthropic_seal_text(const struct anthropic_seal *s, char out[ANTHROPIC_SIGNATURE_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    enum { PREFIX = sizeof ANTHROPIC_SIGNATURE_PREFIX - 1 };
    memcpy(out, ANTHROPIC_SIGNATURE_PREFIX, PREFIX);
    for (unsigned half = 0; half < 2; half++) {
        uint64_t h = hash_xxh3_64(s, sizeof *s, 0x74395349474eu + half);
        for (unsigned i = 0; i < 16; i++)
            out[PREFIX + half * 16 + i] = digits[(h >> (60 - 4 * i)) & 15];
    }
    out[ANTHROPIC_SIGNATURE_BYTES] = 0;
    return (str){out, ANTHROPIC_SIGNATURE_BYTES};
}

/* ---- members ---- */

static void member(struct buf *b, const char *key, str v)
{
    buf_putc(b, ',');
    openai_member_str(b, key, v);
}

/* That API counts three kinds apart: computed and not to be kept, computed and kept, taken from the
 * cache. */
static void write_usage(const struct chat_reply *r, const struct chat_usage *u, bool of_message,
                        struct buf *b)
{
    const struct t9_request_params *p = &r->request->sampling;
    int32_t kept = p->n_pin_tokens > u->n_cached ? p->n_pin_tokens - u->n_cached : 0;
    bool hour = p->pin_ms > 300000;
    buf_printf(b,
               "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":%d,"
               "\"cache_read_input_tokens\":%d,",
               u->n_prompt - u->n_cached - kept, kept, u->n_cached);
    if (of_message)
        buf_printf(b,
                   "\"cache_creation\":{\"ephemeral_5m_input_tokens\":%d,"
                   "\"ephemeral_1h_input_tokens\":%d},",
                   hour ? 0 : kept, hour ? kept : 0);
    buf_printf(b, "\"output_tokens\":%d", u->n_completion);
    buf_puts(b, of_message ? ",\"service_tier\":\"standard\"}" : "}");
}

void anthropic_write_extras(const struct chat_request *r, const uint64_t *seed,
                            const struct chat_part *cut_call, struct buf *b)
{
    if (!seed && !cut_call && r->n_warnings == 0)
        return;
    buf_puts(b, ",\"tempo9\":{");
    const char *before = "";
    if (seed) {
        buf_puts(b, "\"seed\":");
        if (r->seed_is_negative)
            buf_printf(b, "%lld", (long long)*seed);
        else
            buf_printf(b, "%llu", (unsigned long long)*seed);
        before = ",";
    }
    for (size_t i = 0; i < r->n_warnings; i++) {
        buf_puts(b, i ? "," : before);
        buf_puts(b, i ? "" : "\"warnings\":[");
        json_write_str(b, r->warnings[i]);
    }
    if (r->n_warnings) {
        buf_putc(b, ']');
        before = ",";
    }
    if (cut_call) {
        buf_puts(b, before);
        buf_puts(b, "\"cut_call\":{");
        openai_member_str(b, "id", cut_call->call_id);
        member(b, "name", cut_call->name);
        member(b, "partial_json", cut_call->text);
        buf_putc(b, '}');
    }
    buf_putc(b, '}');
}

/* "stop_reason":..,"stop_sequence":.. */
static void write_stop(const struct chat_reply *r, t9_finish finish, int32_t stop, bool has_calls,
                       struct buf *b)
{
    const char *reason = finish == T9_FINISH_LENGTH ? "max_tokens"
                         : has_calls                ? "tool_use"
                         : stop >= 0                ? "stop_sequence"
                                                    : "end_turn";
    openai_member_str(b, "stop_reason", str_from(reason));
    buf_puts(b, ",\"stop_sequence\":");
    if (finish != T9_FINISH_LENGTH && !has_calls && stop >= 0 && (size_t)stop < r->request->n_stops)
        json_write_str(b, r->request->stops[stop]);
    else
        buf_puts(b, "null");
}

/* "id":.., to "content":[ */
static void write_head(const struct chat_reply *r, struct buf *b)
{
    openai_member_str(b, "id", str_from(r->id));
    buf_puts(b, ",\"type\":\"message\",\"role\":\"assistant\"");
    member(b, "model", r->model);
    buf_puts(b, ",\"content\":[");
}

/* ---- streams ---- */

static void open_event(const char *type, struct buf *b)
{
    buf_printf(b, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void close_event(struct buf *b)
{
    buf_puts(b, "}\n\n");
}

static void write_begin(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    open_event("message_start", b);
    buf_puts(b, ",\"message\":{");
    write_head(r, b);
    buf_puts(b, "],\"stop_reason\":null,\"stop_sequence\":null,");
    write_usage(r, &ev->usage, true, b);
    anthropic_write_extras(r->request, &r->seed, NULL, b);
    buf_putc(b, '}');
    close_event(b);
    buf_puts(b, ANTHROPIC_PING);
}

static void open_delta(const struct anthropic_state *s, const char *type, const char *key,
                       struct buf *b)
{
    open_event("content_block_delta", b);
    buf_printf(b, ",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":", s->index, type, key);
}

static void write_delta(const struct anthropic_state *s, const char *type, const char *key,
                        str text, struct buf *b)
{
    open_delta(s, type, key, b);
    json_write_str(b, text);
    buf_putc(b, '}');
    close_event(b);
}

static void close_block(struct anthropic_state *s, struct buf *b)
{
    char signature[ANTHROPIC_SIGNATURE_BYTES + 1];
    if (s->open == CHAT_EVENT_NONE)
        return;
    if (s->open == CHAT_EVENT_REASONING)
        write_delta(s, "signature_delta", "signature", anthropic_seal_text(&s->seal, signature), b);
    open_event("content_block_stop", b);
    buf_printf(b, ",\"index\":%d", s->index);
    close_event(b);
    *s = (struct anthropic_state){.index = s->index + 1};
}

/* The block that the event belongs to, if it is not open yet. */
static void open_block(struct anthropic_state *s, const struct chat_event *ev, struct buf *b)
{
    if (s->open == (int)ev->kind && ev->kind != CHAT_EVENT_CALL)
        return;
    close_block(s, b);
    s->open = (int)ev->kind;
    open_event("content_block_start", b);
    buf_printf(b, ",\"index\":%d,\"content_block\":{\"type\":", s->index);
    if (ev->kind == CHAT_EVENT_TEXT) {
        buf_puts(b, "\"text\",\"text\":\"\"}");
    } else if (ev->kind == CHAT_EVENT_REASONING) {
        buf_puts(b, "\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        buf_puts(b, "\"tool_use\"");
        member(b, "id", ev->call_id);
        member(b, "name", ev->text);
        buf_puts(b, ",\"input\":{}}");
    }
    close_event(b);
}

static void write_text(struct anthropic_state *s, const struct chat_event *ev, struct buf *b)
{
    bool text = ev->kind == CHAT_EVENT_TEXT;
    if (ev->text.n == 0)
        return;
    open_block(s, ev, b);
    if (!text)
        anthropic_seal_add(&s->seal, ev->text);
    write_delta(s, text ? "text_delta" : "thinking_delta", text ? "text" : "thinking", ev->text, b);
}

/* A client parses them as an object; what is none becomes the only member of one. */
#define WRAP "{\"arguments\":\""

/* The text as it is within the string that WRAP opens. */
static void write_wrapped(const struct anthropic_state *s, const char *before, str text,
                          const char *after, struct buf *b)
{
    struct buf inner, all;
    buf_init(&inner, b->max);
    buf_init(&all, b->max);
    json_write_str(&inner, text);
    buf_puts(&all, before);
    if (inner.n > 2)
        buf_puts_str(&all, str_slice(buf_str(&inner), 1, inner.n - 1));
    buf_puts(&all, after);
    write_delta(s, "input_json_delta", "partial_json", buf_str(&all), b);
    b->failed |= inner.failed || all.failed;
    buf_deinit(&inner);
    buf_deinit(&all);
}

static bool begins_object(str args)
{
    str t = str_trim(args);
    return t.n > 0 && t.p[0] == '{';
}

static void write_args(struct anthropic_state *s, const struct chat_event *ev, struct buf *b)
{
    if (ev->text.n == 0)
        return;
    if (!s->has_args)
        s->wrapped = !begins_object(ev->text);
    if (s->wrapped)
        write_wrapped(s, s->has_args ? "" : WRAP, ev->text, "", b);
    else
        write_delta(s, "input_json_delta", "partial_json", ev->text, b);
    s->has_args = true;
}

static void write_call_end(struct anthropic_state *s, const struct chat_event *ev, struct buf *b)
{
    if (s->wrapped && ev->call_complete)
        write_delta(s, "input_json_delta", "partial_json", STR("\"}"), b);
    close_block(s, b);
}

static void write_finish(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    close_block(r->state, b);
    open_event("message_delta", b);
    buf_puts(b, ",\"delta\":{");
    write_stop(r, ev->finish, ev->stop, ev->has_calls, b);
    buf_puts(b, "},");
    write_usage(r, &ev->usage, false, b);
    close_event(b);
}

void anthropic_stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    struct anthropic_state *s = r->state;
    switch (ev->kind) {
    case CHAT_EVENT_NONE:
    case CHAT_EVENT_PROGRESS: break;
    case CHAT_EVENT_BEGIN: write_begin(r, ev, out); break;
    case CHAT_EVENT_TEXT:
    case CHAT_EVENT_REASONING: write_text(s, ev, out); break;
    case CHAT_EVENT_CALL: open_block(s, ev, out); break;
    case CHAT_EVENT_ARGS: write_args(s, ev, out); break;
    case CHAT_EVENT_CALL_END: write_call_end(s, ev, out); break;
    case CHAT_EVENT_FINISH: write_finish(r, ev, out); break;
    case CHAT_EVENT_END:
        open_event("message_stop", out);
        close_event(out);
        break;
    case CHAT_EVENT_ERROR:
        buf_puts(out, "event: error\ndata: ");
        anthropic_write_error(&ev->error, out);
        buf_puts(out, "\n\n");
        break;
    }
}

/* ---- whole replies ---- */

/* Arguments as an object: as the model wrote it, or what it wrote as the only member of one. */
static void write_input(str args, struct buf *b)
{
    yyjson_doc *doc = NULL;
    bool fine = args.n && json_parse(&doc, args, JSON_LIMITS_REQUEST, NULL) == T9_STATUS_OK &&
                yyjson_is_obj(yyjson_doc_get_root(doc));
    if (fine)
        buf_puts_str(b, str_trim(args));
    else if (args.n == 0)
        buf_puts(b, "{}");
    else {
        buf_putc(b, '{');
        openai_member_str(b, "arguments", args);
        buf_putc(b, '}');
    }
    yyjson_doc_free(doc);
}

static void write_part(const struct chat_part *p, struct buf *b)
{
    char signature[ANTHROPIC_SIGNATURE_BYTES + 1];
    struct anthropic_seal seal = {0};
    if (p->kind == CHAT_EVENT_TEXT) {
        buf_puts(b, "{\"type\":\"text\"");
        member(b, "text", p->text);
    } else if (p->kind == CHAT_EVENT_REASONING) {
        anthropic_seal_add(&seal, p->text);
        buf_puts(b, "{\"type\":\"thinking\"");
        member(b, "thinking", p->text);
        member(b, "signature", anthropic_seal_text(&seal, signature));
    } else {
        buf_puts(b, "{\"type\":\"tool_use\"");
        member(b, "id", p->call_id);
        member(b, "name", p->name);
        buf_puts(b, ",\"input\":");
        write_input(p->text, b);
    }
    buf_putc(b, '}');
}

/* A call that was cut off is no block: there is no way to tell a client that it is not complete. */
static const struct chat_part *write_parts(const struct chat_choice *c, struct buf *b)
{
    const struct chat_part *cut = NULL;
    const char *before = "";
    for (size_t i = 0; i < c->n_parts; i++) {
        const struct chat_part *p = &c->parts[i];
        if (p->kind == CHAT_EVENT_CALL && !p->complete) {
            cut = p;
            continue;
        }
        buf_puts(b, before);
        write_part(p, b);
        before = ",";
    }
    return cut;
}

void anthropic_whole(const struct chat_reply *r, const struct chat_choice *choices,
                     size_t n_choices, const struct chat_event *end, struct buf *out)
{
    static const struct chat_choice none = {.stop = -1};
    const struct chat_choice *c = n_choices ? choices : &none;
    buf_putc(out, '{');
    write_head(r, out);
    const struct chat_part *cut = write_parts(c, out);
    buf_puts(out, "],");
    write_stop(r, c->finish, c->stop, c->has_calls, out);
    buf_putc(out, ',');
    write_usage(r, &end->usage, true, out);
    anthropic_write_extras(r->request, &r->seed, cut, out);
    buf_putc(out, '}');
}

/* ---- errors ---- */

static const char *type_of(int http_status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},      {413, "request_too_large"},
                 {429, "rate_limit_error"},     {503, "overloaded_error"}};
    for (size_t i = 0; i < T9_COUNT(types); i++) {
        if (types[i].status == http_status)
            return types[i].type;
    }
    return http_status < 500 ? "invalid_request_error" : "api_error";
}

void anthropic_write_error(const struct chat_error *e, struct buf *out)
{
    buf_puts(out, "{\"type\":\"error\",\"error\":{");
    openai_member_str(out, "type", str_from(type_of(chat_error_http(e))));
    member(out, "message", str_from(e->err.msg));
    buf_puts(out, "},\"request_id\":");
    if (e->request_id)
        json_write_str(out, str_from(e->request_id));
    else
        buf_puts(out, "null");
    buf_putc(out, '}');
}
