/*
 * protocol/run.h - one client request from its body to its last event, for any protocol: parse,
 * prepare, submit one request of the library for each choice, read, cancel.
 *
 * Threads: chat_run_start on a prep thread; then chat_run_next and the writers on one thread at a
 * time; chat_run_cancel and chat_run_notified on any. The caller's locks give the order between
 * them.
 */
#ifndef T9_PROTOCOL_RUN_H
#define T9_PROTOCOL_RUN_H

#include "protocol/adapter.h"
#include "protocol/prep.h"

#include <stdatomic.h>

struct chat_run;

struct chat_run_hooks {
    /* Called on the engine thread or within start when something is new: must not block, allocate
     * or take a lock. Answer it with chat_run_notified on another thread. */
    void (*wake)(void *ctx);
    void *ctx;
    const atomic_bool *gone; /* nobody waits any more; looked at between the stages of start */
};

t9_status chat_run_new(struct chat_run **out, const struct prep *prep,
                       const struct chat_adapter *adapter, struct chat_run_hooks hooks,
                       const struct chat_caller *caller, struct t9_err *err);
/* NULL allowed. Only when never started, or when start failed, or after chat_run_notified said
 * true. */
void chat_run_free(struct chat_run *run);

/* Parses, renders, tokenises and submits; an adapter that needs no engine answers here. CANCELLED
 * when `gone` was set. When the engine takes some of the choices only, that is told as the run's
 * first event. */
t9_status chat_run_start(struct chat_run *run, str body, struct chat_error *err);
/* Any thread, also while start runs: whether the client asked for a stream; false until parsed. */
bool chat_run_is_stream(const struct chat_run *run);
/* The wake hook was called. Returns true, once, when the engine will not touch the run any more and
 * no further wake is under way: its share of the run is given back. */
bool chat_run_notified(struct chat_run *run);
/* Any thread, after a start that succeeded and before the run is freed. */
void chat_run_cancel(struct chat_run *run);

/* Next event for the reader; NONE when there is nothing yet, or after END or ERROR. */
struct chat_event chat_run_next(struct chat_run *run);
/* Whether the run wants to be read at every token, not only at the end (stop strings). */
bool chat_run_wants_tokens(const struct chat_run *run);
/* Whether the engine has finished with it: its last events can be read. */
bool chat_run_is_over(const struct chat_run *run);

/* Whether it has a time limit for the queue and is still in it: the outcome of that is worth
 * waiting for before a stream's status goes out. */
bool chat_run_in_timed_queue(const struct chat_run *run);
/* Whether it failed without a token: its error can be told as the reply's status. */
bool chat_run_failed_early(const struct chat_run *run);

/* Formats an event of a stream. */
void chat_run_write(const struct chat_run *run, const struct chat_event *ev, struct buf *out);
/* Formats the whole reply of a run that is not a stream, once its END was read. */
void chat_run_write_whole(const struct chat_run *run, const struct chat_event *end,
                          struct buf *out);

/* Phase clocks for the access log; zeroes before the start. */
struct chat_run_times {
    int32_t n_prompt, n_cached, n_completion;
    struct chat_timings timings;
    const char *finish; /* "stop", "length", "cancelled", "error" or "none" */
};
struct chat_run_times chat_run_times(const struct chat_run *run);
/* Bytes of the reply have gone out; the first of them counts. */
void chat_run_mark_byte(struct chat_run *run, uint64_t now_ns);

#endif
