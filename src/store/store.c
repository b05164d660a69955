/*
 * store/store.c - see store.h. One lock for the queue of what was put, one for the file; the
 * writer takes the second only while it writes. Whoever reads waits until the writer has done what
 * was put before.
 */
#include "store/store.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "store/db.h"

#include <inttypes.h>
#include <pthread.h>
#include <time.h>

#define QUEUE_BYTES_MAX ((uint64_t)256 << 20)
#define ROW_BYTES       256 /* beside its texts, about */

enum { LOOK_S = 60, QUIET_S = 60 };

/* A row that waits, with its texts behind it. */
struct job {
    struct job *next;
    struct store_row row;
    uint64_t n_bytes;
};

struct store {
    struct store_params p;
    struct thread writer;

    pthread_mutex_t queue_lock; /* down to the next lock */
    pthread_cond_t queued, written;
    struct job *first, **last;
    uint64_t queue_bytes, n_put, n_written; /* jobs since the start */
    bool stopping;
    struct store_stats stats;

    pthread_mutex_t db_lock;
    struct db *db;

    int64_t told_s; /* the writer's: when it last said in the log that something failed */
};

static int64_t now_of(const struct store *s)
{
    return s->p.now_s ? s->p.now_s() : clock_unix_s();
}

/* ---- the writer ---- */

/* Takes out what is too old, and as much as there is too much for n_bytes more. */
static t9_status make_room(struct store *s, const struct job *job, struct t9_err *err)
{
    uint64_t n_bytes = 0;
    int64_t n_rows = 0;
    T9_TRY(db_expire(s->db, now_of(s) - s->p.ttl_s, err));
    for (;;) {
        T9_TRY(db_totals(s->db, &n_bytes, &n_rows, err));
        uint64_t wanted = n_bytes + (job ? job->n_bytes : 0);
        if (wanted <= s->p.max_bytes && n_rows + (job != NULL) <= s->p.max_responses)
            break;
        t9_status st = db_evict(s->db, job ? job->row.previous : STR(""), err);
        if (st == T9_STATUS_NOT_FOUND)
            return t9_fail(err, T9_STATUS_TOO_LARGE,
                           "one conversation is larger than all that may be stored");
        T9_TRY(st);
    }
    pthread_mutex_lock(&s->queue_lock);
    s->stats.n_bytes = n_bytes + (job ? job->n_bytes : 0);
    s->stats.n_responses = n_rows + (job != NULL);
    pthread_mutex_unlock(&s->queue_lock);
    return T9_STATUS_OK;
}

static t9_status write_in_one(struct store *s, const struct job *job, struct t9_err *err)
{
    T9_TRY(db_begin(s->db, err));
    t9_status st = make_room(s, job, err);
    if (st == T9_STATUS_OK && job)
        st = db_put(s->db, &job->row, now_of(s), job->n_bytes, err);
    if (st == T9_STATUS_OK)
        st = db_commit(s->db, err);
    if (st != T9_STATUS_OK)
        db_rollback(s->db);
    return st;
}

/* NULL: only looks for what is too old. */
static void write_job(struct store *s, const struct job *job)
{
    struct t9_err err = {0};
    pthread_mutex_lock(&s->db_lock);
    t9_status st = write_in_one(s, job, &err);
    pthread_mutex_unlock(&s->db_lock);
    if (st == T9_STATUS_OK)
        return;
    int64_t now = now_of(s);
    if (now - s->told_s >= QUIET_S || s->told_s == 0) {
        LOG_WARN("store", "a response was not stored: %s", err.msg);
        s->told_s = now;
    }
    pthread_mutex_lock(&s->queue_lock);
    s->stats.n_lost += job != NULL;
    pthread_mutex_unlock(&s->queue_lock);
}

/* Waits for a job, or until it is time to look for what is too old. Holds the queue's lock. */
static void wait_for_job(struct store *s)
{
    struct timespec until = {.tv_sec = (time_t)clock_unix_s() + LOOK_S};
    if (!s->first && !s->stopping)
        (void)pthread_cond_timedwait(&s->queued, &s->queue_lock, &until);
}

