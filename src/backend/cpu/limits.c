/*
 * cpu/limits.c - see backend/limits.h: reading memory, int8 dot products and float fmas in
 * registers, on threads of its own.
 */
#include "backend/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>
#include <sys/mman.h>
#include <threads.h>
#include <time.h>

#ifdef __x86_64__
#    include <immintrin.h>
#endif

enum { FROM_MEMORY_BYTES = 128 << 20 }; /* so that little of it is in a core's cache */

/* With one thread the process's own CPU time, so that a busy machine does not show; else the wall
 * clock. */
static uint64_t timer_ns(int n_threads)
{
    struct timespec t;
    if (n_threads > 1 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
        return clock_now_ns();
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct limit_job {
    const uint64_t *p;
    size_t n;
    uint64_t result;
};

static int read_memory(void *arg)
{
    struct limit_job *j = arg;
    uint64_t a = 0, b = 0, c = 0, d = 0;
#ifdef __x86_64__
    __m128i s = _mm_setzero_si128(), t = s, u = s, v = s;
    for (size_t i = 0; i + 8 <= j->n; i += 8) {
        s = _mm_xor_si128(s, _mm_load_si128((const __m128i *)(const void *)(j->p + i)));
        t = _mm_xor_si128(t, _mm_load_si128((const __m128i *)(const void *)(j->p + i + 2)));
        u = _mm_xor_si128(u, _mm_load_si128((const __m128i *)(const void *)(j->p + i + 4)));
        v = _mm_xor_si128(v, _mm_load_si128((const __m128i *)(const void *)(j->p + i + 6)));
    }
    s = _mm_xor_si128(_mm_xor_si128(s, t), _mm_xor_si128(u, v));
    a = (uint64_t)_mm_cvtsi128_si64(s);
#else
    for (size_t i = 0; i + 4 <= j->n; i += 4) {
        a ^= j->p[i];
        b ^= j->p[i + 1];
        c ^= j->p[i + 2];
        d ^= j->p[i + 3];
    }
#endif
    j->result = a ^ b ^ c ^ d;
    return 0;
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512vnni"))) static int dot_avx512(void *arg)
{
    struct limit_job *j = arg;
    __m512i s[16], w = _mm512_set1_epi8((char)j->n), a = _mm512_set1_epi8(3);
#    pragma GCC unroll 16
    for (int k = 0; k < 16; k++)
        s[k] = _mm512_setzero_si512();
    for (size_t i = 0; i < j->n; i += 16) {
#    pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            s[k] = _mm512_dpbusd_epi32(s[k], w, a);
            __asm__("" : "+v"(s[k])); /* each is really done */
        }
    }
#    pragma GCC unroll 16
    for (int k = 1; k < 16; k++)
        s[0] = _mm512_add_epi32(s[0], s[k]);
    j->result = (uint64_t)_mm512_reduce_add_epi32(s[0]);
    return 0;
}

__attribute__((target("avx2"))) static int dot_avx2(void *arg)
{
    struct limit_job *j = arg;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i s[8], w = _mm256_set1_epi8((char)j->n), a = _mm256_set1_epi8(3);
#    pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        s[k] = _mm256_setzero_si256();
    for (size_t i = 0; i < j->n; i += 8) {
#    pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m256i x = _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), ones);
            s[k] = _mm256_add_epi32(s[k], x);
            __asm__("" : "+x"(s[k]), "+x"(w));
        }
    }
#    pragma GCC unroll 8
    for (int k = 1; k < 8; k++)
        s[0] = _mm256_add_epi32(s[0], s[k]);
    j->result = (uint64_t)_mm256_extract_epi32(s[0], 0);
    return 0;
}
#endif

/* Best of twenty, of fn on `n_threads` threads at once, each on its part; seconds, 0 when they
 * could not be started. Each is short, so that on a busy machine some run without being put aside.
 */
static double limit_time(int (*fn)(void *), struct limit_job *jobs, int n_threads)
{
    double best = 0;
    for (int round = 0; round < 20; round++) {
        thrd_t t[BE_LIMITS_THREADS_MAX];
        int n = 0;
        uint64_t start_ns = timer_ns(n_threads);
        while (n < n_threads && thrd_create(&t[n], fn, &jobs[n]) == thrd_success)
            n++;
        for (int i = 0; i < n; i++)
            thrd_join(t[i], NULL);
        double s = (double)(timer_ns(n_threads) - start_ns) * 1e-9;
        if (n < n_threads)
            return 0;
        best = best == 0 || s < best ? s : best;
    }
    return best;
}

static double per_s(double work, double seconds)
{
    return seconds > 0 ? work / seconds * 1e-9 : 0;
}

#ifdef __x86_64__
__attribute__((target("avx512f"))) static int fma_avx512(void *arg)
{
    struct limit_job *j = arg;
    __m512 s[16], w = _mm512_set1_ps((float)j->n), a = _mm512_set1_ps(0.5f);
#    pragma GCC unroll 16
    for (int k = 0; k < 16; k++)
        s[k] = _mm512_setzero_ps();
    for (size_t i = 0; i < j->n; i += 16) {
#    pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            s[k] = _mm512_fmadd_ps(s[k], a, w);
            __asm__("" : "+v"(s[k]));
        }
    }
#    pragma GCC unroll 16
    for (int k = 1; k < 16; k++)
        s[0] = _mm512_add_ps(s[0], s[k]);
    j->result = (uint64_t)_mm512_reduce_add_ps(s[0]);
    return 0;
}

