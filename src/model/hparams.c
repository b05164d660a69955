/*
 * model/hparams.c - the metadata keys that decoder models share.
 *
 * Required keys are named when they are missing, every number is checked against a range, and a key
 * that would change the computation in a way that is not implemented refuses the model by name (a
 * wrong answer in silence is worse than none). Loading thread only.
 */
#include "model/model_impl.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const struct gguf *g;
    const char *arch;
    char key[128]; /* the last key made */
};

/* "<arch>.<suffix>"; suffixes are literals of this file, so it fits. */
static const char *key(struct reader *r, const char *suffix)
{
    (void)snprintf(r->key, sizeof(r->key), "%s.%s", r->arch, suffix);
    return r->key;
}

static t9_status in_range(const char *name, uint32_t v, uint32_t min, uint32_t max,
                          struct t9_err *err)
{
    if (v < min || v > max)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is %" PRIu32 ", outside %" PRIu32 "..%" PRIu32,
                       name, v, min, max);
    return T9_STATUS_OK;
}

/* Bounds of what can give finite numbers, far beyond released models. */
static t9_status f32_in_range(const char *name, float v, float min, float max, struct t9_err *err)
{
    if (v >= min && v <= max) /* false for NaN */
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_CORRUPT, "%s is %g, outside %g..%g", name, (double)v, (double)min,
                   (double)max);
}

/* A missing key leaves *v and is no error. */
static t9_status opt_u32(struct reader *r, const char *suffix, uint32_t *v, struct t9_err *err)
{
    t9_status st = gguf_get_u32(r->g, key(r, suffix), v, err);
    return st == T9_STATUS_NOT_FOUND ? T9_STATUS_OK : st;
}

static t9_status opt_f32(struct reader *r, const char *suffix, float *v, struct t9_err *err)
{
    t9_status st = gguf_get_f32(r->g, key(r, suffix), v, err);
    if (st == T9_STATUS_NOT_FOUND)
        return T9_STATUS_OK;
    if (st == T9_STATUS_OK && !isfinite(*v))
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is not a finite number", r->key);
    return st;
}

static t9_status need_i32(struct reader *r, const char *suffix, uint32_t max, int32_t *out,
                          struct t9_err *err)
{
    uint32_t v = 0;
    T9_TRY(gguf_get_u32(r->g, key(r, suffix), &v, err));
    T9_TRY(in_range(r->key, v, 1, max, err));
    *out = (int32_t)v;
    return T9_STATUS_OK;
}

/* A key that may be one number or one per layer, where all layers that attend must agree. */
static t9_status same_in_all_layers(struct reader *r, const char *suffix, const struct hparams *hp,
                                    uint32_t max, int32_t *out, struct t9_err *err)
{
    uint32_t first = 0, n = 0;
    (void)key(r, suffix);
    for (int32_t il = 0; il < hp->n_layers; il++) {
        uint32_t v = 0;
        if (hp->recurrent[il])
            continue;
        T9_TRY(gguf_get_u32_at(r->g, r->key, (uint64_t)il, &v, err));
        if (n++ == 0)
            first = v;
        if (v != first)
            return t9_fail(err, T9_STATUS_UNSUPPORTED,
                           "%s differs between layers (%" PRIu32 " and %" PRIu32 ")", r->key, first,
                           v);
    }
    *out = (int32_t)first;
    return in_range(r->key, first, 1, max, err);
}

/* A flag of each layer: the file's list, whose key was made last, or false for the last of each
 * period and true for the others. */
static t9_status read_flags(struct reader *r, const struct hparams *hp, bool listed,
                            uint32_t period, bool *out, struct t9_err *err)
{
    for (int32_t il = 0; il < hp->n_layers; il++) {
        uint32_t v = ((uint32_t)il + 1) % period != 0;
        if (listed)
            T9_TRY(gguf_get_u32_at(r->g, r->key, (uint64_t)il, &v, err));
        T9_TRY(in_range(r->key, v, 0, 1, err));
        out[il] = v != 0;
    }
    return T9_STATUS_OK;
}

