/*
 * protocol/tools/llama3.c - Llama 3.1 and later:
 *
 *     {"name": NAME, "parameters": {..}}
 *     <|python_tag|>{"name": NAME, "parameters": {..}}
 *     <|python_tag|>NAME.call(key="text")
 *
 * several of them with a semicolon between. Small models wrap the object in a fenced block, too.
 */
#include "protocol/tools/wrapped.h"

static bool fits(const struct dialect_model *m)
{
    return dialect_template_has(m, "<|start_header_id|>") &&
           (dialect_template_has(m, "ipython") || dialect_template_has(m, "<|python_tag|>"));
}

static void step(struct machine *m, void *state)
{
    static const struct wrapper wrappers[] = {
        {.open = "<|python_tag|>", .python = true},
        {.open = "```json", .close = "```", .bare = true},
        {.open = "{", .bare = true},
    };
    wrapped_step(state, m, wrappers, sizeof wrappers / sizeof *wrappers);
}

static const char *const shown[] = {"<|python_tag|>", NULL};

const struct dialect dialect_llama3 = {.name = "llama3",
                                       .fits = fits,
                                       .shown = shown,
                                       .think_open = "<think>",
                                       .think_close = "</think>",
                                       .state_bytes = sizeof(struct wrapped),
                                       .step = step};
