/*
 * protocol/ollama_generate.c - POST /api/generate: one prompt, laid out as a user's message, with a
 * suffix as a text with a hole, or taken as it is (raw). Any thread; nothing here has state.
 *
 * `context` is the tokens of an earlier call and its answer: they go in front of the new ones, so
 * that they need not be computed again.
 */
#include "protocol/ollama_fields.h"
#include "protocol/ollama_write.h"

/* ---- fields ---- */

static t9_status parse_text(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    return yyjson_is_str(v) ? T9_STATUS_OK : policy_wrong(c, f->name, "a string", v);
}

static t9_status parse_flag(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    return yyjson_is_bool(v) ? T9_STATUS_OK : policy_wrong(c, f->name, "true or false", v);
}

static t9_status parse_suffix(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(parse_text(c, f, v));
    c->request->suffix = json_str(v);
    c->request->has_suffix = c->request->suffix.n > 0; /* clients send "" for none */
    return T9_STATUS_OK;
}

static t9_status parse_context(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of token ids", v);
    return openai_token_array(c, f->name, v, &c->request->before);
}

#define TEXT(n, why) HONOURED(n, parse_text, .schema = "{\"type\":\"string\"}", .note = (why))

static const struct policy_field fields[] = {
    OLLAMA_MODEL,
    TEXT("prompt", "the user's message, or with suffix or raw the text itself; empty: the model is "
                   "loaded, which it is"),
    TEXT("system", "the system's message before it; not with raw or suffix"),
    HONOURED("suffix", parse_suffix, .schema = "{\"type\":\"string\"}",
             .note =
                 "the answer goes between prompt and suffix; refused when the vocabulary has no "
                 "fill-in-the-middle tokens; empty is none"),
    HONOURED("raw", parse_flag, .schema = "{\"type\":\"boolean\"}",
             .note = "the prompt is taken as it is, its special tokens recognised; the answer is "
                     "text alone, without a context"),
    HONOURED("context", parse_context,
             .schema = "{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Token\"}}",
             .note = "of an earlier reply: its conversation goes on; not with raw or suffix"),
    OLLAMA_THINKING,
    OLLAMA_SENDING,
    OLLAMA_OPTIONS,
    REFUSED("template", policy_is_empty,
            "the model's own chat template is used; raw takes a prompt "
            "that you have laid out yourself"),
    REFUSED("images", policy_is_empty, "this model takes text only"),
    REFUSED("width", NULL, "no images are made"),
    REFUSED("height", NULL, "no images are made"),
    REFUSED("steps", NULL, "no images are made"),
    OLLAMA_NOT_HONOURED,
};

static t9_status not_with(const char *name, const char *other, struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_INVALID, name, "invalid_value", "%s does not go with %s", name,
                     other);
}

static t9_status no_memory(struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_NOMEM, "prompt", NULL, "no memory for a prompt");
}

/* The text itself. */
static t9_status take_raw(struct chat_request *r, str prompt, str system, bool raw,
                          struct chat_error *err)
{
    const char *why = raw ? "raw" : "suffix";
    struct chat_prompt *p = arena_calloc(&r->arena, 1, sizeof *p);
    if (r->before.n_tokens)
        return not_with("context", why, err);
    if (system.n)
        return not_with("system", why, err);
    if (raw && r->has_suffix)
        return not_with("suffix", why, err);
    if (!p)
        return no_memory(err);
    p->text = prompt;
    r->prompts = p;
    r->n_prompts = 1;
    return T9_STATUS_OK;
}

static t9_status take_messages(struct chat_request *r, str prompt, str system,
                               struct chat_error *err)
{
    r->messages = arena_calloc(&r->arena, 2, sizeof *r->messages);
    if (!r->messages)
        return no_memory(err);
    if (system.n)
        r->messages[r->n_messages++] =
            (struct chat_message){.role = CHAT_ROLE_SYSTEM, .content = system, .has_content = true};
    r->messages[r->n_messages++] =
        (struct chat_message){.role = CHAT_ROLE_USER, .content = prompt, .has_content = true};
    return T9_STATUS_OK;
}