/* By a period or a list, and behind the layers a draft head. */
static t9_status read_delta_layers(struct reader *r, struct hparams *hp, struct t9_err *err)
{
    uint32_t period = 4, n_draft = 0;
    T9_TRY(opt_u32(r, "nextn_predict_layers", &n_draft, err));
    T9_TRY(in_range(r->key, n_draft, 0, (uint32_t)hp->n_layers - 1, err));
    hp->n_draft_layers = (int32_t)n_draft;
    hp->n_layers -= (int32_t)n_draft;
    T9_TRY(opt_u32(r, "full_attention_interval", &period, err));
    T9_TRY(in_range(r->key, period, 1, LAYERS_MAX, err));
    bool listed = gguf_kv_find(r->g, key(r, "attention.recurrent_layers")) != NULL;
    if (!listed)
        (void)key(r, "full_attention_interval");
    return read_flags(r, hp, listed, period, hp->recurrent, err);
}

/* By "attention.head_count_kv": layers without KV heads. */
static t9_status read_conv_layers(struct reader *r, struct hparams *hp, struct t9_err *err)
{
    for (int32_t il = 0; il < hp->n_layers; il++) {
        uint32_t v = 0;
        T9_TRY(gguf_get_u32_at(r->g, key(r, "attention.head_count_kv"), (uint64_t)il, &v, err));
        hp->recurrent[il] = v == 0;
    }
    return T9_STATUS_OK;
}

/* Which layers are recurrent, where the architecture has such layers. */
static t9_status read_recurrent(struct reader *r, const struct arch *arch, struct hparams *hp,
                                struct t9_err *err)
{
    int32_t n = 0;
    if (arch->hybrid == HYBRID_DELTA)
        T9_TRY(read_delta_layers(r, hp, err));
    else if (arch->hybrid == HYBRID_CONV)
        T9_TRY(read_conv_layers(r, hp, err));
    for (int32_t il = 0; il < hp->n_layers; il++)
        n += hp->recurrent[il];
    if (n == hp->n_layers)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s says of all layers that they do not attend",
                       r->key);
    return T9_STATUS_OK;
}

/* Keys that may be lists have a value for each layer; a draft head's blocks may be counted, too. */
static t9_status check_lists(struct reader *r, const struct hparams *hp, struct t9_err *err)
{
    static const char *const suffixes[] = {
        "attention.head_count", "attention.head_count_kv", "attention.recurrent_layers",
        "attention.sliding_window_pattern", "feed_forward_length"};
    uint64_t n = (uint64_t)hp->n_layers, n_draft = (uint64_t)hp->n_draft_layers;
    for (size_t i = 0; i < T9_COUNT(suffixes); i++) {
        const struct gguf_kv *kv = gguf_kv_find(r->g, key(r, suffixes[i]));
        if (kv && kv->type == GGUF_TYPE_ARR && kv->arr.n != n && kv->arr.n != n + n_draft)
            return t9_fail(err, T9_STATUS_CORRUPT, "%s has %" PRIu64 " values for %d layers",
                           r->key, kv->arr.n, hp->n_layers);
    }
    return T9_STATUS_OK;
}

static bool is_own_key(const struct arch *arch, const char *suffix)
{
    for (size_t i = 0; arch->own_keys && arch->own_keys[i]; i++) {
        if (strcmp(arch->own_keys[i], suffix) == 0)
            return true;
    }
    return false;
}

