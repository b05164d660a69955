/*
 * tests/run/scripted_server.c - the true HTTP server and protocols over an engine that answers by a
 * script, for tests with clients that are not ours.
 *
 *   scripted_server --script FILE [--template FILE] [--form NAME] [--port N] [--max-length N]
 *
 * The model writes as the chat template says: its dialect is chosen as for any model, its tokens
 * are bytes. `--form` names another of that dialect's forms (tests/lib/dialect_forms.c). Tokens
 * that an earlier prompt began with are told as cached.
 *
 * The script is a JSON array of rules; the first that fits a prompt answers it:
 *
 *   {"when": TEXT, "times": N, "text": TEXT, "calls": [{"name": NAME, "arguments": OBJECT}]}
 *
 * `when`: the prompt contains it; absent: any prompt. `times`: how often it answers at most; absent
 * or 0: always. The answer is `text`, then the calls in the model's form; where the prompt leaves
 * reasoning open it reasons first. A prompt that no rule fits is told so, here and on stderr.
 *
 * The line "listening on http://127.0.0.1:PORT" comes on stderr; SIGTERM and SIGINT end it.
 */
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "http/server.h"
#include "lib/byte_tokenizer.h"
#include "lib/dialect_forms.h"
#include "lib/scripted_engine.h"
#include "protocol/tools/dialect.h"
#include "sdk/internal.h"
#include "template/template.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)

enum { RULES_MAX = 8192, CALLS_MAX = 64 };

struct rule {
    str when, text;
    yyjson_val *calls;
    uint64_t times, used;
};

struct script {
    struct buf source;
    yyjson_doc *doc;
    struct rule rules[RULES_MAX];
    size_t n_rules;
    const struct dialect *dialect;
    const struct dialect_form *form;
    uint64_t seed;
    struct buf prompt, answer, tokens; /* of the newest request */
};

static t9_status script_read(struct script *s, const char *path, struct t9_err *err)
{
    yyjson_val *rule;
    size_t i, n;
    buf_init(&s->source, TEXT_BYTES_MAX);
    buf_init(&s->prompt, TEXT_BYTES_MAX);
    buf_init(&s->answer, TEXT_BYTES_MAX);
    buf_init(&s->tokens, TEXT_BYTES_MAX);
    if (file_read_all(path, &s->source, err) != T9_STATUS_OK ||
        json_parse(&s->doc, buf_str(&s->source), JSON_LIMITS_REQUEST, err) != T9_STATUS_OK)
        return err->code;
    yyjson_arr_foreach(yyjson_doc_get_root(s->doc), i, n, rule)
    {
        if (s->n_rules == RULES_MAX)
            return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: more than %d rules", path, RULES_MAX);
        s->rules[s->n_rules++] = (struct rule){.when = json_str(json_get(rule, "when")),
                                               .text = json_str(json_get(rule, "text")),
                                               .calls = json_get(rule, "calls"),
                                               .times = yyjson_get_uint(json_get(rule, "times"))};
    }
    if (s->n_rules == 0)
        return t9_fail(err, T9_STATUS_INVALID, "%s: no array of rules", path);
    return T9_STATUS_OK;
}

static void script_free(struct script *s)
{
    yyjson_doc_free(s->doc);
    buf_deinit(&s->source);
    buf_deinit(&s->prompt);
    buf_deinit(&s->answer);
    buf_deinit(&s->tokens);
}

/* ---- answers ---- */

static struct rule *fitting_rule(struct script *s)
{
    for (size_t i = 0; i < s->n_rules; i++) {
        struct rule *r = &s->rules[i];
        if ((r->times == 0 || r->used < r->times) &&
            (r->when.n == 0 || str_find(buf_str(&s->prompt), r->when, 0) != (size_t)-1)) {
            r->used++;
            return r;
        }
    }
    return NULL;
}

/* Whether the prompt leaves the answer inside of reasoning. */
static bool reasoning_is_open(const struct script *s)
{
    const struct dialect *d = s->dialect;
    str prompt = str_trim(buf_str(&s->prompt));
    return d->think_open &&
           (d->starts_in_reasoning || str_has_suffix(prompt, str_from(d->think_open)));
}

static void write_calls(struct script *s, yyjson_val *calls)
{
    struct dialect_call list[CALLS_MAX];
    size_t i, n, n_list = 0;
    yyjson_val *call;
    yyjson_arr_foreach(calls, i, n, call)
    {
        if (n_list < CALLS_MAX)
            list[n_list++] = (struct dialect_call){json_str(json_get(call, "name")),
                                                   json_get(call, "arguments")};
    }
    if (n_list)
        s->form->write(&s->answer, list, n_list, &s->seed);
}

static int32_t answer(void *ctx, const struct request *r, const int32_t **tokens)
{
    struct script *s = ctx;
    buf_clear(&s->prompt);
    buf_clear(&s->answer);
    buf_clear(&s->tokens);
    for (int32_t i = 0; i < r->n_prompt; i++)
        buf_puts_str(&s->prompt, tokenizer_piece(byte_tokenizer(true), r->prompt[i]));
    struct rule *rule = r->prompt_only ? NULL : fitting_rule(s);
    if (reasoning_is_open(s))
        buf_printf(&s->answer, "Hm.\n%s\n\n", s->dialect->think_close);
    if (rule) {
        buf_puts_str(&s->answer, rule->text);
        write_calls(s, rule->calls);
    } else {
        buf_puts(&s->answer, "No rule of the script fits this prompt.");
        if (!r->prompt_only)
            LOG_WARN("script", "no rule fits a prompt of %d tokens", r->n_prompt);
    }
    for (size_t i = 0; i < s->answer.n; i++) {
        int32_t token = (unsigned char)s->answer.p[i];
        buf_append(&s->tokens, &token, sizeof token);
    }
    *tokens = (const int32_t *)(const void *)s->tokens.p;
    return (int32_t)s->answer.n;
}

