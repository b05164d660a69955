/*
 * tests/lib/forward.h - runs a model's forwards without the engine: its own page pool with page ids
 * handed out in a shuffled order and slots for recurrent states, chunks of any sequences in one
 * batch, rows that are taken back, and all logits kept.
 */
#ifndef T9_TESTS_LIB_FORWARD_H
#define T9_TESTS_LIB_FORWARD_H

#include "backend/be.h"
#include "gguf/gguf.h"
#include "model/model.h"

struct fwd_params {
    const char *backend; /* "ref", "canon", "cpu" */
    const char *isa;     /* NULL = best */
    int n_threads;       /* 0 = all */
    kv_type kv_type;
    int32_t max_rows;   /* of a step; 0 = 64 */
    int32_t n_pages;    /* of the pool; 0 = 64 */
    uint32_t page_seed; /* order of page ids; 0 = ascending */
};

struct fwd {
    struct fwd_params p;
    struct gguf *g;
    struct be *be;
    struct model *m;
    struct kv_geom kv;
    void *pool;
    int32_t *free_page; /* [n_free] */
    int32_t n_free;
    struct state_geom state;
    char *state_pool; /* FWD_SLOTS of them; NULL where the model has no state */
    uint32_t used_slots;
    struct scratch scratch;
    struct tape tape;
    struct compare *compare; /* when set, steps go through this sink instead of a tape */
    /* When set, [cap of a sequence]: for each position the smallest distance, over layers, between
     * the last expert that it goes to and the next, in deviations of what they are chosen by. */
    float *margin;
    /* Batch arrays of max_rows rows. */
    int32_t *token, *pos, *kv_idx, *row_seq, *page_table, *out_row;
    int32_t *slot, *accept, *guess;
    const float **media; /* [1 + FWD_DEEPSTACK_MAX][max_rows] */
    float *logits;
};

/* Sequences at a time. */
enum { FWD_SLOTS = 8 };

/* Rows that are given instead of looked up, and where all rows of their sequence are. */
enum { FWD_DEEPSTACK_MAX = 4 };
struct fwd_media {
    const int32_t *pos; /* [n][3] of the sequence's tokens */
    int32_t first, n_rows, n_deepstack;
    const float *values; /* [1 + n_deepstack][n_rows][width] */
};

/* A sequence: tokens [n], of which `done` are in the KV. */
struct fwd_seq {
    const int32_t *tokens;
    int32_t n, done;
    int32_t *pages, n_pages;
    int32_t slot, accept;          /* where its state is; rows of the journal that hold */
    const struct fwd_media *media; /* NULL: text */
    float *logits;                 /* [cap][n_vocab] of every position done */
    int32_t cap;
};

/* n next tokens of seqs[seq]. The last `guess` may be taken back: `good` of them are its tokens and
 * hold, the others are other tokens, and the next chunk begins at the first of these. */
struct fwd_chunk {
    int32_t seq, n, guess, good;
};

t9_status fwd_open(struct fwd *f, const char *path, const struct fwd_params *p, struct t9_err *err);
void fwd_close(struct fwd *f); /* accepts a zeroed one */

/* `tokens` is borrowed; room for `cap` tokens' logits. */
t9_status fwd_seq_init(struct fwd *f, struct fwd_seq *s, const int32_t *tokens, int32_t n,
                       int32_t cap, struct t9_err *err);
void fwd_seq_deinit(struct fwd *f, struct fwd_seq *s);

/* One batch of the given chunks (ascending seq), recorded and run as one tape. */
t9_status fwd_step(struct fwd *f, struct fwd_seq *seqs, const struct fwd_chunk *chunks,
                   int32_t n_chunks, struct t9_err *err);
/* The rest of one sequence, `chunk` tokens at a time. */
t9_status fwd_run(struct fwd *f, struct fwd_seq *s, int32_t chunk, struct t9_err *err);
/* Logits of one position. */
const float *fwd_logits(const struct fwd *f, const struct fwd_seq *s, int32_t pos);
/* The position's largest logit; ties go to the lower id. */
int32_t fwd_argmax(const float *logits, int32_t n);

#endif