/* Refuses keys that change the numbers and that this architecture does not compute. */
static t9_status refuse_foreign(struct reader *r, const struct model *m, struct t9_err *err)
{
    const struct hparams *hp = &m->hp;
    static const struct {
        const char *suffix;
        float neutral; /* a value besides 0 that changes nothing */
    } scales[] = {
        {"attn_logit_softcapping", 0},
        {"final_logit_softcapping", 0},
        {"logit_scale", 1},
        {"residual_scale", 1},
        {"embedding_scale", 1},
        {"attention.clamp_kqv", 0},
        {"attention.max_alibi_bias", 0},
        {"attention.temperature_scale", 0},
        {"rope.scaling.alpha", 0},
    };
    static const char *const counts[] = {"expert_count", "nextn_predict_layers",
                                         "attention.shared_kv_layers",
                                         "embedding_length_per_layer_input"};
    for (size_t i = 0; i < T9_COUNT(scales); i++) {
        float v = 0;
        T9_TRY(opt_f32(r, scales[i].suffix, &v, err));
        if (v != 0 && v != scales[i].neutral && !is_own_key(m->arch, scales[i].suffix))
            return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = %g is not supported for %s", r->key,
                           (double)v, r->arch);
    }
    for (size_t i = 0; i < T9_COUNT(counts); i++) {
        uint32_t v = 0;
        T9_TRY(opt_u32(r, counts[i], &v, err));
        if (v != 0 && !is_own_key(m->arch, counts[i]))
            return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = %" PRIu32 " is not supported for %s",
                           r->key, v, r->arch);
    }
    bool causal = true;
    t9_status st = gguf_get_bool(r->g, key(r, "attention.causal"), &causal, err);
    if (st != T9_STATUS_OK && st != T9_STATUS_NOT_FOUND)
        return st;
    if (!causal)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = false is not supported for %s", r->key,
                       r->arch);
    uint32_t n_out = (uint32_t)hp->n_embd;
    T9_TRY(opt_u32(r, "embedding_length_out", &n_out, err));
    if (n_out != (uint32_t)hp->n_embd)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = %" PRIu32 ", other than the width %d",
                       r->key, n_out, hp->n_embd);
    return T9_STATUS_OK;
}

/* The size of a head, where the file says one: its keys and values are equally long. */
static t9_status read_head_dim(struct reader *r, const char *key_suffix, const char *value_suffix,
                               uint32_t *k, struct t9_err *err)
{
    T9_TRY(opt_u32(r, key_suffix, k, err));
    T9_TRY(in_range(r->key, *k, 2, KV_HEAD_DIM_MAX, err));
    uint32_t v = *k;
    T9_TRY(opt_u32(r, value_suffix, &v, err));
    if (v != *k)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "%s = %" PRIu32 " differs from the key length %" PRIu32, r->key, v, *k);
    return T9_STATUS_OK;
}

static t9_status read_heads(struct reader *r, const struct arch *arch, struct hparams *hp,
                            struct t9_err *err)
{
    T9_TRY(same_in_all_layers(r, "attention.head_count", hp, HEADS_MAX, &hp->n_head, err));
    hp->n_head_kv = hp->n_head;
    if (gguf_kv_find(r->g, key(r, "attention.head_count_kv")) &&
        !is_own_key(arch, "attention.head_count_kv"))
        T9_TRY(
            same_in_all_layers(r, "attention.head_count_kv", hp, HEADS_MAX, &hp->n_head_kv, err));
    if (hp->n_head % hp->n_head_kv != 0)
        return t9_fail(err, T9_STATUS_CORRUPT, "%d heads are no multiple of %d KV heads",
                       hp->n_head, hp->n_head_kv);
    uint32_t k = (uint32_t)(hp->n_embd / hp->n_head);
    bool given = gguf_kv_find(r->g, key(r, "attention.key_length")) != NULL;
    if (!given && hp->n_embd % hp->n_head != 0)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "width %d is no multiple of %d heads and %s is missing", hp->n_embd,
                       hp->n_head, r->key);
    T9_TRY(read_head_dim(r, "attention.key_length", "attention.value_length", &k, err));
    hp->head_dim = (int32_t)k;
    hp->attn_scale = (float)(1 / sqrt((double)hp->head_dim));
    T9_TRY(opt_f32(r, "attention.scale", &hp->attn_scale, err));
    return f32_in_range(r->key, hp->attn_scale, 1e-6f, 1e3f, err);
}

