/*
 * hub/get.c - hub_get: asks the hub what there is, chooses, downloads what the cache lacks, checks
 * it, and links it into the snapshot.
 *
 * A file's bytes are written to HASH.incomplete and hashed as they come; only bytes with the right
 * hash get the blob's name. A failure that may pass (network, 429, 5xx) is tried again with growing
 * waits, as long as there is progress; a stop leaves the partial file, and the next call asks for
 * the rest of it. refs/main is written last, so that it always names files that are there.
 */
#include "hub/hub.h"

#include "base/clock.h"
#include "base/hash.h"
#include "hub/cache.h"
#include "hub/fetch.h"
#include "hub/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    URL_MAX = 4096,
    READ_CHUNK = 256 << 10,
    WAIT_MAX_S = 30,          /* between two tries */
    RETRY_AFTER_MAX_S = 300,  /* that a hub may ask for */
    PROGRESS_BYTES = 1 << 20, /* that make a try count as progress */
    ASK_LIMIT_S = 120,
    ARENA_MAX = 64 << 20,
};
#define FREE_BYTES_KEPT ((uint64_t)64 << 20) /* of the disk, for others */

struct hub {
    const struct hub_params *p;
    struct hub_name name;
    struct hub_cache cache;
    struct hub_fetch *fetch; /* NULL when offline */
    struct arena arena;
    struct hub_files files;
    struct hub_choice choice;
    struct hub_progress progress;
    bool unreachable; /* no answer of use, for a reason that may pass */
};

/* One download. */
struct download {
    struct hub *h;
    const struct hub_file *file;
    int fd;
    uint64_t have_bytes, resumed_bytes, base_bytes; /* base: of the files before this one */
    struct hash_sha *sha;
    char etag[160]; /* of the body that have_bytes are from; "" unknown */
    t9_status failed;
    struct t9_err err;
};

static void note(const struct hub *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(const struct hub *h, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (!h->p->note)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    h->p->note(h->p->ctx, text);
}

static bool go_on(struct hub *h)
{
    return !h->p->progress || h->p->progress(h->p->ctx, &h->progress);
}

/* Sleeps, unless somebody wants to stop. */
static bool wait_s(struct hub *h, int64_t seconds)
{
    h->progress.waiting = true;
    bool on = go_on(h);
    for (int64_t i = 0; on && i < seconds * 10; i++) {
        clock_sleep_ms(100);
        on = go_on(h);
    }
    h->progress.waiting = false;
    return on;
}

/* ---- what an answer of another status than 200 means ---- */

static t9_status refused_name(const struct hub *h, const struct hub_reply *r, struct t9_err *err)
{
    const char *repo = h->name.repo;
    if (strcmp(r->error_code, "GatedRepo") == 0 || r->status == 403)
        return t9_fail(err, T9_STATUS_FORBIDDEN,
                       "%s is not open to %s: accept its licence at %s/%s and set HF_TOKEN to a "
                       "token that may read it",
                       repo, h->p->token ? "this token" : "everybody", h->p->endpoint, repo);
    if (h->p->token && strcmp(r->error_code, "RepoNotFound") != 0)
        return t9_fail(err, T9_STATUS_FORBIDDEN,
                       "%s: the hub does not accept the token (HF_TOKEN); make a new one at "
                       "%s/settings/tokens",
                       repo, h->p->endpoint);
    return t9_fail(err, T9_STATUS_FORBIDDEN,
                   "%s: there is no such repository, or it is private: check the name, or set "
                   "HF_TOKEN to a token that may read it",
                   repo);
}

/* AGAIN when it may pass. */
static t9_status status_error(const struct hub *h, const struct hub_reply *r, const char *what,
                              struct t9_err *err)
{
    switch (r->status) {
    case 401:
    case 403: return refused_name(h, r, err);
    case 404:
        return t9_fail(err, T9_STATUS_NOT_FOUND, "%s: the hub has no such %s (404)", h->name.repo,
                       what);
    case 429:
        return t9_fail(err, T9_STATUS_AGAIN, "%s: too many requests (429)%s", r->host,
                       h->p->token ? "" : "; HF_TOKEN raises the limit");
    default:
        return t9_fail(err, r->status >= 500 || r->status == 408 ? T9_STATUS_AGAIN : T9_STATUS_IO,
                       "%s answers with status %ld to the request for %.80s", r->host, r->status,
                       what);
    }
}

/* Waits before try number `n_failed` + 1. `err` has the failure: it stands when there are no more
 * tries. */
static t9_status retry_wait(struct hub *h, int n_failed, int limit, const struct hub_reply *r,
                            struct t9_err *err)
{
    int64_t wait = n_failed > 5 ? WAIT_MAX_S : 1 << (n_failed - 1);
    if (r->retry_after_s > wait)
        wait = r->retry_after_s;
    if (wait > RETRY_AFTER_MAX_S)
        return t9_fail(err, T9_STATUS_IO, "%s wants us to come back in %lld s; try again then",
                       r->host, (long long)wait);
    if (n_failed > limit) {
        err->code = T9_STATUS_IO;
        return T9_STATUS_IO;
    }
    note(h, "%s; again in %lld s (%d of %d)", err->msg, (long long)wait, n_failed, limit);
    return wait_s(h, wait) ? T9_STATUS_OK : t9_fail(err, T9_STATUS_CANCELLED, "stopped");
}

/* ---- the list of files ---- */

static bool answer_begin(void *ctx, const struct hub_reply *r)
{
    (void)ctx, (void)r;
    return true;
}

struct answer {
    struct hub *h;
    struct buf text;
};

static bool answer_data(void *ctx, const void *p, size_t n)
{
    struct answer *a = ctx;
    buf_append(&a->text, p, n);
    return !a->text.failed;
}

static bool answer_go_on(void *ctx)
{
    return go_on(((struct answer *)ctx)->h);
}

static t9_status ask_once(struct answer *a, const char *url, struct hub_reply *r,
                          struct t9_err *err)
{
    struct hub *h = a->h;
    struct hub_request req = {.url = url,
                              .time_limit_s = ASK_LIMIT_S,
                              .begin = answer_begin,
                              .data = answer_data,
                              .go_on = answer_go_on,
                              .ctx = a};
    buf_clear(&a->text);
    t9_status s = hub_fetch_get(h->fetch, &req, r, err);
    if (a->text.failed)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: the hub's answer is over %zu MB",
                       h->name.repo, HUB_ANSWER_BYTES_MAX >> 20);
    if (s == T9_STATUS_OK && r->status != 200)
        s = status_error(h, r, "repository", err);
    h->unreachable = s == T9_STATUS_AGAIN;
    return s;
}

