/* tests/lib/changed_model.c - see the header. */
#include "lib/changed_model.h"

#include "base/mem.h"
#include "lib/gguf_writer.h"
#include "lib/mkgguf.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TENSOR_BYTES_MAX = 1 << 18, LIST_MAX = 12 };

static struct cm_model *models;
static size_t n_models;

/* Small, so that a forward takes no time; the head's size and the widths differ. */
#define SMALL                                                                                      \
    ((struct mkgguf_params){.width = 32,                                                           \
                            .layers = 2,                                                           \
                            .heads = 4,                                                            \
                            .kv_heads = 2,                                                         \
                            .ffn = 64,                                                             \
                            .vocab = 256 + MKGGUF_N_SPECIAL,                                       \
                            .context = 64,                                                         \
                            .head_dim = 12,                                                        \
                            .experts = 3,                                                          \
                            .dtype = DTYPE_Q8_0,                                                   \
                            .seed = 1})

/* An architecture whose shapes SMALL does not fit has a line here, with what is not as there. */
static struct mkgguf_params params_of(const char *arch)
{
    struct mkgguf_params p = SMALL;
    p.arch = arch;
    return p;
}

/* ---- making ---- */

static t9_status add_key(struct cm_model *m, const struct gguf_kv *kv, struct t9_err *err)
{
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    struct cm_key *k = &m->keys[m->n_keys];
    size_t n = kv->type == GGUF_TYPE_STR   ? 8 + kv->s.n
               : kv->type == GGUF_TYPE_ARR ? 12 + kv->arr.n * bytes[kv->arr.type]
                                           : bytes[kv->type];
    if (m->n_keys == CM_KEYS_MAX || kv->key.n >= sizeof(k->key) || n > sizeof(k->value))
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s has more keys than are kept", m->arch);
    m->n_keys++;
    (void)snprintf(k->key, sizeof(k->key), STR_FMT, STR_ARG(kv->key));
    k->type = kv->type;
    k->n_bytes = n;
    if (kv->type == GGUF_TYPE_STR) {
        uint64_t len = kv->s.n;
        memcpy(k->value, &len, 8);
        memcpy(k->value + 8, kv->s.p, kv->s.n);
    } else if (kv->type == GGUF_TYPE_ARR) {
        uint32_t type = kv->arr.type;
        memcpy(k->value, &type, 4);
        memcpy(k->value + 4, &kv->arr.n, 8);
        memcpy(k->value + 12, kv->arr.data, n - 12);
    } else if (kv->type == GGUF_TYPE_F32) {
        float f = (float)kv->f;
        memcpy(k->value, &f, 4);
    } else if (kv->type == GGUF_TYPE_BOOL) {
        k->value[0] = kv->b;
    } else {
        memcpy(k->value, &kv->u, n); /* little endian, and no wider than 8 bytes; f64 as it is */
    }
    return T9_STATUS_OK;
}

static t9_status add_tensor(struct cm_model *m, const struct gguf *g, const struct gguf_tensor *t,
                            struct t9_err *err)
{
    struct cm_tensor *to = &m->tensors[m->n_tensors];
    if (m->n_tensors == CM_TENSORS_MAX || t->name.n >= sizeof(to->name))
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s has more tensors than are kept", m->arch);
    uint8_t *data = mem_alloc(t->size_bytes);
    if (!data)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a model");
    *to = (struct cm_tensor){
        .dtype = t->dtype, .n_dims = t->n_dims, .data = data, .n_bytes = (size_t)t->size_bytes};
    m->n_tensors++;
    (void)snprintf(to->name, sizeof(to->name), STR_FMT, STR_ARG(t->name));
    memcpy(to->ne, t->ne, sizeof(to->ne));
    return gguf_tensor_read(g, t, 0, data, to->n_bytes, err);
}

/* What model_load reads; the tokenizer has a fuzzer of its own. */
static t9_status take_all(struct cm_model *m, const struct gguf *g, struct t9_err *err)
{
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        if (!str_has_prefix(gguf_kv_at(g, i)->key, STR("tokenizer.")))
            T9_TRY(add_key(m, gguf_kv_at(g, i), err));
    }
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++)
        T9_TRY(add_tensor(m, g, gguf_tensor_at(g, i), err));
    return T9_STATUS_OK;
}

