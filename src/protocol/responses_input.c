/*
 * protocol/responses_input.c - the items of a Responses request as messages. What an assistant did
 * comes as several items (reasoning, a message, calls) and is one message to a chat template. Any
 * thread; nothing here has state.
 *
 * If you add an item: one row in `items`.
 */
#include "protocol/responses.h"

#include "protocol/chat_parts.h"
#include "protocol/chat_tools.h"
#include "protocol/sealed.h"

#include <stdio.h>
#include <string.h>

struct builder {
    struct policy_ctx *c;
    struct chat_message *messages;
    size_t n;
    struct chat_call *calls; /* of all messages, each one's side by side */
    size_t n_calls;
    const struct chat_message *calling; /* the last one that has calls */
    const struct responses_history *history;
    size_t next_reference; /* in the history */
    bool open;             /* the last message is an assistant's that more items belong to */
};

struct item_row {
    const char *type;
    t9_status (*read)(struct builder *b, const char *where, yyjson_val *item);
    const char *members[10]; /* beside type, id and status; ended by NULL */
};

/* "input[3].content" */
struct place {
    char text[64];
};

static struct place inside(const char *where, const char *member)
{
    struct place p;
    (void)snprintf(p.text, sizeof p.text, "%.40s.%.20s", where, member);
    return p;
}

static t9_status no_memory(struct builder *b, const char *where)
{
    return chat_fail(b->c->err, T9_STATUS_TOO_LARGE, where, NULL, "%s is too large", where);
}

static t9_status member_str(struct builder *b, const char *where, yyjson_val *item,
                            const char *member, bool required, str *out)
{
    yyjson_val *v = json_get(item, member);
    *out = json_str(v);
    if (yyjson_is_str(v) || (!required && (!v || yyjson_is_null(v))))
        return T9_STATUS_OK;
    return policy_wrong(b->c, inside(where, member).text, "a string", v);
}

/* ---- messages ---- */

static struct chat_message *begin_message(struct builder *b, chat_role role)
{
    struct chat_message *m = &b->messages[b->n++];
    m->role = role;
    b->open = role == CHAT_ROLE_ASSISTANT;
    return m;
}

/* The assistant's message that an item belongs to: text and reasoning come before calls. */
static struct chat_message *assistant(struct builder *b, bool before_calls)
{
    struct chat_message *last = b->open ? &b->messages[b->n - 1] : NULL;
    if (last && !(before_calls && (last->has_content || last->n_calls)))
        return last;
    return begin_message(b, CHAT_ROLE_ASSISTANT);
}

static t9_status part_text(struct policy_ctx *c, const char *where, yyjson_val *part, str *out)
{
    static const char *const members[] = {"type",        "text",     "refusal",
                                          "annotations", "logprobs", "prompt_cache_breakpoint"};
    static const char *const types[] = {"input_text", "output_text", "text", "summary_text",
                                        "reasoning_text"};
    str type = json_str(json_get(part, "type"));
    bool refusal = str_eqz(type, "refusal"), known = refusal;
    yyjson_val *text = json_get(part, refusal ? "refusal" : "text");
    if (!yyjson_is_obj(part) || type.n == 0)
        return policy_wrong(c, where, "a string or an array of objects with a type", part);
    for (size_t i = 0; i < T9_COUNT(types); i++)
        known |= str_eqz(type, types[i]);
    if (!known)
        return chat_part_refused(c, where, part);
    T9_TRY(policy_members(c, part, members, T9_COUNT(members), where, "a content part"));
    if (!yyjson_is_str(text))
        return policy_wrong(c, where, "made of parts that have a text", text);
    *out = json_str(text);
    return T9_STATUS_OK;
}

/* A string, or parts. */
static t9_status read_text(struct builder *b, const char *where, yyjson_val *v, str *out)
{
    *out = json_str(v);
    if (yyjson_is_str(v))
        return T9_STATUS_OK;
    if (!yyjson_is_arr(v))
        return policy_wrong(b->c, where, "a string or an array of parts", v);
    *out = STR("");
    return yyjson_arr_size(v) ? chat_join_parts(b->c, where, v, part_text, out) : T9_STATUS_OK;
}

static t9_status read_message(struct builder *b, const char *where, yyjson_val *item)
{
    static const struct {
        const char *name;
        chat_role role;
    } roles[] = {{"user", CHAT_ROLE_USER},
                 {"assistant", CHAT_ROLE_ASSISTANT},
                 {"system", CHAT_ROLE_SYSTEM},
                 {"developer", CHAT_ROLE_SYSTEM}};
    yyjson_val *v = json_get(item, "role");
    for (size_t i = 0; i < T9_COUNT(roles); i++) {
        if (!str_eqz(json_str(v), roles[i].name))
            continue;
        struct chat_message *m = roles[i].role == CHAT_ROLE_ASSISTANT
                                     ? assistant(b, true)
                                     : begin_message(b, roles[i].role);
        m->has_content = true;
        return read_text(b, inside(where, "content").text, json_get(item, "content"), &m->content);
    }
    return policy_wrong(b->c, inside(where, "role").text, "user, assistant, system or developer",
                        v);
}

