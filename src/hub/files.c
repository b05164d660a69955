/*
 * hub/files.c - reads the hub's list of files and chooses among them. Pure functions; a stranger
 * wrote what they read.
 */
#include "hub/files.h"

#include "base/json.h"

#include <stdio.h>

/* Checks one entry of "siblings"; NOT_FOUND when it is no GGUF file and so of no interest. */
static t9_status file_parse(struct hub_file *f, struct arena *arena, yyjson_val *v,
                            struct t9_err *err)
{
    yyjson_val *lfs = json_get(v, "lfs");
    str path = json_str(json_get(v, "rfilename"));
    if (!hub_is_gguf(path))
        return T9_STATUS_NOT_FOUND;
    if (!hub_path_ok(path))
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "the hub's answer has a file name that is not safe to use: %.100s", path.p);
    yyjson_val *size = json_get(lfs, "size");
    if (!size)
        size = json_get(v, "size");
    if (!yyjson_is_uint(size) || yyjson_get_uint(size) > HUB_FILE_BYTES_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT, "the hub's answer has no usable size of %.100s",
                       path.p);
    f->size_bytes = yyjson_get_uint(size);
    str hash = json_str(json_get(lfs, "sha256"));
    if (!hash.p)
        hash = json_str(json_get(lfs, "oid"));
    if (str_has_prefix(hash, STR("sha256:")))
        hash = str_slice(hash, 7, hash.n);
    bool known = hub_is_hex(hash, 64);
    if (!lfs || yyjson_is_null(lfs)) {
        hash = json_str(json_get(v, "blobId"));
        known = hub_is_hex(hash, 40);
    }
    if (!known)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "the hub's answer has no hash of %.100s, and a file that cannot be checked "
                       "is not fetched",
                       path.p);
    snprintf(f->hash, sizeof f->hash, STR_FMT, STR_ARG(hash));
    f->path = arena_str(arena, path);
    return f->path.p ? T9_STATUS_OK : t9_fail(err, T9_STATUS_NOMEM, "no memory for file names");
}

static t9_status siblings_parse(struct hub_files *out, struct arena *arena, yyjson_val *list,
                                struct t9_err *err)
{
    yyjson_val *v;
    yyjson_arr_iter it = yyjson_arr_iter_with(list);
    if (yyjson_arr_size(list) > HUB_FILES_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "the repository has %zu files, the limit is %d",
                       yyjson_arr_size(list), HUB_FILES_MAX);
    out->v = arena_calloc(arena, yyjson_arr_size(list) + 1, sizeof *out->v);
    if (!out->v)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a list of files");
    while ((v = yyjson_arr_iter_next(&it))) {
        t9_status s = file_parse(&out->v[out->n], arena, v, err);
        if (s == T9_STATUS_OK)
            out->n++;
        else if (s != T9_STATUS_NOT_FOUND)
            return s;
    }
    return T9_STATUS_OK;
}

t9_status hub_files_parse(struct hub_files *out, struct arena *arena, str json, struct t9_err *err)
{
    static const struct json_limits limits = {HUB_ANSWER_BYTES_MAX, 32, 1 << 20};
    yyjson_doc *doc;
    memset(out, 0, sizeof *out);
    t9_status s = json_parse(&doc, json, limits, err);
    if (s != T9_STATUS_OK) {
        t9_err_prefix(err, "the hub's answer");
        if (s == T9_STATUS_INVALID) /* the hub's fault, not the user's */
            s = T9_STATUS_CORRUPT;
        if (err)
            err->code = s;
        return s;
    }
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *list = json_get(root, "siblings");
    str commit = json_str(json_get(root, "sha"));
    if (!hub_is_hex(commit, 40) || !yyjson_is_arr(list)) {
        s = t9_fail(err, T9_STATUS_CORRUPT,
                    "the hub's answer has no commit (\"sha\") or no list of files (\"siblings\")");
    } else {
        memcpy(out->commit, commit.p, 40);
        s = siblings_parse(out, arena, list, err);
    }
    yyjson_doc_free(doc);
    return s;
}

/* Whether a file stands for a model: it is whole, or the first part. */
static bool is_head(const struct hub_file *f)
{
    struct hub_split split;
    return hub_is_weights(f->path) && (!hub_split_parse(&split, f->path) || split.no == 1);
}

/* Bytes of all parts. */
static uint64_t model_bytes(const struct hub_files *files, const struct hub_file *head)
{
    struct hub_split split, other;
    if (!hub_split_parse(&split, head->path))
        return head->size_bytes;
    uint64_t total = 0; /* 512 parts of 2^44 bytes fit */
    for (size_t i = 0; i < files->n; i++)
        if (hub_split_parse(&other, files->v[i].path) && other.count == split.count &&
            str_eq(other.stem, split.stem))
            total += files->v[i].size_bytes;
    return total;
}