static t9_status take_file(const char *arch, const char *path, struct t9_err *err)
{
    struct gguf *g = NULL;
    if (n_models == CM_MODELS_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "more than %d models", CM_MODELS_MAX);
    T9_TRY(gguf_open(&g, path, err));
    struct cm_model *m = &models[n_models++];
    (void)snprintf(m->arch, sizeof(m->arch), "%s", arch);
    t9_status st = take_all(m, g, err);
    gguf_close(g);
    return st;
}

static t9_status make(const struct mkgguf_params *p, struct t9_err *err)
{
    char path[64];
    int fd = memfd_create("made", MFD_CLOEXEC);
    if (fd < 0)
        return t9_fail(err, T9_STATUS_IO, "no file in memory");
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    t9_status st = mkgguf_write(path, p, err);
    if (st == T9_STATUS_OK)
        st = take_file(p->arch, path, err);
    (void)close(fd);
    return st;
}

/* Where mkgguf makes none, the one whose logits are kept. */
static t9_status make_known(const char *arch, struct t9_err *err)
{
    char path[512];
    struct mkgguf_params p = params_of(arch);
    t9_status st = make(&p, err);
    if (st != T9_STATUS_INVALID)
        return st;
    (void)snprintf(path, sizeof(path), "%s/models/shape-%s/model.gguf", T9_TEST_DATA_DIR, arch);
    return take_file(arch, path, err);
}

/* Besides what each architecture has: other types, and other ways to store the same. */
static t9_status make_others(struct t9_err *err)
{
    struct mkgguf_params p = params_of("llama");
    p.untied = true;
    p.dtype = DTYPE_F16;
    T9_TRY(make(&p, err));
    p.width = 256; /* a row of K-quants */
    p.ffn = 256;
    p.layers = 1;
    p.dtype = DTYPE_Q4_K;
    T9_TRY(make(&p, err));
    p = params_of("qwen3moe");
    p.merged = true;
    p.dtype = DTYPE_F32;
    T9_TRY(make(&p, err));
    p = params_of("gemma4"); /* its other form */
    p.experts = 0;
    p.layers = 4;
    p.ple = 8;
    p.shared_kv = 2;
    T9_TRY(make(&p, err));
    p = params_of("gpt-oss");
    p.dtype = DTYPE_MXFP4;
    return make(&p, err);
}

t9_status cm_init(const char *known, struct t9_err *err)
{
    models = mem_calloc(CM_MODELS_MAX, sizeof(*models));
    if (!models)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for models");
    for (const char *z = known; *z;) {
        char arch[32];
        size_t n = strcspn(z, ",");
        (void)snprintf(arch, sizeof(arch), "%.*s", (int)n, z);
        T9_TRY(make_known(arch, err));
        z += n;
        z += strspn(z, ", ");
    }
    return make_others(err);
}

size_t cm_count(void)
{
    return n_models;
}

/* ---- values ---- */

uint8_t cm_byte(struct cm_script *s)
{
    if (s->n == 0)
        return 0;
    s->n--;
    return *s->p++;
}

static uint64_t raw(struct cm_script *s, size_t n_bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)cm_byte(s) << (8 * i);
    return v;
}

/* One of those where checks are, or any. */
static uint64_t whole(struct cm_script *s)
{
    static const uint64_t values[] = {
        0,          1,         2,         3,        4,          5,        6,          7,
        8,          9,         11,        12,       13,         15,       16,         17,
        23,         24,        25,        31,       32,         33,       48,         63,
        64,         65,        96,        128,      255,        256,      257,        263,
        512,        1023,      1024,      1025,     2048,       2049,     4096,       65535,
        65536,      1u << 18,  1u << 22,  1u << 24, 0x7FFFFFFF, 1u << 31, UINT32_MAX, 1ull << 32,
        1ull << 62, INT64_MAX, UINT64_MAX};
    uint8_t which = cm_byte(s);
    return which < 4 * T9_COUNT(values) ? values[which % T9_COUNT(values)] : raw(s, 8);
}

