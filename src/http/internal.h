/*
 * http/internal.h - what the files of this folder share: the server and an exchange (one request
 * and its reply on a connection).
 *
 * Who holds an exchange (`refs`): the HTTP library from the request's head to its completion; a
 * prep job; the engine, from submit until chat_run_notified said that it let go; a response that
 * streams. The last one frees it.
 */
#ifndef T9_HTTP_INTERNAL_H
#define T9_HTTP_INTERNAL_H

#include "base/buf.h"
#include "base/queue.h"
#include "base/thread.h"
#include "http/conns.h"
#include "http/rate.h"
#include "http/server.h"
#include "http/watch.h"
#include "protocol/run.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { HTTP_PREP_THREADS_MAX = 16 };
#define EXCHANGE_OUT_BYTES_MAX ((size_t)64 << 20)

struct http_counters {
    _Atomic uint64_t requests[6]; /* by first digit of the status */
    _Atomic uint64_t hangups;     /* clients that left before their answer was complete */
    _Atomic uint64_t limited;     /* 429 */
    _Atomic uint64_t bytes_in, bytes_out;
    _Atomic int64_t streams;      /* open now */
    _Atomic int64_t prep_waiting; /* jobs */
};

struct exchange;

struct listener {
    int fd;
    uint16_t port; /* 0: a unix socket */
    bool loopback; /* nobody on another machine can reach it */
    dev_t device;  /* the unix socket's file, with inode */
    ino_t inode;
};

struct http_server {
    struct http_params p;
    struct prep *prep;
    _Atomic(struct MHD_Daemon *) mhd; /* its threads run before it is known here */
    struct listener listener;
    uint16_t port;
    bool loopback;                /* out of other machines' reach */
    struct buf tls_cert, tls_key; /* PEM, NUL-terminated; empty: no TLS */
    struct conns conns;
    struct rate rate;
    int64_t started_s;
    uint64_t id_base; /* random part of request ids */
    _Atomic uint64_t id_next;

    struct ring *ring; /* exchanges that the engine posted */
    struct jobq *jobs;
    struct watch *watch;
    struct thread notifier, prep_threads[HTTP_PREP_THREADS_MAX];
    atomic_bool stopping;     /* new work is refused */
    _Atomic uint64_t stop_ns; /* when the last answer ends at the latest; while stopping */
    atomic_bool closing;      /* nothing may be suspended any more */
    atomic_bool notifier_stop;
    atomic_bool watches_conns; /* the notifier wakes for conns_tick */
    atomic_bool look_now;      /* whenever it was to be */

    pthread_mutex_t list_lock;
    struct exchange *list; /* chat exchanges on a connection */
    atomic_int n_listed;
    atomic_int n_alive;   /* exchanges not yet freed */
    atomic_int n_posting; /* the engine is pushing to the ring */
    _Atomic uint64_t bodies_bytes;
    struct http_counters n;
};

typedef enum exchange_phase {
    EXCHANGE_PHASE_BODY,    /* the request is being received */
    EXCHANGE_PHASE_PREP,    /* a prep job has it */
    EXCHANGE_PHASE_STARTED, /* the run was submitted */
    EXCHANGE_PHASE_FAILED,  /* `error` says why there is no run */
} exchange_phase;

enum { ROUTE_GET = 1, ROUTE_POST = 2, ROUTE_DELETE = 4, ROUTE_ANY = 7 };

struct route {
    const char *path;
    unsigned methods;                   /* ROUTE_* */
    bool is_prefix;                     /* path ends in '/' and an id follows */
    bool is_public;                     /* needs no key */
    bool url_is_body;                   /* the adapter's body is made of path and query */
    bool no_store;                      /* true for a moment only: never from a cache */
    const struct chat_adapter *adapter; /* a chat route; else `get` */
    enum MHD_Result (*get)(struct exchange *x, const char *url);
};

struct exchange {
    struct http_server *server;
    atomic_int refs;
    const struct route *route; /* NULL: unknown path */
    bool anthropic;            /* the client speaks Anthropic's protocol */
    char request_id[72];
    char shown_path[64]; /* for the log */
    char method[12];
    struct chat_caller caller;
    const char *api_key;   /* the one of ours that was given */
    unsigned status;       /* 0: none sent */
    char error_code[64];   /* of a refusal, for the log */
    int32_t retry_after_s; /* 0: as the engine's queue tells */
    struct conn *conn;
    bool refused; /* known with the head: the body is not kept */

    struct buf body;
    uint64_t n_discarded; /* of a body over the limit */
    bool over_limit, over_total;

    _Atomic int phase; /* exchange_phase; release-stored after run or error */
    atomic_bool gone;  /* the client left */
    struct chat_run *run;
    struct chat_error error;

    pthread_mutex_t lock;              /* the three below */
    struct MHD_Connection *connection; /* NULL after completion */
    bool suspended, wake;
    int64_t watch_id;

    struct buf out; /* bytes of a stream to hand over, or the text of a whole reply */
    size_t out_at;
    bool out_done, completed_well;
    bool begun; /* the stream's first event is out */
    atomic_bool streaming, comment_due, headers_due;
    _Atomic uint64_t last_write_ns;

    bool listed;
    struct exchange *prev, *next;
};

/* ---- listen.c ---- */
/* A bound socket with the address of `p`, the caller's; listening with `and_listen`. INVALID when
 * it could be reached from other machines and needs neither a key nor was that allowed. */
