/*
 * protocol/tools/json_list.h - private to this folder: calls as JSON objects, one or a list, after
 * a marker whose dialect writes them in another form as well.
 */
#ifndef T9_PROTOCOL_TOOLS_JSON_LIST_H
#define T9_PROTOCOL_TOOLS_JSON_LIST_H

#include "protocol/tools/json_call.h"

struct json_list {
    struct json_call call;
    bool between; /* two calls, or after the last one */
};

typedef enum json_list_fit {
    JSON_LIST_NO,
    JSON_LIST_MAYBE, /* the text ends too early to say */
    JSON_LIST_YES,
} json_list_fit;

/* Whether the unread text behind a marker begins with an object, maybe in a list; looks at
 * max_bytes of it. */
json_list_fit json_list_ahead(const struct machine *m, size_t max_bytes);
/* `prefix`: the marker that was taken. */
void json_list_start(struct json_list *l, const char *prefix);
/* False: it is over, and what follows it is unread. */
bool json_list_goes_on(struct json_list *l, struct machine *m);

#endif
