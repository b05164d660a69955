/*
 * protocol/responses_kept.c - responses that are stored: reading what a request goes on from,
 * handing a reply to the store, and the requests about one. The store's file is read on the thread
 * that prepares requests and written by a thread of the store; the threads that move bytes only
 * hand over.
 */
#include "protocol/responses.h"

#include "base/log.h"
#include "base/num.h"
#include "protocol/openai_write.h"
#include "protocol/prep.h"
#include "store/store.h"

#include <stdio.h>

/* Read of the store for one request, and given of it. */
#define STORED_BYTES_MAX ((size_t)STORE_CONVERSATION_BYTES_MAX)

enum { REFERENCES_MAX = 256, LIMIT_DEFAULT = 20, LIMIT_MAX = 100 };

/* ---- ids ---- */

/* resp_X has items msg_X_0, rs_X_1 ..., and of its input msg_X_i0 ... */
static bool response_of(str item_id, char out[STORE_ID_BYTES_MAX + 1])
{
    size_t from = str_find(item_id, STR("_"), 0), to = item_id.n;
    while (to > 0 && item_id.p[to - 1] != '_')
        to--;
    if (from == (size_t)-1 || to < from + 3)
        return false;
    str own = str_slice(item_id, from + 1, to - 1);
    int n = snprintf(out, STORE_ID_BYTES_MAX + 1, "resp_" STR_FMT, STR_ARG(own));
    return n > 0 && n <= STORE_ID_BYTES_MAX;
}

static const char *input_prefix(str type)
{
    static const char *const prefixes[][2] = {
        {"message", "msg"},          {"reasoning", "rs"},
        {"function_call", "fc"},     {"function_call_output", "fco"},
        {"custom_tool_call", "ctc"}, {"custom_tool_call_output", "ctco"},
    };
    for (size_t i = 0; i < T9_COUNT(prefixes); i++) {
        if (str_eqz(type, prefixes[i][0]))
            return prefixes[i][1];
    }
    return "item";
}

bool responses_is_reference(yyjson_val *item)
{
    yyjson_val *type = json_get(item, "type");
    bool untyped = !type || yyjson_is_null(type);
    return str_eqz(json_str(type), "item_reference") || (untyped && !json_get(item, "role"));
}

/* ---- rows ---- */

static t9_status damaged(struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_IO, "a stored response is damaged: delete it");
}

static t9_status too_much(struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_TOO_LARGE,
                   "what is stored of the conversation is more than the %zu MiB that a request may "
                   "go on from",
                   STORED_BYTES_MAX >> 20);
}

static t9_status parse_stored(yyjson_doc **out, str text, struct t9_err *err)
{
    t9_status s = json_parse(out, text, JSON_LIMITS_REQUEST, NULL);
    if (s == T9_STATUS_NOMEM)
        return t9_fail(err, s, "no memory for a stored response");
    return s == T9_STATUS_OK ? s : damaged(err);
}

static t9_status append_items(yyjson_val *list, struct buf *out, size_t *n, struct t9_err *err)
{
    size_t idx, max;
    yyjson_val *item;
    if (!yyjson_is_arr(list))
        return damaged(err);
    yyjson_arr_foreach(list, idx, max, item)
    {
        buf_putc(out, ',');
        json_write_val(out, item);
        ++*n;
    }
    return out->failed ? too_much(err) : T9_STATUS_OK;
}

t9_status responses_row_items(const struct store_row *row, struct buf *out, size_t *n,
                              struct t9_err *err)
{
    yyjson_doc *input = NULL, *response = NULL;
    t9_status s = parse_stored(&input, row->input, err);
    if (s == T9_STATUS_OK)
        s = parse_stored(&response, row->response, err);
    if (s == T9_STATUS_OK)
        s = append_items(yyjson_doc_get_root(input), out, n, err);
    if (s == T9_STATUS_OK)
        s = append_items(json_get(yyjson_doc_get_root(response), "output"), out, n, err);
    yyjson_doc_free(input);
    yyjson_doc_free(response);
    return s;
}

