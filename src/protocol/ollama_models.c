/*
 * protocol/ollama_models.c - what clients of Ollama ask about models: /api/tags, /api/ps, /api/show
 * and /api/version, and why the requests that change what models there are are refused. There is
 * one model, and all that is said of it comes from its file. Any thread; nothing here has state.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/num.h"
#include "protocol/ollama_fields.h"
#include "protocol/ollama_write.h"
#include "protocol/prep.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_BYTES_MAX = 4096, VALUE_BYTES_VERBOSE_MAX = 64 << 20, NAME_BYTES_MAX = 256 };

/* ---- facts ---- */

static void member_str(struct buf *b, const char *key, str v)
{
    buf_putc(b, ',');
    openai_member_str(b, key, v);
}

static void member_i64(struct buf *b, const char *key, int64_t v)
{
    buf_putc(b, ',');
    openai_member_i64(b, key, v);
}

static void member_time(struct buf *b, const char *key, int64_t unix_s)
{
    char at[32];
    clock_format_utc(unix_s, at);
    member_str(b, key, str_from(at));
}

/* A metadata value as JSON; false when there is none of so many bytes. Freed by the caller. */
static bool value_of(const struct prep *p, const char *key, size_t max_bytes, t9_text *out)
{
    return t9_model_metadata(prep_params_of(p)->model, key, max_bytes, out, NULL) == T9_STATUS_OK;
}

