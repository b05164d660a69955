/*
 * hub/cache.c - the cache on disk: refs, snapshots, blobs, partial files, locks. See hub/cache.h.
 */
#include "hub/cache.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { LINK_MAX_BYTES = 256 };

static t9_status os_fail(struct t9_err *err, const struct hub_cache *c, const char *what)
{
    char z[96];
    int e = errno;
    const char *why = strerror_r(e, z, sizeof z);
    if (e == ELOOP || e == ENOTDIR)
        why =
            "a link or a file is where a folder belongs, and the cache is not followed out of its "
            "place";
    return t9_fail(err, T9_STATUS_IO, "%s/%s: cannot %s: %s", c->dir, c->folder, what, why);
}

/* A folder below `at`, never by way of a link. -1 with errno. */
static int folder_open(int at, const char *name, bool create)
{
    if (create && mkdirat(at, name, 0777) != 0 && errno != EEXIST)
        return -1;
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The cache's own folder and those above it; these may be links, they are the user's choice. */
static int root_open(const char *dir, bool create)
{
    char path[HUB_FILE_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s", dir);
    if (n <= 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (int i = 1; create && i <= n; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        char kept = path[i];
        path[i] = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST && errno != EISDIR && errno != EROFS)
            return -1;
        path[i] = kept;
    }
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

t9_status hub_cache_open(struct hub_cache *c, const char *dir, const char *repo, bool create,
                         struct t9_err *err)
{
    memset(c, 0, sizeof *c);
    c->root = c->repo = c->blobs = c->snapshots = c->locks = -1;
    c->dir = dir;
    size_t slash = str_find(str_from(repo), STR("/"), 0);
    snprintf(c->folder, sizeof c->folder, "models--%.*s--%s", (int)slash, repo, repo + slash + 1);
    c->root = root_open(dir, create);
    if (c->root >= 0)
        c->repo = folder_open(c->root, c->folder, create);
    if (c->repo >= 0)
        c->blobs = folder_open(c->repo, "blobs", create);
    if (c->blobs >= 0)
        c->snapshots = folder_open(c->repo, "snapshots", create);
    if (c->snapshots >= 0 && create) {
        int all = folder_open(c->root, ".locks", true);
        if (all >= 0)
            c->locks = folder_open(all, c->folder, true);
        int e = errno;
        if (all >= 0)
            close(all);
        errno = e;
    }
    if (c->snapshots >= 0 && (!create || c->locks >= 0))
        return T9_STATUS_OK;
    int e = errno;
    hub_cache_close(c);
    errno = e;
    if (!create && e == ENOENT)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "%s has nothing of %s", dir, repo);
    return os_fail(err, c, create ? "make the cache's folders" : "open the cache's folders");
}

void hub_cache_close(struct hub_cache *c)
{
    int *fds[] = {&c->locks, &c->snapshots, &c->blobs, &c->repo, &c->root};
    for (size_t i = 0; i < T9_COUNT(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

t9_status hub_cache_ref_read(const struct hub_cache *c, char commit[41], struct t9_err *err)
{
    char text[64];
    int refs = folder_open(c->repo, "refs", false);
    int fd = refs < 0 ? -1 : openat(refs, "main", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    int e = errno;
    if (fd >= 0)
        close(fd);
    if (refs >= 0)
        close(refs);
    errno = e;
    if (n < 0 && e == ENOENT)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "%s has no refs/main of %s", c->dir, c->folder);
    if (n < 0)
        return os_fail(err, c, "read refs/main");
    str s = str_trim((str){text, (size_t)n});
    if (!hub_is_hex(s, 40))
        return t9_fail(err, T9_STATUS_CORRUPT, "%s/%s/refs/main does not hold a commit", c->dir,
                       c->folder);
    memcpy(commit, s.p, 40);
    commit[40] = 0;
    return T9_STATUS_OK;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

t9_status hub_cache_ref_write(const struct hub_cache *c, const char *commit, struct t9_err *err)
{
    char name[32];
    snprintf(name, sizeof name, "main.%ld.tmp", (long)getpid());
    int refs = folder_open(c->repo, "refs", true);
    if (refs < 0)
        return os_fail(err, c, "make refs");
    unlinkat(refs, name, 0);
    int fd = openat(refs, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && write_all(fd, commit, strlen(commit));
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && renameat(refs, name, refs, "main") == 0;
    t9_status s = ok ? T9_STATUS_OK : os_fail(err, c, "write refs/main");
    if (!ok)
        unlinkat(refs, name, 0);
    close(refs);
    return s;
}

/* "../" for snapshots, the commit and each folder of the path, then blobs/. */
static size_t link_prefix(char *out, size_t cap, int depth)
{
    size_t n = 0;
    for (int i = 0; i < depth + 2; i++)
        n += (size_t)snprintf(out + n, cap - n, "../");
    return n + (size_t)snprintf(out + n, cap - n, "blobs/");
}

/* Size of an entry of a snapshot: a regular file, or the layout's own link to a blob. */
static bool entry_bytes(const struct hub_cache *c, int at, const char *name, int depth,
                        uint64_t *size_bytes)
{
    struct stat sb;
    char target[LINK_MAX_BYTES], expect[LINK_MAX_BYTES];
    if (fstatat(at, name, &sb, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    if (S_ISLNK(sb.st_mode)) {
        size_t prefix = link_prefix(expect, sizeof expect, depth);
        ssize_t n = readlinkat(at, name, target, sizeof target - 1);
        if (n <= (ssize_t)prefix || memcmp(target, expect, prefix) != 0)
            return false;
        target[n] = 0;
        str blob = {target + prefix, (size_t)n - prefix};
        if (!hub_is_hex(blob, 64) && !hub_is_hex(blob, 40))
            return false;
        if (fstatat(c->blobs, blob.p, &sb, AT_SYMLINK_NOFOLLOW) != 0)
            return false;
    }
    *size_bytes = (uint64_t)sb.st_size;
    return S_ISREG(sb.st_mode);
}

/* A walk through a snapshot, with the folders above the entry in `path`. */
struct walk {
    const struct hub_cache *c;
    struct arena *arena;
    struct hub_files *out;
    size_t cap;
    char path[HUB_PATH_MAX];
    bool nomem;
};

static void file_add(struct walk *w, str path, uint64_t size_bytes)
{
    if (w->out->n == w->cap || w->nomem)
        return;
    struct hub_file *f = &w->out->v[w->out->n];
    f->size_bytes = size_bytes;
    f->path = arena_str(w->arena, path);
    w->nomem = !f->path.p;
    w->out->n += !w->nomem;
}

/* Takes over `at`. Recursion is bounded by HUB_PATH_DEPTH_MAX. */
static void folder_walk(struct walk *w, int at, size_t path_n, int depth)
{
    struct dirent *e;
    DIR *d = fdopendir(at);
    if (!d) {
        close(at);
        return;
    }
    while ((e = readdir(d))) {
        struct stat sb;
        uint64_t size_bytes;
        if (e->d_name[0] == '.')
            continue;
        int n = snprintf(w->path + path_n, sizeof w->path - path_n, "%s%s", path_n ? "/" : "",
                         e->d_name);
        str path = {w->path, path_n + (size_t)n};
        if ((size_t)n >= sizeof w->path - path_n || !hub_path_ok(path))
            continue;
        if (hub_is_gguf(path) && entry_bytes(w->c, dirfd(d), e->d_name, depth, &size_bytes)) {
            file_add(w, path, size_bytes);
            continue;
        }
        if (depth + 1 < HUB_PATH_DEPTH_MAX &&
            fstatat(dirfd(d), e->d_name, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(sb.st_mode)) {
            int fd = folder_open(dirfd(d), e->d_name, false);
            if (fd >= 0)
                folder_walk(w, fd, path.n, depth + 1);
        }
    }
    closedir(d);
}

t9_status hub_cache_list(const struct hub_cache *c, const char *commit, struct arena *arena,
                         struct hub_files *out, struct t9_err *err)
{
    enum { CACHED_FILES_MAX = 4096 };
    memset(out, 0, sizeof *out);
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    struct walk w = {.c = c, .arena = arena, .out = out, .cap = CACHED_FILES_MAX};
    out->v = arena_calloc(arena, w.cap, sizeof *out->v);
    if (!out->v)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a list of files");
    int fd = folder_open(c->snapshots, commit, false);
    if (fd < 0 && errno == ENOENT)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "%s has no files of %s", c->dir, c->folder);
    if (fd < 0)
        return os_fail(err, c, "open a snapshot");
    folder_walk(&w, fd, 0, 0);
    return w.nomem ? t9_fail(err, T9_STATUS_NOMEM, "no memory for file names") : T9_STATUS_OK;
}

bool hub_cache_has(const struct hub_cache *c, const char *hash, uint64_t size_bytes)
{
    struct stat sb;
    return fstatat(c->blobs, hash, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(sb.st_mode) &&
           (uint64_t)sb.st_size == size_bytes;
}

/* The folder of a file of a snapshot, made; *name is the last part. -1 with errno. */
static int snapshot_folder(const struct hub_cache *c, const char *commit, str path,
                           const char **name, int *depth)
{
    char part[HUB_PATH_MAX];
    int at = folder_open(c->snapshots, commit, true);
    *depth = 0;
    for (size_t from = 0; at >= 0;) {
        size_t to = str_find(path, STR("/"), from);
        if (to == (size_t)-1) {
            *name = path.p + from;
            return at;
        }
        snprintf(part, sizeof part, STR_FMT, STR_ARG(str_slice(path, from, to)));
        int below = folder_open(at, part, true);
        int e = errno;
        close(at);
        errno = e;
        at = below;
        from = to + 1;
        ++*depth;
    }
    return -1;
}

t9_status hub_cache_link(const struct hub_cache *c, const char *commit, str path, const char *hash,
                         struct t9_err *err)
{
    char target[LINK_MAX_BYTES], temporary[48], now[LINK_MAX_BYTES];
    const char *name = NULL;
    int depth;
    int at = snapshot_folder(c, commit, path, &name, &depth);
    if (at < 0)
        return os_fail(err, c, "make a snapshot's folder");
    size_t n = link_prefix(target, sizeof target, depth);
    snprintf(target + n, sizeof target - n, "%s", hash);
    ssize_t got = readlinkat(at, name, now, sizeof now - 1);
    t9_status s = T9_STATUS_OK;
    if (got < 0 || !str_eqz((str){now, (size_t)got}, target)) {
        /* A new name and a rename: nobody sees a file that is not there. */
        snprintf(temporary, sizeof temporary, ".link.%ld.tmp", (long)getpid());
        unlinkat(at, temporary, 0);
        if (symlinkat(target, at, temporary) != 0 || renameat(at, temporary, at, name) != 0)
            s = os_fail(err, c, "link a snapshot to its blob");
        if (s != T9_STATUS_OK)
            unlinkat(at, temporary, 0);
    }
    close(at);
    return s;
}

t9_status hub_cache_path(const struct hub_cache *c, const char *commit, str path,
                         char out[HUB_FILE_PATH_MAX], struct t9_err *err)
{
    int n = snprintf(out, HUB_FILE_PATH_MAX, "%s/%s/snapshots/%s/" STR_FMT, c->dir, c->folder,
                     commit, STR_ARG(path));
    if (n < 0 || n >= HUB_FILE_PATH_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: the path of the cache is too long", c->dir);
    return T9_STATUS_OK;
}

static void partial_name(char out[HUB_HASH_MAX + 16], const char *hash)
{
    snprintf(out, HUB_HASH_MAX + 16, "%s.incomplete", hash);
}

t9_status hub_cache_partial_open(const struct hub_cache *c, const char *hash, int *fd,
                                 uint64_t *size_bytes, struct t9_err *err)
{
    char name[HUB_HASH_MAX + 16];
    struct stat sb;
    partial_name(name, hash);
    *fd = openat(c->blobs, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
    if (*fd < 0)
        return os_fail(err, c, "open a partial download");
    if (fstat(*fd, &sb) != 0 || !S_ISREG(sb.st_mode) || sb.st_nlink != 1) {
        close(*fd);
        *fd = -1;
        return t9_fail(err, T9_STATUS_IO,
                       "%s/%s/blobs/%s is not a plain file of its own: remove it and try again",
                       c->dir, c->folder, name);
    }
    *size_bytes = (uint64_t)sb.st_size;
    return T9_STATUS_OK;
}

t9_status hub_cache_partial_finish(const struct hub_cache *c, const char *hash, int fd,
                                   struct t9_err *err)
{
    char name[HUB_HASH_MAX + 16];
    partial_name(name, hash);
    if (fsync(fd) != 0 || renameat(c->blobs, name, c->blobs, hash) != 0)
        return os_fail(err, c, "finish a download");
    return T9_STATUS_OK;
}

void hub_cache_partial_remove(const struct hub_cache *c, const char *hash)
{
    char name[HUB_HASH_MAX + 16];
    partial_name(name, hash);
    unlinkat(c->blobs, name, 0);
}

uint64_t hub_cache_partial_bytes(const struct hub_cache *c, const char *hash)
{
    char name[HUB_HASH_MAX + 16];
    struct stat sb;
    partial_name(name, hash);
    if (fstatat(c->blobs, name, &sb, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(sb.st_mode))
        return 0;
    return (uint64_t)sb.st_size;
}

uint64_t hub_cache_free_bytes(const struct hub_cache *c)
{
    struct statvfs v;
    if (fstatvfs(c->blobs, &v) != 0)
        return UINT64_MAX; /* the write itself will tell */
    return (uint64_t)v.f_bavail * v.f_frsize;
}

t9_status hub_cache_lock(const struct hub_cache *c, const char *hash, int *fd, struct t9_err *err)
{
    char name[HUB_HASH_MAX + 8];
    snprintf(name, sizeof name, "%s.lock", hash);
    *fd = openat(c->locks, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
    if (*fd < 0)
        return os_fail(err, c, "open a lock");
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return T9_STATUS_OK;
    int e = errno;
    close(*fd);
    *fd = -1;
    errno = e;
    if (e == EWOULDBLOCK || e == EINTR)
        return t9_fail(err, T9_STATUS_BUSY, "another program is fetching the same file");
    return os_fail(err, c, "take a lock");
}
