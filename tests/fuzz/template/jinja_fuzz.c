/*
 * fuzz/template/jinja_fuzz.c - input: a template, a NUL, the JSON arguments. Whatever both are, the
 * interpreter must end within its limits, and what it renders must be valid UTF-8 whose origins
 * cover it without gaps.
 */
#include "base/utf8.h"
#include "template/template.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct jinja_output *out)
{
    size_t at = 0;
    for (size_t i = 0; i < out->n_spans; i++) {
        if (out->spans[i].end <= at || out->spans[i].origin > JINJA_ORIGIN_MAX)
            __builtin_trap();
        at = out->spans[i].end;
    }
    if (at != out->text.n || !utf8_valid(buf_str(&out->text)))
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct jinja_limits limits = {300000, 1 << 20, 16 << 20, 300};
    const char *p = (const char *)data;
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    struct jinja_template *t;
    struct jinja_output out;
    struct t9_err err;
    yyjson_doc *doc = NULL;
    if (jinja_parse(&t, (str){p, n}, &err) != T9_STATUS_OK)
        return 0;
    jinja_mentions(t, "tools");
    if (nul)
        doc = yyjson_read(p + n + 1, size - n - 1, YYJSON_READ_NOFLAG);
    yyjson_val *args = yyjson_doc_get_root(doc);
    if (jinja_render(t, yyjson_is_obj(args) ? args : NULL, &limits, NULL, &out, &err) ==
        T9_STATUS_OK)
        check(&out);
    jinja_output_deinit(&out);
    yyjson_doc_free(doc);
    jinja_free(t);
    return 0;
}
