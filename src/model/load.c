/*
 * model/load.c - from a GGUF file to a model that can run: the table of architectures, binding of
 * tensors with their shapes, and the entry points of model.h.
 *
 * Binding goes by name. Each tensor of the file is marked when it is used; one that nothing
 * explains refuses the file, because it may change what the model computes. Loading allocates; a
 * forward does not. Load and free by one thread; a loaded model is immutable.
 */
#include "model/model_impl.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct arch *const archs[] = {
    &arch_gemma3,    &arch_gemma4,   &arch_gpt_oss,   &arch_lfm2,    &arch_lfm2moe,
    &arch_llama,     &arch_mistral3, &arch_qwen2,     &arch_qwen3,   &arch_qwen35,
    &arch_qwen35moe, &arch_qwen3moe, &arch_qwen3next, &arch_qwen3vl, &arch_qwen3vlmoe};

const char *model_known_archs(void)
{
    return "gemma3, gemma4, gpt-oss, lfm2, lfm2moe, llama, mistral3, qwen2, qwen3, qwen35, "
           "qwen35moe, qwen3moe, qwen3next, qwen3vl, qwen3vlmoe";
}

enum { OPTIONALS_MAX = 16 };

/* A name that layers may have a tensor of. */
struct optional {
    char name[64];
    int32_t layer; /* the first that asked for it, and ... */
    bool there;    /* ... whether it has one */
};

/* Loading state. */
struct binder {
    struct model *m;
    const struct gguf *g;
    const struct model_load_params *params;
    bool *used; /* [tensor count] */
    uint64_t done_bytes, total_bytes;
    struct optional optionals[OPTIONALS_MAX];
    int n_optionals;
};

/* What a weight_src reads from: of each `step_bytes` of a tensor, part_bytes from `offset` on. */
struct tensor_src {
    struct binder *b;
    const struct gguf_tensor *t;
    uint64_t step_bytes, part_bytes, offset;
};

/* Whether all of n bytes of values are finite. A router or a gate can hide a value that is none:
 * what comes out are numbers, but not the model's. */
static bool all_finite(const char *bytes, size_t n)
{
    float v[256];
    for (size_t now; n >= sizeof(*v); bytes += now, n -= now) {
        now = n < sizeof(v) ? n / sizeof(*v) * sizeof(*v) : sizeof(v);
        memcpy(v, bytes, now);
        if (!num_all_finite(v, now / sizeof(*v)))
            return false;
    }
    return true;
}

static t9_status read_tensor(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err)
{
    struct tensor_src *s = ctx;
    struct binder *b = s->b;
    const char *values = dst;
    size_t n_bytes = n;
    b->done_bytes += n;
    for (char *to = dst; n > 0;) {
        uint64_t in_part = off % s->part_bytes, left = s->part_bytes - in_part;
        uint64_t from = off / s->part_bytes * s->step_bytes + s->offset + in_part;
        size_t now = n < left ? n : (size_t)left;
        T9_TRY(gguf_tensor_read(b->g, s->t, from, to, now, err));
        to += now;
        off += now;
        n -= now;
    }
    if (s->t->dtype == DTYPE_F32 && !all_finite(values, n_bytes))
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tensor " STR_FMT
                       " has a value that is no finite number: the file is damaged",
                       STR_ARG(s->t->name));
    if (b->params && b->params->progress &&
        !b->params->progress(b->params->ctx, b->done_bytes, b->total_bytes))
        return t9_fail(err, T9_STATUS_CANCELLED, "loading was cancelled");
    return T9_STATUS_OK;
}

static t9_status read_memory(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err)
{
    (void)err;
    memcpy(dst, (const char *)ctx + off, n);
    return T9_STATUS_OK;
}

/* Vectors that no tensor has: both kinds of frequencies, the query scale, gemma4's ones. */
enum { N_MADE = 5 };

/* A slot of m->weights. The capacity covers what is made and two parts of every tensor. Of those
 * that are bound in more (qwen3next's ssm_in in four) a layer has one, beside several of one. */
static struct weight *weight_slot(struct model *m)
{
    return m->n_weights < m->weights_cap ? &m->weights[m->n_weights] : NULL;
}

/* A tensor's dimensions: values of a row, rows, matrices (0: no third dimension). */
struct shape {
    int32_t n_in, n_out, n_experts;
};

static t9_status wrong_shape(const struct gguf_tensor *t, struct shape s, struct t9_err *err)
{
    char want[48];
    if (s.n_experts > 0)
        (void)snprintf(want, sizeof(want), "[%d, %d, %d]", s.n_in, s.n_out, s.n_experts);
    else if (s.n_out == 1)
        (void)snprintf(want, sizeof(want), "[%d]", s.n_in);
    else
        (void)snprintf(want, sizeof(want), "[%d, %d]", s.n_in, s.n_out);
    if (t->n_dims <= 1)
        return t9_fail(err, T9_STATUS_CORRUPT, STR_FMT " is [%" PRIu64 "], %s is expected",
                       STR_ARG(t->name), t->ne[0], want);
    if (t->n_dims == 2)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       STR_FMT " is [%" PRIu64 ", %" PRIu64 "], %s is expected", STR_ARG(t->name),
                       t->ne[0], t->ne[1], want);
    return t9_fail(err, T9_STATUS_CORRUPT,
                   STR_FMT " is [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                           "], %s is expected",
                   STR_ARG(t->name), t->ne[0], t->ne[1], t->ne[2], t->ne[3], want);
}

