/*
 * protocol/layout.c - see layout.h.
 */
#include "protocol/layout.h"

#include "base/hash.h"
#include "protocol/chat_tools.h"

enum { ID_LETTERS_MAX = 32 };

static void member(struct buf *out, const char *key, str v)
{
    buf_putc(out, ',');
    json_write_key(out, key);
    json_write_str(out, v);
}

/* ---- tools ---- */

static void write_tool(const struct chat_tool *t, struct buf *out)
{
    buf_puts(out, "{\"name\":");
    json_write_str(out, t->name);
    if (t->description.n)
        member(out, "description", t->description);
    buf_puts(out, ",\"parameters\":");
    if (t->schema)
        json_write_val(out, t->schema);
    else
        buf_puts(out, "{\"type\":\"object\",\"properties\":{}}");
    buf_putc(out, '}');
}

void layout_tools(const struct chat_request *r, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < r->n_tools; i++) {
        buf_puts(out, i ? ",{\"type\":\"function\",\"function\":"
                        : "{\"type\":\"function\",\"function\":");
        write_tool(&r->tools[i], out);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void describe_tools(const struct chat_request *r, struct buf *out)
{
    struct buf text;
    buf_init(&text, out->max);
    buf_puts(&text, "You can call tools. These are the tools, with a JSON Schema of the arguments "
                    "of each:\n");
    for (size_t i = 0; i < r->n_tools; i++) {
        write_tool(&r->tools[i], &text);
        buf_putc(&text, '\n');
    }
    buf_puts(&text, "To call a tool, answer with one JSON object and nothing else:\n"
                    "{\"name\": \"the tool's name\", \"arguments\": {the arguments}}\n"
                    "The next message is its result. Where no tool is needed, answer in words.");
    buf_puts(out, "{\"role\":\"system\"");
    member(out, "content", buf_str(&text));
    buf_putc(out, '}');
    out->failed |= text.failed;
    buf_deinit(&text);
}

/* ---- ids ---- */

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* An id of the form that the template takes: the same one for the same id. */
static void member_id(struct buf *out, const char *key, str id, int32_t letters)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char made[ID_LETTERS_MAX];
    size_t n = letters > ID_LETTERS_MAX ? ID_LETTERS_MAX : (size_t)letters;
    bool fits = id.n == n;
    for (size_t i = 0; i < id.n && fits; i++)
        fits = is_alnum(id.p[i]);
    if (n == 0 || fits) {
        member(out, key, id);
        return;
    }
    uint64_t h = hash_xxh3_64(id.p, id.n, 0);
    for (size_t i = 0; i < n; i++) {
        made[i] = digits[h % 62];
        h = h / 62 ? h / 62 : hash_xxh3_64(id.p, id.n, i + 1);
    }
    member(out, key, (str){made, n});
}

/* ---- messages ---- */

static void write_calls(const struct chat_message *m, int32_t id_letters, struct buf *out)
{
    buf_puts(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < m->n_calls; i++) {
        const struct chat_call *call = &m->calls[i];
        buf_puts(out, i ? ",{\"type\":\"function\"" : "{\"type\":\"function\"");
        if (call->id.n)
            member_id(out, "id", call->id, id_letters);
        buf_puts(out, ",\"function\":{\"name\":");
        json_write_str(out, call->name);
        member(out, "arguments", call->args.n ? call->args : STR("{}"));
        buf_puts(out, "}}");
    }
    buf_putc(out, ']');
}

/* What it said, and its calls as it would have to write them. */
static void write_calls_text(const struct chat_message *m, struct buf *out)
{
    struct buf text;
    buf_init(&text, out->max);
    buf_puts_str(&text, m->content);
    for (size_t i = 0; i < m->n_calls; i++) {
        const struct chat_call *call = &m->calls[i];
        buf_puts(&text, text.n ? "\n{\"name\": " : "{\"name\": ");
        json_write_str(&text, call->name);
        buf_puts(&text, ", \"arguments\": ");
        buf_puts_str(&text, call->args.n ? call->args : STR("{}"));
        buf_putc(&text, '}');
    }
    member(out, "content", buf_str(&text));
    out->failed |= text.failed;
    buf_deinit(&text);
}

static void write_result_text(const struct chat_message *m, str name, struct buf *out)
{
    struct buf text;
    buf_init(&text, out->max);
    buf_puts(&text, "[Result of ");
    buf_puts_str(&text, name.n ? name : STR("the tool"));
    buf_puts(&text, "]\n");
    buf_puts_str(&text, m->content);
    buf_puts(out, "{\"role\":\"user\"");
    member(out, "content", buf_str(&text));
    buf_putc(out, '}');
    out->failed |= text.failed;
    buf_deinit(&text);
}

static void write_message(const struct chat_message *m, struct layout_form form, str call_name,
                          struct buf *out)
{
    bool calls_text = form.calls_text && m->n_calls;
    str name = m->name.n ? m->name : call_name;
    if (m->role == CHAT_ROLE_TOOL && form.results_text) {
        write_result_text(m, name, out);
        return;
    }
    buf_puts(out, "{\"role\":");
    json_write_str(out, str_from(chat_role_name(m->role)));
    if (calls_text)
        write_calls_text(m, out);
    else if (m->has_content)
        member(out, "content", m->content);
    if (name.n)
        member(out, "name", name);
    if (m->tool_call_id.n)
        member_id(out, "tool_call_id", m->tool_call_id, form.id_letters);
    if (m->reasoning.n)
        member(out, "reasoning_content", m->reasoning);
    if (m->n_calls && !calls_text)
        write_calls(m, form.id_letters, out);
    buf_putc(out, '}');
}

/* Claude Code begins its system prompt with a line of accounting that changes with every request.
 * It says nothing to the model and would make each prompt begin anew. */
static str without_accounting(str system)
{
    if (!str_has_prefix(system, STR("x-anthropic-billing-header:")))
        return system;
    size_t end = str_find(system, STR("\n"), 0);
    while (end < system.n && system.p[end] == '\n')
        end++;
    return end > system.n ? (str){0} : str_slice(system, end, system.n);
}

void layout_messages(const struct chat_request *r, struct layout_form form, struct buf *out)
{
    const struct chat_message *calls = NULL;
    bool told = !form.tell_tools;
    buf_putc(out, '[');
    for (size_t i = 0; i < r->n_messages; i++) {
        const struct chat_message *m = &r->messages[i];
        struct chat_message first = *m;
        str call_name = {0};
        if (i == 0 && m->role == CHAT_ROLE_SYSTEM) {
            first.content = without_accounting(m->content);
            m = &first;
            if (first.content.n == 0 && r->messages[0].content.n > 0 && r->n_messages > 1)
                continue;
        }
        /* After what the client's system says: a text that changes there costs no more so. */
        if (!told && m->role != CHAT_ROLE_SYSTEM) {
            describe_tools(r, out);
            buf_putc(out, ',');
            told = true;
        }
        if (m->n_calls)
            calls = m;
        /* Where the calls are there, the library finds it. */
        if (m->role == CHAT_ROLE_TOOL && (form.calls_text || form.results_text))
            call_name = chat_call_name(calls, m->tool_call_id);
        write_message(m, form, call_name, out);
        if (i + 1 < r->n_messages)
            buf_putc(out, ',');
    }
    if (!told) {
        buf_putc(out, ',');
        describe_tools(r, out);
    }
    buf_putc(out, ']');
}
