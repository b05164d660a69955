/*
 * tests/fuzz/protocol/answer_fuzz.c - any text as a model's answer in each dialect: in one piece
 * and in several it is made of the same parts, calls do not overlap and are of tools that were
 * offered, and without tools there are none.
 *
 * The first byte chooses the dialect, the second one what the answer is read with, the third one
 * how it is cut.
 */
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "protocol/tools/answer.h"
#include "protocol/tools/dialect.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"},"
    "\"c\":{\"anyOf\":[{\"type\":\"object\"},{\"type\":\"array\"},{\"type\":\"null\"}]},"
    "\"d\":{\"type\":[\"string\",\"boolean\"]},\"e\":{\"$ref\":\"#/properties/a\"}}}";

enum { WITH_TOOLS = 1, REASONING = 2, ONE_CALL = 4 };

/* The parts as bytes, those of neighbours of one kind joined. */
struct seen {
    struct buf out;
    answer_kind kind;
    bool in_call;
    int32_t n_calls;
};

static void see(struct seen *s, const struct answer_part *p, unsigned flags)
{
    bool of_call = p->kind == ANSWER_ARGS || p->kind == ANSWER_CALL_END;
    if (p->kind == ANSWER_CALL) {
        if (s->in_call || !(flags & WITH_TOOLS) || p->call != s->n_calls++ ||
            !(str_eqz(p->text, "f") || str_eqz(p->text, "get_weather")))
            abort();
        s->in_call = true;
    } else if (s->in_call != of_call || (of_call && p->call != s->n_calls - 1)) {
        abort();
    }
    if (p->kind == ANSWER_CALL_END)
        s->in_call = false;
    if (p->kind != s->kind || p->kind == ANSWER_CALL)
        buf_putc(&s->out, (char)p->kind);
    s->kind = p->kind;
    buf_puts_str(&s->out, p->text);
    if (p->kind == ANSWER_CALL_END)
        buf_putc(&s->out, (char)('0' + p->complete));
    buf_puts_str(&s->out, p->id);
}

static void read_all(struct answer_parser *a, struct seen *s, unsigned flags)
{
    struct answer_part part;
    while (answer_parser_next(a, &part))
        see(s, &part, flags);
}

static size_t next_char(str text, size_t at)
{
    for (at++; at < text.n && ((unsigned char)text.p[at] & 0xC0) == 0x80; at++)
        ;
    return at;
}

/* `cut`: 0: in one piece; else the seed of the pieces' lengths. */
static void answer(const struct dialect *d, const struct answer_tool *tools, str text,
                   unsigned flags, uint64_t cut, struct seen *s)
{
    struct answer_params p = {.dialect = d,
                              .tools = tools,
                              .n_tools = flags & WITH_TOOLS ? 2 : 0,
                              .reasoning_open = flags & REASONING,
                              .one_call = flags & ONE_CALL,
                              .max_bytes = 1 << 22};
    struct answer_parser *a;
    size_t at = 0;
    *s = (struct seen){0};
    buf_init(&s->out, (size_t)1 << 26);
    if (answer_parser_new(&a, &p, NULL) != T9_STATUS_OK)
        abort();
    while (at < text.n) {
        size_t end = cut ? at : text.n;
        cut = cut ? cut * 6364136223846793005u + 1442695040888963407u : 0;
        for (uint64_t n = cut ? 1 + (cut >> 60) : 0; n && end < text.n; n--)
            end = next_char(text, end);
        if (answer_parser_push(a, str_slice(text, at, end)) != T9_STATUS_OK)
            abort();
        read_all(a, s, flags);
        at = end;
    }
    if (answer_parser_end(a) != T9_STATUS_OK)
        abort();
    read_all(a, s, flags);
    if (s->in_call || s->out.failed)
        abort();
    answer_parser_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole, cut;
    size_t n_dialects = 0;
    yyjson_doc *doc = NULL;
    if (size < 3 || !utf8_valid((str){(const char *)data + 3, size - 3}))
        return -1;
    while (dialect_at(n_dialects))
        n_dialects++;
    if (json_parse(&doc, STR(schema), JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
        abort();
    yyjson_val *root = yyjson_doc_get_root(doc);
    const struct answer_tool tools[] = {{STR("f"), root}, {STR("get_weather"), NULL}};
    const struct dialect *d = dialect_at(data[0] % n_dialects);
    str text = {(const char *)data + 3, size - 3};
    answer(d, tools, text, data[1], 0, &whole);
    answer(d, tools, text, data[1], data[2] + 1u, &cut);
    if (!str_eq(buf_str(&whole.out), buf_str(&cut.out)))
        abort();
    buf_deinit(&whole.out);
    buf_deinit(&cut.out);
    yyjson_doc_free(doc);
    return 0;
}
