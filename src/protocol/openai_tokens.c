/*
 * protocol/openai_tokens.c - /tokenize, /detokenize and /apply-template: fields, answers. Any
 * thread; nothing here has state.
 */
#include "protocol/openai_tokens.h"

#include "protocol/openai_fields.h"
#include "protocol/openai_write.h"
#include "protocol/prep.h"

/* ---- fields ---- */

static t9_status parse_text(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    if (!yyjson_is_str(v))
        return policy_wrong(c, f->name, "a string", v);
    struct chat_prompt *prompt = arena_calloc(&r->arena, 1, sizeof *prompt);
    if (!prompt)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory");
    prompt->text = json_str(v);
    r->prompts = prompt;
    r->n_prompts = 1;
    return T9_STATUS_OK;
}

static t9_status parse_tokens(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of token ids", v);
    struct chat_prompt *prompt = arena_calloc(&r->arena, 1, sizeof *prompt);
    if (!prompt)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory");
    r->prompts = prompt;
    r->n_prompts = 1;
    return openai_token_array(c, f->name, v, prompt);
}

static t9_status parse_parse_special(struct policy_ctx *c, const struct policy_field *f,
                                     yyjson_val *v)
{
    if (!yyjson_is_bool(v))
        return policy_wrong(c, f->name, "true or false", v);
    c->request->no_parse_special = yyjson_is_false(v);
    return T9_STATUS_OK;
}

#define TEXT(n, why, other)                                                                        \
    HONOURED(n, parse_text, .schema = "{\"type\":\"string\"}", .note = (why), .same_as = (other))

static const struct policy_field tokenize_fields[] = {
    OPENAI_MODEL,
    TEXT("prompt", "the text", NULL),
    TEXT("content", "as prompt", "prompt"),
    OPENAI_MESSAGES,
    OPENAI_TOOLS,
    OPENAI_TEMPLATE,
    HONOURED("add_special_tokens", policy_bool, MEMBER(add_special),
             .note = "whether BOS goes first where the model wants it (true); not with messages"),
    HONOURED("add_special", policy_bool, MEMBER(add_special), .same_as = "add_special_tokens",
             .note = "as add_special_tokens"),
    HONOURED("parse_special", parse_parse_special, .schema = "{\"type\":\"boolean\"}",
             .note = "whether special tokens are recognised in the text (true)"),
    HONOURED("return_token_strs", policy_bool, MEMBER(with_pieces),
             .note = "the reply has token_strs, the text of each token"),
    HONOURED("with_pieces", policy_bool, MEMBER(with_pieces), .same_as = "return_token_strs",
             .note = "as return_token_strs"),
};

static const struct policy_field detokenize_fields[] = {
    OPENAI_MODEL,
    HONOURED("tokens", parse_tokens,
             .schema = "{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Token\"}}",
             .note = "token ids"),
    HONOURED("skip_special_tokens", policy_bool, MEMBER(hide_special),
             .note = "whether special tokens are left out of the text (false)"),
};

static const struct policy_field apply_template_fields[] = {
    OPENAI_MODEL,
    OPENAI_MESSAGES,
    OPENAI_TOOLS,
    OPENAI_TEMPLATE,
};

static t9_status parse_tokenize(str body, bool strict, struct chat_request *out,
                                struct chat_error *err)
{
    T9_TRY(openai_parse(body, strict, tokenize_fields, T9_COUNT(tokenize_fields), out, err));
    if (out->n_prompts == 0 && out->n_messages == 0)
        return openai_missing("prompt", err);
    if (out->n_prompts > 0 && out->n_messages > 0)
        return chat_fail(err, T9_STATUS_INVALID, "messages", "invalid_value",
                         "prompt and messages do not go together");
    return T9_STATUS_OK;
}

static t9_status parse_detokenize(str body, bool strict, struct chat_request *out,
                                  struct chat_error *err)
{
    T9_TRY(openai_parse(body, strict, detokenize_fields, T9_COUNT(detokenize_fields), out, err));
    return out->n_prompts == 0 ? openai_missing("tokens", err) : T9_STATUS_OK;
}

