/*
 * protocol/openai_completions.c - reads a text completion request by the table below and writes its
 * replies. Prompts are raw: special tokens in their text are recognised, no template is used. Any
 * thread; nothing here has state.
 */
#include "protocol/openai_completions.h"

#include "protocol/openai_fields.h"
#include "protocol/openai_write.h"

enum { MAX_TOKENS_DEFAULT = 16 }; /* as the protocol has it */

/* ---- fields ---- */

static t9_status prompt_wrong(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    return policy_wrong(c, f->name,
                        "a string, an array of strings, an array of token ids or an array of such "
                        "arrays",
                        v);
}

static t9_status prompt_item(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v,
                             struct chat_prompt *out)
{
    if (yyjson_is_str(v)) {
        out->text = json_str(v);
        return T9_STATUS_OK;
    }
    if (yyjson_is_arr(v) && yyjson_arr_size(v) > 0)
        return openai_token_array(c, f->name, v, out);
    return prompt_wrong(c, f, v);
}

static t9_status parse_prompt(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    bool is_list = yyjson_is_arr(v) && !yyjson_is_num(yyjson_arr_get_first(v));
    size_t n = is_list ? yyjson_arr_size(v) : 1, idx, max;
    yyjson_val *item;
    if (n < 1 || n > CHAT_CHOICES_MAX)
        return policy_wrong(c, f->name, "made of 1 to 128 prompts", v);
    struct chat_prompt *prompts = arena_calloc(&r->arena, n, sizeof *prompts);
    if (!prompts)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory for %zu prompts", n);
    if (!is_list)
        T9_TRY(prompt_item(c, f, v, &prompts[0]));
    yyjson_arr_foreach(is_list ? v : NULL, idx, max, item)
    {
        T9_TRY(prompt_item(c, f, item, &prompts[idx]));
    }
    r->prompts = prompts;
    r->n_prompts = n;
    return T9_STATUS_OK;
}

static t9_status parse_max_tokens(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(policy_i64(c, f, v));
    c->request->no_reply = c->request->max_tokens == 0;
    return T9_STATUS_OK;
}

static t9_status parse_suffix(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return policy_wrong(c, f->name, "a string", v);
    c->request->suffix = json_str(v);
    c->request->has_suffix = c->request->suffix.n > 0; /* clients send "" for none */
    return T9_STATUS_OK;
}

static t9_status parse_logprobs(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(policy_i32(c, f, v));
    c->request->logprobs = true;
    return T9_STATUS_OK;
}

const struct policy_field openai_completions_fields[] = {
    OPENAI_MODEL,
    HONOURED("prompt", parse_prompt,
             .schema = "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,"
                       "\"maxItems\":128,\"items\":{\"type\":\"string\"}},{\"type\":\"array\","
                       "\"minItems\":1,\"items\":{\"$ref\":\"#/components/schemas/Token\"}},"
                       "{\"type\":\"array\",\"minItems\":1,\"maxItems\":128,\"items\":{"
                       "\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":"
                       "\"#/components/schemas/Token\"}}}]}",
             .note =
                 "a string, strings, token ids or arrays of them; special tokens are recognised "
                 "in text, and no chat template is used"),
    HONOURED("suffix", parse_suffix, .schema = "{\"type\":\"string\"}",
             .note =
                 "the answer goes between prompt and suffix; refused when the vocabulary has no "
                 "fill-in-the-middle tokens; empty is none"),
    CLAMPED("max_tokens", parse_max_tokens, .min = 0, .max = 9007199254740991.0, MEMBER(max_tokens),
            .schema = "{\"type\":\"integer\",\"minimum\":0,\"maximum\":9007199254740991}",
            .note =
                "16 when absent; at most what fits the context beside the prompt; 0, with echo, "
                "gives the prompt alone"),
    HONOURED("echo", policy_bool, MEMBER(echo), .note = "the text begins with the prompt"),
    HONOURED("logprobs", parse_logprobs, .min = 0, .max = T9_TOP_LOGPROBS_MAX, MEMBER(n_top),
             .schema = "{\"type\":\"integer\",\"minimum\":0,\"maximum\":20}",
             .note = "log probabilities of each token and of so many likeliest ones, as the model "
                     "gave them; with echo of the prompt's too"),
    OPENAI_SAMPLING,
    OPENAI_ENDING,
    OPENAI_CHOICES,
    OPENAI_SENDING,
    REFUSED("best_of", openai_is_one, "n answers are given as they come"),
    REFUSED("response_format", NULL, "constrained output is not enforced yet"),
    OPENAI_NOT_HONOURED,
};
const size_t openai_completions_n_fields = T9_COUNT(openai_completions_fields);

