/*
 * cli/config.c - the one place that reads the environment. An option always wins over it.
 */
#include "cli/cli.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEYS_MAX = 4096, KEY_FILE_BYTES_MAX = 1 << 20 };

static t9_status add_key(struct api_keys *k, const char *key, struct t9_err *err)
{
    const char **v = k->n < KEYS_MAX ? mem_realloc(k->v, k->n + 1, sizeof *v) : NULL;
    if (!v)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "more than %d API keys", KEYS_MAX);
    k->v = v;
    k->v[k->n++] = key;
    return T9_STATUS_OK;
}

/* One key a line. */
static t9_status read_key_file(struct api_keys *k, const char *path, struct t9_err *err)
{
    struct stat sb;
    buf_init(&k->text, KEY_FILE_BYTES_MAX);
    T9_TRY(file_read_all(path, &k->text, err));
    buf_putc(&k->text, 0);
    if (k->text.failed)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: no memory", path);
    if (stat(path, &sb) == 0 && (sb.st_mode & (S_IRWXO | S_IWGRP)))
        LOG_WARN("serve", "%s can be read or changed by others: chmod 600 keeps the keys yours",
                 path);
    size_t before = k->n;
    for (char *line = k->text.p; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        str key = str_trim(str_from(line));
        line[(size_t)(key.p - line) + key.n] = 0;
        if (key.n && key.p[0] != '#')
            T9_TRY(add_key(k, key.p, err));
        line = end ? end + 1 : NULL;
    }
    return k->n > before ? T9_STATUS_OK
                         : t9_fail(err, T9_STATUS_INVALID, "%s: there is no key in it", path);
}

t9_status config_api_keys(const struct cli_options *o, struct api_keys *out, struct t9_err *err)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < o->api_keys.n; i++)
        T9_TRY(add_key(out, o->api_keys.v[i], err));
    if (o->api_key_file)
        T9_TRY(read_key_file(out, o->api_key_file, err));
    const char *key = getenv("TEMPO9_API_KEY");
    return out->n || !key || !key[0] ? T9_STATUS_OK : add_key(out, key, err);
}

void config_api_keys_free(struct api_keys *k)
{
    buf_deinit(&k->text);
    mem_free(k->v);
    memset(k, 0, sizeof *k);
}

const char *config_notify_socket(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    return path && path[0] ? path : NULL;
}

uint64_t config_watchdog_us(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t v = 0, for_pid = 0;
    if (!us || !num_parse_u64(str_from(us), &v))
        return 0;
    if (pid && (!num_parse_u64(str_from(pid), &for_pid) || for_pid != (uint64_t)getpid()))
        return 0;
    return v;
}
