/*
 * tests/lib/dialect_forms.c - see dialect_forms.h.
 */
#include "lib/dialect_forms.h"

#include "lib/random.h"

#include <string.h>

#define DEEPSEEK_CALLS     "<｜tool▁calls▁begin｜>"
#define DEEPSEEK_CALLS_END "<｜tool▁calls▁end｜>"
#define DEEPSEEK_CALL      "<｜tool▁call▁begin｜>"
#define DEEPSEEK_SEP       "<｜tool▁sep｜>"
#define DEEPSEEK_CALL_END  "<｜tool▁call▁end｜>"
#define GEMMA4_QUOTE       "<|\"|>"
#define KIMI_CALLS         "<|tool_calls_section_begin|>"
#define KIMI_CALLS_END     "<|tool_calls_section_end|>"
#define KIMI_CALL          "<|tool_call_begin|>"
#define KIMI_ARGS          "<|tool_call_argument_begin|>"
#define KIMI_CALL_END      "<|tool_call_end|>"
#define LFM2_CALLS         "<|tool_call_start|>"
#define LFM2_CALLS_END     "<|tool_call_end|>"

/* Whether one of `tags` (ended by NULL) stands in it with another tag behind it, after any white
 * space: then no reader can tell that it is text. */
static bool tag_before_tag(str s, const char *const *tags)
{
    for (; *tags; tags++) {
        str tag = str_from(*tags);
        for (size_t at = 0; (at = str_find(s, tag, at)) != (size_t)-1; at++) {
            str rest = str_trim(str_slice(s, at + tag.n, s.n));
            if (rest.n > 0 && rest.p[0] == '<')
                return true;
        }
    }
    return false;
}

/* ---- deepseek ---- */

static void write_deepseek(struct buf *out, const struct dialect_call *calls, size_t n,
                           uint64_t *seed)
{
    (void)seed;
    buf_puts(out, DEEPSEEK_CALLS);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, DEEPSEEK_CALL STR_FMT DEEPSEEK_SEP, STR_ARG(calls[i].name));
        json_write_val(out, calls[i].args);
        buf_puts(out, DEEPSEEK_CALL_END);
    }
    buf_puts(out, DEEPSEEK_CALLS_END);
}

static void write_deepseek_r1(struct buf *out, const struct dialect_call *calls, size_t n,
                              uint64_t *seed)
{
    buf_puts(out, DEEPSEEK_CALLS);
    for (size_t i = 0; i < n; i++) {
        const char *fence = test_random(seed) % 4 ? "```json\n" : "";
        buf_printf(out, "%s" DEEPSEEK_CALL "function" DEEPSEEK_SEP STR_FMT "\n%s", i ? "\n" : "",
                   STR_ARG(calls[i].name), fence);
        json_write_val(out, calls[i].args);
        buf_puts(out, *fence ? "\n```" DEEPSEEK_CALL_END : DEEPSEEK_CALL_END);
    }
    buf_puts(out, DEEPSEEK_CALLS_END);
}

/* ---- gemma4 ---- */

static void write_gemma4_value(struct buf *out, yyjson_val *v, bool quoted_keys)
{
    yyjson_val *key, *item;
    size_t i, n;
    const char *quote = quoted_keys ? GEMMA4_QUOTE : "";
    if (yyjson_is_str(v)) {
        buf_printf(out, GEMMA4_QUOTE STR_FMT GEMMA4_QUOTE, STR_ARG(json_str(v)));
    } else if (yyjson_is_arr(v)) {
        buf_putc(out, '[');
        yyjson_arr_foreach(v, i, n, item)
        {
            buf_puts(out, i ? "," : "");
            write_gemma4_value(out, item, quoted_keys);
        }
        buf_putc(out, ']');
    } else if (yyjson_is_obj(v)) {
        buf_putc(out, '{');
        yyjson_obj_foreach(v, i, n, key, item)
        {
            buf_printf(out, "%s%s" STR_FMT "%s:", i ? "," : "", quote, STR_ARG(json_str(key)),
                       quote);
            write_gemma4_value(out, item, quoted_keys);
        }
        buf_putc(out, '}');
    } else {
        json_write_val(out, v);
    }
}

