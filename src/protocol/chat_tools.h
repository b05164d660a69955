/*
 * protocol/chat_tools.h - tools and calls of a chat_request: what the parsers of all protocols
 * check alike. One thread at a time.
 */
#ifndef T9_PROTOCOL_CHAT_TOOLS_H
#define T9_PROTOCOL_CHAT_TOOLS_H

#include "protocol/policy.h"

enum { CHAT_TOOLS_MAX = 512, CHAT_TOOL_NAME_BYTES_MAX = 128 };

/* Makes room for n tools, which chat_tool_add then fills. INVALID names `field` when n is over
 * CHAT_TOOLS_MAX. */
t9_status chat_tools_begin(struct policy_ctx *c, const char *field, size_t n);
/* Adds a tool. INVALID with `where` ("tools[3].function") and its member as the parameter: a name
 * of other than letters, digits, '_', '-', '.', ':' or '/', one that is there already, a schema
 * that is no object. */
t9_status chat_tool_add(struct policy_ctx *c, const char *where, struct chat_tool tool);
/* What a tool says of itself; its description must be a string, or not be there. */
t9_status chat_tool_says(struct policy_ctx *c, const char *where, yyjson_val *tool, str *out);
/* Makes room for n calls of an assistant's message; NULL with the error told when n is over
 * T9_CALLS_MAX or memory ended. The message names them once they are filled in. */
struct chat_call *chat_calls_new(struct policy_ctx *c, const char *where, size_t n);
/* Warns of tool messages that answer no call of the newest message before them that has calls. */
void chat_check_results(struct chat_request *r);
/* The name of the call with this id; empty when there is none. */
str chat_call_name(const struct chat_message *m, str id);

#endif
