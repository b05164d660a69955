/*
 * tempo9.h - tempo9 as a library: load a model, turn text and conversations into tokens, and let an
 * engine answer many requests at once.
 *
 *     t9_model   a GGUF file: weights, vocabulary, chat template. Immutable once loaded.
 *     t9_engine  one thread that computes for all requests of one model, and its KV cache.
 *     t9_request one answer being made. You pull its events; nothing calls into your code.
 *
 *     struct t9_model_params mp;
 *     t9_model_params_init(&mp, sizeof mp);
 *     mp.path = "model.gguf";
 *     if (t9_model_load(&model, &mp, &err) != T9_STATUS_OK)
 *         fprintf(stderr, "%s\n", err.msg);
 *
 * What always holds
 * - A process may have any number of models and engines. They share nothing but the log
 * (t9_log_set). Each model has CPU workers of its own: two models that compute at once share the
 * machine's cores as their `threads` say.
 * - Nothing here ends the process, prints, or reads the environment. What fails returns a status,
 *   and a sentence in the caller's struct t9_err: what was wrong, where, and what to do about it.
 *   `err` may be NULL everywhere, and says OK and nothing after a success. On failure, out
 *   parameters are NULL or untouched.
 * - Strings that come in end with NUL, or have their length beside them when they may hold any
 * byte. They are copied: nothing needs to outlive the call unless it says so.
 * - Memory that comes out through a `t9_text` or `t9_ids` belongs to the caller (t9_text_free,
 *   t9_ids_free). Other pointers say how long they live.
 * - Structs begin with `struct_size`, which says how much of them the caller knows. Structs that go
 *   in are filled by their _init function, which sets it; of those that come out, set it yourself:
 *   `struct t9_stats s = {.struct_size = sizeof s};`. So a program runs with an older or newer
 *   library than the one it was compiled with: fields that the library does not know are refused
 *   (UNSUPPORTED) when they are not zero, and come out as zero.
 * - Threads: "any thread" functions may be called at the same time on the same object. "One thread
 *   at a time" ones need the caller's order on that object. _free functions accept NULL, and no
 * other call with that object may be under way.
 * - A child process after fork() may not use the parent's objects.
 *
 * Units are in the names: _bytes, _tokens, _ms, _ns (monotonic clock). n_x is a count.
 */
#ifndef TEMPO9_H
#define TEMPO9_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define T9_API __attribute__((visibility("default")))
#else
#    define T9_API
#endif

/* ---- versions, status, log ---- */

/* Of this header. Before 1.0 a new minor number may break programs, and the soname says so. */
#define TEMPO9_VERSION_MAJOR 0
#define TEMPO9_VERSION_MINOR 1
#define TEMPO9_VERSION_PATCH 0

/* Of the library, "0.1.0", and the commit that it was built from. Static text. Any thread. */
T9_API const char *t9_version(void);
T9_API const char *t9_build_id(void);

#ifndef T9_STATUS_DEFINED
#    define T9_STATUS_DEFINED
typedef enum t9_status {
    T9_STATUS_OK,
    T9_STATUS_AGAIN,       /* try again later; nothing was changed */
    T9_STATUS_BUSY,        /* a bounded queue or pool is full, or the engine is draining */
    T9_STATUS_INVALID,     /* the caller's argument or data is wrong */
    T9_STATUS_UNSUPPORTED, /* well-formed, but not something that is done here */
    T9_STATUS_TOO_LARGE,   /* over a stated limit */
    T9_STATUS_NOT_FOUND,
    T9_STATUS_FORBIDDEN,
    T9_STATUS_NOMEM,
    T9_STATUS_IO,        /* the system refused, or a file changed */
    T9_STATUS_CORRUPT,   /* a file is not what it claims to be */
    T9_STATUS_CANCELLED, /* as asked */
    T9_STATUS_INTERNAL,
    T9_STATUS_COUNT
} t9_status;

struct t9_err {
    t9_status code;
    char msg[240]; /* UTF-8, ends with NUL; cut when longer */
};
#endif
typedef struct t9_err t9_err;

/* "OK", "INVALID", ...; "?" for a value that the library does not know. Any thread. */
T9_API const char *t9_status_name(t9_status s);

