/*
 * sdk/engine.c - engines and what is known of them. Any thread, but for new and free.
 */
#include "engine/engine.h"

#include "backend/be.h"
#include "base/mem.h"
#include "base/memory.h"
#include "model/model.h"
#include "sdk/internal.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

void t9_engine_params_init(struct t9_engine_params *p, size_t struct_size)
{
    struct t9_engine_params d = {.max_batch = 16, .queue = 256, .cache_idle_ms = 600000};
    sdk_params_zero(p, struct_size);
    (void)sdk_out_give(p, &d, sizeof d);
}

static t9_status parse_kv_type(const t9_model *m, const char *name, kv_type *out,
                               struct t9_err *err)
{
    static const kv_type types[] = {KV_TYPE_F32, KV_TYPE_F16, KV_TYPE_BF16, KV_TYPE_Q8_0};
    *out = strcmp(be_name(m->be), "ref") == 0 ? KV_TYPE_F32 : KV_TYPE_F16;
    if (!name)
        return T9_STATUS_OK;
    for (size_t i = 0; i < T9_COUNT(types); i++) {
        if (strcmp(name, kv_type_name(types[i])) == 0) {
            *out = types[i];
            return T9_STATUS_OK;
        }
    }
    return t9_fail(err, T9_STATUS_INVALID, "kv_type \"%.20s\" is none of f32, f16, bf16, q8_0",
                   name);
}

/* Engine thread. */
static void on_diverged(void *ctx, const struct engine_divergence *d)
{
    const struct t9_engine *e = ctx;
    struct t9_divergence out = {.request_id = d->request_id,
                                .at = d->at,
                                .n_cached = d->n_cached,
                                .n_asked = d->n_asked,
                                .cached = d->cached,
                                .asked = d->asked};
    e->diverged(e->diverged_ctx, &out);
}

static t9_status to_engine_params(t9_engine *e, const struct t9_engine_params *p,
                                  struct engine_params *out, struct t9_err *err)
{
    t9_model *m = p->model;
    int32_t made_for = model_info(m->model)->context_length;
    engine_params_init(out);
    if (p->max_length > made_for && !p->allow_long)
        return t9_fail(err, T9_STATUS_INVALID,
                       "max_length %d: the model was made for %d tokens, and what comes out beyond "
                       "is of no use (allow_long lets it, for tests)",
                       p->max_length, made_for);
    T9_TRY(parse_kv_type(m, p->kv_type, &out->kv_type, err));
    if (p->step_tokens > m->step_tokens)
        return t9_fail(err, T9_STATUS_INVALID,
                       "step_tokens %d: the model was loaded for steps of %d; set step_tokens of "
                       "t9_model_params",
                       p->step_tokens, m->step_tokens);
    out->model = m->model;
    out->be = m->be;
    out->vocab = tokenizer_vocab(m->tokenizer);
    out->kv_bytes = p->kv_bytes ? p->kv_bytes : memory_kv_default_bytes("");
    out->max_length = p->max_length;
    out->max_batch = p->max_batch;
    out->step_tokens = p->step_tokens ? p->step_tokens : m->step_tokens;
    out->queue_cap = p->queue;
    out->max_running_per_key = p->max_per_client;
    out->no_prefix_cache = p->no_prefix_cache;
    out->cache_idle_ms = p->cache_idle_ms;
    out->plan_log = p->plan_log;
    out->plan_log_ctx = p->plan_log_ctx;
    e->diverged = p->diverged;
    e->diverged_ctx = p->diverged_ctx;
    if (p->diverged) {
        out->diverged = on_diverged;
        out->diverged_ctx = e;
    }
    return T9_STATUS_OK;
}