static size_t tensor_index(const struct gguf *g, const struct gguf_tensor *t)
{
    return (size_t)(t - gguf_tensor_at(g, 0));
}

/* "blk.<layer>.<name>", or "<name>" for layer < 0. */
static const struct gguf_tensor *tensor_of(const struct binder *b, int32_t layer, const char *name,
                                           char full[64])
{
    if (layer < 0)
        (void)snprintf(full, 64, "%s", name);
    else
        (void)snprintf(full, 64, "blk.%d.%s", layer, name);
    return gguf_tensor_find(b->g, full);
}

/* An optional tensor is in all layers that ask for it or in none: a file of which one is lost would
 * be computed without it, in silence. */
static t9_status check_optional(struct binder *b, int32_t layer, const char *name, bool there,
                                struct t9_err *err)
{
    int i = 0;
    while (i < b->n_optionals && strcmp(b->optionals[i].name, name) != 0)
        i++;
    struct optional *o = &b->optionals[i];
    if (i == b->n_optionals) {
        if (i == OPTIONALS_MAX)
            return t9_fail(err, T9_STATUS_INTERNAL, "more kinds of optional tensors than %d", i);
        o->layer = layer;
        o->there = there;
        (void)snprintf(o->name, sizeof(o->name), "%s", name);
        b->n_optionals++;
    }
    if (o->there != there)
        return t9_fail(err, T9_STATUS_CORRUPT, "tensor blk.%d.%s is missing; layer %d has one",
                       there ? o->layer : layer, name, there ? layer : o->layer);
    return T9_STATUS_OK;
}

/* Finds a tensor and marks it used; *out == NULL when absent. */
static t9_status find(struct binder *b, const struct gguf_tensor **out, int32_t layer,
                      const char *name, struct shape s, int flags, struct t9_err *err)
{
    char full[64];
    *out = tensor_of(b, layer, name, full);
    if (layer >= 0 && (flags & BIND_OPTIONAL))
        T9_TRY(check_optional(b, layer, name, *out != NULL, err));
    if (!*out) {
        if (flags & BIND_OPTIONAL)
            return T9_STATUS_OK;
        return t9_fail(err, T9_STATUS_CORRUPT, "tensor %s is missing", full);
    }
    const struct gguf_tensor *t = *out;
    uint64_t n_experts = s.n_experts > 0 ? (uint64_t)s.n_experts : 1;
    if (t->ne[0] != (uint64_t)s.n_in || t->ne[1] != (uint64_t)s.n_out || t->ne[2] != n_experts ||
        t->ne[3] != 1)
        return wrong_shape(t, s, err);
    b->used[tensor_index(b->g, t)] = true;
    return T9_STATUS_OK;
}

/* What of a tensor is loaded: all, or some rows of each expert, or with `step` from row `first` on
 * `run` of each so many. */
struct part {
    int32_t n_experts, first, n_out, run, step;
};

static t9_status read_weight(struct binder *b, struct weight *w, const struct gguf_tensor *t,
                             bool vector, struct part part, struct t9_err *err)
{
    uint64_t row_bytes = dtype_row_bytes(t->dtype, t->ne[0]);
    struct tensor_src ctx = {.b = b, .t = t};
    ctx.step_bytes = (part.step ? (uint64_t)part.step : t->ne[1]) * row_bytes;
    ctx.part_bytes = (uint64_t)(part.step ? part.run : part.n_out) * row_bytes;
    ctx.offset = (uint64_t)part.first * row_bytes;
    char name[GGUF_TENSOR_NAME_MAX + 1];
    (void)snprintf(name, sizeof(name), STR_FMT, STR_ARG(t->name));
    struct weight_src src = {.name = name,
                             .dtype = t->dtype,
                             .n_in = (int32_t)t->ne[0],
                             .n_out = part.n_out,
                             .n_experts = part.n_experts,
                             .read = read_tensor,
                             .ctx = &ctx};
    return vector ? be_vector_load(b->m->be, w, &src, err) : be_weight_load(b->m->be, w, &src, err);
}

static t9_status load(struct binder *b, const struct weight **out, const struct gguf_tensor *t,
                      bool vector, struct part part, struct t9_err *err)
{
    struct weight *w = weight_slot(b->m);
    if (!w)
        return t9_fail(err, T9_STATUS_INTERNAL, "more weights than tensors");
    T9_TRY(read_weight(b, w, t, vector, part, err));
    b->m->n_weights++;
    b->m->info.weight_bytes += w->size_bytes;
    *out = w;
    return T9_STATUS_OK;
}

t9_status bind_matrix(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                      int32_t n_in, int32_t n_out, int flags, struct t9_err *err)
{
    const struct gguf_tensor *t = NULL;
    *out = NULL;
    T9_TRY(find(b, &t, layer, name, (struct shape){n_in, n_out, 0}, flags, err));
    return t ? load(b, out, t, false, (struct part){.n_out = n_out}, err) : T9_STATUS_OK;
}

t9_status bind_vector(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                      int32_t n, int flags, struct t9_err *err)
{
    const struct gguf_tensor *t = NULL;
    *out = NULL;
    T9_TRY(find(b, &t, layer, name, (struct shape){n, 1, 0}, flags, err));
    return t ? load(b, out, t, true, (struct part){.n_out = 1}, err) : T9_STATUS_OK;
}

bool binder_has(const struct binder *b, int32_t layer, const char *name)
{
    char full[64];
    return tensor_of(b, layer, name, full) != NULL;
}

