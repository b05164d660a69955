/*
 * protocol/responses_write.c - writes Responses: the object, its items, and the events of a stream.
 * Each part of the answer is an item, and its number in the answer is its output_index; what an
 * item says when it is done comes from the run's own record (reply->part), so that a stream and a
 * whole reply can't differ. Any thread; what is remembered between events is in reply->state.
 */
#include "protocol/responses.h"

#include "base/utf8.h"
#include "protocol/openai_write.h"
#include "protocol/sealed.h"

#include <string.h>

enum { TEXT_BYTES_MAX = 256 << 20 };

/* How far the argument "input" of a custom tool's call has been read. */
struct text_arg {
    size_t at; /* bytes of the arguments that were read */
    enum {
        TEXT_ARG_BEFORE, /* its string has not begun */
        TEXT_ARG_INSIDE,
        TEXT_ARG_OVER,
        TEXT_ARG_NONE, /* the arguments are something else */
    } phase;
};

struct state {
    int64_t sequence;
    size_t item;          /* the open one, or the next */
    chat_event_kind open; /* TEXT, REASONING or CALL; NONE: no item is open */
    struct text_arg arg;  /* of an open custom call */
    bool begun;
};

_Static_assert(sizeof(struct state) <= RESPONSES_STATE_BYTES, "more than is asked for");

/* ---- the text of a custom tool's call ---- */

static size_t skip_space(str s, size_t at)
{
    while (at < s.n && strchr(" \t\r\n", s.p[at]) && s.p[at])
        at++;
    return at;
}

/* Looks for {"input":" at the beginning, as far as there is text. */
static void find_text_arg(struct text_arg *t, str args)
{
    static const char *const words[] = {"{", "\"input\"", ":", "\""};
    size_t at = 0;
    for (size_t i = 0; i < T9_COUNT(words); i++) {
        at = skip_space(args, at);
        for (const char *p = words[i]; *p; p++, at++) {
            if (at == args.n)
                return;
            if (args.p[at] == *p)
                continue;
            t->phase = TEXT_ARG_NONE;
            return;
        }
    }
    t->at = at;
    t->phase = TEXT_ARG_INSIDE;
}

static uint32_t hex4(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v & 0xffff;
}

/* Reads \uXXXX, a pair of them where the first asks for it; half of a pair is no character. Returns
 * how many bytes they are; 0: there is more to come. */
static size_t read_unicode(str s, struct buf *out)
{
    char text[4];
    if (s.n < 6)
        return 0;
    uint32_t cp = hex4(s.p + 2), low = 0;
    bool half = cp >= 0xd800 && cp < 0xdc00;
    bool more = half && (s.n < 7 || (s.p[6] == '\\' && (s.n < 8 || s.p[7] == 'u')));
    if (more && s.n < 12)
        return 0;
    if (more)
        low = hex4(s.p + 8);
    bool pair = low >= 0xdc00 && low < 0xe000;
    if (pair)
        cp = 0x10000 + ((cp & 0x3ff) << 10) + (low & 0x3ff);
    size_t n = utf8_encode(cp, text);
    buf_append(out, n ? text : "\xef\xbf\xbd", n ? n : 3);
    return pair ? 12 : 6;
}

/* The same for any escape. */
static size_t read_escape(str s, struct buf *out)
{
    static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
    if (s.n < 2)
        return 0;
    if (s.p[1] == 'u')
        return read_unicode(s, out);
    const char *name = s.p[1] ? strchr(names, s.p[1]) : NULL;
    buf_putc(out, name ? values[name - names] : s.p[1]);
    return 2;
}

/* Appends what is new of the text. `args` is a call's arguments so far, JSON that we wrote. */
static void read_text_arg(struct text_arg *t, str args, struct buf *out)
{
    if (t->phase == TEXT_ARG_BEFORE)
        find_text_arg(t, args);
    while (t->phase == TEXT_ARG_INSIDE && t->at < args.n) {
        str rest = str_slice(args, t->at, args.n);
        size_t n = 0;
        while (n < rest.n && rest.p[n] != '"' && rest.p[n] != '\\')
            n++;
        buf_append(out, rest.p, n);
        t->at += n;
        if (n == rest.n)
            return;
        if (rest.p[n] == '"') {
            t->at++;
            t->phase = TEXT_ARG_OVER;
            return;
        }
        n = read_escape(str_slice(rest, n, rest.n), out);
        if (n == 0)
            return;
        t->at += n;
    }
}

/* Arguments that are not of the one form are given as they are, unless they have the text after
 * all.
 */
