/*
 * base/memory.c - reads /proc/meminfo and the limits of control groups, version 2 and 1. See
 * memory.h.
 *
 * A limit may stand at the process's own group or at any group above it, so all of them are looked
 * at. File cache that the system would give up first (inactive_file) is not counted as used.
 * Where the path in /proc/self/cgroup is not the one under /sys (a container without a namespace of
 * its own), the walk upwards ends at the mount's root, which then is the container's own group.
 */
#include "base/memory.h"

#include "base/file.h"
#include "base/num.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KV_MIN_BYTES      ((uint64_t)64 << 20)
#define KV_FALLBACK_BYTES ((uint64_t)1 << 30)

enum {
    TEXT_MAX = 1 << 16,
    PATH_CAP = 1024,
};

struct cgroup_files {
    const char *mount, *limit, *soft_limit, *usage, *cache_key;
};

static const struct cgroup_files CGROUP_V2 = {"/sys/fs/cgroup", "memory.max", "memory.high",
                                              "memory.current", "inactive_file "};
static const struct cgroup_files CGROUP_V1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                              NULL, "memory.usage_in_bytes",
                                              "total_inactive_file "};

/* The text of root + dir + '/' + name; false when it cannot be read. */
static bool read_text(struct buf *b, const char *root, const char *dir, const char *name)
{
    char path[PATH_CAP];
    int n = snprintf(path, sizeof path, "%s%s/%s", root, dir, name);
    buf_clear(b);
    return n > 0 && (size_t)n < sizeof path && file_read_all(path, b, NULL) == T9_STATUS_OK;
}

static str next_line(str *text)
{
    size_t end = str_find(*text, STR("\n"), 0);
    str line = str_slice(*text, 0, end == (size_t)-1 ? text->n : end);
    *text = str_slice(*text, end == (size_t)-1 ? text->n : end + 1, text->n);
    return line;
}

/* The number after `key` at the start of a line; `suffix` may follow it. */
static bool find_number(str text, str key, str suffix, uint64_t *out)
{
    while (text.n > 0) {
        str line = next_line(&text);
        if (!str_has_prefix(line, key))
            continue;
        line = str_trim(str_slice(line, key.n, line.n));
        if (str_has_suffix(line, suffix))
            line = str_trim(str_slice(line, 0, line.n - suffix.n));
        return num_parse_u64(line, out);
    }
    return false;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* One number in a file of its own; "max" and what cannot be read are no limit. */
static uint64_t read_limit(struct buf *b, const char *root, const char *dir, const char *name)
{
    uint64_t x;
    if (!name || !read_text(b, root, dir, name) || !num_parse_u64(str_trim(buf_str(b)), &x))
        return UINT64_MAX;
    return x;
}

/* Bytes that one group has left; UINT64_MAX when it sets no limit. */
static uint64_t group_left(struct buf *b, const char *root, const struct cgroup_files *f,
                           const char *dir)
{
    uint64_t limit =
        min_u64(read_limit(b, root, dir, f->limit), read_limit(b, root, dir, f->soft_limit));
    if (limit >= (uint64_t)INT64_MAX / 2) /* version 1 says "none" by a huge number */
        return UINT64_MAX;
    uint64_t used = read_limit(b, root, dir, f->usage);
    uint64_t cache = 0;
    if (used == UINT64_MAX)
        used = 0;
    if (read_text(b, root, dir, "memory.stat"))
        (void)find_number(buf_str(b), str_from(f->cache_key), STR(""), &cache);
    used -= min_u64(used, cache);
    return limit - min_u64(limit, used);
}

/* The least of a group and all above it. */
static uint64_t groups_left(struct buf *b, const char *root, const struct cgroup_files *f,
                            str group)
{
    char dir[PATH_CAP];
    size_t mount = strlen(f->mount);
    uint64_t left = UINT64_MAX;
    if (mount + group.n >= sizeof dir)
        return left;
    memcpy(dir, f->mount, mount);
    memcpy(dir + mount, group.p, group.n);
    for (size_t n = mount + group.n;;) {
        dir[n] = '\0';
        left = min_u64(left, group_left(b, root, f, dir));
        if (n <= mount)
            return left;
        while (n > mount && dir[n] != '/')
            n--;
    }
}

/* "4:memory:/path" (version 1) or "0::/path" (version 2): the path, without a '/' alone. */
static bool cgroup_path(str line, bool *v2, str *path)
{
    size_t first = str_find(line, STR(":"), 0);
    size_t second = first == (size_t)-1 ? first : str_find(line, STR(":"), first + 1);
    if (second == (size_t)-1)
        return false;
    str controllers = str_slice(line, first + 1, second);
    *path = str_slice(line, second + 1, line.n);
    if (str_eq(*path, STR("/")))
        path->n = 0;
    *v2 = controllers.n == 0;
    while (controllers.n > 0) {
        size_t end = str_find(controllers, STR(","), 0);
        size_t n = end == (size_t)-1 ? controllers.n : end;
        if (str_eq(str_slice(controllers, 0, n), STR("memory")))
            return true;
        controllers = str_slice(controllers, end == (size_t)-1 ? n : end + 1, controllers.n);
    }
    return *v2;
}

static uint64_t cgroups_left(struct buf *b, const char *root)
{
    struct buf groups;
    uint64_t left = UINT64_MAX;
    buf_init(&groups, TEXT_MAX);
    if (read_text(&groups, root, "/proc/self", "cgroup")) {
        str text = buf_str(&groups);
        while (text.n > 0) {
            str path;
            bool v2;
            if (cgroup_path(next_line(&text), &v2, &path))
                left = min_u64(left, groups_left(b, root, v2 ? &CGROUP_V2 : &CGROUP_V1, path));
        }
    }
    buf_deinit(&groups);
    return left;
}

uint64_t memory_available_bytes(const char *root)
{
    struct buf b;
    uint64_t kib;
    uint64_t bytes = UINT64_MAX;
    buf_init(&b, TEXT_MAX);
    if (read_text(&b, root, "/proc", "meminfo") &&
        find_number(buf_str(&b), STR("MemAvailable:"), STR("kB"), &kib) && kib < UINT64_MAX / 1024)
        bytes = kib * 1024;
    bytes = min_u64(bytes, cgroups_left(&b, root));
    buf_deinit(&b);
    return bytes;
}

uint64_t memory_kv_default_bytes(const char *root)
{
    uint64_t available = memory_available_bytes(root);
    uint64_t half = available == UINT64_MAX ? KV_FALLBACK_BYTES : available / 2;
    return half < KV_MIN_BYTES ? KV_MIN_BYTES : half;
}
