/*
 * Responses that are stored: what a request goes on from, references, whose they are, and the
 * requests about one.
 */
#include "lib/t9test.h"

#include "protocol/responses.h"
#include "store/store.h"

#include <unistd.h>

struct kept {
    char dir[64], file[96];
    struct store *store;
};

static int make_kept(void **state)
{
    static struct kept k;
    struct t9_err err = {0};
    snprintf(k.dir, sizeof k.dir, "/tmp/t9-kept-XXXXXX");
    assert_non_null(mkdtemp(k.dir));
    snprintf(k.file, sizeof k.file, "%s/r.db", k.dir);
    struct store_params p = {
        .path = k.file, .max_bytes = 256 << 20, .max_responses = 100, .ttl_s = 100};
    if (store_open(&k.store, &p, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    *state = &k;
    return 0;
}

static int drop_kept(void **state)
{
    struct kept *k = *state;
    store_close(k->store);
    (void)unlink(k->file);
    return rmdir(k->dir);
}

static void begin(struct kept *k, const char *reply_id, uint64_t owner, struct chat_request *r)
{
    chat_request_init(r, 1 << 20);
    r->keeping = (struct chat_keeping){k->store, owner, str_from(reply_id)};
}

static t9_status parse(const char *json, struct chat_request *r, struct chat_error *e)
{
    memset(e, 0, sizeof *e);
    return responses_adapter.parse(str_from(json), true, r, e);
}

/* Parses it and stores a reply that has this output. */
static void answered(struct kept *k, const char *reply_id, uint64_t owner, const char *json,
                     const char *output)
{
    struct chat_request r;
    struct chat_error e;
    struct buf body;
    begin(k, reply_id, owner, &r);
    if (parse(json, &r, &e) != T9_STATUS_OK)
        fail_msg("%s: %s", json, e.err.msg);
    struct chat_reply reply = {.request = &r};
    snprintf(reply.id, sizeof reply.id, "%s", reply_id);
    buf_init(&body, 1 << 16);
    buf_printf(&body, "{\"id\":\"%s\",\"output\":%s}", reply_id, output);
    chat_request_drop_input(&r); /* as a run does */
    responses_keep(&reply, buf_str(&body));
    buf_deinit(&body);
    chat_request_deinit(&r);
}

static void refused(struct kept *k, uint64_t owner, const char *json, const char *code,
                    const char *param)
{
    struct chat_request r;
    struct chat_error e;
    begin(k, "resp_x", owner, &r);
    if (parse(json, &r, &e) == T9_STATUS_OK || strcmp(e.param, param) != 0 || !e.code ||
        strcmp(e.code, code) != 0 || chat_error_http(&e) != 400)
        fail_msg("%s: %s, %s", json, e.param, e.err.msg);
    chat_request_deinit(&r);
}

/* What a request about a stored one gets; NULL: its status alone. */
static void asked(struct kept *k, uint64_t owner, const char *method, const char *path,
                  const char *query, int http, const char *says)
{
    struct chat_request r;
    struct chat_error e = {0};
    struct buf body, out;
    buf_init(&body, 4096);
    buf_init(&out, 1 << 16);
    begin(k, "kept-1", owner, &r);
    buf_printf(&body, "{\"method\":\"%s\",\"path\":\"%s\",\"query\":[%s]}", method, path, query);
    t9_status s = responses_kept_adapter.parse(buf_str(&body), false, &r, &e);
    if (s == T9_STATUS_OK)
        s = responses_kept_adapter.answer(NULL, &r, &out, &e);
    if ((s == T9_STATUS_OK ? 200 : chat_error_http(&e)) != http ||
        (says && !str_eqz(buf_str(&out), says)))
        fail_msg("%s %s: %.*s, %s", method, path, (int)out.n, out.p, e.err.msg);
    buf_deinit(&body);
    buf_deinit(&out);
    chat_request_deinit(&r);
}

#define SAID(id, text)                                                                             \
    "[{\"id\":\"" id "\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\","    \
    "\"content\":[{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[]}]}]"

#define ITEM(id, text)                                                                             \
    "{\"id\":\"msg_" id "\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","      \
    "\"content\":[{\"type\":\"input_text\",\"text\":\"" text "\"}]}"
#define LIST(items, first, last, more)                                                             \
    "{\"object\":\"list\",\"data\":[" items "],\"first_id\":" first ",\"last_id\":" last           \
    ",\"has_more\":" more "}"

static void test_goes_on(void **state)
{
    struct kept *k = *state;
    struct chat_request r;
    struct chat_error e;
    answered(k, "resp_a1", 7, "{\"instructions\":\"s\",\"input\":\"q1\"}", SAID("msg_a1_0", "t1"));
    answered(k, "resp_a2", 7,
             "{\"previous_response_id\":\"resp_a1\",\"input\":[{\"role\":\"user\",\"content\":"
             "\"q2\"}]}",
             "[{\"id\":\"fc_a2_0\",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":"
             "\"c\",\"name\":\"f\",\"arguments\":\"{}\"}]");
    begin(k, "resp_a3", 7, &r);
    assert_int_equal(
        parse("{\"previous_response_id\":\"resp_a2\",\"instructions\":\"new\",\"store\""
              ":false,\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\","
              "\"output\":\"o\"}]}",
              &r, &e),
        T9_STATUS_OK);
    assert_int_equal(r.n_warnings, 0);
    assert_int_equal(r.n_messages, 6);
    /* The instructions of before are not carried over. */
    assert_true(r.messages[0].role == CHAT_ROLE_SYSTEM && str_eqz(r.messages[0].content, "new"));
    assert_true(str_eqz(r.messages[1].content, "q1") && str_eqz(r.messages[2].content, "t1"));
    assert_true(str_eqz(r.messages[3].content, "q2") && r.messages[4].n_calls == 1);
    assert_true(r.messages[5].role == CHAT_ROLE_TOOL && str_eqz(r.messages[5].content, "o"));
    assert_false(responses_own(&r)->keep);
    assert_true(str_find(responses_own(&r)->told, STR("\"previous_response_id\":\"resp_a2\""), 0) !=
                (size_t)-1);
    chat_request_deinit(&r);
    refused(k, 8, "{\"previous_response_id\":\"resp_a2\",\"input\":\"q\"}",
            "previous_response_not_found", "previous_response_id");
    refused(k, 7, "{\"previous_response_id\":\"resp_none\",\"input\":\"q\"}",
            "previous_response_not_found", "previous_response_id");
    refused(k, 7, "{\"previous_response_id\":\"\",\"input\":\"q\"}", "previous_response_not_found",
            "previous_response_id");
    refused(k, 7, "{\"previous_response_id\":7,\"input\":\"q\"}", "invalid_value",
            "previous_response_id");
}

static void test_references(void **state)
{
    struct kept *k = *state;
    struct chat_request r;
    struct chat_error e;
    answered(k, "resp_b1", 7, "{\"input\":\"q1\"}", SAID("msg_b1_0", "t1"));
    begin(k, "resp_b2", 7, &r);
    assert_int_equal(parse("{\"input\":[{\"id\":\"msg_b1_i0\"},{\"type\":\"item_reference\",\"id\":"
                           "\"msg_b1_0\"},{\"role\":\"user\",\"content\":\"q2\"}]}",
                           &r, &e),
                     T9_STATUS_OK);
    assert_int_equal(r.n_messages, 3);
    assert_true(str_eqz(r.messages[0].content, "q1") && str_eqz(r.messages[1].content, "t1"));
    /* What is stored of it are the items themselves. */
    str items = responses_own(&r)->items;
    assert_true(str_find(items, STR("item_reference"), 0) == (size_t)-1);
    assert_true(str_find(items, STR("\"text\":\"t1\""), 0) != (size_t)-1);
    chat_request_deinit(&r);
    /* Each with an id of its own, however often it is named. */
    answered(k, "resp_b3", 7,
             "{\"previous_response_id\":\"resp_b1\",\"input\":[{\"id\":\"msg_b1_i0\"},{\"id\":"
             "\"msg_b1_i0\"},{\"role\":\"user\",\"content\":\"q2\"}]}",
             "[]");
    asked(k, 7, "GET", "resp_b3/input_items",
          "[\"order\",\"asc\"],[\"after\",\"msg_b1_0\"],[\"limit\",\"2\"]", 200,
          LIST(ITEM("b3_i0", "q1") "," ITEM("b3_i1", "q1"), "\"msg_b3_i0\"", "\"msg_b3_i1\"",
               "true"));
    asked(k, 7, "GET", "resp_b3/input_items", "[\"order\",\"asc\"],[\"after\",\"msg_b3_i1\"]", 200,
          LIST(ITEM("b3_i2", "q2"), "\"msg_b3_i2\"", "\"msg_b3_i2\"", "false"));
    refused(k, 7, "{\"input\":[{\"id\":\"msg_b1_1\"}]}", "item_not_found", "input[0]");
    refused(k, 8, "{\"input\":[{\"id\":\"msg_b1_0\"}]}", "item_not_found", "input[0]");
    refused(k, 7, "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"id\":\"x\"}]}",
            "item_not_found", "input[1]");
    refused(k, 7, "{\"input\":[{}]}", "item_not_found", "input[0]");
}

static void test_asked(void **state)
{
    struct kept *k = *state;
    answered(k, "resp_c1", 7,
             "{\"input\":[{\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","
             "\"content\":\"a\"},{\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","
             "\"content\":[{\"type\":\"input_text\",\"text\":\"b\"}]},{\"type\":\"message\","
             "\"status\":\"completed\",\"role\":\"user\",\"content\":\"c\"}]}",
             "[]");
    asked(k, 7, "GET", "resp_c1", "", 200, "{\"id\":\"resp_c1\",\"output\":[]}");
    asked(k, 8, "GET", "resp_c1", "", 404, NULL);
    asked(k, 7, "GET", "resp_none", "", 404, NULL);
    asked(k, 7, "GET", "", "", 404, NULL);
    asked(k, 7, "GET", "resp_c1", "[\"stream\",\"true\"]", 400, NULL);
    asked(k, 7, "GET", "resp_c1/other", "", 404, NULL);
    const char *items = "resp_c1/input_items";
    asked(k, 7, "GET", items, "", 200,
          LIST(ITEM("c1_i2", "c") "," ITEM("c1_i1", "b") "," ITEM("c1_i0", "a"), "\"msg_c1_i2\"",
               "\"msg_c1_i0\"", "false"));
    asked(
        k, 7, "GET", items, "[\"order\",\"asc\"],[\"limit\",\"2\"]", 200,
        LIST(ITEM("c1_i0", "a") "," ITEM("c1_i1", "b"), "\"msg_c1_i0\"", "\"msg_c1_i1\"", "true"));
    asked(k, 7, "GET", items, "[\"order\",\"asc\"],[\"limit\",\"2\"],[\"after\",\"msg_c1_i1\"]",
          200, LIST(ITEM("c1_i2", "c"), "\"msg_c1_i2\"", "\"msg_c1_i2\"", "false"));
    asked(k, 7, "GET", items, "[\"after\",\"msg_c1_i0\"]", 200, LIST("", "\"\"", "\"\"", "false"));
    asked(k, 7, "GET", items, "[\"after\",\"msg_none\"]", 400, NULL);
    asked(k, 7, "GET", items, "[\"order\",\"up\"]", 400, NULL);
    asked(k, 7, "GET", items, "[\"limit\",\"101\"]", 400, NULL);
    /* What isn't read may stand there as often as it likes. */
    asked(k, 7, "GET", "resp_c1",
          "[\"include[]\",\"x\"],[\"include[]\",\"y\"],[\"limit\",\"0\"],[\"limit\",\"1\"]", 200,
          "{\"id\":\"resp_c1\",\"output\":[]}");
    asked(k, 7, "GET", items, "[\"after\",\"msg_c1_i0\"],[\"a\",\"1\"],[\"a\",\"1\"]", 200,
          LIST("", "\"\"", "\"\"", "false"));
    asked(k, 7, "GET", items, "[\"limit\",\"1\"],[\"limit\",\"1\"]", 400, NULL);
    asked(k, 7, "GET", items, "[\"order\",\"asc\"],[\"order\",\"desc\"]", 400, NULL);
    asked(k, 7, "GET", items, "[\"after\",\"\"],[\"after\",\"msg_c1_i0\"]", 400, NULL);
    asked(k, 8, "GET", items, "", 404, NULL);
    asked(k, 7, "DELETE", items, "", 404, NULL);
    asked(k, 8, "DELETE", "resp_c1", "", 404, NULL);
    asked(k, 7, "DELETE", "resp_c1", "", 200,
          "{\"id\":\"resp_c1\",\"object\":\"response\",\"deleted\":true}");
    asked(k, 7, "GET", "resp_c1", "", 404, NULL);
    asked(&(struct kept){.store = NULL}, 7, "GET", "resp_c1", "", 404, NULL);
}

static t9_status recalled(struct kept *k, str json, struct chat_error *e)
{
    struct chat_request r;
    begin(k, "resp_x", 7, &r);
    memset(e, 0, sizeof *e);
    t9_status s = responses_adapter.parse(json, true, &r, e);
    chat_request_deinit(&r);
    return s;
}

static void put_large(struct kept *k, const char *id, const char *previous, struct buf *text,
                      size_t n)
{
    buf_clear(text);
    buf_printf(text,
               "[{\"id\":\"msg_%s_i0\",\"role\":\"user\",\"content\":\"a\"},{\"id\":\"x\","
               "\"type\":\"message\",\"role\":\"user\",\"content\":\"",
               id + 5);
    while (text->n < n)
        buf_puts(text, "0123456789abcdef0123456789abcdef");
    buf_puts(text, "\"}]");
    struct store_row row = {str_from(id), str_from(previous), 7, STR("{\"output\":[]}"),
                            buf_str(text)};
    assert_int_equal(store_put(k->store, &row, NULL), T9_STATUS_OK);
}

/* A request reads each response once, and no more than a bound of all. */
static void test_bounded(void **state)
{
    struct kept *k = *state;
    struct chat_error e;
    struct buf text, json;
    buf_init(&text, 64 << 20);
    buf_init(&json, 64 << 20);
    put_large(k, "resp_f1", "", &text, 30 << 20);
    put_large(k, "resp_f2", "resp_f1", &text, 30 << 20);
    put_large(k, "resp_f3", "resp_f2", &text, 10 << 20);
    /* 256 x 30 MiB, if each read it. */
    buf_puts(&json, "{\"input\":[{\"id\":\"msg_f1_i0\"}");
    for (int i = 1; i < 256; i++)
        buf_puts(&json, ",{\"id\":\"msg_f1_i0\"}");
    buf_puts(&json, "]}");
    assert_int_equal(recalled(k, buf_str(&json), &e), T9_STATUS_OK);
    assert_int_equal(
        recalled(k, STR("{\"input\":[{\"id\":\"msg_f1_i0\"},{\"id\":\"msg_f2_i0\"}]}"), &e),
        T9_STATUS_OK);
    assert_int_equal(recalled(k,
                              STR("{\"input\":[{\"id\":\"msg_f1_i0\"},{\"id\":\"msg_f2_i0\"},"
                                  "{\"id\":\"msg_f3_i0\"}]}"),
                              &e),
                     T9_STATUS_TOO_LARGE);
    assert_string_equal(e.param, "input[2]");
    assert_int_equal(chat_error_http(&e), 413);
    assert_non_null(strstr(e.err.msg, "64 MiB"));
    assert_int_equal(recalled(k, STR("{\"previous_response_id\":\"resp_f3\",\"input\":\"q\"}"), &e),
                     T9_STATUS_TOO_LARGE);
    assert_int_equal(chat_error_http(&e), 413);
    assert_non_null(strstr(e.err.msg, "64 MiB"));
    assert_int_equal(recalled(k,
                              STR("{\"previous_response_id\":\"resp_f2\",\"input\":[{\"id\":"
                                  "\"msg_f3_i0\"}]}"),
                              &e),
                     T9_STATUS_TOO_LARGE);
    assert_int_equal(chat_error_http(&e), 413);
    buf_deinit(&json);
    buf_deinit(&text);
}

/* Elements that are no items are told as such, not as what could not be stored. */
static void test_no_items(void **state)
{
    struct kept *k = *state;
    static const char *const bad[] = {"\"a\"", "null", "7", "[]"};
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        char json[96];
        struct chat_error e;
        snprintf(json, sizeof json, "{\"input\":[%s]}", bad[i]);
        refused(k, 7, json, "invalid_value", "input[0]");
        (void)recalled(k, str_from(json), &e);
        assert_non_null(strstr(e.err.msg, "input[0] must be an item"));
    }
    refused(k, 7, "{\"input\":[{\"id\":\"msg_none_0\"},\"a\"]}", "invalid_value", "input[1]");
}

/* Rows that we would not have written. */
static void test_damaged(void **state)
{
    struct kept *k = *state;
    static const char *const bad[][2] = {{"", ""},
                                         {"[]", "{}"},
                                         {"[]", "{\"output\":7}"},
                                         {"{}", "{\"output\":[]}"},
                                         {"[", "{\"output\":[]}"}};
    char id[16];
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        struct chat_request r;
        struct chat_error e;
        char json[96];
        snprintf(id, sizeof id, "resp_d%zu", i);
        struct store_row row = {str_from(id), STR(""), 7, str_from(bad[i][1]), str_from(bad[i][0])};
        assert_int_equal(store_put(k->store, &row, NULL), T9_STATUS_OK);
        snprintf(json, sizeof json, "{\"previous_response_id\":\"%s\",\"input\":\"q\"}", id);
        begin(k, "resp_x", 7, &r);
        assert_int_equal(parse(json, &r, &e), T9_STATUS_IO);
        assert_non_null(strstr(e.err.msg, "damaged"));
        chat_request_deinit(&r);
        /* Read alone it is as bad, but for the input, which is not read then. */
        asked(k, 7, "GET", id, "", i < 3 ? 500 : 200, NULL);
    }
    /* References in a row name nothing. */
    struct store_row row = {STR("resp_e"), STR(""), 7, STR("{\"output\":[]}"),
                            STR("[{\"id\":\"msg_e_0\"}]")};
    assert_int_equal(store_put(k->store, &row, NULL), T9_STATUS_OK);
    refused(k, 7, "{\"previous_response_id\":\"resp_e\",\"input\":\"q\"}", "invalid_value",
            "stored[0]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),  cmocka_unit_test(test_references),
        cmocka_unit_test(test_asked),    cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_no_items), cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, make_kept, drop_kept);
}
