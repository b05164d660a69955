/* Unit tests: what each part of the language prints. The expectations are Python jinja2's. */
#include "render.h"

#define ARGS                                                                                       \
    "{\"s\":\"Hello, W\\u00f6rld\",\"n\":7,\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":[1,2]},"             \
    "\"rows\":[{\"n\":\"x\",\"v\":3},{\"n\":\"y\",\"v\":1}],\"nil\":null,\"f\":2.5}"

struct pair {
    const char *source, *want;
};

static void check(const struct pair *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect_text(p[i].source, ARGS, p[i].want);
}

static void white_space(void **state)
{
    (void)state;
    static const struct pair p[] = {
        {"  {% if true %}\n    x\n  {% endif %}\n  y\n", "    x\n  y"},
        {"a {%- if true -%} \n b {%- endif %} c", "ab c"},
        {"a{# c #}\nb", "ab"},
        {"x  {# c #}\nb", "x  b"},
        {"  {%+ if true %}x{% endif %}", "  x"},
        {"{% if true +%}\nx{% endif %}", "\nx"},
        {"{% raw %}{{ a }}{% endraw %}", "{{ a }}"},
        {"a\r\nb\rc\n", "a\nb\nc"},
        {"\n\n{{ 1 }}\n\n", "\n\n1\n"},
        {"{{ {'a': {'b': 1}}.a.b }}}}", "1}}"},
        {"a{{- 1 -}} b", "a1b"},
    };
    check(p, T9_COUNT(p));
}

static void numbers(void **state)
{
    (void)state;
    static const struct pair p[] = {
        {"{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 5e-324 }}",
         "0.30000000000000004 1e+16 1000000000000000.0 1e-05 5e-324"},
        {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
         "-4 2 -2 3.0 0.5"},
        {"{{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}", "3.5 2.0 1024 0.5"},
        {"{{ true + true }} {{ 1 == 1.0 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }}", "2 True True False"},
        {"{{ 9223372036854775807 }} {{ 0x1f }} {{ 1_000 }}", "9223372036854775807 31 1000"},
        {"{{ '12' | int }} {{ ' 1.9 ' | int }} {{ 'x' | int(3) }} {{ '1e3' | float }}",
         "12 1 3 1000.0"},
        {"{{ 2.675 | round(2) }} {{ 0.5 | round }} {{ 1.5 | round }} {{ 7 | round }}",
         "2.67 0.0 2.0 7"},
    };
    check(p, T9_COUNT(p));
    expect_error("{{ 9223372036854775807 + 1 }}", NULL, T9_STATUS_UNSUPPORTED, "64 bits");
    expect_error("\n{{ 1 // 0 }}", NULL, T9_STATUS_INVALID, "line 2");
}

static void strings(void **state)
{
    (void)state;
    static const struct pair p[] = {
        {"{{ s[7] }}{{ s[-1] }}{{ s[7:9] }}{{ s[::-1] }}|{{ s | length }}",
         "WdW\xc3\xb6"
         "dlr\xc3\xb6W ,olleH|12"},
        {"{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}",
         "['a', 'b', '', 'c']['a', 'b']['a', 'b c']"},
        {"{{ 'xxabxx'.strip('x') }}{{ '\xc2\xa0 a '.strip() }}{{ 'ab'.lstrip('a') }}", "abab"},
        {"{{ 'stra\xc3\x9f"
         "e'.upper() }} {{ '\xce\xa3\xce\x91\xce\xa3'.lower() }}",
         "STRASSE \xcf\x83\xce\xb1\xcf\x82"},
        {"{{ \"it's\" | title }} {{ \"it's\".title() }}", "It's It'S"},
        {"{{ ['a', \"it's\", 'q\"', '\\n\\x7f\\u200b'] }}",
         "['a', \"it's\", 'q\"', '\\n\\x7f\\u200b']"},
        {"{{ '%s-%03d' % ('a', 7) }} {{ '{:>4}|{0}'.replace('0', '') }}", "a-007 {:>4}|{}"},
        {"{{ '{:>4}|{:.2f}|{!r}'.format('a', 1.005, 'q') }}", "   a|1.00|'q'"},
        {"{{ 'a' ~ 1 ~ none ~ 2.0 }}{{ 'ab' * 2 }}", "a1None2.0abab"},
        {"{{ 'a\\n\\nb' | indent(2) }}", "a\n\n  b"},
        {"{{ ('<b>' | safe) + '<' }}{{ '<' | e }}", "<b>&lt;&lt;"},
    };
    check(p, T9_COUNT(p));
}