static t9_status parse(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    out->max_tokens = MAX_TOKENS_DEFAULT;
    T9_TRY(openai_parse(body, strict, openai_completions_fields, openai_completions_n_fields, out,
                        err));
    if (out->n_prompts == 0)
        return openai_missing("prompt", err);
    if (out->no_reply && !out->echo)
        return chat_fail(err, T9_STATUS_INVALID, "max_tokens", "invalid_value",
                         "max_tokens is 0 without echo, so nothing would be answered");
    if (out->no_reply && out->min_tokens > 0)
        return chat_fail(err, T9_STATUS_INVALID, "min_tokens", "invalid_value",
                         "min_tokens is %d, and with max_tokens 0 none is generated",
                         out->min_tokens);
    if (out->echo && out->has_suffix)
        return chat_fail(err, T9_STATUS_INVALID, "echo", "invalid_value",
                         "echo and suffix do not go together");
    return T9_STATUS_OK;
}

/* ---- log probabilities ---- */

/* Both kinds of tokens of one choice, one after the other; either may be empty. */
struct tokens2 {
    const struct chat_tokens *part[2];
};

static const struct t9_logprob *row_of(const struct chat_tokens *t, int32_t i)
{
    return t->logprobs && !(t->is_prompt && i == 0)
               ? t->logprobs + (size_t)i * (size_t)(1 + t->n_top)
               : NULL;
}

static void write_tokens(const struct chat_reply *r, const struct chat_tokens *t, int32_t i,
                         struct buf *b)
{
    openai_write_token(r, t->ids[i], b);
}

static void write_token_logprob(const struct chat_reply *r, const struct chat_tokens *t, int32_t i,
                                struct buf *b)
{
    const struct t9_logprob *row = row_of(t, i);
    (void)r;
    if (row)
        openai_write_logprob(row[0].logprob, b);
    else
        buf_puts(b, "null");
}

/* Whether one of the n likeliest tokens has this one's text: as members they would be one, and the
 * likelier one is kept. */
static bool is_among(const struct chat_reply *r, const struct t9_logprob *row, int32_t n,
                     int32_t token)
{
    str piece = r->piece(r->piece_ctx, token);
    for (int32_t k = 1; k <= n && row[k].token >= 0; k++) {
        if (str_eq(r->piece(r->piece_ctx, row[k].token), piece))
            return true;
    }
    return false;
}

static void write_top_member(const struct chat_reply *r, const struct t9_logprob *l, bool first,
                             struct buf *b)
{
    if (!first)
        buf_putc(b, ',');
    openai_write_token(r, l->token, b);
    buf_putc(b, ':');
    openai_write_logprob(l->logprob, b);
}

/* The likeliest tokens, and the token itself where it is none of them. */
static void write_top(const struct chat_reply *r, const struct chat_tokens *t, int32_t i,
                      struct buf *b)
{
    const struct t9_logprob *row = row_of(t, i);
    if (!row) {
        buf_puts(b, "null");
        return;
    }
    buf_putc(b, '{');
    for (int32_t k = 1; k <= t->n_top && row[k].token >= 0; k++) {
        if (!is_among(r, row, k - 1, row[k].token))
            write_top_member(r, &row[k], k == 1, b);
    }
    if (!is_among(r, row, t->n_top, row[0].token))
        write_top_member(r, &row[0], row[1].token < 0, b);
    buf_putc(b, '}');
}

static void write_offset(const struct chat_reply *r, const struct chat_tokens *t, int32_t i,
                         struct buf *b)
{
    (void)r;
    buf_printf(b, "%u", t->starts_at + t->starts[i]);
}

typedef void (*write_item)(const struct chat_reply *r, const struct chat_tokens *t, int32_t i,
                           struct buf *b);

static void write_list(const struct chat_reply *r, const char *key, const struct tokens2 *t,
                       write_item item, struct buf *b)
{
    bool first = true;
    json_write_key(b, key);
    buf_putc(b, '[');
    for (int p = 0; p < 2; p++) {
        for (int32_t i = 0; i < t->part[p]->n; i++) {
            if (!first)
                buf_putc(b, ',');
            first = false;
            item(r, t->part[p], i, b);
        }
    }
    buf_putc(b, ']');
}

