/* base/clock.c - clocks by clock_gettime. Any thread, no state. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t clock_unix_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

void clock_sleep_ms(uint32_t ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / 1000;
    end.tv_nsec += (long)(ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
}

void clock_iso8601(char out[32])
{
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    if (!gmtime_r(&t.tv_sec, &tm)) {
        out[0] = 0;
        return;
    }
    char date[24];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 32, "%s.%03dZ", date, (int)(t.tv_nsec / 1000000));
}

void clock_format_utc(int64_t unix_s, char out[32])
{
    struct tm tm;
    time_t t = (time_t)unix_s;
    if (unix_s < 0 || unix_s > CLOCK_UNIX_S_MAX || !gmtime_r(&t, &tm) ||
        strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        out[0] = 0;
}