/* Fills h->files from the hub. */
static t9_status ask(struct hub *h, int retries, struct t9_err *err)
{
    char url[URL_MAX];
    struct answer a = {.h = h};
    struct hub_reply r;
    size_t n = strlen(h->p->endpoint);
    while (n > 0 && h->p->endpoint[n - 1] == '/')
        n--;
    snprintf(url, sizeof url, "%.*s/api/models/%s/revision/main?blobs=true", (int)n, h->p->endpoint,
             h->name.repo);
    buf_init(&a.text, HUB_ANSWER_BYTES_MAX);
    t9_status s;
    for (int failed = 0;;) {
        s = ask_once(&a, url, &r, err);
        if (s != T9_STATUS_AGAIN)
            break;
        s = retry_wait(h, ++failed, retries, &r, err);
        if (s != T9_STATUS_OK)
            break;
    }
    if (s == T9_STATUS_OK)
        s = hub_files_parse(&h->files, &h->arena, buf_str(&a.text), err);
    buf_deinit(&a.text);
    return s;
}

/* ---- one file ---- */

static bool download_fail(struct download *d, t9_status s)
{
    d->failed = s;
    return false;
}

static t9_status sha_begin(struct download *d)
{
    hash_sha_free(d->sha);
    return hash_sha_new(&d->sha, strlen(d->file->hash) == 40 ? HASH_SHA_1 : HASH_SHA_256, &d->err);
}

/* git's name of a file is the SHA-1 of a small header and the bytes. */
static t9_status sha_prefix(struct download *d)
{
    char head[40];
    if (strlen(d->file->hash) != 40)
        return T9_STATUS_OK;
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)d->file->size_bytes);
    return hash_sha_update(d->sha, head, (size_t)n + 1, &d->err);
}

