/*
 * tests/lib/scripted_engine.h - stands in for the engine behind engine/engine.h: no model, tokens
 * and delays by a script. It keeps the engine's promises about threads: one thread writes, notify
 * is coalesced but for the last call, and after that call the request is not touched.
 */
#ifndef T9_TESTS_LIB_SCRIPTED_ENGINE_H
#define T9_TESTS_LIB_SCRIPTED_ENGINE_H

#include "engine/engine.h"

enum { SCRIPTED_TEXTS = 64 };

struct engine_script {
    const int32_t *reply; /* tokens of every answer; NULL: the prompt's own tokens, echoed */
    int32_t n_reply;
    /* Instead: the answer to a request, chosen when it is submitted, one at a time; lives until the
     * next is. Its tokens are the return value's many. */
    int32_t (*answer)(void *ctx, const struct request *r, const int32_t **tokens);
    void *answer_ctx;
    int32_t queue_ms, prefill_ms, gap_ms; /* gap 0: as fast as can be */
    int32_t fail_at; /* after this many tokens the request ends with an error; -1 never */
    int32_t max_length, queue_cap;
    int32_t n_cached; /* told of every request, as far as its prompt allows */
    /* Instead: as many as its prompt has in common with the beginning of an earlier prompt and its
     * answer, of the newest SCRIPTED_TEXTS. */
    bool remembers;
    int32_t prefix_ms;   /* of queue_ms, spent in state PREFIX */
    int32_t n_preempted; /* told of every request, with 1 ms each */
    int32_t retry_after_s;
    /* A request writes a token, or ends, only while it has fewer than so many; NULL: as time goes.
     */
    const atomic_int *allowed;
    const char *invalid; /* every request is refused as INVALID, with this message; NULL: none */
    const struct engine_state *state; /* what engine_state_read gives; NULL: zeroes */
};

/* Echo, no delays, max_length 4096, queue_cap 1024. */
void engine_script_init(struct engine_script *s);
struct engine *scripted_engine_new(const struct engine_script *s);
/* Ends what runs as cancelled, joins, frees. */
void scripted_engine_free(struct engine *e);
/* Requests submitted and not yet ended. */
int scripted_engine_live(struct engine *e);
int scripted_engine_cancels(struct engine *e);
/* Monotonic ns of the newest engine_cancel; 0: none yet. */
uint64_t scripted_engine_cancel_ns(struct engine *e);
/* Copies the prompt of the newest request (out NULL: does not); returns its tokens. */
int32_t scripted_engine_prompt(struct engine *e, int32_t *out, int32_t cap);
/* priority, client_key and deadline_ns of the newest request. */
void scripted_engine_queueing(struct engine *e, int32_t *priority, uint64_t *client_key,
                              uint64_t *deadline_ns);
/* Sampling parameters and max_tokens of the newest request. */
struct sample_params scripted_engine_sampling(struct engine *e, int32_t *max_tokens);

#endif