static void write_gemma4(struct buf *out, const struct dialect_call *calls, size_t n,
                         uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "<|tool_call>call:" STR_FMT, STR_ARG(calls[i].name));
        write_gemma4_value(out, calls[i].args, test_random(seed) % 2);
        buf_puts(out, "<tool_call|>");
    }
}

/* A string can't have its own quote in it. */
static bool gemma4_can_carry(str s)
{
    return str_find(s, STR(GEMMA4_QUOTE), 0) == (size_t)-1;
}

/* Strings as they are, the rest as JSON. */
static void write_bare(struct buf *out, yyjson_val *v)
{
    if (yyjson_is_str(v))
        buf_puts_str(out, json_str(v));
    else
        json_write_val(out, v);
}

/* ---- glm ---- */

static void write_glm(struct buf *out, const struct dialect_call *calls, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        const char *gap = test_random(seed) % 2 ? "\n" : "";
        size_t k, m;
        yyjson_val *key, *v;
        buf_printf(out, "<tool_call>" STR_FMT "%s", STR_ARG(calls[i].name), gap);
        yyjson_obj_foreach(calls[i].args, k, m, key, v)
        {
            buf_printf(out, "<arg_key>" STR_FMT "</arg_key>%s<arg_value>", STR_ARG(json_str(key)),
                       gap);
            write_bare(out, v);
            buf_printf(out, "</arg_value>%s", gap);
        }
        buf_printf(out, "</tool_call>%s", gap);
    }
}

/* But for a closing tag with another tag behind it. */
static bool glm_can_carry(str s)
{
    static const char *const tags[] = {"</arg_value>", "</tool_call>", NULL};
    return !tag_before_tag(s, tags);
}

/* ---- harmony ---- */

static void write_harmony(struct buf *out, const struct dialect_call *calls, size_t n,
                          uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        str name = calls[i].name;
        if (i > 0)
            buf_puts(out, "<|start|>assistant");
        uint64_t form = test_random(seed) % 4;
        if (form == 0)
            buf_printf(out, " to=functions." STR_FMT "<|channel|>commentary json", STR_ARG(name));
        else if (form == 1)
            buf_printf(out, "<|channel|>analysis to=functions." STR_FMT " code", STR_ARG(name));
        else
            buf_printf(out, "<|channel|>commentary to=functions." STR_FMT "%s", STR_ARG(name),
                       form == 2 ? " <|constrain|>json" : "");
        buf_puts(out, "<|message|>");
        json_write_val(out, calls[i].args);
        if (i + 1 < n || test_random(seed) % 2)
            buf_puts(out, "<|call|>");
    }
}

/* ---- hermes ---- */

static void write_hermes_call(struct buf *out, const struct dialect_call *c, uint64_t *seed)
{
    bool args_first = test_random(seed) % 8 == 0, wide = test_random(seed) % 2;
    const char *gap = wide ? " " : "";
    buf_puts(out, "{");
    if (args_first) {
        buf_printf(out, "\"arguments\":%s", gap);
        json_write_val(out, c->args);
        buf_printf(out, ",%s", gap);
    }
    buf_printf(out, "\"name\":%s", gap);
    json_write_str(out, c->name);
    if (!args_first) {
        buf_printf(out, ",%s\"arguments\":%s", gap, gap);
        json_write_val(out, c->args);
    }
    buf_puts(out, "}");
}

static void write_hermes(struct buf *out, const struct dialect_call *calls, size_t n,
                         uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        bool lines = test_random(seed) % 4 != 0;
        buf_puts(out, lines ? "<tool_call>\n" : "<tool_call>");
        write_hermes_call(out, &calls[i], seed);
        buf_puts(out, lines ? "\n</tool_call>\n" : "</tool_call>");
    }
}

/* ---- json_tags ---- */

static void write_list(struct buf *out, const struct dialect_call *calls, size_t n)
{
    buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i ? ", {\"name\": " : "{\"name\": ");
        json_write_str(out, calls[i].name);
        buf_puts(out, ", \"arguments\": ");
        json_write_val(out, calls[i].args);
        buf_puts(out, "}");
    }
    buf_puts(out, "]");
}

static void write_json_tags(struct buf *out, const struct dialect_call *calls, size_t n,
                            uint64_t *seed)
{
    static const char *const opens[] = {"<TOOLCALL>", "<|function_call|>", "functools"};
    static const char *const closes[] = {"</TOOLCALL>", "", ""};
    uint64_t k = test_random(seed) % 3;
    buf_puts(out, opens[k]);
    write_list(out, calls, n);
    buf_puts(out, closes[k]);
}

