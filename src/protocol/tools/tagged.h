/*
 * protocol/tools/tagged.h - private to this folder: arguments that stand as raw text between tags.
 * A string goes out as it comes, everything else when its closing tag has come.
 *
 * A value may hold text that looks like a tag, the closing one included, so a dialect judges each
 * place by what follows it.
 */
#ifndef T9_PROTOCOL_TOOLS_TAGGED_H
#define T9_PROTOCOL_TOOLS_TAGGED_H

#include "protocol/tools/typed.h"

/* More white space than this is no part of a tag, and is not waited for. */
enum { TAG_SPACE_MAX = 64 };

typedef enum tag_fit {
    TAG_NO,
    TAG_MAYBE, /* the text ends too early to say */
    TAG_YES,
} tag_fit;

/* Whether `tag` stands there. */
tag_fit tag_at(str text, size_t at, const char *tag);
/* Whether one of `tags` (ended by NULL) does, after white space of some length. */
tag_fit tag_follows(str text, size_t at, const char *const *tags);
/* Whether `open`, a name and '>' stand there, with spaces and quotes around the name as models put
 * them: *name, and the tag's end. */
tag_fit tag_with_name(str text, size_t at, const char *open, str *name, size_t *end);

/* Of a place where a value may end. */
struct tagged_end {
    size_t n_bytes; /* of the closing tag: taken */
    bool unsure;    /* it is the wrong one, and the text ends behind it */
};

struct tagged_syntax {
    bool trims; /* a line feed at each edge of a value is not of it */
    /* Whether a value ends at `at`, where there is a '<'. `own_line`: at the beginning of one.
     * `last`: the text is all that there is; MAYBE counts as NO then. */
    tag_fit (*ends)(const struct answer_tool *tool, str text, size_t at, bool own_line, bool last,
                    struct tagged_end *out);
};

/* Zeroed: before the first argument of a call. */
struct tagged {
    struct typed args;
    unsigned types;
    bool begun, fresh; /* its first byte was looked for; nothing of it was taken */
    size_t seen;       /* of the unread text */
};

/* An argument begins. */
void tagged_begin(struct tagged *t, struct machine *m, const struct answer_tool *tool, str key);
typedef enum tagged_result {
    TAGGED_MORE,
    TAGGED_DONE, /* the value and its closing tag were taken */
    TAGGED_CUT,  /* it ended in a place that is not sure, and the text behind it: all was taken */
} tagged_result;

/* Takes what is certain of the value. */
tagged_result tagged_step(struct tagged *t, struct machine *m, const struct answer_tool *tool,
                          const struct tagged_syntax *syntax);

#endif
