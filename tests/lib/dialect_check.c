/*
 * tests/lib/dialect_check.c - see dialect_check.h.
 */
#include "lib/dialect_check.h"

#include "lib/t9test.h"

enum { TOOLS_MAX = 16, ANSWER_BYTES_MAX = 1 << 22 };

struct tools {
    yyjson_doc *doc;
    struct answer_tool list[TOOLS_MAX];
    size_t n;
};

static void tools_read(struct tools *t, str json)
{
    struct t9_err err = {0};
    *t = (struct tools){0};
    if (json_parse(&t->doc, json, JSON_LIMITS_REQUEST, &err) != T9_STATUS_OK)
        fail_msg("tools of a test: %s", err.msg);
    yyjson_val *root = yyjson_doc_get_root(t->doc), *tool;
    size_t i, n;
    yyjson_arr_foreach(root, i, n, tool)
    {
        assert_true(t->n < TOOLS_MAX);
        t->list[t->n].name = json_str(json_get(tool, "name"));
        t->list[t->n++].schema = json_get(tool, "parameters");
    }
}

/* ---- parts as text ---- */

static void put_line(struct buf *out, const char *what, str text)
{
    buf_puts(out, what);
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '\n')
            buf_puts(out, "\\n");
        else if (text.p[i] == '\\')
            buf_puts(out, "\\\\");
        else
            buf_putc(out, text.p[i]);
    }
}

/* What has come so far. */
struct dump {
    struct buf out;   /* lines of all parts */
    struct buf calls; /* those of complete calls alone */
    struct buf call;  /* of the call at hand */
    answer_kind open; /* the kind whose line is not over */
    int32_t n_calls;
    bool in_call;
};

static void dump_init(struct dump *d)
{
    *d = (struct dump){0};
    buf_init(&d->out, ANSWER_BYTES_MAX * 2);
    buf_init(&d->calls, ANSWER_BYTES_MAX * 2);
    buf_init(&d->call, ANSWER_BYTES_MAX * 2);
}

static void dump_deinit(struct dump *d)
{
    buf_deinit(&d->out);
    buf_deinit(&d->calls);
    buf_deinit(&d->call);
}

static void dump_part(struct dump *d, const struct answer_part *p, const struct tools *tools)
{
    static const char *const labels[] = {"", "text: ", "thinks: ", "call: ", "args: ", ""};
    bool of_call = p->kind >= ANSWER_CALL;
    bool goes_on = d->open == p->kind && p->kind != ANSWER_CALL && p->kind != ANSWER_CALL_END;
    if (d->open != ANSWER_NONE && !goes_on)
        buf_putc(of_call && p->kind != ANSWER_CALL ? &d->call : &d->out, '\n');
    d->open = p->kind;
    /* Calls do not overlap, and are counted. */
    if (p->kind == ANSWER_CALL) {
        bool offered = false;
        assert_false(d->in_call);
        assert_int_equal(p->call, d->n_calls++);
        for (size_t i = 0; i < tools->n; i++)
            offered |= str_eq(tools->list[i].name, p->text);
        assert_true(offered);
        d->in_call = true;
    } else {
        assert_true(d->in_call == of_call);
    }
    if (of_call)
        assert_int_equal(p->call, d->n_calls - 1);
    struct buf *out = of_call ? &d->call : &d->out;
    put_line(out, goes_on ? "" : labels[p->kind], p->text);
    if (p->id.n)
        put_line(out, " #", p->id);
    if (p->kind == ANSWER_CALL_END) {
        buf_puts(out, p->complete ? "end" : "cut");
        buf_puts_str(&d->out, buf_str(&d->call));
        if (p->complete) {
            buf_puts_str(&d->calls, buf_str(&d->call));
            buf_putc(&d->calls, '\n');
        }
        buf_clear(&d->call);
        d->in_call = false;
    }
}

static void take_parts(struct answer_parser *a, struct dump *d, const struct tools *tools)
{
    struct answer_part p;
    while (answer_parser_next(a, &p))
        dump_part(d, &p, tools);
}

/* ---- running an answer ---- */

static size_t char_end(str s, size_t at)
{
    for (at++; at < s.n && ((unsigned char)s.p[at] & 0xC0) == 0x80; at++)
        ;
    return at < s.n ? at : s.n;
}

struct run {
    const struct dialect *dialect;
    const struct tools *tools;
    unsigned flags;
};

