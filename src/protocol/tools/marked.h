/*
 * protocol/tools/marked.h - private to this folder: dialects that write a call as
 *
 *   SECTION_BEGIN CALL_BEGIN head {..} CALL_END CALL_BEGIN head {..} CALL_END SECTION_END
 *
 * with white space between them as the model likes it. The section's markers may be absent.
 */
#ifndef T9_PROTOCOL_TOOLS_MARKED_H
#define T9_PROTOCOL_TOOLS_MARKED_H

#include "protocol/tools/args.h"
#include "protocol/tools/wrapped.h"

/* What stands between CALL_BEGIN and the arguments. */
struct marked_head {
    const struct answer_tool *tool;
    str id;
    size_t n_bytes; /* of it, with its separator */
    bool fenced;    /* the arguments may stand in a Markdown fence */
};

typedef enum marked_result {
    MARKED_MORE, /* not certain yet */
    MARKED_HEAD,
    MARKED_NOT, /* it is no call of a tool that was offered */
} marked_result;

struct marked_syntax {
    /* SECTION_BEGIN, CALL_BEGIN, SECTION_END, CALL_END, NULL. */
    const char *markers[5];
    /* Calls that may stand there instead of marked ones; may be none. */
    const struct wrapper *bare;
    size_t n_bare;
    /* Reads the head at the beginning of `text`. It is asked again when there is more, up to some
     * length. */
    marked_result (*head)(const struct machine *m, str text, struct marked_head *out);
};

struct marked {
    uint8_t phase;
    int8_t opening; /* the marker that was taken before a head */
    bool ends;      /* end markers belong to a call, they are no text */
    bool fenced;
    struct args args;
    struct wrapped bare;
};

void marked_step(struct machine *m, struct marked *s, const struct marked_syntax *syntax);

#endif
