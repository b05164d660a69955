/* Unit tests: hostile templates and conversations run into a limit, never into the C stack or the
 * machine's memory, and many threads can render one template. */
#include "base/mem.h"
#include "render.h"

#include <pthread.h>

static const struct jinja_limits small = {200000, 1 << 20, 8 << 20, 200};

static void expect_too_large_src(str source, const char *args)
{
    struct jinja_output out;
    struct t9_err err = {0};
    t9_status s = render_full(source, args, &small, NULL, &out, &err);
    if (s != T9_STATUS_TOO_LARGE)
        fail_msg(STR_FMT ": %s %s", (int)(source.n > 100 ? 100 : source.n), source.p,
                 t9_status_name(s), err.msg);
    assert_true(err.msg[0] != 0);
}

static void expect_too_large(const char *source)
{
    expect_too_large_src(str_from(source), "{\"s\":\"xyz\"}");
}

static void steps(void **state)
{
    (void)state;
    expect_too_large(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
    expect_too_large("{{ range(1000000000) }}");
    expect_too_large("{% for a in range(90000) %}{{ range(99999) | sum }}{% endfor %}");
    expect_too_large(
        "{% for a in range(9000) %}{{ range(9000) | list | sort | length }}{% endfor %}");
    expect_too_large(
        "{% set a = 'x' * 500000 %}{% for i in range(99999) %}{{ a.find('y') }}{% endfor %}");
    expect_too_large("{% set a = 'x' * 500000 %}{% for i in range(99999) %}{{ a | upper | length "
                     "}}{% endfor %}");
}

static void memory(void **state)
{
    (void)state;
    expect_too_large("{% set ns = namespace(a='xx') %}{% for i in range(99) %}"
                     "{% set ns.a = ns.a + ns.a %}{% endfor %}");
    expect_too_large("{% set ns = namespace(a=[1]) %}{% for i in range(99) %}"
                     "{% set ns.a = ns.a + ns.a %}{% endfor %}");
    expect_too_large("{% set ns = namespace(a=[1]) %}{% for i in range(99) %}"
                     "{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}");
    expect_too_large("{{ 'x' * 9000000000 }}");
    expect_too_large("{{ [1] * 9000000000 }}");
    expect_too_large("{{ '%999999999d' % 1 }}");
    expect_too_large("{{ 'x'.ljust(900000000) }}");
    expect_too_large("{{ s | indent(900000000, true) }}");
    expect_too_large("{% set a = 'x' * 100000 %}{{ a.replace('x', a) }}");
}

static void output(void **state)
{
    (void)state;
    expect_too_large("{% set a = 'x' * 100000 %}{% for i in range(99) %}{{ a }}{% endfor %}");
}

static void repeat(struct buf *b, const char *a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_puts(b, a);
}

static void nested_source(const char *open, const char *mid, const char *close, size_t n)
{
    struct buf b;
    buf_init(&b, 8 << 20);
    repeat(&b, open, n);
    buf_puts(&b, mid);
    repeat(&b, close, n);
    assert_false(b.failed);
    expect_too_large_src(buf_str(&b), NULL);
    buf_deinit(&b);
}

static void nesting(void **state)
{
    (void)state;
    nested_source("{% if true %}", "x", "{% endif %}", 10000);
    nested_source("{% for a in [1] %}", "x", "{% endfor %}", 10000);
    expect_too_large("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}");
    expect_too_large(
        "{% macro f() %}{% call f() %}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}");
    expect_too_large("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
    expect_too_large("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}");
    expect_too_large("{% set ns = namespace(a=[]) %}{% for i in range(5000) %}"
                     "{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a | tojson }}");
    struct buf b;
    static const char *const shapes[][3] = {
        {"(", "1", ")"},           {"[", "1", "]"},   {"-", "1", ""},    {"not ", "1", ""},
        {"", "1", "+1"},           {"", "x", ".a"},   {"", "x", "[0]"},  {"", "x", "|upper"},
        {"1 if 1 else ", "1", ""}, {"{1:", "1", "}"}, {"1 ** ", "1", ""}};
    for (size_t i = 0; i < T9_COUNT(shapes); i++) {
        buf_init(&b, 8 << 20);
        buf_puts(&b, "{{ ");
        repeat(&b, shapes[i][0], 20000);
        buf_puts(&b, shapes[i][1]);
        repeat(&b, shapes[i][2], 20000);
        buf_puts(&b, " }}");
        expect_too_large_src(buf_str(&b), NULL);
        buf_deinit(&b);
    }
}

/* At the deepest allowed nesting the default limits must hold on an ordinary stack. */
static void deep_but_allowed(void **state)
{
    (void)state;
    expect_text(
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ f(60) }}",
        NULL, "end");
    expect_error("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100000) }}",
                 NULL, T9_STATUS_TOO_LARGE, "levels");
}