/* With the ends of all pieces but the last in `ends`; n_ends (size_t)-1: character by character. */
static void run_answer(const struct run *r, str text, const size_t *ends, size_t n_ends,
                       struct dump *d)
{
    struct answer_params p = {.dialect = r->dialect,
                              .tools = r->tools->list,
                              .n_tools = r->flags & CHECK_NO_TOOLS ? 0 : r->tools->n,
                              .reasoning_open = r->flags & CHECK_REASONING_OPEN,
                              .one_call = r->flags & CHECK_ONE_CALL,
                              .max_bytes = ANSWER_BYTES_MAX};
    struct answer_parser *a;
    size_t at = 0;
    assert_non_null(r->dialect);
    assert_int_equal(answer_parser_new(&a, &p, NULL), T9_STATUS_OK);
    dump_init(d);
    for (size_t i = 0; at < text.n; i++) {
        size_t end = n_ends == (size_t)-1 ? char_end(text, at) : i < n_ends ? ends[i] : text.n;
        assert_int_equal(answer_parser_push(a, str_slice(text, at, end)), T9_STATUS_OK);
        take_parts(a, d, r->tools);
        at = end;
    }
    assert_int_equal(answer_parser_end(a), T9_STATUS_OK);
    take_parts(a, d, r->tools);
    assert_false(d->in_call);
    if (d->out.n && d->open != ANSWER_NONE)
        buf_putc(&d->out, '\n');
    assert_false(d->out.failed || d->calls.failed || d->call.failed);
    answer_parser_free(a);
}

static void same(const char *what, const char *how, size_t at, str got, str want, str text)
{
    if (!str_eq(got, want))
        fail_msg("%s, %s %zu\nanswer:\n" STR_FMT "\ngot:\n" STR_FMT "wanted:\n" STR_FMT, what, how,
                 at, STR_ARG(text), STR_ARG(got), STR_ARG(want));
}

/* ---- tables ---- */

static void check_splits(const struct run *r, const char *what, str text, str want)
{
    struct dump d;
    for (size_t at = 0; at < text.n; at = char_end(text, at)) {
        run_answer(r, text, &at, 1, &d);
        same(what, "split at", at, buf_str(&d.out), want, text);
        dump_deinit(&d);
    }
    run_answer(r, text, NULL, (size_t)-1, &d);
    same(what, "by characters", 0, buf_str(&d.out), want, text);
    dump_deinit(&d);
}

static void check_cuts(const struct run *r, const char *what, str text, str calls)
{
    for (size_t at = 0; at < text.n; at = char_end(text, at)) {
        struct dump d;
        str cut = str_slice(text, 0, at);
        run_answer(r, cut, NULL, 0, &d);
        if (!str_has_prefix(calls, buf_str(&d.calls)))
            same(what, "cut at", at, buf_str(&d.calls), calls, cut);
        dump_deinit(&d);
    }
}

void dialect_check(const char *dialect, const char *tools, const struct dialect_case *cases,
                   size_t n)
{
    struct tools t;
    tools_read(&t, str_from(tools));
    for (size_t i = 0; i < n; i++) {
        const struct dialect_case *c = &cases[i];
        struct run r = {dialect_find(str_from(dialect)), &t, c->flags};
        struct dump d;
        str text = str_from(c->text), want = str_from(c->parts);
        run_answer(&r, text, NULL, 0, &d);
        same(c->what, "whole", 0, buf_str(&d.out), want, text);
        check_splits(&r, c->what, text, want);
        check_cuts(&r, c->what, text, buf_str(&d.calls));
        dump_deinit(&d);
    }
    yyjson_doc_free(t.doc);
}

/* ---- generated tools and calls ---- */

/* Makes a schema and a value that it permits, both as JSON text. */
struct gen {
    const struct dialect_form *form;
    uint64_t seed;
    struct buf schema, value;
};

static uint64_t below(struct gen *g, uint64_t n)
{
    return test_random(&g->seed) % n;
}

static const char *pick(struct gen *g, const char *const *of, size_t n)
{
    return of[below(g, n)];
}

#define PICK(g, list) pick(g, list, sizeof(list) / sizeof *(list))

