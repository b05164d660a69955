/*
 * tests/fuzz/protocol/openai_text_fuzz.c - any bytes as the body of the other requests:
 * completions, tokens, templates. Each is parsed or refused with a message; what was parsed keeps
 * its bounds.
 */
#include "base/mem.h"
#include "protocol/endpoints.h"
#include "protocol/openai_chat.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Within the ranges of tempo9.h; false for a NaN. */
static bool is_sampling(const struct t9_request_params *p)
{
    return p->temperature >= 0 && p->temperature <= 100 && p->top_p > 0 && p->top_p <= 1 &&
           p->min_p >= 0 && p->min_p <= 1 && p->top_k >= 0 && p->presence_penalty >= -2 &&
           p->presence_penalty <= 2 && p->frequency_penalty >= -2 && p->frequency_penalty <= 2 &&
           p->repetition_penalty > 0 && p->repetition_penalty <= 10;
}

static void check_parsed(const struct chat_request *r)
{
    uint64_t sum = 0;
    if (r->n < 1 || r->n_prompts > CHAT_CHOICES_MAX || r->n_top > T9_TOP_LOGPROBS_MAX ||
        r->n_stop_tokens > T9_STOP_IDS_MAX || r->sampling.n_bias > T9_BIAS_MAX ||
        !is_sampling(&r->sampling))
        abort();
    for (size_t i = 0; i < r->n_prompts; i++) {
        for (size_t k = 0; k < r->prompts[i].n_tokens; k++) {
            if (r->prompts[i].tokens[k] < 0)
                abort();
        }
        for (size_t k = 0; k < r->prompts[i].text.n; k++)
            sum += (unsigned char)r->prompts[i].text.p[k];
    }
    if (sum == UINT64_MAX)
        abort();
}

static void check_refused(const struct chat_error *e, t9_status s)
{
    struct buf b;
    yyjson_doc *doc = NULL;
    buf_init(&b, (size_t)1 << 16);
    openai_write_error(e, &b);
    if (e->err.msg[0] == 0 || t9_status_http(s) < 400 ||
        json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
        abort();
    yyjson_doc_free(doc);
    buf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat_request r;
    struct chat_error e = {0};
    /* The first byte chooses the request and strictness. */
    unsigned choice = size ? data[0] : 0;
    const struct chat_adapter *a = endpoints[(choice >> 1) % n_endpoints];
    str body = {(const char *)data + (size ? 1 : 0), size ? size - 1 : 0};
    chat_request_init(&r, (size_t)1 << 22);
    t9_status s = a->parse(body, choice & 1, &r, &e);
    if (s == T9_STATUS_OK)
        check_parsed(&r);
    else
        check_refused(&e, s);
    chat_request_deinit(&r);
    return 0;
}