static void containers(void **state)
{
    (void)state;
    static const struct pair p[] = {
        {"{{ l | sort }}{{ l[1:] }}{{ l + [4] }}{{ 3 in l }}{{ (1,) }}",
         "[1, 2, 3][1, 2][3, 1, 2, 4]True(1,)"},
        {"{{ d.b }}{{ d['a'] }}{{ d.get('z') }}{{ d.get('z', 4) }}{{ d.items() | list }}",
         "1[1, 2]None4[('b', 1), ('a', [1, 2])]"},
        {"{{ d | dictsort }}{{ d.keys() }}{{ d | length }}",
         "[('a', [1, 2]), ('b', 1)]dict_keys(['b', 'a'])2"},
        {"{{ rows | map(attribute='n') | join('-') }}{{ rows | selectattr('v', 'gt', 1) | list }}",
         "x-y[{'n': 'x', 'v': 3}]"},
        {"{{ {1: 'a', 1.0: 'b'} }}{{ {'a': 1, 'a': 2} }}{{ {(1, 2): 3}[(1, 2)] }}",
         "{1: 'b'}{'a': 2}3"},
        {"{{ range(5) }}{{ range(1, 9, 3) | list }}{{ range(9)[2:4] }}",
         "range(0, 5)[1, 4, 7]range(2, 4)"},
        {"{% set g = l | map('string') %}{{ g | list }}{{ g | list }}", "['3', '1', '2'][]"},
        {"{{ rows | groupby('v') | map('first') | list }}{{ l | sum }}{{ l | min }}", "[1, 3]61"},
    };
    check(p, T9_COUNT(p));
    expect_error("{{ l.append(1) }}", ARGS, T9_STATUS_INVALID, "unsafe");
    expect_error("{{ l | map('string') | tojson }}", ARGS, T9_STATUS_INVALID, "JSON");
}

static void json(void **state)
{
    (void)state;
    static const struct pair p[] = {
        {"{{ d | tojson }}", "{\"b\": 1, \"a\": [1, 2]}"},
        {"{{ d | tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2\n  ]\n}"},
        {"{{ [1.0, none, true, '<\xc3\xa9\"\\n', {}] | tojson }}",
         "[1.0, null, true, \"<\xc3\xa9\\\"\\n\", {}]"},
        {"{{ '\xf0\x9f\x98\x80' | tojson(ensure_ascii=true) }}", "\"\\ud83d\\ude00\""},
        {"{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
         "{\"a\":2,\"b\":1}"},
    };
    check(p, T9_COUNT(p));
    expect_text("{{ x | tojson }}", "{\"x\":[18446744073709551615,1E300]}",
                "[18446744073709551615, 1e+300]");
}

