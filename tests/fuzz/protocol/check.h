/*
 * tests/fuzz/protocol/check.h - what every parser of a chat protocol is held to.
 */
#ifndef T9_FUZZ_PROTOCOL_CHECK_H
#define T9_FUZZ_PROTOCOL_CHECK_H

#include "protocol/adapter.h"

#include <stddef.h>
#include <stdint.h>

/* Any bytes as a body: it is parsed or refused with a message; what was parsed is a conversation
 * that the library reads, arranges and writes as a template's arguments, which must parse again.
 * The first byte chooses strictness and what the template takes. Aborts otherwise. */
void check_parser(const struct chat_adapter *a, const uint8_t *data, size_t size);

#endif