static t9_status parse_apply_template(str body, bool strict, struct chat_request *out,
                                      struct chat_error *err)
{
    T9_TRY(openai_parse(body, strict, apply_template_fields, T9_COUNT(apply_template_fields), out,
                        err));
    return out->n_messages == 0 ? openai_missing("messages", err) : T9_STATUS_OK;
}

/* ---- answers ---- */

static void write_end(const struct chat_request *r, struct buf *b)
{
    openai_write_warnings(r, b);
    buf_putc(b, '}');
}

static str piece_of(const void *prep, int32_t id)
{
    return prep_piece(prep, id);
}

static void write_pieces(const struct prep *p, const struct prep_ids *ids, struct buf *out)
{
    struct chat_reply reply = {.piece = piece_of, .piece_ctx = p};
    buf_puts(out, ",\"token_strs\":[");
    for (size_t i = 0; i < ids->n; i++) {
        if (i)
            buf_putc(out, ',');
        openai_write_token(&reply, ids->p[i], out);
    }
    buf_putc(out, ']');
}

static t9_status answer_tokenize(const struct prep *p, struct chat_request *r, struct buf *out,
                                 struct chat_error *err)
{
    struct prep_ids ids;
    t9_status s = r->n_messages ? prep_tokens(p, r, &ids, err)
                                : prep_tokenize(p, r, r->prompts[0].text, &ids, err);
    if (s == T9_STATUS_OK) {
        buf_printf(out, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":", ids.n,
                   prep_max_length(p));
        openai_write_ids(ids.p, ids.n, out);
        if (r->with_pieces)
            write_pieces(p, &ids, out);
        write_end(r, out);
    }
    prep_ids_deinit(&ids);
    return s;
}

static t9_status answer_detokenize(const struct prep *p, struct chat_request *r, struct buf *out,
                                   struct chat_error *err)
{
    struct buf text;
    buf_init(&text, (size_t)256 << 20);
    t9_status s = prep_detokenize(p, &r->prompts[0], !r->hide_special, &text, err);
    if (s == T9_STATUS_OK) {
        out->failed |= text.failed;
        buf_putc(out, '{');
        openai_member_str(out, "prompt", buf_str(&text));
        buf_putc(out, ',');
        openai_member_str(out, "content", buf_str(&text));
        write_end(r, out);
    }
    buf_deinit(&text);
    return s;
}

static t9_status answer_apply_template(const struct prep *p, struct chat_request *r,
                                       struct buf *out, struct chat_error *err)
{
    struct buf text;
    buf_init(&text, (size_t)256 << 20);
    t9_status s = prep_render(p, r, &text, err);
    if (s == T9_STATUS_OK) {
        out->failed |= text.failed;
        buf_putc(out, '{');
        openai_member_str(out, "prompt", buf_str(&text));
        write_end(r, out);
    }
    buf_deinit(&text);
    return s;
}

const struct chat_adapter tokenize_adapter = {
    .name = "tokenize",
    .path = "/tokenize",
    .summary = "Text, or messages laid out by the chat template, to tokens.",
    .fields = tokenize_fields,
    .n_fields = T9_COUNT(tokenize_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/Tokens\"}",
    .id_prefix = "",
    .parse = parse_tokenize,
    .answer = answer_tokenize,
};

const struct chat_adapter detokenize_adapter = {
    .name = "detokenize",
    .path = "/detokenize",
    .summary = "Tokens to text.",
    .fields = detokenize_fields,
    .n_fields = T9_COUNT(detokenize_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/Text\"}",
    .id_prefix = "",
    .parse = parse_detokenize,
    .answer = answer_detokenize,
};

const struct chat_adapter apply_template_adapter = {
    .name = "apply_template",
    .path = "/apply-template",
    .summary = "Messages to the text that the chat template makes of them.",
    .fields = apply_template_fields,
    .n_fields = T9_COUNT(apply_template_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/Text\"}",
    .id_prefix = "",
    .parse = parse_apply_template,
    .answer = answer_apply_template,
};
