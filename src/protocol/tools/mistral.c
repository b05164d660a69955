/*
 * protocol/tools/mistral.c - Mistral, by age of the tokenizer
 *
 *   v3, v7   [TOOL_CALLS][{"name": NAME, "arguments": {..}, "id": "9 letters"}, ..]
 *   v11      [TOOL_CALLS]NAME[CALL_ID]id[ARGS]{..}
 *   v13      [TOOL_CALLS]NAME[ARGS]{..}
 *
 * the last two once for each call. Reasoning stands between [THINK] and [/THINK].
 */
#include "protocol/tools/args.h"
#include "protocol/tools/json_list.h"

#define TOOL_CALLS "[TOOL_CALLS]"
#define CALL_ID    "[CALL_ID]"
#define ARGS       "[ARGS]"

enum { HEAD_BYTES_MAX = 512 };

struct state {
    enum { PHASE_OUTSIDE, PHASE_HEAD, PHASE_LIST, PHASE_ARGS } phase;
    struct json_list list;
    struct args args;
};

static const char *const markers[] = {TOOL_CALLS, NULL};

/* ---- phases: false when there must be more text ---- */

/* NAME[CALL_ID]id[ARGS], where old models leave out the latter. */
static bool named(struct machine *m, struct state *s)
{
    static const char *const ends[] = {ARGS, "{", TOOL_CALLS, NULL};
    int which;
    str text = machine_unread(m);
    if (text.n > HEAD_BYTES_MAX)
        text.n = HEAD_BYTES_MAX;
    size_t at = machine_find(text, 0, ends, &which);
    if (which < 0 && !machine_is_last(m) && text.n < HEAD_BYTES_MAX)
        return false;
    str name = str_slice(text, 0, at), id = {0};
    size_t id_at = str_find(name, STR(CALL_ID), 0);
    if (id_at != (size_t)-1) {
        id = str_trim(str_slice(name, id_at + sizeof CALL_ID - 1, at));
        name.n = id_at;
    }
    const struct answer_tool *tool = machine_tool(m, str_trim(name));
    if (which < 0 || which > 1 || !tool) {
        machine_text(m, STR(TOOL_CALLS));
        s->phase = PHASE_OUTSIDE;
        return true;
    }
    machine_call(m, tool, id);
    machine_take(m, which == 0 ? at + sizeof ARGS - 1 : at);
    s->args = (struct args){0};
    s->phase = PHASE_ARGS;
    return true;
}

static bool head(struct machine *m, struct state *s)
{
    json_list_fit fit = json_list_ahead(m, HEAD_BYTES_MAX);
    if (fit != JSON_LIST_YES)
        return fit == JSON_LIST_NO && named(m, s);
    json_list_start(&s->list, TOOL_CALLS);
    s->phase = PHASE_LIST;
    return true;
}

static bool args(struct machine *m, struct state *s)
{
    if (args_step(&s->args, m, markers) == ARGS_MORE)
        return false;
    machine_call_end(m, true);
    s->phase = PHASE_OUTSIDE;
    return true;
}

static void step(struct machine *m, void *state)
{
    struct state *s = state;
    bool goes_on = true;
    while (goes_on) {
        switch (s->phase) {
        case PHASE_OUTSIDE:
            goes_on = machine_outside(m, markers) >= 0;
            if (goes_on)
                s->phase = PHASE_HEAD;
            break;
        case PHASE_HEAD: goes_on = head(m, s); break;
        case PHASE_LIST:
            goes_on = !json_list_goes_on(&s->list, m);
            if (goes_on)
                s->phase = PHASE_OUTSIDE;
            break;
        case PHASE_ARGS: goes_on = args(m, s); break;
        }
    }
}

static bool fits(const struct dialect_model *m)
{
    bool has_turns = dialect_template_has(m, "[INST]") && m->has_token;
    return dialect_knows(m, TOOL_CALLS) || dialect_template_has(m, "[THINK]") ||
           (has_turns && m->has_token(m->ctx, TOOL_CALLS));
}

static const char *const shown[] = {TOOL_CALLS, CALL_ID, ARGS, "[THINK]", "[/THINK]", NULL};

const struct dialect dialect_mistral = {.name = "mistral",
                                        .fits = fits,
                                        .shown = shown,
                                        .think_open = "[THINK]",
                                        .think_close = "[/THINK]",
                                        .id_letters = 9,
                                        .state_bytes = sizeof(struct state),
                                        .step = step};
