/*
 * engine/request.h - THE internal request and event types (decisions D14, D15): tokens, sampling
 * and limits; no JSON, no protocol name, no socket.
 *
 * Life: a caller allocates a request (request_new), fills the plain fields, submits it
 * (engine_submit); from then on the engine owns the fields marked [engine] until the DONE or ERROR
 * event was seen; then the caller frees it. The token log has one writer (the engine, release-store
 * of the count) and any number of readers.
 */
#ifndef T9_ENGINE_REQUEST_H
#define T9_ENGINE_REQUEST_H

#include "base/err.h"
#include "sample/sample.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REQUEST_MARKS_MAX = 16, REQUEST_STOP_TOKENS_MAX = 128 };

typedef enum req_state {
    REQ_STATE_WAITING, /* in the queue */
    REQ_STATE_PREFIX,  /* another request is computing my prefix */
    REQ_STATE_RESTORE, /* pages come back from disk */
    REQ_STATE_MEDIA,   /* images are being encoded */
    REQ_STATE_GRAMMAR, /* the grammar is being compiled */
    REQ_STATE_RUNNING,
    REQ_STATE_PREEMPTED,
    REQ_STATE_DONE,
} req_state;

typedef enum finish_reason {
    FINISH_REASON_NONE,
    FINISH_REASON_STOP,      /* end-of-generation token (not in the log) */
    FINISH_REASON_LENGTH,    /* max_tokens or the context limit */
    FINISH_REASON_CANCELLED, /* cancel flag */
    FINISH_REASON_ERROR,     /* see request_error */
} finish_reason;

/* Phase clocks (decision D16), monotonic ns, 0 = not reached. `admitted` is the start of the first
 * row of its own: time spent waiting for another request to compute the same prefix lies before. */
struct req_clocks {
    _Atomic uint64_t received, parsed, queued, admitted, restored, prefilled, first_token,
        first_byte, last_token, last_byte;
    /* Durations in ns, sums: in state PREFIX, and in state PREEMPTED. */
    _Atomic uint64_t prefix_ns, preempted_ns;
};

typedef enum mark_kind {
    MARK_KIND_HEAD, /* the end of system text and tools */
    MARK_KIND_TURN, /* the begin of a turn, or the end of the last one */
} mark_kind;

struct request_mark {
    int32_t n_tokens; /* of the prompt before it */
    mark_kind kind;
};

struct request {
    /* ---- set by the caller before submit, then constant ---- */
    const int32_t *prompt; /* [n_prompt], owned by the caller */
    int32_t n_prompt;
    int32_t max_tokens; /* > 0: tokens to generate at most */
    struct sample_params sampling;
    uint32_t choice; /* index among n choices of one protocol request */
    /* No token is picked: it ends with FINISH_REASON_LENGTH once its prompt is computed, which may
     * then fill the whole limit. max_tokens is 1. */
    bool prompt_only;
    bool ignore_eos; /* end-of-generation tokens are ordinary tokens */
    /* So many tokens are generated before one may end the answer: end-of-generation tokens (but
     * with ignore_eos) and stop_tokens are not picked until then. */
    int32_t min_tokens;
    /* Further tokens that end the answer with FINISH_REASON_STOP, [n_stop_tokens], at most
     * REQUEST_STOP_TOKENS_MAX; owned by the caller. */
    const int32_t *stop_tokens;
    int32_t n_stop_tokens;
    int32_t priority; /* higher first; 0 is normal */
    /* Who asks, as an opaque hash; requests of one key share max_running_per_key. 0 = nobody. */
    uint64_t client_key;
    /* Monotonic ns: still waiting for its first row then, it ends with an error (AGAIN). 0 = none.
     */
    uint64_t deadline_ns;
    /* The first n_pin_tokens of the prompt (whole pages) are evicted last until pin_until_ns. */
    int32_t n_pin_tokens;
    uint64_t pin_until_ns;
    /* Places in the prompt where other prompts are likely to part from it, ascending. */
    struct request_mark marks[REQUEST_MARKS_MAX];
    int32_t n_marks;
    /* Called by the engine thread when something new can be read. Must not block, allocate or take
     * a lock: post `req` to a ring. May be NULL (then use engine_wait). Calls may be coalesced by
     * `notified`, but for the one after `finish` was stored: that one is always made, and it is the
     * last time that the engine touches the request, so the reader may free it from then on. Inside
     * the call, finish != FINISH_REASON_NONE tells that it is that one. Without a notify function
     * the store of `finish` is the last touch. */
    void (*notify)(void *ctx, struct request *req);
    void *notify_ctx;

