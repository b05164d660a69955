/*
 * protocol/tools/glm.c - GLM 4.5 and later:
 *
 *     <tool_call>NAME
 *     <arg_key>KEY</arg_key>
 *     <arg_value>VALUE</arg_value>
 *     </tool_call>
 *
 * once for each call, with or without line feeds between tags. VALUE is raw text, typed by the
 * tool's schema; what looks like a closing tag in it counts only where another tag follows.
 */
#include "protocol/tools/space.h"
#include "protocol/tools/tagged.h"

#include <string.h>

enum { NAME_BYTES_MAX = 256 };

enum phase {
    OUTSIDE,
    OPEN,  /* after <tool_call> */
    RAW,   /* content up to the closing tag: it is no call that was offered */
    BODY,  /* between arguments */
    VALUE, /* in one */
};

struct glm {
    int phase;
    const struct answer_tool *tool;
    struct tagged tagged;
};

static const char open_tag[] = "<tool_call>", close_tag[] = "</tool_call>";

static bool fits(const struct dialect_model *m)
{
    return dialect_template_has(m, "<arg_key>") && dialect_template_has(m, "<arg_value>");
}

/* ---- before a call ---- */

static bool outside(struct glm *g, struct machine *m)
{
    static const char *const markers[] = {open_tag, NULL};
    if (machine_outside(m, markers) < 0)
        return false;
    g->phase = OPEN;
    return true;
}

static bool is_content(struct glm *g, struct machine *m, size_t n_bytes, int phase)
{
    machine_text(m, str_from(open_tag));
    machine_text(m, str_slice(machine_unread(m), 0, n_bytes));
    machine_take(m, n_bytes);
    g->phase = phase;
    return true;
}

/* The name ends with its line or at a tag. */
static bool open(struct glm *g, struct machine *m)
{
    static const char *const tags[] = {"<arg_key>", close_tag, NULL};
    str text = machine_unread(m);
    size_t from = space_skip(text, 0), at = from;
    while (at < text.n && at - from < NAME_BYTES_MAX && text.p[at] != '\n' && text.p[at] != '<')
        at++;
    tag_fit fit = TAG_YES; /* at the end of its line */
    if (from > TAG_SPACE_MAX || at - from == NAME_BYTES_MAX)
        fit = TAG_NO;
    else if (at == text.n)
        fit = TAG_MAYBE;
    else if (text.p[at] == '<')
        fit = tag_follows(text, at, tags);
    if (fit == TAG_MAYBE && !machine_is_last(m))
        return false;
    if (fit != TAG_YES)
        return is_content(g, m, at, OUTSIDE);
    g->tool = machine_tool(m, str_trim(str_slice(text, from, at)));
    if (!g->tool)
        return is_content(g, m, at, RAW);
    machine_call(m, g->tool, (str){0});
    machine_take(m, at);
    g->tagged = (struct tagged){0};
    g->phase = BODY;
    return true;
}

static bool raw(struct glm *g, struct machine *m)
{
    static const char *const markers[] = {close_tag, open_tag, NULL};
    int which;
    str text = machine_unread(m);
    size_t at = machine_find(text, 0, markers, &which);
    if (which < 0 && machine_is_last(m))
        at = text.n;
    machine_text(m, str_slice(text, 0, at));
    machine_take(m, at);
    if (which < 0)
        return false;
    if (which == 0) {
        machine_text(m, str_from(close_tag));
        machine_take(m, strlen(close_tag));
    }
    g->phase = OUTSIDE;
    return true;
}

/* ---- in a call ---- */