t9_status bind_rows(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                    int32_t n_in, struct row_groups r, struct t9_err *err)
{
    const struct gguf_tensor *t = NULL;
    T9_TRY(
        find(b, &t, layer, name, (struct shape){n_in, r.n_groups * r.step, 0}, BIND_REQUIRED, err));
    struct part part = {
        .first = r.first, .n_out = r.n_groups * r.run, .run = r.run, .step = r.step};
    return load(b, out, t, false, part, err);
}

/* "<stem>.bias" of the weight that was loaded last: n_out values, or of each of n_experts. */
static t9_status bind_bias(struct binder *b, int32_t layer, const char *stem, struct shape s,
                           int flags, struct t9_err *err)
{
    char name[64];
    const struct gguf_tensor *t = NULL;
    const struct weight *bias = NULL;
    struct weight *w = &b->m->weights[b->m->n_weights - 1];
    if (flags & BIND_NO_BIAS)
        return T9_STATUS_OK;
    int32_t n = s.n_experts > 0 ? s.n_experts : 1;
    (void)snprintf(name, sizeof(name), "%s.bias", stem);
    T9_TRY(find(b, &t, layer, name, (struct shape){s.n_out, n, 0}, flags, err));
    if (!t)
        return T9_STATUS_OK;
    T9_TRY(load(b, &bias, t, true, (struct part){.n_out = n}, err));
    w->bias = bias->data;
    return T9_STATUS_OK;
}

t9_status bind_linear(struct binder *b, const struct weight **out, int32_t layer, const char *stem,
                      int32_t n_in, int32_t n_out, int bias_flags, struct t9_err *err)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%s.weight", stem);
    T9_TRY(bind_matrix(b, out, layer, name, n_in, n_out, BIND_REQUIRED, err));
    return bind_bias(b, layer, stem, (struct shape){n_in, n_out, 0}, bias_flags, err);
}

/* A vector that no tensor has so. */
static t9_status bind_made(struct model *m, const struct weight **out, const char *name,
                           float *values, int32_t n, struct t9_err *err)
{
    struct weight_src src = {.name = name,
                             .dtype = DTYPE_F32,
                             .n_in = n,
                             .n_out = 1,
                             .read = read_memory,
                             .ctx = values};
    struct weight *w = weight_slot(m);
    if (!w)
        return t9_fail(err, T9_STATUS_INTERNAL, "more weights than tensors");
    T9_TRY(be_vector_load(m->be, w, &src, err));
    m->n_weights++;
    *out = w;
    return T9_STATUS_OK;
}

t9_status bind_conv(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                    int32_t taps, int32_t channels, struct t9_err *err)
{
    const struct gguf_tensor *t = NULL;
    struct weight flat;
    size_t n = (size_t)taps * (size_t)channels;
    char full[64];
    T9_TRY(find(b, &t, layer, name, (struct shape){taps, channels, 0}, BIND_REQUIRED, err));
    T9_TRY(read_weight(b, &flat, t, true, (struct part){.n_out = channels}, err));
    const float *from = flat.data;
    float *rows = mem_calloc(n, sizeof(float));
    t9_status st = T9_STATUS_OK;
    if (!rows)
        st = t9_fail(err, T9_STATUS_NOMEM, "no memory for %s", flat.name);
    for (size_t i = 0; rows && i < n; i++)
        rows[i % (size_t)taps * (size_t)channels + i / (size_t)taps] = from[i];
    (void)tensor_of(b, layer, name, full);
    if (st == T9_STATUS_OK)
        st = bind_made(b->m, out, full, rows, (int32_t)n, err);
    if (st == T9_STATUS_OK)
        b->m->info.weight_bytes += flat.size_bytes;
    be_weight_free(b->m->be, &flat);
    mem_free(rows);
    return st;
}

/* The values of a vector, which the caller frees; NULL when optional and absent. */
static t9_status read_vector(struct binder *b, float **out, int32_t layer, const char *name,
                             int32_t n, int flags, struct t9_err *err)
{
    const struct gguf_tensor *t = NULL;
    struct weight w;
    *out = NULL;
    T9_TRY(find(b, &t, layer, name, (struct shape){n, 1, 0}, flags, err));
    if (!t)
        return T9_STATUS_OK;
    T9_TRY(read_weight(b, &w, t, true, (struct part){.n_out = 1}, err));
    *out = mem_alloc((size_t)n * sizeof(float));
    if (*out)
        memcpy(*out, w.data, (size_t)n * sizeof(float));
    be_weight_free(b->m->be, &w);
    return *out ? T9_STATUS_OK : t9_fail(err, T9_STATUS_NOMEM, "no memory for %s", name);
}

t9_status bind_scaled(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                      int32_t n, float factor, int flags, struct t9_err *err)
{
    char full[64];
    float *values;
    *out = NULL;
    T9_TRY(read_vector(b, &values, layer, name, n, flags, err));
    if (!values)
        return T9_STATUS_OK;
    for (int32_t i = 0; i < n; i++)
        values[i] *= factor;
    (void)tensor_of(b, layer, name, full);
    t9_status st = bind_made(b->m, out, full, values, n, err);
    if (st == T9_STATUS_OK)
        b->m->info.weight_bytes += (*out)->size_bytes;
    mem_free(values);
    return st;
}

t9_status bind_ones(struct binder *b, const struct weight **out, int32_t n, struct t9_err *err)
{
    float ones[KV_HEAD_DIM_MAX];
    for (int32_t i = 0; i < KV_HEAD_DIM_MAX; i++)
        ones[i] = 1;
    return bind_made(b->m, out, "ones", ones, n, err);
}

