/*
 * protocol/tools/hermes.c - Hermes, Qwen2.5, Qwen3 and others after them:
 *
 *     <tool_call>
 *     {"name": NAME, "arguments": {..}}
 *     </tool_call>
 *
 * once for each call. The closing tag may be missing. Small models leave out the opening one, too,
 * or write a fenced block instead, so these are read where they begin a line.
 */
#include "protocol/tools/wrapped.h"

static bool fits(const struct dialect_model *m)
{
    /* MiniMax has other tags in that one. */
    return dialect_template_has(m, "<tool_call>") && !dialect_template_has(m, "<invoke name=");
}

static void step(struct machine *m, void *state)
{
    static const struct wrapper wrappers[] = {
        {.open = "<tool_call>", .close = "</tool_call>"},
        {.open = "```json", .close = "```", .bare = true},
        {.open = "{", .close = "</tool_call>", .bare = true},
    };
    wrapped_step(state, m, wrappers, sizeof wrappers / sizeof *wrappers);
}

static const char *const shown[] = {"<tool_call>", "</tool_call>", "<think>", "</think>", NULL};

const struct dialect dialect_hermes = {.name = "hermes",
                                       .fits = fits,
                                       .shown = shown,
                                       .think_open = "<think>",
                                       .think_close = "</think>",
                                       .state_bytes = sizeof(struct wrapped),
                                       .step = step};
