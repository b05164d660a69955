/*
 * protocol/ollama_fields.c - parsers of fields that several requests share. Any thread; nothing
 * here has state.
 */
#include "protocol/ollama_fields.h"

t9_status ollama_model(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    c->request->latest_tag = true;
    return openai_model(c, f, v);
}

t9_status ollama_think(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const levels[] = {"low", "medium", "high"};
    if (yyjson_is_bool(v))
        return openai_enable_thinking(c, f, v);
    for (size_t i = 0; i < T9_COUNT(levels); i++) {
        if (str_eqz(json_str(v), levels[i]))
            return openai_reasoning_effort(c, f, v);
    }
    return policy_wrong(c, f->name, "true, false, low, medium or high", v);
}

/* ---- options ---- */

bool ollama_is_true(yyjson_val *v)
{
    return yyjson_is_true(v);
}

/* What is left of a sum of 0 is its first token. */
t9_status ollama_top_p(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(policy_f32(c, f, v));
    if (c->request->sampling.top_p <= 0)
        c->request->sampling.top_p = 1e-30f;
    return T9_STATUS_OK;
}

t9_status ollama_seed(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    T9_TRY(openai_seed(c, f, v));
    r->has_seed = !r->seed_is_negative;
    r->seed_is_negative = false;
    return T9_STATUS_OK;
}

t9_status ollama_num_predict(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(policy_i64(c, f, v));
    if (c->request->max_tokens < 0)
        c->request->max_tokens = 0;
    return T9_STATUS_OK;
}

/* Its meaning depends on the penalties, which may come after it: see ollama_options. */
t9_status ollama_repeat_last_n(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    int64_t n = 0;
    if (!policy_whole(v, &n) || (double)n < f->min || (double)n > f->max)
        return policy_wrong(c, f->name, "a whole number from -1 to 2147483647", v);
    return T9_STATUS_OK;
}

static bool is_on(float penalty, float off)
{
    return penalty < off || penalty > off;
}

static void choose_window(struct chat_request *r, yyjson_val *window)
{
    struct t9_request_params *p = &r->sampling;
    int64_t n = -1;
    if (!policy_whole(window, &n) || n < 0)
        return;
    bool repetition = p->repetition_penalty > 0 && is_on(p->repetition_penalty, 1);
    if (n > 0 && (repetition || is_on(p->presence_penalty, 0) || is_on(p->frequency_penalty, 0)))
        chat_warn(r, "the penalties look at all of prompt and answer, not at the last %lld tokens",
                  (long long)n);
    if (n > 0)
        return;
    p->repetition_penalty = 1;
    p->presence_penalty = p->frequency_penalty = 0;
}

static const struct policy_field option_fields[] = {OLLAMA_OPTIONS};

t9_status ollama_options(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    T9_TRY(policy_walk_in(c, option_fields, T9_COUNT(option_fields), f->name, v));
    choose_window(c->request, json_get(v, "repeat_last_n"));
    return T9_STATUS_OK;
}

/* ---- requests ---- */

t9_status ollama_parse(str body, bool strict, const struct policy_field *fields, size_t n_fields,
                       struct chat_request *out, struct chat_error *err)
{
    out->stream = true;
    out->limit_field = "options.num_predict";
    T9_TRY(openai_parse(body, strict, fields, n_fields, out, err));
    if (out->n_top > 0 && !out->logprobs)
        return chat_fail(err, T9_STATUS_INVALID, "top_logprobs", "invalid_value",
                         "top_logprobs needs logprobs to be true");
    return T9_STATUS_OK;
}

/* A number of seconds, or text such as "0", "0s" and "0h0m". */
static bool is_no_time(yyjson_val *v)
{
    str s = json_str(v);
    bool zero = false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] >= '1' && s.p[i] <= '9')
            return false;
        zero |= s.p[i] == '0';
    }
    return zero || policy_is_zero(v);
}

t9_status ollama_load(struct chat_request *r, struct chat_error *err)
{
    if (is_no_time(json_get(yyjson_doc_get_root(r->doc), "keep_alive")))
        return chat_fail(err, T9_STATUS_UNSUPPORTED, "keep_alive", "unsupported_parameter",
                         "keep_alive = 0 without anything to answer asks to unload the model, and "
                         "it stays loaded until the server is stopped");
    r->no_engine = true;
    r->stream = false;
    return T9_STATUS_OK;
}
