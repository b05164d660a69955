/*
 * protocol/tools/json_call.h - private to this folder: a call written as a JSON object, in pieces.
 *
 *     {"name": NAME, "arguments": {..}}          members in any order, "parameters" as well
 *     {"type": "function", "function": {..}}     the same, one level down
 *     {"name": NAME, "arguments": "{..}"}        arguments as the text of JSON
 *
 * The name goes out as soon as it is certain, arguments as they come. Until then the text waits in
 * the machine, so that it can go back as content when it is no call.
 */
#ifndef T9_PROTOCOL_TOOLS_JSON_CALL_H
#define T9_PROTOCOL_TOOLS_JSON_CALL_H

#include "protocol/tools/json_scan.h"
#include "protocol/tools/machine.h"

typedef enum json_call_result {
    JSON_CALL_MORE, /* it goes on */
    JSON_CALL_DONE, /* a call was read; what follows it is unread */
    JSON_CALL_TEXT, /* it was no call and is content now */
} json_call_result;

struct json_call {
    const char *prefix; /* what was taken before it, content if it is no call */
    bool bare;          /* nothing but its form says that it is one: see json_call_start */

    int phase, key;
    bool nested;  /* in the member "function" */
    bool streams; /* the value at hand goes out while it comes */
    size_t at;    /* of the unread text, what was looked at */
    size_t from;  /* where the string or value at hand begins */
    struct json_scan scan, whole;

    const struct answer_tool *tool;
    bool begun, saw_args, has_args; /* the call; the member; all of its value */
    size_t id_from, id_to, args_from, args_to;
};

/* Before an object, which may stand in a list. `in_object`: its bracket was taken and is the end of
 * the prefix. `bare`: without any marker it is a call only when it has a name and arguments and no
 * other members than calls have. */
void json_call_start(struct json_call *c, const char *prefix, bool in_object, bool bare);
json_call_result json_call_step(struct json_call *c, struct machine *m);

#endif
