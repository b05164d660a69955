/*
 * http/watch.h - notices that a client hung up while its connection is suspended, when the HTTP
 * library does not look at the socket.
 *
 * It watches a duplicate of each socket in an epoll of its own for the peer's shutdown only, never
 * for data. A client that shuts down its sending side after the request counts as gone too. One
 * thread; add and remove from any.
 */
#ifndef T9_HTTP_WATCH_H
#define T9_HTTP_WATCH_H

#include "base/err.h"

#include <stdint.h>

struct watch;

/* `gone(item)` runs on the watcher's thread, at most once per watch_add, with the watcher's lock
 * held: it must be short and must not call back. */
t9_status watch_new(struct watch **out, void (*gone)(void *item), struct t9_err *err);
void watch_free(struct watch *w); /* NULL allowed; nothing may be watched any more */
/* Watches `fd` (duplicated) for `item`. Returns an id, or -1 when it can't be watched. */
int64_t watch_add(struct watch *w, int fd, void *item);
/* Accepts -1. When it returns, `gone` is not running for this id and will not be called. */
void watch_remove(struct watch *w, int64_t id);

#endif
