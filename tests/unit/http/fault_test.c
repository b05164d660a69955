/*
 * Faults in the system under the server: the nth receive, send, accept, wait or allocation of its
 * threads fails, for every n until a whole request passes without meeting it. What the system may
 * do at any time must not be noticed. (No call brings less than there is: the library takes that
 * for the end of what is there, and waits for more, as the system allows.) After a failure the
 * client gets an answer, an error or a closed connection, never a wrong answer; the server stays,
 * and the next request is answered.
 *
 * The functions of the C library are replaced by this program's own, which the HTTP library calls
 * as well; where a sanitizer has the allocator, allocations of our own code alone are made to fail.
 * The threads of the test and of the scripted engine are left alone.
 */
#include "lib/failing_malloc.h"
#include "lib/http_rig.h"
#include "lib/t9test.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define OWN_MALLOC 0 /* the sanitizer has it */
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define OWN_MALLOC 0
#    endif
#endif
#ifndef OWN_MALLOC
#    define OWN_MALLOC 1
#endif

enum fault {
    FAULT_NONE,
    FAULT_MEMORY,
    FAULT_RECEIVE,     /* the client resets */
    FAULT_SEND,        /* the client is gone */
    FAULT_ACCEPT,      /* it was gone before it was taken */
    FAULT_WATCH,       /* no memory in the system to wait for one more */
    FAULT_NO_FILES,    /* no descriptor for the next connection, for a moment */
    FAULT_INTERRUPTED, /* a signal ends a wait or a read */
};

static _Atomic int armed; /* enum fault */
static _Atomic uint64_t nth, seen;
static pthread_t test_thread;
static __thread int mine; /* 0 not known, 1 a thread of the server's, 2 another */

static bool of_server(void)
{
    if (mine == 0) {
        char name[32] = "";
        (void)pthread_getname_np(pthread_self(), name, sizeof name);
        mine = pthread_equal(pthread_self(), test_thread) || strstr(name, "script") ? 2 : 1;
    }
    return mine == 1;
}

static bool fails(enum fault kind)
{
    if (atomic_load_explicit(&armed, memory_order_relaxed) != (int)kind || !of_server())
        return false;
    return atomic_fetch_add(&seen, 1) + 1 == atomic_load(&nth);
}

/* Seen by libraries; `next` is the C library's function of the same name. */
#define OURS __attribute__((visibility("default")))
#define NEXT(function)                                                                             \
    static _Atomic(void *) known;                                                                  \
    void *found = atomic_load(&known);                                                             \
    if (!found)                                                                                    \
        atomic_store(&known, found = dlsym(RTLD_NEXT, #function));                                 \
    __typeof__(&(function)) next;                                                                  \
    *(void **)(void *)&next = found

OURS ssize_t recv(int fd, void *p, size_t n, int flags)
{
    NEXT(recv);
    if (fails(FAULT_RECEIVE)) {
        errno = ECONNRESET;
        return -1;
    }
    return next(fd, p, n, flags);
}

OURS ssize_t send(int fd, const void *p, size_t n, int flags)
{
    NEXT(send);
    if (fails(FAULT_SEND)) {
        errno = EPIPE;
        return -1;
    }
    return next(fd, p, n, flags);
}

OURS ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    NEXT(sendmsg);
    if (fails(FAULT_SEND)) {
        errno = EPIPE;
        return -1;
    }
    return next(fd, m, flags);
}

/* Which the library calls where there is one. */
OURS int accept4(int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    NEXT(accept4);
    if (fails(FAULT_NO_FILES)) {
        errno = EMFILE;
        return -1;
    }
    int got = next(fd, from, n, flags);
    if (got < 0 || !fails(FAULT_ACCEPT))
        return got;
    (void)close(got);
    errno = ECONNABORTED;
    return -1;
}

OURS int epoll_ctl(int epoll_fd, int what, int fd, struct epoll_event *e)
{
    NEXT(epoll_ctl);
    if (what != EPOLL_CTL_ADD || !fails(FAULT_WATCH))
        return next(epoll_fd, what, fd, e);
    errno = ENOMEM;
    return -1;
}

OURS int epoll_wait(int fd, struct epoll_event *e, int n, int timeout_ms)
{
    NEXT(epoll_wait);
    if (!fails(FAULT_INTERRUPTED))
        return next(fd, e, n, timeout_ms);
    errno = EINTR;
    return -1;
}

OURS int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    NEXT(poll);
    if (!fails(FAULT_INTERRUPTED))
        return next(fds, n, timeout_ms);
    errno = EINTR;
    return -1;
}

OURS ssize_t read(int fd, void *p, size_t n)
{
    NEXT(read);
    if (!fails(FAULT_INTERRUPTED))
        return next(fd, p, n);
    errno = EINTR;
    return -1;
}

#if OWN_MALLOC
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

OURS void *malloc(size_t n)
{
    return fails(FAULT_MEMORY) ? (errno = ENOMEM, NULL) : __libc_malloc(n);
}

OURS void *calloc(size_t n, size_t size)
{
    return fails(FAULT_MEMORY) ? (errno = ENOMEM, NULL) : __libc_calloc(n, size);
}

OURS void *realloc(void *p, size_t n)
{
    return fails(FAULT_MEMORY) ? (errno = ENOMEM, NULL) : __libc_realloc(p, n);
}
#else
bool failing_malloc_fails(void)
{
    return fails(FAULT_MEMORY);
}
#endif

#define POST(path) "POST " path " HTTP/1.1\r\nContent-Type: application/json\r\n"
#define CHAT       POST("/v1/chat/completions")
#define ASK        "{\"messages\":[{\"role\":\"user\",\"content\":\"hello there\"}],\"max_tokens\":8"