static double real(struct cm_script *s)
{
    static const double values[] = {0,    -0.0, 1,     -1,    0.5,   2,     8,        1e-45,
                                    1e-7, 1e-3, 1e-6,  1e4,   1e6,   1e12,  3e38,     -3e38,
                                    16,   32,   1e-30, 0.999, 1.001, -1e-6, HUGE_VAL, (double)NAN};
    uint8_t which = cm_byte(s);
    if (which < 10 * T9_COUNT(values))
        return values[which % T9_COUNT(values)];
    uint32_t bits = (uint32_t)raw(s, 4);
    float f;
    memcpy(&f, &bits, 4);
    return (double)f;
}

/* A word that keys have, or text of the script. */
static size_t text(struct cm_script *s, char *out, size_t cap)
{
    static const char *const words[] = {"none", "linear", "yarn", "longrope", "", "su", "mean"};
    uint8_t which = cm_byte(s);
    if (which < 128)
        return (size_t)snprintf(out, cap, "%s", words[which % T9_COUNT(words)]);
    size_t n = (size_t)(which - 128) % (cap - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = (char)cm_byte(s);
    out[n] = 0;
    return n;
}

/* A value of a type that is no array; returns its bytes. */
static size_t scalar(struct cm_script *s, gguf_type type, uint8_t *out)
{
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == GGUF_TYPE_STR) {
        char words[64];
        uint64_t n = text(s, words, sizeof(words));
        memcpy(out, &n, 8);
        memcpy(out + 8, words, n);
        return 8 + n;
    }
    if (type == GGUF_TYPE_F32) {
        float f = (float)real(s);
        memcpy(out, &f, 4);
        return 4;
    }
    if (type == GGUF_TYPE_F64) {
        double f = real(s);
        memcpy(out, &f, 8);
        return 8;
    }
    uint64_t v = type == GGUF_TYPE_BOOL ? cm_byte(s) & 1u : whole(s);
    memcpy(out, &v, 8);
    return bytes[type];
}

static void set_scalar(struct cm_key *k, struct cm_script *s, gguf_type type)
{
    k->type = type;
    k->n_bytes = scalar(s, type, k->value);
}

static gguf_type scalar_type(struct cm_script *s)
{
    gguf_type type = cm_byte(s) % GGUF_TYPE_COUNT;
    return type == GGUF_TYPE_ARR ? GGUF_TYPE_U32 : type;
}

/* A list of numbers or texts. */
static void set_list(struct cm_key *k, struct cm_script *s)
{
    uint32_t type = scalar_type(s);
    uint64_t n = cm_byte(s) % (LIST_MAX + 1);
    k->type = GGUF_TYPE_ARR;
    k->n_bytes = 12;
    for (uint64_t i = 0; i < n; i++)
        k->n_bytes += scalar(s, type, k->value + k->n_bytes);
    memcpy(k->value, &type, 4);
    memcpy(k->value + 4, &n, 8);
}

/* The first values of a list, or a list of one value as often. */
static void shorten(struct cm_key *k, struct cm_script *s)
{
    uint64_t n = 0;
    if (k->type == GGUF_TYPE_ARR) {
        uint32_t type;
        memcpy(&type, k->value, 4);
        memcpy(&n, k->value + 4, 8);
        if (n == 0 || type == GGUF_TYPE_STR)
            return;
        size_t each = (k->n_bytes - 12) / n;
        n = cm_byte(s) % n;
        memcpy(k->value + 4, &n, 8);
        k->n_bytes = 12 + each * n;
    } else if (k->type != GGUF_TYPE_STR) {
        uint8_t value[8];
        uint32_t type = k->type;
        size_t each = k->n_bytes;
        memcpy(value, k->value, each);
        n = cm_byte(s) % (LIST_MAX + 1);
        memcpy(k->value, &type, 4);
        memcpy(k->value + 4, &n, 8);
        k->type = GGUF_TYPE_ARR;
        k->n_bytes = 12 + each * n;
        for (uint64_t i = 0; i < n; i++)
            memcpy(k->value + 12 + each * i, value, each);
    }
}

/* ---- changes ---- */

