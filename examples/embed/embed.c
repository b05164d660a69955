/*
 * embed.c - two models in one process, answering at once; and what happens when things go wrong: a
 * file that is no model, memory that is not there. Nothing of that ends the process.
 *
 *     embed MODEL_A MODEL_B BAD_FILE
 *
 * Prints the two answers, one a line, and then what failed and why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tempo9.h>

struct talk {
    t9_model *model;
    t9_engine *engine;
    t9_request *request;
    char answer[4096];
    size_t n;
    int over;
};

/* A model with an engine over it. `threads`: two models share the cores as we say. */
static t9_status talk_open(struct talk *t, const char *path, int threads, uint64_t kv_bytes,
                           t9_err *err)
{
    struct t9_model_params mp;
    struct t9_engine_params ep;
    t9_status s;

    t9_model_params_init(&mp, sizeof mp);
    mp.path = path;
    mp.threads = threads;
    s = t9_model_load(&t->model, &mp, err);
    if (s != T9_STATUS_OK)
        return s;
    t9_engine_params_init(&ep, sizeof ep);
    ep.model = t->model;
    ep.kv_bytes = kv_bytes;
    return t9_engine_new(&t->engine, &ep, err);
}

static void talk_close(struct talk *t)
{
    t9_request_free(t->request);
    t9_engine_free(t->engine);
    t9_model_free(t->model);
    memset(t, 0, sizeof *t);
}

/* Lays the conversation out for the model, and asks. */
static t9_status talk_ask(struct talk *t, const char *messages, t9_err *err)
{
    struct t9_chat_params cp;
    struct t9_request_params rp;
    t9_ids prompt = {0};
    t9_status s;

    t9_chat_params_init(&cp, sizeof cp);
    cp.messages = messages;
    cp.messages_bytes = strlen(messages);
    s = t9_chat_tokens(t->model, &cp, &prompt, err);
    if (s == T9_STATUS_OK) {
        t9_request_params_init(&rp, sizeof rp);
        rp.prompt = prompt.p;
        rp.n_prompt = prompt.n;
        rp.max_tokens = 24;
        rp.temperature = 0;
        s = t9_engine_submit(t->engine, &rp, &t->request, err);
    }
    t9_ids_free(&prompt);
    return s;
}

/* Takes what is new, waiting a little for it. */
static t9_status talk_read(struct talk *t, t9_err *err)
{
    struct t9_event ev = {.struct_size = sizeof ev};
    t9_status s = t9_request_next(t->request, 10, &ev);

    if (s != T9_STATUS_OK)
        return s;
    if (ev.text_bytes && t->n + ev.text_bytes < sizeof t->answer) {
        memcpy(t->answer + t->n, ev.text, ev.text_bytes);
        t->n += ev.text_bytes;
    }
    if (ev.kind == T9_EVENT_ERROR)
        *err = ev.error;
    t->over = ev.kind == T9_EVENT_DONE || ev.kind == T9_EVENT_ERROR;
    return ev.kind == T9_EVENT_ERROR ? ev.error.code : T9_STATUS_OK;
}

static int both_answer(struct talk *a, struct talk *b)
{
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"Name three colours.\"}]";
    t9_err err = {0};
    t9_status s = talk_ask(a, messages, &err);

    if (s == T9_STATUS_OK)
        s = talk_ask(b, messages, &err);
    while (s == T9_STATUS_OK && (!a->over || !b->over)) {
        if (!a->over)
            s = talk_read(a, &err);
        if (s == T9_STATUS_OK && !b->over)
            s = talk_read(b, &err);
    }
    if (s != T9_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", t9_status_name(s), err.msg);
        return 1;
    }
    printf("A: %s\nB: %s\n", a->answer, b->answer);
    return 0;
}

/* Expects `s` to be a failure, and says which. */
static int failed_well(const char *what, t9_status s, const t9_err *err)
{
    printf("%s: %s: %s\n", what, t9_status_name(s), s == T9_STATUS_OK ? "no failure" : err->msg);
    return s == T9_STATUS_OK;
}

static int bad_file(const char *path)
{
    struct talk t = {0};
    t9_err err = {0};
    t9_status s = talk_open(&t, path, 1, 0, &err);

    talk_close(&t);
    return failed_well("bad file", s, &err);
}

static int little_cache(const char *path)
{
    struct talk t = {0};
    t9_err err = {0};
    t9_status s = talk_open(&t, path, 1, 1, &err); /* a KV cache of one byte */

    talk_close(&t);
    return failed_well("little cache", s, &err);
}

/* The address space ends a little beyond what is in use: the model does not fit any more. */
static int little_memory(const char *path)
{
    struct rlimit old, tight;
    struct talk t = {0};
    t9_err err = {0};
    t9_status s;
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, &old) != 0) {
        if (f)
            fclose(f);
        return 1;
    }
    fclose(f);
    tight = old;
    tight.rlim_cur = (rlim_t)pages * 4096 + 65536;
    if (setrlimit(RLIMIT_AS, &tight) != 0)
        return 1;
    s = talk_open(&t, path, 2, (uint64_t)1 << 30, &err);
    setrlimit(RLIMIT_AS, &old);
    talk_close(&t);
    return failed_well("little memory", s, &err);
}

int main(int argc, char **argv)
{
    struct talk a = {0}, b = {0};
    t9_err err = {0};
    int failures;

    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL_A MODEL_B BAD_FILE\n", argv[0]);
        return 2;
    }
    if (talk_open(&a, argv[1], 1, (uint64_t)64 << 20, &err) != T9_STATUS_OK ||
        talk_open(&b, argv[2], 1, (uint64_t)64 << 20, &err) != T9_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", t9_status_name(err.code), err.msg);
        talk_close(&a);
        talk_close(&b);
        return 1;
    }
    failures = both_answer(&a, &b);
    failures += bad_file(argv[3]);
    failures += little_cache(argv[1]);
    failures += little_memory(argv[2]);
    /* All of that left the two models as they were. */
    t9_request_free(a.request);
    t9_request_free(b.request);
    a.n = b.n = 0;
    a.over = b.over = 0;
    memset(a.answer, 0, sizeof a.answer);
    memset(b.answer, 0, sizeof b.answer);
    failures += both_answer(&a, &b);
    talk_close(&a);
    talk_close(&b);
    return failures ? 1 : 0;
}