static void writer(void *store)
{
    struct store *s = store;
    pthread_mutex_lock(&s->queue_lock);
    while (s->first || !s->stopping) {
        wait_for_job(s);
        struct job *job = s->first;
        if (job) {
            s->first = job->next;
            if (!s->first)
                s->last = &s->first;
        } else if (s->stopping) {
            break;
        }
        pthread_mutex_unlock(&s->queue_lock);
        write_job(s, job);
        pthread_mutex_lock(&s->queue_lock);
        if (job) {
            s->queue_bytes -= job->n_bytes;
            s->n_written++;
            (void)pthread_cond_broadcast(&s->written);
        }
        mem_free(job);
    }
    pthread_mutex_unlock(&s->queue_lock);
}

/* ---- life ---- */

t9_status store_open(struct store **out, const struct store_params *p, struct t9_err *err)
{
    struct store *s = mem_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for the response store");
    s->p = *p;
    s->last = &s->first;
    (void)pthread_mutex_init(&s->queue_lock, NULL);
    (void)pthread_mutex_init(&s->db_lock, NULL);
    (void)pthread_cond_init(&s->queued, NULL);
    (void)pthread_cond_init(&s->written, NULL);
    t9_status st = db_open(&s->db, p->path, err);
    if (st == T9_STATUS_OK)
        st = write_in_one(s, NULL, err);
    if (st == T9_STATUS_OK)
        st = thread_start(&s->writer, "t9-store", writer, s, err);
    if (st != T9_STATUS_OK) {
        store_close(s);
        return st;
    }
    *out = s;
    return T9_STATUS_OK;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->queue_lock);
    s->stopping = true;
    (void)pthread_cond_broadcast(&s->queued);
    pthread_mutex_unlock(&s->queue_lock);
    thread_join(&s->writer);
    db_close(s->db);
    (void)pthread_cond_destroy(&s->written);
    (void)pthread_cond_destroy(&s->queued);
    (void)pthread_mutex_destroy(&s->db_lock);
    (void)pthread_mutex_destroy(&s->queue_lock);
    mem_free(s);
}

/* ---- writing ---- */

static str copy(char **at, str text)
{
    char *p = *at;
    if (text.n)
        memcpy(p, text.p, text.n);
    *at += text.n;
    return (str){p, text.n};
}

static struct job *new_job(const struct store_row *row)
{
    size_t n = row->id.n + row->previous.n + row->response.n + row->input.n;
    struct job *job = mem_alloc(sizeof *job + n);
    if (!job)
        return NULL;
    char *at = (char *)(job + 1);
    *job = (struct job){.n_bytes = n + ROW_BYTES,
                        .row = {.id = copy(&at, row->id),
                                .previous = copy(&at, row->previous),
                                .owner = row->owner,
                                .response = copy(&at, row->response),
                                .input = copy(&at, row->input)}};
    return job;
}

t9_status store_put(struct store *s, const struct store_row *row, struct t9_err *err)
{
    if (row->id.n == 0 || row->id.n > STORE_ID_BYTES_MAX || row->previous.n > STORE_ID_BYTES_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "an id has 1 to %d bytes", STORE_ID_BYTES_MAX);
    struct job *job = new_job(row);
    if (!job)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory to store a response");
    pthread_mutex_lock(&s->queue_lock);
    bool fits = s->queue_bytes + job->n_bytes <= QUEUE_BYTES_MAX;
    if (fits) {
        *s->last = job;
        s->last = &job->next;
        s->queue_bytes += job->n_bytes;
        s->n_put++;
        (void)pthread_cond_signal(&s->queued);
    } else {
        s->stats.n_lost++;
    }
    pthread_mutex_unlock(&s->queue_lock);
    if (fits)
        return T9_STATUS_OK;
    mem_free(job);
    return t9_fail(err, T9_STATUS_BUSY, "too many responses wait to be stored");
}

/* ---- reading ---- */

/* Takes the file, once what was put before has been written. */
static void take_file(struct store *s)
{
    pthread_mutex_lock(&s->queue_lock);
    uint64_t upto = s->n_put;
    while (s->n_written < upto)
        (void)pthread_cond_wait(&s->written, &s->queue_lock);
    pthread_mutex_unlock(&s->queue_lock);
    pthread_mutex_lock(&s->db_lock);
}

