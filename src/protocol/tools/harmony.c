/*
 * protocol/tools/harmony.c - gpt-oss: messages of a channel each,
 *
 *   <|channel|>analysis<|message|>TEXT<|end|><|start|>assistant<|channel|>final<|message|>TEXT
 *   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{..}<|call|>
 *
 * where the recipient may stand in any place of the header and the constraint may be absent. The
 * prompt ends with <|start|>assistant, so an answer begins within a header. Analysis is reasoning,
 * the rest is content. <|call|> and <|return|> mostly end the answer and are then not part of its
 * text, so a call is complete as soon as its JSON is.
 */
#include "protocol/tools/args.h"
#include "protocol/tools/space.h"

enum { HEADER_BYTES_MAX = 1024 };

typedef enum phase {
    PHASE_BETWEEN, /* messages: a header or a message's text may begin */
    PHASE_HEADER,  /* unread text begins with a header */
    PHASE_BODY,
    PHASE_CALL,
} phase;

struct state {
    phase phase;
    bool begun;
    bool spoken;  /* there was a message */
    bool strange; /* the message is for a recipient that was not offered: shown as it is */
    struct args args;
};

#define START     "<|start|>"
#define CHANNEL   "<|channel|>"
#define CONSTRAIN "<|constrain|>"
#define MESSAGE   "<|message|>"
#define END       "<|end|>"
#define CALL      "<|call|>"
#define RETURN    "<|return|>"
#define RECIPIENT "to="

static const char *const shown[] = {START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN, NULL};
/* What may come between messages; the first ones begin a header. */
enum { N_OPENINGS = 5 };
static const char *const between_marks[] = {START, CHANNEL, CONSTRAIN, MESSAGE, RECIPIENT,
                                            END,   CALL,    RETURN,    NULL};
static const char *const header_ends[] = {MESSAGE, END, CALL, RETURN, NULL};
/* What ends a message; its own marker is sometimes forgotten. */
static const char *const body_ends[] = {END, CALL, RETURN, START, CHANNEL, NULL};

/* From `at` to white space or a marker. */
static str word_at(str text, size_t at)
{
    size_t end = at;
    while (end < text.n && !space_is(text.p[end]) && text.p[end] != '<')
        end++;
    return str_slice(text, at, end);
}

/* The word after the last channel marker: a stray one can come before another. */
static str channel_of(str header)
{
    str channel = {0};
    size_t at = 0;
    while ((at = str_find(header, STR(CHANNEL), at)) != (size_t)-1) {
        at += sizeof CHANNEL - 1;
        channel = word_at(header, at);
    }
    return channel;
}

/* Whom the message is for; empty when nobody is named. */
static str recipient_of(str header)
{
    size_t at = 0;
    while ((at = str_find(header, STR(RECIPIENT), at)) != (size_t)-1) {
        bool begins = at == 0 || space_is(header.p[at - 1]) || header.p[at - 1] == '>';
        at += sizeof RECIPIENT - 1;
        if (begins)
            return word_at(header, at);
    }
    return (str){0};
}

static const struct answer_tool *called(const struct machine *m, str recipient)
{
    str namespace = STR("functions.");
    if (str_has_prefix(recipient, namespace))
        return machine_tool(m, str_slice(recipient, namespace.n, recipient.n));
    return machine_tool(m, recipient);
}

/* A message begins. Two of one kind are two paragraphs. */
static void begin_message(struct machine *m, struct state *s, bool thinks)
{
    if (s->spoken && thinks)
        machine_reasoning(m, STR("\n\n"));
    else if (s->spoken)
        machine_text(m, STR("\n\n"));
    machine_set_reasoning(m, thinks);
    s->phase = PHASE_BODY;
    s->spoken = true;
}

static void end_header(struct machine *m, struct state *s, str header)
{
    str recipient = recipient_of(header);
    const struct answer_tool *tool = called(m, recipient);
    s->strange = !tool && recipient.n > 0 && !str_eqz(recipient, "assistant");
    if (tool) {
        machine_call(m, tool, (str){0});
        s->args = (struct args){0};
        s->phase = PHASE_CALL;
        s->spoken = true;
        return;
    }
    begin_message(m, s, !s->strange && str_eqz(channel_of(header), "analysis"));
    if (s->strange)
        machine_text(m, header);
}

/* ---- phases: false when there must be more text ---- */

static bool between(struct machine *m, struct state *s)
{
    str text = machine_unread(m);
    int which;
    machine_take(m, space_skip(text, 0));
    text = machine_unread(m);
    if (text.n == 0)
        return false;
    size_t at = machine_find(text, 0, between_marks, &which);
    if (at > 0 || (which < 0 && machine_is_last(m)))
        begin_message(m, s, false);
    else if (which < 0)
        return false;
    else if (which < N_OPENINGS)
        s->phase = PHASE_HEADER;
    else
        machine_take(m, str_from(between_marks[which]).n);
    return true;
}

static bool header(struct machine *m, struct state *s)
{
    int which;
    str text = machine_unread(m);
    if (text.n > HEADER_BYTES_MAX)
        text.n = HEADER_BYTES_MAX;
    size_t at = machine_find(text, 0, header_ends, &which);
    if (which < 0 && text.n == HEADER_BYTES_MAX) {
        begin_message(m, s, false);
        machine_text(m, text);
        machine_take(m, text.n);
        return true;
    }
    if (which < 0) {
        /* One that the answer's end cut off says nothing. */
        if (machine_is_last(m))
            machine_take(m, text.n);
        return false;
    }
    size_t n = at + str_from(header_ends[which]).n;
    s->phase = PHASE_BETWEEN;
    if (which == 0)
        end_header(m, s, str_slice(text, 0, n));
    machine_take(m, n);
    return true;
}

static bool body(struct machine *m, struct state *s)
{
    int which;
    str text = machine_unread(m);
    size_t at = machine_find(text, 0, body_ends, &which);
    if (which < 0 && machine_is_last(m))
        at = text.n;
    size_t said = at;
    if (s->strange && which == 1)
        said = at + sizeof CALL - 1;
    if (machine_in_reasoning(m))
        machine_reasoning(m, str_slice(text, 0, said));
    else
        machine_text(m, str_slice(text, 0, said));
    machine_take(m, said);
    if (which >= 0)
        s->phase = PHASE_BETWEEN;
    return which >= 0;
}

static bool call(struct machine *m, struct state *s)
{
    args_result r = args_step(&s->args, m, body_ends);
    if (r == ARGS_MORE)
        return false;
    machine_call_end(m, true);
    s->phase = r == ARGS_WHOLE ? PHASE_BODY : PHASE_BETWEEN;
    return true;
}

static void step(struct machine *m, void *state)
{
    struct state *s = state;
    bool goes_on = true;
    if (!s->begun && machine_in_reasoning(m))
        s->phase = PHASE_BODY;
    s->begun = true;
    while (goes_on) {
        switch (s->phase) {
        case PHASE_BETWEEN: goes_on = between(m, s); break;
        case PHASE_HEADER: goes_on = header(m, s); break;
        case PHASE_BODY: goes_on = body(m, s); break;
        case PHASE_CALL: goes_on = call(m, s); break;
        }
    }
}

static bool fits(const struct dialect_model *m)
{
    return dialect_knows(m, CHANNEL) && dialect_knows(m, MESSAGE);
}

const struct dialect dialect_harmony = {
    .name = "harmony",
    .fits = fits,
    .shown = shown,
    .state_bytes = sizeof(struct state),
    .step = step,
};
