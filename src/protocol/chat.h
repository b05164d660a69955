/*
 * protocol/chat.h - what every chat protocol is turned into before anything else happens, and what
 * comes back (decision D15): messages and options in, text events out.
 *
 * A `struct chat_request` owns the parsed body and two arenas with a hard cap: what is needed until
 * the request is submitted, and what the reply still tells of. All views in it point into these. It
 * is made by one thread and then handed on, never shared. It knows neither HTTP nor tokens.
 */
#ifndef T9_PROTOCOL_CHAT_H
#define T9_PROTOCOL_CHAT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "tempo9.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHAT_MESSAGES_MAX = T9_MESSAGES_MAX,
    CHAT_STOPS_MAX = T9_STOPS_MAX,
    CHAT_STOP_BYTES_MAX = T9_STOP_BYTES_MAX,
    CHAT_WARNINGS_MAX = 32,
    CHAT_PRIORITY_MAX = 100, /* and -100 */
    CHAT_QUEUE_TIMEOUT_MAX_MS = 86400000,
    CHAT_CHOICES_MAX = 128, /* answers of one request: prompts times n */
    CHAT_DOCS_MAX = 4,
};

/* An error as an API tells it: the status, the parameter at fault and a short code. */
struct chat_error {
    struct t9_err err;
    char param[64];         /* "" when no single parameter is at fault */
    const char *code;       /* static text, NULL when there is none */
    int http_status;        /* 0: the one of err.code */
    const char *request_id; /* the transport's, where a body tells it; NULL: it does not */
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
    uint64_t client_key;  /* of struct t9_request_params; 0 = nobody */
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

/* A call of a tool that an assistant made earlier. */
struct chat_call {
    str id; /* empty when absent */
    str name;
    str args; /* JSON text as it was; "" when there are none */
};

struct chat_message {
    chat_role role;
    str content;      /* text parts joined by a line feed */
    bool has_content; /* false: null or absent, which only assistants may do */
    str name;         /* empty when absent, as the next two */
    str tool_call_id;
    str reasoning;
    const struct chat_call *calls; /* in the request's arena, of an assistant */
    size_t n_calls;
};

/* A tool that the model may call. */
struct chat_tool {
    str name;
    str description;    /* empty when absent */
    yyjson_val *schema; /* of its arguments, an object; NULL: none was given */
};

/* Up to where a client wants the prompt kept in the cache, by its last mark: `ms` 0: no mark. After
 * the first n_tools tools, where n_messages is 0; else after content_bytes of the content of
 * message n_messages - 1, or with CHAT_PIN_ALL after all of that message. */
struct chat_pin {
    int64_t ms;
    size_t n_tools, n_messages, content_bytes;
};
#define CHAT_PIN_ALL ((size_t)-1)

/* A prompt that is taken as it is: text, or tokens where `tokens` is set. */
struct chat_prompt {
    str text;
    const int32_t *tokens;
    size_t n_tokens;
};

struct store;

/* Where and for whom a reply may be stored. */
struct chat_keeping {
    struct store *store; /* NULL: nowhere */
    uint64_t owner;      /* only this one may have it back; 0: nobody has a name */
    str reply_id;        /* as long as the run lives */
};

struct chat_request {
    struct arena arena; /* goes with the body: see chat_request_drop_input */
    yyjson_doc *doc;    /* the body */
    struct arena kept;
    yyjson_doc *docs[CHAT_DOCS_MAX]; /* further ones that views point into */
    size_t n_docs;

    /* What the protocol calls the conversation and the limit of the answer, for messages. */
    const char *prompt_field, *limit_field;

    str model;       /* as the client wrote it; empty when absent */
    bool latest_tag; /* ":latest" at the end of a model's name says nothing */
    struct chat_message *messages;
    size_t n_messages;
    /* Those that the template is told of; the arena's. */
    struct chat_tool *tools;
    size_t n_tools;
    bool no_calls; /* tool_choice none: the model is told of no tools, and none is called */
    bool one_call; /* parallel_tool_calls false: the answer ends with its first call */
    yyjson_val *template_kwargs; /* object, or NULL */
    str reasoning_effort;        /* empty when absent */
    bool has_thinking, thinking; /* enable_thinking */
    /* What the client called these two, for messages. */
    const char *thinking_field, *effort_field;
    /* No warning where the template has no such switch: the client says no more than may be. */
    bool thinking_is_wish, effort_is_wish;
    struct chat_pin pin;