/* How the file's weights are packed, by the number that its maker gave. */
static const char *file_type(const struct prep *p)
{
    static const char *const names[] = {
        [0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
        [8] = "Q5_0",     [9] = "Q5_1",     [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
        [13] = "Q3_K_L",  [14] = "Q4_K_S",  [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
        [18] = "Q6_K",    [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS",
        [23] = "IQ3_XXS", [24] = "IQ1_S",   [25] = "IQ4_NL", [26] = "IQ3_S",  [27] = "IQ3_M",
        [28] = "IQ2_S",   [29] = "IQ2_M",   [30] = "IQ4_XS", [31] = "IQ1_M",  [32] = "BF16",
        [36] = "TQ1_0",   [37] = "TQ2_0",   [38] = "MXFP4",
    };
    t9_text text = {0};
    uint64_t n = UINT64_MAX;
    if (value_of(p, "general.file_type", VALUE_BYTES_MAX, &text))
        (void)num_parse_u64((str){text.p, text.n}, &n);
    t9_text_free(&text);
    return n < T9_COUNT(names) && names[n] ? names[n] : "unknown";
}

static void write_details(const struct prep *p, struct buf *b)
{
    const struct t9_model_info *m = &prep_info(p)->model;
    char size[32];
    double n = (double)m->n_params;
    bool billions = n >= 1e9;
    (void)snprintf(size, sizeof size, "%.1f%s", n / (billions ? 1e9 : 1e6), billions ? "B" : "M");
    buf_puts(b, ",\"details\":{\"parent_model\":\"\",\"format\":\"gguf\"");
    member_str(b, "family", str_from(m->arch));
    buf_puts(b, ",\"families\":[");
    json_write_str(b, str_from(m->arch));
    buf_putc(b, ']');
    member_str(b, "parameter_size", str_from(size));
    member_str(b, "quantization_level", str_from(file_type(p)));
    buf_putc(b, '}');
}

/* Names have a tag there. */
static str full_name(const struct prep *p, char out[NAME_BYTES_MAX])
{
    const char *name = prep_params_of(p)->model_name;
    bool tagged = strchr(name, ':') != NULL;
    (void)snprintf(out, NAME_BYTES_MAX, "%.240s%s", name, tagged ? "" : ":latest");
    return str_from(out);
}

/* 64 hexadecimal digits that are others for another file. */
static void write_digest(const struct prep *p, struct buf *b)
{
    const struct t9_model_info *m = &prep_info(p)->model;
    char text[512], digest[65];
    int n = snprintf(text, sizeof text, "%.300s %" PRIu64 " %" PRIu64 " %" PRId64, m->file_name,
                     m->file_bytes, m->n_params, prep_params_of(p)->model_time_s);
    for (uint64_t i = 0; i < 4; i++)
        (void)snprintf(digest + 16 * i, 17, "%016" PRIx64, hash_xxh3_64(text, (size_t)n, i));
    member_str(b, "digest", str_from(digest));
}

static void open_list(const struct prep *p, struct buf *b)
{
    char name[NAME_BYTES_MAX];
    str full = full_name(p, name);
    buf_puts(b, "{\"models\":[{");
    openai_member_str(b, "name", full);
    member_str(b, "model", full);
}

void ollama_write_tags(const struct prep *p, struct buf *out)
{
    open_list(p, out);
    member_time(out, "modified_at", prep_params_of(p)->model_time_s);
    member_i64(out, "size", (int64_t)prep_info(p)->model.file_bytes);
    write_digest(p, out);
    write_details(p, out);
    buf_puts(out, "}]}");
}

void ollama_write_ps(const struct prep *p, struct buf *out)
{
    const struct t9_model_info *m = &prep_info(p)->model;
    struct t9_stats s;
    prep_engine_stats(p, &s);
    bool on_cpu = strcmp(m->backend, "cuda") != 0;
    int64_t size = (int64_t)m->weight_bytes;
    open_list(p, out);
    member_i64(out, "size", size);
    write_digest(p, out);
    write_details(p, out);
    member_time(out, "expires_at", CLOCK_UNIX_S_MAX); /* it stays */
    member_i64(out, "size_vram", on_cpu ? 0 : size);
    member_i64(out, "context_length", prep_max_length(p));
    buf_puts(out, "}]}");
}

void ollama_write_version(const char *ours, struct buf *out)
{
    buf_putc(out, '{');
    openai_member_str(out, "version", STR(OLLAMA_API_VERSION));
    member_str(out, "tempo9", str_from(ours));
    buf_putc(out, '}');
}

/* ---- show ---- */

/* As a Modelfile has them, one a line. */
static void write_parameters(const struct prep *p, struct buf *b)
{
    const struct t9_request_params *q = &prep_params_of(p)->sampling;
    const struct {
        const char *name;
        double v;
    } rows[] = {{"temperature", (double)q->temperature},
                {"top_p", (double)q->top_p},
                {"top_k", q->top_k},
                {"min_p", (double)q->min_p},
                {"repeat_penalty", (double)q->repetition_penalty},
                {"num_ctx", prep_max_length(p)}};
    struct buf text;
    buf_init(&text, VALUE_BYTES_MAX);
    for (size_t i = 0; i < T9_COUNT(rows); i++)
        buf_printf(&text, "%s%-30s %.7g", i ? "\n" : "", rows[i].name, rows[i].v);
    member_str(b, "parameters", buf_str(&text));
    b->failed |= text.failed;
    buf_deinit(&text);
}

static void write_template(const struct prep *p, struct buf *b)
{
    str source = {0};
    source.p = t9_template_source(prep_params_of(p)->model, &source.n);
    member_str(b, "template", source);
}

/* Where the template thinks without having a switch, it names the tag. */
static bool thinks(const struct prep *p)
{
    const struct prep_info *i = prep_info(p);
    str source = {0};
    source.p = t9_template_source(prep_params_of(p)->model, &source.n);
    const char *tag = i->dialect->think_open;
    return i->thinking_switch || i->effort_switch ||
           (tag && *tag && str_find(source, str_from(tag), 0) != (size_t)-1);
}

static void write_abilities(const struct prep *p, struct buf *b)
{
    buf_puts(b, ",\"capabilities\":[\"completion\"");
    if (prep_info(p)->model.template_tools.tools)
        buf_puts(b, ",\"tools\"");
    if (thinks(p))
        buf_puts(b, ",\"thinking\"");
    if (prep_info(p)->fill_in_middle)
        buf_puts(b, ",\"insert\"");
    buf_putc(b, ']');
}

/* Long values, and lists of the vocabulary, only on demand. */
static void write_value(const struct prep *p, const char *key, bool verbose, struct buf *b)
{
    t9_text v = {0};
    bool is_there =
        value_of(p, key, verbose ? VALUE_BYTES_VERBOSE_MAX : VALUE_BYTES_MAX, &v) && v.n > 0;
    bool shown = is_there && (verbose || v.p[0] != '[' || strncmp(key, "tokenizer.", 10) != 0);
    json_write_key(b, key);
    buf_puts_str(b, shown ? (str){v.p, v.n} : STR("null"));
    t9_text_free(&v);
}

static void write_metadata(const struct prep *p, bool verbose, struct buf *b)
{
    static const char count[] = "general.parameter_count";
    const t9_model *m = prep_params_of(p)->model;
    buf_puts(b, ",\"model_info\":{");
    /* Files seldom have it. */
    openai_member_i64(b, count, (int64_t)prep_info(p)->model.n_params);
    for (size_t i = 0; i < t9_model_n_keys(m); i++) {
        const char *key = t9_model_key(m, i);
        if (strcmp(key, "tokenizer.chat_template") == 0 || strcmp(key, count) == 0)
            continue; /* the first is the template */
        buf_putc(b, ',');
        write_value(p, key, verbose, b);
    }
    buf_putc(b, '}');
}

static void write_license(const struct prep *p, struct buf *b)
{
    t9_text v = {0};
    if (value_of(p, "general.license", VALUE_BYTES_MAX, &v) && v.n > 0 && v.p[0] == '"') {
        buf_puts(b, ",\"license\":");
        buf_append(b, v.p, v.n);
    }
    t9_text_free(&v);
}

static t9_status answer_show(const struct prep *p, struct chat_request *r, struct buf *out,
                             struct chat_error *err)
{
    char modelfile[NAME_BYTES_MAX + 32];
    (void)err;
    (void)snprintf(modelfile, sizeof modelfile, "FROM %.240s\n", prep_info(p)->model.file_name);
    buf_putc(out, '{');
    openai_member_str(out, "modelfile", str_from(modelfile));
    write_parameters(p, out);
    write_template(p, out);
    write_license(p, out);
    write_details(p, out);
    write_metadata(p, r->verbose, out);
    write_abilities(p, out);
    member_time(out, "modified_at", prep_params_of(p)->model_time_s);
    openai_write_warnings(r, out);
    buf_putc(out, '}');
    return T9_STATUS_OK;
}

static const struct policy_field show_fields[] = {
    OLLAMA_MODEL,
    HONOURED("name", ollama_model, .schema = "{\"type\":\"string\"}", .same_as = "model",
             .note = "as model"),
    HONOURED("verbose", policy_bool, MEMBER(verbose),
             .note = "model_info has long values and the lists of the vocabulary, too"),
    NO_EFFECT("system", "what is shown is the model's own"),
    NO_EFFECT("template", "what is shown is the model's own"),
    NO_EFFECT("options", "what is shown is the model's own"),
};

static t9_status parse_show(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    return openai_parse(body, strict, show_fields, T9_COUNT(show_fields), out, err);
}

const struct chat_adapter ollama_show_adapter = {
    .name = "ollama_show",
    .path = "/api/show",
    .summary = "What is known of the model, as Ollama tells it.",
    .fields = show_fields,
    .n_fields = T9_COUNT(show_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/OllamaShow\"}",
    .error_schema = "{\"$ref\":\"#/components/schemas/OllamaError\"}",
    .id_prefix = "",
    .parse = parse_show,
    .answer = answer_show,
    .error = ollama_error,
};

/* ---- what is not done ---- */

bool ollama_refusal(const char *path, struct chat_error *err)
{
    static const char models[] = "the model is chosen when the server starts";
    static const char vectors[] = "embeddings are not supported yet";
    static const struct {
        const char *path, *why;
    } refused[] = {{"/api/create", models},     {"/api/copy", models},   {"/api/delete", models},
                   {"/api/push", models},       {"/api/blobs/", models}, {"/api/embed", vectors},
                   {"/api/embeddings", vectors}};
    for (size_t i = 0; i < T9_COUNT(refused); i++) {
        size_t n = strlen(refused[i].path);
        bool here = refused[i].path[n - 1] == '/' ? strncmp(path, refused[i].path, n) == 0
                                                  : strcmp(path, refused[i].path) == 0;
        if (!here)
            continue;
        (void)chat_fail(err, T9_STATUS_UNSUPPORTED, NULL, "unsupported_request",
                        "%.*s is not supported: %s", (int)n, refused[i].path, refused[i].why);
        return true;
    }
    return false;
}