t9_status bind_number(struct binder *b, float *out, int32_t layer, const char *name,
                      struct t9_err *err)
{
    float *value;
    T9_TRY(read_vector(b, &value, layer, name, 1, BIND_OPTIONAL, err));
    float v = value ? *value : *out;
    mem_free(value);
    if (!isfinite(v))
        return t9_fail(err, T9_STATUS_CORRUPT, "blk.%d.%s is %g", layer, name, (double)v);
    *out = v;
    return T9_STATUS_OK;
}

void bind_unused(struct binder *b, int32_t layer, const char *name)
{
    char full[64];
    const struct gguf_tensor *t = tensor_of(b, layer, name, full);
    if (!t)
        return;
    b->used[tensor_index(b->g, t)] = true;
    LOG_INFO("model", "tensor %s is not used", full);
}

/* Rotary frequencies become a device vector, so that no forward computes a power. */
static t9_status bind_frequencies(struct model *m, const struct rope_params *p,
                                  const float *factors, const char *name, struct rope_table *out,
                                  struct t9_err *err)
{
    float inv_freq[ROPE_MAX / 2];
    rope_frequencies(p, factors, inv_freq, &out->magnitude);
    bool usable = out->magnitude >= 1e-3f && out->magnitude <= 1e3f;
    for (int32_t i = 0; i < p->n_rot / 2; i++)
        usable = usable && inv_freq[i] <= 1e4f; /* times a position it is a finite angle */
    if (!usable)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "what scales the rotary angles makes them useless (a magnitude of %g)",
                       (double)out->magnitude);
    return bind_made(m, &out->inv_freq, name, inv_freq, p->n_rot / 2, err);
}

/* The factors that queries grow by, as double rounded once. */
static t9_status bind_q_scale(struct model *m, struct t9_err *err)
{
    const struct hparams *hp = &m->hp;
    float scale[TEMPERATURES_MAX];
    if (hp->q_temperature_every == 0)
        return T9_STATUS_OK;
    int32_t n = (hp->context_length - 1) / hp->q_temperature_every + 1;
    for (int32_t i = 0; i < n; i++)
        scale[i] = (float)(1 + (double)hp->q_temperature * log1p(i));
    return bind_made(m, &m->q_scale, "q_scale", scale, n, err);
}

static t9_status bind_rope(struct model *m, struct binder *b, struct t9_err *err)
{
    const struct weight *factors = NULL;
    int32_t half = m->hp.rope.n_rot / 2;
    T9_TRY(bind_vector(b, &factors, -1, "rope_freqs.weight", half, BIND_OPTIONAL, err));
    const float *ff = factors ? factors->data : NULL;
    for (int32_t i = 0; ff && i < half; i++) {
        if (!(ff[i] > 0))
            return t9_fail(err, T9_STATUS_CORRUPT, "rope_freqs.weight has %g at %d", (double)ff[i],
                           i);
    }
    T9_TRY(bind_frequencies(m, &m->hp.rope, ff, "rope_inv_freq", &m->rope, err));
    if (m->hp.window == 0)
        return T9_STATUS_OK;
    return bind_frequencies(m, &m->hp.rope_sliding, NULL, "rope_inv_freq_sliding", &m->rope_sliding,
                            err);
}

t9_status bind_ends(struct model *m, struct binder *b, struct t9_err *err)
{
    struct hparams *hp = &m->hp;
    T9_TRY(bind_rope(m, b, err));
    T9_TRY(bind_q_scale(m, err));
    const struct gguf_tensor *t = gguf_tensor_find(b->g, "token_embd.weight");
    if (t && (t->ne[1] < 1 || t->ne[1] > VOCAB_MAX))
        return t9_fail(err, T9_STATUS_CORRUPT, "token_embd.weight has %" PRIu64 " rows", t->ne[1]);
    if (t)
        T9_TRY(hparams_check_rows(b->g, t->ne[1], err));
    hp->n_vocab = t ? (int32_t)t->ne[1] : 0;
    T9_TRY(bind_matrix(b, &m->token_embd, -1, "token_embd.weight", hp->n_embd, hp->n_vocab,
                       BIND_REQUIRED, err));
    const char *norm = m->arch->blocks.output_norm;
    T9_TRY(bind_vector(b, &m->output_norm, -1, norm ? norm : "output_norm.weight", hp->n_embd,
                       BIND_REQUIRED, err));
    T9_TRY(bind_matrix(b, &m->output, -1, "output.weight", hp->n_embd, hp->n_vocab,
                       m->arch->blocks.untied ? BIND_REQUIRED : BIND_OPTIONAL, err));
    if (!m->output)
        m->output = m->token_embd;
    return T9_STATUS_OK;
}

t9_status bind_layer_key(struct binder *b, int32_t *out, int32_t layer, const char *suffix,
                         int32_t max, struct t9_err *err)
{
    char key[96];
    uint32_t v = 0;
    (void)snprintf(key, sizeof(key), "%s.%s", b->m->arch->name, suffix);
    T9_TRY(gguf_get_u32_at(b->g, key, (uint64_t)layer, &v, err));
    if (v < 1 || v > (uint32_t)max)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s is %" PRIu32 " in layer %d, outside 1..%d", key,
                       v, layer, max);
    *out = (int32_t)v;
    return T9_STATUS_OK;
}

