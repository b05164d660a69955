/*
 * protocol/sealed.h - reasoning as an opaque text that a client keeps and sends back with the
 * history. It is no secret: the seal tells ours from others' and from what was damaged. Any thread.
 */
#ifndef T9_PROTOCOL_SEALED_H
#define T9_PROTOCOL_SEALED_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>

/* Appends letters, digits, '-' and '_'. */
void sealed_write(str text, struct buf *out);
/* The text, made in the arena. False when `sealed` is not ours, is damaged, or memory ended. */
bool sealed_read(str sealed, struct arena *arena, str *out);

#endif
