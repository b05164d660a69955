/*
 * http/state.c - GET /v1/state: what the server is doing now, for a page that polls it. A copy of
 * the engine's snapshot and one pass into one buffer. No prompt, no text, no token.
 */
#include "base/clock.h"
#include "http/internal.h"

#include <inttypes.h>
#include <math.h>

static void member(struct buf *b, const char *key, double v)
{
    if (b->n && b->p[b->n - 1] != '{')
        buf_putc(b, ',');
    json_write_key(b, key);
    json_write_f64(b, isfinite(v) ? v : 0);
}

static void member_u64(struct buf *b, const char *key, uint64_t v)
{
    if (b->n && b->p[b->n - 1] != '{')
        buf_putc(b, ',');
    json_write_key(b, key);
    buf_printf(b, "%" PRIu64, v);
}

static double us(double ns)
{
    return round(ns) / 1e3;
}

static void write_seqs(const char *key, const struct t9_state_request *s, int32_t n, struct buf *b)
{
    json_write_key(b, key);
    buf_putc(b, '[');
    for (int32_t i = 0; i < n && i < T9_STATE_REQUESTS_MAX; i++) {
        buf_puts(b, i ? ",{" : "{");
        member_u64(b, "id", s[i].id);
        buf_putc(b, ',');
        json_write_key(b, "state");
        json_write_str(b, str_from(s[i].state ? s[i].state : "?"));
        member(b, "age_ms", round((double)s[i].age_ns / 1e3) / 1e3);
        member(b, "priority", s[i].priority);
        member(b, "prompt_tokens", s[i].n_prompt);
        member(b, "prefilled_tokens", s[i].n_prefilled);
        member(b, "cached_tokens", s[i].n_cached);
        member(b, "generated_tokens", s[i].n_tokens);
        member(b, "max_tokens", s[i].max_tokens);
        member(b, "pages", s[i].n_pages);
        member(b, "preemptions", s[i].n_preempted);
        buf_putc(b, '}');
    }
    buf_putc(b, ']');
}

static void write_pool(const struct t9_state *st, const struct t9_stats *e, struct buf *b)
{
    buf_puts(b, "\"pool\":{");
    member_u64(b, "page_bytes", e->kv_page_bytes);
    member(b, "pages", st->pages_total);
    member(b, "used", st->pages_total - st->pages_free - st->pages_cold);
    member(b, "cold", st->pages_cold);
    member(b, "free", st->pages_free);
    member(b, "pinned", st->pages_pinned);
    member_u64(b, "state_bytes", e->kv_state_bytes);
    member(b, "states_used", st->states_used);
    member(b, "states_kept", st->states_kept);
    member_u64(b, "window_bytes", e->kv_window_bytes);
    member(b, "windows_used", e->kv_windows_used);
    member(b, "windows_cold", e->kv_windows_cold);
    buf_puts(b, "},\"tree\":{");
    member(b, "nodes", st->tree_nodes);
    member(b, "tails", st->tree_tails);
    member(b, "promised", st->tree_promised);
    buf_puts(b, "},\"cost\":{");
    member(b, "step_us", us(st->cost_step_ns));
    member(b, "row_us", us(st->cost_row_ns));
    member(b, "key_ns", round(st->cost_key_ns * 1e3) / 1e3);
    member(b, "experts_us", us(st->cost_experts_ns));
    member(b, "decode_step_us", us(st->decode_step_ns));
    buf_putc(b, '}');
}

static void write_checkpoints(const char *key, const uint64_t v[T9_STATS_CHECKPOINTS],
                              struct buf *b)
{
    buf_putc(b, ',');
    json_write_key(b, key);
    buf_putc(b, '{');
    for (int i = 0; i < T9_STATS_CHECKPOINTS; i++)
        member_u64(b, HTTP_CHECKPOINTS[i], v[i]);
    buf_putc(b, '}');
}

static void write_totals(const struct t9_stats *e, struct buf *b)
{
    buf_puts(b, "\"totals\":{");
    member_u64(b, "steps", e->steps);
    member_u64(b, "rows", e->rows);
    member_u64(b, "prompt_tokens", e->prompt_tokens);
    member_u64(b, "cached_tokens", e->cached_tokens);
    member_u64(b, "recomputed_tokens", e->recomputed_tokens);
    member_u64(b, "generated_tokens", e->generated_tokens);
    member_u64(b, "requests_admitted", e->requests_admitted);
    member_u64(b, "prefix_full", e->prefix_full);
    member_u64(b, "prefix_partial", e->prefix_partial);
    member_u64(b, "prefix_inflight", e->prefix_inflight);
    member_u64(b, "prefix_miss", e->prefix_miss);
    member_u64(b, "prefix_given_up", e->prefix_given_up);
    member_u64(b, "prefix_diverged", e->prefix_diverged);
    member_u64(b, "preemptions", e->preemptions);
    member_u64(b, "evicted_pages", e->evicted_pages);
    member_u64(b, "evicted_states", e->evicted_states);
    member_u64(b, "evicted_windows", e->evicted_windows);
    write_checkpoints("checkpoints", e->checkpoints_kept, b);
    write_checkpoints("checkpoint_hits", e->checkpoint_hits, b);
    buf_putc(b, '}');
}

static void write_http(struct http_server *s, struct buf *b)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    buf_puts(b, "\"http\":{");
    json_write_key(b, "stopping");
    json_write_bool(b, atomic_load(&s->stopping));
    member(b, "uptime_s", (double)(clock_unix_s() - s->started_s));
    member(b, "connections", info ? info->num_connections : 0);
    member(b, "chats", atomic_load(&s->n_listed));
    member(b, "streams", (double)atomic_load(&s->n.streams));
    member(b, "prep_waiting", (double)atomic_load(&s->n.prep_waiting));
    member_u64(b, "hangups", atomic_load(&s->n.hangups));
    member_u64(b, "limited", atomic_load(&s->n.limited));
    member(b, "retry_after_s", prep_retry_after_s(s->prep));
    buf_putc(b, '}');
}

void state_write(struct http_server *s, struct buf *out)
{
    struct t9_stats e;
    struct t9_state st;
    prep_engine_stats(s->prep, &e);
    prep_engine_state(s->prep, &st);
    uint64_t now = clock_now_ns();
    buf_putc(out, '{');
    write_http(s, out);
    buf_puts(out, ",\"engine\":{");
    member_u64(out, "step", st.step);
    member(out, "snapshot_age_ms",
           st.at_ns && now > st.at_ns ? round((double)(now - st.at_ns) / 1e3) / 1e3 : 0);
    member(out, "running", st.n_running);
    member(out, "waiting_for_prefix", st.n_prefix);
    member(out, "waiting", st.n_waiting);
    member(out, "preempted", st.n_preempted);
    buf_puts(out, "},");
    write_pool(&st, &e, out);
    buf_putc(out, ',');
    write_totals(&e, out);
    buf_putc(out, ',');
    write_seqs("running", st.requests, st.n_requests, out);
    buf_putc(out, ',');
    write_seqs("queue", st.queue, st.n_queue, out);
    buf_putc(out, '}');
}
