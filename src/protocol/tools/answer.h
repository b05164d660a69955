/*
 * protocol/tools/answer.h - what the text of a model's answer is made of: content, reasoning, tool
 * calls. Text goes in as it is decoded, parts come out as soon as they are certain.
 *
 * A model family writes calls and reasoning in its own dialect (one file each in this folder,
 * listed in dialect.h). A dialect is chosen by chat template and vocabulary, never by a file's
 * name. No protocol knows a dialect and no dialect a protocol.
 *
 * What always holds, for any way in which the text is cut into pieces
 * - The parts, texts of neighbours of one kind joined, are the same.
 * - Only calls of tools that were offered come out; what looks like another call is content, as the
 *   model wrote it. Without tools no calls are looked for.
 * - Nothing that a model writes is an error. Arguments that are no JSON come out as written.
 * - A call that the answer's end cut off is not `complete`.
 *
 * One thread at a time.
 */
#ifndef T9_PROTOCOL_TOOLS_ANSWER_H
#define T9_PROTOCOL_TOOLS_ANSWER_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dialect;

/* A tool that the model may call. */
struct answer_tool {
    str name;
    yyjson_val *schema; /* JSON Schema of its arguments, an object; NULL: none is known */
};

struct answer_params {
    const struct dialect *dialect;
    const struct answer_tool *tools; /* [n_tools], outlive the parser; none: no calls */
    size_t n_tools;
    bool reasoning_open; /* the prompt ends inside of reasoning */
    bool one_call;       /* nothing after the first complete call is wanted */
    size_t max_bytes;    /* of text that waits to become certain, and of arguments held */
};

typedef enum answer_kind {
    ANSWER_NONE,
    ANSWER_TEXT,
    ANSWER_REASONING,
    ANSWER_CALL,     /* a call begins; its name is certain and was offered */
    ANSWER_ARGS,     /* more of its arguments, JSON text */
    ANSWER_CALL_END, /* it is over */
} answer_kind;

struct answer_part {
    answer_kind kind;
    int32_t call;  /* CALL, ARGS, CALL_END: 0, 1, 2 ... */
    str text;      /* TEXT, REASONING, ARGS: more of it; CALL: the name */
    str id;        /* CALL: the id that the model gave it; mostly empty */
    bool complete; /* CALL_END: the model wrote all of it */
    uint32_t end;  /* TEXT, REASONING, CALL, ARGS: characters of the answer up to its end */
};

struct answer_parser;

t9_status answer_parser_new(struct answer_parser **out, const struct answer_params *p,
                            struct t9_err *err);
void answer_parser_free(struct answer_parser *p); /* NULL allowed */
/* More of the answer, whole characters, the dialect's control tokens as their text. NOMEM,
 * TOO_LARGE; the parser is of no use then. */
t9_status answer_parser_push(struct answer_parser *p, str text);
/* The answer is over: what waited comes out. */
t9_status answer_parser_end(struct answer_parser *p);
/* The next part, false when there is none. Its texts live until the next push or end. */
bool answer_parser_next(struct answer_parser *p, struct answer_part *out);
/* With one_call: a call is complete; the rest of the answer need not be made. */
bool answer_parser_is_satisfied(const struct answer_parser *p);
/* Complete calls so far. */
int32_t answer_parser_n_calls(const struct answer_parser *p);

#endif