t9_status t9_engine_new(t9_engine **out, const struct t9_engine_params *params, struct t9_err *err)
{
    struct t9_engine_params p;
    struct engine_params ep;
    *out = NULL;
    T9_TRY(sdk_params_take(&p, sizeof p, params, "engine_params", err));
    t9_model *m = p.model;
    if (!m || !m->model)
        return t9_fail(err, T9_STATUS_INVALID,
                       m ? "the model was loaded with vocab_only: it has no weights to compute with"
                         : "no model was given");
    if (atomic_exchange(&m->has_engine, true))
        return t9_fail(err, T9_STATUS_BUSY,
                       "the model has an engine already; load the file again for a second one");
    t9_engine *e = mem_calloc(1, sizeof *e);
    t9_status s = e ? to_engine_params(e, &p, &ep, err)
                    : t9_fail(err, T9_STATUS_NOMEM, "no memory for an engine");
    if (s == T9_STATUS_OK)
        s = engine_new(&e->engine, &ep, err);
    if (s != T9_STATUS_OK) {
        atomic_store(&m->has_engine, false);
        mem_free(e);
        return s;
    }
    e->model = m;
    sdk_model_get(m);
    *out = e;
    return sdk_end(s, err);
}

t9_status sdk_engine_wrap(t9_engine **out, t9_model *m, struct engine *engine, struct t9_err *err)
{
    *out = NULL;
    t9_engine *e = mem_calloc(1, sizeof *e);
    if (!e)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for an engine");
    e->model = m;
    e->engine = engine;
    e->borrowed = true;
    sdk_model_get(m);
    *out = e;
    return T9_STATUS_OK;
}

void t9_engine_free(t9_engine *e)
{
    if (!e)
        return;
    if (!e->borrowed) {
        engine_free(e->engine);
        atomic_store(&e->model->has_engine, false);
    }
    sdk_model_put(e->model);
    mem_free(e);
}

int32_t t9_engine_max_length(const t9_engine *e)
{
    return engine_max_length(e->engine);
}

const char *t9_engine_limit_reason(const t9_engine *e)
{
    return engine_limit_reason(e->engine);
}

int32_t t9_engine_max_tokens(const t9_engine *e, int32_t n_prompt)
{
    return engine_max_tokens(e->engine, n_prompt);
}

int32_t t9_engine_retry_after_s(const t9_engine *e)
{
    int32_t s = engine_retry_after_s(e->engine);
    return s < 1 ? 1 : s;
}

t9_status t9_engine_drain(t9_engine *e, int32_t timeout_ms)
{
    return engine_drain(e->engine, timeout_ms) ? T9_STATUS_OK : T9_STATUS_AGAIN;
}

_Static_assert((int)T9_STATS_BUCKETS == sizeof(((struct engine_stats *)0)->ttft_bucket) / 8,
               "the header's buckets are the engine's");
_Static_assert((int)T9_STATS_CHECKPOINTS == (int)STATS_CHECKPOINTS,
               "the header's kinds of checkpoints are the engine's");

