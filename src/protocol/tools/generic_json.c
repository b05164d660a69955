/*
 * protocol/tools/generic_json.c - for models without a form of their own that is known here: a JSON
 * object with name and arguments at the beginning of the answer or of a line, bare or in a fenced
 * block.
 */
#include "protocol/tools/wrapped.h"

static bool fits(const struct dialect_model *m)
{
    (void)m;
    return true;
}

static void step(struct machine *m, void *state)
{
    static const struct wrapper wrappers[] = {WRAPPERS_BARE};
    wrapped_step(state, m, wrappers, sizeof wrappers / sizeof *wrappers);
}

static const char *const shown[] = {"<think>", "</think>", NULL};

const struct dialect dialect_generic_json = {.name = "generic_json",
                                             .fits = fits,
                                             .shown = shown,
                                             .think_open = "<think>",
                                             .think_close = "</think>",
                                             .state_bytes = sizeof(struct wrapped),
                                             .step = step};