/* ---- reasoning ---- */

static t9_status read_reasoning(struct builder *b, const char *where, yyjson_val *item)
{
    str sealed = {0}, text = {0};
    yyjson_val *content = json_get(item, "content"), *summary = json_get(item, "summary");
    bool has_content = content && !yyjson_is_null(content) && !policy_is_empty(content);
    bool has_summary = summary && !yyjson_is_null(summary) && !policy_is_empty(summary);
    T9_TRY(member_str(b, where, item, "encrypted_content", false, &sealed));
    bool ours = !has_content && sealed_read(sealed, &b->c->request->arena, &text);
    if (has_content)
        T9_TRY(read_text(b, inside(where, "content").text, content, &text));
    else if (has_summary && !ours)
        T9_TRY(read_text(b, inside(where, "summary").text, summary, &text));
    else if (sealed.n && !ours)
        chat_warn(b->c->request, "reasoning that another server has encrypted was left out");
    if (text.n == 0)
        return T9_STATUS_OK;
    struct chat_message *m = assistant(b, true);
    if (m->reasoning.n == 0) {
        m->reasoning = text;
        return T9_STATUS_OK;
    }
    char *p = arena_alloc(&b->c->request->arena, m->reasoning.n + 1 + text.n);
    if (!p)
        return no_memory(b, where);
    memcpy(p, m->reasoning.p, m->reasoning.n);
    p[m->reasoning.n] = '\n';
    memcpy(p + m->reasoning.n + 1, text.p, text.n);
    m->reasoning = (str){p, m->reasoning.n + 1 + text.n};
    return T9_STATUS_OK;
}

/* ---- calls and their results ---- */

static t9_status add_call(struct builder *b, const char *where, yyjson_val *item, str args)
{
    str space = {0}, local = {0}, id = {0};
    T9_TRY(member_str(b, where, item, "namespace", false, &space));
    T9_TRY(member_str(b, where, item, "name", true, &local));
    T9_TRY(member_str(b, where, item, "call_id", true, &id));
    struct chat_message *m = assistant(b, false);
    struct chat_call *call = &b->calls[b->n_calls++];
    *call = (struct chat_call){id, responses_flat_name(b->c->request, space, local), args};
    if (space.n && !call->name.p)
        return no_memory(b, where);
    if (m->n_calls == T9_CALLS_MAX)
        return chat_fail(b->c->err, T9_STATUS_INVALID, where, "invalid_value",
                         "%s is call %d of one answer, and at most %d are taken", where,
                         T9_CALLS_MAX + 1, T9_CALLS_MAX);
    if (m->n_calls++ == 0)
        m->calls = call;
    b->calling = m;
    return T9_STATUS_OK;
}

static t9_status read_call(struct builder *b, const char *where, yyjson_val *item)
{
    str args = {0};
    T9_TRY(member_str(b, where, item, "arguments", true, &args));
    return add_call(b, where, item, args);
}

/* To the model it is a function of one argument. */
static t9_status read_custom_call(struct builder *b, const char *where, yyjson_val *item)
{
    struct buf args;
    str input = {0};
    T9_TRY(member_str(b, where, item, "input", true, &input));
    buf_init(&args, b->c->request->arena.max);
    buf_puts(&args, "{\"input\":");
    json_write_str(&args, input);
    buf_putc(&args, '}');
    str text = args.failed ? (str){0} : arena_str(&b->c->request->arena, buf_str(&args));
    buf_deinit(&args);
    return text.p ? add_call(b, where, item, text) : no_memory(b, where);
}

static t9_status read_output(struct builder *b, const char *where, yyjson_val *item)
{
    str id = {0};
    T9_TRY(member_str(b, where, item, "call_id", false, &id));
    struct chat_message *m = begin_message(b, CHAT_ROLE_TOOL);
    m->tool_call_id = id;
    m->has_content = true;
    if (id.n && chat_call_name(b->calling, id).n == 0)
        chat_warn(b->c->request, "%s answers a tool call that no item before it made", where);
    return read_text(b, inside(where, "output").text, json_get(item, "output"), &m->content);
}

/* ---- items ---- */

static t9_status read_item(struct builder *b, const char *where, yyjson_val *item);

/* Those of a stored item were resolved when it was stored. */
static t9_status read_reference(struct builder *b, const char *where, yyjson_val *item)
{
    yyjson_val *found = yyjson_arr_get(b->history->items, b->next_reference);
    if (!found || responses_is_reference(found))
        return policy_wrong(b->c, where, "an item", item);
    b->next_reference++;
    return read_item(b, where, found);
}

static const struct item_row items[] = {
    {"message", read_message, {"role", "content", "phase"}},
    {"reasoning", read_reasoning, {"summary", "content", "encrypted_content"}},
    {"function_call", read_call, {"call_id", "name", "arguments", "namespace", "caller"}},
    {"function_call_output", read_output, {"call_id", "output", "name", "namespace", "caller"}},
    {"custom_tool_call", read_custom_call, {"call_id", "name", "input", "namespace", "caller"}},
    {"custom_tool_call_output", read_output, {"call_id", "output", "name", "caller"}},
    {"item_reference", read_reference, {NULL}},
};

