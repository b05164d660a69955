/*
 * sdk/history.h - the messages of a conversation: read from JSON, arranged for what a template can
 * take, and written as the template's keyword arguments. No tokens, no rendering. One thread at a
 * time.
 */
#ifndef T9_SDK_HISTORY_H
#define T9_SDK_HISTORY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "tempo9.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum turn_role {
    TURN_ROLE_SYSTEM,
    TURN_ROLE_USER,
    TURN_ROLE_ASSISTANT,
    TURN_ROLE_TOOL,
} turn_role;

const char *turn_role_name(turn_role r);

struct turn {
    turn_role role;
    str content; /* text parts joined by a line feed; empty where an assistant has none */
    str name;    /* empty when absent, as the next two */
    str tool_call_id;
    str reasoning;
    yyjson_val *tool_calls; /* array of {"function": {"name", "arguments"}}, or NULL */
};

/* Reads the array `messages` into `*out` [*n], in the arena; texts point into the document. INVALID
 * names the message and the member. */
t9_status turns_read(struct turn **out, size_t *n, yyjson_val *messages, struct arena *arena,
                     struct t9_err *err);

/* What a template takes; see struct t9_template_info and t9_template_tools. */
struct history_caps {
    bool system, later_system, user_twice;
    bool arguments_text;
    bool no_null;              /* content must be text where there is none */
    bool reasoning_alone;      /* reasoning goes with a call, but not with content and a call */
    const char *reasoning_key; /* what messages call it; NULL: "reasoning_content" */
};

struct history_entry {
    turn_role role;
    str content;
    const struct turn *src; /* for names and tool calls; NULL for a made-up turn */
};

struct history {
    struct history_entry *entries; /* in the arena */
    size_t n_entries;
    struct history_caps caps;
    struct arena arena;
};

/* System messages: the leading run becomes one message (joined by an empty line), or goes into the
 * first user turn when the template takes none. A later one stays in place, or becomes a marked
 * user turn in place; where two user turns in a row are not taken, it is joined to the user turn
 * beside it. Nothing is ever moved to the head: that would change the beginning that a cache knows.
 */
t9_status turns_arrange(struct history *h, const struct turn *messages, size_t n,
                        struct history_caps caps, struct t9_err *err);
void turns_deinit(struct history *h); /* accepts a zeroed one */

/* Appends the JSON array of messages. Arguments of tool calls are written as the template wants
 * them: as an object, though they were one in a string, or as JSON text. The result of a call gets
 * the call's name where it has none. */
void turns_write(const struct history *h, struct buf *out);

#endif