/* One matrix of each expert. */
static t9_status bind_stack(struct binder *b, const struct weight **out, int32_t layer,
                            const char *stem, struct shape s, int bias_flags, struct t9_err *err)
{
    char name[64];
    const struct gguf_tensor *t = NULL;
    (void)snprintf(name, sizeof(name), "%s.weight", stem);
    T9_TRY(find(b, &t, layer, name, s, BIND_REQUIRED, err));
    T9_TRY(load(b, out, t, false, (struct part){.n_experts = s.n_experts, .n_out = s.n_out}, err));
    return bind_bias(b, layer, stem, s, bias_flags, err);
}

/* Gate and up of each expert, one tensor each, or one with the gate's rows first. */
static t9_status bind_gate_up(struct binder *b, struct layer *l, int32_t il, struct shape s,
                              int bias_flags, struct t9_err *err)
{
    static const char merged[] = "ffn_gate_up_exps.weight";
    char full[64];
    const struct gguf_tensor *t = tensor_of(b, il, merged, full);
    if (!t) {
        T9_TRY(bind_stack(b, &l->gate, il, "ffn_gate_exps", s, bias_flags, err));
        return bind_stack(b, &l->up, il, "ffn_up_exps", s, bias_flags, err);
    }
    T9_TRY(find(b, &t, il, merged, (struct shape){s.n_in, 2 * s.n_out, s.n_experts}, BIND_REQUIRED,
                err));
    T9_TRY(load(b, &l->gate, t, false, (struct part){.n_experts = s.n_experts, .n_out = s.n_out},
                err));
    return load(b, &l->up, t, false,
                (struct part){.n_experts = s.n_experts, .first = s.n_out, .n_out = s.n_out}, err);
}

static t9_status bind_shared_expert(struct model *m, struct binder *b, int32_t il,
                                    struct t9_err *err)
{
    struct layer *l = &m->layers[il];
    int32_t n_embd = m->hp.n_embd, n_ff = m->hp.n_ff_shared, bias = m->arch->blocks.other_bias;
    T9_TRY(bind_linear(b, &l->shared_router, il, "ffn_gate_inp_shexp", n_embd, 1, bias, err));
    T9_TRY(bind_linear(b, &l->shared_gate, il, "ffn_gate_shexp", n_embd, n_ff, bias, err));
    T9_TRY(bind_linear(b, &l->shared_up, il, "ffn_up_shexp", n_embd, n_ff, bias, err));
    return bind_linear(b, &l->shared_down, il, "ffn_down_shexp", n_ff, n_embd, bias, err);
}

t9_status bind_ffn(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    const struct hparams *hp = &m->hp;
    struct layer *l = &m->layers[il];
    int bias = m->arch->blocks.other_bias;
    bool dense = hp->n_experts == 0 || (binder_has(b, il, "ffn_gate.weight") &&
                                        !binder_has(b, il, "ffn_gate_inp.weight"));
    if (dense) {
        T9_TRY(bind_layer_key(b, &l->n_ff, il, "feed_forward_length", FF_MAX, err));
        T9_TRY(bind_linear(b, &l->gate, il, "ffn_gate", hp->n_embd, l->n_ff, bias, err));
        T9_TRY(bind_linear(b, &l->up, il, "ffn_up", hp->n_embd, l->n_ff, bias, err));
        return bind_linear(b, &l->down, il, "ffn_down", l->n_ff, hp->n_embd, bias, err);
    }
    struct shape in = {hp->n_embd, hp->n_ff_expert, hp->n_experts};
    struct shape back = {hp->n_ff_expert, hp->n_embd, hp->n_experts};
    l->n_ff = hp->n_ff_expert;
    T9_TRY(bind_linear(b, &l->router, il, "ffn_gate_inp", hp->n_embd, hp->n_experts, bias, err));
    if (m->arch->blocks.sigmoid_router)
        T9_TRY(bind_vector(b, &l->router_bias, il, "exp_probs_b.bias", hp->n_experts, BIND_OPTIONAL,
                           err));
    T9_TRY(bind_gate_up(b, l, il, in, bias, err));
    T9_TRY(bind_stack(b, &l->down, il, "ffn_down_exps", back, bias, err));
    return m->arch->blocks.shared_expert ? bind_shared_expert(m, b, il, err) : T9_STATUS_OK;
}

void layer_new_kv(struct model *m, int32_t il)
{
    m->layers[il].kv_layer = m->hp.n_kv_layers++;
}

void layer_new_state(struct model *m, int32_t il)
{
    m->layers[il].state_layer = m->hp.state.n_layers++;
}

