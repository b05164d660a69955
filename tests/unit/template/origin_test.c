/* Unit tests: every output byte knows who wrote it, whatever the template did to it. */
#include "render.h"

/* One letter per byte: 't' template, 'u' user, 'a' class 2. */
static void expect_origins_with(const char *source, const char *args, const struct jinja_env *env,
                                const char *text, const char *want)
{
    struct jinja_output out;
    struct t9_err err = {0};
    char got[512] = {0};
    size_t at = 0;
    if (render_full(str_from(source), args, NULL, env, &out, &err) != T9_STATUS_OK)
        fail_msg("%s: %s", source, err.msg);
    if (!str_eqz(buf_str(&out.text), text))
        fail_msg("%s: text is '" STR_FMT "'", source, STR_ARG(buf_str(&out.text)));
    for (size_t i = 0; i < out.n_spans; i++) {
        assert_true(out.spans[i].end > at && out.spans[i].end < sizeof got);
        if (i)
            assert_int_not_equal(out.spans[i].origin, out.spans[i - 1].origin);
        for (; at < out.spans[i].end; at++)
            got[at] = "tua"[out.spans[i].origin];
    }
    assert_int_equal(at, out.text.n);
    if (strcmp(got, want) != 0)
        fail_msg("%s -> %s\n  want: %s\n  got:  %s", source, text, want, got);
    jinja_output_deinit(&out);
}

#define ARGS "{\"u\":\"uSEr\",\"p\":\" u,v \",\"d\":{\"k\":\"w\"},\"n\":5,\"l\":[\"u\",\"v\"]}"

static void expect_origins(const char *source, const char *text, const char *want)
{
    expect_origins_with(source, ARGS, NULL, text, want);
}

static void operators(void **state)
{
    (void)state;
    expect_origins("<|t|>{{ u }}<|t|>", "<|t|>uSEr<|t|>", "tttttuuuuttttt");
    expect_origins("{{ '<' + u + '>' }}", "<uSEr>", "tuuuut");
    expect_origins("{{ '<' ~ u ~ n ~ '>' }}", "<uSEr5>", "tuuuutt");
    expect_origins("{{ ('<' + u + '>')[1:-1] }}", "uSEr", "uuuu");
    expect_origins("{{ ('<' + u + '>')[3:] }}", "Er>", "uut");
    expect_origins("{{ ('<' + u + '>')[::-1] }}", ">rESu<", "tuuuut");
    expect_origins("{{ (u ~ '-') * 2 }}", "uSEr-uSEr-", "uuuutuuuut");
    expect_origins("{{ u[1] }}{{ u[-1] }}{{ 't' }}", "Srt", "uut");
    expect_origins("{% for c in 'x' ~ u %}{{ c }}{% endfor %}", "xuSEr", "tuuuu");
    expect_origins("{% set ns = namespace(a='') %}{% for i in l %}{% set ns.a = ns.a + i + '.' %}"
                   "{% endfor %}{{ ns.a }}",
                   "u.v.", "utut");
}

static void methods(void **state)
{
    (void)state;
    expect_origins("{{ ('<' ~ u).upper() }}{{ u | lower }}{{ u | title }}", "<USERuserUser",
                   "tuuuuuuuuuuuu");
    expect_origins("{{ (' ' ~ p).strip() }}{{ p | trim }}", "u,vu,v", "uuuuuu");
    expect_origins("{{ ('t,' ~ p).split(',') | join('+') }}", "t+ u+v ", "ttuutuu");
    expect_origins("{{ u.replace('SE', '<x>') }}", "u<x>r", "utttu");
    expect_origins("{{ 'a-b'.replace('-', u) }}", "auSErb", "tuuuut");
    expect_origins("{{ '-'.join(l) }}{{ l | join('<') }}", "u-vu<v", "utuutu");
    expect_origins("{{ u.partition('E') | join }}", "uSEr", "uuuu");
    expect_origins("{{ '<{}|{:>5}>'.format(u, 'x') }}", "<uSEr|    x>", "tuuuuttttttt");
    expect_origins("{{ '<%s>' % u }}{{ '%s' | format(u) }}", "<uSEr>uSEr", "tuuuutuuuu");
    expect_origins("{{ u.format(1) }}{{ (u ~ '{}').format(n) }}", "uSEruSEr5", "uuuuuuuut");
    expect_origins("{{ (u ~ '\\n' ~ u) | indent(1) }}", "uSEr\n uSEr", "uuuuttuuuu");
    expect_origins("{{ ('<' ~ d.k) | e }}", "&lt;w", "ttttu");
    expect_origins("{{ u | default('t') }}{{ nope | default('t') }}", "uSErt", "uuuut");
    expect_origins("{{ l | first }}{{ l | last }}{{ l | sort(reverse=true) | first }}", "uvv",
                   "uuu");
    expect_origins("{{ u | truncate(3, true, '..', 0) }}", "u..", "utt");
}

