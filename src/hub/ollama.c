/*
 * hub/ollama.c - Ollama's store on this machine, read in place and never written.
 *
 *   DIR/manifests/HOST/NAMESPACE/MODEL/TAG   JSON: layers, each with a media type, digest, size
 *   DIR/blobs/sha256-HEX                     the bytes
 *
 * The model's layer is a GGUF file. A model with an adapter is refused: without it the answers
 * would be another model's.
 */
#include "hub/hub.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "hub/name.h"
#include "hub/ollama.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEDIA "application/vnd.ollama.image."
enum { MANIFEST_BYTES_MAX = 1 << 20, LAYERS_MAX = 4096, MODELS_MAX = 10000 };

/* One layer: what is of interest of it goes into `m`. */
static t9_status layer_parse(struct ollama_manifest *m, yyjson_val *v, struct t9_err *err)
{
    str media = json_str(json_get(v, "mediaType"));
    if (str_eqz(media, MEDIA "adapter"))
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "it has an adapter, which is not supported");
    if (str_eqz(media, MEDIA "tensor"))
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "its weights are not in GGUF form");
    m->has_projector |= str_eqz(media, MEDIA "projector");
    if (!str_eqz(media, MEDIA "model"))
        return T9_STATUS_OK;
    if (m->hash[0])
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "it has several model layers");
    str digest = json_str(json_get(v, "digest"));
    yyjson_val *size = json_get(v, "size");
    if (!str_has_prefix(digest, STR("sha256:")) ||
        !hub_is_hex(str_slice(digest, 7, digest.n), 64) || !yyjson_is_uint(size))
        return t9_fail(err, T9_STATUS_CORRUPT, "its model layer has no usable digest or size");
    memcpy(m->hash, digest.p + 7, 64);
    m->size_bytes = yyjson_get_uint(size);
    return T9_STATUS_OK;
}

t9_status ollama_manifest_parse(struct ollama_manifest *m, str json, struct t9_err *err)
{
    static const struct json_limits limits = {MANIFEST_BYTES_MAX, 32, 1 << 17};
    yyjson_doc *doc;
    yyjson_val *v;
    memset(m, 0, sizeof *m);
    t9_status s = json_parse(&doc, json, limits, err);
    if (s != T9_STATUS_OK) {
        s = s == T9_STATUS_INVALID ? T9_STATUS_CORRUPT : s;
        if (err)
            err->code = s;
        return s;
    }
    yyjson_val *layers = json_get(yyjson_doc_get_root(doc), "layers");
    if (!yyjson_is_arr(layers) || yyjson_arr_size(layers) > LAYERS_MAX)
        s = t9_fail(err, T9_STATUS_CORRUPT, "it has no list of layers");
    yyjson_arr_iter it = yyjson_arr_iter_with(layers);
    while (s == T9_STATUS_OK && (v = yyjson_arr_iter_next(&it)))
        s = layer_parse(m, v, err);
    if (s == T9_STATUS_OK && !m->hash[0])
        s = t9_fail(err, T9_STATUS_UNSUPPORTED, "it has no model layer");
    yyjson_doc_free(doc);
    return s;
}

/* The blob's path; the older form of the name has a colon. */
static t9_status blob_find(const char *dir, const struct ollama_manifest *m,
                           char out[HUB_FILE_PATH_MAX], struct t9_err *err)
{
    static const char marks[] = {'-', ':'};
    for (size_t i = 0; i < sizeof marks; i++) {
        struct stat sb;
        int n = snprintf(out, HUB_FILE_PATH_MAX, "%s/blobs/sha256%c%s", dir, marks[i], m->hash);
        if (n < 0 || n >= HUB_FILE_PATH_MAX)
            return t9_fail(err, T9_STATUS_TOO_LARGE, "the path of the store is too long");
        if (stat(out, &sb) != 0)
            continue;
        if (!S_ISREG(sb.st_mode) || (uint64_t)sb.st_size != m->size_bytes)
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "blob sha256-%.12s... is not a file of %llu bytes; pull the model again",
                           m->hash, (unsigned long long)m->size_bytes);
        return T9_STATUS_OK;
    }
    return t9_fail(err, T9_STATUS_NOT_FOUND,
                   "blob sha256-%.12s... is missing; pull the model again", m->hash);
}