/* A file that scales has a type: without one, what is left of the scaling says that it was lost. */
static t9_status refuse_untyped(struct reader *r, struct t9_err *err)
{
    static const char *const suffixes[] = {
        "rope.scaling.factor",          "rope.scaling.original_context_length",
        "rope.scaling.attn_factor",     "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",  "rope.scaling.yarn_beta_slow",
        "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_log_multiplier"};
    for (size_t i = 0; i < T9_COUNT(suffixes); i++) {
        if (gguf_kv_find(r->g, key(r, suffixes[i])))
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "%s.rope.scaling.type is missing, and %s is there: the file is damaged",
                           r->arch, r->key);
    }
    return T9_STATUS_OK;
}

/* *typed: the file says how angles are scaled. */
static t9_status read_scaling_type(struct reader *r, struct rope_params *p, bool *typed,
                                   struct t9_err *err)
{
    str type;
    t9_status st = gguf_get_str(r->g, key(r, "rope.scaling.type"), &type, err);
    *typed = st == T9_STATUS_OK;
    if (st == T9_STATUS_NOT_FOUND) {
        p->scaling = ROPE_SCALING_LINEAR; /* what "rope.scale_linear" wants */
        return refuse_untyped(r, err);
    }
    T9_TRY(st);
    if (str_eqz(type, "none"))
        p->scaling = ROPE_SCALING_NONE;
    else if (str_eqz(type, "linear"))
        p->scaling = ROPE_SCALING_LINEAR;
    else if (str_eqz(type, "yarn"))
        p->scaling = ROPE_SCALING_YARN;
    else
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "%s '%.*s' is not supported; known: none, linear, yarn", r->key,
                       (int)(type.n < 32 ? type.n : 32), type.p);
    return T9_STATUS_OK;
}

/* By how much angles are scaled. Only files without a type may have no factor. */
static t9_status read_factor(struct reader *r, struct rope_params *p, bool typed,
                             struct t9_err *err)
{
    T9_TRY(opt_f32(r, "rope.scale_linear", &p->factor, err)); /* what old files call it */
    if (typed && p->scaling != ROPE_SCALING_NONE)
        T9_TRY(gguf_get_f32(r->g, key(r, "rope.scaling.factor"), &p->factor, err));
    else
        T9_TRY(opt_f32(r, "rope.scaling.factor", &p->factor, err));
    if (p->scaling == ROPE_SCALING_YARN)
        return f32_in_range(r->key, p->factor, 1, 1000, err);
    if (p->factor == 0) /* some files say 0 for "none" */
        p->factor = 1;
    return f32_in_range(r->key, p->factor, 1e-3f, 1e6f, err);
}

/* How often a pair turns where YaRN's ramp begins or ends; far beyond what models have (32, 1). */
static t9_status read_beta(struct reader *r, const char *suffix, float *beta, struct t9_err *err)
{
    T9_TRY(opt_f32(r, suffix, beta, err));
    return f32_in_range(r->key, *beta, 1e-3f, 1e4f, err);
}