typedef enum t9_log_level {
    T9_LOG_LEVEL_NONE = -1,
    T9_LOG_LEVEL_ERROR = 0,
    T9_LOG_LEVEL_WARN = 1,
    T9_LOG_LEVEL_INFO = 2,
    T9_LOG_LEVEL_DEBUG = 3,
} t9_log_level;

/* One line without a line feed, valid during the call; from any of the library's threads, the
 * engine's too: be quick, and don't call the library. Prompts and answers are never in it. */
typedef void (*t9_log_fn)(void *ctx, t9_log_level level, const char *module, const char *msg);
/* Sends what the library has to say, up to `level`, to `fn`. Silent before the first call, and with
 * fn NULL. The only setting of the whole process. One thread at a time; `ctx` lives until another
 * call has replaced it and no engine or load of the time before is running. */
T9_API void t9_log_set(t9_log_level level, t9_log_fn fn, void *ctx);

/* ---- memory that comes out ---- */

/* Bytes, with a NUL after them that n does not count. */
typedef struct t9_text {
    char *p;
    size_t n;
} t9_text;
typedef struct t9_ids {
    int32_t *p; /* token ids */
    size_t n;
} t9_ids;
/* Free and zero; accept zeroed ones. */
T9_API void t9_text_free(t9_text *text);
T9_API void t9_ids_free(t9_ids *ids);

/* ---- models ---- */

typedef struct t9_model t9_model;

struct t9_model_params {
    size_t struct_size;
    const char *path;    /* GGUF file; of a split model any part */
    const char *backend; /* NULL: "cpu". "ref" and "canon" are slow, for checking numbers */
    const char *isa;     /* NULL: the best of this machine; "avx512", "avx2", "scalar" */
    int32_t threads;     /* CPU workers; 0: all cores that the process may use */
    int32_t step_tokens; /* largest step of an engine over it (its step_tokens); 0: 256 */
    /* Only vocabulary and chat template: a moment, and no engine can be made. */
    bool vocab_only;
    /* Called on the calling thread as weights come in; false stops the load (CANCELLED). */
    bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_ctx;
};
/* What was found out about the chat template when the model was loaded. */
struct t9_template_info {
    bool present;         /* the file brings one */
    bool chatml_fallback; /* it brings none, but its vocabulary has the markers of ChatML */
    bool system;          /* takes a system message at the head */
    bool later_system;    /* takes one after the first turn */
    bool user_twice;      /* takes two user messages in a row */
};
/* What it does with tools, found out in the same way. */
struct t9_template_tools {
    bool tools;          /* tells the model of them */
    bool calls;          /* shows calls that an assistant made earlier */
    bool results;        /* shows messages of the role tool */
    bool arguments_text; /* arguments of calls must be JSON text, not an object */
    bool reasoning;      /* shows the reasoning of an assistant that called a tool */
};
/* Text lives as long as the model. */
struct t9_model_info {
    size_t struct_size;
    const char *file_name; /* last part of the path */
    const char *arch;      /* "llama", "qwen2"; "" with vocab_only, as the next two */
    const char *backend, *isa;
    const char *numerics; /* names the definition of the numbers: equal names, equal bits */
    int32_t threads;
    int32_t n_vocab, n_layers, n_embd; /* n_vocab counts the tokens that have a text */
    int32_t context_length;            /* tokens, as the file declares; 0 with vocab_only */
    uint64_t n_params, weight_bytes, file_bytes;
    uint64_t load_ns;
    int32_t bos, eos; /* token ids, -1: none */
    bool add_bos;     /* a prompt begins with bos */
    struct t9_template_info chat_template;
    /* Tokens around the parts of a text with a hole, in this order: prefix, its text, suffix, its
     * text, middle; the answer is what goes between. All three, or -1. */
    int32_t fim_prefix, fim_suffix, fim_middle;
    int32_t token_bytes_max; /* of the longest token */
    struct t9_template_tools template_tools;
};

/* Zeroes but for struct_size. struct_size: sizeof the caller's struct. */
T9_API void t9_model_params_init(struct t9_model_params *p, size_t struct_size);
/* Reads, checks and repacks the file; blocks. NOT_FOUND, IO, CORRUPT, UNSUPPORTED (an architecture,
 * type or tokenizer that is not known), TOO_LARGE, NOMEM, CANCELLED (by progress). Nothing of a
 * file is trusted. Any thread. */