/* A stored response that references name items of, read once. */
struct source {
    char id[STORE_ID_BYTES_MAX + 1];
    yyjson_doc *response, *input;
};

/* What one request reads of the store. */
struct gather {
    struct buf *out;
    size_t n;       /* items */
    size_t n_bytes; /* read: at most STORED_BYTES_MAX */
    struct source *sources;
    size_t n_sources;
};

static t9_status gather_row(void *ctx, const struct store_row *row, struct t9_err *err)
{
    struct gather *g = ctx;
    g->n_bytes += row->response.n + row->input.n;
    return g->n_bytes > STORED_BYTES_MAX ? too_much(err)
                                         : responses_row_items(row, g->out, &g->n, err);
}

/* ---- what a request goes on from ---- */

static t9_status gather_before(struct policy_ctx *c, str previous, struct gather *g)
{
    const struct chat_keeping *k = &c->request->keeping;
    struct t9_err e = {0};
    t9_status s = store_conversation(k->store, previous, k->owner, gather_row, g, &e);
    if (s == T9_STATUS_NOT_FOUND)
        return chat_fail(c->err, T9_STATUS_INVALID, "previous_response_id",
                         "previous_response_not_found",
                         "\"%.*s\" or a response before it is not stored: it never was, was "
                         "deleted, or has expired",
                         (int)(previous.n < 80 ? previous.n : 80), previous.p);
    return s == T9_STATUS_OK ? s : chat_fail(c->err, s, "previous_response_id", NULL, "%s", e.msg);
}

/* Appends the item with this id, where the list has it. */
static bool append_item(yyjson_val *list, str id, struct buf *out)
{
    size_t idx, max;
    yyjson_val *item;
    if (!yyjson_is_arr(list))
        return false;
    yyjson_arr_foreach(list, idx, max, item)
    {
        if (!str_eq(json_str(json_get(item, "id")), id))
            continue;
        buf_putc(out, ',');
        json_write_val(out, item);
        return true;
    }
    return false;
}

/* Reads a stored response, and counts it. */
static t9_status read_source(const struct chat_keeping *k, struct gather *g, struct source *src,
                             struct t9_err *err)
{
    struct buf response, input;
    size_t left = STORED_BYTES_MAX - g->n_bytes;
    buf_init(&response, left);
    buf_init(&input, left);
    t9_status s = store_get(k->store, str_from(src->id), k->owner, &response, &input, err);
    g->n_bytes += response.n + input.n;
    if (s == T9_STATUS_OK && (response.failed || input.failed || g->n_bytes > STORED_BYTES_MAX))
        s = too_much(err);
    if (s == T9_STATUS_OK)
        s = parse_stored(&src->response, buf_str(&response), err);
    if (s == T9_STATUS_OK)
        s = parse_stored(&src->input, buf_str(&input), err);
    buf_deinit(&response);
    buf_deinit(&input);
    return s;
}

/* The stored response that has this item. */
static t9_status find_source(const struct chat_keeping *k, struct gather *g, str item_id,
                             const struct source **out, struct t9_err *err)
{
    struct source *src = &g->sources[g->n_sources];
    if (!response_of(item_id, src->id))
        return t9_fail(err, T9_STATUS_NOT_FOUND, "there is no such item");
    *out = src;
    for (size_t i = 0; i < g->n_sources; i++) {
        if (str_eqz(str_from(src->id), g->sources[i].id)) {
            *out = &g->sources[i];
            return T9_STATUS_OK;
        }
    }
    g->n_sources++;
    return read_source(k, g, src, err);
}