static void read_other_arg(str args, struct buf *out)
{
    yyjson_doc *doc = NULL;
    yyjson_val *input = NULL;
    if (json_parse(&doc, args, JSON_LIMITS_REQUEST, NULL) == T9_STATUS_OK)
        input = json_get(yyjson_doc_get_root(doc), "input");
    if (yyjson_is_str(input))
        buf_puts_str(out, json_str(input));
    else if (!str_eqz(args, "{}"))
        buf_puts_str(out, args);
    yyjson_doc_free(doc);
}

/* What is still to come of the text at the call's end. */
static void end_text_arg(struct text_arg *t, str args, struct buf *out)
{
    read_text_arg(t, args, out);
    if (t->phase == TEXT_ARG_NONE || t->phase == TEXT_ARG_BEFORE)
        read_other_arg(args, out);
}

/* ---- items ---- */

/* Of one request's items, by their numbers: msg_<what the reply's id has>_2. */
static void write_item_id(const struct chat_reply *r, const char *prefix, size_t item,
                          struct buf *b)
{
    const char *own = strchr(r->id, '_');
    buf_printf(b, "\"%s_%s_%zu\"", prefix, own ? own + 1 : r->id, item);
}

static const struct responses_tool *find_tool(const struct chat_reply *r, str name)
{
    const struct responses_own *own = responses_own(r->request);
    for (size_t i = 0; own->tools && own->tools[i].name.p; i++) {
        if (str_eq(own->tools[i].name, name))
            return &own->tools[i];
    }
    return NULL;
}

static bool is_text_call(const struct chat_reply *r, str name)
{
    const struct responses_tool *tool = find_tool(r, name);
    return tool && tool->is_text;
}

static const char *id_prefix(const struct chat_reply *r, const struct chat_part *p)
{
    if (p->kind == CHAT_EVENT_TEXT)
        return "msg";
    if (p->kind == CHAT_EVENT_REASONING)
        return "rs";
    return is_text_call(r, p->name) ? "ctc" : "fc";
}

static void write_logprobs(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b)
{
    if (r->request->logprobs && t->logprobs)
        openai_write_logprobs(r, t, b);
    else
        buf_puts(b, "[]");
}

/* The one part of an item: of a message, of reasoning, or of its summary. */
static void write_part(const struct chat_reply *r, const struct chat_part *p, struct buf *b)
{
    bool text = p->kind == CHAT_EVENT_TEXT;
    buf_printf(b, "{\"type\":\"%s\",",
               text                                   ? "output_text"
               : responses_own(r->request)->summarise ? "summary_text"
                                                      : "reasoning_text");
    openai_member_str(b, "text", p->text);
    if (text) {
        buf_puts(b, ",\"annotations\":[],\"logprobs\":");
        write_logprobs(r, &p->tokens, b);
    }
    buf_putc(b, '}');
}

static void write_parts(const struct chat_reply *r, const struct chat_part *p, bool done,
                        struct buf *b)
{
    buf_putc(b, '[');
    if (done)
        write_part(r, p, b);
    buf_putc(b, ']');
}

static void write_reasoning(const struct chat_reply *r, const struct chat_part *p, bool done,
                            struct buf *b)
{
    const struct responses_own *own = responses_own(r->request);
    buf_puts(b, ",\"summary\":");
    write_parts(r, p, done && own->summarise, b);
    if (!own->summarise) {
        buf_puts(b, ",\"content\":");
        write_parts(r, p, done, b);
    }
    if (own->seal && done) {
        buf_puts(b, ",\"encrypted_content\":\"");
        sealed_write(p->text, b);
        buf_putc(b, '"');
    }
}

static void write_call(const struct chat_reply *r, const struct chat_part *p, bool done,
                       struct buf *b)
{
    const struct responses_tool *tool = find_tool(r, p->name);
    buf_putc(b, ',');
    openai_member_str(b, "call_id", p->call_id);
    buf_putc(b, ',');
    openai_member_str(b, "name", tool ? tool->local : p->name);
    if (tool && tool->space.n) {
        buf_putc(b, ',');
        openai_member_str(b, "namespace", tool->space);
    }
    buf_putc(b, ',');
    if (!is_text_call(r, p->name)) {
        openai_member_str(b, "arguments", done ? p->text : STR(""));
        return;
    }
    struct text_arg arg = {0};
    struct buf input;
    buf_init(&input, TEXT_BYTES_MAX);
    if (done)
        end_text_arg(&arg, p->text, &input);
    openai_member_str(b, "input", buf_str(&input));
    b->failed |= input.failed;
    buf_deinit(&input);
}