static void write_apriel(struct buf *out, const struct dialect_call *calls, size_t n,
                         uint64_t *seed)
{
    (void)seed;
    buf_puts(out, "\n<tool_calls>");
    write_list(out, calls, n);
    buf_puts(out, "</tool_calls>");
}

/* ---- kimi_k2 ---- */

static void write_kimi_k2(struct buf *out, const struct dialect_call *calls, size_t n,
                          uint64_t *seed)
{
    bool section = test_random(seed) % 4 != 0;
    const char *gap = test_random(seed) % 4 == 0 ? "\n" : "";
    if (section)
        buf_puts(out, KIMI_CALLS);
    for (size_t i = 0; i < n; i++) {
        /* Without its namespace it is no id, which these calls have none of. */
        buf_printf(out, "%s" KIMI_CALL STR_FMT ":%d" KIMI_ARGS, gap, STR_ARG(calls[i].name),
                   (int)i);
        json_write_val(out, calls[i].args);
        buf_printf(out, "%s" KIMI_CALL_END, gap);
    }
    if (section)
        buf_puts(out, KIMI_CALLS_END);
}

/* ---- lfm2 ---- */

/* As Python's repr does, or with JSON's escapes alone. */
static void write_python_string(struct buf *out, str s, uint64_t *seed)
{
    bool has_single = memchr(s.p, '\'', s.n ? s.n : 1) != NULL && s.n > 0;
    bool has_double = memchr(s.p, '"', s.n ? s.n : 1) != NULL && s.n > 0;
    char quote = has_single && !has_double ? '"' : '\'';
    if (test_random(seed) % 4 == 0) {
        json_write_str(out, s);
        return;
    }
    buf_putc(out, quote);
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == quote || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if (c == '\r')
            buf_puts(out, "\\r");
        else if ((unsigned char)c < 0x20)
            buf_printf(out, "\\x%02x", (unsigned)(unsigned char)c);
        else
            buf_putc(out, c);
    }
    buf_putc(out, quote);
}

static void write_python_value(struct buf *out, yyjson_val *v, uint64_t *seed)
{
    yyjson_val *key, *item;
    size_t i, n;
    if (yyjson_is_str(v)) {
        write_python_string(out, json_str(v), seed);
    } else if (yyjson_is_bool(v)) {
        buf_puts(out, yyjson_get_bool(v) ? "True" : "False");
    } else if (yyjson_is_null(v)) {
        buf_puts(out, "None");
    } else if (yyjson_is_arr(v)) {
        buf_putc(out, '[');
        yyjson_arr_foreach(v, i, n, item)
        {
            buf_puts(out, i ? ", " : "");
            write_python_value(out, item, seed);
        }
        buf_putc(out, ']');
    } else if (yyjson_is_obj(v)) {
        buf_putc(out, '{');
        yyjson_obj_foreach(v, i, n, key, item)
        {
            buf_puts(out, i ? ", " : "");
            write_python_string(out, json_str(key), seed);
            buf_puts(out, ": ");
            write_python_value(out, item, seed);
        }
        buf_putc(out, '}');
    } else {
        json_write_val(out, v);
    }
}

static void write_lfm2(struct buf *out, const struct dialect_call *calls, size_t n, uint64_t *seed)
{
    buf_puts(out, LFM2_CALLS "[");
    for (size_t i = 0; i < n; i++) {
        yyjson_val *key, *item;
        size_t k, n_args;
        buf_printf(out, "%s" STR_FMT "(", i ? ", " : "", STR_ARG(calls[i].name));
        yyjson_obj_foreach(calls[i].args, k, n_args, key, item)
        {
            buf_printf(out, "%s" STR_FMT "=", k ? ", " : "", STR_ARG(json_str(key)));
            /* Objects also stand as JSON. */
            if (yyjson_is_obj(item) && test_random(seed) % 2)
                json_write_val(out, item);
            else
                write_python_value(out, item, seed);
        }
        buf_puts(out, ")");
    }
    buf_puts(out, "]" LFM2_CALLS_END);
}

/* ---- llama3 ---- */