/* What strings are made of: text that a reader of answers could stumble over. */
static const char *const scraps[] = {
    "a",
    "Z",
    "0",
    " ",
    "  ",
    "\n",
    "\t",
    "\"",
    "'",
    "\\",
    "\\n",
    "/",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "<",
    ">",
    "<|",
    "|>",
    "</",
    "é",
    "ß",
    "日本",
    "🙂",
    "\u2028",
    "02134",
    "1e5",
    "true",
    "null",
    "None",
    "hello",
    "Müller & Söhne",
    "a=b",
    "#",
    "--",
    "{\"name\": \"f0\", \"arguments\": {}}",
    "<tool_call>",
    "</tool_call>",
    "<function=f0>",
    "</function>",
    "<parameter=zz>",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<think>",
    "</think>",
    "```json",
    "```",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<|channel|>",
    "<|message|>",
    "<|python_tag|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_argument_begin|>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<|tool_call_start|>",
    "functions.f0:0",
    "f0(a=1)",
    "call:f0{",
    "\r\n",
    "\x01",
    "\x7f",
};

static void gen_text(struct gen *g, struct buf *out)
{
    uint64_t kind = below(g, 40);
    uint64_t n = kind == 0 ? 0 : kind == 1 ? 200 + below(g, 2000) : 1 + below(g, 8);
    for (uint64_t i = 0; i < n; i++)
        buf_puts(out, PICK(g, scraps));
}

static void gen_string(struct gen *g)
{
    struct buf text;
    buf_init(&text, ANSWER_BYTES_MAX);
    do {
        buf_clear(&text);
        gen_text(g, &text);
    } while (g->form->can_carry && !g->form->can_carry(buf_str(&text)));
    json_write_str(&g->value, buf_str(&text));
    buf_deinit(&text);
}

/* A string that is no other type's text. */
static void gen_word(struct gen *g)
{
    static const char *const words[] = {"red", "Oslo", "a b", "x-1", "größer", "q\"uote", "v1.2"};
    json_write_str(&g->value, str_from(PICK(g, words)));
}

static void gen_integer(struct gen *g)
{
    static const char *const some[] = {"0", "-1", "7", "9007199254740993", "-42", "1000000"};
    buf_puts(&g->value, PICK(g, some));
}

static void gen_number(struct gen *g)
{
    static const char *const some[] = {"0.5", "-3.25", "1e-7", "12", "6.02e23", "100.0"};
    buf_puts(&g->value, PICK(g, some));
}

static void gen_boolean(struct gen *g)
{
    buf_puts(&g->value, below(g, 2) ? "true" : "false");
}

static void gen_any(struct gen *g, int depth);

static void gen_array(struct gen *g, int depth)
{
    uint64_t n = below(g, 4);
    buf_puts(&g->schema, "{\"type\":\"array\"}");
    buf_putc(&g->value, '[');
    for (uint64_t i = 0; i < n; i++) {
        struct buf none = g->schema;
        buf_init(&g->schema, ANSWER_BYTES_MAX);
        if (i)
            buf_putc(&g->value, ',');
        gen_any(g, depth + 1);
        buf_deinit(&g->schema);
        g->schema = none;
    }
    buf_putc(&g->value, ']');
}

static void gen_key(struct gen *g, struct buf *key, uint64_t i)
{
    static const char *const words[] = {"city",     "path", "max_tokens", "q",
                                        "dateFrom", "X2",   "new_string"};
    static const char *const odd[] = {"file-path", "größe", "a.b", "$x"};
    buf_puts(key, g->form->names_are_words || below(g, 6) ? PICK(g, words) : PICK(g, odd));
    buf_printf(key, "_%d", (int)i);
}

/* An object schema with its value; not all members are there. */
static void gen_object(struct gen *g, int depth)
{
    uint64_t n = below(g, 10) == 0 ? 0 : 1 + below(g, depth ? 3 : 6);
    bool first = true;
    buf_puts(&g->schema, "{\"type\":\"object\",\"properties\":{");
    buf_putc(&g->value, '{');
    for (uint64_t i = 0; i < n; i++) {
        struct buf key;
        size_t undo;
        buf_init(&key, 256);
        gen_key(g, &key, i);
        if (i)
            buf_putc(&g->schema, ',');
        json_write_str(&g->schema, buf_str(&key));
        buf_putc(&g->schema, ':');
        undo = g->value.n;
        if (!first)
            buf_putc(&g->value, ',');
        json_write_str(&g->value, buf_str(&key));
        buf_putc(&g->value, ':');
        gen_any(g, depth + 1);
        if (below(g, 6) == 0)
            g->value.n = undo;
        else
            first = false;
        buf_deinit(&key);
    }
    buf_putc(&g->value, '}');
    buf_puts(&g->schema, "},\"$defs\":{\"text\":{\"type\":\"string\"},\"n\":{\"$ref\":\"#/$defs/"
                         "i\"},\"i\":{\"type\":\"integer\"}}}");
}

