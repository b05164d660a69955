/*
 * cli/notify.h - tells the service manager what this process is doing: one datagram of NAME=value
 * lines to the socket that it named. Nothing happens where there is no service manager. Main
 * thread.
 */
#ifndef T9_CLI_NOTIFY_H
#define T9_CLI_NOTIFY_H

#include <stdbool.h>

/* `socket_path` as NOTIFY_SOCKET has it, NULL for none: a path, or '@' and an abstract name.
 * Whether it was sent; nobody waits for the manager. */
bool notify_send(const char *socket_path, const char *lines);

#endif