/* An item as it begins, and as it is when it is done. */
static void write_item(const struct chat_reply *r, const struct chat_part *p, size_t i,
                       const char *status, struct buf *b)
{
    bool done = strcmp(status, "in_progress") != 0;
    bool text = p->kind == CHAT_EVENT_TEXT, call = p->kind == CHAT_EVENT_CALL;
    buf_puts(b, "{\"id\":");
    write_item_id(r, id_prefix(r, p), i, b);
    buf_printf(b, ",\"type\":\"%s\",\"status\":\"%s\"",
               text                       ? "message"
               : !call                    ? "reasoning"
               : is_text_call(r, p->name) ? "custom_tool_call"
                                          : "function_call",
               status);
    if (text) {
        buf_puts(b, ",\"role\":\"assistant\",\"content\":");
        write_parts(r, p, done, b);
    } else if (call) {
        write_call(r, p, done, b);
    } else {
        write_reasoning(r, p, done, b);
    }
    buf_putc(b, '}');
}

/* `cut`: the answer ended here, by its length or an error. */
static const char *item_status(const struct chat_part *p, bool cut)
{
    bool complete = p->kind == CHAT_EVENT_CALL ? p->complete : !cut;
    return complete ? "completed" : "incomplete";
}

/* ---- the object ---- */

static void write_output(const struct chat_reply *r, bool cut, struct buf *b)
{
    struct chat_part p, next;
    bool more = r->part(r->part_ctx, 0, &p);
    for (size_t i = 0; more; i++) {
        if (i)
            buf_putc(b, ',');
        more = r->part(r->part_ctx, i + 1, &next);
        write_item(r, &p, i, item_status(&p, cut && !more), b);
        p = next;
    }
}

static void write_usage(const struct chat_usage *u, struct buf *b)
{
    buf_printf(b,
               "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,"
               "\"cache_write_tokens\":0},\"output_tokens\":%d,\"output_tokens_details\":{"
               "\"reasoning_tokens\":%d},\"total_tokens\":%lld}",
               u->n_prompt, u->n_cached, u->n_completion, u->n_reasoning,
               (long long)u->n_prompt + u->n_completion);
}

/* The codes that the published schema has. */
static const char *error_code(const struct chat_error *e)
{
    int status = chat_error_http(e);
    return status == 429 ? "rate_limit_exceeded" : status < 500 ? "invalid_prompt" : "server_error";
}

/* `ev` is the END or ERROR event; NULL: nothing was said yet. */
static void write_response(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    const struct responses_own *own = responses_own(r->request);
    bool failed = ev && ev->kind == CHAT_EVENT_ERROR, ended = ev && !failed;
    bool cut = ended && ev->n_choices && ev->choices[0].finish == T9_FINISH_LENGTH;
    buf_putc(b, '{');
    openai_member_str(b, "id", str_from(r->id));
    buf_puts(b, ",\"object\":\"response\",");
    openai_member_i64(b, "created_at", r->created_s);
    buf_printf(b, ",\"status\":\"%s\",\"error\":",
               failed ? "failed"
               : !ev  ? "in_progress"
               : cut  ? "incomplete"
                      : "completed");
    if (failed) {
        buf_printf(b, "{\"code\":\"%s\",", error_code(&ev->error));
        openai_member_str(b, "message", str_from(ev->error.err.msg));
        buf_putc(b, '}');
    } else {
        buf_puts(b, "null");
    }
    buf_puts(b, cut ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},"
                    : ",\"incomplete_details\":null,");
    openai_member_str(b, "model", r->model);
    buf_puts(b, ",\"output\":[");
    if (ev)
        write_output(r, cut || failed, b);
    buf_putc(b, ']');
    buf_puts_str(b, own->told);
    buf_puts(b, ",\"usage\":");
    if (ended) {
        write_usage(&ev->usage, b);
        buf_putc(b, ',');
        openai_write_extras(r, ev, b);
    } else {
        buf_puts(b, "null");
    }
    buf_putc(b, '}');
}

void responses_whole(const struct chat_reply *r, const struct chat_choice *choices,
                     size_t n_choices, const struct chat_event *end, struct buf *out)
{
    (void)choices;
    (void)n_choices;
    size_t at = out->n;
    write_response(r, end, out);
    if (!out->failed)
        responses_keep(r, str_slice(buf_str(out), at, out->n));
}

/* ---- events ---- */

static void open_event(struct state *st, const char *type, struct buf *b)
{
    buf_printf(b, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", type, type,
               (long long)st->sequence++);
}

static void close_event(struct buf *b)
{
    buf_puts(b, "}\n\n");
}

