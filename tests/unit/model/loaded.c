/* See loaded.h. */
#include "loaded.h"

#include "lib/t9test.h"

t9_status loaded_from(struct loaded *l, struct gguf_writer *w,
                      const struct model_load_params *params)
{
    char dir[64], path[128];
    struct be_params bp = {.max_rows = 8};
    memset(l, 0, sizeof(*l));
    test_tmpdir(dir);
    snprintf(path, sizeof(path), "%s/model.gguf", dir);
    assert_int_equal(gw_write(w, path, &l->err), T9_STATUS_OK);
    gw_deinit(w);
    if (gguf_open(&l->g, path, &l->err) != T9_STATUS_OK)
        fail_msg("%s", l->err.msg);
    assert_int_equal(be_new(&l->be, "ref", &bp, &l->err), T9_STATUS_OK);
    t9_status st = model_load(&l->m, l->g, l->be, params, &l->err);
    (void)unlink(path);
    (void)rmdir(dir);
    return st;
}

void loaded_free(struct loaded *l)
{
    model_free(l->m);
    be_free(l->be);
    gguf_close(l->g);
}

void loaded_is_refused(struct loaded *l, t9_status st, t9_status status, const char *part)
{
    if (st != status || l->err.code != status || !strstr(l->err.msg, part) ||
        strncmp(l->err.msg, "model.gguf: ", 12) != 0 || strstr(l->err.msg + 12, "model.gguf"))
        fail_msg("%s \"%s\", wanted %s \"model.gguf: ... %s\"", t9_status_name(st), l->err.msg,
                 t9_status_name(status), part);
    assert_null(l->m);
    loaded_free(l);
}