    /* Raw prompts instead of messages. */
    const struct chat_prompt *prompts;
    size_t n_prompts;
    bool has_suffix;
    str suffix;     /* the answer goes between prompt and suffix */
    bool echo;      /* the answer begins with the prompt */
    bool no_reply;  /* max_tokens 0: only the prompt is wanted */
    bool no_engine; /* there is nothing to compute: the adapter's `answer` has the reply */
    struct chat_prompt before; /* tokens in front of what the messages are laid out to */
    int64_t wanted_length; /* tokens of prompt and reply that the client counts on; 0: not said */

    /* Conversions between text and tokens. */
    bool add_special, no_parse_special, with_pieces, hide_special;

    bool verbose; /* a description has what is long, too */

    /* What each answer is submitted with; the parsers fill its sampling. */
    struct t9_request_params sampling;
    bool has_seed, seed_is_negative; /* a negative one stands for its 64 bits */
    int64_t max_tokens;              /* 0: the client named none */
    bool ignore_eos;
    int32_t n; /* answers to each prompt; at least 1 */
    int32_t min_tokens;
    int32_t *stop_tokens; /* in `kept`, at most T9_STOP_IDS_MAX */
    int32_t n_stop_tokens;
    bool logprobs;
    int32_t n_top; /* likeliest tokens beside each; only with logprobs */
    bool token_ids;
    str *stops; /* in `kept`, at most CHAT_STOPS_MAX */
    size_t n_stops;

    int32_t priority;         /* higher first */
    int64_t queue_timeout_ms; /* longest wait before it begins to compute; 0: no limit */

    bool stream, include_usage, timings;

    struct chat_keeping keeping; /* set before the body is parsed */

    void *extra; /* what the adapter's parser leaves to its writers, in `kept` */

