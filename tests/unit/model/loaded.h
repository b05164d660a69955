/* A model file that a test has written, and what model_load made of it with the ref backend. */
#ifndef T9_TESTS_MODEL_LOADED_H
#define T9_TESTS_MODEL_LOADED_H

#include "lib/gguf_writer.h"

#include "model/model.h"

struct loaded {
    struct gguf *g;
    struct be *be;
    struct model *m; /* NULL when it was refused */
    struct t9_err err;
};

/* Writes the file, frees the writer and loads what was written; the status is model_load's.
 * `params` may be NULL. Freed with loaded_free whatever comes back. */
t9_status loaded_from(struct loaded *l, struct gguf_writer *w,
                      const struct model_load_params *params);
void loaded_free(struct loaded *l);
/* Fails unless it was refused with `status` and words that name the file once and have `part`;
 * frees it. */
void loaded_is_refused(struct loaded *l, t9_status st, t9_status status, const char *part);

#endif
