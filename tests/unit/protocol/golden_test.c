/*
 * Transcripts: a request's body, what it is turned into, what a scripted engine writes, and the
 * exact bytes of the reply, whole and as a stream.
 *
 * Each file tests/golden/<adapter>/<case>.txt is one case:
 *
 *     What it shows, in words.
 *     === request
 *     the body, without a member "stream": it is sent with false and with true
 *     === script
 *     JSON strings, one a line: what the model writes. A reader of the stream sees each of them at
 *     once. Special tokens are their text. The line `fail`: the engine fails there.
 *     === internal
 *     === whole
 *     === stream
 *
 * The last three are made: with T9_GOLDEN_UPDATE set they are written anew. Look at the difference
 * before you commit. If you add a case, add a file; if you add a protocol, a folder.
 */
#include "lib/t9test.h"

#include "lib/byte_tokenizer.h"
#include "lib/scripted_engine.h"

#include "base/clock.h"
#include "protocol/endpoints.h"
#include "protocol/openai_chat.h"
#include "protocol/run_impl.h"
#include "sdk/internal.h"
#include "template/template.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>

#define FILE_MAX ((size_t)4 << 20)

enum { PIECES_MAX = 128, TOKENS_MAX = 8192 };

/* ---- files ---- */

struct golden_case {
    const char *path;
    struct buf file, got;
    str about, request, script, made; /* sections of the file; the last one is all that is made */
    int32_t tokens[TOKENS_MAX];
    int32_t n_tokens;
    int32_t ends[PIECES_MAX]; /* tokens up to the end of each piece */
    int n_pieces;
    bool fails;
};

static bool read_file(const char *path, struct buf *out)
{
    char block[4096];
    FILE *f = fopen(path, "rb");
    buf_init(out, FILE_MAX);
    if (!f)
        return false;
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        buf_append(out, block, n);
    fclose(f);
    return !out->failed;
}

/* Up to the line `title`, which is left out. */
static str section(str *rest, const char *path, const char *title)
{
    size_t at = str_find(*rest, str_from(title), 0);
    if (at == (size_t)-1)
        fail_msg("%s has no section %s", path, title);
    str s = str_slice(*rest, 0, at);
    *rest = str_slice(*rest, at + strlen(title), rest->n);
    return s;
}

