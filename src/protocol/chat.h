/*
 * protocol/chat.h - what every chat protocol is turned into before anything else happens, and what
 * comes back (decision D15): messages and options in, text events out.
 *
 * A `struct chat_request` owns the parsed body and an arena with a hard cap; all views in it point
 * into these two. It is made by one thread and then handed on, never shared. It knows neither HTTP
 * nor tokens.
 */
#ifndef T9_PROTOCOL_CHAT_H
#define T9_PROTOCOL_CHAT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/request.h"
#include "sample/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHAT_MESSAGES_MAX = 65536,
    CHAT_STOPS_MAX = 16,
    CHAT_STOP_BYTES_MAX = 256,
    CHAT_WARNINGS_MAX = 32,
    CHAT_PRIORITY_MAX = 100, /* and -100 */
    CHAT_QUEUE_TIMEOUT_MAX_MS = 86400000,
};

/* An error as an API tells it: the status, the parameter at fault and a short code. */
struct chat_error {
    struct t9_err err;
    char param[64];   /* "" when no single parameter is at fault */
    const char *code; /* static text, NULL when there is none */
    int http_status;  /* 0: the one of err.code */
};

/* Writes everything at once and returns `status`. `param` and `code` may be NULL. */
t9_status chat_fail(struct chat_error *e, t9_status status, const char *param, const char *code,
                    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* 429: this caller has too much under way, while others may still ask. Returns BUSY. */
t9_status chat_fail_limit(struct chat_error *e, const char *msg);
/* The HTTP status that tells of it. */
int chat_error_http(const struct chat_error *e);

/* Who asks and what the transport says about the request, beside its body. */
struct chat_caller {
    uint64_t received_ns; /* when the request's head arrived */
    uint64_t client_key;  /* see struct request; 0 = nobody */
    /* Said outside of the body: these win over the body's fields. */
    bool has_priority;
    int32_t priority;
    int64_t queue_timeout_ms; /* 0: not said */
};

typedef enum chat_role {
    CHAT_ROLE_SYSTEM,
    CHAT_ROLE_USER,
    CHAT_ROLE_ASSISTANT,
    CHAT_ROLE_TOOL,
} chat_role;

const char *chat_role_name(chat_role r);

struct chat_message {
    chat_role role;
    str content;      /* text parts joined by a line feed */
    bool has_content; /* false: null or absent, which only assistants may do */
    str name;         /* empty when absent, as the next two */
    str tool_call_id;
    str reasoning;
    yyjson_val *tool_calls; /* OpenAI's array, or NULL */
};

struct chat_request {
    struct arena arena;
    yyjson_doc *doc; /* the body */

    str model; /* as the client wrote it; empty when absent */
    struct chat_message *messages;
    size_t n_messages;
    yyjson_val *tools;           /* array to render, or NULL */
    yyjson_val *template_kwargs; /* object, or NULL */

    struct sample_params sampling;
    bool has_seed;
    int64_t max_tokens; /* 0: the client named none */
    bool ignore_eos;
    str stops[CHAT_STOPS_MAX];
    size_t n_stops;

    int32_t priority;         /* higher first */
    int64_t queue_timeout_ms; /* longest wait before it begins to compute; 0: no limit */

    bool stream, include_usage, timings;

    str warnings[CHAT_WARNINGS_MAX];
    size_t n_warnings;
};

/* Zeroes and sets the defaults; `arena_max_bytes` bounds what the request may own beside the body.
 */
void chat_request_init(struct chat_request *r, size_t arena_max_bytes);
void chat_request_deinit(struct chat_request *r); /* accepts a zeroed one */
/* Adds a line to the reply's `warnings`. When the list is full its last entry says that there are
 * more. Never fails: without memory the line is left out. */
void chat_warn(struct chat_request *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A value in an error message: strings quoted and cut, numbers as they are, the rest by kind. */
const char *chat_brief(yyjson_val *v, char out[80]);

struct chat_usage {
    int32_t n_prompt, n_cached, n_completion;
};

/* Phases of one request in milliseconds; a phase that was not reached is 0. */
struct chat_timings {
    double parse_ms;       /* received to submitted: parsing, rendering, tokenising */
    double queue_ms;       /* in the queue, without the next one */
    double prefix_wait_ms; /* waiting for another request to compute the same beginning */
    double prefill_ms;     /* first row to first token */
    double decode_ms;      /* first to last token */
    double preempted_ms;   /* of the two above: its pages had been taken */
    double first_token_ms, first_byte_ms, last_token_ms; /* since received */
    int32_t n_preempted;
    double prompt_per_s, decode_per_s; /* tokens */
};

typedef enum chat_event_kind {
    CHAT_EVENT_NONE,  /* nothing new yet, or all was said */
    CHAT_EVENT_BEGIN, /* the answer begins */
    CHAT_EVENT_TEXT,  /* more text, whole characters */
    CHAT_EVENT_END,   /* finish, usage, timings */
    CHAT_EVENT_ERROR, /* the answer broke off */
} chat_event_kind;

struct chat_event {
    chat_event_kind kind;
    str text;             /* TEXT; valid until the next event is asked for */
    finish_reason finish; /* END: STOP or LENGTH */
    struct chat_usage usage;
    struct chat_timings timings;
    struct chat_error error; /* ERROR */
};

/* What stays the same in all parts of one reply. */
struct chat_reply {
    char id[48];       /* "chatcmpl-..." */
    int64_t created_s; /* Unix time */
    str model;         /* the served model's name */
    const char *build; /* build id */
    uint64_t seed;     /* the one that was used */
    const struct chat_request *request;
};

#endif
