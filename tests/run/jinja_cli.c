/*
 * run/jinja_cli.c - renders a chat template for the differential tests.
 *
 *   jinja_cli TEMPLATE.jinja ARGS.json        text to stdout; 1 and a message on stderr on an error
 *   jinja_cli --batch < REQUESTS              one JSON array per line [template, {arguments}],
 * answered by one JSON line: {"text": ..} or {"error": ..}
 *
 * The clock is the fixtures': 2026-11-29 09:05:07.
 */
#include "base/json.h"
#include "template/template.h"

#include <stdio.h>
#include <stdlib.h>

#define INPUT_MAX  ((size_t)64 << 20)
#define NOW_UNIX_S 1795943107

static t9_status render(str source, yyjson_val *kwargs, struct jinja_output *out,
                        struct t9_err *err)
{
    struct jinja_template *t;
    struct jinja_env env = {.now_unix_s = NOW_UNIX_S};
    T9_TRY(jinja_parse(&t, source, err));
    t9_status s = jinja_render(t, kwargs, NULL, &env, out, err);
    jinja_free(t);
    return s;
}

static void answer(yyjson_val *request)
{
    struct jinja_output out = {0};
    struct t9_err err = {0};
    struct buf line;
    buf_init(&line, INPUT_MAX * 2);
    str source = json_str(yyjson_arr_get(request, 0));
    if (render(source, yyjson_arr_get(request, 1), &out, &err) == T9_STATUS_OK) {
        buf_puts(&line, "{\"text\":");
        json_write_str(&line, buf_str(&out.text));
    } else {
        buf_puts(&line, "{\"error\":");
        json_write_str(&line, str_from(err.msg));
    }
    buf_puts(&line, "}\n");
    fwrite(line.p, 1, line.n, stdout);
    fflush(stdout);
    buf_deinit(&line);
    jinja_output_deinit(&out);
}

static int batch(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&line, &cap, stdin)) > 0) {
        yyjson_doc *doc = yyjson_read(line, (size_t)n, YYJSON_READ_NOFLAG);
        if (doc)
            answer(yyjson_doc_get_root(doc));
        else
            rc = 2;
        yyjson_doc_free(doc);
    }
    free(line);
    return rc;
}

static bool read_all(const char *path, struct buf *b)
{
    char tmp[65536];
    size_t n;
    FILE *f = fopen(path, "rb");
    buf_init(b, INPUT_MAX);
    while (f && (n = fread(tmp, 1, sizeof tmp, f)) > 0)
        buf_append(b, tmp, n);
    bool ok = f && !ferror(f) && !b->failed;
    if (f)
        fclose(f);
    return ok;
}

int main(int argc, char **argv)
{
    struct buf source = {0}, args = {0};
    struct jinja_output out = {0};
    struct t9_err err = {0};
    yyjson_doc *doc = NULL;
    int rc = 1;
    if (argc == 2 && str_eqz(STR("--batch"), argv[1]))
        return batch();
    if (argc != 3) {
        fprintf(stderr, "usage: jinja_cli TEMPLATE.jinja ARGS.json | --batch\n");
        return 2;
    }
    if (!read_all(argv[1], &source) || !read_all(argv[2], &args))
        fprintf(stderr, "can't read the files\n");
    else if (json_parse(&doc, buf_str(&args), JSON_LIMITS_REQUEST, &err) != T9_STATUS_OK ||
             render(buf_str(&source), yyjson_doc_get_root(doc), &out, &err) != T9_STATUS_OK)
        fprintf(stderr, "%s\n", err.msg);
    else
        rc = fwrite(out.text.p, 1, out.text.n, stdout) == out.text.n ? 0 : 1;
    jinja_output_deinit(&out);
    yyjson_doc_free(doc);
    buf_deinit(&source);
    buf_deinit(&args);
    return rc;
}
