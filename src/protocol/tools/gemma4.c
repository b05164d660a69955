/*
 * protocol/tools/gemma4.c - Gemma 4:
 *
 *   <|channel>thought
 *   REASONING<channel|>CONTENT<|tool_call>call:NAME{key:<|"|>text<|"|>,other:[1,true]}<tool_call|>
 *
 * Empty channels, and markers of channels that hold nothing, are no content.
 */
#include "protocol/tools/loose.h"
#include "protocol/tools/space.h"

#define CHANNEL     "<|channel>"
#define CHANNEL_END "<channel|>"
#define CALL        "<|tool_call>"
#define CALL_END    "<tool_call|>"
#define QUOTE       "<|\"|>"

enum { HEAD_BYTES_MAX = 512, CHANNEL_BYTES_MAX = 64 };

struct state {
    enum { PHASE_OUTSIDE, PHASE_CHANNEL, PHASE_HEAD, PHASE_ARGS } phase;
    bool ends; /* the end marker belongs to a call, it is no text */
    const struct answer_tool *tool;
    struct loose args;
};

/* ---- phases: false when there must be more text ---- */

static void say(struct machine *m, size_t n)
{
    str text = str_slice(machine_unread(m), 0, n);
    if (machine_in_reasoning(m))
        machine_reasoning(m, text);
    else
        machine_text(m, text);
    machine_take(m, n);
}

static bool outside(struct machine *m, struct state *s)
{
    enum { ON_CHANNEL, ON_CHANNEL_END, ON_CALL, ON_CALL_END };
    static const char *const markers[] = {CHANNEL, CHANNEL_END, CALL, CALL_END, NULL};
    static const char *const no_calls[] = {CHANNEL, CHANNEL_END, NULL};
    bool calls = machine_params(m)->n_tools > 0 && !machine_in_reasoning(m);
    int which;
    str text = machine_unread(m);
    size_t at = machine_find(text, 0, calls ? markers : no_calls, &which);
    if (which < 0 && machine_is_last(m))
        at = text.n;
    say(m, at);
    if (which < 0)
        return false;
    if (which == ON_CALL_END && !s->ends) {
        say(m, sizeof CALL_END - 1);
        return true;
    }
    machine_take(m, str_from(markers[which]).n);
    if (which == ON_CHANNEL)
        s->phase = PHASE_CHANNEL;
    else if (which == ON_CHANNEL_END)
        machine_set_reasoning(m, false);
    else if (which == ON_CALL)
        s->phase = PHASE_HEAD;
    return true;
}

/* The channel's name: of thoughts, or of content. */
static bool channel(struct machine *m, struct state *s)
{
    str text = machine_unread(m);
    size_t n = 0;
    if (text.n > CHANNEL_BYTES_MAX)
        text.n = CHANNEL_BYTES_MAX;
    while (n < text.n && text.p[n] != '\n' && text.p[n] != '<')
        n++;
    if (n == text.n && n < CHANNEL_BYTES_MAX && !machine_is_last(m))
        return false;
    bool thinks = str_eqz(str_trim(str_slice(text, 0, n)), "thought");
    machine_set_reasoning(m, thinks);
    if (thinks)
        machine_take(m, n);
    s->phase = PHASE_OUTSIDE;
    return true;
}

/* call:NAME{ */
static bool head(struct machine *m, struct state *s)
{
    str text = machine_unread(m), call = STR("call:");
    if (text.n > HEAD_BYTES_MAX)
        text.n = HEAD_BYTES_MAX;
    size_t at = space_skip(text, 0), end = at;
    while (end < text.n && text.p[end] != '{' && text.p[end] != '<')
        end++;
    if (end == text.n && end < HEAD_BYTES_MAX && !machine_is_last(m))
        return false;
    str name = str_slice(text, at, end);
    if (str_has_prefix(name, call))
        name = str_slice(name, call.n, name.n);
    s->tool = end < text.n && text.p[end] == '{' ? machine_tool(m, str_trim(name)) : NULL;
    s->ends = s->tool != NULL;
    if (!s->tool) {
        machine_text(m, STR(CALL));
        s->phase = PHASE_OUTSIDE;
        return true;
    }
    machine_call(m, s->tool, (str){0});
    machine_take(m, end + 1);
    loose_begin(&s->args, m);
    s->phase = PHASE_ARGS;
    return true;
}

static bool args(struct machine *m, struct state *s)
{
    static const struct loose_syntax syntax = {
        .close = '}', .assign = ':', .quote = QUOTE, .end = CALL_END};
    loose_result r = loose_step(&s->args, m, &syntax, s->tool);
    if (r == LOOSE_MORE)
        return false;
    machine_call_end(m, r != LOOSE_DEEP);
    s->phase = PHASE_OUTSIDE;
    return true;
}

static void step(struct machine *m, void *state)
{
    struct state *s = state;
    bool goes_on = true;
    while (goes_on) {
        switch (s->phase) {
        case PHASE_OUTSIDE: goes_on = outside(m, s); break;
        case PHASE_CHANNEL: goes_on = channel(m, s); break;
        case PHASE_HEAD: goes_on = head(m, s); break;
        case PHASE_ARGS: goes_on = args(m, s); break;
        }
    }
}

static bool fits(const struct dialect_model *m)
{
    return dialect_knows(m, CALL) || dialect_knows(m, CHANNEL);
}

static const char *const shown[] = {CHANNEL, CHANNEL_END, CALL, CALL_END, QUOTE, NULL};

const struct dialect dialect_gemma4 = {.name = "gemma4",
                                       .fits = fits,
                                       .shown = shown,
                                       .state_bytes = sizeof(struct state),
                                       .step = step};