static tag_fit ends(const struct answer_tool *tool, str text, size_t at, bool own_line, bool last,
                    struct tagged_end *out)
{
    static const char *const after_value[] = {"<arg_key>", close_tag, open_tag, NULL};
    static const char *const after_call[] = {open_tag, NULL};
    static const char value_tag[] = "</arg_value>";
    (void)tool;
    (void)own_line;
    tag_fit fit = tag_at(text, at, value_tag);
    *out = (struct tagged_end){.n_bytes = strlen(value_tag)};
    if (fit == TAG_YES) {
        fit = tag_follows(text, at + out->n_bytes, after_value);
        return last && fit == TAG_MAYBE ? TAG_YES : fit;
    }
    if (fit == TAG_MAYBE)
        return fit;
    /* The value's own closing tag is missing: the call's is left to its body. */
    fit = tag_at(text, at, close_tag);
    if (fit == TAG_YES)
        fit = tag_follows(text, at + strlen(close_tag), after_call);
    *out = (struct tagged_end){.unsure = fit != TAG_YES};
    return last && fit == TAG_MAYBE && text.n - at >= strlen(close_tag) ? TAG_YES : fit;
}

static const struct tagged_syntax syntax = {.ends = ends};

static void end_call(struct glm *g, struct machine *m, bool complete)
{
    if (complete)
        typed_end(&g->tagged.args, m);
    machine_call_end(m, complete);
    g->phase = OUTSIDE;
}

/* <arg_key>KEY</arg_key> <arg_value> */
static tag_fit read_key(str text, str *key, size_t *end)
{
    static const char *const value_tag[] = {"<arg_value>", NULL};
    static const char key_tag[] = "<arg_key>", key_end[] = "</arg_key>";
    tag_fit fit = tag_at(text, 0, key_tag);
    if (fit != TAG_YES)
        return fit;
    size_t from = strlen(key_tag), at = from;
    for (; (fit = tag_at(text, at, key_end)) == TAG_NO; at++) {
        if (at - from > NAME_BYTES_MAX)
            return TAG_NO;
    }
    if (fit == TAG_MAYBE)
        return fit;
    *key = str_trim(str_slice(text, from, at));
    fit = tag_follows(text, at + strlen(key_end), value_tag);
    *end = space_skip(text, at + strlen(key_end)) + strlen(value_tag[0]);
    return fit;
}

/* An argument's key, or the end; what is neither is not of the call and is left out. */
static bool body(struct glm *g, struct machine *m)
{
    str text = machine_unread(m), key;
    size_t at = 0, end = 0;
    while (at < text.n && text.p[at] != '<')
        at++;
    machine_take(m, at);
    text = machine_unread(m);
    if (text.n == 0)
        return false;
    tag_fit is_key = read_key(text, &key, &end), closes = tag_at(text, 0, close_tag);
    tag_fit opens = tag_at(text, 0, open_tag);
    if (is_key == TAG_YES) {
        tagged_begin(&g->tagged, m, g->tool, key);
        machine_take(m, end);
        g->phase = VALUE;
    } else if (closes == TAG_YES || opens == TAG_YES) {
        machine_take(m, closes == TAG_YES ? strlen(close_tag) : 0);
        end_call(g, m, true);
    } else if (!machine_is_last(m) &&
               (is_key == TAG_MAYBE || closes == TAG_MAYBE || opens == TAG_MAYBE)) {
        return false;
    } else {
        machine_take(m, 1);
    }
    return true;
}

static bool value(struct glm *g, struct machine *m)
{
    tagged_result r = tagged_step(&g->tagged, m, g->tool, &syntax);
    if (r == TAGGED_MORE)
        return false;
    g->phase = BODY;
    if (r == TAGGED_CUT)
        end_call(g, m, false);
    return true;
}

static void step(struct machine *m, void *state)
{
    static bool (*const phases[])(struct glm *, struct machine *) = {
        [OUTSIDE] = outside, [OPEN] = open, [RAW] = raw, [BODY] = body, [VALUE] = value,
    };
    struct glm *g = state;
    while (phases[g->phase](g, m))
        ;
}

static const char *const shown[] = {"<tool_call>", "</tool_call>", "<arg_key>",
                                    "</arg_key>",  "<arg_value>",  "</arg_value>",
                                    "<think>",     "</think>",     NULL};

const struct dialect dialect_glm = {.name = "glm",
                                    .fits = fits,
                                    .shown = shown,
                                    .think_open = "<think>",
                                    .think_close = "</think>",
                                    .state_bytes = sizeof(struct glm),
                                    .step = step};