static t9_status read_yarn(struct reader *r, struct rope_params *p, struct t9_err *err)
{
    float ext = -1, yarn_attn = 1;
    int32_t original = 0;
    T9_TRY(need_i32(r, "rope.scaling.original_context_length", INT32_MAX, &original, err));
    p->original_context = (float)original;
    T9_TRY(read_beta(r, "rope.scaling.yarn_beta_fast", &p->beta_fast, err));
    T9_TRY(read_beta(r, "rope.scaling.yarn_beta_slow", &p->beta_slow, err));
    if (p->beta_slow > p->beta_fast)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is %g, more than the fast one's %g", r->key,
                       (double)p->beta_slow, (double)p->beta_fast);
    T9_TRY(opt_f32(r, "rope.scaling.yarn_log_multiplier", &p->log_multiplier, err));
    T9_TRY(opt_f32(r, "rope.scaling.attn_factor", &p->attn_factor, err));
    T9_TRY(opt_f32(r, "rope.scaling.yarn_attn_factor", &yarn_attn, err));
    T9_TRY(opt_f32(r, "rope.scaling.yarn_ext_factor", &ext, err));
    if (!(p->freq_base > 1))
        return t9_fail(err, T9_STATUS_CORRUPT, "YaRN with %s.rope.freq_base = %g", r->arch,
                       (double)p->freq_base);
    if (ext != 1 && ext >= 0)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = %g is not supported (1 or absent is)",
                       r->key, (double)ext);
    p->attn_factor *= yarn_attn;
    return T9_STATUS_OK;
}

/* Below 1 frequencies would grow with the dimension instead of falling. */
static t9_status read_freq_base(struct reader *r, const char *suffix, struct rope_params *p,
                                struct t9_err *err)
{
    T9_TRY(opt_f32(r, suffix, &p->freq_base, err));
    return f32_in_range(r->key, p->freq_base, 1, 1e12f, err);
}

static t9_status read_rope(struct reader *r, const struct arch *arch, struct hparams *hp,
                           struct t9_err *err)
{
    struct rope_params *p = &hp->rope;
    bool typed = false;
    uint32_t n_rot = (uint32_t)hp->head_dim;
    T9_TRY(opt_u32(r, "rope.dimension_count", &n_rot, err));
    T9_TRY(in_range(r->key, n_rot, 2, (uint32_t)hp->head_dim, err));
    if (n_rot % 2 != 0)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s = %" PRIu32 " is odd", r->key, n_rot);
    p->n_rot = (int32_t)n_rot;
    p->freq_base = 10000;
    p->factor = 1;
    p->beta_fast = 32;
    p->beta_slow = 1;
    p->attn_factor = 1;
    if (!arch->old_freq_base)
        T9_TRY(gguf_get_f32(r->g, key(r, "rope.freq_base"), &p->freq_base, err));
    T9_TRY(read_freq_base(r, "rope.freq_base", p, err));
    T9_TRY(read_scaling_type(r, p, &typed, err));
    T9_TRY(read_factor(r, p, typed, err));
    if (p->scaling == ROPE_SCALING_YARN)
        return read_yarn(r, p, err);
    float magnitude = 1; /* to ignore it would be to compute another model, in silence */
    T9_TRY(opt_f32(r, "rope.scaling.attn_factor", &magnitude, err));
    if (magnitude != 1)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = %g is not supported without YaRN (1 is)",
                       r->key, (double)magnitude);
    return T9_STATUS_OK;
}

t9_status hparams_read(struct model *m, const struct gguf *g, bool neox, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    *hp = (struct hparams){.rope.neox = neox, .embd_scale = 1, .act = ACT_SILU};
    T9_TRY(need_i32(&r, "block_count", LAYERS_MAX, &hp->n_layers, err));
    T9_TRY(need_i32(&r, "context_length", INT32_MAX, &hp->context_length, err));
    T9_TRY(need_i32(&r, "embedding_length", EMBD_MAX, &hp->n_embd, err));
    T9_TRY(gguf_get_f32(g, key(&r, "attention.layer_norm_rms_epsilon"), &hp->eps, err));
    T9_TRY(f32_in_range(r.key, hp->eps, 1e-30f, 0.1f, err));
    T9_TRY(refuse_foreign(&r, m, err));
    T9_TRY(read_recurrent(&r, m->arch, hp, err));
    T9_TRY(check_lists(&r, hp, err));
    T9_TRY(read_heads(&r, m->arch, hp, err));
    return read_rope(&r, m->arch, hp, err);
}

