/*
 * protocol/tools/json_tags.c - families whose calls are a list of JSON objects after a marker of
 * their own:
 *
 *     <TOOLCALL>[{"name": NAME, "arguments": {..}}, ..]</TOOLCALL>       Nemotron 2
 *     <|function_call|>{"name": NAME, "arguments": {..}}                 GigaChat 3.1
 *     functools[{"name": NAME, "arguments": {..}}, ..]                   FireFunction 2
 */
#include "protocol/tools/wrapped.h"

static bool fits(const struct dialect_model *m)
{
    return dialect_template_has(m, "<TOOLCALL>") || dialect_template_has(m, "<|function_call|>") ||
           dialect_template_has(m, "functools[");
}

static void step(struct machine *m, void *state)
{
    static const struct wrapper wrappers[] = {
        {.open = "<TOOLCALL>", .close = "</TOOLCALL>"},
        {.open = "<|function_call|>"},
        {.open = "functools["},
    };
    wrapped_step(state, m, wrappers, sizeof wrappers / sizeof *wrappers);
}

static const char *const shown[] = {"<TOOLCALL>", "</TOOLCALL>", "<|function_call|>",
                                    "<think>",    "</think>",    NULL};

const struct dialect dialect_json_tags = {.name = "json_tags",
                                          .fits = fits,
                                          .shown = shown,
                                          .think_open = "<think>",
                                          .think_close = "</think>",
                                          .state_bytes = sizeof(struct wrapped),
                                          .step = step};