static void sizes(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 8 << 20);
    repeat(&b, "0123456789abcdef", (JINJA_SOURCE_BYTES_MAX >> 4) + 1);
    expect_too_large_src(buf_str(&b), NULL);
    buf_clear(&b);
    repeat(&b, "{{1}}", JINJA_SOURCE_BYTES_MAX / 5);
    expect_too_large_src(buf_str(&b), NULL);
    buf_deinit(&b);
}

/* Linear, not quadratic: half a megabyte put together character by character. */
static void append_is_linear(void **state)
{
    (void)state;
    struct jinja_output out;
    struct t9_err err = {0};
    const char *source =
        "{% set ns = namespace(a='') %}{% for i in range(9) %}{% for j in range(60000) %}"
        "{% set ns.a = ns.a + 'x' %}{% endfor %}{% endfor %}{{ ns.a | length }}";
    if (render_full(str_from(source), NULL, NULL, NULL, &out, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    assert_true(str_eqz(buf_str(&out.text), "540000"));
    jinja_output_deinit(&out);
}

static void out_of_memory(void **state)
{
    (void)state;
    const char *source =
        "{% macro m(a) %}<{{ a }}>{% endmacro %}{% for x in l %}{{ m(x) }}{% endfor %}";
    bool done = false;
    for (uint64_t n = 1; !done && n < 500; n++) {
        struct jinja_output out = {0};
        struct jinja_template *t = NULL;
        struct t9_err err = {0};
        yyjson_doc *doc;
        assert_int_equal(json_parse(&doc, STR("{\"l\":[\"a\",\"b\"]}"), JSON_LIMITS_REQUEST, &err),
                         0);
        mem_test_fail_nth(n);
        t9_status s = jinja_parse(&t, str_from(source), &err);
        if (s == T9_STATUS_OK)
            s = jinja_render(t, yyjson_doc_get_root(doc), NULL, NULL, &out, &err);
        mem_test_fail_nth(0);
        done = s == T9_STATUS_OK;
        jinja_output_deinit(&out);
        jinja_free(t);
        yyjson_doc_free(doc);
    }
    assert_true(done);
}

struct job {
    const struct jinja_template *t;
    yyjson_val *args;
    bool ok;
};

static void *work(void *p)
{
    struct job *job = p;
    job->ok = true;
    for (int i = 0; i < 200; i++) {
        struct jinja_output out;
        struct t9_err err;
        if (jinja_render(job->t, job->args, NULL, NULL, &out, &err) != T9_STATUS_OK ||
            !str_eqz(buf_str(&out.text), "<S>[1]6ab\xc3\xa9"))
            job->ok = false;
        jinja_output_deinit(&out);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct jinja_template *t;
    yyjson_doc *doc;
    struct t9_err err;
    pthread_t threads[4];
    struct job jobs[4];
    assert_int_equal(
        jinja_parse(&t,
                    STR("{% macro m(a) %}<{{ a | upper }}>{% endmacro %}{{ m(s) }}{{ [1] }}"
                        "{{ l | sum }}{{ 'a' + 'b' + '\xc3\xa9' }}"),
                    &err),
        T9_STATUS_OK);
    assert_int_equal(
        json_parse(&doc, STR("{\"s\":\"s\",\"l\":[1,2,3]}"), JSON_LIMITS_REQUEST, &err), 0);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){t, yyjson_doc_get_root(doc), false};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(jobs[i].ok);
    }
    yyjson_doc_free(doc);
    jinja_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps),         cmocka_unit_test(memory),
        cmocka_unit_test(output),        cmocka_unit_test(nesting),
        cmocka_unit_test(sizes),         cmocka_unit_test(deep_but_allowed),
        cmocka_unit_test(out_of_memory), cmocka_unit_test(append_is_linear),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
