/*
 * protocol/run_impl.h - private to run.c and run_read.c: a run and its choices.
 */
#ifndef T9_PROTOCOL_RUN_IMPL_H
#define T9_PROTOCOL_RUN_IMPL_H

#include "protocol/pull.h"
#include "protocol/run.h"
#include "protocol/tools/answer.h"

#include <stdatomic.h>

/* A whole answer, while it is read. */
struct run_whole {
    struct buf text, reasoning, args; /* what the parts have, one kind each, in their order */
    struct buf parts;                 /* struct run_part */
    int32_t n_lead_tokens;            /* before the first part */
};
struct run_part {
    chat_event_kind kind; /* TEXT, REASONING, CALL */
    bool complete;
    size_t n_bytes;    /* of its text */
    int32_t n_tokens;  /* where details of tokens are wanted */
    str name, call_id; /* CALL */
};

/* One answer: a request of the library and what has been read of it. */
struct run_choice {
    struct chat_run *run;
    int32_t index, prompt;
    int32_t max_tokens;
    /* NULL until the engine took it. Its first wake may come before that is known here, and tells
     * it, too. */
    _Atomic(t9_request *) request;

    /* the reader's */
    struct t9_event ev; /* the newest one, where has_ev: not told to the client yet */
    bool has_ev;
    int32_t at;     /* tokens that events brought */
    int32_t n_told; /* of them, told to the client with their text, where details are wanted */
    const uint32_t *starts;       /* of the first `at` tokens, where details are wanted */
    struct buf echo;              /* the prompt's text */
    struct buf echo_starts;       /* uint32_t of each of its tokens, in characters */
    struct run_whole *whole;      /* NULL of a stream */
    struct answer_parser *parser; /* from the first text on; NULL where the text is all content */
    str call_id;                  /* of the newest call */
    struct chat_part call;        /* the newest one that is over, where choices are kept */
    uint32_t n_echo;              /* characters of the echo */
    uint32_t n_told_text;         /* characters of the answer that were told */
    bool begun, echoed, over;
    int32_t n_reasoning; /* tokens */
    bool stopped;        /* by a stop string */
    bool satisfied;      /* by its first call, where one is wanted */
    bool parsed;         /* all text has gone through the parser */
    t9_finish finish;    /* once DONE or ERROR was read, as the next */
    int32_t stop_token, stop;
};

struct chat_run {
    const struct prep *prep;
    const struct chat_adapter *adapter;
    struct chat_run_hooks hooks;
    struct chat_caller caller;

    struct chat_request request;
    struct chat_reply reply;
    const struct dialect *dialect; /* answers are read by it; NULL: they are all content */
    struct answer_tool *tools;     /* those that may be called; names and schemas are the body's */
    size_t n_tools;
    struct prep_ids *prompts; /* [n_prompts] */
    size_t n_prompts;
    struct run_choice *choices; /* [n_choices], those of a prompt side by side */
    size_t n_choices;
    struct buf answer;        /* of an adapter without engine */
    struct chat_choice *done; /* [n_choices], once all are complete and were asked for */
    struct pull *pull;        /* what is fetched instead of computed, or NULL */
    int64_t queue_timeout_ms;
    uint64_t parsed_ns; /* when all was ready to be submitted */
    _Atomic uint64_t first_byte_ns;

    atomic_bool is_stream;
    atomic_bool submitted;     /* choices are constant from here on; at least one was taken */
    atomic_bool submit_failed; /* release-stored after submit_error */
    struct chat_error submit_error;
    atomic_uint n_posted; /* wakes made */
    atomic_uint n_ended;  /* choices that the engine has let go of or never had */
    atomic_uint n_parts;  /* choices, or 1 for an answer without engine */
    unsigned n_taken;     /* wakes answered; notifier */

    /* the reader's */
    size_t turn; /* choice that is looked at first */
    bool over;
};

/* What a client wants to know of tokens beside their text. */
static inline bool run_wants_details(const struct chat_run *run)
{
    return run->request.logprobs || run->request.token_ids || run->adapter->counts_tokens;
}

void run_whole_free(struct run_whole *w); /* NULL allowed */
/* See `part` of struct chat_reply. */
bool run_part_at(const void *run, size_t i, struct chat_part *out);
void run_done_free(struct chat_run *run);

#endif
