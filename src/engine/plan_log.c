/*
 * engine/plan_log.c - see plan_log.h. Knows the line's form, nothing of files. Any thread.
 */
#include "engine/plan_log.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    HEAD_CAP = 320,
    SEQ_CAP = 112,
};

static uint64_t bits_of(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static double from_bits(uint64_t u)
{
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

size_t plan_log_line_cap(int32_t n)
{
    return HEAD_CAP + (size_t)n * SEQ_CAP;
}

size_t plan_log_encode(char *out, size_t cap, const struct sched_step *in,
                       const struct sched_seq *seqs, int32_t n, int32_t rows)
{
    const struct sched_cost *c = &in->cost;
    int at = snprintf(out, cap,
                      "{\"t9_plan\":2,\"step\":%" PRIu64 ",\"step_tokens\":%d,\"cost\":[%" PRIu64
                      ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "],\"seqs\":[",
                      in->step, in->step_tokens, bits_of(c->step_ns), bits_of(c->row_ns),
                      bits_of(c->key_ns), bits_of(c->stretch), bits_of(c->experts_ns),
                      bits_of(c->experts_met));
    const char *comma = "";
    for (int32_t i = 0; i < n; i++) {
        const struct sched_seq *s = &seqs[i];
        if (!s->used)
            continue;
        at += snprintf(out + at, cap - (size_t)at, "%s[%d,%d,%d,%d,%" PRIu64 ",%" PRIu64 ",%d",
                       comma, s->decoding, s->priority, s->n_pending, s->n_computed, s->order,
                       s->last_step, s->n_rows);
        if (s->n_limit > 0)
            at += snprintf(out + at, cap - (size_t)at, ",%d", s->n_limit);
        at += snprintf(out + at, cap - (size_t)at, "]");
        comma = ",";
    }
    at += snprintf(out + at, cap - (size_t)at, "],\"rows\":%d}", rows);
    return (size_t)at;
}

t9_status plan_replay_init(struct plan_replay *r, struct t9_err *err)
{
    *r = (struct plan_replay){.seqs = mem_calloc(PLAN_LOG_SEQS_MAX, sizeof *r->seqs)};
    return r->seqs ? T9_STATUS_OK : t9_fail(err, T9_STATUS_NOMEM, "plan log: out of memory");
}

void plan_replay_deinit(struct plan_replay *r)
{
    mem_free(r->seqs);
    *r = (struct plan_replay){0};
}

/* ---- reading ---- */

struct reader {
    str line;
    size_t at;
    bool ok;
};

static void expect(struct reader *r, const char *text)
{
    size_t n = strlen(text);
    r->ok = r->ok && r->line.n - r->at >= n && memcmp(r->line.p + r->at, text, n) == 0;
    if (r->ok)
        r->at += n;
}

static bool next_is(const struct reader *r, char c)
{
    return r->ok && r->at < r->line.n && r->line.p[r->at] == c;
}

/* A whole number of at most `max`. */
static uint64_t number(struct reader *r, uint64_t max)
{
    uint64_t v = 0;
    size_t from = r->at;
    while (r->ok && r->at < r->line.n && r->line.p[r->at] >= '0' && r->line.p[r->at] <= '9') {
        uint64_t digit = (uint64_t)(r->line.p[r->at++] - '0');
        r->ok = v <= (max - digit) / 10 && digit <= max;
        v = r->ok ? v * 10 + digit : 0;
    }
    r->ok = r->ok && r->at > from;
    return r->ok ? v : 0;
}

static int32_t number_i32(struct reader *r)
{
    return (int32_t)number(r, INT32_MAX);
}

static int32_t signed_i32(struct reader *r)
{
    if (!next_is(r, '-'))
        return number_i32(r);
    r->at++;
    return (int32_t) - (int64_t)number(r, (uint64_t)INT32_MAX + 1);
}

/* A cost: finite and not negative. */
static double cost(struct reader *r)
{
    double v = from_bits(number(r, UINT64_MAX));
    r->ok = r->ok && v >= 0.0 && v < 1e18;
    return r->ok ? v : 0.0;
}

static void read_seq(struct reader *r, struct sched_seq *s)
{
    *s = (struct sched_seq){.used = true};
    expect(r, "[");
    s->decoding = number(r, 1) == 1;
    expect(r, ",");
    s->priority = signed_i32(r);
    expect(r, ",");
    s->n_pending = number_i32(r);
    expect(r, ",");
    s->n_computed = number_i32(r);
    expect(r, ",");
    s->order = number(r, UINT64_MAX);
    expect(r, ",");
    s->last_step = number(r, UINT64_MAX);
    expect(r, ",");
    s->n_rows = number_i32(r);
    s->n_limit = 0;
    if (next_is(r, ',')) {
        expect(r, ",");
        s->n_limit = number_i32(r);
    }
    expect(r, "]");
}

t9_status plan_log_decode(struct plan_replay *p, str line, struct t9_err *err)
{
    struct reader r = {.line = line, .ok = true};
    p->n = 0;
    expect(&r, "{\"t9_plan\":2,\"step\":");
    p->in.step = number(&r, UINT64_MAX);
    expect(&r, ",\"step_tokens\":");
    p->in.step_tokens = number_i32(&r);
    expect(&r, ",\"cost\":[");
    p->in.cost.step_ns = cost(&r);
    expect(&r, ",");
    p->in.cost.row_ns = cost(&r);
    expect(&r, ",");
    p->in.cost.key_ns = cost(&r);
    expect(&r, ",");
    p->in.cost.stretch = cost(&r);
    expect(&r, ",");
    p->in.cost.experts_ns = cost(&r);
    expect(&r, ",");
    p->in.cost.experts_met = cost(&r);
    r.ok = r.ok && p->in.cost.experts_met <= 1.0;
    expect(&r, "],\"seqs\":[");
    while (r.ok && !next_is(&r, ']')) {
        if (p->n == PLAN_LOG_SEQS_MAX)
            return t9_fail(err, T9_STATUS_TOO_LARGE, "plan log: more than %d sequences in a step",
                           PLAN_LOG_SEQS_MAX);
        if (p->n > 0)
            expect(&r, ",");
        read_seq(&r, &p->seqs[p->n++]);
    }
    expect(&r, "],\"rows\":");
    p->rows = number_i32(&r);
    expect(&r, "}");
    if (!r.ok || r.at != line.n || p->in.step_tokens < 1)
        return t9_fail(err, T9_STATUS_INVALID,
                       "plan log: not a step of version 2, at byte %zu of the line", r.at);
    return T9_STATUS_OK;
}

/* The engine numbers its steps one by one and logs all of them. */
static t9_status check_order(const struct plan_replay *p, struct t9_err *err)
{
    unsigned long long now = p->in.step;
    unsigned long long next = p->last_step + 1;
    if (p->n_steps == 0 || now == next)
        return T9_STATUS_OK;
    if (now < next)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "plan log: step %llu after step %llu: not the order in which they were made",
                       now, next - 1);
    if (now == next + 1)
        return t9_fail(err, T9_STATUS_CORRUPT, "plan log: step %llu is missing", next);
    return t9_fail(err, T9_STATUS_CORRUPT, "plan log: steps %llu to %llu are missing", next,
                   now - 1);
}

t9_status plan_replay_line(struct plan_replay *p, str line, struct t9_err *err)
{
    T9_TRY(plan_log_decode(p, line, err));
    int32_t logged[PLAN_LOG_SEQS_MAX];
    for (int32_t i = 0; i < p->n; i++)
        logged[i] = p->seqs[i].n_rows;
    int32_t rows = sched_plan(p->seqs, p->n, &p->in);
    for (int32_t i = 0; i < p->n; i++) {
        if (p->seqs[i].n_rows != logged[i])
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "plan log: step %llu, sequence %llu: %d rows now, %d in the log",
                           (unsigned long long)p->in.step, (unsigned long long)p->seqs[i].order,
                           p->seqs[i].n_rows, logged[i]);
    }
    if (rows != p->rows)
        return t9_fail(err, T9_STATUS_CORRUPT, "plan log: step %llu: %d rows now, %d in the log",
                       (unsigned long long)p->in.step, rows, p->rows);
    T9_TRY(check_order(p, err));
    if (p->n_steps++ == 0)
        p->first_step = p->in.step;
    p->last_step = p->in.step;
    return T9_STATUS_OK;
}