static t9_status parse(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    out->prompt_field = "prompt";
    T9_TRY(ollama_parse(body, strict, fields, T9_COUNT(fields), out, err));
    yyjson_val *root = yyjson_doc_get_root(out->doc);
    str prompt = json_str(json_get(root, "prompt")), system = json_str(json_get(root, "system"));
    bool raw = yyjson_is_true(json_get(root, "raw"));
    if (prompt.n == 0 && !out->has_suffix)
        return ollama_load(out, err);
    out->token_ids = !raw; /* for the reply's context */
    return raw || out->has_suffix ? take_raw(out, prompt, system, raw, err)
                                  : take_messages(out, prompt, system, err);
}

static t9_status answer(const struct prep *p, struct chat_request *r, struct buf *out,
                        struct chat_error *err)
{
    (void)err;
    ollama_write_loaded(p, "\"response\":\"\"", r, out);
    return T9_STATUS_OK;
}

/* ---- replies ---- */

static void open_response(const struct chat_reply *r, str text, str thinking, struct buf *b)
{
    ollama_write_head(r, b);
    buf_putc(b, ',');
    openai_member_str(b, "response", text);
    if (thinking.n == 0)
        return;
    buf_putc(b, ',');
    openai_member_str(b, "thinking", thinking);
}

static void write_id(int32_t id, struct buf *b)
{
    buf_printf(b, "%s%d", b->n && b->p[b->n - 1] == '[' ? "" : ",", id);
}

/* The whole conversation so far, with what ended the answer: the next turn begins after it. */
static void write_context(const struct chat_reply *r, const struct chat_choice *c, struct buf *b)
{
    if (!r->request->token_ids)
        return;
    buf_puts(b, ",\"context\":[");
    for (size_t i = 0; i < r->n_prompt_ids; i++)
        write_id(r->prompt_ids[i], b);
    for (int32_t i = 0; i < c->answer.n; i++)
        write_id(c->answer.ids[i], b);
    if (c->end_token >= 0)
        write_id(c->end_token, b);
    buf_putc(b, ']');
}

static void write_end(const struct chat_reply *r, const struct chat_choice *c,
                      const struct chat_event *end, struct buf *b)
{
    write_context(r, c, b);
    ollama_write_done(r, c->finish, end, b);
}

static void write_text(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    bool thinking = ev->kind == CHAT_EVENT_REASONING;
    open_response(r, thinking ? STR("") : ev->text, thinking ? ev->text : STR(""), b);
    ollama_write_logprobs(r, &ev->tokens, b);
    ollama_write_more(b);
}

static void stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    switch (ev->kind) {
    case CHAT_EVENT_NONE:
    case CHAT_EVENT_BEGIN:
    case CHAT_EVENT_PROGRESS:
    case CHAT_EVENT_CALL: /* there are no tools */
    case CHAT_EVENT_ARGS:
    case CHAT_EVENT_CALL_END:
    case CHAT_EVENT_FINISH: break;
    case CHAT_EVENT_TEXT:
    case CHAT_EVENT_REASONING: write_text(r, ev, out); break;
    case CHAT_EVENT_END:
        open_response(r, STR(""), STR(""), out);
        write_end(r, &ev->choices[0], ev, out);
        buf_putc(out, '\n');
        break;
    case CHAT_EVENT_ERROR: ollama_write_stream_error(ev, out); break;
    }
}

static void whole(const struct chat_reply *r, const struct chat_choice *choices, size_t n_choices,
                  const struct chat_event *end, struct buf *out)
{
    (void)n_choices;
    open_response(r, choices[0].text, choices[0].reasoning, out);
    ollama_write_logprobs(r, &choices[0].answer, out);
    write_end(r, &choices[0], end, out);
}

const struct chat_adapter ollama_generate_adapter = {
    .name = "ollama_generate",
    .path = "/api/generate",
    .summary = "Answers a prompt, as Ollama does.",
    .fields = fields,
    .n_fields = T9_COUNT(fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/OllamaGenerate\"}",
    .error_schema = "{\"$ref\":\"#/components/schemas/OllamaError\"}",
    .stream_type = "application/x-ndjson",
    .id_prefix = "ollama-",
    .comment = "{\"response\":\"\",\"done\":false}\n",
    .keeps_choices = true,
    .parse = parse,
    .answer = answer,
    .error = ollama_error,
    .stream = stream,
    .whole = whole,
};