static void listing_write(struct buf *listing, const struct hub_files *files)
{
    for (size_t i = 0; listing && i < files->n; i++) {
        const struct hub_file *f = &files->v[i];
        if (!is_head(f))
            continue;
        str quant = hub_quant(f->path);
        buf_printf(listing, "  %-12.*s %8.2f GB  %s\n", STR_ARG(quant),
                   (double)model_bytes(files, f) / 1e9, f->path.p);
    }
}

/* The one head that `tag` means; sets *n to how many it could mean. */
static const struct hub_file *head_find(const struct hub_files *files, str tag, size_t *n)
{
    const struct hub_file *found = NULL;
    *n = 0;
    for (size_t i = 0; i < files->n; i++) {
        if (!is_head(&files->v[i]) || (tag.p && !hub_quant_is(files->v[i].path, tag)))
            continue;
        if (!found)
            found = &files->v[i];
        ++*n;
    }
    return found;
}

static const struct hub_file *file_find(const struct hub_files *files, str path)
{
    for (size_t i = 0; i < files->n; i++)
        if (str_eq(files->v[i].path, path))
            return &files->v[i];
    return NULL;
}

static t9_status head_choose(const struct hub_file **out, const struct hub_files *files,
                             const struct hub_name *name, struct t9_err *err)
{
    static const char *const usual[] = {"Q4_K_M", "Q4_K_S", "Q8_0"};
    size_t n;
    if (name->is_file) {
        *out = file_find(files, str_from(name->select));
        return *out ? T9_STATUS_OK
                    : t9_fail(err, T9_STATUS_NOT_FOUND, "%s has no file %.120s", name->repo,
                              name->select);
    }
    if (name->select[0]) {
        *out = head_find(files, str_from(name->select), &n);
        if (n == 0)
            return t9_fail(err, T9_STATUS_NOT_FOUND, "%s has no weights %.60s", name->repo,
                           name->select);
        if (n > 1)
            return t9_fail(err, T9_STATUS_INVALID,
                           "%s has %zu files for %.40s: name one, as %s:FILE.gguf", name->repo, n,
                           name->select, name->repo);
        return T9_STATUS_OK;
    }
    *out = head_find(files, (str){NULL, 0}, &n);
    if (n == 0)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "%s has no GGUF weights", name->repo);
    if (n == 1)
        return T9_STATUS_OK;
    for (size_t i = 0; i < T9_COUNT(usual); i++) {
        *out = head_find(files, str_from(usual[i]), &n);
        if (n == 1)
            return T9_STATUS_OK;
        if (n > 1)
            break;
    }
    return t9_fail(err, T9_STATUS_INVALID,
                   "%s has several models and none is the usual one: name one, as %s:QUANT or "
                   "%s:FILE.gguf",
                   name->repo, name->repo, name->repo);
}

/* All parts of the file that was chosen, in order. */
static t9_status parts_find(struct hub_choice *out, const struct hub_files *files,
                            const struct hub_file *head, struct t9_err *err)
{
    struct hub_split split;
    if (!hub_split_parse(&split, head->path)) {
        out->part[out->n++] = head;
        return T9_STATUS_OK;
    }
    if (split.count > HUB_PARTS_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s has %u parts, the limit is %d", head->path.p,
                       split.count, HUB_PARTS_MAX);
    for (uint32_t no = 1; no <= split.count; no++) {
        char path[HUB_PATH_MAX];
        snprintf(path, sizeof path, STR_FMT "-%05u-of-%05u" STR_FMT, STR_ARG(split.stem), no,
                 split.count,
                 STR_ARG(str_slice(head->path, head->path.n - 5, head->path.n))); /* .gguf */
        out->part[out->n] = file_find(files, str_from(path));
        if (!out->part[out->n++])
            return t9_fail(err, T9_STATUS_NOT_FOUND, "part %u of %u is missing: no file %.120s", no,
                           split.count, path);
    }
    return T9_STATUS_OK;
}

t9_status hub_choose(struct hub_choice *out, const struct hub_files *files,
                     const struct hub_name *name, struct buf *listing, struct t9_err *err)
{
    const struct hub_file *head = NULL;
    memset(out, 0, sizeof *out);
    t9_status s = head_choose(&head, files, name, err);
    if (s != T9_STATUS_OK) {
        listing_write(listing, files);
        return s;
    }
    for (size_t i = 0; i < files->n && !out->mmproj; i++)
        if (hub_is_mmproj(files->v[i].path))
            out->mmproj = &files->v[i];
    return parts_find(out, files, head, err);
}
