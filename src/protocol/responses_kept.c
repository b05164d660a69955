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

#define STORED_BYTES_MAX ((size_t)64 << 20)

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
    return out->failed ? t9_fail(err, T9_STATUS_TOO_LARGE, "the stored conversation is too large")
                       : T9_STATUS_OK;
}

t9_status responses_row_items(const struct store_row *row, struct buf *out, size_t *n,
                              struct t9_err *err)
{
    yyjson_doc *input = NULL, *response = NULL;
    t9_status s = json_parse(&input, row->input, JSON_LIMITS_REQUEST, NULL);
    if (s == T9_STATUS_OK)
        s = json_parse(&response, row->response, JSON_LIMITS_REQUEST, NULL);
    if (s != T9_STATUS_OK)
        s = s == T9_STATUS_NOMEM ? t9_fail(err, s, "no memory for a stored response")
                                 : damaged(err);
    if (s == T9_STATUS_OK)
        s = append_items(yyjson_doc_get_root(input), out, n, err);
    if (s == T9_STATUS_OK)
        s = append_items(json_get(yyjson_doc_get_root(response), "output"), out, n, err);
    yyjson_doc_free(input);
    yyjson_doc_free(response);
    return s;
}

struct gather {
    struct buf *out;
    size_t n;
};

static t9_status gather_row(void *ctx, const struct store_row *row, struct t9_err *err)
{
    struct gather *g = ctx;
    return responses_row_items(row, g->out, &g->n, err);
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
    return s == T9_STATUS_OK ? s
                             : chat_fail(c->err, s == T9_STATUS_TOO_LARGE ? T9_STATUS_INVALID : s,
                                         "previous_response_id", NULL, "%s", e.msg);
}

/* Appends the item with this id, where the list has it. */
static bool append_item(str text, const char *member, str id, struct buf *out)
{
    yyjson_doc *doc = NULL;
    size_t idx, max;
    yyjson_val *item;
    bool found = false;
    if (json_parse(&doc, text, JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
        return false;
    yyjson_val *list = yyjson_doc_get_root(doc);
    if (member)
        list = json_get(list, member);
    if (yyjson_is_arr(list)) {
        yyjson_arr_foreach(list, idx, max, item)
        {
            if (found || !str_eq(json_str(json_get(item, "id")), id))
                continue;
            found = true;
            buf_putc(out, ',');
            json_write_val(out, item);
        }
    }
    yyjson_doc_free(doc);
    return found;
}

static t9_status gather_reference(struct policy_ctx *c, size_t i, yyjson_val *item, struct buf *out)
{
    const struct chat_keeping *k = &c->request->keeping;
    char response_id[STORE_ID_BYTES_MAX + 1], param[48];
    struct buf response, input;
    str id = json_str(json_get(item, "id"));
    (void)snprintf(param, sizeof param, "input[%zu]", i);
    if (!k->store)
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, param, "unsupported_content",
                         "%s is an item_reference, which needs stored responses: start the server "
                         "with --store FILE, or send the item itself",
                         param);
    buf_init(&response, STORED_BYTES_MAX);
    buf_init(&input, STORED_BYTES_MAX);
    bool found = response_of(id, response_id) &&
                 store_get(k->store, str_from(response_id), k->owner, &response, &input, NULL) ==
                     T9_STATUS_OK &&
                 (append_item(buf_str(&response), "output", id, out) ||
                  append_item(buf_str(&input), NULL, id, out));
    buf_deinit(&response);
    buf_deinit(&input);
    return found ? T9_STATUS_OK
                 : chat_fail(c->err, T9_STATUS_INVALID, param, "item_not_found",
                             "there is no stored item \"%.*s\"", (int)(id.n < 80 ? id.n : 80),
                             id.p ? id.p : "");
}

static t9_status gather_references(struct policy_ctx *c, yyjson_val *input, struct buf *out)
{
    size_t idx, max, n = 0;
    yyjson_val *item;
    if (!yyjson_is_arr(input))
        return T9_STATUS_OK;
    yyjson_arr_foreach(input, idx, max, item)
    {
        if (!yyjson_is_obj(item) || !responses_is_reference(item))
            continue;
        if (++n > REFERENCES_MAX)
            return chat_fail(c->err, T9_STATUS_INVALID, "input", "invalid_value",
                             "input has more than %d references", REFERENCES_MAX);
        T9_TRY(gather_reference(c, idx, item, out));
    }
    return T9_STATUS_OK;
}

t9_status responses_recall(struct policy_ctx *c, yyjson_val *body, struct responses_history *out)
{
    struct buf text;
    struct gather g = {&text, 0};
    str previous = responses_own(c->request)->previous;
    buf_init(&text, STORED_BYTES_MAX);
    t9_status s = previous.p ? gather_before(c, previous, &g) : T9_STATUS_OK;
    if (s == T9_STATUS_OK)
        s = gather_references(c, json_get(body, "input"), &text);
    if (s == T9_STATUS_OK && text.n) {
        text.p[0] = '[';
        buf_putc(&text, ']');
        s = text.failed ? chat_fail(c->err, T9_STATUS_INVALID, "input", NULL,
                                    "what is stored of the conversation is too large")
                        : chat_request_parse_more(c->request, buf_str(&text), &out->items, c->err);
        out->n_before = g.n;
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
        if (responses_is_reference(item))
            json_write_val(b, yyjson_arr_get(h->items, next++));
        else
            write_input_item(r, item, idx, b);
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
    struct before b = {{&text, 0}, ask->id};
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
                              : store_get(k->store, ask->id, k->owner, out, NULL, &e);
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