static t9_status gather_reference(struct policy_ctx *c, size_t i, yyjson_val *item,
                                  struct gather *g)
{
    const struct chat_keeping *k = &c->request->keeping;
    const struct source *src = NULL;
    struct t9_err e = {0};
    char param[48];
    str id = json_str(json_get(item, "id"));
    (void)snprintf(param, sizeof param, "input[%zu]", i);
    if (!k->store)
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, param, "unsupported_content",
                         "%s is an item_reference, which needs stored responses: start the server "
                         "with --store FILE, or send the item itself",
                         param);
    t9_status s = find_source(k, g, id, &src, &e);
    if (s == T9_STATUS_OK &&
        !append_item(json_get(yyjson_doc_get_root(src->response), "output"), id, g->out) &&
        !append_item(yyjson_doc_get_root(src->input), id, g->out))
        s = T9_STATUS_NOT_FOUND;
    if (s == T9_STATUS_OK && g->out->failed)
        s = too_much(&e);
    if (s == T9_STATUS_NOT_FOUND)
        return chat_fail(c->err, T9_STATUS_INVALID, param, "item_not_found",
                         "there is no stored item \"%.*s\"", (int)(id.n < 80 ? id.n : 80),
                         id.p ? id.p : "");
    return s == T9_STATUS_OK ? s : chat_fail(c->err, s, param, NULL, "%s", e.msg);
}

static t9_status gather_references(struct policy_ctx *c, yyjson_val *input, struct gather *g)
{
    size_t idx, max, n = 0;
    yyjson_val *item;
    if (!yyjson_is_arr(input))
        return T9_STATUS_OK;
    yyjson_arr_foreach(input, idx, max, item)
    {
        if (!responses_is_reference(item))
            continue;
        if (++n > REFERENCES_MAX)
            return chat_fail(c->err, T9_STATUS_INVALID, "input", "invalid_value",
                             "input has more than %d references", REFERENCES_MAX);
        if (!g->sources)
            g->sources = arena_calloc(&c->request->arena, REFERENCES_MAX, sizeof *g->sources);
        if (!g->sources)
            return chat_fail(c->err, T9_STATUS_NOMEM, "input", NULL, "no memory for references");
        T9_TRY(gather_reference(c, idx, item, g));
    }
    return T9_STATUS_OK;
}

t9_status responses_recall(struct policy_ctx *c, yyjson_val *body, struct responses_history *out)
{
    struct buf text;
    struct gather g = {.out = &text};
    str previous = responses_own(c->request)->previous;
    buf_init(&text, STORED_BYTES_MAX);
    t9_status s = previous.p ? gather_before(c, previous, &g) : T9_STATUS_OK;
    if (s == T9_STATUS_OK)
        s = gather_references(c, json_get(body, "input"), &g);
    if (s == T9_STATUS_OK && text.n) {
        text.p[0] = '[';
        buf_putc(&text, ']');
        s = text.failed ? chat_fail(c->err, T9_STATUS_TOO_LARGE, "input", NULL,
                                    "what is stored of the conversation is too large")
                        : chat_request_parse_more(c->request, buf_str(&text), &out->items, c->err);
        out->n_before = g.n;
    }
    for (size_t i = 0; i < g.n_sources; i++) {
        yyjson_doc_free(g.sources[i].response);
        yyjson_doc_free(g.sources[i].input);
    }
    buf_deinit(&text);
    return s;
}

/* ---- what is stored of a request ---- */

static void write_input_id(const struct chat_request *r, str type, size_t i, struct buf *b)
{
    str id = r->keeping.reply_id;
    size_t at = str_find(id, STR("_"), 0);
    str own = at == (size_t)-1 ? id : str_slice(id, at + 1, id.n);
    buf_printf(b, "{\"id\":\"%s_" STR_FMT "_i%zu\"", input_prefix(type), STR_ARG(own), i);
}

/* Clients that list it expect parts. */
static void write_content(yyjson_val *item, struct buf *b)
{
    yyjson_val *content = json_get(item, "content");
    bool assistant = str_eqz(json_str(json_get(item, "role")), "assistant");
    if (!yyjson_is_str(content)) {
        json_write_val(b, content);
        return;
    }
    buf_puts(b, assistant ? "[{\"type\":\"output_text\",\"annotations\":[],\"text\":"
                          : "[{\"type\":\"input_text\",\"text\":");
    json_write_val(b, content);
    buf_puts(b, "}]");
}

