/*
 * cpu/limits.c - see backend/limits.h: reading memory, int8 dot products and float fmas in
 * registers, on threads of its own.
 */
#include "backend/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>
#include <threads.h>
#include <time.h>

#ifdef __x86_64__
#    include <immintrin.h>
#endif

enum {
    FROM_MEMORY_BYTES = 128 << 20, /* so that little of it is in a core's cache */
    ROUNDS_MAX = 20,
    ROUNDS_MIN = 3,
    STEPS_MIN = 48 << 12, /* multiples of 16 and 12 */
    STEPS_MAX = 48 << 18,
};

/* After which no further round begins: a machine on which one takes long is not made to wait. */
static const uint64_t ROUNDS_NS = 500 * 1000000u;
static const uint64_t ROUND_NS = 2 * 1000000u;

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
/* A job of n steps in N chains that do not wait for each other: each step is s = STEP, of s, w and
 * a; `reg` is the register's constraint, so that each is really done. RESULT is of s[0]. */
#    define CHAINS(name, isa, vec, reg, N, W, A, ZERO, STEP, ADD, RESULT)                          \
        __attribute__((target(isa))) static int name(void *arg)                                    \
        {                                                                                          \
            struct limit_job *j = arg;                                                             \
            vec s[N], w = (W), a = (A);                                                            \
            _Pragma("GCC unroll 16") for (int k = 0; k < (N); k++) s[k] = (ZERO);                  \
            for (size_t i = 0; i < j->n; i += (N)) {                                               \
                _Pragma("GCC unroll 16") for (int k = 0; k < (N); k++)                             \
                {                                                                                  \
                    s[k] = (STEP);                                                                 \
                    __asm__("" : "+" reg(s[k]), "+" reg(w));                                       \
                }                                                                                  \
            }                                                                                      \
            _Pragma("GCC unroll 16") for (int k = 1; k < (N); k++) s[0] = ADD(s[0], s[k]);         \
            j->result = (uint64_t)(RESULT);                                                        \
            return 0;                                                                              \
        }

CHAINS(dot_avx512, "avx512f,avx512vnni", __m512i, "v", 16, _mm512_set1_epi8((char)j->n),
       _mm512_set1_epi8(3), _mm512_setzero_si512(), _mm512_dpbusd_epi32(s[k], w, a),
       _mm512_add_epi32, _mm512_reduce_add_epi32(s[0]))
CHAINS(dot_avx2, "avx2", __m256i, "x", 8, _mm256_set1_epi8((char)j->n), _mm256_set1_epi8(3),
       _mm256_setzero_si256(),
       _mm256_add_epi32(s[k], _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1))),
       _mm256_add_epi32, _mm256_extract_epi32(s[0], 0))
CHAINS(fma_avx512, "avx512f", __m512, "v", 16, _mm512_set1_ps((float)j->n), _mm512_set1_ps(0.5f),
       _mm512_setzero_ps(), _mm512_fmadd_ps(s[k], a, w), _mm512_add_ps, _mm512_reduce_add_ps(s[0]))
CHAINS(fma_avx2, "avx2,fma", __m256, "x", 12, _mm256_set1_ps((float)j->n), _mm256_set1_ps(0.5f),
       _mm256_setzero_ps(), _mm256_fmadd_ps(s[k], a, w), _mm256_add_ps, _mm256_cvtss_f32(s[0]))
#endif

/* Best of some rounds, of fn on `n_threads` threads at once, each on its part; seconds, 0 when they
 * could not be started. Each is short, so that on a busy machine some run without being put aside.
 */
static double limit_time(int (*fn)(void *), struct limit_job *jobs, int n_threads)
{
    double best = 0;
    uint64_t begin_ns = clock_now_ns();
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (round >= ROUNDS_MIN && clock_now_ns() - begin_ns > ROUNDS_NS)
            break;
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
/* Steps of fn for a round of some milliseconds, at most STEPS_MAX. */
static size_t limit_steps(int (*fn)(void *), int n_threads)
{
    size_t n = STEPS_MIN;
    for (; n < STEPS_MAX; n *= 2) {
        struct limit_job job = {.n = n};
        uint64_t start_ns = timer_ns(n_threads);
        fn(&job);
        if (timer_ns(n_threads) - start_ns > ROUND_NS)
            break;
    }
    return n;
}

/* How often a second all threads together do a step of fn, in 10^9. */
static double steps_gps(int (*fn)(void *), int n_threads)
{
    struct limit_job jobs[BE_LIMITS_THREADS_MAX];
    size_t n = limit_steps(fn, n_threads);
    for (int i = 0; i < n_threads; i++)
        jobs[i] = (struct limit_job){.n = n};
    return per_s((double)n * n_threads, limit_time(fn, jobs, n_threads));
}
#endif

struct be_limits be_limits_measure(int n_threads, const char *isa)
{
    struct be_limits l = {0};
    struct limit_job jobs[BE_LIMITS_THREADS_MAX];
    size_t words = FROM_MEMORY_BYTES / 8;
    n_threads = n_threads < BE_LIMITS_THREADS_MAX ? n_threads : BE_LIMITS_THREADS_MAX;
    uint64_t *p = mem_alloc_aligned(MEM_HUGE_BYTES, words * 8);
    if (!p || n_threads < 1) {
        mem_free(p);
        return l;
    }
    mem_want_huge(p, words * 8); /* as the weights are */
    memset(p, 1, words * 8);
    size_t part = words / (size_t)n_threads / 8 * 8;
    for (int i = 0; i < n_threads; i++)
        jobs[i] = (struct limit_job){p + part * (size_t)i, part, 0};
    l.read_gbps = per_s(8.0 * (double)part * n_threads, limit_time(read_memory, jobs, n_threads));
#ifdef __x86_64__
    bool wide = strcmp(isa, "avx512") == 0;
    double lanes = wide ? 16 : 8;
    if (strcmp(isa, "scalar") != 0) { /* 4 bytes a lane, 2 ops each */
        l.dot_gops = 8 * lanes * steps_gps(wide ? dot_avx512 : dot_avx2, n_threads);
        l.fma_gflops = 2 * lanes * steps_gps(wide ? fma_avx512 : fma_avx2, n_threads);
    }
#endif
    mem_free(p);
    return l;
}