T9_API t9_status t9_model_load(t9_model **out, const struct t9_model_params *p, t9_err *err);
/* The memory goes when the last engine over it has gone, too. */
T9_API void t9_model_free(t9_model *m);
/* INVALID for a wrong struct_size. Any thread. */
T9_API t9_status t9_model_info(const t9_model *m, struct t9_model_info *out);

/* Keys of the file's metadata, in its order. NULL beyond the end; lives as long as the model. */
T9_API size_t t9_model_n_keys(const t9_model *m);
T9_API const char *t9_model_key(const t9_model *m, size_t i);
/* A value as JSON text; of arrays and texts up to max_bytes, else TOO_LARGE. NOT_FOUND. Any thread.
 */
T9_API t9_status t9_model_metadata(const t9_model *m, const char *key, size_t max_bytes,
                                   t9_text *out, t9_err *err);

/* Whether the chat template mentions a variable by this name, such as "enable_thinking": a hint of
 * what it can use, no proof. Any thread. */
T9_API bool t9_template_mentions(const t9_model *m, const char *name);
/* The chat template's source, as long as the model lives; NULL and 0 where there is none. Any
 * thread. */
T9_API const char *t9_template_source(const t9_model *m, size_t *n_bytes);

/* ---- text and tokens: all by any thread ---- */

enum {
    T9_TOKENIZE_SPECIAL = 1,   /* <|im_start|> and the like become control tokens: never for text
                                  that a user wrote */
    T9_TOKENIZE_BOS = 2,       /* begins with bos where the model wants that */
    T9_TOKENIZE_EOS = 4,       /* ends with eos where the model wants that */
    T9_DETOKENIZE_SPECIAL = 1, /* control tokens show their text instead of nothing */
};

/* Bytes need not be UTF-8. NOMEM; TOO_LARGE beyond 8 Mi tokens. */
T9_API t9_status t9_tokenize(const t9_model *m, const char *text, size_t n_bytes, uint32_t flags,
                             t9_ids *out, t9_err *err);
/* The same with a limit: TOO_LARGE beyond max_tokens (0: 8 Mi), seen as early as it can be. */
T9_API t9_status t9_tokenize_upto(const t9_model *m, const char *text, size_t n_bytes,
                                  uint32_t flags, size_t max_tokens, t9_ids *out, t9_err *err);
/* Valid UTF-8: what is not becomes U+FFFD. INVALID names an id outside of the vocabulary. */
T9_API t9_status t9_detokenize(const t9_model *m, const int32_t *ids, size_t n, uint32_t flags,
                               t9_text *out, t9_err *err);
/* The bytes of one token (may be part of a character), as long as the model lives; NULL and 0 for
 * an id outside of the vocabulary. */
T9_API const char *t9_token_bytes(const t9_model *m, int32_t id, size_t *n_bytes);
/* The token with exactly these bytes, special ones first; -1: none. */
T9_API int32_t t9_token_find(const t9_model *m, const char *bytes, size_t n_bytes);
enum {
    T9_TOKEN_CONTROL = 1,
    T9_TOKEN_USER_DEFINED = 2,
    T9_TOKEN_ENDS = 4, /* an answer ends with it */
};
T9_API uint32_t t9_token_flags(const t9_model *m, int32_t id); /* T9_TOKEN_* */

/* Detokenises a stream: what comes out is whole characters, and all of it together is what
 * t9_detokenize gives. One thread at a time. */
typedef struct t9_detok t9_detok;
T9_API t9_status t9_detok_new(t9_detok **out, const t9_model *m, uint32_t flags, t9_err *err);
T9_API void t9_detok_free(t9_detok *d);
/* The text that these tokens complete, valid until the next call; NOMEM. With ids NULL the text
 * ends: an unfinished character comes out as U+FFFD, and another text may begin. */
T9_API t9_status t9_detok_push(t9_detok *d, const int32_t *ids, size_t n, const char **text,
                               size_t *n_bytes);

/* ---- conversations ---- */

