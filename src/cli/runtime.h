/*
 * cli/runtime.h - the parts below the library, opened one by one, for commands that measure or show
 * them: bench times the engine's steps and forwards of its own, eval wants every row of logits,
 * tokenize and --version the tokenizer and the backend alone. Commands that answer have a session.
 */
#ifndef T9_CLI_RUNTIME_H
#define T9_CLI_RUNTIME_H

#include "backend/be.h"
#include "cli/cli.h"
#include "engine/engine.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

/* Open in order, close everything. */
struct runtime {
    struct gguf *gguf;
    struct be *be;
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
    uint64_t load_ns;
};
t9_status runtime_open_tokenizer(struct runtime *rt, const struct cli_options *o,
                                 struct t9_err *err);
/* Model and backend, with a progress line on a terminal. max_rows: of one forward. */
t9_status runtime_open_model(struct runtime *rt, const struct cli_options *o, int32_t max_rows,
                             struct t9_err *err);
/* For `bench`: without a prefix cache. */
t9_status runtime_open_engine(struct runtime *rt, const struct cli_options *o, struct t9_err *err);
void runtime_close(struct runtime *rt);

#endif