static struct cm_key *new_key(struct cm_model *m)
{
    if (m->n_keys == CM_KEYS_MAX)
        return &m->keys[0];
    m->keys[m->n_keys] = (struct cm_key){0};
    return &m->keys[m->n_keys++];
}

/* `from` with the architecture's name in front put for another's. */
static void rename_key(char to[80], const char *from, const char *old, const char *arch)
{
    size_t n = strlen(old);
    if (strncmp(from, old, n) == 0 && from[n] == '.')
        (void)snprintf(to, 80, "%s%s", arch, from + n);
    else
        (void)snprintf(to, 80, "%s", from);
}

/* Keys that no made model has, of these architectures and of relatives. */
static const char *const other_keys[] = {
    "attention.causal",
    "attention.clamp_kqv",
    "attention.key_length_swa",
    "attention.max_alibi_bias",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_scale",
    "attention.value_length_swa",
    "attn_logit_softcapping",
    "embedding_length_out",
    "embedding_length_per_layer_input",
    "embedding_scale",
    "expert_gating_func",
    "expert_group_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_weights_norm",
    "expert_weights_scale",
    "final_logit_softcapping",
    "full_attention_interval",
    "leading_dense_block_count",
    "logit_scale",
    "nextn_predict_layers",
    "residual_scale",
    "rope.dimension_count_swa",
    "rope.dimension_sections",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.alpha",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
    "shortconv.l_cache",
    "ssm.conv_kernel",
    "ssm.group_count",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
};

static void change_key(struct cm_model *m, struct cm_script *s, unsigned kind)
{
    struct cm_key *k = m->n_keys ? &m->keys[cm_byte(s) % m->n_keys] : new_key(m);
    switch (kind) {
    case 0:
        if (m->n_keys)
            *k = m->keys[--m->n_keys];
        break;
    case 1:
        if (k->type == GGUF_TYPE_ARR)
            set_list(k, s);
        else
            set_scalar(k, s, k->type);
        break;
    case 2: set_scalar(k, s, scalar_type(s)); break;
    case 3: set_list(k, s); break;
    default: shorten(k, s); break;
    }
}

/* A key that the model does not have yet: another model's, one of the list, or any. */
static void more_keys(struct cm_model *m, struct cm_script *s, unsigned kind)
{
    struct cm_key *k = new_key(m);
    if (kind == 0) {
        const struct cm_model *from = &models[cm_byte(s) % n_models];
        const struct cm_key *other = &from->keys[cm_byte(s) % from->n_keys];
        *k = *other;
        rename_key(k->key, other->key, from->arch, m->arch);
        return;
    }
    char name[48];
    if (kind == 1)
        (void)snprintf(name, sizeof(name), "%s", other_keys[cm_byte(s) % T9_COUNT(other_keys)]);
    else
        (void)text(s, name, sizeof(name));
    (void)snprintf(k->key, sizeof(k->key), "%s.%s", m->arch, name);
    if (cm_byte(s) & 1)
        set_list(k, s);
    else
        set_scalar(k, s, scalar_type(s));
}

/* The same file as another architecture's. */
static void change_arch(struct cm_model *m, struct cm_script *s)
{
    const char *arch = models[cm_byte(s) % n_models].arch;
    for (size_t i = 0; i < m->n_keys; i++) {
        char old[80];
        struct cm_key *k = &m->keys[i];
        memcpy(old, k->key, sizeof(old));
        rename_key(k->key, old, m->arch, arch);
        if (strcmp(k->key, "general.architecture") == 0) {
            uint64_t n = strlen(arch);
            memcpy(k->value, &n, 8);
            memcpy(k->value + 8, arch, n);
            k->n_bytes = 8 + n;
            k->type = GGUF_TYPE_STR;
        }
    }
    (void)snprintf(m->arch, sizeof(m->arch), "%s", arch);
}

static struct cm_tensor *new_tensor(struct cm_model *m)
{
    return m->n_tensors == CM_TENSORS_MAX ? &m->tensors[0] : &m->tensors[m->n_tensors++];
}