static void add_piece(struct golden_case *c, const t9_model *m, str line)
{
    yyjson_doc *doc = NULL;
    t9_ids ids = {0};
    if (str_eqz(line, "fail")) {
        c->fails = true;
        return;
    }
    if (json_parse(&doc, line, JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
        fail_msg("%s: the script has the line %.*s", c->path, (int)line.n, line.p);
    str text = json_str(yyjson_doc_get_root(doc));
    assert_int_equal(t9_tokenize(m, text.p, text.n, T9_TOKENIZE_SPECIAL, &ids, NULL), T9_STATUS_OK);
    assert_true(c->n_tokens + (int32_t)ids.n < TOKENS_MAX && c->n_pieces < PIECES_MAX);
    if (ids.n)
        memcpy(c->tokens + c->n_tokens, ids.p, ids.n * sizeof *ids.p);
    c->n_tokens += (int32_t)ids.n;
    c->ends[c->n_pieces++] = c->n_tokens;
    t9_ids_free(&ids);
    yyjson_doc_free(doc);
}

static void read_case(struct golden_case *c, const t9_model *m)
{
    if (!read_file(c->path, &c->file))
        fail_msg("no file %s", c->path);
    str rest = buf_str(&c->file);
    c->about = section(&rest, c->path, "=== request\n");
    c->request = str_trim(section(&rest, c->path, "=== script\n"));
    size_t at = str_find(rest, STR("=== internal\n"), 0);
    c->script = str_slice(rest, 0, at == (size_t)-1 ? rest.n : at);
    c->made = str_slice(rest, c->script.n, rest.n);
    for (str left = c->script; left.n;) {
        size_t n = str_find(left, STR("\n"), 0);
        n = n == (size_t)-1 ? left.n : n;
        if (n)
            add_piece(c, m, str_slice(left, 0, n));
        left = str_slice(left, n < left.n ? n + 1 : n, left.n);
    }
}

/* ---- what a request is turned into ---- */

static void line_str(struct buf *b, const char *before, str s)
{
    buf_puts(b, before);
    json_write_str(b, s);
}

static void dump_message(const struct chat_message *m, struct buf *b)
{
    buf_printf(b, "%s:", chat_role_name(m->role));
    if (m->has_content)
        line_str(b, " ", m->content);
    if (m->name.n)
        line_str(b, " name ", m->name);
    if (m->tool_call_id.n)
        line_str(b, " of call ", m->tool_call_id);
    if (m->reasoning.n)
        line_str(b, " reasoning ", m->reasoning);
    buf_putc(b, '\n');
    for (size_t i = 0; i < m->n_calls; i++) {
        line_str(b, "  call ", m->calls[i].id);
        line_str(b, " ", m->calls[i].name);
        line_str(b, " ", m->calls[i].args);
        buf_putc(b, '\n');
    }
}

static void dump_options(const struct chat_request *r, struct buf *b)
{
    const struct t9_request_params *p = &r->sampling;
    buf_printf(b, "max_tokens %lld, n %d, temperature %g, top_p %g, top_k %d, seed %llu\n",
               (long long)r->max_tokens, r->n, (double)p->temperature, (double)p->top_p, p->top_k,
               (unsigned long long)p->seed);
    for (size_t i = 0; i < r->n_stops; i++) {
        line_str(b, "stop ", r->stops[i]);
        buf_putc(b, '\n');
    }
    if (r->has_thinking)
        buf_printf(b, "thinking %s\n", r->thinking ? "on" : "off");
    if (r->reasoning_effort.n)
        buf_printf(b, "reasoning effort " STR_FMT "\n", STR_ARG(r->reasoning_effort));
    if (r->no_calls)
        buf_puts(b, "no calls\n");
    if (r->one_call)
        buf_puts(b, "one call\n");
}

/* What the body was parsed into. A run lets go of that once it is submitted, so it is parsed again
 * here; what start found out is the run's. */
static void dump_request(const struct chat_run *run, str body, struct buf *b)
{
    struct chat_request r;
    struct chat_error e = {0};
    struct prep_ids ids = {0};
    t9_text prompt = {0};
    chat_request_init(&r, FILE_MAX);
    r.sampling = run->request.sampling;
    bool parsed = run->adapter->parse(body, false, &r, &e) == T9_STATUS_OK;
    for (size_t i = 0; i < r.n_messages; i++)
        dump_message(&r.messages[i], b);
    for (size_t i = 0; i < r.n_tools; i++) {
        line_str(b, "tool ", r.tools[i].name);
        line_str(b, " ", r.tools[i].description);
        buf_putc(b, ' ');
        if (r.tools[i].schema)
            json_write_val(b, r.tools[i].schema);
        buf_putc(b, '\n');
    }
    dump_options(&r, b);
    if (run->request.sampling.pin_ms)
        buf_printf(b, "kept: %d tokens for %lld ms\n", run->request.sampling.n_pin_tokens,
                   (long long)run->request.sampling.pin_ms);
    for (size_t i = 0; i < run->request.n_warnings; i++)
        buf_printf(b, "warning: " STR_FMT "\n", STR_ARG(run->request.warnings[i]));
    if (parsed && prep_tokens(run->prep, &r, &ids, &e) == T9_STATUS_OK) {
        assert_int_equal(t9_detokenize(prep_params_of(run->prep)->model, ids.p, ids.n,
                                       T9_DETOKENIZE_SPECIAL, &prompt, NULL),
                         T9_STATUS_OK);
        buf_puts(b, "prompt:\n");
        buf_puts_str(b, (str){prompt.p, prompt.n});
        buf_puts(b, "\n");
    }
    t9_text_free(&prompt);
    prep_ids_deinit(&ids);
    chat_request_deinit(&r);
}

/* ---- runs ---- */

struct player {
    struct golden_case *c;
    t9_model *model;
    struct engine *engine;
    struct prep *prep;
    struct chat_run *run;
    atomic_int allowed, wakes;
    struct buf told; /* what the events said, joined where they are of one kind */
    chat_event_kind last;
};

static void on_wake(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void play_begin(struct player *p, const struct chat_adapter *a)
{
    struct engine_script script;
    struct prep_params params = {
        .model = p->model, .model_name = "scripted", .build_id = "test-build", .now_unix_s = 1};
    struct chat_run_hooks hooks = {on_wake, &p->wakes, NULL};
    struct chat_caller caller = {.received_ns = clock_now_ns()};
    atomic_store(&p->allowed, 0);
    atomic_store(&p->wakes, 0);
    engine_script_init(&script);
    script.reply = p->c->tokens;
    script.n_reply = p->c->n_tokens;
    script.n_cached = 16;
    script.allowed = &p->allowed;
    script.fail_at = p->c->fails ? p->c->n_tokens : -1;
    p->engine = scripted_engine_new(&script);
    assert_int_equal(sdk_engine_wrap(&params.engine, p->model, p->engine, NULL), T9_STATUS_OK);
    assert_int_equal(prep_new(&p->prep, &params, NULL), T9_STATUS_OK);
    assert_int_equal(chat_run_new(&p->run, p->prep, a, hooks, &caller, NULL), T9_STATUS_OK);
    snprintf(p->run->reply.id, sizeof p->run->reply.id, "%.14s0123456789abcdef", a->id_prefix);
    p->run->reply.created_s = 1700000000;
    p->run->request.has_seed = true; /* where the body names none */
    p->run->request.sampling.seed = 7;
    buf_init(&p->told, FILE_MAX);
}

static void play_end(struct player *p, bool started)
{
    struct prep_params params = *prep_params_of(p->prep);
    bool let_go = !started;
    atomic_store(&p->allowed, INT_MAX);
    for (int taken = 0; !let_go;) {
        for (; taken < atomic_load(&p->wakes); taken++)
            let_go |= chat_run_notified(p->run);
    }
    chat_run_free(p->run);
    prep_free(p->prep);
    t9_engine_free(params.engine);
    scripted_engine_free(p->engine);
    buf_deinit(&p->told);
}

/* Lets the model write up to so many tokens, and waits until it has. */
static void let_write(struct player *p, int32_t n)
{
    atomic_store(&p->allowed, n);
    for (size_t i = 0; i < p->run->n_choices; i++) {
        struct t9_request_info info = {.struct_size = sizeof info};
        t9_request *r = atomic_load(&p->run->choices[i].request);
        do {
            assert_int_equal(t9_request_info(r, &info), T9_STATUS_OK);
            clock_sleep_ms(info.n_tokens < n && info.finish == T9_FINISH_NONE);
        } while (info.n_tokens < n && info.finish == T9_FINISH_NONE);
    }
}

static void write_error(const struct chat_adapter *a, const struct chat_error *e, struct buf *out)
{
    buf_printf(out, "HTTP %d\n", chat_error_http(e));
    if (a->error)
        a->error(e, out);
    else
        openai_write_error(e, out);
    buf_putc(out, '\n');
}

/* The same for a stream and for a whole reply, however the text came. */
static void tell(struct player *p, chat_event_kind kind, str text)
{
    static const char *const words[] = {[CHAT_EVENT_TEXT] = "text ",
                                        [CHAT_EVENT_REASONING] = "reasoning ",
                                        [CHAT_EVENT_CALL] = "call ",
                                        [CHAT_EVENT_ARGS] = "arguments "};
    if (text.n == 0 || p->run->n_choices > 1) /* several come in turns */
        return;
    if (kind != p->last || kind == CHAT_EVENT_CALL)
        buf_printf(&p->told, "\n%s", words[kind]);
    p->last = kind;
    buf_puts_str(&p->told, text);
}

static void tell_choice(struct player *p, const struct chat_choice *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        const struct chat_part *part = &c->parts[i];
        bool call = part->kind == CHAT_EVENT_CALL;
        tell(p, part->kind, call ? part->name : part->text);
        if (call)
            tell(p, CHAT_EVENT_ARGS, part->text);
    }
}

/* False at the end. */
static bool read_stream(struct player *p, struct buf *out)
{
    for (;;) {
        struct chat_event ev = chat_run_next(p->run);
        if (ev.kind == CHAT_EVENT_NONE)
            return true;
        chat_run_write(p->run, &ev, out);
        if (ev.kind == CHAT_EVENT_END || ev.kind == CHAT_EVENT_ERROR)
            return false;
        if (ev.kind >= CHAT_EVENT_TEXT && ev.kind <= CHAT_EVENT_ARGS)
            tell(p, ev.kind, ev.text);
    }
}

static void read_whole(struct player *p, struct buf *out)
{
    struct chat_event ev;
    do {
        ev = chat_run_next(p->run);
    } while (ev.kind != CHAT_EVENT_END && ev.kind != CHAT_EVENT_ERROR);
    if (ev.kind == CHAT_EVENT_ERROR) {
        write_error(p->run->adapter, &ev.error, out);
        return;
    }
    buf_puts(out, "HTTP 200\n");
    chat_run_write_whole(p->run, &ev, out);
    buf_putc(out, '\n');
    for (size_t i = 0; i < ev.n_choices; i++)
        tell_choice(p, &ev.choices[i]);
}

static void play_pieces(struct player *p, bool stream, struct buf *out)
{
    const struct golden_case *c = p->c;
    bool more = true;
    if (!stream || c->n_pieces == 0) {
        let_write(p, INT_MAX);
        if (!stream || chat_run_failed_early(p->run)) {
            read_whole(p, out);
            return;
        }
    }
    for (int i = 0; i < c->n_pieces && more; i++) {
        let_write(p, c->ends[i]);
        more = read_stream(p, out);
    }
    let_write(p, INT_MAX);
    while (more)
        more = read_stream(p, out);
}

/* Plays the case once; what it said comes to `told`. */
static void play(struct golden_case *c, t9_model *model, const struct chat_adapter *a, bool stream,
                 struct buf *out, struct buf *told)
{
    struct player p = {.c = c, .model = model};
    struct chat_error e = {0};
    struct buf body;
    play_begin(&p, a);
    buf_init(&body, FILE_MAX);
    buf_printf(&body, "{\"stream\":%s,", stream ? "true" : "false");
    buf_puts_str(&body, str_slice(c->request, 1, c->request.n));
    bool started = chat_run_start(p.run, buf_str(&body), &e) == T9_STATUS_OK;
    if (!stream) {
        buf_puts(out, "=== internal\n");
        dump_request(p.run, buf_str(&body), out);
    }
    buf_puts(out, stream ? "=== stream\n" : "=== whole\n");
    if (started)
        play_pieces(&p, stream, out);
    else
        write_error(a, &e, out);
    buf_puts_str(told, buf_str(&p.told));
    buf_deinit(&body);
    play_end(&p, started);
}

/* Durations are no two times the same. */
static void hide_durations(struct buf *b)
{
    struct buf from = *b;
    str s = buf_str(&from), mark = STR("_duration\":");
    buf_init(b, FILE_MAX);
    for (size_t at = 0; at < s.n;) {
        size_t next = str_find(s, mark, at);
        size_t end = next == (size_t)-1 ? s.n : next + mark.n;
        buf_puts_str(b, str_slice(s, at, end));
        for (at = end; at < s.n && s.p[at] >= '0' && s.p[at] <= '9'; at++)
            continue;
        if (at > end)
            buf_putc(b, '9');
    }
    buf_deinit(&from);
}

static void check_case(const char *path, t9_model *model, const struct chat_adapter *a)
{
    static struct golden_case c;
    struct buf told[2];
    memset(&c, 0, sizeof c);
    c.path = path;
    read_case(&c, model);
    buf_init(&c.got, FILE_MAX);
    for (int stream = 0; stream < 2; stream++) {
        buf_init(&told[stream], FILE_MAX);
        play(&c, model, a, stream, &c.got, &told[stream]);
    }
    hide_durations(&c.got);
    if (!c.fails && !str_eq(buf_str(&told[0]), buf_str(&told[1])))
        fail_msg("%s: the stream said other things than the whole reply:%.*s\n---%.*s", path,
                 (int)told[1].n, told[1].p, (int)told[0].n, told[0].p);
    if (getenv("T9_GOLDEN_UPDATE")) {
        struct buf file;
        buf_init(&file, FILE_MAX);
        buf_printf(&file, STR_FMT "=== request\n" STR_FMT "\n=== script\n" STR_FMT,
                   STR_ARG(c.about), STR_ARG(c.request), STR_ARG(c.script));
        buf_puts_str(&file, buf_str(&c.got));
        test_write_file(path, file.p, file.n);
        buf_deinit(&file);
    } else if (!str_eq(buf_str(&c.got), c.made)) {
        fail_msg("%s: the transcript is another one:\n%.*s", path, (int)c.got.n, c.got.p);
    }
    for (int i = 0; i < 2; i++)
        buf_deinit(&told[i]);
    buf_deinit(&c.file);
    buf_deinit(&c.got);
}

static int is_case(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".txt") == 0;
}

/* Every protocol that answers conversations has its folder. */
static void test_transcripts(void **state)
{
    char path[512];
    struct buf source;
    struct jinja_template *template = NULL;
    t9_model *model = NULL;
    (void)state;
    snprintf(path, sizeof path, "%s/templates/agent.jinja", T9_TEST_DATA_DIR);
    assert_true(read_file(path, &source));
    assert_int_equal(jinja_parse(&template, buf_str(&source), NULL), T9_STATUS_OK);
    assert_int_equal(sdk_model_wrap(&model, byte_tokenizer(true), template, NULL), T9_STATUS_OK);
    for (size_t a = 0; a < n_endpoints; a++) {
        struct dirent **names = NULL;
        snprintf(path, sizeof path, "%s/../golden/%s", T9_TEST_DATA_DIR, endpoints[a]->name);
        int n = endpoints[a]->stream ? scandir(path, &names, is_case, alphasort) : 0;
        for (int i = 0; i < n; i++) {
            char file[1024];
            snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
            check_case(file, model, endpoints[a]);
            free(names[i]);
        }
        free(names);
    }
    t9_model_free(model);
    jinja_free(template);
    buf_deinit(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transcripts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
