/*
 * protocol/caller.c - see caller.h.
 */
#include "protocol/caller.h"

#include "base/hash.h"
#include "base/num.h"

enum { CLIENT_BYTES_MAX = 128 };

static t9_status wrong(const struct caller_header *h, const char *wanted, struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_INVALID, h->name, "invalid_value", "the header %s must be %s",
                     h->name, wanted);
}

static t9_status parse_priority(struct chat_caller *c, const struct caller_header *h, str value,
                                struct chat_error *err)
{
    int64_t v = 0;
    if (!num_parse_i64(value, &v) || v < -CHAT_PRIORITY_MAX || v > CHAT_PRIORITY_MAX)
        return wrong(h, "a whole number from -100 to 100", err);
    c->has_priority = true;
    c->priority = (int32_t)v;
    return T9_STATUS_OK;
}

static t9_status parse_timeout(struct chat_caller *c, const struct caller_header *h, str value,
                               struct chat_error *err)
{
    int64_t v = 0;
    if (!num_parse_i64(value, &v) || v < 1 || v > CHAT_QUEUE_TIMEOUT_MAX_MS)
        return wrong(h, "a whole number from 1 to 86400000", err);
    c->queue_timeout_ms = v;
    return T9_STATUS_OK;
}

/* 0 stands for nobody, so no name may have it. */
static uint64_t hash_name(str name, uint64_t seed)
{
    uint64_t h = hash_xxh3_64(name.p, name.n, seed);
    return h ? h : 1;
}

/* Under an API key it tells that key's users apart. */
static t9_status parse_client(struct chat_caller *c, const struct caller_header *h, str value,
                              struct chat_error *err)
{
    if (value.n == 0 || value.n > CLIENT_BYTES_MAX)
        return wrong(h, "a name of 1 to 128 bytes", err);
    c->client_key = hash_name(value, c->client_key);
    return T9_STATUS_OK;
}

const struct caller_header caller_headers[] = {
    {"x-tempo9-priority", parse_priority, "as the field priority, and wins over it"},
    {"x-tempo9-queue-timeout-ms", parse_timeout, "as the field queue_timeout_ms, and wins over it"},
    {"x-tempo9-client", parse_client,
     "who asks, for the limits of one client; without it the API key tells, else nothing does"},
};
const size_t caller_n_headers = T9_COUNT(caller_headers);

uint64_t caller_key(const char *api_key)
{
    return api_key ? hash_name(str_from(api_key), 0) : 0;
}

void caller_write(struct buf *b)
{
    for (size_t i = 0; i < caller_n_headers; i++) {
        buf_puts(b, i ? ",{" : "[{");
        json_write_key(b, "name");
        json_write_str(b, str_from(caller_headers[i].name));
        buf_putc(b, ',');
        json_write_key(b, "note");
        json_write_str(b, str_from(caller_headers[i].note));
        buf_putc(b, '}');
    }
    buf_putc(b, ']');
}