__attribute__((target("avx2,fma"))) static int fma_avx2(void *arg)
{
    struct limit_job *j = arg;
    __m256 s[12], w = _mm256_set1_ps((float)j->n), a = _mm256_set1_ps(0.5f);
#    pragma GCC unroll 16
    for (int k = 0; k < 12; k++)
        s[k] = _mm256_setzero_ps();
    for (size_t i = 0; i < j->n; i += 12) {
#    pragma GCC unroll 16
        for (int k = 0; k < 12; k++) {
            s[k] = _mm256_fmadd_ps(s[k], a, w);
            __asm__("" : "+x"(s[k]));
        }
    }
#    pragma GCC unroll 16
    for (int k = 1; k < 12; k++)
        s[0] = _mm256_add_ps(s[0], s[k]);
    j->result = (uint64_t)_mm256_cvtss_f32(s[0]);
    return 0;
}
#endif

struct be_limits be_limits_measure(int n_threads, const char *isa)
{
    struct be_limits l = {0};
    struct limit_job jobs[BE_LIMITS_THREADS_MAX];
    size_t words = FROM_MEMORY_BYTES / 8;
    n_threads = n_threads < BE_LIMITS_THREADS_MAX ? n_threads : BE_LIMITS_THREADS_MAX;
    uint64_t *p = mem_alloc_aligned(2 << 20, words * 8);
    if (!p || n_threads < 1) {
        mem_free(p);
        return l;
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(p, words * 8, MADV_HUGEPAGE); /* as the weights are */
#endif
    memset(p, 1, words * 8);
    size_t part = words / (size_t)n_threads / 8 * 8;
    for (int i = 0; i < n_threads; i++)
        jobs[i] = (struct limit_job){p + part * (size_t)i, part, 0};
    l.read_gbps = per_s(8.0 * (double)part * n_threads, limit_time(read_memory, jobs, n_threads));
#ifdef __x86_64__
    const size_t n = 48 << 18; /* a multiple of 16 and 12 */
    for (int i = 0; i < n_threads; i++)
        jobs[i].n = n;
    bool wide = strcmp(isa, "avx512") == 0;
    double lanes = (double)n * (wide ? 16 : 8) * n_threads;
    if (strcmp(isa, "scalar") != 0) { /* 4 bytes a lane, 2 ops each */
        l.dot_gops = per_s(8 * lanes, limit_time(wide ? dot_avx512 : dot_avx2, jobs, n_threads));
        l.fma_gflops = per_s(2 * lanes, limit_time(wide ? fma_avx512 : fma_avx2, jobs, n_threads));
    }
#endif
    mem_free(p);
    return l;
}
