/*
 * protocol/anthropic_impl.h - private to the anthropic_*.c files.
 */
#ifndef T9_PROTOCOL_ANTHROPIC_IMPL_H
#define T9_PROTOCOL_ANTHROPIC_IMPL_H

#include "protocol/anthropic.h"

#define ANTHROPIC_CALL_PREFIX "toolu_"

/* ---- anthropic_content.c ---- */
/* `system` goes with `messages`, whatever their order in the body: this one only checks. */
t9_status anthropic_system(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status anthropic_messages(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
/* How long a cache_control asks to keep what ends with it; 0: it is none. */
t9_status anthropic_cache_ms(struct policy_ctx *c, const char *where, yyjson_val *cache_control,
                             int64_t *out);

/* ---- anthropic_tools.c ---- */
t9_status anthropic_tools(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status anthropic_tool_choice(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
/* Warns that something which needs Anthropic's servers was left out; under --strict it is refused.
 * `why` is the end of a sentence; the second says it by the type of a tool or a block. */
t9_status anthropic_left_out(struct policy_ctx *c, const char *where, const char *why);
t9_status anthropic_hosted(struct policy_ctx *c, const char *where, yyjson_val *type);

/* ---- anthropic_write.c ---- */
/* What a thinking block is signed by: it tells whether its text came back as it went out, and keeps
 * nobody from signing another. Fed piece by piece, from a zeroed one. */
struct anthropic_seal {
    uint64_t hash, n_bytes;
};
#define ANTHROPIC_SIGNATURE_PREFIX "t9s1"
enum { ANTHROPIC_SIGNATURE_BYTES = 36 };
void anthropic_seal_add(struct anthropic_seal *s, str text);
str anthropic_seal_text(const struct anthropic_seal *s, char out[ANTHROPIC_SIGNATURE_BYTES + 1]);

void anthropic_stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out);
void anthropic_whole(const struct chat_reply *r, const struct chat_choice *choices,
                     size_t n_choices, const struct chat_event *end, struct buf *out);
/* ,"tempo9":{..}: warnings, with `seed` the seed, and a call that was cut off. Nothing at all where
 * there is nothing to say. */
void anthropic_write_extras(const struct chat_request *r, const uint64_t *seed,
                            const struct chat_part *cut_call, struct buf *b);
/* What the writer of a stream remembers. */
struct anthropic_state {
    int32_t index; /* of the block that is open, or of the next one */
    int open;      /* a chat_event_kind: TEXT, REASONING, CALL; NONE: none */
    bool has_args, wrapped;
    struct anthropic_seal seal;
};
#define ANTHROPIC_PING "event: ping\ndata: {\"type\":\"ping\"}\n\n"

#endif