enum { T9_MESSAGES_MAX = 65536, T9_CALLS_MAX = 512 /* of one message */ };
struct t9_chat_params {
    size_t struct_size;
    /* JSON array of messages: {"role": "system" | "developer" | "user" | "assistant" | "tool",
     * "content": text, or parts [{"type":"text","text":...}], or null for an assistant}, and where
     * it fits "name", "reasoning_content", "tool_calls", "tool_call_id". Arguments of calls are
     * written as the template wants them, and a result without a name gets that of its call. */
    const char *messages;
    size_t messages_bytes;
    const char *tools; /* JSON array that the template gets, or NULL */
    size_t tools_bytes;
    const char *kwargs; /* JSON object of further variables of the template, or NULL */
    size_t kwargs_bytes;
    int32_t max_tokens;        /* a longer prompt is given up (TOO_LARGE); 0: 8 Mi */
    bool no_generation_prompt; /* do not open an assistant's turn at the end */
    int64_t now_unix_s;        /* what templates see as now; 0: the clock */
    /* Prompt and answer together, of the engine that it is for (t9_engine_max_length): text that
     * can't fit is given up before it is tokenised (TOO_LARGE). 0: max_tokens. */
    int32_t max_length;
};
T9_API void t9_chat_params_init(struct t9_chat_params *p, size_t struct_size);
/* The conversation as the model's template lays it out: for reading and tests. Tokenising this text
 * is not the same as t9_chat_tokens: it no longer knows who wrote what. INVALID (JSON, or the
 * template refuses: the message says why), UNSUPPORTED (the model has no template), TOO_LARGE,
 * NOMEM. */
T9_API t9_status t9_chat_render(const t9_model *m, const struct t9_chat_params *p, t9_text *out,
                                t9_err *err);
/* The conversation as the tokens of a prompt. Control tokens come from the template alone: whatever
 * a message says, its text never becomes one. Errors as t9_chat_render; what the template can't
 * take is INVALID, so TOO_LARGE says that the prompt is too long. No tokens when the template makes
 * nothing of these messages, which no engine takes. */
T9_API t9_status t9_chat_tokens(const t9_model *m, const struct t9_chat_params *p, t9_ids *out,
                                t9_err *err);

/* Places in a prompt up to which other prompts are likely to be the same. A model with recurrent
 * layers goes on from cached text only where its state was kept, and there it is kept. */
enum { T9_MARKS_MAX = 16 };
typedef enum t9_mark_kind {
    T9_MARK_HEAD, /* the end of what comes before all turns: the system's text, tools */
    T9_MARK_TURN, /* the begin of a turn, or the end of the last one */
} t9_mark_kind;
struct t9_mark {
    int32_t n_tokens; /* of the prompt before it */
    int32_t kind;     /* t9_mark_kind */
};
/* As t9_chat_tokens, and the marks of the prompt for t9_request_params, ascending. None where the
 * template has no special tokens about turns. */
T9_API t9_status t9_chat_tokens_marked(const t9_model *m, const struct t9_chat_params *p,
                                       t9_ids *out, struct t9_mark marks[T9_MARKS_MAX],
                                       size_t *n_marks, t9_err *err);

/* ---- engines ---- */

typedef struct t9_engine t9_engine;
typedef struct t9_request t9_request;

/* A prompt that began like a cached text and left it at token `at`: some tokens of both from there
 * on, valid during the call. For finding out why a cache does not hit. */
struct t9_divergence {
    uint64_t request_id;
    int32_t at, n_cached, n_asked;
    const int32_t *cached, *asked;
};

struct t9_engine_params {
    size_t struct_size;
    t9_model *model;     /* at most one engine at a time; BUSY for a second one */
    const char *kv_type; /* NULL: "f16" ("f32" for the backend ref). "f32", "f16", "bf16", "q8_0" */
    uint64_t kv_bytes;   /* of KV pages and states at most, as used. 0: half of the free memory */
    /* Tokens of prompt and answer together; 0: what the file declares. More than that is INVALID
     * unless allow_long is set: a model makes no sense beyond what it was made for. */
    int32_t max_length;
    int32_t max_batch;      /* requests that compute at once */
    int32_t step_tokens;    /* rows of one step; 0: the model's. At most the model's */
    int32_t queue;          /* requests that wait; beyond it t9_engine_submit answers BUSY */
    int32_t max_per_client; /* of one client_key computing at once; 0: no limit */
    int32_t cache_idle_ms;  /* cached text is dropped when idle so long; 0: never */
    bool no_prefix_cache;   /* nothing is kept or shared between requests */
    bool allow_long;        /* max_length may exceed what the file declares, for tests */
    /* Called on the engine thread, one line of JSON per step and without a line feed; see
     * docs/engine.md. NULL: off. Must not block. */
    void (*plan_log)(void *ctx, const char *line, size_t n_bytes);
    void *plan_log_ctx;
    /* Called on the engine thread while the log level is debug. NULL: off. */
    void (*diverged)(void *ctx, const struct t9_divergence *d);
    void *diverged_ctx;
};
/* max_batch 16, queue 256, cache_idle_ms 600,000; the rest zero. */
T9_API void t9_engine_params_init(struct t9_engine_params *p, size_t struct_size);
/* Allocates all that steps need, computes one to warm up, starts the thread. INVALID, BUSY, NOMEM.
 */