static void object_event(struct state *st, const char *type, const struct chat_reply *r,
                         const struct chat_event *ev, struct buf *b)
{
    open_event(st, type, b);
    buf_puts(b, ",\"response\":");
    size_t at = b->n;
    write_response(r, ev, b);
    if (ev && ev->kind == CHAT_EVENT_END && !b->failed)
        responses_keep(r, str_slice(buf_str(b), at, b->n));
    close_event(b);
}

static void item_event(struct state *st, const char *type, const struct chat_reply *r,
                       const struct chat_part *p, const char *status, struct buf *b)
{
    open_event(st, type, b);
    buf_printf(b, ",\"output_index\":%zu,\"item\":", st->item);
    write_item(r, p, st->item, status, b);
    close_event(b);
}

/* An event of the open item, or of its only part: up to what it says. */
static void open_inner_event(struct state *st, const char *type, const struct chat_reply *r,
                             const struct chat_part *p, struct buf *b)
{
    open_event(st, type, b);
    buf_puts(b, ",\"item_id\":");
    write_item_id(r, id_prefix(r, p), st->item, b);
    buf_printf(b, ",\"output_index\":%zu", st->item);
    if (p->kind == CHAT_EVENT_REASONING && responses_own(r->request)->summarise)
        buf_puts(b, ",\"summary_index\":0");
    else if (p->kind != CHAT_EVENT_CALL)
        buf_puts(b, ",\"content_index\":0");
}

/* Names of the events of an item's part. */
struct part_events {
    const char *added, *delta, *done, *part_done;
    const char *member; /* of `done`, which has all of it */
};