t9_status bind_attention(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    const struct hparams *hp = &m->hp;
    const struct block_spec *spec = &m->arch->blocks;
    struct layer *l = &m->layers[il];
    int32_t n_embd = hp->n_embd, n_q = hp->n_head * l->head_dim;
    int32_t n_kv = l->n_head_kv * l->head_dim;
    layer_new_kv(m, il);
    T9_TRY(bind_vector(b, &l->attn_norm, il, "attn_norm.weight", n_embd, BIND_REQUIRED, err));
    if (spec->q_gate) {
        struct row_groups query = {hp->n_head, 2 * l->head_dim, 0, l->head_dim}, gate = query;
        gate.first = l->head_dim;
        T9_TRY(bind_rows(b, &l->q, il, "attn_q.weight", n_embd, query, err));
        T9_TRY(bind_rows(b, &l->q_gate, il, "attn_q.weight", n_embd, gate, err));
    } else {
        T9_TRY(bind_linear(b, &l->q, il, "attn_q", n_embd, n_q, spec->qkv_bias, err));
    }
    T9_TRY(bind_linear(b, &l->k, il, "attn_k", n_embd, n_kv, spec->qkv_bias, err));
    T9_TRY(bind_linear(b, &l->v, il, "attn_v", n_embd, n_kv, spec->qkv_bias, err));
    T9_TRY(bind_linear(b, &l->o, il, "attn_output", n_q, n_embd, spec->other_bias, err));
    if (spec->qk_norm) {
        T9_TRY(
            bind_vector(b, &l->q_norm, il, "attn_q_norm.weight", l->head_dim, BIND_REQUIRED, err));
        T9_TRY(
            bind_vector(b, &l->k_norm, il, "attn_k_norm.weight", l->head_dim, BIND_REQUIRED, err));
    }
    if (!spec->sinks)
        return T9_STATUS_OK;
    return bind_vector(b, &l->sinks, il, "attn_sinks.weight", hp->n_head, BIND_REQUIRED, err);
}

t9_status bind_block(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    const struct block_spec *spec = &m->arch->blocks;
    struct layer *l = &m->layers[il];
    int32_t n_embd = m->hp.n_embd;
    T9_TRY(bind_attention(m, b, il, err));
    T9_TRY(bind_vector(b, &l->ffn_norm, il, spec->ffn_norm ? spec->ffn_norm : "ffn_norm.weight",
                       n_embd, BIND_REQUIRED, err));
    if (spec->post_norms) {
        T9_TRY(bind_vector(b, &l->post_attn_norm, il, "post_attention_norm.weight", n_embd,
                           BIND_REQUIRED, err));
        T9_TRY(bind_vector(b, &l->post_ffn_norm, il, "post_ffw_norm.weight", n_embd, BIND_REQUIRED,
                           err));
    }
    return bind_ffn(m, b, il, err);
}

/* The tensors of all layers. */
static t9_status bind_layers(struct model *m, struct binder *b, struct t9_err *err)
{
    for (int32_t il = 0; il < m->hp.n_layers; il++) {
        struct layer *l = &m->layers[il];
        l->kv_layer = l->state_layer = -1;
        l->n_head_kv = m->hp.n_head_kv;
        l->head_dim = m->hp.head_dim;
        T9_TRY(m->arch->bind ? m->arch->bind(m, b, il, err) : bind_block(m, b, il, err));
        if (l->n_ff > m->hp.n_ff_max)
            m->hp.n_ff_max = l->n_ff;
    }
    return T9_STATUS_OK;
}

/* Tensors that files carry although nothing here reads them, by the end of their names. */
static bool known_unused(str name)
{
    static const char *const ends[] = {
        ".attn_rot_embd.weight",     /* tables of old converters; we compute the frequencies */
        ".attn.rotary_emb.inv_freq", /* the same */
        "cls.output.weight",         /* heads of rerankers and classifiers */
        "cls.weight",
    };
    for (size_t i = 0; i < T9_COUNT(ends); i++) {
        if (str_has_suffix(name, str_from(ends[i])))
            return true;
    }
    return false;
}

static bool is_of_block(str name, int32_t block)
{
    char start[32];
    (void)snprintf(start, sizeof(start), "blk.%d.", block);
    return str_has_prefix(name, str_from(start));
}

/* Of a block behind the layers: a draft head's. */
static bool is_of_draft(const struct model *m, str name)
{
    for (int32_t i = 0; i < m->hp.n_draft_layers; i++) {
        if (is_of_block(name, m->hp.n_layers + i))
            return true;
    }
    return false;
}

bool model_ignores_tensor(const struct model *m, str name)
{
    return known_unused(name) || is_of_draft(m, name);
}

static void log_draft(const struct binder *b, int32_t block)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(b->g); i++)
        n += is_of_block(gguf_tensor_at(b->g, i)->name, block);
    LOG_INFO("model", "draft head: %" PRIu64 " tensors of block %d are not used", n, block);
}

/* A draft head's blocks say that they are: a count that is too large must not hide layers. */
static t9_status check_draft(const struct binder *b, struct t9_err *err)
{
    const struct hparams *hp = &b->m->hp;
    for (int32_t il = hp->n_layers; il < hp->n_layers + hp->n_draft_layers; il++) {
        if (!binder_has(b, il, "nextn.eh_proj.weight"))
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "tensor blk.%d.nextn.eh_proj.weight is missing: by "
                           "%s.nextn_predict_layers = %d the block is a draft head's",
                           il, b->m->arch->name, hp->n_draft_layers);
        log_draft(b, il);
    }
    return T9_STATUS_OK;
}

static t9_status check_all_used(const struct binder *b, struct t9_err *err)
{
    T9_TRY(check_draft(b, err));
    for (uint64_t i = 0; i < gguf_tensor_count(b->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b->g, i);
        if (b->used[i] || is_of_draft(b->m, t->name)) /* check_draft has told of the latter */
            continue;
        if (!known_unused(t->name))
            return t9_fail(err, T9_STATUS_UNSUPPORTED,
                           "tensor " STR_FMT " is not one that architecture '%s' has here",
                           STR_ARG(t->name), b->m->arch->name);
        LOG_INFO("model", "tensor " STR_FMT " is not used", STR_ARG(t->name));
    }
    return T9_STATUS_OK;
}