void hparams_ignore_window(const struct model *m, const struct gguf *g)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    if (gguf_kv_find(g, key(&r, "attention.sliding_window")))
        LOG_INFO("model", "%s is ignored: released %s models attend to everything", r.key, r.arch);
}

t9_status hparams_whole_heads(const struct model *m, struct t9_err *err)
{
    if (m->hp.rope.n_rot != m->hp.head_dim)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "%s.rope.dimension_count is %d, the head's %d is wanted", m->arch->name,
                       m->hp.rope.n_rot, m->hp.head_dim);
    return T9_STATUS_OK;
}

t9_status hparams_sections(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    uint32_t n[3] = {0}, half = (uint32_t)hp->rope.n_rot / 2;
    for (uint64_t i = 0; i < 3; i++) {
        T9_TRY(gguf_get_u32_at(g, key(&r, "rope.dimension_sections"), i, &n[i], err));
        T9_TRY(in_range(r.key, n[i], 0, half, err));
    }
    const struct gguf_kv *kv = gguf_kv_find(g, r.key);
    if (kv->type == GGUF_TYPE_ARR && kv->arr.n > 4)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s has %" PRIu64 " values for 4 positions", r.key,
                       kv->arr.n);
    uint32_t fourth = 0; /* files have it, and it is 0 */
    if (gguf_get_u32_at(g, r.key, 3, &fourth, NULL) == T9_STATUS_OK && fourth != 0)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s has %" PRIu32 " pairs for a fourth position",
                       r.key, fourth);
    if (n[0] + n[1] + n[2] != half)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%s is %" PRIu32 ", %" PRIu32 " and %" PRIu32 " of %" PRIu32 " pairs", r.key,
                       n[0], n[1], n[2], half);
    if (3 * n[1] > half + 1 || 3 * n[2] > half + 2)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "%s has more pairs for h or w (%" PRIu32 ", %" PRIu32
                       ") than every third of %" PRIu32,
                       r.key, n[1], n[2], half);
    hp->rope_h = (int32_t)n[1];
    hp->rope_w = (int32_t)n[2];
    return T9_STATUS_OK;
}

t9_status hparams_deepstack(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    uint32_t n = 0;
    T9_TRY(opt_u32(&r, "n_deepstack_layers", &n, err));
    T9_TRY(in_range(r.key, n, 0, (uint32_t)m->hp.n_layers, err));
    m->hp.n_deepstack = (int32_t)n;
    return T9_STATUS_OK;
}

t9_status hparams_temperature(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    uint32_t every = 0;
    T9_TRY(opt_f32(&r, "attention.temperature_scale", &hp->q_temperature, err));
    if (hp->q_temperature == 0)
        return T9_STATUS_OK;
    T9_TRY(f32_in_range(r.key, hp->q_temperature, 0, 10, err));
    T9_TRY(gguf_get_u32(g, key(&r, "rope.scaling.original_context_length"), &every, err));
    T9_TRY(in_range(r.key, every, 1, INT32_MAX, err));
    if ((hp->context_length - 1) / (int32_t)every >= TEMPERATURES_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is %" PRIu32 " of a context of %d", r.key, every,
                       hp->context_length);
    hp->q_temperature_every = (int32_t)every;
    return T9_STATUS_OK;
}

t9_status hparams_window(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    uint32_t window = 0;
    T9_TRY(opt_u32(&r, "attention.sliding_window", &window, err));
    T9_TRY(in_range(r.key, window, 0, INT32_MAX, err));
    hp->window = (int32_t)window;
    hp->rope_sliding = hp->rope;
    for (int32_t il = 0; il < hp->n_layers && window > 0; il++)
        hp->sliding[il] = !hp->recurrent[il];
    return T9_STATUS_OK;
}

t9_status hparams_short_conv(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    T9_TRY(need_i32(&r, "shortconv.l_cache", STATE_TAPS_MAX, &hp->state.taps, err));
    hp->state.channels = hp->n_embd;
    return in_range(r.key, (uint32_t)hp->state.taps, 2, STATE_TAPS_MAX, err);
}

