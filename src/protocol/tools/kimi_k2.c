/*
 * protocol/tools/kimi_k2.c - Kimi K2:
 *
 *   <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:IDX
 *   <|tool_call_argument_begin|>{..}<|tool_call_end|><|tool_calls_section_end|>
 *
 * without line breaks. functions.NAME:IDX is the call's id, which its template shows again with the
 * result.
 */
#include "protocol/tools/marked.h"

#define SEPARATOR "<|tool_call_argument_begin|>"
#define NAMESPACE "functions."

/* functions.NAME:IDX, or NAME with either part missing: then it is no id. */
static str name_of(str head, bool *is_id)
{
    size_t end = head.n;
    while (end > 0 && head.p[end - 1] >= '0' && head.p[end - 1] <= '9')
        end--;
    bool has_idx = end > 1 && end < head.n && head.p[end - 1] == ':';
    bool has_namespace = str_has_prefix(head, STR(NAMESPACE));
    *is_id = has_idx && has_namespace;
    return str_slice(head, has_namespace ? sizeof NAMESPACE - 1 : 0, has_idx ? end - 1 : head.n);
}

static marked_result head(const struct machine *m, str text, struct marked_head *out)
{
    static const char *const marks[] = {SEPARATOR, "<|tool_call_end|>", NULL};
    int which;
    bool is_id;
    size_t at = machine_find(text, 0, marks, &which);
    if (which < 0)
        return MARKED_MORE;
    str id = str_trim(str_slice(text, 0, at));
    out->tool = machine_tool(m, name_of(id, &is_id));
    out->id = is_id ? id : (str){0};
    out->n_bytes = at + sizeof SEPARATOR - 1;
    return which == 0 && out->tool ? MARKED_HEAD : MARKED_NOT;
}

static const struct marked_syntax syntax = {
    .markers = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_calls_section_end|>",
                "<|tool_call_end|>"},
    .head = head,
};

static void step(struct machine *m, void *state)
{
    marked_step(m, state, &syntax);
}

static bool fits(const struct dialect_model *m)
{
    return dialect_knows(m, "<|tool_calls_section_begin|>");
}

static const char *const shown[] = {"<|tool_calls_section_begin|>",
                                    "<|tool_call_begin|>",
                                    SEPARATOR,
                                    "<|tool_call_end|>",
                                    "<|tool_calls_section_end|>",
                                    "<think>",
                                    "</think>",
                                    NULL};

const struct dialect dialect_kimi_k2 = {
    .name = "kimi_k2",
    .fits = fits,
    .shown = shown,
    .think_open = "<think>",
    .think_close = "</think>",
    .state_bytes = sizeof(struct marked),
    .step = step,
};
