/*
 * protocol/ollama.h - the API that clients of Ollama speak, for the one model that is served here:
 * what its requests are, and the answers that need no body. Immutable; any thread.
 *
 * Streams are lines of JSON, errors {"error":"..."}; durations are nanoseconds.
 */
#ifndef T9_PROTOCOL_OLLAMA_H
#define T9_PROTOCOL_OLLAMA_H

#include "protocol/adapter.h"

extern const struct chat_adapter ollama_chat_adapter, ollama_generate_adapter, ollama_show_adapter,
    ollama_pull_adapter;

/* The release of that API that this follows: clients ask for it and leave out what is newer. */
#define OLLAMA_API_VERSION "0.12.11"

void ollama_error(const struct chat_error *e, struct buf *out);
/* GET /api/tags and /api/ps. */
void ollama_write_tags(const struct prep *p, struct buf *out);
void ollama_write_ps(const struct prep *p, struct buf *out);
/* GET /api/version; `ours` is the server's own version. */
void ollama_write_version(const char *ours, struct buf *out);
/* Why a request of this API that would change what models there are, or needs what is not there
 * yet, is refused: the error of METHOD `path`; false when it is no such path. */
bool ollama_refusal(const char *path, struct chat_error *err);

#endif