static void gen_scalar(struct gen *g, int depth)
{
    static const struct {
        const char *schema;
        void (*value)(struct gen *);
    } kinds[] = {
        {"{\"type\":\"string\"}", gen_string},
        {"{\"type\":\"string\",\"description\":\"a \\\"text\\\"\"}", gen_string},
        {"{\"type\":\"integer\",\"minimum\":-100}", gen_integer},
        {"{\"type\":\"number\"}", gen_number},
        {"{\"type\":\"boolean\",\"default\":false}", gen_boolean},
        {"{\"type\":[\"string\",\"null\"]}", gen_word},
        {"{\"type\":[\"integer\",\"string\"]}", gen_integer},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", gen_integer},
        {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"number\"}]}", gen_word},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"boolean\"}]}", gen_boolean},
        {"{\"allOf\":[{\"type\":[\"string\",\"integer\"]},{\"type\":\"string\"}]}", gen_string},
        {"{\"enum\":[\"red\",\"Oslo\",\"a b\",\"x-1\",\"gr\xC3\xB6\xC3\x9F"
         "er\",\"v1.2\"]}",
         gen_word},
        {"{\"enum\":[0,-1,7,9007199254740993,-42,1000000]}", gen_integer},
        {"{\"type\":\"string\",\"nullable\":true}", gen_word},
        {"{}", gen_word},
    };
    static const char *const text_ref = "{\"$ref\":\"#/$defs/text\"}";
    static const char *const integer_ref = "{\"$ref\":\"#/$defs/n\"}";
    uint64_t k = below(g, sizeof kinds / sizeof *kinds + 2);
    if (k < sizeof kinds / sizeof *kinds) {
        buf_puts(&g->schema, kinds[k].schema);
        kinds[k].value(g);
        return;
    }
    /* References are to the root's; further down they would not be where they point. */
    bool text = k % 2;
    buf_puts(&g->schema, depth > 1 ? "true" : text ? text_ref : integer_ref);
    if (text && depth <= 1)
        gen_string(g);
    else
        gen_integer(g);
}

static void gen_any(struct gen *g, int depth)
{
    uint64_t kind = below(g, 10);
    if (kind == 0 && depth < 4)
        gen_object(g, depth);
    else if (kind == 1 && depth < 4)
        gen_array(g, depth);
    else
        gen_scalar(g, depth);
}

/* ---- one round ---- */

struct round {
    struct buf tools;   /* JSON */
    struct buf args[8]; /* of each call */
    struct dialect_call calls[8];
    yyjson_doc *docs[8];
    size_t n_tools, n_calls;
};

static void round_init(struct round *r, struct gen *g)
{
    memset(r, 0, sizeof *r);
    r->n_tools = 1 + below(g, 4);
    r->n_calls = 1 + below(g, 4);
    buf_init(&r->tools, ANSWER_BYTES_MAX);
    buf_putc(&r->tools, '[');
    for (size_t i = 0; i < r->n_tools || i < r->n_calls; i++) {
        struct t9_err err = {0};
        buf_init(&g->schema, ANSWER_BYTES_MAX);
        buf_init(&r->args[i], ANSWER_BYTES_MAX);
        buf_init(&g->value, ANSWER_BYTES_MAX);
        gen_object(g, 0);
        if (i)
            buf_putc(&r->tools, ',');
        buf_printf(&r->tools, "{\"name\":\"f%d\",\"parameters\":", (int)i);
        buf_puts_str(&r->tools, buf_str(&g->schema));
        buf_putc(&r->tools, '}');
        r->args[i] = g->value;
        assert_false(g->value.failed || r->tools.failed);
        if (json_parse(&r->docs[i], buf_str(&r->args[i]), JSON_LIMITS_REQUEST, &err) !=
            T9_STATUS_OK)
            fail_msg("generated: %s", err.msg);
        buf_deinit(&g->schema);
    }
    buf_putc(&r->tools, ']');
}

static void round_deinit(struct round *r)
{
    for (size_t i = 0; i < sizeof r->args / sizeof *r->args; i++) {
        buf_deinit(&r->args[i]);
        yyjson_doc_free(r->docs[i]);
    }
    buf_deinit(&r->tools);
}