/* Requests of each kind, the status of the answer and what a whole one has. */
static const struct {
    const char *head, *body;
    int status;
    const char *has;
} asks[] = {
    {CHAT, ASK "}", 200, "\"usage\""},
    {CHAT, ASK ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", 200, "[DONE]"},
    {CHAT, ASK ",\"n\":2,\"logprobs\":true,\"top_logprobs\":2,\"stop\":[\"x\"],\"x\":1}", 200,
     "\"warnings\""},
    {POST("/v1/completions"),
     "{\"prompt\":[\"ab\",[65,66]],\"echo\":true,\"logprobs\":1,\"return_token_ids\":true}", 200,
     "\"usage\""},
    {POST("/tokenize"), ASK ",\"with_pieces\":true}", 200, "token_strs"},
    {POST("/detokenize"), "{\"tokens\":[65,66]}", 200, "AB"},
    {POST("/apply-template"), ASK "}", 200, "hello there"},
    {CHAT, ASK ",\"temperature\":-1}", 400, "temperature"},
    {CHAT, "{\"messages\":", 400, "invalid_json"},
    {"GET /metrics HTTP/1.1\r\n", NULL, 200, "tempo9_http_requests_total"},
    {"GET /v1/state HTTP/1.1\r\n", NULL, 200, "\"pool\""},
    {"GET /v1/capabilities HTTP/1.1\r\n", NULL, 200, "protocols"},
    {"GET /v1/models/scripted HTTP/1.1\r\n", NULL, 200, "scripted"},
    {"GET /nothing HTTP/1.1\r\n", NULL, 404, "unknown_path"},
};

/* Whether all bytes of a reply came. */
static bool is_whole(const struct buf *in)
{
    str all = buf_str(in);
    size_t head = str_find(all, STR("\r\n\r\n"), 0), at = str_find(all, STR("Content-Length: "), 0);
    if (head == (size_t)-1)
        return false;
    if (at == (size_t)-1 || at > head)
        return str_has_suffix(all, STR("\r\n0\r\n\r\n"));
    size_t n = 0;
    for (at += 16; all.p[at] >= '0' && all.p[at] <= '9'; at++)
        n = n * 10 + (size_t)(all.p[at] - '0');
    return all.n == head + 4 + n;
}

/* Whether request i was answered as it should be. Anything else must be an error or not whole. */
static bool ask(uint16_t port, size_t i)
{
    struct buf in;
    uint64_t begin = clock_now_ns();
    client_exchange(port, asks[i].head, asks[i].body ? str_from(asks[i].body) : (str){0}, &in);
    int status = client_status(&in);
    bool whole = is_whole(&in);
    bool fine = whole && status == asks[i].status && client_has(&in, asks[i].has);
    if (whole && !fine && !client_has(&in, "\"error\"")) {
        buf_putc(&in, 0);
        fail_msg("a wrong answer: %s", in.p);
    }
    /* Silence would have ended by the client's own limit. */
    assert_true(clock_now_ns() - begin < (uint64_t)15 * 1000000000);
    buf_deinit(&in);
    return fine;
}

/* Every call of a kind that a request makes is met once. Returns how many calls there were. */
static uint64_t every_nth(uint16_t port, enum fault kind, size_t i, uint64_t *n_noticed)
{
    uint64_t n = 1;
    for (;; n++) {
        atomic_store(&nth, n);
        atomic_store(&seen, 0);
        atomic_store(&armed, (int)kind);
        bool fine = ask(port, i);
        atomic_store(&armed, FAULT_NONE);
        *n_noticed += !fine;
        if (atomic_load(&seen) < n)
            return n - 1;
        assert_true(ask(port, n % T9_COUNT(asks)));
        assert_true(n < 5000);
    }
}

static void fail_each(enum fault kind, uint64_t at_least, bool is_noticed)
{
    struct engine_script script;
    struct http_rig r;
    uint64_t n_calls = 0, n_noticed = 0;
    test_thread = pthread_self();
    mine = 2;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    for (size_t i = 0; i < T9_COUNT(asks); i++) /* what is made once, and lasts */
        assert_true(ask(r.port, i));
    for (size_t i = 0; i < T9_COUNT(asks); i++)
        n_calls += every_nth(r.port, kind, i, &n_noticed);
    print_message("%llu calls, %llu noticed\n", (unsigned long long)n_calls,
                  (unsigned long long)n_noticed);
    assert_true(n_calls >= at_least);
    assert_true((n_noticed > 0) == is_noticed);
    http_rig_stop(&r);
}

static void test_memory(void **state)
{
    (void)state;
    fail_each(FAULT_MEMORY, 100, true);
}

static void test_receive(void **state)
{
    (void)state;
    fail_each(FAULT_RECEIVE, T9_COUNT(asks), true);
}

static void test_send(void **state)
{
    (void)state;
    fail_each(FAULT_SEND, T9_COUNT(asks), true);
}

static void test_accept(void **state)
{
    (void)state;
    fail_each(FAULT_ACCEPT, T9_COUNT(asks), true);
}

static void test_watch(void **state)
{
    (void)state;
    fail_each(FAULT_WATCH, T9_COUNT(asks), true);
}

static void test_no_files(void **state)
{
    (void)state;
    fail_each(FAULT_NO_FILES, T9_COUNT(asks), false);
}

static void test_interrupted(void **state)
{
    (void)state;
    fail_each(FAULT_INTERRUPTED, T9_COUNT(asks), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_receive),
        cmocka_unit_test(test_send),        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_watch),       cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
