/*
 * protocol/history.h - arranges the messages of a conversation for what a template can take, and
 * writes them as the template's keyword arguments. No tokens, no rendering. One thread at a time.
 */
#ifndef T9_PROTOCOL_HISTORY_H
#define T9_PROTOCOL_HISTORY_H

#include "protocol/chat.h"

/* What a template takes; see struct prep_template_info. */
struct history_caps {
    bool system, later_system, user_twice;
};

struct history_entry {
    chat_role role;
    str content;
    bool has_content;
    const struct chat_message *src; /* for names and tool calls; NULL for a made-up turn */
};

struct history {
    struct history_entry *entries; /* in the arena */
    size_t n_entries;
    struct arena arena;
};

/* System messages: the leading run becomes one message (joined by an empty line), or goes into the
 * first user turn when the template takes none. A later one stays in place, or becomes a marked
 * user turn in place; where two user turns in a row are not taken, it is joined to the user turn
 * beside it. Nothing is ever moved to the head: that would change the beginning that a cache knows.
 */
t9_status history_arrange(struct history *h, const struct chat_message *messages, size_t n,
                          struct history_caps caps, struct t9_err *err);
void history_deinit(struct history *h); /* accepts a zeroed one */

/* Appends the JSON array of messages. Arguments of tool calls that are an object in a string are
 * written as the object, which is what templates expect. */
void history_write(const struct history *h, struct buf *out);

#endif
