/*
 * protocol/models.c - see models.h.
 */
#include "protocol/models.h"

#include "base/clock.h"
#include "protocol/caller.h"
#include "protocol/endpoints.h"

static void member_str(struct buf *b, const char *key, const char *v)
{
    json_write_key(b, key);
    json_write_str(b, str_from(v));
}

static void member_bool(struct buf *b, const char *key, bool v)
{
    json_write_key(b, key);
    json_write_bool(b, v);
}

static void write_model(const struct prep *p, str id, int64_t created_s, struct buf *out)
{
    const struct prep_params *q = prep_params_of(p);
    buf_puts(out, "{\"id\":");
    json_write_str(out, id);
    buf_puts(out, ",\"object\":\"model\",\"created\":");
    json_write_i64(out, created_s);
    buf_puts(out, ",\"owned_by\":\"tempo9\"");
    if (q->engine) {
        buf_puts(out, ",\"max_model_len\":");
        json_write_i64(out, prep_max_length(p));
    }
    buf_putc(out, '}');
}

static void write_anthropic_model(const struct prep *p, str id, int64_t created_s, struct buf *out)
{
    char created[32];
    clock_format_utc(created_s, created);
    buf_puts(out, "{\"type\":\"model\",\"id\":");
    json_write_str(out, id);
    buf_puts(out, ",\"display_name\":");
    json_write_str(out, id);
    buf_putc(out, ',');
    member_str(out, "created_at", created);
    if (prep_params_of(p)->engine)
        buf_printf(out, ",\"max_input_tokens\":%d,\"max_tokens\":%d", prep_max_length(p),
                   prep_max_length(p));
    buf_puts(out, ",\"lifecycle\":\"active\"}");
}

static void write_model_as(const struct prep *p, str id, int64_t created_s, models_form form,
                           struct buf *out)
{
    if (form == MODELS_FORM_ANTHROPIC)
        write_anthropic_model(p, id, created_s, out);
    else
        write_model(p, id, created_s, out);
}

void models_write_list(const struct prep *p, int64_t created_s, models_form form, struct buf *out)
{
    const struct prep_params *q = prep_params_of(p);
    bool anthropic = form == MODELS_FORM_ANTHROPIC;
    buf_puts(out, anthropic ? "{\"data\":[" : "{\"object\":\"list\",\"data\":[");
    write_model_as(p, str_from(q->model_name), created_s, form, out);
    for (size_t i = 0; i < q->n_aliases; i++) {
        buf_putc(out, ',');
        write_model_as(p, str_from(q->aliases[i]), created_s, form, out);
    }
    buf_putc(out, ']');
    if (anthropic) {
        const char *last = q->n_aliases ? q->aliases[q->n_aliases - 1] : q->model_name;
        buf_puts(out, ",\"has_more\":false,");
        member_str(out, "first_id", q->model_name);
        buf_putc(out, ',');
        member_str(out, "last_id", last);
    }
    buf_putc(out, '}');
}

bool models_write_one(const struct prep *p, str id, int64_t created_s, models_form form,
                      struct buf *out)
{
    const struct prep_params *q = prep_params_of(p);
    bool known = str_eqz(id, q->model_name);
    for (size_t i = 0; i < q->n_aliases && !known; i++)
        known = str_eqz(id, q->aliases[i]);
    if (known)
        write_model_as(p, id, created_s, form, out);
    return known;
}

static void write_protocol(const struct chat_adapter *a, bool strict, struct buf *out)
{
    json_write_key(out, a->name);
    buf_putc(out, '{');
    member_str(out, "path", a->path);
    buf_putc(out, ',');
    member_str(out, "unknown_fields", strict ? "refused" : "ignored with a warning");
    buf_puts(out, ",\"headers\":");
    if (!a->whole)
        buf_puts(out, "[]");
    else
        caller_write(out);
    buf_puts(out, ",\"fields\":");
    policy_write(out, a->fields, a->n_fields);
    buf_putc(out, '}');
}

/* What holds where a request says nothing. */
static void write_sampling(const struct t9_request_params *p, struct buf *out)
{
    const struct {
        const char *name;
        float v;
    } members[] = {{"temperature", p->temperature},
                   {"top_p", p->top_p},
                   {"top_k", (float)p->top_k},
                   {"min_p", p->min_p},
                   {"presence_penalty", p->presence_penalty},
                   {"frequency_penalty", p->frequency_penalty},
                   {"repetition_penalty", p->repetition_penalty}};
    buf_puts(out, ",\"sampling_defaults\":{");
    for (size_t i = 0; i < T9_COUNT(members); i++)
        buf_printf(out, "%s\"%s\":%.7g", i ? "," : "", members[i].name, (double)members[i].v);
    buf_putc(out, '}');
}

static void write_template_tools(const struct t9_template_tools *t, struct buf *out)
{
    member_bool(out, "tools", t->tools);
    buf_putc(out, ',');
    member_bool(out, "tool_calls", t->calls);
    buf_putc(out, ',');
    member_bool(out, "tool_results", t->results);
    buf_putc(out, ',');
    member_bool(out, "reasoning_with_calls", t->reasoning);
}

void capabilities_write(const struct prep *p, const struct capabilities *c, struct buf *out)
{
    const struct prep_params *q = prep_params_of(p);
    const struct prep_info *i = prep_info(p);
    const struct t9_template_info *t = &i->model.chat_template;
    buf_puts(out, "{\"server\":{\"name\":\"tempo9\",");
    member_str(out, "version", c->version);
    buf_putc(out, ',');
    member_str(out, "build", c->build_id);
    buf_puts(out, "},\"numerics\":{");
    member_str(out, "id", c->numerics_id);
    buf_putc(out, ',');
    member_bool(out, "invariant", c->invariant);
    buf_puts(out, "},\"model\":{");
    member_str(out, "id", q->model_name);
    buf_puts(out, ",\"max_length\":");
    json_write_i64(out, prep_max_length(p));
    buf_puts(out, ",\"template\":{");
    json_write_key(out, "source");
    buf_puts(out, t->present ? "\"model\"" : t->chatml_fallback ? "\"chatml\"" : "null");
    buf_putc(out, ',');
    member_bool(out, "system", t->system);
    buf_putc(out, ',');
    member_bool(out, "later_system", t->later_system);
    buf_putc(out, ',');
    member_bool(out, "user_twice", t->user_twice);
    buf_putc(out, ',');
    member_bool(out, "enable_thinking", i->thinking_switch);
    buf_putc(out, ',');
    member_bool(out, "reasoning_effort", i->effort_switch);
    buf_putc(out, ',');
    write_template_tools(&i->model.template_tools, out);
    buf_puts(out, "},");
    member_str(out, "dialect", i->dialect->name);
    buf_putc(out, ',');
    member_bool(out, "fill_in_middle", i->fill_in_middle);
    write_sampling(&q->sampling, out);
    buf_puts(out, "},");
    member_bool(out, "strict", q->strict);
    buf_puts(out, ",\"protocols\":{");
    for (size_t k = 0; k < n_endpoints; k++) {
        if (k)
            buf_putc(out, ',');
        write_protocol(endpoints[k], q->strict, out);
    }
    buf_puts(out, "}}");
}
