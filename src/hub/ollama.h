/* hub/ollama.h - private to hub/: what is of interest in one of Ollama's manifests. */
#ifndef T9_HUB_OLLAMA_H
#define T9_HUB_OLLAMA_H

#include "hub/hub.h"

#include "base/str.h"

struct ollama_manifest {
    char hash[HUB_HASH_MAX]; /* of the model's layer */
    uint64_t size_bytes;
    bool has_projector;
};
/* CORRUPT: no manifest; UNSUPPORTED: one that this program cannot use. */
t9_status ollama_manifest_parse(struct ollama_manifest *m, str json, struct t9_err *err);

#endif
