/*
 * protocol/pin.h - private to run.c: how many tokens of a prompt a client's last mark covers. Any
 * thread; nothing here has state.
 */
#ifndef T9_PROTOCOL_PIN_H
#define T9_PROTOCOL_PIN_H

#include "protocol/prep.h"

/* As prep_tokens; where the request has a mark, also sets n_pin_tokens and pin_ms of its sampling.
 * A mark whose place can't be found is told as a warning. */
t9_status pin_prompt(const struct prep *p, struct chat_request *r, struct prep_ids *out,
                     struct chat_error *err);

#endif
