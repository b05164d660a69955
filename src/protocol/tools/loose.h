/*
 * protocol/tools/loose.h - private to this folder: arguments in a notation that is like JSON but is
 * not, Python's or Gemma's, converted to a JSON object as they come.
 *
 * It takes whatever a model writes: what is no literal becomes a string, and so does a number where
 * the tool's schema permits strings alone; what lacks a value gets null, what is left open is
 * closed by the end marker. The only text that it refuses is nested too deeply.
 */
#ifndef T9_PROTOCOL_TOOLS_LOOSE_H
#define T9_PROTOCOL_TOOLS_LOOSE_H

#include "protocol/tools/machine.h"

enum { LOOSE_DEPTH_MAX = 64 };

struct loose_syntax {
    char close;  /* ends the arguments */
    char assign; /* between a name and its value in the outermost object */
    /* Whether the outermost object may have values without names, which get those of the tool's
     * schema in its order, and 'single' quotes. */
    bool is_python;
    const char *quote; /* around strings without escapes, beside the usual quotes; or NULL */
    const char *end;   /* outside of strings it ends the call; or NULL */
};

struct loose {
    uint8_t phase;
    uint8_t quote; /* of the string that is read */
    bool raw;      /* it has no escapes */
    bool is_key;
    bool is_text; /* the schema permits nothing but strings for the next value */
    size_t depth;
    uint8_t frames[LOOSE_DEPTH_MAX];
    /* Of a bare word that waits unread: how much was looked at, and brackets open in it. */
    size_t seen, n_open;
    size_t n_positional;
};

typedef enum loose_result {
    LOOSE_MORE,
    LOOSE_CLOSED, /* the closing bracket was taken */
    LOOSE_ENDED,  /* the end marker comes next */
    LOOSE_DEEP,   /* too deep to read on */
} loose_result;

/* Before the arguments, whose opening bracket was taken. */
void loose_begin(struct loose *l, struct machine *m);
/* Takes arguments and hands them on; ending the call is the dialect's. */
loose_result loose_step(struct loose *l, struct machine *m, const struct loose_syntax *syntax,
                        const struct answer_tool *tool);

#endif