/* Another model's tensor, or one of this model's by another name. */
static void more_tensors(struct cm_model *m, struct cm_script *s, bool foreign)
{
    const struct cm_model *from = foreign ? &models[cm_byte(s) % n_models] : m;
    if (from->n_tensors == 0)
        return;
    struct cm_tensor copy = from->tensors[cm_byte(s) % from->n_tensors];
    if (!foreign) {
        char name[48];
        (void)text(s, name, sizeof(name));
        (void)snprintf(copy.name, sizeof(copy.name), "blk.%u.%s", cm_byte(s) % 4u, name);
    }
    *new_tensor(m) = copy;
}

static void change_tensor(struct cm_model *m, struct cm_script *s, unsigned kind)
{
    if (m->n_tensors == 0)
        return;
    struct cm_tensor *t = &m->tensors[cm_byte(s) % m->n_tensors];
    struct cm_tensor *other = &m->tensors[cm_byte(s) % m->n_tensors];
    char name[sizeof(t->name)];
    switch (kind) {
    case 0: *t = m->tensors[--m->n_tensors]; break;
    case 1: t->ne[cm_byte(s) % GGUF_DIMS_MAX] = whole(s); break;
    case 2: t->n_dims = cm_byte(s) % (GGUF_DIMS_MAX + 2); break;
    case 3: t->dtype = cm_byte(s) % (DTYPE_ID_END + 1); break;
    case 4:
        t->placed = true;
        t->offset = whole(s);
        break;
    case 5: t->fill = 1 + cm_byte(s); break;
    case 6:
        memcpy(name, t->name, sizeof(name));
        memcpy(t->name, other->name, sizeof(name));
        memcpy(other->name, name, sizeof(name));
        break;
    case 7: memcpy(t->ne, other->ne, sizeof(t->ne)); break;
    default: {
        uint64_t first = t->ne[0];
        t->ne[0] = t->ne[1];
        t->ne[1] = first;
        break;
    }
    }
}

static void change(struct cm_model *m, struct cm_script *s)
{
    unsigned kind = cm_byte(s) % 20;
    if (kind < 5)
        change_key(m, s, kind);
    else if (kind < 8)
        more_keys(m, s, kind - 5);
    else if (kind == 8)
        change_arch(m, s);
    else if (kind < 11)
        more_tensors(m, s, kind == 9);
    else
        change_tensor(m, s, kind - 11);
}

/* ---- writing ---- */

/* The data that a table entry asks for, where that is a size to write; else what there is. */
static void put_tensor(struct gguf_writer *w, const struct cm_tensor *t)
{
    static uint8_t data[TENSOR_BYTES_MAX];
    uint32_t n_dims = t->n_dims > GGUF_DIMS_MAX ? GGUF_DIMS_MAX : t->n_dims;
    uint64_t n = dtype_row_bytes(t->dtype, n_dims > 0 ? t->ne[0] : 1);
    for (uint32_t i = 1; i < n_dims && n <= sizeof(data); i++)
        n = t->ne[i] > sizeof(data) ? sizeof(data) + 1 : n * t->ne[i];
    if (n == 0 || n > sizeof(data))
        n = t->n_bytes < sizeof(data) ? t->n_bytes : sizeof(data);
    for (size_t i = 0; i < n; i++)
        data[i] = t->fill ? (uint8_t)(t->fill - 1) : t->data[i % t->n_bytes];
    if (t->placed)
        gw_tensor_info(w, t->name, t->dtype, n_dims, t->ne, t->offset);
    else
        gw_tensor(w, t->name, t->dtype, n_dims, t->ne, data, n);
}

t9_status cm_write(const char *path, size_t i, struct cm_script *s, struct t9_err *err)
{
    static struct cm_model m;
    struct gguf_writer w;
    m = models[i % n_models];
    for (int n = 0; n < CM_CHANGES_MAX && s->n > 0; n++)
        change(&m, s);
    gw_init(&w);
    for (size_t k = 0; k < m.n_keys; k++)
        gw_raw(&w, m.keys[k].key, m.keys[k].type, m.keys[k].value, m.keys[k].n_bytes);
    for (size_t k = 0; k < m.n_tensors; k++)
        put_tensor(&w, &m.tensors[k]);
    t9_status st = gw_write(&w, path, err);
    gw_deinit(&w);
    return st;
}