static void write_named_json(struct buf *out, const struct dialect_call *c, const char *args)
{
    buf_puts(out, "{\"name\": ");
    json_write_str(out, c->name);
    buf_printf(out, ", \"%s\": ", args);
    json_write_val(out, c->args);
    buf_puts(out, "}");
}

static void write_llama(struct buf *out, const struct dialect_call *calls, size_t n, uint64_t *seed)
{
    if (test_random(seed) % 4 == 0)
        buf_puts(out, "<|python_tag|>");
    for (size_t i = 0; i < n; i++) {
        buf_puts(out, i ? "; " : "");
        write_named_json(out, &calls[i], "parameters");
    }
}

static void write_generic(struct buf *out, const struct dialect_call *calls, size_t n,
                          uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        bool fenced = test_random(seed) % 2;
        buf_puts(out, fenced ? "```json\n" : "");
        write_named_json(out, &calls[i], "arguments");
        buf_puts(out, fenced ? "\n```\n" : "\n");
    }
}

/* ---- mistral ---- */

static void write_mistral_list(struct buf *out, const struct dialect_call *calls, size_t n,
                               uint64_t *seed)
{
    (void)seed;
    buf_puts(out, "[TOOL_CALLS][");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s{\"name\": ", i ? ", " : "");
        json_write_str(out, calls[i].name);
        buf_puts(out, ", \"arguments\": ");
        json_write_val(out, calls[i].args);
        buf_puts(out, ", \"id\": \"abc123XYZ\"}");
    }
    buf_puts(out, "]");
}

static void write_mistral(struct buf *out, const struct dialect_call *calls, size_t n,
                          uint64_t *seed)
{
    const char *gap = test_random(seed) % 4 ? "" : "\n";
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "[TOOL_CALLS]" STR_FMT "[ARGS]%s", STR_ARG(calls[i].name), gap);
        json_write_val(out, calls[i].args);
        buf_puts(out, gap);
    }
}

/* ---- qwen_xml ---- */

static void write_qwen_xml(struct buf *out, const struct dialect_call *calls, size_t n,
                           uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        bool bare = test_random(seed) % 8 == 0;
        size_t k, m;
        yyjson_val *key, *v;
        buf_printf(out, "%s<function=" STR_FMT ">\n", bare ? "" : "<tool_call>\n",
                   STR_ARG(calls[i].name));
        yyjson_obj_foreach(calls[i].args, k, m, key, v)
        {
            buf_printf(out, "<parameter=" STR_FMT ">\n", STR_ARG(json_str(key)));
            write_bare(out, v);
            buf_puts(out, "\n</parameter>\n");
        }
        buf_printf(out, "</function>\n%s", bare ? "" : "</tool_call>\n");
    }
}

/* But for a closing tag with another tag behind it. */
static bool qwen_xml_can_carry(str s)
{
    static const char *const tags[] = {"</parameter>", "</function>", "</tool_call>", NULL};
    return !tag_before_tag(s, tags);
}

static const struct dialect_form forms[] = {
    {.name = "harmony", .write = write_harmony, .no_text_before = true, .no_text_after = true},
    {.name = "gemma4", .write = write_gemma4, .can_carry = gemma4_can_carry},
    {.name = "kimi_k2", .write = write_kimi_k2},
    {.name = "deepseek", .write = write_deepseek},
    {.name = "deepseek_r1", .dialect = "deepseek", .write = write_deepseek_r1},
    {.name = "mistral", .write = write_mistral},
    {.name = "mistral_list", .dialect = "mistral", .write = write_mistral_list},
    {.name = "lfm2", .write = write_lfm2, .names_are_words = true},
    {.name = "glm", .write = write_glm, .can_carry = glm_can_carry},
    {.name = "qwen_xml", .write = write_qwen_xml, .can_carry = qwen_xml_can_carry},
    {.name = "json_tags", .write = write_json_tags},
    {.name = "apriel", .write = write_apriel},
    {.name = "hermes", .write = write_hermes},
    {.name = "llama3", .write = write_llama},
    {.name = "generic_json", .write = write_generic},
};

const struct dialect_form *dialect_form_find(str name)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (str_eqz(name, forms[i].name))
            return &forms[i];
    }
    return NULL;
}

const char *dialect_form_dialect(const struct dialect_form *f)
{
    return f->dialect ? f->dialect : f->name;
}