/* Begins the file anew. */
static t9_status download_restart(struct download *d)
{
    d->have_bytes = d->resumed_bytes = 0;
    d->etag[0] = 0;
    if (ftruncate(d->fd, 0) != 0)
        return t9_fail_os(&d->err, T9_STATUS_IO, errno, "%s: cannot empty the partial file",
                          d->file->path.p);
    T9_TRY(sha_begin(d));
    return sha_prefix(d);
}

/* Hashes what an earlier run has left. */
static t9_status download_resume(struct download *d)
{
    char chunk[READ_CHUNK / 4];
    T9_TRY(sha_begin(d));
    T9_TRY(sha_prefix(d));
    for (uint64_t at = 0; at < d->have_bytes;) {
        uint64_t left = d->have_bytes - at;
        ssize_t n =
            pread(d->fd, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            return t9_fail(&d->err, T9_STATUS_IO, "%s: the partial file has become shorter",
                           d->file->path.p);
        if (n < 0)
            return t9_fail_os(&d->err, T9_STATUS_IO, errno, "%s: the partial file cannot be read",
                              d->file->path.p);
        T9_TRY(hash_sha_update(d->sha, chunk, (size_t)n, &d->err));
        at += (uint64_t)n;
        if (!go_on(d->h))
            return t9_fail(&d->err, T9_STATUS_CANCELLED, "stopped");
    }
    d->resumed_bytes = d->have_bytes;
    return T9_STATUS_OK;
}

/* An ETag is quoted, and weak ones do not promise the same bytes. */
static bool etag_is(const char *etag, const char *hash)
{
    size_t n = strlen(hash);
    return strlen(etag) == n + 2 && etag[0] == '"' && memcmp(etag + 1, hash, n) == 0;
}

static bool etag_is_strong(const char *etag)
{
    return etag[0] == '"' && strlen(etag) > 2;
}

static bool download_begin(void *ctx, const struct hub_reply *r)
{
    struct download *d = ctx;
    const struct hub_file *f = d->file;
    if (r->linked_etag[0] && !etag_is(r->linked_etag, f->hash))
        return download_fail(d,
                             t9_fail(&d->err, T9_STATUS_CORRUPT,
                                     "%s: the hub contradicts itself about the hash", f->path.p));
    if (r->status == 200) {
        if (d->have_bytes > 0) {
            t9_status s = download_restart(d); /* it did not give the rest but the whole */
            if (s != T9_STATUS_OK)
                return download_fail(d, s);
        }
    } else if (d->have_bytes == 0 || r->range_first != (int64_t)d->have_bytes ||
               (r->range_total >= 0 && r->range_total != (int64_t)f->size_bytes)) {
        return download_fail(d, t9_fail(&d->err, T9_STATUS_CORRUPT,
                                        "%s: %s sends another part than was asked for", f->path.p,
                                        r->host));
    }
    if (r->length >= 0 && (uint64_t)r->length != f->size_bytes - d->have_bytes)
        return download_fail(d, t9_fail(&d->err, T9_STATUS_CORRUPT,
                                        "%s: %s sends %lld bytes where the hub promised %llu",
                                        f->path.p, r->host, (long long)r->length,
                                        (unsigned long long)(f->size_bytes - d->have_bytes)));
    snprintf(d->etag, sizeof d->etag, "%s", etag_is_strong(r->etag) ? r->etag : "");
    return true;
}

static t9_status write_error(struct download *d, int e)
{
    char z[96];
    const char *name = d->file->path.p;
    if (e == ENOSPC || e == EDQUOT)
        return t9_fail(&d->err, T9_STATUS_IO,
                       "the disk of %.90s is full; %.1f of %.1f MB are kept: make room, or set "
                       "HF_HUB_CACHE to a folder on another disk, and try again",
                       d->h->p->cache_dir, (double)d->have_bytes / 1e6,
                       (double)d->file->size_bytes / 1e6);
    if (e == EFBIG)
        return t9_fail(&d->err, T9_STATUS_IO,
                       "%.90s: a file of %.1f MB is over the limit of this file system or user; "
                       "%.1f MB are kept: raise it (ulimit -f), or set HF_HUB_CACHE to a folder on "
                       "another disk, and try again",
                       name, (double)d->file->size_bytes / 1e6, (double)d->have_bytes / 1e6);
    return t9_fail(&d->err, T9_STATUS_IO, "%s: cannot be written: %s", name,
                   strerror_r(e, z, sizeof z));
}

static bool download_data(void *ctx, const void *p, size_t n)
{
    struct download *d = ctx;
    const char *at = p;
    if (n > d->file->size_bytes - d->have_bytes)
        return download_fail(d,
                             t9_fail(&d->err, T9_STATUS_CORRUPT,
                                     "%s: more bytes come than the hub promised", d->file->path.p));
    while (n > 0) {
        ssize_t put = pwrite(d->fd, at, n, (off_t)d->have_bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return download_fail(d, write_error(d, put < 0 ? errno : ENOSPC));
        t9_status s = hash_sha_update(d->sha, at, (size_t)put, &d->err);
        if (s != T9_STATUS_OK)
            return download_fail(d, s);
        at += put;
        n -= (size_t)put;
        d->have_bytes += (uint64_t)put;
        d->h->progress.fetched_bytes += (uint64_t)put;
    }
    return true;
}

static bool download_go_on(void *ctx)
{
    struct download *d = ctx;
    d->h->progress.done_bytes = d->base_bytes + d->have_bytes;
    return go_on(d->h);
}

static void url_append(struct buf *b, str path)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~/", c);
        if (plain)
            buf_putc(b, (char)c);
        else
            buf_printf(b, "%%%c%c", digits[c >> 4], digits[c & 15]);
    }
}

