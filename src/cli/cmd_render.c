/*
 * cli/cmd_render.c - `render`: one chat template with keyword arguments from a JSON file.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "template/template.h"

#include <stdio.h>

#define INPUT_BYTES_MAX ((size_t)256 << 20)

int cmd_render(const struct cli_options *o)
{
    struct t9_err err = {0};
    struct buf source, input;
    struct jinja_template *t = NULL;
    struct jinja_output out = {0};
    yyjson_doc *doc = NULL;
    struct json_limits limits = {INPUT_BYTES_MAX, 512, (size_t)1 << 24};
    struct jinja_env env = {.now_unix_s = o->now_set ? o->now_unix_s : clock_unix_s()};
    buf_init(&source, JINJA_SOURCE_BYTES_MAX);
    buf_init(&input, INPUT_BYTES_MAX);

    t9_status s = file_read_all(o->template_path, &source, &err);
    if (s == T9_STATUS_OK)
        s = file_read_all(o->input, &input, &err);
    if (s == T9_STATUS_OK && (s = jinja_parse(&t, buf_str(&source), &err)) != T9_STATUS_OK)
        t9_err_prefix(&err, "%s", o->template_path);
    if (s == T9_STATUS_OK && (s = json_parse(&doc, buf_str(&input), limits, &err)) != T9_STATUS_OK)
        t9_err_prefix(&err, "%s", o->input);
    if (s == T9_STATUS_OK && !yyjson_is_obj(yyjson_doc_get_root(doc)))
        s = t9_fail(&err, T9_STATUS_INVALID, "%s: expected a JSON object of keyword arguments",
                    o->input);
    if (s == T9_STATUS_OK)
        s = jinja_render(t, yyjson_doc_get_root(doc), NULL, &env, &out, &err);
    if (s == T9_STATUS_OK)
        cli_write(out.text.p, out.text.n);

    jinja_output_deinit(&out);
    yyjson_doc_free(doc);
    jinja_free(t);
    buf_deinit(&input);
    buf_deinit(&source);
    return s == T9_STATUS_OK ? cli_finish_stdout() : cli_fail(&err);
}
