/*
 * hub/name.h - names of repositories, files, quantisations and Ollama models: pure text, no disk
 * and no network.
 */
#ifndef T9_HUB_NAME_H
#define T9_HUB_NAME_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HUB_NAME_PART_MAX = 96, /* of an owner or a repository */
    HUB_REPO_MAX = 2 * HUB_NAME_PART_MAX + 2,
    HUB_PATH_MAX = 512, /* of a file in a repository */
    HUB_PATH_DEPTH_MAX = 8,
    HUB_PARTS_MAX = 512,
};

struct hub_name {
    char repo[HUB_REPO_MAX];   /* OWNER/REPO */
    char select[HUB_PATH_MAX]; /* "": not said */
    bool is_file;              /* select is a file's path, else a quantisation */
};
/* OWNER/REPO[:QUANT|:FILE.gguf]. INVALID tells what a name looks like. */
t9_status hub_name_parse(struct hub_name *out, const char *spec, struct t9_err *err);

/* A relative path without empty, "." or ".." parts, backslashes or control characters. */
bool hub_path_ok(str path);
bool hub_is_gguf(str path);
/* A GGUF file that holds a model's weights: no image encoder (mmproj) and no draft head (mtp). */
bool hub_is_weights(str path);
bool hub_is_mmproj(str path);

/* NAME-00002-of-00003.gguf: `stem` is NAME with its folders. */
struct hub_split {
    str stem;
    uint32_t no, count; /* from 1 */
};
bool hub_split_parse(struct hub_split *out, str path);

/* The last field of the name behind a '-' or '.', without .gguf and the part's number. */
str hub_quant(str path);
/* Whether `path` is what someone means who says `tag`, in any case: its last field or, for a tag
 * that has a separator itself, its last fields. */
bool hub_quant_is(str path, str tag);

/* [HOST/][NAMESPACE/]MODEL[:TAG] with Ollama's defaults filled in. */
enum { OLLAMA_PART_MAX = 128 };
struct ollama_name {
    char host[OLLAMA_PART_MAX], space[OLLAMA_PART_MAX], model[OLLAMA_PART_MAX],
        tag[OLLAMA_PART_MAX];
};
#define OLLAMA_HOST_DEFAULT  "registry.ollama.ai"
#define OLLAMA_SPACE_DEFAULT "library"
t9_status ollama_name_parse(struct ollama_name *out, const char *spec, struct t9_err *err);
bool ollama_part_ok(str s, bool host);
/* The shortest text that means it. */
void ollama_name_format(const struct ollama_name *n, char *out, size_t cap);

/* Lower-case hex digits, exactly n of them. */
bool hub_is_hex(str s, size_t n);

#endif