T9_API t9_status t9_engine_new(t9_engine **out, const struct t9_engine_params *p, t9_err *err);
/* Ends what runs with CANCELLED and joins the thread. Its requests may still be read, and are freed
 * by t9_request_free, before or after. */
T9_API void t9_engine_free(t9_engine *e);

/* All of the following: any thread; none blocks, but for t9_engine_drain. */
T9_API int32_t t9_engine_max_length(const t9_engine *e); /* prompt and answer, tokens */
/* What that limit comes from and what raises it, in words for a message; static text. */
T9_API const char *t9_engine_limit_reason(const t9_engine *e);
/* The longest answer beside a prompt of n_prompt tokens; 0: such a prompt does not fit. */
T9_API int32_t t9_engine_max_tokens(const t9_engine *e, int32_t n_prompt);
/* Seconds after which a request that was refused now has a fair chance; 1 to 600. */
T9_API int32_t t9_engine_retry_after_s(const t9_engine *e);
/* Admits nothing any more (BUSY) and waits up to timeout_ms (-1: as long as it takes) for what
 * runs. AGAIN when not all has ended. */
T9_API t9_status t9_engine_drain(t9_engine *e, int32_t timeout_ms);

/* Why a model with recurrent layers kept a state in the cache. */
enum {
    T9_CHECKPOINT_INTERVAL, /* the text had become that much longer */
    T9_CHECKPOINT_LADDER,   /* some way before the end of what conversations share */
    T9_CHECKPOINT_BRANCH,   /* texts parted */
    T9_CHECKPOINT_MARK,     /* a mark of the request */
    T9_CHECKPOINT_END,      /* the end of a prompt, or of all that a request had */
    T9_STATS_CHECKPOINTS
};
enum { T9_STATS_BUCKETS = 16 };
/* Counts since the engine began; gauges as of now. */
struct t9_stats {
    size_t struct_size;
    int32_t running, waiting, waiting_prefix, waiting_preempted; /* requests; see docs/engine.md */
    /* pages_total = used by requests + cold (cached, unused) + free; pinned: of used and cold */
    int32_t kv_pages_total, kv_pages_used, kv_pages_cold, kv_pages_pinned, kv_pages_free;
    uint64_t kv_page_bytes;
    /* A step is expected to take cost_step + rows * cost_row + attended keys * cost_key +
     * cost_experts * the part of a layer's experts that its rows meet. */
    double cost_step_ns, cost_row_ns, cost_key_ns, cost_experts_ns;
    double decode_step_ns; /* a step without prompt rows, moving average */
    uint64_t steps, rows;
    uint64_t prompt_tokens, cached_tokens, generated_tokens, recomputed_tokens;
    uint64_t requests_admitted, requests_stop, requests_length, requests_cancelled, requests_error;
    uint64_t requests_expired; /* of requests_error: their deadline passed in the queue */
    /* Admitted requests by what of their prompt was there: all but its last token, a part, a part
     * that another request was computing, nothing. */
    uint64_t prefix_full, prefix_partial, prefix_inflight, prefix_miss;
    uint64_t prefix_given_up, prefix_diverged, preemptions, evicted_pages;
    uint64_t queue_ns, prefill_ns, decode_ns, step_ns; /* sums over ended requests; over steps */
    /* Times to the first token and gaps between tokens: bucket i counts those up to bucket_ms[i],
     * the last one all that were longer. */
    double bucket_ms[T9_STATS_BUCKETS - 1];
    uint64_t ttft_bucket[T9_STATS_BUCKETS], gap_bucket[T9_STATS_BUCKETS];
    uint64_t ttft_count, gap_count, ttft_sum_ns, gap_sum_ns;
    /* Of models with recurrent layers, beside the pages and not part of kv_pages_total: states of
     * requests, states kept in the cache, bytes of one; those that were dropped. */
    int32_t kv_states_used, kv_states_kept;
    uint64_t kv_state_bytes, evicted_states;
    /* States copied to the cache; prompts that went on from one. */
    uint64_t checkpoints_kept[T9_STATS_CHECKPOINTS], checkpoint_hits[T9_STATS_CHECKPOINTS];
    /* Of models some of whose layers see a window of tokens only, which have pages of their own
     * beside the others and are not part of kv_pages_total: those that requests need, others that
     * are cached, bytes of one; those that were dropped, with or without their page. */
    int32_t kv_windows_used, kv_windows_cold;
    uint64_t kv_window_bytes, evicted_windows;
};
/* INVALID for a wrong struct_size. */
T9_API t9_status t9_engine_stats(const t9_engine *e, struct t9_stats *out);

