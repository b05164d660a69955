/*
 * cli/config.c - the one place that reads the environment. An option always wins over it.
 */
#include "cli/cli.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "cli/conffile.h"
#include "t9_build.h"

#include <stdio.h>
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

static t9_status check_line(const char *path, size_t n_line, str key, struct t9_err *err)
{
    for (size_t i = 0; i < key.n; i++) {
        if (key.p[i] <= ' ' || key.p[i] > '~')
            return t9_fail(
                err, T9_STATUS_INVALID,
                "%s, line %zu: byte %zu is %s, which no key has: write a key a line, and "
                "comments on lines of their own, after a #",
                path, n_line, i + 1,
                key.p[i] == ' ' || key.p[i] == '\t' ? "a blank" : "no printable ASCII");
    }
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
    size_t before = k->n, n_line = 0;
    for (char *line = k->text.p; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        str key = str_trim(str_from(line));
        line[(size_t)(key.p - line) + key.n] = 0;
        n_line++;
        if (key.n && key.p[0] != '#') {
            T9_TRY(check_line(path, n_line, key, err));
            T9_TRY(add_key(k, key.p, err));
        }
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

bool config_stderr_is_journal(void)
{
    const char *v = getenv("JOURNAL_STREAM"), *colon = v ? strchr(v, ':') : NULL;
    uint64_t dev, inode;
    struct stat st;
    return colon && num_parse_u64((str){v, (size_t)(colon - v)}, &dev) &&
           num_parse_u64(str_from(colon + 1), &inode) && fstat(STDERR_FILENO, &st) == 0 &&
           dev == (uint64_t)st.st_dev && inode == (uint64_t)st.st_ino;
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

static const char *env_text(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

/* $name/rest, or ~/home_rest when there is no such variable. */
static t9_status env_path(char *out, size_t cap, const char *name, const char *rest,
                          const char *home_rest, struct t9_err *err)
{
    const char *dir = env_text(name), *home = env_text("HOME");
    if (!dir && !home)
        return t9_fail(err, T9_STATUS_INVALID, "neither %s nor HOME is set", name);
    int n = dir ? snprintf(out, cap, "%s%s", dir, rest)
                : snprintf(out, cap, "%s/%s%s", home, home_rest, rest);
    if (n < 0 || (size_t)n >= cap)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "the path of %s is too long", name);
    return T9_STATUS_OK;
}

/* HF_HOME, else huggingface in the user's cache. */
static t9_status hf_home(char *out, size_t cap, const char *rest, struct t9_err *err)
{
    char below[64];
    if (env_text("HF_HOME"))
        return env_path(out, cap, "HF_HOME", rest, "", err);
    snprintf(below, sizeof below, "/huggingface%s", rest);
    return env_path(out, cap, "XDG_CACHE_HOME", below, ".cache", err);
}

/* HF_TOKEN, else the file that the hub's own login has written. */
static t9_status hf_token(char *out, size_t cap, struct t9_err *err)
{
    char path[HUB_FILE_PATH_MAX];
    struct buf text;
    struct stat sb;
    const char *env = env_text("HF_TOKEN");
    buf_init(&text, 4096);
    t9_status s = T9_STATUS_OK;
    if (!env) {
        if (hf_home(path, sizeof path, "/token", err) != T9_STATUS_OK || stat(path, &sb) != 0)
            return T9_STATUS_OK;
        s = file_read_all(path, &text, err);
    }
    str token = str_trim(env ? str_from(env) : buf_str(&text));
    for (size_t i = 0; s == T9_STATUS_OK && i < token.n; i++)
        if (token.p[i] <= ' ' || token.p[i] > '~')
            s = t9_fail(err, T9_STATUS_INVALID,
                        "%s does not hold a token: it has blanks or other "
                        "signs in it",
                        env ? "HF_TOKEN" : path);
    if (s == T9_STATUS_OK && token.n >= cap)
        s = t9_fail(err, T9_STATUS_INVALID, "%s does not hold a token: it is too long",
                    env ? "HF_TOKEN" : path);
    if (s == T9_STATUS_OK && token.n)
        memcpy(out, token.p, token.n);
    out[s == T9_STATUS_OK ? token.n : 0] = 0;
    if (text.p)
        explicit_bzero(text.p, text.cap);
    buf_deinit(&text);
    return s;
}

t9_status config_hub_read(struct config_hub *c, const struct cli_options *o, struct t9_err *err)
{
    const char *dir = env_text("HF_HUB_CACHE"), *offline = env_text("HF_HUB_OFFLINE");
    bool on = false;
    memset(c, 0, sizeof *c);
    if (offline && !conffile_bool(offline, &on))
        return t9_fail(err, T9_STATUS_INVALID, "HF_HUB_OFFLINE: expected 1 or 0");
    c->offline = o->offline || on;
    c->endpoint = env_text("HF_ENDPOINT");
    if (!c->endpoint)
        c->endpoint = HUB_ENDPOINT_DEFAULT;
    c->user_agent = "tempo9/" T9_VERSION;
    if (!dir)
        T9_TRY(hf_home(c->cache_dir, sizeof c->cache_dir, "/hub", err));
    else if (snprintf(c->cache_dir, sizeof c->cache_dir, "%s", dir) >= (int)sizeof c->cache_dir)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "HF_HUB_CACHE is too long");
    return c->offline ? T9_STATUS_OK : hf_token(c->token, sizeof c->token, err);
}

t9_status config_ollama_dir(char *out, size_t cap, struct t9_err *err)
{
    return env_path(out, cap, "OLLAMA_MODELS", "", ".ollama/models", err);
}