static const struct part_events *events_of(const struct chat_reply *r, const struct chat_part *p)
{
    static const struct part_events text = {
        "response.content_part.added", "response.output_text.delta", "response.output_text.done",
        "response.content_part.done", "text"};
    static const struct part_events reasoning = {
        "response.content_part.added", "response.reasoning_text.delta",
        "response.reasoning_text.done", "response.content_part.done", "text"};
    static const struct part_events summary = {
        "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "text"};
    static const struct part_events call = {NULL, "response.function_call_arguments.delta",
                                            "response.function_call_arguments.done", NULL,
                                            "arguments"};
    static const struct part_events custom = {NULL, "response.custom_tool_call_input.delta",
                                              "response.custom_tool_call_input.done", NULL,
                                              "input"};
    if (p->kind == CHAT_EVENT_TEXT)
        return &text;
    if (p->kind == CHAT_EVENT_REASONING)
        return responses_own(r->request)->summarise ? &summary : &reasoning;
    return is_text_call(r, p->name) ? &custom : &call;
}

static void part_event(struct state *st, const char *type, const struct chat_reply *r,
                       const struct chat_part *p, struct buf *b)
{
    if (!type)
        return;
    open_inner_event(st, type, r, p, b);
    buf_puts(b, ",\"part\":");
    write_part(r, p, b);
    close_event(b);
}

static void delta_event(struct state *st, const struct chat_reply *r, const struct chat_part *p,
                        str delta, struct buf *b)
{
    open_inner_event(st, events_of(r, p)->delta, r, p, b);
    buf_putc(b, ',');
    openai_member_str(b, "delta", delta);
    if (p->kind == CHAT_EVENT_TEXT) {
        buf_puts(b, ",\"logprobs\":");
        write_logprobs(r, &p->tokens, b);
    }
    close_event(b);
}

/* What is new of a custom tool's text. */
static void text_arg_delta(struct state *st, const struct chat_reply *r, const struct chat_part *p,
                           bool end, struct buf *b)
{
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    if (end)
        end_text_arg(&st->arg, p->text, &text);
    else
        read_text_arg(&st->arg, p->text, &text);
    if (text.n)
        delta_event(st, r, p, buf_str(&text), b);
    b->failed |= text.failed;
    buf_deinit(&text);
}

static void done_event(struct state *st, const struct chat_reply *r, const struct chat_part *p,
                       struct buf *b)
{
    const struct part_events *names = events_of(r, p);
    open_inner_event(st, names->done, r, p, b);
    buf_putc(b, ',');
    if (p->kind == CHAT_EVENT_CALL && is_text_call(r, p->name)) {
        struct text_arg arg = {0};
        struct buf input;
        buf_init(&input, TEXT_BYTES_MAX);
        end_text_arg(&arg, p->text, &input);
        openai_member_str(b, names->member, buf_str(&input));
        b->failed |= input.failed;
        buf_deinit(&input);
    } else {
        openai_member_str(b, names->member, p->text);
    }
    if (p->kind == CHAT_EVENT_TEXT) {
        buf_puts(b, ",\"logprobs\":");
        write_logprobs(r, &p->tokens, b);
    }
    close_event(b);
    part_event(st, names->part_done, r, p, b);
}

/* ---- streams ---- */

static void begin_item(struct state *st, const struct chat_reply *r, const struct chat_part *p,
                       struct buf *b)
{
    struct chat_part empty = *p;
    empty.text = STR("");
    empty.tokens.n = 0;
    st->open = p->kind;
    st->arg = (struct text_arg){0};
    item_event(st, "response.output_item.added", r, &empty, "in_progress", b);
    part_event(st, events_of(r, p)->added, r, &empty, b);
}

static void end_item(struct state *st, const struct chat_reply *r, bool cut, struct buf *b)
{
    struct chat_part p;
    if (st->open == CHAT_EVENT_NONE || !r->part(r->part_ctx, st->item, &p))
        return;
    if (p.kind == CHAT_EVENT_CALL && is_text_call(r, p.name))
        text_arg_delta(st, r, &p, true, b);
    done_event(st, r, &p, b);
    item_event(st, "response.output_item.done", r, &p, item_status(&p, cut), b);
    st->open = CHAT_EVENT_NONE;
    st->item++;
}

static void write_begin(struct state *st, const struct chat_reply *r, struct buf *b)
{
    st->begun = true;
    object_event(st, "response.created", r, NULL, b);
    object_event(st, "response.in_progress", r, NULL, b);
}

static void write_text(struct state *st, const struct chat_reply *r, const struct chat_event *ev,
                       struct buf *b)
{
    struct chat_part p = {.kind = ev->kind, .text = ev->text, .tokens = ev->tokens};
    bool logprobs = ev->kind == CHAT_EVENT_TEXT && r->request->logprobs && ev->tokens.n > 0;
    if (ev->text.n == 0 && !(logprobs && st->open == ev->kind))
        return; /* tokens at the end that have no text */
    if (st->open != ev->kind) {
        end_item(st, r, false, b);
        begin_item(st, r, &p, b);
    }
    delta_event(st, r, &p, ev->text, b);
}

static void write_call_event(struct state *st, const struct chat_reply *r,
                             const struct chat_event *ev, struct buf *b)
{
    struct chat_part p;
    if (ev->kind == CHAT_EVENT_CALL)
        end_item(st, r, false, b);
    if (!r->part(r->part_ctx, st->item, &p))
        return;
    if (ev->kind == CHAT_EVENT_CALL)
        begin_item(st, r, &p, b);
    else if (ev->kind == CHAT_EVENT_CALL_END)
        end_item(st, r, false, b);
    else if (is_text_call(r, p.name))
        text_arg_delta(st, r, &p, false, b);
    else
        delta_event(st, r, &p, ev->text, b);
}

/* Before anything was said there is no response that could fail. */
static void write_error(struct state *st, const struct chat_reply *r, const struct chat_event *ev,
                        struct buf *b)
{
    if (st->begun) {
        object_event(st, "response.failed", r, ev, b);
        return;
    }
    open_event(st, "error", b);
    buf_printf(b, ",\"code\":\"%s\",", ev->error.code ? ev->error.code : error_code(&ev->error));
    openai_member_str(b, "message", str_from(ev->error.err.msg));
    buf_puts(b, ",\"param\":");
    if (ev->error.param[0])
        json_write_str(b, str_from(ev->error.param));
    else
        buf_puts(b, "null");
    close_event(b);
}

static void write_end(struct state *st, const struct chat_reply *r, const struct chat_event *ev,
                      struct buf *b)
{
    bool cut = ev->n_choices && ev->choices[0].finish == T9_FINISH_LENGTH;
    object_event(st, cut ? "response.incomplete" : "response.completed", r, ev, b);
}

void responses_stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    struct state none = {0}; /* an error before the run was prepared */
    struct state *st = r->state ? r->state : &none;
    switch (ev->kind) {
    case CHAT_EVENT_NONE:
    case CHAT_EVENT_PROGRESS: break;
    case CHAT_EVENT_BEGIN: write_begin(st, r, out); break;
    case CHAT_EVENT_TEXT:
    case CHAT_EVENT_REASONING: write_text(st, r, ev, out); break;
    case CHAT_EVENT_CALL:
    case CHAT_EVENT_ARGS:
    case CHAT_EVENT_CALL_END: write_call_event(st, r, ev, out); break;
    case CHAT_EVENT_FINISH: end_item(st, r, ev->finish == T9_FINISH_LENGTH, out); break;
    case CHAT_EVENT_END: write_end(st, r, ev, out); break;
    case CHAT_EVENT_ERROR: write_error(st, r, ev, out); break;
    }
}