static t9_status find_arch(const struct gguf *g, const struct arch **out, struct t9_err *err)
{
    str name;
    T9_TRY(gguf_get_str(g, "general.architecture", &name, err));
    for (size_t i = 0; i < T9_COUNT(archs); i++) {
        if (str_eqz(name, archs[i]->name)) {
            *out = archs[i];
            return T9_STATUS_OK;
        }
    }
    /* A message may be too short for all of them. */
    LOG_INFO("model", "supported architectures: %s", model_known_archs());
    const char *what = relative_find(name);
    if (what)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "architecture '" STR_FMT "' is not supported (%s); known: %s", STR_ARG(name),
                       what, model_known_archs());
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "architecture '%.*s' is not supported; known: %s",
                   (int)(name.n < 64 ? name.n : 64), name.p, model_known_archs());
}

static t9_status fill_info(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct model_info *info = &m->info;
    const struct hparams *hp = &m->hp;
    str name = {0};
    t9_status st = gguf_get_str(g, "general.name", &name, err);
    if (st != T9_STATUS_OK && st != T9_STATUS_NOT_FOUND)
        return st;
    m->name = mem_strndup(name.n ? name.p : "", name.n);
    if (!m->name)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for the model's name");
    info->arch = m->arch->name;
    info->name = (str){m->name, name.n};
    info->n_layers = hp->n_layers;
    info->n_embd = hp->n_embd;
    info->n_vocab = hp->n_vocab;
    info->n_head = hp->n_head;
    info->n_head_kv = hp->n_head_kv;
    info->head_dim = hp->head_dim;
    info->n_ff = hp->n_ff_max;
    info->context_length = hp->context_length;
    info->n_recurrent = hp->state.n_layers;
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        info->n_params += n;
        if (is_of_draft(m, t->name))
            info->n_draft_params += n;
    }
    const struct weight *table = m->g4.ple_embd;
    if (table)
        info->n_table_params = (uint64_t)table->n_in * (uint64_t)table->n_out;
    for (int32_t il = 0; il < hp->n_layers; il++) {
        if (m->layers[il].kv_layer >= 0)
            info->n_query += (int64_t)hp->n_head * m->layers[il].head_dim;
    }
    info->n_experts = hp->n_experts;
    info->n_experts_used = hp->n_experts_used;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct weight *w = &m->weights[i];
        info->n_expert_params += (uint64_t)w->n_in * (uint64_t)w->n_out * (uint64_t)w->n_experts;
    }
    return T9_STATUS_OK;
}

/* Pages and states that can't be made are refused now, not by the first request. */
static t9_status check_memory_shapes(const struct model *m, struct t9_err *err)
{
    struct kv_geom kv;
    struct state_geom state;
    T9_TRY(model_kv_geom(m, KV_TYPE_F32, &kv, err));
    const struct state_shape *s = &m->hp.state;
    if (!state_geom_init(&state, s))
        return t9_fail(
            err, T9_STATUS_UNSUPPORTED,
            "no recurrent state of %d layers, %d taps of %d channels, %d heads of %d x %d "
            "values that share %d key heads",
            s->n_layers, s->taps, s->channels, s->n_heads, s->key_dim, s->value_dim,
            s->n_key_heads);
    return T9_STATUS_OK;
}

/* Everything of model_load after the model exists; the caller frees it on failure. */
static t9_status load_into(struct model *m, struct binder *b, struct t9_err *err)
{
    const struct gguf *g = b->g;
    T9_TRY(find_arch(g, &m->arch, err));
    T9_TRY(m->arch->hparams(m, g, err));
    uint64_t n_tensors = gguf_tensor_count(g);
    m->weights_cap = 2 * (size_t)n_tensors + N_MADE;
    m->weights = mem_calloc(m->weights_cap, sizeof(*m->weights));
    m->layers = mem_calloc((size_t)m->hp.n_layers, sizeof(*m->layers));
    b->used = mem_calloc((size_t)n_tensors + 1, sizeof(*b->used));
    if (!m->weights || !m->layers || !b->used)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for %" PRIu64 " weights", n_tensors);
    for (uint64_t i = 0; i < n_tensors; i++)
        b->total_bytes += gguf_tensor_at(g, i)->size_bytes;
    T9_TRY(bind_ends(m, b, err));
    T9_TRY(bind_layers(m, b, err));
    T9_TRY(check_memory_shapes(m, err));
    T9_TRY(check_all_used(b, err));
    return fill_info(m, g, err);
}

t9_status model_check_arch(const struct gguf *g, struct t9_err *err)
{
    const struct arch *arch;
    t9_status st = find_arch(g, &arch, err);
    return st == T9_STATUS_OK ? st : gguf_name_file(g, st, err);
}

t9_status model_load(struct model **out, const struct gguf *g, struct be *be,
                     const struct model_load_params *params, struct t9_err *err)
{
    *out = NULL;
    struct model *m = mem_calloc(1, sizeof(*m));
    if (!m)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a model");
    m->be = be;
    struct binder b = {.m = m, .g = g, .params = params};
    t9_status st = load_into(m, &b, err);
    mem_free(b.used);
    if (st != T9_STATUS_OK) {
        model_free(m);
        return gguf_name_file(g, st, err);
    }
    *out = m;
    return T9_STATUS_OK;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_weights; i++)
        be_weight_free(m->be, &m->weights[i]);
    mem_free(m->weights);
    mem_free(m->layers);
    mem_free(m->name);
    mem_free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

