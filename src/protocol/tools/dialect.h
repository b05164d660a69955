/*
 * protocol/tools/dialect.h - the dialects, and how one is chosen. Immutable; any thread.
 *
 * If you add a dialect: one file with its `struct dialect` and step function over machine.h, a line
 * in DIALECTS below (the first one that fits is taken), goldens in tests/unit/protocol/tools.
 */
#ifndef T9_PROTOCOL_TOOLS_DIALECT_H
#define T9_PROTOCOL_TOOLS_DIALECT_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct machine;

/* What is known of a model. */
struct dialect_model {
    str chat_template; /* its source; empty: there is none */
    /* Whether the vocabulary has this text as a control or user-defined token. */
    bool (*has_token)(const void *ctx, const char *text);
    const void *ctx;
};

struct dialect {
    const char *name;
    bool (*fits)(const struct dialect_model *m);
    /* Control tokens whose text the machine must see, ended by NULL; others have no text. May be
     * NULL. */
    const char *const *shown;
    /* Around reasoning; NULL where there is none or the dialect's own step finds it. */
    const char *think_open, *think_close;
    /* Whether a model of it reasons from the first token although the prompt opens nothing. */
    bool starts_in_reasoning;
    /* Whether it reads what generic_json does, too. */
    bool reads_bare;
    /* Ids of calls that its template accepts: letters and digits, so many. 0: any id. */
    int32_t id_letters;
    size_t state_bytes; /* zeroed at the start */
    /* Takes what it can of the machine's unread text; see machine.h. */
    void (*step)(struct machine *m, void *state);
};

/* The first that fits; the last one fits everything. */
const struct dialect *dialect_choose(const struct dialect_model *m);
/* By name, NULL when there is none: for --dialect and tests. */
const struct dialect *dialect_find(str name);
/* All, in the order of choice. */
const struct dialect *dialect_at(size_t i); /* NULL beyond the end */

/* Whether the template's text has this anywhere. */
static inline bool dialect_template_has(const struct dialect_model *m, const char *text)
{
    return str_find(m->chat_template, str_from(text), 0) != (size_t)-1;
}

/* The same, or that the vocabulary has it where there is no template. */
static inline bool dialect_knows(const struct dialect_model *m, const char *text)
{
    return dialect_template_has(m, text) ||
           (m->chat_template.n == 0 && m->has_token && m->has_token(m->ctx, text));
}

#define DIALECTS(X)                                                                                \
    X(harmony)                                                                                     \
    X(gemma4)                                                                                      \
    X(kimi_k2)                                                                                     \
    X(deepseek)                                                                                    \
    X(mistral)                                                                                     \
    X(lfm2)                                                                                        \
    X(glm)                                                                                         \
    X(qwen_xml)                                                                                    \
    X(json_tags)                                                                                   \
    X(apriel)                                                                                      \
    X(hermes)                                                                                      \
    X(llama3)                                                                                      \
    X(generic_json)

#define DIALECT_DECLARE(name) extern const struct dialect dialect_##name;
DIALECTS(DIALECT_DECLARE)
#undef DIALECT_DECLARE

#endif
