/*
 * sdk/recent.h - the conversations that were tokenised lately, of one model: a conversation that
 * goes on is tokenised only from where it differs. What comes out is what tokenising all of it
 * gives.
 *
 * Kept are whole texts with their tokens, those used last, up to so many bytes. Any thread.
 */
#ifndef T9_SDK_RECENT_H
#define T9_SDK_RECENT_H

#include "template/template.h"
#include "tokenizer/tokenizer.h"

struct recent;

/* Shorter texts are not worth it, longer ones not kept. */
#define RECENT_TEXT_BYTES_MIN ((size_t)4 << 10)

struct recent *recent_new(size_t max_bytes); /* NULL without memory */
void recent_free(struct recent *r);          /* NULL allowed */

/* What is known of a text. */
struct recent_match {
    uint64_t entry; /* the text that begins like it; 0: none */
    bool goes_on;   /* it is mostly that one, so that it may take its place */
    size_t n_bytes; /* of the text that `ids` has the tokens of, up to the end of a special one */
    struct tok_cuts cuts; /* up to there */
};

/* Finds the longest beginning of `text` and appends its tokens to `ids`, which is empty. A marker
 * has at most marker_bytes_max bytes. Without memory nothing is known. out->cuts is freed with
 * tok_cuts_deinit. */
void recent_find(struct recent *r, const struct jinja_output *text, size_t marker_bytes_max,
                 struct tok_ids *ids, struct recent_match *out);
/* Keeps the text with all its tokens and cuts, where there is memory. */
void recent_keep(struct recent *r, const struct jinja_output *text, const struct tok_ids *ids,
                 const struct recent_match *match);

#endif