static void write_input_item(const struct chat_request *r, yyjson_val *item, size_t i,
                             struct buf *b)
{
    yyjson_val *type = json_get(item, "type"), *key;
    bool typed = yyjson_is_str(type);
    write_input_id(r, typed ? json_str(type) : STR("message"), i, b);
    if (!typed)
        buf_puts(b, ",\"type\":\"message\"");
    if (!json_get(item, "status"))
        buf_puts(b, ",\"status\":\"completed\"");
    yyjson_obj_iter it = yyjson_obj_iter_with(item);
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *v = yyjson_obj_iter_get_val(key);
        if (str_eqz(json_str(key), "id") || yyjson_is_null(v))
            continue;
        buf_putc(b, ',');
        json_write_str(b, json_str(key));
        buf_putc(b, ':');
        if (str_eqz(json_str(key), "content") && yyjson_is_str(v))
            write_content(item, b);
        else
            json_write_val(b, v);
    }
    buf_putc(b, '}');
}

static void write_input(const struct chat_request *r, yyjson_val *input,
                        const struct responses_history *h, struct buf *b)
{
    size_t idx, max, next = h->n_before;
    yyjson_val *item;
    if (yyjson_is_str(input)) {
        write_input_id(r, STR("message"), 0, b);
        buf_puts(b,
                 ",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\",\"content\":[{"
                 "\"type\":\"input_text\",\"text\":");
        json_write_val(b, input);
        buf_puts(b, "}]}");
        return;
    }
    yyjson_arr_foreach(input, idx, max, item)
    {
        if (idx)
            buf_putc(b, ',');
        /* With an id of its own: the list may have the item twice. */
        bool refers = responses_is_reference(item);
        write_input_item(r, refers ? yyjson_arr_get(h->items, next++) : item, idx, b);
    }
}

t9_status responses_note_input(struct policy_ctx *c, yyjson_val *input,
                               const struct responses_history *h)
{
    struct responses_own *own = responses_own(c->request);
    struct buf text;
    if (!own->keep)
        return T9_STATUS_OK;
    buf_init(&text, c->request->kept.max);
    buf_putc(&text, '[');
    write_input(c->request, input, h, &text);
    buf_putc(&text, ']');
    own->items = text.failed ? (str){0} : arena_str(&c->request->kept, buf_str(&text));
    buf_deinit(&text);
    str previous = own->previous.p ? arena_str(&c->request->kept, own->previous) : STR("");
    own->previous = previous;
    return own->items.p && previous.p
               ? T9_STATUS_OK
               : chat_fail(c->err, T9_STATUS_TOO_LARGE, "input", NULL,
                           "the input is too large to be stored: send store false");
}

void responses_keep(const struct chat_reply *r, str response)
{
    const struct responses_own *own = responses_own(r->request);
    const struct chat_keeping *k = &r->request->keeping;
    struct t9_err err = {0};
    if (!own->keep)
        return;
    struct store_row row = {str_from(r->id), own->previous, k->owner, response, own->items};
    if (store_put(k->store, &row, &err) != T9_STATUS_OK)
        LOG_WARN("store", "a response was not stored: %s", err.msg);
}

/* ---- requests about one ---- */

struct kept_ask {
    str id, after;
    bool remove, items, ascending;
    int32_t limit;
};

/* A parameter that is read may be there once; all others are ignored. */
static t9_status query_str(yyjson_val *query, const char *name, str *out, struct chat_error *err)
{
    size_t idx, max;
    yyjson_val *pair;
    *out = (str){0};
    yyjson_arr_foreach(query, idx, max, pair)
    {
        if (!str_eqz(json_str(yyjson_arr_get_first(pair)), name))
            continue;
        if (out->p)
            return chat_fail(err, T9_STATUS_INVALID, name, "invalid_value",
                             "%s stands twice in the query", name);
        *out = json_str(yyjson_arr_get_last(pair));
    }
    return T9_STATUS_OK;
}