/* Keys of routing that is done in another way. */
static t9_status refuse_routing(struct reader *r, bool sigmoid, struct t9_err *err)
{
    const struct {
        const char *suffix;
        uint32_t known[2]; /* besides 0 */
    } keys[] = {
        {"expert_shared_count", {0}},
        {"expert_group_count", {1}},
        {"expert_group_used_count", {1}},
        /* Sigmoids; softmax over all, over the chosen. */
        {"expert_gating_func", {sigmoid ? 2 : 1, sigmoid ? 2 : 3}},
    };
    uint32_t func = 0;
    if (sigmoid) { /* elsewhere a file without it, or with 0, means the softmax */
        T9_TRY(gguf_get_u32(r->g, key(r, "expert_gating_func"), &func, err));
        T9_TRY(in_range(r->key, func, 1, 4, err));
    }
    for (size_t i = 0; i < T9_COUNT(keys); i++) {
        uint32_t v = 0;
        T9_TRY(opt_u32(r, keys[i].suffix, &v, err));
        if (v != 0 && v != keys[i].known[0] && v != keys[i].known[1])
            return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = %" PRIu32 " is not supported for %s",
                           r->key, v, r->arch);
    }
    float scale = 1;
    T9_TRY(opt_f32(r, "expert_weights_scale", &scale, err));
    if (scale != 0 && scale != 1 && !sigmoid)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = %g is not supported for %s", r->key,
                       (double)scale, r->arch);
    bool norm = true;
    t9_status st = gguf_get_bool(r->g, key(r, "expert_weights_norm"), &norm, err);
    if (st != T9_STATUS_OK && st != T9_STATUS_NOT_FOUND)
        return st;
    if (!norm)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s = false is not supported for %s", r->key,
                       r->arch);
    return T9_STATUS_OK;
}

t9_status hparams_experts(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    T9_TRY(need_i32(&r, "expert_count", EXPERTS_MAX, &hp->n_experts, err));
    T9_TRY(need_i32(&r, "expert_used_count", EXPERTS_USED_MAX, &hp->n_experts_used, err));
    if (hp->n_experts_used > hp->n_experts)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is %d of %d experts", r.key, hp->n_experts_used,
                       hp->n_experts);
    T9_TRY(need_i32(&r, "expert_feed_forward_length", FF_MAX, &hp->n_ff_expert, err));
    T9_TRY(opt_f32(&r, "expert_weights_scale", &hp->route_scale, err));
    if (hp->route_scale == 0) /* some files say 0 for "none" */
        hp->route_scale = 1;
    T9_TRY(f32_in_range(r.key, hp->route_scale, 1e-3f, 1e3f, err));
    return refuse_routing(&r, m->arch->blocks.sigmoid_router, err);
}

t9_status hparams_shared_expert(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    return need_i32(&r, "expert_shared_feed_forward_length", FF_MAX, &m->hp.n_ff_shared, err);
}

static t9_status read_delta(struct reader *r, struct state_shape *s, struct t9_err *err)
{
    int32_t inner = 0;
    T9_TRY(need_i32(r, "ssm.conv_kernel", STATE_TAPS_MAX, &s->taps, err));
    T9_TRY(in_range(r->key, (uint32_t)s->taps, 2, STATE_TAPS_MAX, err));
    T9_TRY(need_i32(r, "ssm.state_size", STATE_DIM_MAX, &s->key_dim, err));
    T9_TRY(need_i32(r, "ssm.group_count", HEADS_MAX, &s->n_key_heads, err));
    T9_TRY(need_i32(r, "ssm.time_step_rank", HEADS_MAX, &s->n_heads, err));
    if (s->n_heads % s->n_key_heads != 0)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is %d, no multiple of %d key heads", r->key,
                       s->n_heads, s->n_key_heads);
    T9_TRY(need_i32(r, "ssm.inner_size", HEADS_MAX * STATE_DIM_MAX, &inner, err));
    if (inner % s->n_heads != 0)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is %d, no multiple of %d heads", r->key, inner,
                       s->n_heads);
    s->value_dim = inner / s->n_heads;
    s->channels = 2 * s->n_key_heads * s->key_dim + inner;
    return T9_STATUS_OK;
}

