/*
 * Fuzz target of hub/: names that a user types, the hub's list of files with the choice among it,
 * and Ollama's manifests. What is taken can be used as a path: it has no part that leaves its
 * folder. The first byte says how the rest is read.
 */
#include "hub/files.h"
#include "hub/ollama.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_path(str path)
{
    if (path.n == 0 || path.p[0] == '/' || strlen(path.p) != path.n ||
        str_find(path, STR("/../"), 0) != (size_t)-1 || str_has_prefix(path, STR("../")) ||
        str_has_suffix(path, STR("/..")) || str_eqz(path, ".."))
        abort();
}

static void check_name(const char *text)
{
    struct hub_name name;
    struct ollama_name o, again;
    struct t9_err err = {0};
    char shown[600];
    if (hub_name_parse(&name, text, &err) == T9_STATUS_OK) {
        check_path(str_from(name.repo));
        if (name.select[0])
            check_path(str_from(name.select));
    } else if (err.code != T9_STATUS_INVALID || !err.msg[0]) {
        abort();
    }
    if (ollama_name_parse(&o, text, &err) != T9_STATUS_OK)
        return;
    check_path(str_from(o.model));
    check_path(str_from(o.space));
    check_path(str_from(o.host));
    check_path(str_from(o.tag));
    ollama_name_format(&o, shown, sizeof shown);
    if (ollama_name_parse(&again, shown, &err) != T9_STATUS_OK || strcmp(o.model, again.model) ||
        strcmp(o.tag, again.tag) || strcmp(o.space, again.space) || strcmp(o.host, again.host))
        abort();
}

static void check_files(str text)
{
    static const char *const specs[] = {"a/b", "a/b:q8_0", "a/b:x-00001-of-00002.gguf"};
    struct arena arena;
    struct hub_files files;
    struct hub_choice choice;
    struct hub_name name;
    struct t9_err err = {0};
    arena_init(&arena, 4 << 20);
    t9_status s = hub_files_parse(&files, &arena, text, &err);
    if (s != T9_STATUS_OK && (err.code != s || !err.msg[0]))
        abort();
    for (size_t i = 0; s == T9_STATUS_OK && i < files.n; i++)
        check_path(files.v[i].path);
    for (size_t i = 0; s == T9_STATUS_OK && i < T9_COUNT(specs); i++) {
        struct buf listing;
        buf_init(&listing, 1 << 20);
        if (hub_name_parse(&name, specs[i], &err) != T9_STATUS_OK)
            abort();
        if (hub_choose(&choice, &files, &name, &listing, &err) == T9_STATUS_OK)
            for (size_t k = 0; k < choice.n; k++)
                if (!choice.part[k])
                    abort();
        buf_deinit(&listing);
    }
    arena_deinit(&arena);
}

static void check_manifest(str text)
{
    struct ollama_manifest m;
    struct t9_err err = {0};
    t9_status s = ollama_manifest_parse(&m, text, &err);
    if (s == T9_STATUS_OK ? !hub_is_hex(str_from(m.hash), 64) : err.code != s || !err.msg[0])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n == 0)
        return 0;
    char *text = malloc(n);
    if (!text)
        return 0;
    memcpy(text, p + 1, n - 1);
    text[n - 1] = 0;
    switch (p[0] % 3) {
    case 0: check_name(text); break;
    case 1: check_files((str){text, n - 1}); break;
    default: check_manifest((str){text, n - 1}); break;
    }
    free(text);
    return 0;
}