    /* ---- any thread may set ---- */
    atomic_bool cancel; /* looked at in every step */

    /* ---- written by the engine, readable by any thread ---- */
    _Atomic int32_t state;       /* req_state */
    _Atomic int32_t n_prefilled; /* prompt tokens computed or reused so far */
    /* Prompt tokens that were not computed for this request: taken from finished, running or just
     * now computing requests, at most n_prompt - 1. Final once `admitted` is set; a preemption does
     * not change it. */
    _Atomic int32_t n_cached;
    _Atomic int32_t n_preempted; /* times that it had to give its pages back */
    _Atomic int32_t n_tokens;    /* tokens in the log; release-stored after the token */
    _Atomic int32_t finish;      /* finish_reason; release-stored last: then all else is final */
    struct req_clocks clocks;
    int32_t *tokens; /* the token log, [max_tokens] */
    /* Log probabilities, NULL unless request_want_logprobs was called: for each token of the log,
     * [max_tokens][1 + n_top], written before n_tokens; for each token of the prompt but the first,
     * [n_prompt][1 + n_top], final when the first token is in the log or the request has ended.
     * Entry 0 of a row is the token itself, the others are the likeliest ones, falling. */
    struct t9_logprob *logprobs, *prompt_logprobs;
    int32_t n_top;
    int32_t stop_token;  /* the token that ended it with FINISH_REASON_STOP; else -1 */
    struct t9_err error; /* valid once finish == FINISH_REASON_ERROR */

    uint64_t id;          /* number of its submission, from 1; constant from then on */
    struct request *next; /* [engine] queue link */
    void *engine_private; /* [engine] sequence slot */
    uint64_t paused_ns;   /* [engine] when its state became PREFIX or PREEMPTED */
    int32_t n_lost;       /* [engine] tokens computed when it was preempted */
    int32_t n_scored;     /* [engine] rows of prompt_logprobs that are filled */
    /* A notification is pending: set by the engine; whoever takes it clears this, then reads. */
    atomic_bool notified;
};

/* Zeroed request with defaults, and a token log for max_tokens. NULL-safe free. The prompt is not
 * owned. */
t9_status request_new(struct request **out, int32_t max_tokens, struct t9_err *err);
/* Before submit, once n_prompt is set: log probabilities are wanted, of each token of the answer
 * and of the n_top (0 .. SAMPLE_TOP_MAX) likeliest beside it; with `prompt` also of the prompt's
 * tokens, which then is computed anew whatever the cache has. They are those of the model: the
 * log-softmax of its row of logits before bias, penalties, temperature and filters. INVALID, NOMEM.
 */
t9_status request_want_logprobs(struct request *r, int32_t n_top, bool prompt, struct t9_err *err);
void request_free(struct request *r);

typedef enum event_kind {
    EVENT_NONE,     /* nothing new */
    EVENT_ADMITTED, /* {n_prompt, n_cached, seed} */
    EVENT_PROGRESS, /* {n_prefilled, n_prompt} */
    EVENT_TOKENS,   /* tokens[from .. to) of the log */
    EVENT_DONE,     /* reason */
    EVENT_ERROR,    /* error */
} event_kind;

struct event {
    event_kind kind;
    int32_t n_prompt, n_cached, n_prefilled;
    int32_t from, to;
    uint64_t seed;
    finish_reason reason;
    struct t9_err error;
};

/* A reader's place in a request's events. Zero-initialise. */
struct event_cursor {
    bool admitted, ended;
    int32_t n_prefilled, n_tokens;
};
/* Next event for this reader, never blocks. After DONE or ERROR always EVENT_NONE. Tokens come
 * before DONE. Slow readers get several tokens in one event. */
struct event request_next(struct request *r, struct event_cursor *c);

const char *finish_reason_name(finish_reason r);
const char *req_state_name(req_state s);

#endif
