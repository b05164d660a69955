/*
 * protocol/run.c - see run.h. Life, preparing and submitting; reading is in run_read.c.
 *
 * A run is let go of when each of its choices was: the engine makes a last call for each that it
 * took, and start makes one for those that it did not take, so that one count tells.
 */
#include "protocol/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "protocol/pin.h"
#include "protocol/run_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define REQUEST_ARENA_MAX ((size_t)96 << 20)
#define TEXT_BYTES_MAX    ((size_t)256 << 20) /* of one choice */

/* ---- life ---- */

static t9_status random_bytes(void *p, size_t n, struct t9_err *err)
{
    ssize_t got;
    do {
        got = getrandom(p, n, 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)n)
        return t9_fail(err, T9_STATUS_IO, "the system gave no random numbers");
    return T9_STATUS_OK;
}

static str piece_of(const void *prep, int32_t id)
{
    return prep_piece(prep, id);
}

t9_status chat_run_new(struct chat_run **out, const struct prep *prep,
                       const struct chat_adapter *adapter, struct chat_run_hooks hooks,
                       const struct chat_caller *caller, struct t9_err *err)
{
    uint64_t id[2];
    *out = NULL;
    T9_TRY(random_bytes(id, sizeof id, err));
    struct chat_run *run = mem_calloc(1, sizeof *run);
    if (!run)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a request");
    run->prep = prep;
    run->adapter = adapter;
    run->hooks = hooks;
    run->caller = *caller;
    chat_request_init(&run->request, REQUEST_ARENA_MAX);
    run->request.sampling = prep_params_of(prep)->sampling;
    buf_init(&run->answer, TEXT_BYTES_MAX);
    run->reply.created_s = clock_unix_s();
    run->reply.model = str_from(prep_params_of(prep)->model_name);
    run->reply.build = prep_params_of(prep)->build_id;
    run->reply.request = &run->request;
    run->reply.piece = piece_of;
    run->reply.piece_ctx = prep;
    run->reply.part = run_part_at;
    run->reply.part_ctx = run;
    (void)snprintf(run->reply.id, sizeof run->reply.id, "%.14s%016llx%08llx", adapter->id_prefix,
                   (unsigned long long)id[0], (unsigned long long)(id[1] & 0xffffffffu));
    run->request.keeping = (struct chat_keeping){prep_params_of(prep)->store, caller->client_key,
                                                 str_from(run->reply.id)};
    *out = run;
    return T9_STATUS_OK;
}

static void choice_deinit(struct run_choice *c)
{
    t9_request_free(atomic_load(&c->request));
    buf_deinit(&c->echo);
    buf_deinit(&c->echo_starts);
    answer_parser_free(c->parser);
    run_whole_free(c->whole);
}

void chat_run_free(struct chat_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->n_choices; i++)
        choice_deinit(&run->choices[i]);
    pull_free(run->pull);
    run_done_free(run);
    for (size_t i = 0; i < run->n_prompts; i++)
        prep_ids_deinit(&run->prompts[i]);
    mem_free(run->choices);
    mem_free(run->prompts);
    buf_deinit(&run->answer);
    chat_request_deinit(&run->request);
    mem_free(run);
}

/* ---- prompts ---- */

static const char *prompt_field(const struct chat_run *run)
{
    return run->request.n_prompts ? "prompt" : run->request.prompt_field;
}

static bool is_gone(const struct chat_run *run)
{
    return run->hooks.gone && atomic_load(run->hooks.gone);
}

static t9_status gone(struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_CANCELLED, NULL, NULL, "the client has gone");
}

