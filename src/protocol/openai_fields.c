/*
 * protocol/openai_fields.c - parsers of fields that several requests share. Any thread; nothing
 * here has state.
 */
#include "protocol/openai_fields.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>

t9_status openai_model(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return policy_wrong(c, f->name, "a string", v);
    c->request->model = json_str(v);
    return T9_STATUS_OK;
}

t9_status openai_stream_options(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    /* Padding against those who listen would be theirs to remove; nothing leaves this machine. */
    static const char *const names[] = {"include_usage", "include_obfuscation"};
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), f->name, f->name));
    yyjson_val *usage = json_get(v, "include_usage");
    if (!usage || yyjson_is_null(usage))
        return T9_STATUS_OK;
    if (!yyjson_is_bool(usage))
        return policy_wrong(c, "stream_options.include_usage", "true or false", usage);
    c->request->include_usage = yyjson_is_true(usage);
    return T9_STATUS_OK;
}

t9_status openai_seed(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    int64_t i = 0;
    if (!yyjson_is_uint(v) && !policy_whole(v, &i))
        return policy_wrong(c, f->name, "a whole number of 64 bits", v);
    c->request->sampling.seed = yyjson_is_uint(v) ? yyjson_get_uint(v) : (uint64_t)i;
    c->request->seed_is_negative = i < 0;
    c->request->has_seed = true;
    return T9_STATUS_OK;
}

/* -1 is what several clients send for "off". */
t9_status openai_top_k(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(policy_i32(c, f, v));
    if (c->request->sampling.top_k < 0)
        c->request->sampling.top_k = 0;
    return T9_STATUS_OK;
}

t9_status openai_top_p(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (yyjson_is_num(v) && !(yyjson_get_num(v) > 0))
        return policy_wrong(c, f->name, "greater than 0 and at most 1", v);
    return policy_f32(c, f, v);
}

static t9_status add_stop(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    str s = json_str(v);
    if (!yyjson_is_str(v) || s.n == 0 || s.n > CHAT_STOP_BYTES_MAX)
        return policy_wrong(c, f->name, "made of strings of 1 to 256 bytes", v);
    if (r->n_stops == CHAT_STOPS_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                         "%s has more than %d strings", f->name, CHAT_STOPS_MAX);
    if (!r->stops)
        r->stops = arena_calloc(&r->kept, CHAT_STOPS_MAX, sizeof *r->stops);
    s = arena_str(&r->kept, s);
    if (!r->stops || !s.p)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory for %s", f->name);
    r->stops[r->n_stops++] = s;
    return T9_STATUS_OK;
}

t9_status openai_stop(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    size_t idx, max;
    yyjson_val *item;
    c->request->n_stops = 0;
    if (!yyjson_is_arr(v))
        return add_stop(c, f, v);
    yyjson_arr_foreach(v, idx, max, item)
    {
        T9_TRY(add_stop(c, f, item));
    }
    return T9_STATUS_OK;
}

t9_status openai_template_kwargs(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const ours[] = {"messages",  "tools",     "documents",
                                       "bos_token", "eos_token", "add_generation_prompt"};
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    for (size_t i = 0; i < T9_COUNT(ours); i++) {
        if (json_get(v, ours[i]))
            return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                             "chat_template_kwargs must not set %s: the server does", ours[i]);
    }
    c->request->template_kwargs = v;
    return T9_STATUS_OK;
}

t9_status openai_enable_thinking(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_bool(v))
        return policy_wrong(c, f->name, "true or false", v);
    c->request->has_thinking = true;
    c->request->thinking = yyjson_is_true(v);
    c->request->thinking_field = f->name;
    return T9_STATUS_OK;
}

t9_status openai_reasoning_effort(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; i < T9_COUNT(known); i++) {
        if (str_eqz(json_str(v), known[i])) {
            c->request->reasoning_effort = json_str(v);
            c->request->effort_field = f->name;
            return T9_STATUS_OK;
        }
    }
    return policy_wrong(c, f->name, "none, minimal, low, medium, high, xhigh or max", v);
}

t9_status openai_parallel(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_bool(v))
        return policy_wrong(c, f->name, "true or false", v);
    c->request->one_call = yyjson_is_false(v);
    return T9_STATUS_OK;
}