t9_status listen_open(const struct http_params *p, bool and_listen, struct listener *out,
                      struct t9_err *err);
/* Closes, and takes the unix socket's file away, unless another is there now. fd < 0: nothing. */
void listen_close(const struct http_params *p, const struct listener *l);
/* Raises this process's limit of descriptors towards what the connections need, and lowers
 * *connection_limit to what fits. */
void listen_fit_files(int32_t *connection_limit);

/* ---- tls.c ---- */
/* Reads the two files, if TLS is asked for. */
t9_status tls_load(const struct http_params *p, struct buf *cert, struct buf *key,
                   struct t9_err *err);
void tls_unload(struct buf *cert, struct buf *key);

/* ---- routes.c ---- */
const struct route *route_find(const char *url); /* NULL: there is none */
const char *route_allow(const struct route *r);  /* value of the header Allow */
bool route_allows(const struct route *r, const char *method);

/* ---- request.c: the library's callbacks ---- */
enum MHD_Result request_on_data(void *server, struct MHD_Connection *c, const char *url,
                                const char *method, const char *version, const char *data,
                                size_t *n_data, void **ctx);
void request_on_completed(void *server, struct MHD_Connection *c, void **ctx,
                          enum MHD_RequestTerminationCode how);
void *request_on_line(void *server, const char *uri, struct MHD_Connection *c);
void request_on_connection(void *server, struct MHD_Connection *c, void **conn,
                           enum MHD_ConnectionNotificationCode what);
size_t request_unescape(void *server, struct MHD_Connection *c, char *text);

/* ---- exchange.c ---- */
struct exchange *exchange_new(struct http_server *s, struct MHD_Connection *c);
void exchange_hold(struct exchange *x);
void exchange_drop(struct exchange *x);
/* Suspends the connection until exchange_wake; false when it was woken already: look again. */
bool exchange_sleep(struct exchange *x);
/* Any thread. */
void exchange_wake(struct exchange *x);
/* The client is gone: cancels and wakes. Any thread that holds the exchange. */
void exchange_gone(void *exchange);
/* Enters the server's list and hands the body to the prep pool. */
void exchange_start(struct exchange *x);
void exchange_unlist(struct exchange *x);
void exchange_free_body(struct exchange *x);
void prep_thread(void *server);
void notifier_thread(void *server);
/* Lets it call conns_tick at once. */
void notifier_look(struct http_server *s);

/* ---- reply.c ---- */
enum MHD_Result reply_bytes(struct exchange *x, unsigned status, const char *type, str body);
/* One of any other kind, with a body of n_bytes; takes it over. */
enum MHD_Result reply_response(struct exchange *x, unsigned status, size_t n_bytes,
                               struct MHD_Response *r);
enum MHD_Result reply_error(struct exchange *x, const struct chat_error *e);
/* One that is no t9_status: 401, 405. */
enum MHD_Result reply_error_as(struct exchange *x, unsigned status, const struct chat_error *e);
/* Appends the body of an error in the form that the client knows. */
void reply_write_error(const struct exchange *x, const struct chat_error *e, struct buf *out);
enum MHD_Result reply_options(struct exchange *x, const char *allow);
/* The chat route, whenever its connection runs: replies, or suspends it. */
enum MHD_Result reply_chat(struct exchange *x);

/* ---- head.c ---- */
typedef enum head_line { HEAD_LINE_GOOD, HEAD_LINE_BLANK, HEAD_LINE_NUL, HEAD_LINE_LONG } head_line;
/* Whether the request line has a blank too many, a NUL where the library ended `uri`, or more bytes
 * or parameters than are taken, which it joins then: the library must not split them. */
head_line head_line_of(const char *uri);
/* Whether the head has one meaning only, which we can meet; INVALID otherwise. It begins at
 * `method`. */
t9_status head_check(struct MHD_Connection *c, const char *method, const char *version,
                     head_line line, struct chat_error *err);
/* A header's value without blanks around it, in the connection's memory; {NULL, 0}: there is none.
 */
str head_value(struct MHD_Connection *c, const char *name);

/* ---- guard.c: who may ask ---- */
/* INVALID when an allowed origin is one that no browser sends, or stands for any page. */
t9_status guard_check_params(const struct http_params *p, struct t9_err *err);
/* OK, or FORBIDDEN (foreign Host or Origin), or CANCELLED standing for a missing key (401). Notes
 * the key. */
t9_status guard_check(struct exchange *x, bool public_route, struct chat_error *err);
/* Fills x->caller from the key and the headers. */
t9_status guard_caller(struct exchange *x, struct chat_error *err);
/* The Origin header when it is one that was allowed by name, else NULL. */
const char *guard_cors_origin(const struct http_server *s, struct MHD_Connection *c);

/* ---- auth.c: API keys ---- */
t9_status auth_check_params(const struct http_params *p, struct t9_err *err);
/* The one of our keys that the client sent, or NULL. */
const char *auth_key(const struct http_server *s, struct MHD_Connection *c);

/* ---- page.c ---- */
enum MHD_Result page_get_root(struct exchange *x, const char *url);
enum MHD_Result page_get_asset(struct exchange *x, const char *url);

/* ---- metrics.c, state.c ---- */
/* Names of T9_CHECKPOINT_.... */
extern const char *const HTTP_CHECKPOINTS[T9_STATS_CHECKPOINTS];
void metrics_write(struct http_server *s, struct buf *out);
void state_write(struct http_server *s, struct buf *out);

#endif