/* Each choice has a place in the engine's queue: more than it has would be turned away for ever. */
static t9_status check_choices(const struct chat_run *run, size_t n_prompts, struct chat_error *err)
{
    const struct chat_request *q = &run->request;
    int32_t cap = prep_params_of(run->prep)->queue_cap;
    size_t n = n_prompts * (size_t)q->n;
    const char *param = q->n > 1 ? "n" : "prompt";
    const char *plural = n_prompts > 1 ? "s" : "", *one = n_prompts > 1 ? "" : "s";
    if (n > CHAT_CHOICES_MAX)
        return chat_fail(err, T9_STATUS_INVALID, param, "invalid_value",
                         "%zu prompt%s with n = %d ask%s for %zu answers, and one request may ask "
                         "for %d",
                         n_prompts, plural, q->n, one, n, CHAT_CHOICES_MAX);
    if (cap > 0 && n > (size_t)cap)
        return chat_fail(err, T9_STATUS_INVALID, param, "invalid_value",
                         "%zu prompt%s with n = %d ask%s for %zu answers, and this server's queue "
                         "(--queue) has room for %d",
                         n_prompts, plural, q->n, one, n, cap);
    return T9_STATUS_OK;
}

/* Says which of several prompts an error is about. */
static t9_status name_prompt(const struct chat_run *run, size_t i, t9_status s,
                             struct chat_error *err)
{
    char msg[sizeof err->err.msg];
    if (s == T9_STATUS_OK || run->request.n_prompts < 2 || strcmp(err->param, "prompt") != 0)
        return s;
    (void)snprintf(msg, sizeof msg, "prompt[%zu]: %.200s", i, err->err.msg);
    (void)snprintf(err->param, sizeof err->param, "prompt[%zu]", i);
    return t9_fail(&err->err, s, "%s", msg);
}

static t9_status make_prompts(struct chat_run *run, struct chat_error *err)
{
    struct chat_request *q = &run->request;
    size_t n = q->n_prompts ? q->n_prompts : 1;
    T9_TRY(check_choices(run, n, err));
    run->prompts = mem_calloc(n, sizeof *run->prompts);
    if (!run->prompts)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for %zu prompts", n);
    run->n_prompts = n;
    for (size_t i = 0; i < n; i++) {
        if (is_gone(run))
            return gone(err);
        t9_status s = q->n_prompts ? prep_prompt(run->prep, q, i, &run->prompts[i], err)
                                   : pin_prompt(run->prep, q, &run->prompts[i], err);
        T9_TRY(name_prompt(run, i, s, err));
    }
    run->reply.prompt_ids = run->prompts[0].p;
    run->reply.n_prompt_ids = run->prompts[0].n;
    return T9_STATUS_OK;
}

/* ---- submitting ---- */

/* One more wake is under way, which tells of n choices that are let go of. */
static void wake(struct chat_run *run, unsigned n_ended)
{
    atomic_fetch_add(&run->n_posted, 1);
    if (n_ended)
        atomic_fetch_add(&run->n_ended, n_ended);
    run->hooks.wake(run->hooks.ctx);
}

static void on_engine(void *ctx, t9_request *r, bool last)
{
    struct run_choice *c = ctx;
    atomic_store_explicit(&c->request, r, memory_order_release);
    wake(c->run, last);
}

/* How many tokens may be generated: what was asked, clamped to what fits. */
static t9_status choose_max_tokens(struct chat_run *run, size_t n_prompt, int32_t *out,
                                   struct chat_error *err)
{
    const t9_engine *engine = prep_params_of(run->prep)->engine;
    struct chat_request *q = &run->request;
    int32_t room = t9_engine_max_tokens(engine, (int32_t)n_prompt);
    if (q->no_reply && n_prompt == (size_t)t9_engine_max_length(engine))
        room = 1; /* nothing comes after it */
    if (room <= 0)
        return chat_fail(
            err, T9_STATUS_INVALID, prompt_field(run), "context_length_exceeded",
            /* agents know this beginning, and shorten the conversation by it */
            "prompt is too long: %zu tokens > %d maximum, with the reply (%s): shorten "
            "the conversation",
            n_prompt, t9_engine_max_length(engine), t9_engine_limit_reason(engine));
    if (q->max_tokens > room)
        chat_warn(q, "%s %lld was lowered to %d, which is what fits beside a prompt of %zu tokens",
                  q->limit_field, (long long)q->max_tokens, room, n_prompt);
    /* Nobody reserves memory for what may never be written, so that all the rest is a fair default.
     */
    *out = q->max_tokens == 0 || q->max_tokens > room ? room : (int32_t)q->max_tokens;
    if (q->no_reply)
        *out = 1;
    if (q->min_tokens > *out && !q->no_reply)
        return chat_fail(err, T9_STATUS_INVALID, "min_tokens", "invalid_value",
                         "min_tokens is %d, and at most %d tokens can be generated", q->min_tokens,
                         *out);
    return T9_STATUS_OK;
}