    str *warnings; /* in `kept`, with room for CHAT_WARNINGS_MAX once there is one */
    size_t n_warnings;
    bool warning_lost; /* for want of memory */
};

/* Zeroes and sets the defaults; `arena_max_bytes` bounds what the request may own beside the body.
 */
void chat_request_init(struct chat_request *r, size_t arena_max_bytes);
void chat_request_deinit(struct chat_request *r); /* accepts a zeroed one */
/* Frees the body and what was made of it, once the request was submitted: it may wait for long.
 * Numbers, switches, stop_tokens and warnings stay; views are empty from here on. */
void chat_request_drop_input(struct chat_request *r);
/* The root of another JSON text, which lives as long as the body. */
t9_status chat_request_parse_more(struct chat_request *r, str text, yyjson_val **root,
                                  struct chat_error *err);
/* Adds a line to the reply's `warnings`, unless it is there already. When the list is full its last
 * entry says that there are more. Never fails: without memory the line is left out, and
 * `warning_lost` says so. */
void chat_warn(struct chat_request *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A value in an error message: strings quoted and cut, numbers as they are, the rest by kind. */
const char *chat_brief(yyjson_val *v, char out[80]);

struct chat_usage {
    int32_t n_prompt, n_cached, n_completion;
    int32_t n_reasoning; /* of the completion, where the adapter counts tokens */
};

/* Phases of one request in milliseconds; a phase that was not reached is 0. With several choices:
 * of the first one. */
struct chat_timings {
    double parse_ms;       /* received to submitted: parsing, rendering, tokenising */
    double queue_ms;       /* in the queue, without the next one */
    double prefix_wait_ms; /* waiting for another request to compute the same beginning */
    double prefill_ms;     /* first row to first token */
    double decode_ms;      /* first to last token */
    double preempted_ms;   /* of the two above: its pages had been taken */
    double first_token_ms, first_byte_ms, last_token_ms; /* since received, as the next */
    double total_ms;                                     /* until it was asked for */
    int32_t n_preempted;
    double prompt_per_s, decode_per_s; /* tokens */
};

/* Some tokens of one choice, in order. */
struct chat_tokens {
    const int32_t *ids;
    int32_t n;
    /* [n][1 + n_top], as in struct t9_event; NULL: not wanted. Of a prompt, the first row says
     * nothing. */
    const struct t9_logprob *logprobs;
    int32_t n_top;
    /* [n] where each begins, in characters; the text that they count from begins at starts_at of
     * the choice's text. */
    const uint32_t *starts;
    uint32_t starts_at;
    bool is_prompt;
};

typedef enum chat_event_kind {
    CHAT_EVENT_NONE,      /* nothing new yet, or all was said */
    CHAT_EVENT_BEGIN,     /* a choice begins */
    CHAT_EVENT_TEXT,      /* more text of a choice, whole characters */
    CHAT_EVENT_REASONING, /* more of its reasoning */
    CHAT_EVENT_CALL,      /* it calls a tool: the name is certain */
    CHAT_EVENT_ARGS,      /* more of that call's arguments, JSON text */
    CHAT_EVENT_CALL_END,  /* that call is over */
    CHAT_EVENT_FINISH,    /* a choice is complete */
    CHAT_EVENT_PROGRESS,  /* of a model that is fetched */
    CHAT_EVENT_END,       /* all are: usage, timings */
    CHAT_EVENT_ERROR,     /* the answer broke off */
} chat_event_kind;

struct chat_part;

struct chat_event {
    chat_event_kind kind;
    int32_t choice; /* all but END */
    str text; /* TEXT, REASONING, ARGS; CALL: the tool's name; PROGRESS: of which file. Valid until
                 the next event is asked for */
    uint64_t total_bytes, done_bytes; /* PROGRESS */
    int32_t call;                     /* CALL, ARGS, CALL_END: 0, 1, 2 ... of the choice */
    str call_id;                      /* the same; as long as the run lives */
    bool call_complete;               /* CALL_END: the model wrote all of it */
    /* CALL_END, where the adapter keeps choices: the whole call, as long as `text` is. */
    const struct chat_part *whole_call;
    bool has_calls; /* FINISH: it ended with complete calls, which are the client's to answer */
    /* TEXT, REASONING, CALL and ARGS, where details of tokens are wanted: those of this text and of
     * what came before it and is no text. */
    struct chat_tokens tokens;
    t9_finish finish;        /* FINISH: STOP or LENGTH */
    int32_t stop_token;      /* FINISH: the one of stop_tokens that ended it, else -1 */
    int32_t stop;            /* FINISH: the one of stops that did, else -1 */
    bool is_last;            /* FINISH: the others are complete */
    struct chat_usage usage; /* END and the last FINISH, as timings; BEGIN: see the adapter */
    struct chat_timings timings;
    struct chat_error error; /* ERROR */
    /* END, where the adapter keeps them: as long as the run lives. */
    const struct chat_choice *choices;
    size_t n_choices;
};

/* Something that an answer is made of, in its order. */
struct chat_part {
    chat_event_kind kind; /* TEXT, REASONING or CALL */
    str text;             /* of a CALL its arguments */
    str name, call_id;    /* CALL */
    bool complete;        /* CALL */
    /* Where details of tokens are wanted: those of its text and of what came before it. */
    struct chat_tokens tokens;
};

/* A complete choice. */
struct chat_choice {
    str text;      /* all TEXT parts */
    str reasoning; /* all REASONING parts */
    const struct chat_part *parts;
    size_t n_parts;
    bool has_calls;                    /* as in FINISH */
    struct chat_tokens prompt, answer; /* where details of tokens are wanted */
    t9_finish finish;
    int32_t stop_token, stop; /* as in FINISH */
    int32_t end_token;        /* any one that ended it and is not part of it; -1: none */
};

/* What stays the same in all parts of one reply. */
struct chat_reply {
    char id[48];       /* "chatcmpl-..." */
    int64_t created_s; /* Unix time */
    str model;         /* the served model's name */
    const char *build; /* build id */
    uint64_t seed;     /* the one that was used */
    const struct chat_request *request;
    void *state; /* the adapter's; see its state_bytes */
    /* The bytes of a token, maybe no whole characters; empty for an unknown one. */
    str (*piece)(const void *ctx, int32_t id);
    const void *piece_ctx;
    /* Part number i of the first choice, as far as it is known, where the adapter keeps choices;
     * false: there is none. Valid until the next event is asked for. */
    bool (*part)(const void *ctx, size_t i, struct chat_part *out);
    const void *part_ctx;
    /* Tokens of the first prompt; for return_token_ids. */
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
};

#endif