/* An item without a type is a message when it has a role, else a reference. */
static str type_of(yyjson_val *item)
{
    yyjson_val *type = json_get(item, "type");
    if (responses_is_reference(item))
        return STR("item_reference");
    return type && !yyjson_is_null(type) ? json_str(type) : STR("message");
}

/* What other servers' tools did is no part of the conversation that a model here can read. */
static t9_status ignore_item(struct builder *b, const char *where, str type, yyjson_val *v)
{
    char brief[80];
    (void)chat_brief(v, brief);
    if (type.n == 0)
        return policy_wrong(b->c, inside(where, "type").text, "the name of a kind of item", v);
    if (b->c->strict)
        return chat_fail(b->c->err, T9_STATUS_UNSUPPORTED, inside(where, "type").text,
                         "unsupported_content",
                         "%s is an item of type %s, which is not taken, and this server is strict: "
                         "leave it out",
                         where, brief);
    chat_warn(b->c->request, "items of type %s are not taken and were ignored", brief);
    return T9_STATUS_OK;
}

static t9_status not_an_item(struct policy_ctx *c, const char *where, yyjson_val *v)
{
    return policy_wrong(c, where, "an item, an object with a type", v);
}

static t9_status read_item(struct builder *b, const char *where, yyjson_val *item)
{
    const char *names[T9_COUNT(items[0].members) + 3] = {"type", "id", "status"};
    size_t n = 3;
    if (!yyjson_is_obj(item))
        return not_an_item(b->c, where, item);
    str type = type_of(item);
    for (size_t i = 0; i < T9_COUNT(items); i++) {
        if (!str_eqz(type, items[i].type))
            continue;
        for (size_t k = 0; items[i].members[k]; k++)
            names[n++] = items[i].members[k];
        T9_TRY(policy_members(b->c, item, names, n, where, items[i].type));
        return items[i].read(b, where, item);
    }
    return ignore_item(b, where, type, json_get(item, "type"));
}

static t9_status read_items(struct builder *b, const char *field, yyjson_val *list, size_t n)
{
    size_t idx, max;
    yyjson_val *item;
    char where[40];
    yyjson_arr_foreach(list, idx, max, item)
    {
        if (idx == n)
            break;
        (void)snprintf(where, sizeof where, "%.20s[%zu]", field, idx);
        T9_TRY(read_item(b, where, item));
    }
    return T9_STATUS_OK;
}

/* Before any of them is looked up or noted. */
static t9_status check_items(struct policy_ctx *c, yyjson_val *input)
{
    size_t idx, max;
    yyjson_val *item;
    char where[40];
    if (!yyjson_is_arr(input))
        return T9_STATUS_OK;
    yyjson_arr_foreach(input, idx, max, item)
    {
        (void)snprintf(where, sizeof where, "input[%zu]", idx);
        if (!yyjson_is_obj(item))
            return not_an_item(c, where, item);
    }
    return T9_STATUS_OK;
}

t9_status responses_input(struct policy_ctx *c, yyjson_val *body)
{
    struct chat_request *r = c->request;
    struct responses_history history = {0};
    struct builder b = {.c = c, .history = &history};
    str instructions = json_str(json_get(body, "instructions"));
    yyjson_val *input = json_get(body, "input");
    T9_TRY(check_items(c, input));
    T9_TRY(responses_recall(c, body, &history));
    T9_TRY(responses_note_input(c, input, &history));
    size_t n = history.n_before + (yyjson_is_arr(input) ? yyjson_arr_size(input) : 1);
    b.next_reference = history.n_before;
    if (n > CHAT_MESSAGES_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, "input", "invalid_value",
                         "input and what it goes on from have %zu items, and at most %d are taken",
                         n, CHAT_MESSAGES_MAX);
    b.messages = arena_calloc(&r->arena, n + 1, sizeof *b.messages);
    b.calls = arena_calloc(&r->arena, n, sizeof *b.calls);
    if (!b.messages || !b.calls)
        return chat_fail(c->err, T9_STATUS_NOMEM, "input", NULL, "no memory for %zu items", n);
    if (instructions.n) {
        struct chat_message *m = begin_message(&b, CHAT_ROLE_SYSTEM);
        m->content = instructions;
        m->has_content = true;
    }
    T9_TRY(read_items(&b, "stored", history.items, history.n_before));
    if (yyjson_is_str(input)) {
        b.open = false;
        struct chat_message *m = begin_message(&b, CHAT_ROLE_USER);
        m->content = json_str(input);
        m->has_content = true;
    } else {
        T9_TRY(read_items(&b, "input", input, SIZE_MAX));
    }
    r->messages = b.messages;
    r->n_messages = b.n;
    if (b.n == 0)
        return chat_fail(c->err, T9_STATUS_INVALID, "input", "invalid_value",
                         "input has nothing to answer: it must have at least one message");
    return T9_STATUS_OK;
}