static t9_status file_url(const struct download *d, struct buf *url, struct t9_err *err)
{
    const struct hub *h = d->h;
    size_t n = strlen(h->p->endpoint);
    while (n > 0 && h->p->endpoint[n - 1] == '/')
        n--;
    buf_append(url, h->p->endpoint, n);
    buf_printf(url, "/%s/resolve/%s/", h->name.repo, h->files.commit);
    url_append(url, d->file->path);
    buf_putc(url, 0);
    return url->failed ? t9_fail(err, T9_STATUS_TOO_LARGE, "HF_ENDPOINT is too long")
                       : T9_STATUS_OK;
}

/* One request for what is missing. OK: all bytes are there. */
static t9_status download_try(struct download *d, const char *url, struct hub_reply *r,
                              struct t9_err *err)
{
    struct hub_request req = {.url = url,
                              .from_bytes = d->have_bytes,
                              .if_range = d->etag[0] ? d->etag : NULL,
                              .begin = download_begin,
                              .data = download_data,
                              .go_on = download_go_on,
                              .ctx = d};
    d->failed = T9_STATUS_OK;
    t9_status s = hub_fetch_get(d->h->fetch, &req, r, err);
    if (d->failed != T9_STATUS_OK) {
        *err = d->err;
        return d->failed;
    }
    if (s != T9_STATUS_OK)
        return s;
    if (r->status == 416 && d->have_bytes > 0) { /* the partial file is of something else */
        s = download_restart(d);
        *err = d->err;
        return s == T9_STATUS_OK ? t9_fail(err, T9_STATUS_AGAIN, "%s: begins anew", d->file->path.p)
                                 : s;
    }
    if (r->status != 200 && r->status != 206)
        return status_error(d->h, r, d->file->path.p, err);
    if (d->have_bytes < d->file->size_bytes)
        return t9_fail(err, T9_STATUS_AGAIN, "%s: the connection ended early", r->host);
    return T9_STATUS_OK;
}

static t9_status download_bytes(struct download *d, const char *url, struct t9_err *err)
{
    struct hub_reply r;
    for (int failed = 0; d->have_bytes < d->file->size_bytes || d->file->size_bytes == 0;) {
        uint64_t before = d->have_bytes;
        t9_status s = download_try(d, url, &r, err);
        if (s != T9_STATUS_AGAIN)
            return s;
        failed = d->have_bytes >= before + PROGRESS_BYTES ? 1 : failed + 1;
        T9_TRY(retry_wait(d->h, failed, d->h->p->retries, &r, err));
    }
    return T9_STATUS_OK;
}

/* Downloads and checks; what an old partial file has spoiled is fetched once more from its start.
 */
