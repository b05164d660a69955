/*
 * cli/runtime.h - the parts below the library, opened one by one, for commands that measure or show
 * them: bench times the engine's steps and forwards of its own, eval wants every row of logits,
 * tokenize and --version the tokenizer and the backend alone. Commands that answer have a session.
 */
#ifndef T9_CLI_RUNTIME_H
#define T9_CLI_RUNTIME_H

#include "backend/be.h"
#include "base/file_out.h"
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
t9_status runtime_open_gguf(struct runtime *rt, const struct cli_options *o, struct t9_err *err);
t9_status runtime_open_tokenizer(struct runtime *rt, const struct cli_options *o,
                                 struct t9_err *err);
/* The same for those who will open the model: an architecture that is not supported is told first.
 */
t9_status runtime_open_known(struct runtime *rt, const struct cli_options *o, struct t9_err *err);
/* Model and backend, with a progress line on a terminal. max_rows: of one forward. */
t9_status runtime_open_model(struct runtime *rt, const struct cli_options *o, int32_t max_rows,
                             struct t9_err *err);
/* For `bench`: without a prefix cache. */
t9_status runtime_open_engine(struct runtime *rt, const struct cli_options *o, struct t9_err *err);
void runtime_close(struct runtime *rt);

/* Opens a file that a command writes; call it before anything is computed. INVALID where it is one
 * of those that the command reads: a part of the model, or what an option names. */
t9_status runtime_output(struct file_out **out, const char *path, file_out_kind kind,
                         const struct gguf *g, const struct cli_options *o, struct t9_err *err);

#endif
