/*
 * protocol/models.h - GET /v1/models, /v1/models/{id} and /v1/capabilities. Immutable; any thread.
 */
#ifndef T9_PROTOCOL_MODELS_H
#define T9_PROTOCOL_MODELS_H

#include "protocol/prep.h"

/* What the server as a whole has to say about itself in the capabilities. */
struct capabilities {
    const char *version, *build_id;
    const char *numerics_id; /* "" when unknown */
    bool invariant;          /* the same bits whatever runs beside it */
};

/* Whose clients are told of a model. */
typedef enum models_form {
    MODELS_FORM_OPENAI,
    MODELS_FORM_ANTHROPIC,
} models_form;

/* Appends the list of models. */
void models_write_list(const struct prep *p, int64_t created_s, models_form form, struct buf *out);
/* Appends one model; false when `id` is no name of the served one (and nothing was appended). */
bool models_write_one(const struct prep *p, str id, int64_t created_s, models_form form,
                      struct buf *out);
/* Appends {"server":..,"model":..,"protocols":{"openai_chat":{"path":..,"fields":[..]}}}. */
void capabilities_write(const struct prep *p, const struct capabilities *c, struct buf *out);

#endif