static void write_logprobs(const struct chat_reply *r, const struct tokens2 *t, struct buf *b)
{
    buf_puts(b, "\"logprobs\":");
    if (!r->request->logprobs) {
        buf_puts(b, "null");
        return;
    }
    buf_putc(b, '{');
    write_list(r, "tokens", t, write_tokens, b);
    buf_putc(b, ',');
    write_list(r, "token_logprobs", t, write_token_logprob, b);
    buf_putc(b, ',');
    if (r->request->n_top > 0)
        write_list(r, "top_logprobs", t, write_top, b);
    else
        buf_puts(b, "\"top_logprobs\":null");
    buf_putc(b, ',');
    write_list(r, "text_offset", t, write_offset, b);
    buf_putc(b, '}');
}

/* ---- replies ---- */

static void write_text(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    static const struct chat_tokens none = {0};
    struct tokens2 t = {{&none, &ev->tokens}};
    buf_puts(b, "data: ");
    openai_write_head(r, "text_completion", b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,", ev->choice);
    openai_member_str(b, "text", ev->text);
    buf_putc(b, ',');
    write_logprobs(r, &t, b);
    if (!ev->tokens.is_prompt)
        openai_write_token_ids(r, &ev->tokens, b);
    buf_puts(b, ",\"finish_reason\":null}]}\n\n");
}

static void write_finish(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    buf_puts(b, "data: ");
    openai_write_head(r, "text_completion", b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,\"text\":\"\",\"logprobs\":null,", ev->choice);
    openai_write_finish(ev->finish, ev->stop_token, b);
    buf_puts(b, "}]");
    if (ev->is_last) {
        openai_write_prompt_ids(r, b);
        buf_putc(b, ',');
        openai_write_extras(r, ev, b);
    }
    buf_puts(b, "}\n\n");
}

static void write_end(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    if (r->request->include_usage) {
        buf_puts(b, "data: ");
        openai_write_head(r, "text_completion", b);
        buf_puts(b, ",\"choices\":[],");
        openai_write_usage(&ev->usage, b);
        buf_puts(b, "}\n\n");
    }
    buf_puts(b, "data: [DONE]\n\n");
}

static void stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    switch (ev->kind) {
    case CHAT_EVENT_NONE:
    case CHAT_EVENT_BEGIN:
    case CHAT_EVENT_PROGRESS:
    case CHAT_EVENT_REASONING: /* a raw prompt's answer is text alone */
    case CHAT_EVENT_CALL:
    case CHAT_EVENT_ARGS:
    case CHAT_EVENT_CALL_END: break;
    case CHAT_EVENT_TEXT: write_text(r, ev, out); break;
    case CHAT_EVENT_FINISH: write_finish(r, ev, out); break;
    case CHAT_EVENT_END: write_end(r, ev, out); break;
    case CHAT_EVENT_ERROR: openai_write_stream_error(ev, out); break;
    }
}

static void write_choice(const struct chat_reply *r, const struct chat_choice *c, size_t index,
                         struct buf *b)
{
    struct tokens2 t = {{&c->prompt, &c->answer}};
    buf_printf(b, "{\"index\":%zu,", index);
    openai_member_str(b, "text", c->text);
    buf_putc(b, ',');
    write_logprobs(r, &t, b);
    openai_write_token_ids(r, &c->answer, b);
    buf_putc(b, ',');
    openai_write_finish(c->finish, c->stop_token, b);
    buf_putc(b, '}');
}

static void whole(const struct chat_reply *r, const struct chat_choice *choices, size_t n_choices,
                  const struct chat_event *end, struct buf *out)
{
    openai_write_whole(r, "text_completion", choices, n_choices, write_choice, end, out);
}

const struct chat_adapter openai_completions_adapter = {
    .name = "openai_completions",
    .path = "/v1/completions",
    .summary = "Goes on with a text.",
    .fields = openai_completions_fields,
    .n_fields = T9_COUNT(openai_completions_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/Completion\"}",
    .stream_type = "text/event-stream",
    .id_prefix = "cmpl-",
    .comment = ": keep-alive\n\n",
    .parse = parse,
    .stream = stream,
    .whole = whole,
};