t9_status t9_engine_stats(const t9_engine *e, struct t9_stats *out)
{
    struct engine_stats s;
    struct t9_stats o;
    engine_stats_read(e->engine, &s);
    memset(&o, 0, sizeof o);
    o.running = s.running;
    o.waiting = s.waiting;
    o.waiting_prefix = s.waiting_prefix;
    o.waiting_preempted = s.waiting_preempted;
    o.kv_pages_total = s.kv_pages_total;
    o.kv_pages_used = s.kv_pages_used;
    o.kv_pages_cold = s.kv_pages_cold;
    o.kv_pages_pinned = s.kv_pages_pinned;
    o.kv_pages_free = s.kv_pages_free;
    o.kv_page_bytes = s.kv_page_bytes;
    o.cost_step_ns = s.cost_step_ns;
    o.cost_row_ns = s.cost_row_ns;
    o.cost_key_ns = s.cost_key_ns;
    o.cost_experts_ns = s.cost_experts_ns;
    o.decode_step_ns = s.decode_step_ns;
    o.steps = s.steps;
    o.rows = s.rows;
    o.prompt_tokens = s.prompt_tokens;
    o.cached_tokens = s.cached_tokens;
    o.generated_tokens = s.generated_tokens;
    o.recomputed_tokens = s.recomputed_tokens;
    o.requests_admitted = s.requests_admitted;
    o.requests_stop = s.requests_stop;
    o.requests_length = s.requests_length;
    o.requests_cancelled = s.requests_cancelled;
    o.requests_error = s.requests_error;
    o.requests_expired = s.requests_expired;
    o.prefix_full = s.prefix_full;
    o.prefix_partial = s.prefix_partial;
    o.prefix_inflight = s.prefix_inflight;
    o.prefix_miss = s.prefix_miss;
    o.prefix_given_up = s.prefix_given_up;
    o.prefix_diverged = s.prefix_diverged;
    o.preemptions = s.preemptions;
    o.evicted_pages = s.evicted_pages;
    o.queue_ns = s.queue_ns;
    o.prefill_ns = s.prefill_ns;
    o.decode_ns = s.decode_ns;
    o.step_ns = s.step_ns;
    o.ttft_count = s.ttft_count;
    o.gap_count = s.gap_count;
    o.ttft_sum_ns = s.ttft_sum_ns;
    o.gap_sum_ns = s.gap_sum_ns;
    o.kv_states_used = s.kv_states_used;
    o.kv_states_kept = s.kv_states_kept;
    o.kv_state_bytes = s.kv_state_bytes;
    o.evicted_states = s.evicted_states;
    o.kv_windows_used = s.kv_windows_used;
    o.kv_windows_cold = s.kv_windows_cold;
    o.kv_window_bytes = s.kv_window_bytes;
    o.evicted_windows = s.evicted_windows;
    memcpy(o.checkpoints_kept, s.checkpoints_kept, sizeof o.checkpoints_kept);
    memcpy(o.checkpoint_hits, s.checkpoint_hits, sizeof o.checkpoint_hits);
    memcpy(o.ttft_bucket, s.ttft_bucket, sizeof o.ttft_bucket);
    memcpy(o.gap_bucket, s.gap_bucket, sizeof o.gap_bucket);
    memcpy(o.bucket_ms, STATS_BUCKET_MS, sizeof o.bucket_ms);
    return sdk_out_give(out, &o, sizeof o);
}

static struct t9_state_request state_request(const struct engine_state_seq *s)
{
    return (struct t9_state_request){.id = s->id,
                                     .state = s->state,
                                     .age_ns = s->age_ns,
                                     .priority = s->priority,
                                     .n_prompt = s->n_prompt,
                                     .n_prefilled = s->n_prefilled,
                                     .n_cached = s->n_cached,
                                     .n_tokens = s->n_tokens,
                                     .max_tokens = s->max_tokens,
                                     .n_pages = s->n_pages,
                                     .n_preempted = s->n_preempted};
}

_Static_assert((int)T9_STATE_REQUESTS_MAX == (int)ENGINE_STATE_SEQS_MAX,
               "the header's lists are the engine's");

t9_status t9_engine_state(const t9_engine *e, struct t9_state *out)
{
    struct engine_state s;
    engine_state_read(e->engine, &s);
    struct t9_state o = {.step = s.step,
                         .at_ns = s.at_ns,
                         .pages_total = s.pages_total,
                         .pages_free = s.pages_free,
                         .pages_cold = s.pages_cold,
                         .pages_pinned = s.pages_pinned,
                         .tree_nodes = s.tree_nodes,
                         .tree_tails = s.tree_tails,
                         .tree_promised = s.tree_promised,
                         .n_running = s.n_running,
                         .n_prefix = s.n_prefix,
                         .n_waiting = s.n_waiting,
                         .n_preempted = s.n_preempted,
                         .n_requests = s.n_seqs,
                         .n_queue = s.n_queue,
                         .cost_step_ns = s.cost_step_ns,
                         .cost_row_ns = s.cost_row_ns,
                         .cost_key_ns = s.cost_key_ns,
                         .cost_experts_ns = s.cost_experts_ns,
                         .decode_step_ns = s.decode_step_ns,
                         .states_used = s.states_used,
                         .states_kept = s.states_kept};
    for (int32_t i = 0; i < s.n_seqs && i < T9_STATE_REQUESTS_MAX; i++)
        o.requests[i] = state_request(&s.seqs[i]);
    for (int32_t i = 0; i < s.n_queue && i < T9_STATE_REQUESTS_MAX; i++)
        o.queue[i] = state_request(&s.queue[i]);
    return sdk_out_give(out, &o, sizeof o);
}