static t9_status choose_seed(struct chat_run *run, struct t9_err *err)
{
    struct chat_request *q = &run->request;
    if (!q->has_seed) {
        T9_TRY(random_bytes(&q->sampling.seed, sizeof q->sampling.seed, err));
        /* A client's JSON parser may keep numbers as doubles: 53 bits come through unharmed. */
        q->sampling.seed >>= 11;
    }
    run->reply.seed = q->sampling.seed;
    return T9_STATUS_OK;
}

static void choice_init(struct run_choice *c, struct chat_run *run, size_t index)
{
    c->run = run;
    c->index = (int32_t)index;
    c->prompt = c->index / run->request.n;
    c->stop_token = c->stop = -1;
    buf_init(&c->echo, TEXT_BYTES_MAX);
    buf_init(&c->echo_starts, TEXT_BYTES_MAX);
}

static t9_status make_tools(struct chat_run *run, struct chat_error *err)
{
    struct chat_request *q = &run->request;
    size_t n = q->no_calls ? 0 : q->n_tools;
    if (n == 0)
        return T9_STATUS_OK;
    run->tools = arena_calloc(&q->kept, n, sizeof *run->tools);
    if (!run->tools)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for %zu tools", n);
    for (size_t i = 0; i < n; i++)
        run->tools[i] = (struct answer_tool){q->tools[i].name, q->tools[i].schema};
    run->n_tools = n;
    return T9_STATUS_OK;
}

static t9_status make_state(struct chat_run *run, struct chat_error *err)
{
    size_t n = run->adapter->state_bytes;
    run->reply.state = n ? arena_calloc(&run->request.kept, 1, n) : NULL;
    if (n && !run->reply.state)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for a reply");
    return T9_STATUS_OK;
}

static t9_status make_choices(struct chat_run *run, struct chat_error *err)
{
    struct t9_err e = {0};
    size_t n = run->n_prompts * (size_t)run->request.n;
    t9_status s = choose_seed(run, &e);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s, NULL, NULL, "%s", e.msg);
    run->choices = mem_calloc(n, sizeof *run->choices);
    if (!run->choices)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for %zu answers", n);
    run->n_choices = n;
    for (size_t i = 0; i < n; i++)
        choice_init(&run->choices[i], run, i);
    for (size_t i = 0; i < n; i++) {
        struct run_choice *c = &run->choices[i];
        s = choose_max_tokens(run, run->prompts[c->prompt].n, &c->max_tokens, err);
        T9_TRY(name_prompt(run, (size_t)c->prompt, s, err));
    }
    /* What was said outside of the body wins: a proxy in front can lower what clients ask for. */
    run->queue_timeout_ms =
        run->caller.queue_timeout_ms ? run->caller.queue_timeout_ms : run->request.queue_timeout_ms;
    run->parsed_ns = clock_now_ns();
    return T9_STATUS_OK;
}

/* What `s` and `msg` of the engine are to the client. That the prompt fits was seen before. */
static t9_status refused(const struct chat_run *run, t9_status s, const char *msg,
                         struct chat_error *err)
{
    if (s == T9_STATUS_AGAIN)
        return chat_fail_limit(err, msg);
    return chat_fail(err, s, s == T9_STATUS_INVALID ? prompt_field(run) : NULL,
                     s == T9_STATUS_INVALID ? "invalid_value"
                     : s == T9_STATUS_BUSY  ? "server_busy"
                                            : NULL,
                     "%s", msg);
}

