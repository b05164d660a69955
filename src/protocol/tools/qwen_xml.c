/*
 * protocol/tools/qwen_xml.c - Qwen3-Coder, Qwen3.5 and later, Nemotron 3:
 *
 *     <tool_call>
 *     <function=NAME>
 *     <parameter=KEY>
 *     VALUE
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * once for each call. VALUE is raw text with a line feed at each side, typed by the tool's schema;
 * it may hold anything, so a tag in it counts only where another tag follows that can follow it.
 * Models leave out the opening <tool_call>, the closing tags of a parameter or of the function, put
 * spaces into tags, and some write JSON between the outer tags, as Hermes does.
 */
#include "protocol/tools/json_call.h"
#include "protocol/tools/space.h"
#include "protocol/tools/tagged.h"

#include <string.h>

enum phase {
    OUTSIDE,
    OPEN,  /* after <tool_call>, or after <function of a bare call */
    JSON,  /* an object instead of tags */
    RAW,   /* content up to a closing tag: it is no call that was offered */
    BODY,  /* between parameters */
    VALUE, /* in one */
    AFTER, /* the function */
};

struct qwen_xml {
    int phase;
    bool bare; /* OPEN: without <tool_call> */
    const struct answer_tool *tool;
    struct tagged tagged;
    struct json_call json;
};

static bool fits(const struct dialect_model *m)
{
    return dialect_template_has(m, "<function=") && dialect_template_has(m, "<parameter=");
}

/* ---- before a call ---- */

static const char *const openings[] = {"<tool_call>", "<function", NULL};

static bool outside(struct qwen_xml *q, struct machine *m)
{
    int which = machine_outside(m, openings);
    if (which < 0)
        return false;
    q->bare = which == 1;
    q->phase = OPEN;
    return true;
}

/* It is no call. */
static void is_content(struct qwen_xml *q, struct machine *m, size_t n_bytes, int phase)
{
    machine_text(m, str_from(openings[q->bare]));
    machine_text(m, str_slice(machine_unread(m), 0, n_bytes));
    machine_take(m, n_bytes);
    q->phase = phase;
}

/* What stands in the tag <tool_call>, or in a bare <function. */
static bool open(struct qwen_xml *q, struct machine *m)
{
    str text = machine_unread(m), name = {0};
    size_t at = q->bare ? 0 : space_skip(text, 0), end = 0;
    if (!q->bare && at < text.n && text.p[at] == '{') {
        q->phase = JSON;
        json_call_start(&q->json, openings[0], false, false);
        return true;
    }
    tag_fit fit = at > TAG_SPACE_MAX
                      ? TAG_NO
                      : tag_with_name(text, at, q->bare ? "" : openings[1], &name, &end);
    if (fit == TAG_MAYBE) {
        if (!machine_is_last(m))
            return false;
        is_content(q, m, text.n, OUTSIDE);
        return false;
    }
    if (fit == TAG_NO) {
        is_content(q, m, at, OUTSIDE);
        return true;
    }
    q->tool = machine_tool(m, name);
    if (!q->tool) {
        is_content(q, m, end, q->bare ? OUTSIDE : RAW);
        return true;
    }
    machine_call(m, q->tool, (str){0});
    machine_take(m, end);
    q->tagged = (struct tagged){0};
    q->phase = BODY;
    return true;
}

static bool raw(struct qwen_xml *q, struct machine *m)
{
    static const char *const markers[] = {"</tool_call>", "</function>", "<tool_call>", NULL};
    int which;
    str text = machine_unread(m);
    size_t at = machine_find(text, 0, markers, &which);
    if (which < 0 && machine_is_last(m))
        at = text.n;
    machine_text(m, str_slice(text, 0, at));
    machine_take(m, at);
    if (which < 0)
        return false;
    if (which < 2) {
        machine_text(m, str_from(markers[which]));
        machine_take(m, strlen(markers[which]));
    }
    q->phase = OUTSIDE;
    return true;
}

/* ---- in a call ---- */

/* What can come after the end of a parameter, and of a function. */
static const char *const after_parameter[] = {"<parameter", "</function", "</tool_call",
                                              "<tool_call", "<function",  NULL};
static const char *const after_function[] = {"</tool_call", "<tool_call", "<function", NULL};
static const char *const after_call[] = {"<tool_call", NULL};

/* A closing tag with one of `tags` behind it, or with the end of the answer. */
static tag_fit closed(str text, size_t at, const char *tag, const char *const *tags, bool last)
{
    tag_fit fit = tag_at(text, at, tag);
    if (fit == TAG_YES)
        fit = tag_follows(text, at + strlen(tag), tags);
    return last && fit == TAG_MAYBE && text.n - at >= strlen(tag) ? TAG_YES : fit;
}

