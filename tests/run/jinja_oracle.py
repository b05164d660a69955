"""Differential test of the chat template interpreter against Python's jinja2.

usage: jinja_oracle.py JINJA_CLI [--random N] [--seed S] [--templates DIR] [--verbose]

Renders the same snippets with both and compares: the same bytes, or an error on both sides. The jinja2 side is set up
as the transformers library does it. Exits 0 when all agree, 1 when not, 77 when jinja2 is not installed.
"""
import argparse
import copy
import datetime
import glob
import json
import os
import random
import re
import subprocess
import sys
import warnings

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("skipped: jinja2 is not installed")
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """The transformers tag that marks what the assistant said: transparent in the text."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_through"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _through(self, context, caller):
        return caller()


def make_env():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 11, 29, 9, 5, 7).strftime(f)
    return env


ARGS = {
    "s": "Hello, Wörld\n it's \"ok\"", "e": "", "sp": " \t pad \u00a0", "n": 7, "z": 0, "neg": -3, "f": 2.5, "g": 1e22,
    "t": True, "no": False, "nil": None, "big": 9007199254740993, "u64": 18446744073709551615,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [], "mix": [1, "x", None, 2.5, [1], {"k": "v"}],
    "d": {"b": 1, "a": [1, 2], "items": "shadow", "Zed": None}, "de": {},
    "rows": [{"n": "x", "v": 3, "g": 1}, {"n": "y", "v": 1, "g": 2}, {"n": "Z", "v": 2, "g": 1}],
    "msgs": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi <b>"},
             {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0}}}]}],
    "uni": "straße İstanbul ΣΑΣ ﬁne 日本語 👍🏽", "js": "a\"b\\c\u0001\u007f\u2028/é",
}

VALUES = ["s", "e", "sp", "n", "z", "neg", "f", "g", "t", "no", "nil", "big", "l", "ls", "le", "mix", "d", "de", "rows",
          "uni", "missing", "'abc'", "1", "2.0", "-1", "0.1", "[1, 'a']", "(1, 2)", "(1,)", "()", "{'k': 1}", "{1: 2, 'a': none}",
          "true", "none", "range(5)", "range(0)", "range(1, 10, 3)", "d.items()", "d.keys()", "'%s-%s'", "u64", "js"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = ["abs", "capitalize", "center(20)", "default('D')", "default('D', true)", "d", "dictsort", "dictsort(false, 'value')",
           "dictsort(reverse=true)", "e", "escape", "first", "float", "float(1.5)", "indent", "indent(2, true)",
           "indent('> ', blank=true)", "int", "int(5)", "int(0, 16)", "items | list", "join", "join(', ')", "join('-', attribute='n')",
           "last", "length", "count", "list", "lower", "map('upper') | list", "map(attribute='n') | list",
           "map(attribute='q', default='?') | list", "max", "min", "reject('none') | list", "rejectattr('n') | list",
           "replace('a', 'XX')", "replace('', '-')", "replace('l', 'L', 1)", "reverse | list", "reverse", "round", "round(1)",
           "round(0, 'ceil')", "round(1, 'floor')", "round(-1)", "safe", "select | list", "select('string') | list", "select('gt', 1) | list",
           "selectattr('v', 'gt', 1) | list", "selectattr('n', 'equalto', 'x') | list", "sort", "sort(reverse=true)",
           "sort(attribute='v')", "sort(attribute='g,n')", "sort(case_sensitive=true)", "string", "sum", "sum(attribute='v')", "sum(start=10)",
           "title", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)",
           "tojson(separators=(',', ':'))", "tojson(indent='\t')", "trim", "trim('\"Ha')", "truncate(8)", "truncate(8, true, '…', 0)", "unique | list",
           "upper", "urlencode", "wordcount", "batch(2) | list", "batch(2, '-') | list", "slice(2) | list", "groupby('g') | list",
           "attr('n')", "format(1)", "forceescape", "map('default', 'x') | list", "pprint_not_there"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean",
         "true", "false", "odd", "even", "lower", "upper", "callable", "divisibleby 2", "divisibleby(3)", "eq 7", "equalto 'abc'", "in [1, 7]",
         "gt 1", "le 2.5", "sameas none", "escaped", "ne 1", "in 'abc'"]
METHODS = ["strip()", "lstrip()", "rstrip()", "strip('H\"')", "rstrip('k\"')", "split()", "split(',')", "split(' ', 1)", "split('l', 2)", "rsplit(' ', 1)",
           "rsplit(none, 1)", "splitlines()", "splitlines(true)", "partition(',')", "rpartition(' ')", "startswith('Hello')",
           "startswith(('x', 'He'))", "endswith('ok\"')", "startswith('e', 1)", "find('o')", "find('o', 5)", "rfind('o')", "find('zz')", "index('o')", "count('l')",
           "count('')", "replace('l', 'LL')", "replace('l', 'LL', 1)", "replace('', '.')", "removeprefix('He')", "removesuffix('\"')", "upper()", "lower()", "title()",
           "capitalize()", "swapcase()", "isalpha()", "isdigit()", "isspace()", "isupper()", "islower()", "isalnum()", "isascii()", "isnumeric()",
           "join(['a', 'b'])", "join('xyz')", "ljust(9, '.')", "rjust(9)", "center(9, '*')", "zfill(9)", "format(1, a=2)", "get('a')",
           "get('zz', 4)", "items() | list", "keys() | list", "values() | list", "items()", "keys()", "values()", "count(1)", "index(1)", "append(1)", "pop()", "update({})",
           "copy()", "foo", "foo.bar", "foo is defined", "append is defined", "items is defined", "a", "a[0]", "__class__ is defined"]
SUBSCRIPTS = ["[0]", "[-1]", "[99]", "['a']", "['items']", "[1:]", "[:-1]", "[::-1]", "[::2]", "[1:3]", "[-2:]", "[:]", "[5:1:-2]", "[none:2]",
              "[true]", "[1.0]", "['upper']()", "[0][0]", ".0", "[-100:100]", "[::0]", "[nil]", "[d]"]
FORMATS = ["'{} {}'.format(1, 'x')", "'{1}{0}'.format('a', 'b')", "'{a}'.format(a=s)", "'{0[k]} {1.x}'.format({'k': 5}, 'y')", "'{:>8}|{:<8}|{:^9}'.format('ab', 'cd', 'ef')",
           "'{:*^9}'.format('x')", "'{:05d} {:+d} {:x} {:#X} {:b} {:,}'.format(42, 7, 255, 255, 5, 1234567)", "'{:.2f} {:e} {:g} {:%}'.format(3.14159, 12345.678, 0.0001, 0.25)",
           "'{:10.3f}|{:<10.1e}|'.format(2.5, 1e10)", "'{!r} {!s}'.format('q', 'q')", "'{{}} {}'.format(1)", "'{}'.format()", "'{'.format(1)", "'{:d}'.format('x')",
           "'{:.3}'.format('abcdef')", "'{} {1}'.format(1, 2)", "'%s %r %d' % ('a', 'b', 3)", "'%5.1f|%-6s|%06d|%x|%%' % (2.25, 'ab', -42, 255)", "'%s' % 5", "'%s' % [1, 2]",
           "'%(a)s-%(b)03d' % {'a': 1, 'b': 2}", "'%s %s' % (1,)", "'%s' % (1, 2)", "'%d' % 'x'", "'%d' % 3.99", "'%c' % 'x'", "'%q' % 1", "'%+d % d' % (1, 2)", "'%.2s' % 'abc'",
           "'%*d' % (5, 42)", "'%e %G' % (1.5, 1e-10)", "'%s'|format('x')", "'%(k)s'|format(k=1)", "'{:,.2f}'.format(1234567.891)", "'{:_x}'.format(1048575)", "'{:08.3f}'.format(-3.14159)",
           "'{:>5}'.format(true)", "'{}'.format(none)", "'{:5}'.format(none)", "'{:<6d}|'.format(12)", "'{:=+6d}'.format(12)", "'{0.real}'.format('x')"]
NUMBERS = ["0.1 + 0.2", "1e16", "1e15", "123456789012345678.0", "1e-5", "0.0001", "1/3", "-0.0", "5e-324", "1.7976931348623157e308", "100.0", "1e100", "2**62", "2**63", "2**-1", "0**0",
           "7 // 2", "-7 // 2", "7 // -2", "-7 % 3", "7 % -3", "7.5 // 2", "-7.5 % 2", "7.5 % -2", "1 / 0", "1 // 0", "1 % 0", "1.0 // 0", "9223372036854775807", "9223372036854775807 + 1",
           "9223372036854775808", "0x1F", "0b101", "0o17", "1_000", "1e3", "012", "1.5e-3", "true + true", "true * 3", "-true", "+1", "- -1", "3 - -2", "2 ** 3 ** 2", "-2 ** 2", "1 < 2 < 3", "1 < 3 < 2",
           "1 == 1.0", "1 == true", "'1' == 1", "none == false", "[1] == [1.0]", "(1,) == [1]", "{'a': 1} == {'a': 1.0}", "1.5 | int", "'12' | int", "' 12 ' | int", "'1.9' | int", "'x' | int(3)", "'0x1f' | int(0, 16)",
           "'1_0' | int", "'1e3' | float", "'inf' | float", "'nan' | float", "'.5' | float", "'5.' | float", "'1e' | float(7)", "2.675 | round(2)", "0.5 | round", "1.5 | round", "2.5 | round", "25 | round(-1)", "35 | round(-1)",
           "1234.5 | round(-2)", "7 | round(2)", "not 1 == 2", "not true and false", "1 if false", "1 if true else 2", "'a' 'b'", "1 ~ 2 ~ none", "-1 | abs", "-5.5 | abs", "true | abs", "9007199254740993 == 9007199254740993.0",
           "9223372036854775807 // -1", "-9223372036854775807 - 1", "10 ** 18", "10 ** 19", "1e308 * 10", "5 // 0.3", "5 % 0.3", "-5 // 0.3", "0.0 == -0.0", "[1, 2] < [1, 3]", "'a' < 'B'", "(1, 'a') < (1, 'b')", "[1] < ['a']"]
SNIPPETS = r"""
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ x }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{% else %}none{% endfor %}
{% for x in le %}{{ x }}{% else %}empty{% endfor %}
{% for x in l if x > 9 %}a{% else %}filtered{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }},{% endfor %}
{% for c in 'aßc' %}[{{ c }}]{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in missing %}x{% else %}u{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1,2] %}{% for y in [3,4] %}{{ loop.index }}{{ x }}{{ y }} {% if y == 3 %}{% continue %}{% endif %}{% break %}{% endfor %}{% endfor %}
{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}{{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}
{% set d.x = 1 %}
{% set q.x = 1 %}
{% if x is defined %}a{% elif true %}b{% else %}c{% endif %}
{% if 1 %}{% set y = 5 %}{% endif %}{{ y }}
{% if 0 %}{% set y = 5 %}{% endif %}{{ y is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set x %}  body {{ n }} {% endset %}[{{ x }}]{{ x is string }}
{% set x | upper | trim %} abc {% endset %}[{{ x }}]
{% macro m(a, b=2, c='x' ~ a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=3) }}|{{ m(b=1, a=4) }}|{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k='v') }}
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body{{ n }}{% endcall %}
{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(x, y) m() %}{{ x }}{{ y }}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}
{% macro f() %}{{ x }}{% endmacro %}{% set x = 3 %}{{ f() }}
{% set x = 1 %}{% macro f() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}
{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}
{% macro f(l) %}{% for x in l %}{{ loop.index }}{{ x }}{% endfor %}{% endmacro %}{{ f([5, 6]) | upper }}{{ f.name }}
{{ m() }}
{{ none() }}
{{ n.foo }}
{{ n.foo.bar }}
{{ missing }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing() }}
{{ missing + 1 }}
{{ missing ~ 'x' }}
{{ missing | default('d') }}{{ d.nope | default('e') }}{{ missing.x | default('d') }}
{{ missing == missing2 }}{{ missing == none }}{{ missing is none }}{{ not missing }}
{{ missing | length }}{{ missing | list }}{{ missing | join }}{{ missing | upper }}
{{ missing | tojson }}
{{ [missing] }}
{{ 'a' in missing }}{{ missing in [1] }}
{{ d.items }}
{{ d['items'] }}
{% filter upper %}abc{{ n }}{% endfilter %}
{% filter replace('a', 'b') | upper %}banana{% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
{% with %}{% set q = 1 %}{% endwith %}{{ q is defined }}
{% generation %}{% set gg = 1 %}x{{ n }}{% endgeneration %}{{ gg is defined }}
{% raw %}{{ not }}{% endraw %}
  {%- raw -%}  {{ a }}  {%- endraw -%}  x
{# comment #}a{#- c -#}  b
a {#- c #} b
a{{- 1 -}} b
   {{- 1 }}  {%- if true %} x {%- endif %}  
{{ '{{' }}{{ "}}" }}{{ '%}' }}
{{ {'a': {'b': 1}}.a.b }}{{ {'a': {'b': 2}}['a']['b'] }}
{{ [1, 2, 3,] }}{{ (1, 2,) }}{{ {'a': 1,} }}
{{ dict(a=1, b='x') }}{{ dict([('k', 1)]) }}{{ dict({'a': 1}, b=2) }}
{{ range(3) }}{{ range(3) | list }}{{ range(10)[2:5] }}{{ range(10)[-1] }}{{ 3 in range(5) }}{{ range(5) | length }}
{{ range(100001) }}
{{ range(1, 2, 0) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}
{% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}
{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for x in [1] %}{{ loop(x) }}{% endfor %}
{{ raise_exception('no') }}
{{ raise_exception('a' ~ n) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %a %A %j %p %I %y %%') }}{{ strftime_now('x%Zy%zé') }}
{{ 'a\n\t\\\'\"\x41\u00e9\101z\q' }}
{{ "multi
line" }}
{{ 'é' | upper }}{{ 'ß' | upper }}{{ 'ﬁ' | title }}{{ uni | lower }}{{ uni | upper }}{{ uni | title }}{{ uni | capitalize }}{{ uni.title() }}{{ uni.swapcase() }}
{{ uni | length }}{{ uni[2:5] }}{{ uni[::-1] }}{{ uni[-1] }}{{ uni.find('日') }}{{ uni | list }}
{{ [s, uni, js, sp, '\x7f', '\u200b', '\U0001f600', "it's", 'q"', "both'\""] }}
{{ js | tojson }}{{ js | tojson(ensure_ascii=true) }}{{ uni | tojson(ensure_ascii=true) }}{{ {1: 2, none: 3, true: 4, 2.5: 5} | tojson }}
{{ mix | tojson }}{{ mix }}{{ d | tojson(indent=4) }}{{ [] | tojson(indent=2) }}{{ [[], {}] | tojson(indent=2) }}{{ (1, (2,)) | tojson }}{{ 1e22 | tojson }}{{ f | tojson }}{{ u64 | tojson }}{{ u64 }}
{{ l | map('string') | tojson }}
{{ range(3) | tojson }}
{{ d.keys() | tojson }}
{{ ('<b>' | safe) + '<i>' }}{{ '<i>' + ('<b>' | safe) }}{{ ('<b>' | safe) ~ '<i>' }}{{ '<b>' | e }}{{ '<b>' | safe | e }}{{ ('<' | e) + '>' }}{{ 'x' | safe is escaped }}{{ '<b>' | safe | upper }}{{ ['<b>' | safe] }}
{{ rows | selectattr('g', 'eq', 1) | map(attribute='n') | join(',') }}{{ rows | map(attribute='n') | sort | join }}{{ rows | groupby('g') | map('last') | map('length') | list }}{% for k, v in rows | groupby('g') %}{{ k }}{{ v | length }}{% endfor %}{% for x in rows | groupby('g') %}{{ x.grouper }}{{ x.list | length }}{% endfor %}
{% set g = l | map('string') %}{{ g | list }}{{ g | list }}
{% if l | select('gt', 99) %}truthy{% endif %}
{{ msgs[0].role }}{{ msgs[2].content is none }}{{ msgs[2].tool_calls[0].function.arguments | tojson }}{{ msgs | length }}{{ msgs[-1].role }}{{ msgs[5] is defined }}{{ msgs[5].role }}
{{ msgs | map(attribute='role') | list }}{{ (msgs | selectattr('role', 'equalto', 'user') | list)[0].content }}{{ msgs | rejectattr('role', 'in', ['user']) | list | length }}
{{ 'x' if missing else 'y' }}{{ 'x' if missing }}{{ ('x' if missing) is defined }}
{{ 1 if 2 if 3 else 4 else 5 }}
{{ (1, 2) + (3,) }}{{ [1] + [2] }}{{ [0] * 3 }}{{ 'ab' * 2 }}{{ 2 * 'ab' }}{{ [1] + (2,) }}
{{ l.append(4) }}
{% set _ = d.update({'x': 1}) %}
{{ n is not defined }}{{ n is not none and n is number }}{{ not n is odd }}
{{ n is foo }}
{{ n | foo }}
{% if false %}{{ n | foo }}{{ n is foo }}{% endif %}ok
{{ 1 + }}
{{ (1 }}
{% if %}{% endif %}
{% endif %}
{% for %}{% endfor %}
{% if 1 %}
{{ 'abc
{% foo %}
{{ a b }}
{% set 1 = 2 %}
{% set true = 2 %}
{% break %}
{{ [1, 2 }}
{{ {'a' 1} }}
{% macro %}{% endmacro %}
{{ m(a=1, 2) }}
{% include 'x' %}
{{ s.split('\n') | first }}{{ s.splitlines() | last }}{{ '</think>' in s }}{{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }}
{{ ['a', 'b'] | join(', ') ~ '.' }}{{ [1, none, true] | join('|') }}{{ rows | join(',', attribute='v') }}
{%- set ns = namespace(a='') -%}{%- for x in ls -%}{%- set ns.a = ns.a + x -%}{%- endfor -%}{{ ns.a }}{{ ns.a | length }}
{{ ls | sort }}{{ ls | sort(case_sensitive=true) }}{{ ls | sort(reverse=true) }}{{ mix | sort }}
{{ ls | unique | list }}{{ ['a', 'A', 'b'] | unique | list }}{{ ['a', 'A'] | unique(true) | list }}{{ [[1], [1]] | unique | list }}
{{ [3, 1] | min }}{{ [3, 1] | max }}{{ [] | max }}{{ ls | max }}{{ rows | max(attribute='v') }}{{ 'hello' | first }}{{ '' | first }}{{ [] | last }}{{ 'abc' | last }}
{{ d | length }}{{ d | list }}{{ d | first }}{{ d | join }}{{ 'b' in d }}{{ 1 in d.values() }}{{ ('b', 1) in d.items() }}
{{ {} == de }}{{ [[]] == [[]] }}{{ {(1, 2): 3}[(1, 2)] }}{{ {[1]: 2} }}
{{ {1: 'a', 1.0: 'b', true: 'c'} }}{{ {'a': 1, 'a': 2} }}
{{ loop }}
{{ namespace().x }}{{ namespace() is mapping }}{{ namespace() is defined }}
{{ l[0] + l[-1] }}{{ l[:2] }}{{ l[::-1] }}{{ l['0'] is defined }}{{ l.0 }}{{ rows[0].n }}{{ rows.0.n }}
{{ 'a' is in ['a'] }}{{ 3 is divisibleby 3 }}{{ 3 is divisibleby(2) }}{{ 'x' is eq('x') }}{{ none is none }}{{ 1.0 is integer }}{{ true is integer }}{{ true is number }}
{% set x = {'a': 1} %}{% set y = dict(x, b=2) %}{{ y }}{{ dict(x, **y) }}
{{ dict(**d) }}{{ [1,2] | batch(*[1]) | list }}
{% print 1, 'a' %}{% autoescape false %}{{ '<' }}{% endautoescape %}
{{ s | truncate(5) }}{{ 'foo bar baz qux' | truncate(9) }}{{ 'foo bar baz qux' | truncate(9, true) }}{{ 'foo bar baz qux' | truncate(11) }}
{{ 'hello world-foo (bar) [baz]' | title }}{{ "they're bill's" | title }}{{ "they're bill's".title() }}{{ 'aBC' | capitalize }}
{{ 'a\nb\n\nc' | indent }}{{ 'a\nb' | indent(2, first=true) }}{{ 'a\n\nb' | indent(2, blank=true) }}{{ 'a\n' | indent(2) }}
{{ n | string | length }}{{ n ~ '' }}{{ 5 | string + 'x' }}{{ l | string }}{{ none | string }}
{{ -1 ** 2 }}{{ (-1) ** 2 }}{{ 2 ** -1 }}{{ not 0 }}{{ not [] }}{{ 'a' and 'b' }}{{ '' or 'c' }}{{ 0 and 1 / 0 }}{{ 1 or 1 / 0 }}
{%+ if true %}x{% endif %}
{% if true +%}
x{% endif %}
{% set x = 'a' if n > 5 else 'b' %}{{ x }}{% set y = n > 5 and 'q' %}{{ y }}
"""
LAYOUT = ["  {% if true %}\n    x\n  {% endif %}\n  y\n", "a\n{% if true %}\nb\n{% endif %}\nc\n\n", "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\n", "\n\n{{ 1 }}\n\n", "a\r\nb\rc\n", "x\n",
          "  {# c #}\n  x", "\t{% set a = 1 %}\t{{ a }}", "a {% if true -%}  \n b {%- endif %} c", "{{ 1 -}}\n  {% if true %} x{% endif %}", "{{ 1 -}} \n  {%- if true %} x{% endif %}",
          " {% raw %} a \n {% endraw %} \n b", "{%- if true -%}\n\n a \n\n{%- endif -%}\n", "text  {%+ if true %} a{% endif %}", "   {%+ if true %} a{% endif %}", "{% if true %}   {% endif %}|", "a{% if true %}\n\n{% endif %}b",
          "{#- x -#}\n\n a", "{# a #}\n{# b #}\nc", "{{ 'a' }}\n{% set x %}\n  y\n{% endset %}\n{{ x }}", "\u00a0 {% if true %}x{% endif %}", "{% if true %}{{ 1 }}\n{% endif %}\n{{ 2 }}\n", "a\n  {%- if 1 %}b{% endif -%}\n  c", "{#+ a +#}\n b", "  {#+ a #} b",
          "{{+ 1 }}", "{{-1}}", "{{ 1-}} x", "{% raw -%} x {%- endraw %} y", "  {%+ raw %} x {% endraw +%}\n y"]


def systematic():
    for v in VALUES:
        yield "{{ %s }}" % v
        for f in FILTERS:
            yield "{{ %s | %s }}" % (v, f)
        for t in TESTS:
            yield "{{ %s is %s }}" % (v, t)
        for m in METHODS:
            yield "{{ (%s).%s }}" % (v, m)
        for u in SUBSCRIPTS:
            yield "{{ (%s)%s }}" % (v, u)
        for op in BINARY:
            for w in VALUES[::3]:
                yield "{{ %s %s %s }}" % (v, op, w)
    for e in FORMATS + NUMBERS:
        yield "{{ %s }}" % e
    yield from (s for s in SNIPPETS.strip("\n").split("\n") if s)
    yield from LAYOUT


def expression(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(VALUES)
    kind = rng.randrange(7)
    sub = lambda: expression(rng, depth - 1)
    if kind == 0:
        return "(%s %s %s)" % (sub(), rng.choice(BINARY), sub())
    if kind == 1:
        return "(%s) | %s" % (sub(), rng.choice(FILTERS))
    if kind == 2:
        return "(%s is %s)" % (sub(), rng.choice(TESTS))
    if kind == 3:
        return "(%s).%s" % (sub(), rng.choice(METHODS))
    if kind == 4:
        return "(%s)%s" % (sub(), rng.choice(SUBSCRIPTS))
    if kind == 5:
        return "(%s if %s else %s)" % (sub(), sub(), sub())
    return "[%s, %s]" % (sub(), sub())


def generated(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        e = expression(rng, 3)
        yield rng.choice(["{{ %s }}", "{%% if %s %%}y{%% else %%}n{%% endif %%}", "{%% set x = %s %%}[{{ x }}]",
                          "{%% for q in %s %%}{{ loop.index }}{{ q }},{%% endfor %%}"]) % e


ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>|<built-in method[^<>]*>|<[^<>]*bound method[^<>]*>")


def expected(env, source):
    try:
        text = env.from_string(source).render(**copy.deepcopy(ARGS))  # a list | indent adds to the list
    except Exception as e:  # whatever Python raises is an error of the template
        return None, "%s: %s" % (type(e).__name__, e)
    return text, None


def wider_than_ours(source, text):
    """Python results that a 64-bit integer can't hold, and printed addresses: there is nothing to compare."""
    if text is None:
        return False
    return bool(ADDRESS.search(text)) or any(abs(int(m)) > 2**63 - 1 and m != str(ARGS["u64"]) for m in re.findall(r"-?\d{19,4000}", text))


def folded(source, text, got):
    """What jinja2 does to constants only: a slice of a literal that can't be sliced is undefined instead of an error,
    and `-1 ** x` loses its parentheses."""
    return text is not None and "a slice of" in got.get("error", "") or re.search(r"-1\)? \*\* ", source) is not None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("cli")
    ap.add_argument("--random", type=int, default=2000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--verbose", action="store_true")
    args = ap.parse_args()
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    warnings.simplefilter("ignore")
    env = make_env()
    cli = subprocess.Popen([args.cli, "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    same = skipped = refused = 0
    wrong = []
    for source in list(systematic()) + list(generated(args.random, args.seed)):
        cli.stdin.write((json.dumps([source, ARGS]) + "\n").encode())
        cli.stdin.flush()
        line = cli.stdout.readline()
        if not line:
            print("the renderer died on:", source)
            return 1
        got = json.loads(line)
        text, error = expected(env, source)
        if text is None and "error" in got or text is not None and got.get("text") == text:
            same += 1
        elif wider_than_ours(source, text) or folded(source, text, got):
            skipped += 1
        elif "64 bits" in got.get("error", "") or "is not supported" in got.get("error", ""):
            refused += 1
            if args.verbose:
                print("refused:", source, "->", got["error"])
        else:
            wrong.append((source, text, error, got))
    for source, text, error, got in wrong[:60]:
        print(json.dumps(source), "\n   jinja2:", json.dumps(text, ensure_ascii=False) if error is None else error, "\n   ours:  ", json.dumps(got, ensure_ascii=False))
    print("jinja2 %s: %d snippets equal, %d different, %d refused by name, %d not comparable"
          % (jinja2.__version__, same, len(wrong), refused, skipped))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