static t9_status submit_choice(struct run_choice *c, struct t9_err *err)
{
    struct chat_run *run = c->run;
    const struct chat_request *q = &run->request;
    const struct prep_ids *prompt = &run->prompts[c->prompt];
    struct t9_request_params p = q->sampling;
    const char *stops[CHAT_STOPS_MAX];
    size_t stop_bytes[CHAT_STOPS_MAX];
    t9_request *r = NULL;
    for (size_t i = 0; i < q->n_stops; i++) {
        stops[i] = q->stops[i].p;
        stop_bytes[i] = q->stops[i].n;
    }
    p.prompt = prompt->p;
    p.n_prompt = prompt->n;
    p.marks = prompt->marks;
    p.n_marks = prompt->n_marks;
    p.max_tokens = c->max_tokens;
    p.choice = (uint32_t)(c->index % q->n);
    p.prompt_only = q->no_reply;
    p.text = !q->no_reply;
    p.text_starts = p.text && run_wants_details(run);
    p.stops = stops;
    p.stop_bytes = stop_bytes;
    p.n_stops = p.text ? q->n_stops : 0;
    if (p.text && run->dialect) {
        p.shown_ids = prep_info(run->prep)->shown_ids;
        p.n_shown_ids = prep_info(run->prep)->n_shown_ids;
    }
    p.stop_ids = q->stop_tokens;
    p.n_stop_ids = (size_t)q->n_stop_tokens;
    p.ignore_eos = q->ignore_eos;
    p.min_tokens = q->min_tokens;
    p.n_logprobs = q->logprobs ? 1 + q->n_top : 0;
    p.prompt_logprobs = q->logprobs && q->echo;
    p.priority = run->caller.has_priority ? run->caller.priority : q->priority;
    p.client_key = run->caller.client_key;
    p.queue_timeout_ms = run->queue_timeout_ms;
    p.received_ns = run->caller.received_ns;
    p.wake = on_engine;
    p.wake_ctx = c;
    T9_TRY(t9_engine_submit(prep_params_of(run->prep)->engine, &p, &r, err));
    atomic_store(&c->request, r);
    return T9_STATUS_OK;
}

static t9_status submit(struct chat_run *run, struct chat_error *err)
{
    struct t9_err e = {0};
    atomic_store(&run->n_parts, (unsigned)run->n_choices);
    for (size_t i = 0; i < run->n_choices; i++) {
        t9_status s = submit_choice(&run->choices[i], &e);
        if (s == T9_STATUS_OK) {
            atomic_store(&run->submitted, true);
            continue;
        }
        if (i == 0)
            return refused(run, s, e.msg, err);
        (void)refused(run, s, e.msg, &run->submit_error);
        atomic_store(&run->submit_failed, true);
        for (size_t k = 0; k < i; k++)
            t9_request_cancel(atomic_load(&run->choices[k].request));
        wake(run, (unsigned)(run->n_choices - i));
        break;
    }
    return T9_STATUS_OK;
}

/* ---- start ---- */

/* A reply that does not say what it should is none. */
static t9_status check_warnings(const struct chat_run *run, struct chat_error *err)
{
    if (run->request.warning_lost)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for the reply's warnings");
    return T9_STATUS_OK;
}

/* The engine has copies of its own, and all but what the reply tells of goes: a long prompt would
 * be in memory three times while it waits and runs. */
static void drop_input(struct chat_run *run)
{
    if (run->request.echo || run->request.token_ids)
        return;
    for (size_t i = 0; i < run->n_prompts; i++)
        prep_ids_drop(&run->prompts[i]);
    run->reply.prompt_ids = NULL;
    run->reply.n_prompt_ids = 0;
    /* What calls are checked by is in the body. */
    if (run->n_tools == 0)
        chat_request_drop_input(&run->request);
}

static t9_status answer_now(struct chat_run *run, struct chat_error *err)
{
    T9_TRY(run->adapter->answer(run->prep, &run->request, &run->answer, err));
    if (run->answer.failed)
        return chat_fail(err, T9_STATUS_TOO_LARGE, NULL, NULL, "the answer is too large");
    atomic_store(&run->n_parts, 1);
    wake(run, 1);
    return T9_STATUS_OK;
}

static void on_pull(void *ctx, bool last)
{
    wake(ctx, last);
}