static t9_status get_own(struct store *s, str id, uint64_t owner, struct store_row *out,
                         struct t9_err *err)
{
    if (id.n == 0 || id.n > STORE_ID_BYTES_MAX)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "there is no such response");
    T9_TRY(db_get(s->db, id, out, err));
    if (out->owner != owner)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "there is no such response");
    return T9_STATUS_OK;
}

t9_status store_get(struct store *s, str id, uint64_t owner, struct buf *response,
                    struct buf *input, struct t9_err *err)
{
    struct store_row row = {0};
    take_file(s);
    t9_status st = get_own(s, id, owner, &row, err);
    if (st == T9_STATUS_OK && response)
        buf_puts_str(response, row.response);
    if (st == T9_STATUS_OK && input)
        buf_puts_str(input, row.input);
    pthread_mutex_unlock(&s->db_lock);
    return st;
}

struct ids {
    size_t n;
    struct {
        uint8_t n;
        char p[STORE_ID_BYTES_MAX];
    } at[STORE_CONVERSATION_MAX];
};

static str id_at(const struct ids *ids, size_t i)
{
    return (str){ids->at[i].p, ids->at[i].n};
}

/* The ids from `id` back to the first. A file that was tampered with may lead around. */
static t9_status walk_back(struct store *s, str id, uint64_t owner, struct ids *ids,
                           struct t9_err *err)
{
    struct store_row row = {.previous = id};
    size_t n_bytes = 0;
    while (row.previous.n) {
        if (ids->n == STORE_CONVERSATION_MAX)
            return t9_fail(err, T9_STATUS_TOO_LARGE, "the conversation has more than %d responses",
                           STORE_CONVERSATION_MAX);
        if (row.previous.n > STORE_ID_BYTES_MAX)
            return t9_fail(err, T9_STATUS_NOT_FOUND, "there is no such response");
        ids->at[ids->n].n = (uint8_t)row.previous.n;
        memcpy(ids->at[ids->n].p, row.previous.p, row.previous.n);
        ids->n++;
        T9_TRY(get_own(s, id_at(ids, ids->n - 1), owner, &row, err));
        n_bytes += row.response.n + row.input.n;
        if (n_bytes > STORE_CONVERSATION_BYTES_MAX)
            return t9_fail(err, T9_STATUS_TOO_LARGE,
                           "what is stored of the conversation is more than the %d MiB that a "
                           "request may go on from",
                           STORE_CONVERSATION_BYTES_MAX >> 20);
    }
    return T9_STATUS_OK;
}

static t9_status tell_all(struct store *s, uint64_t owner, const struct ids *ids, store_row_fn fn,
                          void *ctx, struct t9_err *err)
{
    struct store_row row;
    for (size_t i = ids->n; i-- > 0;) {
        T9_TRY(get_own(s, id_at(ids, i), owner, &row, err));
        T9_TRY(fn(ctx, &row, err));
    }
    return ids->n ? db_touch(s->db, id_at(ids, 0), now_of(s), err) : T9_STATUS_OK;
}

t9_status store_conversation(struct store *s, str id, uint64_t owner, store_row_fn fn, void *ctx,
                             struct t9_err *err)
{
    struct ids *ids = mem_calloc(1, sizeof *ids);
    if (!ids)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory to read a conversation");
    take_file(s);
    t9_status st = id.n ? walk_back(s, id, owner, ids, err)
                        : t9_fail(err, T9_STATUS_NOT_FOUND, "there is no such response");
    if (st == T9_STATUS_OK)
        st = tell_all(s, owner, ids, fn, ctx, err);
    pthread_mutex_unlock(&s->db_lock);
    mem_free(ids);
    return st;
}

t9_status store_delete(struct store *s, str id, uint64_t owner, struct t9_err *err)
{
    struct store_row row;
    take_file(s);
    t9_status st = get_own(s, id, owner, &row, err);
    if (st == T9_STATUS_OK)
        st = db_begin(s->db, err);
    if (st == T9_STATUS_OK) {
        st = db_delete(s->db, id, err);
        if (st == T9_STATUS_OK)
            st = db_commit(s->db, err);
        if (st != T9_STATUS_OK)
            db_rollback(s->db);
    }
    pthread_mutex_unlock(&s->db_lock);
    return st;
}

void store_stats(struct store *s, struct store_stats *out)
{
    pthread_mutex_lock(&s->queue_lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->queue_lock);
}
