/*
 * tests/lib/http_rig.c - see http_rig.h.
 */
#include "lib/http_rig.h"

#include "base/clock.h"
#include "base/log.h"
#include "lib/byte_tokenizer.h"
#include "lib/t9test.h"
#include "sdk/internal.h"

void http_rig_start(struct http_rig *r, const struct engine_script *script, struct http_params *p)
{
    struct t9_err err = {0};
    struct http_params own;
    struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    log_configure(&quiet);
    if (!p) {
        http_params_init(&own);
        p = &own;
    }
    r->engine = scripted_engine_new(script);
    assert_non_null(r->engine);
    p->port = 0;
    if (sdk_model_wrap(&r->model, byte_tokenizer(true), NULL, &err) != T9_STATUS_OK ||
        sdk_engine_wrap(&r->wrapped, r->model, r->engine, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    p->prep.engine = r->wrapped;
    p->prep.model = r->model;
    p->prep.model_name = "scripted";
    p->prep.build_id = "test-build";
    p->about = (struct capabilities){"0", "test-build", "scripted", true};
    if (http_server_new(&r->server, p, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    r->port = http_server_port(r->server);
    assert_true(r->port != 0 || p->unix_path);
}

void http_rig_stop(struct http_rig *r)
{
    http_server_stop(r->server, 5000);
    assert_int_equal(scripted_engine_live(r->engine), 0);
    t9_engine_free(r->wrapped);
    t9_model_free(r->model);
    scripted_engine_free(r->engine);
}

bool http_rig_wait_live(struct http_rig *r, int n, int ms)
{
    for (int i = 0; i < ms; i++) {
        if (scripted_engine_live(r->engine) == n)
            return true;
        clock_sleep_ms(1);
    }
    return false;
}

bool client_has(const struct buf *b, const char *text)
{
    return str_find(buf_str(b), str_from(text), 0) != (size_t)-1;
}

void http_rig_expect(uint16_t port, const char *head, int status, const char *text)
{
    struct buf in;
    client_exchange(port, head, (str){0}, &in);
    if (client_status(&in) != status)
        fail_msg("%s gave %d, not %d", head, client_status(&in), status);
    if (text && !client_has(&in, text))
        fail_msg("%s did not give \"%s\" but %.*s", head, text, (int)in.n, in.p);
    buf_deinit(&in);
}