static void statements(void **state)
{
    (void)state;
    static const struct pair p[] = {
        {"{% for x in l %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ x }};{% endfor %}",
         "1TrueFalse3;2FalseFalse1;3FalseTrue2;"},
        {"{% for x in l if x > 1 %}{{ loop.length }}{{ x }}{% else %}-{% endfor %}", "2322"},
        {"{% for x in [] %}{% else %}empty{% endfor %}", "empty"},
        {"{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", "b1a[1, 2]"},
        {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{% endfor %}",
         "<3>13<1>21<2>"},
        {"{% for x in [1,2,3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"},
        {"{% for x in [1,2,3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"},
        {"{% for x in [1,[2]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "12"},
        {"{% set x = 1 %}{% for i in l %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
        {"{% set q = namespace(x=1) %}{% for i in l %}{% set q.x = q.x + i %}{% endfor %}{{ q.x }}",
         "7"},
        {"{% set x | upper %}a{{ n }}{% endset %}{{ x }}", "A7"},
        {"{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}",
         "121125"},
        {"{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(4) %}{{ y }}{% endcall %}",
         "<4>"},
        {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         "3210"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, k=2) }}", "(1,){'k': 2}"},
        {"{% filter upper %}a{{ n }}{% endfilter %}", "A7"},
        {"{% with a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "1False"},
        {"{% generation %}a{{ n }}{% endgeneration %}", "a7"},
        {"{% if nil %}a{% elif n %}b{% else %}c{% endif %}", "b"},
        {"{{ 'x' if nil }}{{ 'y' if n else 'z' }}", "y"},
        {"{{ strftime_now('%Y-%m-%d %H:%M:%S %b %A %j') }}", "2026-11-29 09:05:07 Nov Sunday 333"},
        {"{{ dict(a=1) }}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}",
         "{'a': 1}121"},
    };
    check(p, T9_COUNT(p));
}

static void undefined(void **state)
{
    (void)state;
    static const struct pair p[] = {
        {"[{{ nope }}][{{ d.nope }}][{{ nope | default('x') }}][{{ nope is defined }}]",
         "[][][x][False]"},
        {"{{ nope == nope2 }}{{ nope | length }}{{ 1 in nope }}{{ not nope }}", "True0FalseTrue"},
    };
    check(p, T9_COUNT(p));
    expect_error("{{ nope.x }}", NULL, T9_STATUS_INVALID, "'nope' is undefined");
    expect_error("{{ nope + 1 }}", NULL, T9_STATUS_INVALID, "'nope' is undefined");
    expect_error("{{ nope() }}", NULL, T9_STATUS_INVALID, "'nope' is undefined");
    expect_error("{{ nope | tojson }}", NULL, T9_STATUS_INVALID, "JSON");
    expect_error("{{ d.nope.x }}", ARGS, T9_STATUS_INVALID, "no attribute 'nope'");
    expect_error("{{ 'a' + 1 }}", NULL, T9_STATUS_INVALID, "'+'");
}

static void refusals(void **state)
{
    (void)state;
    expect_error("{{ raise_exception('no ' ~ 1) }}", NULL, T9_STATUS_INVALID,
                 "template refused the conversation: no 1");
    expect_error("a\nb\n{% if x %}", NULL, T9_STATUS_INVALID, "line 3");
    expect_error("{{ x | nofilter }}", NULL, T9_STATUS_UNSUPPORTED, "'nofilter'");
    expect_text("{% if false %}{{ x | nofilter }}{% endif %}ok", NULL, "ok");
    expect_error("{% include 'x' %}", NULL, T9_STATUS_UNSUPPORTED, "'include'");
    expect_error("{% frob %}", NULL, T9_STATUS_INVALID, "'frob'");
    expect_error("{% break %}", NULL, T9_STATUS_INVALID, "outside a loop");
    expect_error("{{ 'abc }}", NULL, T9_STATUS_INVALID, "not closed");
    expect_error("{{ (1 }}", NULL, T9_STATUS_INVALID, "line 1");
    expect_error("\xff", NULL, T9_STATUS_INVALID, "UTF-8");
}

static void mentions(void **state)
{
    (void)state;
    struct jinja_template *t;
    struct t9_err err;
    assert_int_equal(jinja_parse(&t,
                                 STR("{% if tools %}{{ m.thinking }}{{ m['reasoning'] }}{% endif %}"
                                     "{{ m.get('key', x) }} text"),
                                 &err),
                     T9_STATUS_OK);
    assert_true(jinja_mentions(t, "tools"));
    assert_true(jinja_mentions(t, "thinking"));
    assert_true(jinja_mentions(t, "reasoning"));
    assert_true(jinja_mentions(t, "key"));
    assert_false(jinja_mentions(t, "text"));
    jinja_free(t);
    jinja_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(white_space), cmocka_unit_test(numbers),  cmocka_unit_test(strings),
        cmocka_unit_test(containers),  cmocka_unit_test(json),     cmocka_unit_test(statements),
        cmocka_unit_test(undefined),   cmocka_unit_test(refusals), cmocka_unit_test(mentions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