/* ---- the server ---- */

struct options {
    const char *script, *template_path, *form;
    uint64_t port, max_length;
};

struct parts {
    struct script script;
    struct buf template_source;
    struct jinja_template *template;
    t9_model *model;
    struct engine *engine;
    t9_engine *wrapped;
    struct http_server *server;
};

static t9_status choose_form(struct script *s, const t9_model *m, const char *name,
                             struct t9_err *err)
{
    struct dialect_model known = {0};
    known.chat_template.p = t9_template_source(m, &known.chat_template.n);
    s->dialect = dialect_choose(&known);
    s->form = dialect_form_find(str_from(name ? name : s->dialect->name));
    if (!s->form)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "no form %s", name ? name : s->dialect->name);
    if (!str_eqz(str_from(dialect_form_dialect(s->form)), s->dialect->name))
        return t9_fail(err, T9_STATUS_INVALID, "the template's dialect is %s, not %s",
                       s->dialect->name, dialect_form_dialect(s->form));
    return T9_STATUS_OK;
}

static t9_status open_model(struct parts *p, const struct options *o, struct t9_err *err)
{
    buf_init(&p->template_source, TEXT_BYTES_MAX);
    if (o->template_path &&
        (file_read_all(o->template_path, &p->template_source, err) != T9_STATUS_OK ||
         jinja_parse(&p->template, buf_str(&p->template_source), err) != T9_STATUS_OK))
        return err->code;
    t9_status s = sdk_model_wrap(&p->model, byte_tokenizer(true), p->template, err);
    return s == T9_STATUS_OK ? choose_form(&p->script, p->model, o->form, err) : s;
}

static t9_status open_server(struct parts *p, const struct options *o, struct t9_err *err)
{
    struct engine_script e;
    struct http_params h;
    engine_script_init(&e);
    e.answer = answer;
    e.answer_ctx = &p->script;
    e.remembers = true;
    e.max_length = (int32_t)o->max_length;
    http_params_init(&h);
    h.port = (uint16_t)o->port;
    p->engine = scripted_engine_new(&e);
    if (!p->engine)
        return t9_fail(err, T9_STATUS_NOMEM, "no engine");
    t9_status s = sdk_engine_wrap(&p->wrapped, p->model, p->engine, err);
    if (s != T9_STATUS_OK)
        return s;
    h.prep.engine = p->wrapped;
    h.prep.model = p->model;
    h.prep.model_name = "scripted";
    h.prep.build_id = "scripted";
    h.about = (struct capabilities){"0", "scripted", "scripted", true};
    return http_server_new(&p->server, &h, err);
}

static void close_parts(struct parts *p)
{
    if (p->server)
        http_server_stop(p->server, 1000);
    if (p->wrapped)
        t9_engine_free(p->wrapped);
    if (p->model)
        t9_model_free(p->model);
    if (p->engine)
        scripted_engine_free(p->engine);
    jinja_free(p->template);
    buf_deinit(&p->template_source);
    script_free(&p->script);
}

static bool read_options(int argc, char **argv, struct options *o)
{
    *o = (struct options){.max_length = 4 << 20};
    for (int i = 1; i + 1 < argc; i += 2) {
        const struct {
            const char *name, **text;
            uint64_t *number;
        } known[] = {{"--script", &o->script, NULL},
                     {"--template", &o->template_path, NULL},
                     {"--form", &o->form, NULL},
                     {"--port", NULL, &o->port},
                     {"--max-length", NULL, &o->max_length}};
        size_t k = 0;
        while (k < T9_COUNT(known) && strcmp(known[k].name, argv[i]) != 0)
            k++;
        if (k == T9_COUNT(known))
            return false;
        if (known[k].text)
            *known[k].text = argv[i + 1];
        else if (!num_parse_u64(str_from(argv[i + 1]), known[k].number))
            return false;
    }
    return argc % 2 == 1 && o->script && o->port <= UINT16_MAX && o->max_length <= INT32_MAX;
}

int main(int argc, char **argv)
{
    static struct parts parts;
    struct options o;
    struct t9_err err = {0};
    struct log_config log = {.level = LOG_LEVEL_INFO};
    sigset_t ends;
    int got;
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: scripted_server --script FILE [--template FILE] [--form NAME] "
                        "[--port N] [--max-length N]\n");
        return 2;
    }
    /* Before any thread starts, so that all of them leave the signals to us. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    log_configure(&log);
    bool up = script_read(&parts.script, o.script, &err) == T9_STATUS_OK &&
              open_model(&parts, &o, &err) == T9_STATUS_OK &&
              open_server(&parts, &o, &err) == T9_STATUS_OK;
    if (up) {
        fprintf(stderr, "listening on http://127.0.0.1:%u\n", http_server_port(parts.server));
        sigwait(&ends, &got);
    } else {
        fprintf(stderr, "scripted_server: %s\n", err.msg);
    }
    close_parts(&parts);
    return up ? 0 : 1;
}
