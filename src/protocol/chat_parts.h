/*
 * protocol/chat_parts.h - content that comes in parts: what the parsers of all protocols read
 * alike. One thread at a time.
 */
#ifndef T9_PROTOCOL_CHAT_PARTS_H
#define T9_PROTOCOL_CHAT_PARTS_H

#include "protocol/policy.h"

/* Checks a part and views its text; `where` names the content in an error. */
typedef t9_status (*chat_part_fn)(struct policy_ctx *c, const char *where, yyjson_val *part,
                                  str *out);
/* The texts of an array of parts joined by a line feed, as chat templates that take strings expect;
 * a view, or made in the request's arena. */
t9_status chat_join_parts(struct policy_ctx *c, const char *where, yyjson_val *parts,
                          chat_part_fn part_text, str *out);
/* UNSUPPORTED: a part of this type is not taken. */
t9_status chat_part_refused(struct policy_ctx *c, const char *where, yyjson_val *part);

#endif