enum { T9_STATE_REQUESTS_MAX = 64 };
struct t9_state_request {
    uint64_t id;
    const char *state; /* static text: "waiting", "prefix", "running", "preempted", ... */
    uint64_t age_ns;   /* since it was submitted */
    int32_t priority, n_prompt, n_prefilled, n_cached, n_tokens, max_tokens;
    int32_t n_pages, n_preempted;
};
/* What the engine is doing, as of the end of a step or of the moment before it went to sleep. */
struct t9_state {
    size_t struct_size;
    uint64_t step, at_ns; /* at_ns 0: no step yet */
    int32_t pages_total, pages_free, pages_cold, pages_pinned;
    int32_t tree_nodes, tree_tails, tree_promised; /* of the cache */
    int32_t n_running, n_prefix, n_waiting, n_preempted;
    /* Those that compute or wait for another's prefix, and the head of the queue in its order; both
     * cut at the maximum. */
    int32_t n_requests, n_queue;
    struct t9_state_request requests[T9_STATE_REQUESTS_MAX];
    struct t9_state_request queue[T9_STATE_REQUESTS_MAX];
    /* As in struct t9_stats. */
    double cost_step_ns, cost_row_ns, cost_key_ns, cost_experts_ns, decode_step_ns;
    int32_t states_used, states_kept; /* of models with recurrent layers: of requests, cached */
};
/* INVALID for a wrong struct_size. */
T9_API t9_status t9_engine_state(const t9_engine *e, struct t9_state *out);

/* ---- requests ---- */

/* What a request takes at most. */
enum {
    T9_BIAS_MAX = 1024,
    T9_TOP_LOGPROBS_MAX = 20, /* tokens beside each */
    T9_STOPS_MAX = 16,
    T9_STOP_BYTES_MAX = 256,
    T9_STOP_IDS_MAX = 128,
    T9_SHOWN_IDS_MAX = 128,
};

struct t9_logit_bias {
    int32_t token;
    float bias; /* -100 to 100, added to the logit */
};
#ifndef T9_LOGPROB_DEFINED
#    define T9_LOGPROB_DEFINED
struct t9_logprob {
    int32_t token;
    float logprob; /* natural logarithm, -infinity for probability 0 */
};
#endif

struct t9_request_params {
    size_t struct_size;
    const int32_t *prompt; /* token ids, copied */
    size_t n_prompt;
    int32_t max_tokens; /* of the answer; 0, or more than fits: all that fits */