t9_status hparams_delta(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    return read_delta(&r, &m->hp.state, err);
}

/* Which layers slide: one of each period does not, or the file has a list. */
static t9_status read_pattern(struct reader *r, struct hparams *hp, uint32_t period,
                              struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(r->g, key(r, "attention.sliding_window_pattern"));
    bool listed = kv && kv->type == GGUF_TYPE_ARR;
    if (kv && !listed) {
        T9_TRY(gguf_get_u32(r->g, r->key, &period, err));
        T9_TRY(in_range(r->key, period, 1, LAYERS_MAX, err));
    }
    return read_flags(r, hp, listed, period, hp->sliding, err);
}

t9_status hparams_sliding(struct model *m, const struct gguf *g, uint32_t period,
                          struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    T9_TRY(need_i32(&r, "attention.sliding_window", INT32_MAX, &hp->window, err));
    T9_TRY(read_pattern(&r, hp, period, err));
    hp->rope_sliding = (struct rope_params){.n_rot = hp->rope.n_rot,
                                            .neox = hp->rope.neox,
                                            .freq_base = 10000,
                                            .factor = 1,
                                            .attn_factor = 1};
    return read_freq_base(&r, "rope.freq_base_swa", &hp->rope_sliding, err);
}

t9_status hparams_sliding_heads(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    uint32_t k = (uint32_t)hp->head_dim;
    T9_TRY(read_head_dim(&r, "attention.key_length_swa", "attention.value_length_swa", &k, err));
    uint32_t n_rot = k;
    T9_TRY(opt_u32(&r, "rope.dimension_count_swa", &n_rot, err));
    if (n_rot != k)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "%s is %" PRIu32 ", the head's %" PRIu32 " is wanted", r.key, n_rot, k);
    if (k % 2 != 0)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s of %" PRIu32 " rotated dimensions: odd", r.key,
                       k);
    hp->head_dim_sliding = (int32_t)k;
    hp->rope_sliding.n_rot = (int32_t)k;
    return T9_STATUS_OK;
}

t9_status hparams_gemma4(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct reader r = {.g = g, .arch = m->arch->name};
    struct hparams *hp = &m->hp;
    uint32_t shared = 0, n_ple = 0;
    T9_TRY(opt_u32(&r, "attention.shared_kv_layers", &shared, err));
    T9_TRY(in_range(r.key, shared, 0, (uint32_t)hp->n_layers - 1, err));
    T9_TRY(opt_u32(&r, "embedding_length_per_layer_input", &n_ple, err));
    T9_TRY(in_range(r.key, n_ple, 0, PLE_MAX, err));
    T9_TRY(opt_f32(&r, "final_logit_softcapping", &hp->logit_cap, err));
    if (hp->logit_cap != 0)
        T9_TRY(f32_in_range(r.key, hp->logit_cap, 1e-3f, 1e6f, err));
    hp->n_shared_kv = (int32_t)shared;
    hp->n_ple = (int32_t)n_ple;
    return T9_STATUS_OK;
}

t9_status hparams_check_rows(const struct gguf *g, uint64_t n_rows, struct t9_err *err)
{
    struct gguf_arr tokens = {0};
    if (gguf_get_arr(g, "tokenizer.ggml.tokens", &tokens, NULL) != T9_STATUS_OK ||
        n_rows >= tokens.n)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_CORRUPT,
                   "token_embd.weight has %" PRIu64 " rows, and the tokenizer %" PRIu64
                   " tokens: the file is damaged",
                   n_rows, tokens.n);
}
