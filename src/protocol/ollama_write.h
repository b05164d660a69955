/*
 * protocol/ollama_write.h - private to the ollama_*.c files: pieces of replies. All append.
 */
#ifndef T9_PROTOCOL_OLLAMA_WRITE_H
#define T9_PROTOCOL_OLLAMA_WRITE_H

#include "protocol/ollama.h"
#include "protocol/openai_write.h"

/* {"model":..,"created_at":..  without the closing brace */
void ollama_write_head(const struct chat_reply *r, struct buf *b);
/* ,"logprobs":[..] where they are wanted and there are some */
void ollama_write_logprobs(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b);
/* ,"done":false}  and the line's end */
void ollama_write_more(struct buf *b);
/* ,"done":true,"done_reason":.. and the counts, durations and our own, and the closing brace */
void ollama_write_done(const struct chat_reply *r, t9_finish finish, const struct chat_event *end,
                       struct buf *b);
/* The line that ends a stream that broke off. */
void ollama_write_stream_error(const struct chat_event *ev, struct buf *b);
/* The whole reply to a request to load the model; `empty` is the member of an answer's text. */
void ollama_write_loaded(const struct prep *p, const char *empty, const struct chat_request *r,
                         struct buf *b);

#endif
