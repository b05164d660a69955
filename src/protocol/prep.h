/*
 * protocol/prep.h - from a request of a client to the tokens of a prompt, over the library: what
 * the request says of names, ids, limits and switches is checked here and told in the client's
 * terms; layout, provenance and tokens are the library's (tempo9.h).
 *
 * A `struct prep` is immutable after prep_new; any number of threads may use it.
 */
#ifndef T9_PROTOCOL_PREP_H
#define T9_PROTOCOL_PREP_H

#include "protocol/chat.h"
#include "protocol/tools/dialect.h"
#include "tempo9.h"

struct prep;

struct pull_hook;

struct prep_params {
    const t9_model *model;
    t9_engine *engine; /* over the model: for its limits and to submit to; NULL: render only */
    const char *model_name;
    const char *const *aliases; /* further names it answers to */
    size_t n_aliases;
    bool any_model;         /* answers to every name, with a warning */
    bool strict;            /* unknown fields are refused */
    const char *build_id;   /* system_fingerprint */
    int64_t now_unix_s;     /* what templates see as now; 0: the clock */
    int64_t model_time_s;   /* when its file was last written, since 1970 */
    struct store *store;    /* replies may be stored there; NULL: nothing is */
    struct pull_hook *pull; /* fetches models that clients name; NULL: that is not allowed */
    int32_t queue_cap;      /* requests that the engine lets wait; 0: CHAT_CHOICES_MAX and more */
    /* What holds where a request says nothing; the seed is not used. With top_p 0: the plain
     * defaults. */
    struct t9_request_params sampling;
};

/* Keeps the pointers in `p`, which outlive it. */
t9_status prep_new(struct prep **out, const struct prep_params *p, struct t9_err *err);
void prep_free(struct prep *p); /* NULL allowed */
const struct prep_params *prep_params_of(const struct prep *p);

/* What was found out about the model. */
struct prep_info {
    struct t9_model_info model;
    bool thinking_switch; /* its template looks at enable_thinking */
    bool effort_switch;   /* ... at reasoning_effort */
    bool fill_in_middle;  /* its vocabulary has tokens for a suffix */
    const struct dialect *dialect;
    /* Control tokens whose text the dialect must see. */
    int32_t shown_ids[T9_SHOWN_IDS_MAX];
    size_t n_shown_ids;
};
const struct prep_info *prep_info(const struct prep *p); /* as long as p lives */

/* What the engine counts; zeroes without one. Any thread. */
void prep_engine_stats(const struct prep *p, struct t9_stats *out);
/* What the engine is doing; zeroes without one. Any thread. */
void prep_engine_state(const struct prep *p, struct t9_state *out);
/* See t9_engine_retry_after_s; 1 without an engine. Any thread. */
int32_t prep_retry_after_s(const struct prep *p);

/* Tokens of a prompt: the library's, the request's own, or joined of several parts. */
struct prep_ids {
    const int32_t *p;
    size_t n;
    t9_ids made;
    struct buf joined;                  /* int32_t */
    bool reasoning_open;                /* of messages: the answer begins inside of reasoning */
    struct t9_mark marks[T9_MARKS_MAX]; /* of messages */
    size_t n_marks;
};
void prep_ids_deinit(struct prep_ids *ids); /* accepts a zeroed one */
void prep_ids_drop(struct prep_ids *ids);   /* frees the tokens, keeps what is known of them */

/* INVALID / NOT_FOUND when the request names another model; may add a warning. */
t9_status prep_check_model(const struct prep *p, struct chat_request *r, struct chat_error *err);
/* INVALID when logit_bias or stop_token_ids name tokens outside the vocabulary. */
t9_status prep_check_ids(const struct prep *p, const struct chat_request *r,
                         struct chat_error *err);
/* Warns of switches that the template does not have, and of tools that it does not know. */
void prep_note_switches(const struct prep *p, struct chat_request *r);
/* How the answer to a request is read: the model's dialect, or generic JSON where we had to tell
 * the model of the tools and its dialect does not read that. */
const struct dialect *prep_dialect(const struct prep *p, const struct chat_request *r);
/* Whether a prompt's last words open reasoning and don't close it. */
bool prep_opens_reasoning(const struct prep *p, const struct dialect *d, const int32_t *ids,
                          size_t n_ids);
/* The messages as the library takes them, a JSON array. */
void prep_write_messages(const struct chat_request *r, struct buf *out);
/* Lays out and tokenises into `out` (initialised here; freed by the caller with prep_ids_deinit
 * whatever comes back). */
t9_status prep_tokens(const struct prep *p, const struct chat_request *r, struct prep_ids *out,
                      struct chat_error *err);
/* The same for raw prompt number i, with all special tokens recognised; with its suffix in the
 * order that the vocabulary's fill-in-the-middle tokens ask for. Tokens are taken as they are: `r`
 * must outlive `out`. */
t9_status prep_prompt(const struct prep *p, const struct chat_request *r, size_t i,
                      struct prep_ids *out, struct chat_error *err);
/* Only lays out: appends the prompt's text. */
t9_status prep_render(const struct prep *p, const struct chat_request *r, struct buf *out,
                      struct chat_error *err);
/* Text to tokens as r's add_special and no_parse_special say; `out` as with prep_tokens. */
t9_status prep_tokenize(const struct prep *p, const struct chat_request *r, str text,
                        struct prep_ids *out, struct chat_error *err);
/* Tokens to text; INVALID for an id outside the vocabulary. */
t9_status prep_detokenize(const struct prep *p, const struct chat_prompt *tokens, bool special,
                          struct buf *out, struct chat_error *err);
/* Bytes of a token; empty for an unknown one. */
str prep_piece(const struct prep *p, int32_t id);
/* Tokens of one request, prompt and reply; 0 without an engine. */
int32_t prep_max_length(const struct prep *p);

#endif