t9_status model_kv_geom(const struct model *m, kv_type type, struct kv_geom *out,
                        struct t9_err *err)
{
    const struct hparams *hp = &m->hp;
    struct kv_shape shapes[LAYERS_MAX];
    /* A prefix of a hybrid model is resumed where a state was kept, so pages go as a whole there.
     */
    int32_t window = hp->state.n_layers > 0 ? 0 : hp->window;
    for (int32_t il = 0; il < hp->n_layers; il++) {
        const struct layer *l = &m->layers[il];
        if (l->kv_layer >= 0)
            shapes[l->kv_layer] =
                (struct kv_shape){l->n_head_kv, l->head_dim, hp->sliding[il] ? window : 0};
    }
    if (!kv_geom_init(out, shapes, hp->n_kv_layers, type))
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "no KV pages of %d layers with up to %d heads of up to %d values",
                       hp->n_kv_layers, hp->n_head_kv, hp->head_dim);
    return T9_STATUS_OK;
}

void model_state_geom(const struct model *m, struct state_geom *out)
{
    (void)state_geom_init(out, &m->hp.state);
}

double model_kv_read_bytes(const struct model *m, const struct kv_geom *kv, double depth)
{
    double bytes = 0;
    for (int32_t il = 0; il < m->hp.n_layers; il++) {
        int32_t i = m->layers[il].kv_layer;
        bool short_of = m->hp.sliding[il] && depth > m->hp.window;
        if (i >= 0)
            bytes += (short_of ? m->hp.window : depth) * (double)kv->layers[i].layer_bytes;
    }
    return bytes / KV_PAGE_TOKENS;
}

static bool is_kv_of(const struct model *m, const struct kv_geom *kv)
{
    bool same = kv && kv->n_layers == m->hp.n_kv_layers;
    for (int32_t il = 0; same && il < m->hp.n_layers; il++) {
        const struct layer *l = &m->layers[il];
        const struct kv_layer *k = l->kv_layer >= 0 ? &kv->layers[l->kv_layer] : NULL;
        same = !k || (k->n_head_kv == l->n_head_kv && k->head_dim == l->head_dim &&
                      (!k->in_window || m->hp.sliding[il]));
    }
    return same;
}

/* What no architecture here can honour, and what would make a forward read the wrong memory. */
static t9_status check_batch(const struct model *m, const struct batch *b, struct t9_err *err)
{
    if (b->n_rows < 1 || b->n_seqs < 1 || b->n_outputs < 0)
        return t9_fail(err, T9_STATUS_INVALID, "a batch of %d rows, %d sequences, %d outputs",
                       b->n_rows, b->n_seqs, b->n_outputs);
    if (b->n_deepstack < 0 || b->n_deepstack > m->hp.n_deepstack)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "deep-stack inputs for %d layers; this %s takes %d", b->n_deepstack,
                       m->arch->name, m->hp.n_deepstack);
    if (!is_kv_of(m, b->kv) || (b->kv->window > 0 && (!b->window_table || !b->window_pool)))
        return t9_fail(err, T9_STATUS_INVALID, "the batch's KV pages are not this model's");
    if (m->hp.state.n_layers == 0)
        return T9_STATUS_OK;
    struct state_geom state;
    model_state_geom(m, &state);
    if (!b->state || !b->state_pool || !b->state_slot || b->state->slot_bytes != state.slot_bytes)
        return t9_fail(err, T9_STATUS_INVALID, "the batch has no recurrent state of this model");
    if (!b->state_accept != !b->state_guess)
        return t9_fail(err, T9_STATUS_INVALID,
                       "rows of the journal are accepted or guessed, without the other");
    return T9_STATUS_OK;
}

t9_status model_forward(const struct model *m, struct cx *cx, const struct batch *b,
                        struct t9_err *err)
{
    T9_TRY(check_batch(m, b, err));
    size_t mark = cx_mark(cx);
    cx->layer = -1;
    if (m->arch->forward)
        m->arch->forward(m, cx, b);
    else
        blocks_forward(m, cx, b);
    cx->layer = -1;
    cx_release(cx, mark);
    if (cx->status != T9_STATUS_OK && err)
        *err = cx->err;
    return cx->status;
}

t9_status model_measure(const struct model *m, const struct kv_geom *kv, int32_t max_rows,
                        int32_t max_outputs, size_t *scratch_bytes, size_t *n_ops,
                        struct t9_err *err)
{
    /* Addresses that are never read. */
    static int32_t any_i32[1];
    static float any_f32[1];
    static const float *any_row[1];
    struct measure measure;
    struct scratch scratch;
    struct cx cx;
    struct state_geom state;
    model_state_geom(m, &state);
    cx_init_measure(&cx, &measure, &scratch);
    struct batch b = {.n_rows = max_rows,
                      .n_seqs = 1,
                      .n_outputs = max_outputs,
                      .token = any_i32,
                      .pos = any_i32,
                      .kv_idx = any_i32,
                      .row_seq = any_i32,
                      .page_table = any_i32,
                      .page_table_stride = 1,
                      .kv_pool = any_f32,
                      .window_table = any_i32,
                      .window_pool = any_f32,
                      .kv = kv,
                      .state_pool = any_f32,
                      .state = &state,
                      .state_slot = any_i32,
                      .out_row = any_i32,
                      .n_deepstack = m->hp.n_deepstack,
                      .deepstack = any_row,
                      .logits = any_f32};
    T9_TRY(model_forward(m, &cx, &b, err));
    *scratch_bytes = scratch.peak;
    *n_ops = measure.n_ops;
    return T9_STATUS_OK;
}