static t9_status parse_page(yyjson_val *query, struct kept_ask *ask, struct chat_error *err)
{
    str order, limit;
    int64_t n = LIMIT_DEFAULT;
    T9_TRY(query_str(query, "order", &order, err));
    T9_TRY(query_str(query, "limit", &limit, err));
    T9_TRY(query_str(query, "after", &ask->after, err));
    if (limit.p && (!num_parse_i64(limit, &n) || n < 1 || n > LIMIT_MAX))
        return chat_fail(err, T9_STATUS_INVALID, "limit", "invalid_value",
                         "limit must be a whole number from 1 to %d", LIMIT_MAX);
    if (order.p && !str_eqz(order, "asc") && !str_eqz(order, "desc"))
        return chat_fail(err, T9_STATUS_INVALID, "order", "invalid_value",
                         "order must be asc or desc");
    ask->ascending = order.p && str_eqz(order, "asc");
    ask->limit = (int32_t)n;
    return T9_STATUS_OK;
}

static t9_status parse_query(yyjson_val *query, struct kept_ask *ask, struct chat_error *err)
{
    str stream;
    if (ask->items)
        return parse_page(query, ask, err);
    T9_TRY(query_str(query, "stream", &stream, err));
    if (stream.n && !str_eqz(stream, "false"))
        return chat_fail(err, T9_STATUS_UNSUPPORTED, "stream", "unsupported_parameter",
                         "a stored response is given whole: leave stream out");
    return T9_STATUS_OK;
}

static t9_status parse_ask(str body, bool strict, struct chat_request *r, struct chat_error *err)
{
    struct kept_ask *ask = arena_calloc(&r->kept, 1, sizeof *ask);
    struct t9_err e = {0};
    (void)strict;
    r->extra = ask;
    if (!ask || json_parse(&r->doc, body, JSON_LIMITS_REQUEST, &e) != T9_STATUS_OK)
        return chat_fail(err, T9_STATUS_INVALID, NULL, NULL, "the path is not acceptable: %s",
                         e.msg);
    yyjson_val *root = yyjson_doc_get_root(r->doc);
    str path = json_str(json_get(root, "path")), method = json_str(json_get(root, "method"));
    size_t slash = str_find(path, STR("/"), 0);
    str rest = slash == (size_t)-1 ? STR("") : str_slice(path, slash, path.n);
    ask->id = slash == (size_t)-1 ? path : str_slice(path, 0, slash);
    ask->remove = str_eqz(method, "DELETE");
    ask->items = str_eqz(rest, "/input_items");
    if ((rest.n && !ask->items) || (ask->items && ask->remove))
        return chat_fail(err, T9_STATUS_NOT_FOUND, NULL, "unknown_path",
                         "a stored response can be read, its input_items can be, and it can be "
                         "deleted");
    return parse_query(json_get(root, "query"), ask, err);
}

static t9_status missing(struct chat_error *err, str id)
{
    return chat_fail(err, T9_STATUS_NOT_FOUND, "response_id", "response_not_found",
                     "there is no stored response \"%.*s\": it was never stored, was deleted, or "
                     "has expired",
                     (int)(id.n < 80 ? id.n : 80), id.p);
}

/* The place of the item in the list, from its end where that comes first; n when it has none. */
static size_t place_of(yyjson_val *items, size_t n, const struct kept_ask *ask, str id)
{
    for (size_t i = 0; i < n; i++) {
        yyjson_val *item = yyjson_arr_get(items, ask->ascending ? i : n - 1 - i);
        if (str_eq(json_str(json_get(item, "id")), id))
            return i;
    }
    return n;
}

static void write_id(const char *key, yyjson_val *item, struct buf *out)
{
    buf_putc(out, ',');
    json_write_key(out, key);
    json_write_str(out, json_str(json_get(item, "id")));
}

