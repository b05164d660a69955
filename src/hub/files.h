/*
 * hub/files.h - the files of a repository: from the hub's answer, and which of them is meant.
 * No disk and no network.
 */
#ifndef T9_HUB_FILES_H
#define T9_HUB_FILES_H

#include "base/arena.h"
#include "base/buf.h"
#include "hub/hub.h"
#include "hub/name.h"

struct hub_file {
    str path; /* NUL-terminated; passed hub_path_ok */
    uint64_t size_bytes;
    char hash[HUB_HASH_MAX]; /* SHA-256 (64 digits) or git's SHA-1 (40); "" when not known */
};

struct hub_files {
    char commit[41];
    struct hub_file *v; /* GGUF files only */
    size_t n;
};

#define HUB_ANSWER_BYTES_MAX ((size_t)16 << 20)
#define HUB_FILES_MAX        20000
#define HUB_FILE_BYTES_MAX   ((uint64_t)1 << 44)

/* Reads the answer of /api/models/REPO/revision/main?blobs=true; paths live in `arena`. */
t9_status hub_files_parse(struct hub_files *out, struct arena *arena, str json, struct t9_err *err);

struct hub_choice {
    const struct hub_file *part[HUB_PARTS_MAX]; /* in order */
    size_t n;
    const struct hub_file *mmproj; /* an image encoder beside it, or NULL */
};
/*
 * The file, or all parts of the split file, that `name` means. Without a quantisation: the only
 * weights, else Q4_K_M, Q4_K_S or Q8_0. INVALID when that leaves several or none: then `listing`
 * has one line for each weights file.
 */
t9_status hub_choose(struct hub_choice *out, const struct hub_files *files,
                     const struct hub_name *name, struct buf *listing, struct t9_err *err);

#endif
