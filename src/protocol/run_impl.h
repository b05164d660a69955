/*
 * protocol/run_impl.h - private to run.c and run_read.c: a run and its choices.
 */
#ifndef T9_PROTOCOL_RUN_IMPL_H
#define T9_PROTOCOL_RUN_IMPL_H

#include "protocol/run.h"
#include "tokenizer/stop.h"

/* One answer: an engine request and what has been read of it. */
struct run_choice {
    struct chat_run *run;
    int32_t index, prompt;
    struct request *request; /* NULL until it was made */

    /* the reader's */
    struct event_cursor cursor;
    int32_t at, end; /* tokens of the log: turned into text, known to be there */
    int32_t n_told; /* of them, told to the client with their text; kept where details are wanted */
    struct detok detok;
    struct stop_matcher stop;
    struct buf text;      /* of the next event */
    struct buf starts;    /* uint32_t of each token that was turned into text, in characters */
    struct buf echo;      /* the prompt's text */
    struct buf whole;     /* all text, when the reply is not a stream */
    uint32_t n_pushed;    /* characters that the tokens before `at` have */
    uint32_t n_echo;      /* characters of the echo */
    uint32_t n_told_text; /* characters that were told */
    struct buf echo_starts;
    bool begun, echoed, stop_hit, flushed, over;
    struct event last; /* DONE or ERROR once seen */
};

struct chat_run {
    const struct prep *prep;
    const struct chat_adapter *adapter;
    struct chat_run_hooks hooks;
    struct chat_caller caller;

    struct chat_request request;
    struct chat_reply reply;
    struct tok_ids *prompts; /* [n_prompts] */
    size_t n_prompts;
    struct run_choice *choices; /* [n_choices], those of a prompt side by side */
    size_t n_choices;
    struct buf answer; /* of an adapter without engine */

    atomic_bool is_stream;
    atomic_bool submitted;     /* choices are constant from here on; at least one was taken */
    atomic_bool submit_failed; /* release-stored after submit_error */
    struct chat_error submit_error;
    atomic_uint n_posted; /* wakes made */
    atomic_uint n_ended;  /* choices that the engine has let go of or never had */
    atomic_uint n_parts;  /* choices, or 1 for an answer without engine */
    unsigned n_taken;     /* wakes answered; notifier */

    /* the reader's */
    struct buf piece;
    size_t turn; /* choice that is looked at first */
    bool over;
};

/* What a client wants to know of tokens beside their text. */
static inline bool run_wants_details(const struct chat_run *run)
{
    return run->request.logprobs || run->request.token_ids;
}

#endif