static t9_status write_list(const struct kept_ask *ask, yyjson_val *items, struct buf *out,
                            struct chat_error *err)
{
    size_t n = yyjson_arr_size(items), from = 0;
    yyjson_val *first = NULL, *last = NULL;
    if (ask->after.n) {
        from = place_of(items, n, ask, ask->after) + 1;
        if (from > n)
            return chat_fail(err, T9_STATUS_INVALID, "after", "item_not_found",
                             "there is no such item in the input of this response");
    }
    size_t to = n - from > (size_t)ask->limit ? from + (size_t)ask->limit : n;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = from; i < to; i++) {
        last = yyjson_arr_get(items, ask->ascending ? i : n - 1 - i);
        first = first ? first : last;
        if (i > from)
            buf_putc(out, ',');
        json_write_val(out, last);
    }
    buf_putc(out, ']');
    write_id("first_id", first, out);
    write_id("last_id", last, out);
    buf_printf(out, ",\"has_more\":%s}", to < n ? "true" : "false");
    return T9_STATUS_OK;
}

struct before {
    struct gather gather;
    str last; /* whose output is no input of its own */
};

static t9_status gather_input(void *ctx, const struct store_row *row, struct t9_err *err)
{
    struct before *b = ctx;
    struct store_row input = *row;
    if (str_eq(row->id, b->last))
        input.response = STR("{\"output\":[]}");
    return gather_row(&b->gather, &input, err);
}

/* All that the model was given: the conversation before, too. */
static t9_status answer_items(struct chat_request *r, const struct kept_ask *ask, struct buf *out,
                              struct chat_error *err)
{
    struct buf text;
    struct before b = {{.out = &text}, ask->id};
    struct t9_err e = {0};
    yyjson_val *items = NULL;
    buf_init(&text, STORED_BYTES_MAX);
    t9_status s =
        store_conversation(r->keeping.store, ask->id, r->keeping.owner, gather_input, &b, &e);
    if (s == T9_STATUS_NOT_FOUND)
        s = missing(err, ask->id);
    else if (s != T9_STATUS_OK)
        s = chat_fail(err, s, NULL, NULL, "%s", e.msg);
    if (s == T9_STATUS_OK) {
        buf_puts(&text, text.n ? "]" : ",]");
        if (text.p)
            text.p[0] = '[';
        s = chat_request_parse_more(r, buf_str(&text), &items, err);
    }
    if (s == T9_STATUS_OK)
        s = write_list(ask, items, out, err);
    buf_deinit(&text);
    return s;
}

/* The response itself, as it was stored. */
static t9_status get_response(const struct chat_keeping *k, str id, struct buf *out,
                              struct t9_err *err)
{
    yyjson_doc *doc = NULL;
    T9_TRY(store_get(k->store, id, k->owner, out, NULL, err));
    t9_status s = out->failed ? too_much(err) : parse_stored(&doc, buf_str(out), err);
    if (s == T9_STATUS_OK && !yyjson_is_arr(json_get(yyjson_doc_get_root(doc), "output")))
        s = damaged(err);
    if (s != T9_STATUS_OK)
        buf_clear(out);
    yyjson_doc_free(doc);
    return s;
}

static t9_status answer(const struct prep *prep, struct chat_request *r, struct buf *out,
                        struct chat_error *err)
{
    const struct kept_ask *ask = r->extra;
    const struct chat_keeping *k = &r->keeping;
    struct t9_err e = {0};
    (void)prep;
    if (!k->store)
        return chat_fail(err, T9_STATUS_NOT_FOUND, "response_id", "response_not_found",
                         "nothing is stored here: start the server with --store FILE");
    if (ask->items)
        return answer_items(r, ask, out, err);
    t9_status s = ask->remove ? store_delete(k->store, ask->id, k->owner, &e)
                              : get_response(k, ask->id, out, &e);
    if (s == T9_STATUS_NOT_FOUND)
        return missing(err, ask->id);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s, NULL, NULL, "%s", e.msg);
    if (ask->remove) {
        buf_puts(out, "{");
        openai_member_str(out, "id", ask->id);
        buf_puts(out, ",\"object\":\"response\",\"deleted\":true}");
    }
    return T9_STATUS_OK;
}

const struct chat_adapter responses_kept_adapter = {
    .name = "openai_responses_kept",
    .path = "/v1/responses/{response_id}",
    .summary = "Reads or deletes a stored response.",
    .id_prefix = "kept-",
    .parse = parse_ask,
    .answer = answer,
};