static tag_fit wrongly_closed(str text, size_t at, const char *tag, const char *const *tags,
                              bool last, struct tagged_end *out)
{
    tag_fit sure = closed(text, at, tag, tags, false);
    tag_fit fit = closed(text, at, tag, tags, last);
    *out = (struct tagged_end){.unsure = sure != TAG_YES};
    return fit;
}

static tag_fit ends(const struct answer_tool *tool, str text, size_t at, bool own_line, bool last,
                    struct tagged_end *out)
{
    static const char *const tags[] = {"</parameter>", "</parameter >", NULL};
    tag_fit best = TAG_NO, fit;
    for (size_t i = 0; tags[i]; i++) {
        *out = (struct tagged_end){.n_bytes = strlen(tags[i])};
        fit = closed(text, at, tags[i], after_parameter, last);
        if (fit == TAG_YES)
            return fit;
        best = fit > best ? fit : best;
    }
    if (!own_line)
        return best;
    /* Its own closing tag is missing: nothing is taken, the call's body goes on here. */
    str name;
    size_t end;
    fit = tag_with_name(text, at, "<parameter", &name, &end);
    *out = (struct tagged_end){0};
    if (fit == TAG_YES && typing_declares(tool->schema, name))
        return TAG_YES;
    best = fit == TAG_MAYBE ? fit : best;
    fit = wrongly_closed(text, at, "</function>", after_function, last, out);
    if (fit == TAG_NO)
        fit = wrongly_closed(text, at, "</tool_call>", after_call, last, out);
    return fit > best ? fit : best;
}

static const struct tagged_syntax syntax = {.trims = true, .ends = ends};

static void end_call(struct qwen_xml *q, struct machine *m, bool complete, int phase)
{
    if (complete)
        typed_end(&q->tagged.args, m);
    machine_call_end(m, complete);
    q->phase = phase;
}

/* The tag of a parameter, or an end; what is neither is not of the call and is left out. */
static bool body(struct qwen_xml *q, struct machine *m)
{
    static const char *const closing[] = {"</function>", "</function >", "</tool_call>",
                                          "<tool_call>", "<function",    NULL};
    str text = machine_unread(m), name;
    size_t at = 0, end = 0;
    while (at < text.n && text.p[at] != '<')
        at++;
    machine_take(m, at);
    text = machine_unread(m);
    if (text.n == 0)
        return false;
    tag_fit fit = tag_with_name(text, 0, "<parameter", &name, &end);
    if (fit == TAG_YES) {
        tagged_begin(&q->tagged, m, q->tool, name);
        machine_take(m, end);
        q->phase = VALUE;
        return true;
    }
    bool maybe = fit == TAG_MAYBE;
    for (size_t i = 0; closing[i]; i++) {
        fit = tag_at(text, 0, closing[i]);
        maybe |= fit == TAG_MAYBE;
        if (fit != TAG_YES)
            continue;
        if (i < 2)
            machine_take(m, strlen(closing[i]));
        end_call(q, m, true, AFTER);
        return true;
    }
    if (maybe && !machine_is_last(m))
        return false;
    machine_take(m, 1);
    return true;
}

static bool value(struct qwen_xml *q, struct machine *m)
{
    tagged_result r = tagged_step(&q->tagged, m, q->tool, &syntax);
    if (r == TAGGED_MORE)
        return false;
    q->phase = BODY;
    if (r == TAGGED_CUT)
        end_call(q, m, false, OUTSIDE);
    return true;
}

static bool after(struct qwen_xml *q, struct machine *m)
{
    machine_take(m, space_skip(machine_unread(m), 0));
    tag_fit fit = tag_at(machine_unread(m), 0, "</tool_call>");
    if (fit == TAG_MAYBE && !machine_is_last(m))
        return false;
    if (fit == TAG_YES)
        machine_take(m, strlen("</tool_call>"));
    q->phase = OUTSIDE;
    return true;
}

static bool json(struct qwen_xml *q, struct machine *m)
{
    json_call_result r = json_call_step(&q->json, m);
    if (r != JSON_CALL_MORE)
        q->phase = r == JSON_CALL_DONE ? AFTER : OUTSIDE;
    return r != JSON_CALL_MORE;
}

static void step(struct machine *m, void *state)
{
    static bool (*const phases[])(struct qwen_xml *, struct machine *) = {
        [OUTSIDE] = outside, [OPEN] = open,   [JSON] = json,   [RAW] = raw,
        [BODY] = body,       [VALUE] = value, [AFTER] = after,
    };
    struct qwen_xml *q = state;
    while (phases[q->phase](q, m))
        ;
}

static const char *const shown[] = {"<tool_call>", "</tool_call>", "<think>", "</think>", NULL};

const struct dialect dialect_qwen_xml = {.name = "qwen_xml",
                                         .fits = fits,
                                         .shown = shown,
                                         .think_open = "<think>",
                                         .think_close = "</think>",
                                         .state_bytes = sizeof(struct qwen_xml),
                                         .step = step};