/* A name of the hub: without its address, and without the tag that says nothing. */
static t9_status hub_name(str model, char out[PULL_NAME_BYTES_MAX], struct chat_error *err)
{
    static const char *const hosts[] = {"hf.co/", "huggingface.co/", "https://hf.co/",
                                        "https://huggingface.co/"};
    for (size_t i = 0; i < T9_COUNT(hosts); i++) {
        if (str_has_prefix(model, str_from(hosts[i])))
            model = str_slice(model, strlen(hosts[i]), model.n);
    }
    if (str_has_suffix(model, STR(":latest")))
        model.n -= strlen(":latest");
    if (model.n >= PULL_NAME_BYTES_MAX || memchr(model.p, '/', model.n) == NULL ||
        memchr(model.p, 0, model.n) != NULL)
        return chat_fail(err, T9_STATUS_INVALID, "model", "invalid_value",
                         "model must be OWNER/REPO or OWNER/REPO:QUANT of a hub, which is where "
                         "models are fetched from");
    (void)snprintf(out, PULL_NAME_BYTES_MAX, STR_FMT, STR_ARG(model));
    return T9_STATUS_OK;
}

/* Fetches the model that the request names; the served one is there. */
static t9_status pull_now(struct chat_run *run, struct chat_error *err)
{
    struct pull_hook *hook = prep_params_of(run->prep)->pull;
    char name[PULL_NAME_BYTES_MAX];
    struct t9_err e = {0};
    T9_TRY(make_state(run, err));
    if (prep_check_model(run->prep, &run->request, err) == T9_STATUS_OK)
        return answer_now(run, err);
    *err = (struct chat_error){0};
    if (!hook)
        return chat_fail(err, T9_STATUS_FORBIDDEN, "model", "pull_not_allowed",
                         "this server fetches no models for its clients: use tempo9 pull, or start "
                         "it with --allow-pull");
    T9_TRY(hub_name(run->request.model, name, err));
    T9_TRY(run->adapter->answer(run->prep, &run->request, &run->answer, err));
    atomic_store(&run->n_parts, 1);
    t9_status s = pull_start(&run->pull, hook, name, on_pull, run, &e);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s, NULL, s == T9_STATUS_BUSY ? "server_busy" : NULL, "%s", e.msg);
    atomic_store(&run->submitted, true);
    return T9_STATUS_OK;
}

t9_status chat_run_start(struct chat_run *run, str body, struct chat_error *err)
{
    struct chat_request *q = &run->request;
    T9_TRY(run->adapter->parse(body, prep_params_of(run->prep)->strict, q, err));
    atomic_store(&run->is_stream, q->stream);
    if (run->adapter->pulls)
        return pull_now(run, err);
    T9_TRY(prep_check_model(run->prep, q, err));
    T9_TRY(prep_check_ids(run->prep, q, err));
    prep_note_switches(run->prep, q);
    T9_TRY(check_warnings(run, err));
    if (is_gone(run))
        return gone(err);
    if (q->no_engine || !run->adapter->whole)
        return answer_now(run, err);
    T9_TRY(make_prompts(run, err));
    /* A raw prompt's answer is text and nothing else. */
    if (q->n_prompts == 0)
        run->dialect = prep_dialect(run->prep, q);
    T9_TRY(make_tools(run, err));
    T9_TRY(make_state(run, err));
    T9_TRY(make_choices(run, err));
    T9_TRY(check_warnings(run, err));
    if (is_gone(run))
        return gone(err);
    T9_TRY(submit(run, err));
    drop_input(run);
    return T9_STATUS_OK;
}

bool chat_run_is_stream(const struct chat_run *run)
{
    return atomic_load(&run->is_stream);
}

bool chat_run_notified(struct chat_run *run)
{
    run->n_taken++;
    /* Each wake is counted before it is made, and before its choice counts as ended: when all have
     * ended, no more are to come. */
    return atomic_load(&run->n_ended) == atomic_load(&run->n_parts) &&
           run->n_taken == atomic_load(&run->n_posted);
}

void chat_run_cancel(struct chat_run *run)
{
    if (!atomic_load(&run->submitted))
        return;
    if (run->pull)
        pull_stop(run->pull);
    for (size_t i = 0; i < run->n_choices; i++) {
        t9_request *r = atomic_load(&run->choices[i].request);
        if (r)
            t9_request_cancel(r);
    }
}
