/* sdk/marks.c: where a prompt's parts end, from who wrote what and where tokens are cut. */
#include "sdk/marks.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { CUTS_MAX = 256, SPANS_MAX = 256 };

/* A text of spans, each with its origin; a '|' stands for a special token of one byte. Tokens are
 * single bytes, so that a cut has as many tokens as bytes. */
struct text {
    struct jinja_span spans[SPANS_MAX];
    struct tok_cut cuts[CUTS_MAX];
    struct jinja_output out;
    struct tok_cuts all;
    size_t n_bytes;
};

static void add(struct text *t, uint8_t origin, const char *s)
{
    for (; *s; s++) {
        t->n_bytes++;
        if (*s == '|')
            t->cuts[t->all.n++] = (struct tok_cut){(uint32_t)t->n_bytes, (uint32_t)t->n_bytes};
    }
    t->spans[t->out.n_spans++] = (struct jinja_span){.end = t->n_bytes, .origin = origin};
    t->out.spans = t->spans;
    t->all.p = t->cuts;
}

static void add_turn(struct text *t, uint8_t origin, const char *s)
{
    add(t, JINJA_ORIGIN_TEMPLATE, "|role:");
    add(t, origin, s);
    add(t, JINJA_ORIGIN_TEMPLATE, "|\n");
}

static void expect(const struct text *t, const struct t9_mark *want, size_t n_want)
{
    struct t9_mark got[T9_MARKS_MAX];
    size_t n = marks_find(&t->out, &t->all, got);
    assert_int_equal(n, n_want);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i].n_tokens, want[i].n_tokens);
        assert_int_equal(got[i].kind, want[i].kind);
    }
}

static void test_head_turns_end(void **state)
{
    (void)state;
    static struct text t;
    add_turn(&t, JINJA_ORIGIN_USER, "system"); /* bytes 0 .. 14 */
    add_turn(&t, ORIGIN_TURN, "first");        /* the special token ends at 15; .. 27 */
    add_turn(&t, ORIGIN_ASSISTANT, "answer");  /* .. 41 */
    add_turn(&t, ORIGIN_TURN, "next");         /* 42; its end's token ends at 52 */
    add(&t, JINJA_ORIGIN_TEMPLATE, "|assistant:");
    const struct t9_mark want[] = {{15, T9_MARK_HEAD}, {42, T9_MARK_TURN}, {52, T9_MARK_TURN}};
    expect(&t, want, 3);
}

static void test_nothing_to_mark(void **state)
{
    (void)state;
    static struct text none, no_turn, no_cuts;
    expect(&none, NULL, 0);
    add_turn(&no_turn, JINJA_ORIGIN_USER, "system");
    expect(&no_turn, NULL, 0);
    add(&no_cuts, JINJA_ORIGIN_TEMPLATE, "USER: ");
    add(&no_cuts, ORIGIN_TURN, "hello");
    add(&no_cuts, JINJA_ORIGIN_TEMPLATE, " ASSISTANT:");
    expect(&no_cuts, NULL, 0);
}

/* A text that a filter cut into pieces is one turn; places that fall together are one mark. */
static void test_pieces_and_equal_places(void **state)
{
    (void)state;
    static struct text t;
    add(&t, JINJA_ORIGIN_TEMPLATE, "|");
    add(&t, ORIGIN_TURN, "a");
    add(&t, ORIGIN_TURN, "b");
    add(&t, JINJA_ORIGIN_TEMPLATE, "+");
    add(&t, ORIGIN_TURN, "c");
    add(&t, JINJA_ORIGIN_TEMPLATE, "|");
    const struct t9_mark want[] = {{1, T9_MARK_HEAD}, {6, T9_MARK_TURN}};
    expect(&t, want, 2);
}

/* Of many turns the first and the last ones are marked, ascending, and there is room for all. */
static void test_many_turns(void **state)
{
    (void)state;
    static struct text t;
    struct t9_mark got[T9_MARKS_MAX];
    for (int i = 0; i < 40; i++)
        add_turn(&t, ORIGIN_TURN, "x"); /* 9 bytes each */
    size_t n = marks_find(&t.out, &t.all, got);
    assert_int_equal(n, T9_MARKS_MAX);
    assert_int_equal(got[0].n_tokens, 1);
    assert_int_equal(got[0].kind, T9_MARK_HEAD);
    for (size_t i = 1; i < n; i++) {
        assert_true(got[i].n_tokens > got[i - 1].n_tokens);
        assert_int_equal(got[i].kind, T9_MARK_TURN);
    }
    assert_int_equal(got[n - 2].n_tokens, 39 * 9 + 1);
    assert_int_equal(got[n - 1].n_tokens, 39 * 9 + 8);
    assert_int_equal(got[1].n_tokens, (40 - (T9_MARKS_MAX - 2)) * 9 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_turns_end),
        cmocka_unit_test(test_nothing_to_mark),
        cmocka_unit_test(test_pieces_and_equal_places),
        cmocka_unit_test(test_many_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