static t9_status download_checked(struct download *d, const char *url, struct t9_err *err)
{
    char hash[HUB_HASH_MAX];
    for (;;) {
        T9_TRY(download_bytes(d, url, err));
        t9_status s = hash_sha_finish(d->sha, hash, err);
        if (s != T9_STATUS_OK || strcmp(hash, d->file->hash) == 0)
            return s;
        if (d->resumed_bytes == 0)
            break;
        note(d->h, "%s: the part that was there before is damaged; fetching it from the start",
             d->file->path.p);
        s = download_restart(d);
        if (s != T9_STATUS_OK) {
            *err = d->err;
            return s;
        }
    }
    hub_cache_partial_remove(&d->h->cache, d->file->hash);
    return t9_fail(err, T9_STATUS_CORRUPT,
                   "%s: what came has another hash (%.12s...) than the hub says (%.12s...); it was "
                   "removed",
                   d->file->path.p, hash, d->file->hash);
}

static t9_status lock_wait(struct hub *h, const struct hub_file *f, int *fd, struct t9_err *err)
{
    for (bool told = false;; told = true) {
        t9_status s = hub_cache_lock(&h->cache, f->hash, fd, err);
        if (s != T9_STATUS_BUSY)
            return s;
        if (!told)
            note(h, "another program is fetching %s: waiting for it", f->path.p);
        h->progress.waiting = true;
        bool on = go_on(h);
        clock_sleep_ms(100);
        h->progress.waiting = false;
        if (!on)
            return t9_fail(err, T9_STATUS_CANCELLED, "stopped");
    }
}

/* Fetches one blob under its lock. */
static t9_status blob_get(struct hub *h, const struct hub_file *f, uint64_t base_bytes,
                          struct t9_err *err)
{
    struct download d = {.h = h, .file = f, .fd = -1, .base_bytes = base_bytes};
    struct buf url;
    int lock = -1;
    buf_init(&url, URL_MAX);
    h->progress.file = f->path.p;
    t9_status s = lock_wait(h, f, &lock, err);
    if (s != T9_STATUS_OK || hub_cache_has(&h->cache, f->hash, f->size_bytes))
        goto done;
    s = hub_cache_partial_open(&h->cache, f->hash, &d.fd, &d.have_bytes, err);
    if (s != T9_STATUS_OK)
        goto done;
    s = d.have_bytes > f->size_bytes ? download_restart(&d) : download_resume(&d);
    if (s != T9_STATUS_OK) {
        *err = d.err;
        goto done;
    }
    if (d.have_bytes > 0)
        note(h, "%s: going on at %.1f of %.1f MB", f->path.p, (double)d.have_bytes / 1e6,
             (double)f->size_bytes / 1e6);
    s = file_url(&d, &url, err);
    if (s == T9_STATUS_OK)
        s = download_checked(&d, url.p, err);
    if (s == T9_STATUS_OK)
        s = hub_cache_partial_finish(&h->cache, f->hash, d.fd, err);
done:
    hash_sha_free(d.sha);
    if (d.fd >= 0)
        close(d.fd);
    if (lock >= 0)
        close(lock);
    buf_deinit(&url);
    return s;
}

/* ---- all of it ---- */

/* Whether what is missing fits on the disk. */
static t9_status space_check(struct hub *h, struct t9_err *err)
{
    uint64_t need = 0, free_bytes = hub_cache_free_bytes(&h->cache);
    for (size_t i = 0; i < h->choice.n; i++) {
        const struct hub_file *f = h->choice.part[i];
        uint64_t partial = hub_cache_partial_bytes(&h->cache, f->hash);
        if (!hub_cache_has(&h->cache, f->hash, f->size_bytes))
            need += f->size_bytes - (partial < f->size_bytes ? partial : f->size_bytes);
    }
    if (need == 0 || (free_bytes >= FREE_BYTES_KEPT && need <= free_bytes - FREE_BYTES_KEPT))
        return T9_STATUS_OK;
    return t9_fail(
        err, T9_STATUS_IO,
        "%.1f GB are still to come and the disk of %.90s has %.1f GB free: make room, or "
        "set HF_HUB_CACHE to a folder on another disk",
        (double)need / 1e9, h->p->cache_dir, (double)free_bytes / 1e9);
}

static t9_status choose(struct hub *h, bool quiet, struct t9_err *err)
{
    struct buf listing;
    buf_init(&listing, 4 << 20);
    t9_status s = hub_choose(&h->choice, &h->files, &h->name, quiet ? NULL : &listing, err);
    for (size_t from = 0; from < listing.n;) {
        str all = buf_str(&listing);
        size_t to = str_find(all, STR("\n"), from);
        if (from == 0)
            note(h, "%s has:", h->name.repo);
        note(h, STR_FMT, STR_ARG(str_slice(all, from, to)));
        from = to + 1;
    }
    buf_deinit(&listing);
    return s;
}