    /* Sampling, in this order: bias and penalties, temperature, min_p, top_k, top_p, the draw. The
     * same prompt, parameters, seed and choice give the same answer, whatever else runs. */
    float temperature; /* 0: always the likeliest token; up to 100 */
    float top_p;       /* (0, 1]; 1: off */
    float min_p;       /* [0, 1]; 0: off */
    int32_t top_k;     /* 0: off */
    uint64_t seed;
    uint32_t choice; /* of several answers to one prompt with one seed: 0, 1, 2 ... */
    /* -2 to 2; 0: off. Taken from a token's logit when the answer has it: once, and as often as it
     * does. */
    float presence_penalty, frequency_penalty;
    /* Up to 10; 0 and 1: off. Divides the positive logits of tokens that prompt or answer have, and
     * multiplies the negative ones. */
    float repetition_penalty;
    const struct t9_logit_bias *bias; /* [n_bias], at most T9_BIAS_MAX; ids of the vocabulary */
    size_t n_bias;
    /* Log probabilities of the model's own row of logits, before all of the above. 0: none; 1: of
     * each token; 1 + k: and of the k likeliest, up to T9_TOP_LOGPROBS_MAX of them. With
     * prompt_logprobs at least 1. */
    int32_t n_logprobs;
    bool prompt_logprobs; /* of the prompt, too: it is computed anew then, whatever is cached */

    /* Ends */
    const char *const *stops; /* texts that end the answer and are not part of it; up to
                                 T9_STOPS_MAX of T9_STOP_BYTES_MAX bytes; need `text` */
    size_t n_stops;
    const int32_t *stop_ids; /* tokens that end it, up to T9_STOP_IDS_MAX; ids of the vocabulary */
    size_t n_stop_ids;
    /* What ends the answer, but for max_tokens, counts only after so many tokens; of `stops` one
     * that is complete after them. At most max_tokens, and what fits. */
    int32_t min_tokens;
    bool ignore_eos; /* the model's own ends are ordinary tokens */

    bool text; /* events carry text; else only tokens */

    /* Queue */
    int32_t priority;         /* higher first; 0 is normal */
    uint64_t client_key;      /* who asks, any number; 0: nobody in particular */
    int64_t queue_timeout_ms; /* not begun to compute then: ends with AGAIN; 0: waits */
    uint64_t received_ns;     /* from when times count; 0: the submit */
    int32_t n_pin_tokens;     /* the cache keeps the prompt's first ones longest ... */
    int64_t pin_ms;           /* ... for so long */

    /* Called on the engine thread when the request has something new, for those who wait for many
     * requests at once: post the request somewhere and return; do not block, lock, allocate or call
     * the library. Comes again only after t9_request_next was called, but for the last one: that
     * one
     * (`last`) always comes, and none comes after it. NULL: none. */
    void (*wake)(void *ctx, t9_request *r, bool last);
    void *wake_ctx;

    /* No token is picked: it ends with LENGTH once the prompt is computed, which may then fill the
     * whole limit. For prompt_logprobs, and to have a prompt in the cache. max_tokens 0 or 1, and
     * no min_tokens. */
    bool prompt_only;
    /* Lengths of `stops`, for those with a NUL inside. NULL: each ends with NUL. */
    const size_t *stop_bytes;
    bool text_starts; /* events tell where the text of each token begins; needs `text` */
    /* Control tokens whose text is part of the answer's, up to T9_SHOWN_IDS_MAX; ids of the
     * vocabulary. Others have none. */
    const int32_t *shown_ids;
    size_t n_shown_ids;
    /* Of t9_chat_tokens_marked, up to T9_MARKS_MAX, ascending; copied. They change no answer. */
    const struct t9_mark *marks;
    size_t n_marks;
};
/* temperature 1, top_p 1, repetition_penalty 1, text true; the rest zero. */
T9_API void t9_request_params_init(struct t9_request_params *p, size_t struct_size);
/* Sets what the model's file recommends for sampling (general.sampling.*) and leaves the rest as it
 * is. INVALID says which value is none that a request may have; nothing is set then. Any thread. */
T9_API t9_status t9_model_sampling(const t9_model *m, struct t9_request_params *p, t9_err *err);
/* Queues it. INVALID names the parameter, or says that the prompt is too long; BUSY when the queue
 * is full or the engine draining; NOMEM. `wake` may be called before this returns, with what *out
 * becomes. Any thread; does not block. */
T9_API t9_status t9_engine_submit(t9_engine *e, const struct t9_request_params *p, t9_request **out,
                                  t9_err *err);

typedef enum t9_event_kind {
    T9_EVENT_NONE,     /* nothing new within the timeout, or all was said */
    T9_EVENT_ADMITTED, /* n_prompt, n_cached */
    T9_EVENT_PROGRESS, /* n_prefilled of n_prompt */
    T9_EVENT_TOKENS,   /* tokens, and the text that they complete; at the end of an answer there may
                          be text without a token */
    T9_EVENT_DONE,     /* finish; the last one */
    T9_EVENT_ERROR,    /* error; the last one */
} t9_event_kind;

