/* Tests of http/listen.c and http/tls.c: unix sockets and what lies in their way, certificates. */
#include "lib/http_rig.h"
#include "lib/t9test.h"

#include <microhttpd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static int connect_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

static void refused(const struct http_params *p, const char *why)
{
    struct t9_err err = {0};
    assert_int_not_equal(http_params_check(p, &err), T9_STATUS_OK);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" is not of \"%s\"", err.msg, why);
}

static void test_unix(void **state)
{
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct stat sb;
    struct buf in;
    char dir[64], path[96];
    (void)state;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/t9.sock", dir);
    engine_script_init(&script);
    http_params_init(&p);
    p.unix_path = path;
    http_rig_start(&r, &script, &p);
    assert_int_equal(stat(path, &sb), 0);
    assert_true(S_ISSOCK(sb.st_mode));
    assert_int_equal(sb.st_mode & 0777, 0600);
    int fd = connect_unix(path);
    assert_true(fd >= 0);
    /* Host and Origin are a browser's matter, and none gets here. */
    static const char ask[] =
        "GET /health HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n";
    assert_true(client_send(fd, ask, strlen(ask)));
    buf_init(&in, 1 << 20);
    (void)client_read_until(fd, &in, 0, NULL);
    assert_int_equal(client_status(&in), 200);
    buf_deinit(&in);
    close(fd);
    refused(&p, "another program listens there");
    http_rig_stop(&r);
    assert_int_not_equal(stat(path, &sb), 0); /* taken away */
    /* Left behind by a server that was killed. */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    http_rig_start(&r, &script, &p);
    http_rig_stop(&r);
    /* A file of somebody's stays, also one that took the place meanwhile. */
    http_rig_start(&r, &script, &p);
    unlink(path);
    test_write_file(path, "mine", 4);
    http_rig_stop(&r);
    refused(&p, "exists and is no socket");
    assert_int_equal(stat(path, &sb), 0);
    unlink(path);
    p.unix_path = "/no/such/folder/t9.sock";
    refused(&p, "can't listen on the unix socket");
    char longest[200];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    p.unix_path = longest;
    refused(&p, "the path of a unix socket");
    rmdir(dir);
}

static void test_addresses(void **state)
{
    struct http_params p;
    (void)state;
    http_params_init(&p);
    p.port = 0;
    p.host = "0.0.0.0";
    refused(&p, "--insecure");
    p.host = "::";
    refused(&p, "--insecure");
    p.host = "127.evil.example.invalid";
    refused(&p, "no address to listen on");
    p.host = "192.0.2.1";
    p.insecure = true;
    refused(&p, "no address of this machine");
    struct t9_err err = {0};
    p.host = "localhost";
    p.insecure = false;
    assert_int_equal(http_params_check(&p, &err), T9_STATUS_OK);
}

static void test_tls_files(void **state)
{
    struct http_params p;
    char dir[64], path[96];
    (void)state;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/x.pem", dir);
    test_write_file(path, "no certificate", 14);
    http_params_init(&p);
    p.port = 0;
    p.tls_cert = path;
    refused(&p, "both are needed");
    p.tls_key = path;
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_YES) {
        refused(&p, "no certificate in PEM form");
        p.tls_cert = "/no/such.pem";
        refused(&p, "/no/such.pem");
    } else {
        refused(&p, "without TLS");
    }
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unix),
                                       cmocka_unit_test(test_addresses),
                                       cmocka_unit_test(test_tls_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
