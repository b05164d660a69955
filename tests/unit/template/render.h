/* unit/template/render.h - rendering in one line for the tests of this folder. */
#ifndef T9_TESTS_UNIT_TEMPLATE_RENDER_H
#define T9_TESTS_UNIT_TEMPLATE_RENDER_H

#include "lib/t9test.h"
#include "template/template.h"

#define FIXTURE_NOW_UNIX_S 1795943107 /* 2026-11-29 09:05:07 */

/* Parses and renders; the output is the caller's to free. `args` is JSON or NULL. */
static inline t9_status render_full(str source, const char *args, const struct jinja_limits *limits,
                                    const struct jinja_env *env, struct jinja_output *out,
                                    struct t9_err *err)
{
    static const struct jinja_env fixed = {.now_unix_s = FIXTURE_NOW_UNIX_S};
    struct jinja_template *t = NULL;
    yyjson_doc *doc = NULL;
    *out = (struct jinja_output){0};
    t9_status s = jinja_parse(&t, source, err);
    if (s == T9_STATUS_OK && args)
        s = json_parse(&doc, str_from(args), JSON_LIMITS_REQUEST, err);
    if (s == T9_STATUS_OK)
        s = jinja_render(t, yyjson_doc_get_root(doc), limits, env ? env : &fixed, out, err);
    yyjson_doc_free(doc);
    jinja_free(t);
    return s;
}

/* The text must be `want`, byte for byte. */
static inline void expect_text(const char *source, const char *args, const char *want)
{
    struct jinja_output out;
    struct t9_err err = {0};
    t9_status s = render_full(str_from(source), args, NULL, NULL, &out, &err);
    if (s != T9_STATUS_OK)
        fail_msg("%s: %s", source, err.msg);
    if (!str_eqz(buf_str(&out.text), want))
        fail_msg("%s\n  want: %s\n  got:  " STR_FMT, source, want, STR_ARG(buf_str(&out.text)));
    jinja_output_deinit(&out);
}

/* The rendering must fail with this status and with `part` in the message. */
static inline void expect_error(const char *source, const char *args, t9_status want,
                                const char *part)
{
    struct jinja_output out;
    struct t9_err err = {0};
    t9_status s = render_full(str_from(source), args, NULL, NULL, &out, &err);
    if (s == T9_STATUS_OK)
        fail_msg("%s: no error, but '" STR_FMT "'", source, STR_ARG(buf_str(&out.text)));
    if (s != want || !strstr(err.msg, part))
        fail_msg("%s: %s '%s'", source, t9_status_name(s), err.msg);
}

#endif