static t9_status manifest_read(const char *dir, const struct ollama_name *n,
                               struct ollama_manifest *m, struct t9_err *err)
{
    char path[HUB_FILE_PATH_MAX];
    struct buf text;
    int len = snprintf(path, sizeof path, "%s/manifests/%s/%s/%s/%s", dir, n->host, n->space,
                       n->model, n->tag);
    if (len < 0 || (size_t)len >= sizeof path)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "the path of the store is too long");
    buf_init(&text, MANIFEST_BYTES_MAX);
    struct file f;
    t9_status s = file_open(&f, path, err); /* regular files only */
    if (s == T9_STATUS_OK && f.size_bytes > MANIFEST_BYTES_MAX)
        s = t9_fail(err, T9_STATUS_TOO_LARGE, "its manifest is over %d MB",
                    MANIFEST_BYTES_MAX >> 20);
    char *to = s == T9_STATUS_OK ? buf_reserve(&text, (size_t)f.size_bytes) : NULL;
    if (s == T9_STATUS_OK && !to)
        s = t9_fail(err, T9_STATUS_NOMEM, "no memory for a manifest");
    if (s == T9_STATUS_OK)
        s = file_read_at(&f, 0, to, (size_t)f.size_bytes, err);
    if (s == T9_STATUS_OK) {
        text.n = (size_t)f.size_bytes;
        s = ollama_manifest_parse(m, buf_str(&text), err);
    }
    file_close(&f);
    buf_deinit(&text);
    return s;
}

t9_status hub_ollama_find(struct hub_model *out, const char *dir, const char *spec,
                          void (*note)(void *ctx, const char *text), void *ctx, struct t9_err *err)
{
    struct ollama_name n;
    struct ollama_manifest m;
    memset(out, 0, sizeof *out);
    T9_TRY(ollama_name_parse(&n, spec, err));
    ollama_name_format(&n, out->name, sizeof out->name);
    t9_status s = manifest_read(dir, &n, &m, err);
    if (s == T9_STATUS_NOT_FOUND)
        return t9_fail(err, s,
                       "Ollama's store at %.80s has no %.80s; --list-ollama shows what is there, "
                       "OLLAMA_MODELS names another store",
                       dir, out->name);
    if (s == T9_STATUS_OK)
        s = blob_find(dir, &m, out->path, err);
    if (s != T9_STATUS_OK)
        return t9_err_prefix(err, "%.80s of Ollama", out->name);
    if (m.has_projector && note)
        note(ctx, "it has an image encoder; images are not supported yet");
    return T9_STATUS_OK;
}

/* ---- the list ---- */

struct list {
    struct ollama_name *v;
    size_t n, cap;
    bool full, nomem;
};

static void list_add(struct list *l, const struct ollama_name *n)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 32;
        struct ollama_name *v = mem_realloc(l->v, cap, sizeof *v);
        if (!v) {
            l->nomem = true;
            return;
        }
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = *n;
    l->full = l->n == MODELS_MAX;
}

/* The folders below manifests/ are host, namespace and model; the files in them are tags. Takes
 * over `at`. */
static void list_walk(struct list *l, int at, struct ollama_name *n, int level)
{
    char *part[] = {n->host, n->space, n->model, n->tag};
    struct dirent *e;
    DIR *d = fdopendir(at);
    if (!d) {
        close(at);
        return;
    }
    while (!l->full && !l->nomem && (e = readdir(d))) {
        str name = str_from(e->d_name);
        if (!ollama_part_ok(name, level == 0))
            continue;
        snprintf(part[level], OLLAMA_PART_MAX, STR_FMT, STR_ARG(name));
        if (level == 3) {
            list_add(l, n);
            continue;
        }
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            list_walk(l, fd, n, level + 1);
    }
    closedir(d);
}

static int by_name(const void *a, const void *b)
{
    char x[HUB_MODEL_NAME_MAX * 2], y[HUB_MODEL_NAME_MAX * 2];
    ollama_name_format(a, x, sizeof x);
    ollama_name_format(b, y, sizeof y);
    return strcmp(x, y);
}

t9_status hub_ollama_list(const char *dir,
                          void (*each)(void *ctx, const char *name, uint64_t size_bytes,
                                       const char *problem),
                          void *ctx, struct t9_err *err)
{
    char path[HUB_FILE_PATH_MAX];
    struct list l = {0};
    struct ollama_name n = {0};
    if (snprintf(path, sizeof path, "%s/manifests", dir) >= (int)sizeof path)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "the path of the store is too long");
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return t9_fail(err, T9_STATUS_NOT_FOUND,
                       "there is no store of Ollama at %.120s; set OLLAMA_MODELS to its folder (a "
                       "system service has it in /usr/share/ollama/.ollama/models)",
                       dir);
    list_walk(&l, fd, &n, 0);
    if (l.n)
        qsort(l.v, l.n, sizeof *l.v, by_name);
    for (size_t i = 0; i < l.n; i++) {
        char name[HUB_MODEL_NAME_MAX], blob[HUB_FILE_PATH_MAX];
        struct ollama_manifest m = {0};
        struct t9_err why = {0};
        ollama_name_format(&l.v[i], name, sizeof name);
        t9_status s = manifest_read(dir, &l.v[i], &m, &why);
        if (s == T9_STATUS_OK)
            s = blob_find(dir, &m, blob, &why);
        each(ctx, name, m.size_bytes, s == T9_STATUS_OK ? NULL : why.msg);
    }
    mem_free(l.v);
    if (l.nomem)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for the list");
    return l.full
               ? t9_fail(err, T9_STATUS_TOO_LARGE, "the store has more than %d models", MODELS_MAX)
               : T9_STATUS_OK;
}
