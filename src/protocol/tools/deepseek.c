/*
 * protocol/tools/deepseek.c - DeepSeek and its distillations, within a section of calls
 *
 *   R1, V3:  <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, {..} in a fence, <｜tool▁call▁end｜>
 *   V3.1:    <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{..}<｜tool▁call▁end｜>
 *
 * Its templates tell the model of no tools, so we do, and ask for bare JSON: both are read.
 *
 * The prompt itself opens the reasoning where the template wants it; a template that does not
 * leaves it to the model.
 */
#include "protocol/tools/marked.h"
#include "protocol/tools/space.h"

#define SECTION_BEGIN "<｜tool▁calls▁begin｜>"
#define SECTION_END   "<｜tool▁calls▁end｜>"
#define CALL_BEGIN    "<｜tool▁call▁begin｜>"
#define CALL_END      "<｜tool▁call▁end｜>"
#define SEPARATOR     "<｜tool▁sep｜>"

static marked_result head(const struct machine *m, str text, struct marked_head *out)
{
    static const char *const marks[] = {SEPARATOR, CALL_END, NULL};
    int which;
    size_t at = machine_find(text, 0, marks, &which);
    if (which != 0)
        return which < 0 ? MARKED_MORE : MARKED_NOT;
    str name = str_trim(str_slice(text, 0, at));
    at += sizeof SEPARATOR - 1;
    if (str_eqz(name, "function")) {
        size_t from = space_skip(text, at), to = from;
        while (to < text.n && !memchr("\n`{<", text.p[to], 4))
            to++;
        if (to == text.n)
            return MARKED_MORE;
        /* Else it is the name of a tool, with its arguments. */
        if (to > from) {
            name = str_trim(str_slice(text, from, to));
            out->fenced = true;
            at = to;
        }
    }
    out->tool = machine_tool(m, name);
    out->n_bytes = at;
    return out->tool ? MARKED_HEAD : MARKED_NOT;
}

static const struct wrapper wrappers[] = {WRAPPERS_BARE};

static const struct marked_syntax syntax = {
    .markers = {SECTION_BEGIN, CALL_BEGIN, SECTION_END, CALL_END},
    .bare = wrappers,
    .n_bare = T9_COUNT(wrappers),
    .head = head,
};

static void step(struct machine *m, void *state)
{
    marked_step(m, state, &syntax);
}

static bool fits(const struct dialect_model *m)
{
    return dialect_template_has(m, "<｜Assistant｜>") || dialect_knows(m, CALL_BEGIN);
}

static const char *const shown[] = {SECTION_BEGIN, SECTION_END, CALL_BEGIN, CALL_END,
                                    SEPARATOR,     "<think>",   "</think>", NULL};

const struct dialect dialect_deepseek = {
    .name = "deepseek",
    .fits = fits,
    .shown = shown,
    .think_open = "<think>",
    .think_close = "</think>",
    .reads_bare = true,
    .state_bytes = sizeof(struct marked),
    .step = step,
};