/* A token id as a JSON number, -1 when it is none. */
static int32_t token_of(yyjson_val *v)
{
    int64_t id = -1;
    return policy_whole(v, &id) && id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

static t9_status too_many(struct policy_ctx *c, const struct policy_field *f, size_t n,
                          const char *what, int max)
{
    return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                     "%s has %zu %s, and at most %d are taken", f->name, n, what, max);
}

t9_status openai_stop_token_ids(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    size_t idx, max;
    yyjson_val *item;
    r->n_stop_tokens = 0;
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of token ids", v);
    if (yyjson_arr_size(v) > T9_STOP_IDS_MAX)
        return too_many(c, f, yyjson_arr_size(v), "token ids", T9_STOP_IDS_MAX);
    r->stop_tokens = arena_calloc(&r->kept, yyjson_arr_size(v) + 1, sizeof *r->stop_tokens);
    if (!r->stop_tokens)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory for stop_token_ids");
    yyjson_arr_foreach(v, idx, max, item)
    {
        int32_t id = token_of(item);
        if (id < 0)
            return policy_wrong(c, f->name, "made of token ids", item);
        r->stop_tokens[r->n_stop_tokens++] = id;
    }
    return T9_STATUS_OK;
}

t9_status openai_logit_bias(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object of token ids with a number each", v);
    if (yyjson_obj_size(v) > T9_BIAS_MAX)
        return too_many(c, f, yyjson_obj_size(v), "biases", T9_BIAS_MAX);
    struct t9_logit_bias *bias = arena_calloc(&r->arena, yyjson_obj_size(v) + 1, sizeof *bias);
    if (!bias)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory for logit_bias");
    int32_t n = 0;
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        int64_t id = -1;
        if (!num_parse_i64(json_str(key), &id) || id < 0 || id > INT32_MAX)
            return policy_wrong(c, f->name, "an object whose names are token ids", key);
        if (!yyjson_is_num(value) || !(fabs(yyjson_get_num(value)) <= 100))
            return policy_wrong(c, f->name, "made of numbers from -100 to 100", value);
        bias[n++] = (struct t9_logit_bias){(int32_t)id, (float)yyjson_get_num(value)};
    }
    r->sampling.bias = bias;
    r->sampling.n_bias = (size_t)n;
    return T9_STATUS_OK;
}

t9_status openai_token_array(struct policy_ctx *c, const char *name, yyjson_val *v,
                             struct chat_prompt *out)
{
    size_t n = yyjson_arr_size(v), idx, max;
    yyjson_val *item;
    int32_t *ids = arena_calloc(&c->request->arena, n + 1, sizeof *ids);
    if (!ids)
        return chat_fail(c->err, T9_STATUS_TOO_LARGE, name, NULL, "%s has too many tokens", name);
    yyjson_arr_foreach(v, idx, max, item)
    {
        ids[idx] = token_of(item);
        if (ids[idx] < 0)
            return policy_wrong(c, name, "made of token ids", item);
    }
    *out = (struct chat_prompt){.tokens = ids, .n_tokens = n};
    return T9_STATUS_OK;
}

bool openai_is_one(yyjson_val *v)
{
    return yyjson_is_num(v) && !(yyjson_get_num(v) < 1) && !(yyjson_get_num(v) > 1);
}

t9_status openai_parse(str body, bool strict, const struct policy_field *fields, size_t n_fields,
                       struct chat_request *out, struct chat_error *err)
{
    struct t9_err e = {0};
    struct policy_ctx ctx = {out, err, strict};
    char brief[80];
    t9_status s = json_parse(&out->doc, body, JSON_LIMITS_REQUEST, &e);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s == T9_STATUS_NOMEM ? s : T9_STATUS_INVALID, NULL, "invalid_json",
                         "the body is not acceptable JSON: %s", e.msg);
    yyjson_val *root = yyjson_doc_get_root(out->doc);
    if (!yyjson_is_obj(root))
        return chat_fail(err, T9_STATUS_INVALID, NULL, "invalid_value",
                         "the body must be a JSON object, not %s", chat_brief(root, brief));
    return policy_walk(&ctx, fields, n_fields, root);
}

t9_status openai_missing(const char *name, struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_INVALID, name, "missing_required_parameter", "%s is missing",
                     name);
}
