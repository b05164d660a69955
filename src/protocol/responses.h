/*
 * protocol/responses.h - OpenAI's Responses: what its files share. responses.c has the table of
 * fields, responses_input.c turns items into messages, responses_tools.c reads tools, and
 * responses_write.c writes replies and events.
 */
#ifndef T9_PROTOCOL_RESPONSES_H
#define T9_PROTOCOL_RESPONSES_H

#include "protocol/adapter.h"
#include "protocol/policy.h"

extern const struct chat_adapter responses_adapter;
extern const struct policy_field responses_fields[];
extern const size_t responses_n_fields;

/* A tool as the client knows it. */
struct responses_tool {
    str name;         /* the model's name of it */
    str space, local; /* its namespace, empty when it has none, and its name in there */
    bool is_text;     /* the client takes one text, the argument "input" */
};

/* chat_request.extra: what the writers need of the request. */
struct responses_own {
    struct responses_tool *tools; /* those of the request, in its order */
    str tools_text;               /* JSON array of those that were taken, as they came */
    str told;                     /* members that each reply repeats, with a comma before each */
    bool seal;                    /* reasoning items have encrypted_content */
    bool summarise;               /* reasoning is told as a summary */
    bool keep;                    /* the response is stored */
    str items;                    /* the input as a JSON array of items, where it is */
    str previous;                 /* the response that it goes on from, or empty; the body's */
};

static inline struct responses_own *responses_own(const struct chat_request *r)
{
    return r->extra;
}

/* Parsers of fields; see struct policy_field. */
t9_status responses_tools(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status responses_tool_choice(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
/* Leaves only the tools that a tool_choice of allowed_tools names; after all fields were read. One
 * that is not among `tools` is refused, one that a server would run is told of. */
t9_status responses_allow_tools(struct policy_ctx *c, yyjson_val *body);
/* The model's name of a tool in a namespace, in the request's arena; p is NULL without memory. */
str responses_flat_name(struct chat_request *r, str space, str local);

/* Instructions and items to messages; after all fields were read. */
t9_status responses_input(struct policy_ctx *c, yyjson_val *body);

/* What is stored (responses_kept.c). */
struct responses_history {
    yyjson_val *items; /* array: the items of what came before, then those that are referred to */
    size_t n_before;
};
/* Reads what previous_response_id and references name; nothing where there are none. */
t9_status responses_recall(struct policy_ctx *c, yyjson_val *body, struct responses_history *out);
/* Whether an item stands for one that is stored. */
bool responses_is_reference(yyjson_val *item);
/* Remembers the input to be stored with the reply; references as the items that they name. */
t9_status responses_note_input(struct policy_ctx *c, yyjson_val *input,
                               const struct responses_history *h);
/* Stores the reply, whose object this is. */
void responses_keep(const struct chat_reply *r, str response);
struct store_row;
/* Appends the items of a stored row, each with a comma before it, and counts them. */
t9_status responses_row_items(const struct store_row *row, struct buf *out, size_t *n,
                              struct t9_err *err);
/* GET and DELETE below /v1/responses/; the body is
 * {"method":..,"path":..,"query":[[NAME,VALUE],..]}, with all parameters as they came. */
extern const struct chat_adapter responses_kept_adapter;

/* The adapter's writers: see struct chat_adapter. */
enum { RESPONSES_STATE_BYTES = 64 };
void responses_stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out);
void responses_whole(const struct chat_reply *r, const struct chat_choice *choices,
                     size_t n_choices, const struct chat_event *end, struct buf *out);

#endif