/* The choice among what the cache has. */
static t9_status from_cache(struct hub *h, bool quiet, struct t9_err *err)
{
    char commit[41];
    T9_TRY(hub_cache_ref_read(&h->cache, commit, err));
    T9_TRY(hub_cache_list(&h->cache, commit, &h->arena, &h->files, err));
    return choose(h, quiet, err);
}

/* The cache is made when there is something to put into it: what a hub does not have leaves no
 * folder behind. */
static t9_status fetch_all(struct hub *h, struct t9_err *err)
{
    T9_TRY(choose(h, false, err));
    hub_cache_close(&h->cache);
    T9_TRY(hub_cache_open(&h->cache, h->p->cache_dir, h->name.repo, true, err));
    T9_TRY(space_check(h, err));
    uint64_t base = 0;
    for (size_t i = 0; i < h->choice.n; i++)
        h->progress.total_bytes += h->choice.part[i]->size_bytes;
    for (size_t i = 0; i < h->choice.n; i++) {
        const struct hub_file *f = h->choice.part[i];
        if (!hub_cache_has(&h->cache, f->hash, f->size_bytes))
            T9_TRY(blob_get(h, f, base, err));
        T9_TRY(hub_cache_link(&h->cache, h->files.commit, f->path, f->hash, err));
        base += f->size_bytes;
        h->progress.done_bytes = base;
    }
    go_on(h); /* shows the end; a stop now changes nothing */
    return hub_cache_ref_write(&h->cache, h->files.commit, err);
}

static t9_status online(struct hub *h, struct t9_err *err)
{
    struct t9_err cached;
    T9_TRY(hub_fetch_new(&h->fetch, h->p, err));
    t9_status s = hub_cache_open(&h->cache, h->p->cache_dir, h->name.repo, false, err);
    if (s != T9_STATUS_OK && s != T9_STATUS_NOT_FOUND)
        return s;
    /* With a copy at hand nobody wants to wait for a network that is not there. */
    bool has_copy =
        s == T9_STATUS_OK && h->p->cache_will_do && from_cache(h, true, &cached) == T9_STATUS_OK;
    s = ask(h, has_copy ? 0 : h->p->retries, err);
    if (s == T9_STATUS_OK)
        return fetch_all(h, err);
    if (s != T9_STATUS_IO || !h->unreachable || !has_copy)
        return s;
    note(h, "%s; using the copy in the cache (--offline does not ask)", err->msg);
    return from_cache(h, false, err);
}

static t9_status offline(struct hub *h, struct t9_err *err)
{
    t9_status s = hub_cache_open(&h->cache, h->p->cache_dir, h->name.repo, false, err);
    if (s == T9_STATUS_OK)
        s = from_cache(h, false, err);
    if (s == T9_STATUS_NOT_FOUND)
        t9_err_prefix(err, "offline, and not in the cache");
    return s;
}

t9_status hub_get(struct hub_model *out, const struct hub_params *p, const char *spec,
                  struct t9_err *err)
{
    struct hub h = {.p = p};
    struct t9_err own;
    err = err ? err : &own;
    memset(out, 0, sizeof *out);
    h.cache = (struct hub_cache){.root = -1, .repo = -1, .blobs = -1, .snapshots = -1, .locks = -1};
    T9_TRY(hub_name_parse(&h.name, spec, err));
    arena_init(&h.arena, ARENA_MAX);
    t9_status s = p->offline ? offline(&h, err) : online(&h, err);
    if (s == T9_STATUS_OK)
        s = hub_cache_path(&h.cache, h.files.commit, h.choice.part[0]->path, out->path, err);
    if (s == T9_STATUS_OK) {
        const char *slash = strrchr(h.choice.part[0]->path.p, '/');
        snprintf(out->name, sizeof out->name, "%.255s",
                 slash ? slash + 1 : h.choice.part[0]->path.p);
        if (h.choice.mmproj)
            note(&h, "an image encoder is beside it (%s); images are not supported yet",
                 h.choice.mmproj->path.p);
    }
    if (h.fetch)
        hub_fetch_free(h.fetch);
    hub_cache_close(&h.cache);
    arena_deinit(&h.arena);
    return s;
}