/* The parts with arguments in one spelling: as yyjson writes them. */
static void normal(str parts, struct buf *out)
{
    size_t at = 0;
    while (at < parts.n) {
        size_t end = str_find(parts, STR("\n"), at);
        str line = str_slice(parts, at, end);
        yyjson_doc *doc = NULL;
        struct buf plain;
        buf_init(&plain, ANSWER_BYTES_MAX * 2);
        /* Undoes put_line. */
        for (size_t i = 0; i < line.n; i++) {
            bool two = line.p[i] == '\\' && i + 1 < line.n;
            i += two;
            buf_putc(&plain, two && line.p[i] == 'n' ? '\n' : line.p[i]);
        }
        str args = buf_str(&plain);
        if (str_has_prefix(args, STR("args: ")) &&
            json_parse(&doc, str_slice(args, 6, args.n), JSON_LIMITS_REQUEST, NULL) ==
                T9_STATUS_OK) {
            buf_puts(out, "args: ");
            json_write_val(out, yyjson_doc_get_root(doc));
        } else {
            buf_puts_str(out, line);
        }
        buf_putc(out, '\n');
        yyjson_doc_free(doc);
        buf_deinit(&plain);
        at = end + 1;
    }
}

static void write_wanted(const struct round *r, const char *before, const char *after,
                         struct buf *out)
{
    if (*before)
        buf_printf(out, "text: %s\n", before);
    for (size_t i = 0; i < r->n_calls; i++) {
        buf_printf(out, "call: " STR_FMT "\nargs: ", STR_ARG(r->calls[i].name));
        json_write_val(out, r->calls[i].args);
        buf_puts(out, "\nend\n");
    }
    if (*after)
        buf_printf(out, "text: %s\n", after);
}

static size_t random_ends(struct gen *g, str text, size_t *ends, size_t max)
{
    size_t n = 0, at = 0;
    while (n < max && at < text.n) {
        for (uint64_t k = 1 + below(g, text.n / 8 + 2); k && at < text.n; k--)
            at = char_end(text, at);
        ends[n++] = at;
    }
    return n;
}

static void one_round(struct gen *g, size_t number)
{
    static const char *const befores[] = {"", "Let me see.", "I will look: 1, 2", "Gut, größer."};
    static const char *const afters[] = {"", "Done.", "That is all, I think"};
    struct round r;
    struct tools tools;
    struct buf text, want;
    size_t ends[32];
    const char *before = g->form->no_text_before ? "" : PICK(g, befores);
    const char *after = g->form->no_text_after ? "" : PICK(g, afters);
    round_init(&r, g);
    tools_read(&tools, buf_str(&r.tools));
    buf_init(&text, ANSWER_BYTES_MAX);
    buf_init(&want, ANSWER_BYTES_MAX);
    for (size_t i = 0; i < r.n_calls; i++)
        r.calls[i] = (struct dialect_call){tools.list[i].name, yyjson_doc_get_root(r.docs[i])};
    if (*before)
        buf_printf(&text, "%s\n", before);
    g->form->write(&text, r.calls, r.n_calls, &g->seed);
    if (*after)
        buf_printf(&text, "\n%s", after);
    write_wanted(&r, before, after, &want);
    assert_false(text.failed || want.failed);
    struct run run = {dialect_find(str_from(dialect_form_dialect(g->form))), &tools, 0};
    for (int way = 0; way < 3; way++) {
        struct dump d;
        struct buf got;
        size_t n = way == 0   ? 0
                   : way == 1 ? (size_t)-1
                              : random_ends(g, buf_str(&text), ends, sizeof ends / sizeof *ends);
        buf_init(&got, ANSWER_BYTES_MAX);
        run_answer(&run, buf_str(&text), ends, n, &d);
        normal(buf_str(&d.out), &got);
        same(g->form->name, "round", number, buf_str(&got), buf_str(&want), buf_str(&text));
        buf_deinit(&got);
        dump_deinit(&d);
    }
    buf_deinit(&text);
    buf_deinit(&want);
    yyjson_doc_free(tools.doc);
    round_deinit(&r);
}

void dialect_round_trip(const char *name, size_t rounds, uint64_t seed)
{
    const struct dialect_form *form = dialect_form_find(str_from(name));
    assert_non_null(form);
    for (size_t i = 0; i < rounds; i++) {
        /* Each round can be repeated alone. */
        struct gen g = {.form = form, .seed = seed + i * 7919};
        one_round(&g, i);
    }
}

size_t dialect_rounds(void)
{
    return test_is_full() ? 20000 : 500;
}