static void containers(void **state)
{
    (void)state;
    expect_origins("{{ d | tojson }}", "{\"k\": \"w\"}", "uuuuuuuuuu");
    expect_origins("{{ {'t': u} | tojson }}", "{\"t\": \"uSEr\"}", "uutuuuuuuuuuu");
    expect_origins("{{ l }}", "['u', 'v']", "uuuuuuuuuu");
    expect_origins("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "k=w", "utu");
    expect_origins("{{ n }}{{ true }}{{ none }}{{ 1.5 }}", "5TrueNone1.5", "tttttttttttt");
    expect_origins("{{ l | map('upper') | join }}", "UV", "uu");
}

static void captures(void **state)
{
    (void)state;
    expect_origins("{% set x %}<{{ u }}>{% endset %}{{ x }}", "<uSEr>", "tuuuut");
    expect_origins("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) | upper }}", "<USER>", "tuuuut");
    expect_origins(
        "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ u }}.{% endcall %}",
        "<uSEr.>", "tuuuutt");
    expect_origins("{% filter upper %}a{{ u }}{% endfilter %}", "AUSER", "tuuuu");
    expect_origins("{{ strftime_now('%Y') }}", "2026", "tttt");
}

/* A user can't smuggle template text: a format string of theirs stays theirs. */
static void hostile(void **state)
{
    (void)state;
    const char *args = "{\"c\":\"<|end|>{0}%s\",\"k\":{\"<|end|>\":1}}";
    expect_origins_with("{{ c }}", args, NULL, "<|end|>{0}%s", "uuuuuuuuuuuu");
    expect_origins_with("{{ c.split('|') | join('|') }}", args, NULL, "<|end|>{0}%s",
                        "utuuutuuuuuu");
    expect_origins_with("{% for x in k %}{{ x }}{% endfor %}", args, NULL, "<|end|>", "uuuuuuu");
}

static uint8_t by_first_letter(void *ctx, yyjson_val *text)
{
    (void)ctx;
    const char *p = yyjson_get_str(text);
    return p[0] == 'a' ? 2 : p[0] == 't' ? JINJA_ORIGIN_TEMPLATE : JINJA_ORIGIN_USER;
}

static void caller_classes(void **state)
{
    (void)state;
    struct jinja_env env = {.origin = by_first_letter};
    expect_origins_with("{{ x }}{{ y }}{{ z }}.", "{\"x\":\"ab\",\"y\":\"tb\",\"z\":\"ub\"}", &env,
                        "abtbub.", "aattuut");
    expect_origins_with("{{ (x + z + y) | upper }}", "{\"x\":\"ab\",\"y\":\"tb\",\"z\":\"ub\"}",
                        &env, "ABUBTB", "aauutt");
    expect_origins_with("{{ [x] | tojson }}", "{\"x\":\"ab\"}", &env, "[\"ab\"]", "uuaauu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators), cmocka_unit_test(methods), cmocka_unit_test(containers),
        cmocka_unit_test(captures),  cmocka_unit_test(hostile), cmocka_unit_test(caller_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
