/*
 * protocol/layout.h - private to prep.c: the messages and tools of a request as JSON that the
 * library takes, in a form that the model's chat template can show. The same request gives the same
 * bytes. Any thread; nothing here has state.
 */
#ifndef T9_PROTOCOL_LAYOUT_H
#define T9_PROTOCOL_LAYOUT_H

#include "protocol/chat.h"

/* What the template can't do itself. */
struct layout_form {
    bool tell_tools;    /* tools become a text of the system */
    bool calls_text;    /* calls become text of the assistant, as the dialect generic_json reads */
    bool results_text;  /* results become messages of the user */
    int32_t id_letters; /* ids of calls must have so many letters and digits; 0: any */
};

void layout_messages(const struct chat_request *r, struct layout_form form, struct buf *out);
/* [{"type":"function","function":{"name":..,"description":..,"parameters":..}}, ...] */
void layout_tools(const struct chat_request *r, struct buf *out);

#endif
