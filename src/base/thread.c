/*
 * base/thread.c - thread creation: name, signal mask, CPU count. Any thread.
 *
 * New threads block every signal except those that a fault of the thread itself raises.
 */
#include "base/thread.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct start_args {
    void (*fn)(void *);
    void *arg;
    char name[16];
};

static void *trampoline(void *p)
{
    struct start_args args = *(struct start_args *)p;
    mem_free(p);
    pthread_setname_np(pthread_self(), args.name);
    args.fn(args.arg);
    return NULL;
}

void thread_block_signals(sigset_t *old)
{
    sigset_t mask;
    sigfillset(&mask);
    sigdelset(&mask, SIGSEGV);
    sigdelset(&mask, SIGBUS);
    sigdelset(&mask, SIGFPE);
    sigdelset(&mask, SIGILL);
    sigdelset(&mask, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &mask, old);
}

t9_status thread_start(struct thread *t, const char *name, void (*fn)(void *), void *arg,
                       struct t9_err *err)
{
    t->started = false;
    struct start_args *args = mem_calloc(1, sizeof *args);
    if (!args)
        return t9_fail(err, T9_STATUS_NOMEM, "thread %s: out of memory", name);
    args->fn = fn;
    args->arg = arg;
    snprintf(args->name, sizeof args->name, "%s", name);
    sigset_t old;
    thread_block_signals(&old);
    int rc = pthread_create(&t->id, NULL, trampoline, args);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        mem_free(args);
        return t9_fail(err, T9_STATUS_IO, "thread %s: cannot start (error %d)", name, rc);
    }
    t->started = true;
    return T9_STATUS_OK;
}

void thread_join(struct thread *t)
{
    if (!t->started)
        return;
    pthread_join(t->id, NULL);
    t->started = false;
}

/* CPUs worth of time that a control group grants, rounded up; 0 when there is no limit. */
static int cgroup_cpu_limit(void)
{
    char text[64];
    int fd = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    if (n <= 0)
        return 0;
    /* "QUOTA PERIOD" in microseconds, or "max PERIOD" for no limit. */
    str both = str_trim((str){text, (size_t)n});
    size_t space = str_find(both, STR(" "), 0);
    int64_t quota;
    int64_t period;
    if (space == (size_t)-1 || !num_parse_i64(str_slice(both, 0, space), &quota) ||
        !num_parse_i64(str_slice(both, space + 1, both.n), &period) || quota <= 0 || period <= 0)
        return 0;
    int64_t n_cpus = (quota - 1) / period + 1;
    return n_cpus > 4096 ? 4096 : (int)n_cpus;
}

int thread_cpu_count(void)
{
    cpu_set_t set;
    int n = 0;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    if (n < 1)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int limit = cgroup_cpu_limit();
    if (limit > 0 && n > limit)
        n = limit;
    return n < 1 ? 1 : n;
}