typedef enum t9_finish {
    T9_FINISH_NONE,
    T9_FINISH_STOP,      /* the model ended it, or a stop did */
    T9_FINISH_LENGTH,    /* max_tokens, or the context's end */
    T9_FINISH_CANCELLED, /* t9_request_cancel or t9_engine_free */
    T9_FINISH_ERROR,
} t9_finish;
T9_API const char *t9_finish_name(t9_finish f); /* "none", "stop", "length", ... Static text */

struct t9_event {
    size_t struct_size;
    t9_event_kind kind;
    int32_t n_prompt, n_cached, n_prefilled;
    const int32_t *tokens; /* [n_tokens], as long as the request lives */
    int32_t n_tokens;
    const char *text; /* n_bytes of whole characters, until the next call; NUL after them */
    size_t text_bytes;
    /* [n_tokens, n_logprobs]: of each token its own, then the likeliest ones, falling; token -1
     * where the vocabulary had no more. NULL without n_logprobs. As long as the request lives. */
    const struct t9_logprob *logprobs;
    int32_t n_logprobs;
    t9_finish finish;
    int32_t stop_token; /* DONE: the token that ended it (it is not part of the answer); -1: none */
    t9_err error;
    /* [n_tokens] with text_starts: where each begins in the answer's text, in characters (code
     * points). As long as the request lives. */
    const uint32_t *text_starts;
    bool stopped; /* one of `stops` is complete: the text of this event is the last */
    int32_t stop; /* which of them; -1: none */
};
/* The next event. Waits up to timeout_ms for one (0: does not wait; -1: as long as it takes).
 * INVALID for a wrong struct_size, NOMEM for text. A reader who is late gets several tokens in one
 * event; nothing is lost, and the engine never waits for a reader. One thread at a time. */
T9_API t9_status t9_request_next(t9_request *r, int32_t timeout_ms, struct t9_event *out);
/* It ends within two steps with CANCELLED. Any thread, but not at the same time as t9_engine_free.
 */
T9_API void t9_request_cancel(t9_request *r);
/* Cancels it if need be and waits for the engine to let go of it (two steps at most). Never from
 * within `wake`. */
T9_API void t9_request_free(t9_request *r);

/* How far it is and how long it took; any thread. */
struct t9_request_info {
    size_t struct_size;
    uint64_t id;       /* of the engine's log and state; from 1 */
    const char *state; /* static text, as in struct t9_state_request */
    t9_finish finish;  /* NONE while it runs */
    int32_t n_prompt, n_cached, n_prefilled, n_tokens, max_tokens, n_preempted;
    /* Monotonic ns, 0: not reached. first_row: the first of its own rows began to be computed. */
    uint64_t received_ns, queued_ns, first_row_ns, prefilled_ns, first_token_ns, last_token_ns;
    uint64_t prefix_wait_ns, preempted_ns; /* sums */
};
/* INVALID for a wrong struct_size. */
T9_API t9_status t9_request_info(const t9_request *r, struct t9_request_info *out);
/* All tokens so far, as long as the request lives; the first n_tokens of t9_request_info are there.
 */
T9_API const int32_t *t9_request_tokens(const t9_request *r);
/* Log probabilities of token i of the prompt, i from 1, into out [n_logprobs], once a token of the
 * answer is there or it has ended. NOT_FOUND before that and without prompt_logprobs; INVALID for
 * another i. */
T9_API t9_status t9_request_prompt_logprobs(const t9_request *r, int32_t i, struct t9_logprob *out);
/* All rows of log probabilities, laid out as in an event, as long as the request lives; n_logprobs
 * each. With `prompt` false those of the answer, of as many tokens as t9_request_info tells. With
 * `prompt` those of the prompt, whose row 0 says nothing, once a token of the answer is there or it
 * has ended (rows that were not computed by then are zero). NULL: none were asked for, or not yet.
 * Any thread. */
T9_API const struct t9_logprob *t9_request_logprobs(const t9_request *r, bool prompt);

#ifdef __cplusplus
}
#endif

#endif
