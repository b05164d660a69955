/*
 * protocol/tools/apriel.c - Apriel 1.5 and 1.6:
 *
 *     reasoning [BEGIN FINAL RESPONSE] answer
 *     <tool_calls>[{"name": NAME, "arguments": {..}}, ..]</tool_calls>
 *
 * where the prompt ends with the sentence that opens the reasoning.
 */
#include "protocol/tools/wrapped.h"

static bool fits(const struct dialect_model *m)
{
    return dialect_template_has(m, "<tool_calls>[");
}

static void step(struct machine *m, void *state)
{
    static const struct wrapper wrappers[] = {
        {.open = "<tool_calls>", .close = "</tool_calls>"},
        {.open = "<tool_call>", .close = "</tool_call>"},
    };
    wrapped_step(state, m, wrappers, sizeof wrappers / sizeof *wrappers);
}

static const char *const shown[] = {"<tool_calls>", "</tool_calls>",          "<tool_call>",
                                    "</tool_call>", "[BEGIN FINAL RESPONSE]", NULL};

const struct dialect dialect_apriel = {.name = "apriel",
                                       .fits = fits,
                                       .shown = shown,
                                       .think_open = "Here are my reasoning steps:",
                                       .think_close = "[BEGIN FINAL RESPONSE]",
                                       .state_bytes = sizeof(struct wrapped),
                                       .step = step};
