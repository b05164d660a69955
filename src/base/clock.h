/* base/clock.h - monotonic and wall clocks. Any thread. */
#ifndef T9_BASE_CLOCK_H
#define T9_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* The last second of the year 9999, since 1970. */
#define CLOCK_UNIX_S_MAX ((int64_t)253402300799)

uint64_t clock_now_ns(void);      /* monotonic */
int64_t clock_unix_s(void);       /* seconds since 1970 */
void clock_sleep_ms(uint32_t ms); /* at least that long, EINTR ignored */
/* "2026-11-29T09:05:07.123Z" */
void clock_iso8601(char out[32]);
/* Seconds since 1970 as "2026-11-29T09:05:07Z"; "" beyond the years that have four digits. */
void clock_format_utc(int64_t unix_s, char out[32]);

#endif
