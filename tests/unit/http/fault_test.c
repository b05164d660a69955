/*
 * Faults in the system under the server: the nth receive, send or allocation of its threads fails,
 * for every n until a whole run of requests passes without meeting it. The client gets an answer,
 * an error or a closed connection; the server stays, and the next request is answered.
 *
 * The functions of the C library are replaced by this program's own, which the HTTP library calls
 * as well. The threads of the test and of the scripted engine are left alone.
 */
#include "lib/http_rig.h"
#include "lib/t9test.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
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

enum fault { FAULT_NONE, FAULT_RECEIVE, FAULT_SEND, FAULT_MEMORY };

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
    if (!fails(FAULT_RECEIVE))
        return next(fd, p, n, flags);
    errno = ECONNRESET;
    return -1;
}

OURS ssize_t send(int fd, const void *p, size_t n, int flags)
{
    NEXT(send);
    if (!fails(FAULT_SEND))
        return next(fd, p, n, flags);
    errno = EPIPE;
    return -1;
}

OURS ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    NEXT(sendmsg);
    if (!fails(FAULT_SEND))
        return next(fd, m, flags);
    errno = EPIPE;
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
#endif

#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"hello there\"}],\"max_tokens\":8"

/* One of each kind; whether all were answered with 200. */
static bool ask(uint16_t port)
{
    static const char *const bodies[] = {BODY "}", BODY ",\"stream\":true}",
                                         BODY ",\"n\":2,\"logprobs\":true,\"stop\":[\"x\"]}"};
    bool fine = true;
    for (size_t i = 0; i < T9_COUNT(bodies); i++) {
        struct buf in;
        uint64_t begin = clock_now_ns();
        client_chat(port, bodies[i], &in);
        int status = client_status(&in);
        if (status == 0 || status >= 500 || !client_has(&in, i == 1 ? "[DONE]" : "\"usage\""))
            fine = false;
        /* Silence would have ended by the client's own limit. */
        assert_true(clock_now_ns() - begin < (uint64_t)15 * 1000000000);
        buf_deinit(&in);
    }
    return fine;
}

static void every_nth(enum fault kind, uint64_t at_least)
{
    struct engine_script script;
    struct http_rig r;
    uint64_t n = 1, n_failed = 0;
    test_thread = pthread_self();
    mine = 2;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    assert_true(ask(r.port)); /* what is made once, and lasts */
    for (;; n++) {
        atomic_store(&nth, n);
        atomic_store(&seen, 0);
        atomic_store(&armed, (int)kind);
        bool fine = ask(r.port);
        atomic_store(&armed, FAULT_NONE);
        n_failed += !fine;
        if (atomic_load(&seen) < n)
            break;
        assert_true(ask(r.port));
        assert_true(n < 5000);
    }
    if (n - 1 < at_least || n_failed == 0)
        fail_msg("only %llu calls, of which %llu were noticed", (unsigned long long)(n - 1),
                 (unsigned long long)n_failed);
    http_rig_stop(&r);
}

static void test_receive(void **state)
{
    (void)state;
    every_nth(FAULT_RECEIVE, 3);
}

static void test_send(void **state)
{
    (void)state;
    every_nth(FAULT_SEND, 3);
}

static void test_memory(void **state)
{
    (void)state;
    if (!OWN_MALLOC)
        skip();
    every_nth(FAULT_MEMORY, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_receive), cmocka_unit_test(test_send),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
