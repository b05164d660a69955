/*
 * hub/name.c - names of repositories, files, quantisations and Ollama models. Pure functions, any
 * thread. What passes here may become a part of a path or of a URL, so nothing passes that could
 * leave its folder.
 */
#include "hub/name.h"

#include "base/num.h"
#include "base/utf8.h"

#include <stdio.h>
#include <strings.h>

static const char name_form[] =
    "expected OWNER/REPO, OWNER/REPO:QUANT or OWNER/REPO:FILE.gguf, such as "
    "Qwen/Qwen3-0.6B-GGUF:Q8_0";

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool same_text(str a, str b)
{
    return a.n == b.n && strncasecmp(a.p, b.p, a.n) == 0;
}

static size_t find_last(str s, const char *set)
{
    for (size_t i = s.n; i > 0; i--)
        if (strchr(set, s.p[i - 1]) && s.p[i - 1])
            return i - 1;
    return (size_t)-1;
}

static str base_name(str path)
{
    size_t slash = find_last(path, "/");
    return slash == (size_t)-1 ? path : str_slice(path, slash + 1, path.n);
}

bool hub_is_hex(str s, size_t n)
{
    if (s.n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(s.p[i] >= '0' && s.p[i] <= '9') && !(s.p[i] >= 'a' && s.p[i] <= 'f'))
            return false;
    return true;
}

/* An owner or a repository, by the hub's own rules: words, '-' and '.', none of the two at an end
 * and neither "--" nor "..". The cache folder OWNER--REPO is therefore unambiguous. */
static bool repo_part_ok(str s)
{
    if (!s.p || s.n == 0 || s.n > HUB_NAME_PART_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool mark = s.p[i] == '-' || s.p[i] == '.';
        if (!is_word(s.p[i]) && !mark)
            return false;
        if (mark && (i == 0 || i + 1 == s.n || s.p[i + 1] == s.p[i]))
            return false;
    }
    return true;
}

bool hub_path_ok(str path)
{
    int depth = 1;
    if (path.n == 0 || path.n >= HUB_PATH_MAX || !utf8_valid(path))
        return false;
    for (size_t from = 0; from <= path.n;) {
        size_t to = str_find(path, STR("/"), from);
        if (to == (size_t)-1)
            to = path.n;
        else
            depth++;
        str part = str_slice(path, from, to);
        if (part.n == 0 || part.n > 250 || str_eqz(part, ".") || str_eqz(part, ".."))
            return false;
        from = to + 1;
    }
    for (size_t i = 0; i < path.n; i++)
        if ((unsigned char)path.p[i] < 0x20 || path.p[i] == 0x7F || path.p[i] == '\\')
            return false;
    return depth <= HUB_PATH_DEPTH_MAX;
}

bool hub_is_gguf(str path)
{
    str end = STR(".gguf");
    return path.n > end.n && same_text(str_slice(path, path.n - end.n, path.n), end) &&
           path.p[path.n - end.n - 1] != '/';
}

static str without_gguf(str path)
{
    return hub_is_gguf(path) ? str_slice(path, 0, path.n - 5) : path;
}

/* Whether the file's name begins with `word`, or has it as a field of its own. */
static bool has_field(str path, str word)
{
    str name = base_name(without_gguf(path));
    if (name.n >= word.n && same_text(str_slice(name, 0, word.n), word))
        return true;
    for (size_t from = 0; from < name.n;) {
        size_t to = from;
        while (to < name.n && name.p[to] != '-' && name.p[to] != '.' && name.p[to] != '_')
            to++;
        if (same_text(str_slice(name, from, to), word))
            return true;
        from = to + 1;
    }
    return false;
}

bool hub_is_mmproj(str path)
{
    return hub_is_gguf(path) && has_field(path, STR("mmproj"));
}

bool hub_is_weights(str path)
{
    return hub_is_gguf(path) && !has_field(path, STR("mmproj")) && !has_field(path, STR("mtp"));
}

bool hub_split_parse(struct hub_split *out, str path)
{
    enum { TAIL = 15 }; /* -00001-of-00003 */
    str s = without_gguf(path);
    uint64_t no, count;
    if (s.n == path.n || s.n <= TAIL)
        return false;
    const char *t = s.p + s.n - TAIL;
    if (t[0] != '-' || memcmp(t + 6, "-of-", 4) != 0 || !num_parse_u64((str){t + 1, 5}, &no) ||
        !num_parse_u64((str){t + 10, 5}, &count))
        return false;
    if (no < 1 || no > count || base_name(str_slice(s, 0, s.n - TAIL)).n == 0)
        return false;
    *out = (struct hub_split){str_slice(s, 0, s.n - TAIL), (uint32_t)no, (uint32_t)count};
    return true;
}

/* The file's name without folders, ending and the part's number. */
static str bare_stem(str path)
{
    struct hub_split split;
    return base_name(hub_split_parse(&split, path) ? split.stem : without_gguf(path));
}

str hub_quant(str path)
{
    str stem = bare_stem(path);
    size_t mark = find_last(stem, "-.");
    return mark == (size_t)-1 ? stem : str_slice(stem, mark + 1, stem.n);
}

bool hub_quant_is(str path, str tag)
{
    str stem = bare_stem(path);
    if (same_text(hub_quant(path), tag))
        return true;
    if (find_last(tag, "-.") == (size_t)-1 || tag.n > stem.n)
        return false;
    size_t at = stem.n - tag.n;
    return same_text(str_slice(stem, at, stem.n), tag) &&
           (at == 0 || stem.p[at - 1] == '-' || stem.p[at - 1] == '.');
}

t9_status hub_name_parse(struct hub_name *out, const char *spec, struct t9_err *err)
{
    memset(out, 0, sizeof *out);
    str s = str_from(spec);
    size_t colon = str_find(s, STR(":"), 0);
    str repo = colon == (size_t)-1 ? s : str_slice(s, 0, colon);
    size_t slash = str_find(repo, STR("/"), 0);
    if (slash == (size_t)-1 || !repo_part_ok(str_slice(repo, 0, slash)) ||
        !repo_part_ok(str_slice(repo, slash + 1, repo.n)))
        return t9_fail(err, T9_STATUS_INVALID, "%.80s: %s", spec, name_form);
    snprintf(out->repo, sizeof out->repo, STR_FMT, STR_ARG(repo));
    if (colon == (size_t)-1)
        return T9_STATUS_OK;
    str select = str_slice(s, colon + 1, s.n);
    out->is_file = hub_is_gguf(select);
    bool ok = hub_path_ok(select);
    for (size_t i = 0; ok && !out->is_file && i < select.n; i++)
        ok = is_word(select.p[i]) || select.p[i] == '-' || select.p[i] == '.';
    if (!ok)
        return t9_fail(err, T9_STATUS_INVALID, "%.80s: what follows the ':' is wrong; %s", spec,
                       name_form);
    snprintf(out->select, sizeof out->select, STR_FMT, STR_ARG(select));
    return T9_STATUS_OK;
}

/* A part of Ollama's paths: words, '-' and '.', not first; a host may end in ":PORT". */
bool ollama_part_ok(str s, bool host)
{
    if (s.n == 0 || s.n >= OLLAMA_PART_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool mark = s.p[i] == '-' || s.p[i] == '.' || (host && s.p[i] == ':' && i + 1 < s.n);
        if (!is_word(s.p[i]) && !(mark && i > 0))
            return false;
    }
    return true;
}

static void part_set(char out[OLLAMA_PART_MAX], str s)
{
    snprintf(out, OLLAMA_PART_MAX, STR_FMT, STR_ARG(s));
}

t9_status ollama_name_parse(struct ollama_name *out, const char *spec, struct t9_err *err)
{
    memset(out, 0, sizeof *out);
    str s = str_from(spec), tag = STR("latest"), parts[3];
    size_t colon = find_last(s, ":"), slash = find_last(s, "/");
    if (colon != (size_t)-1 && (slash == (size_t)-1 || colon > slash)) {
        tag = str_slice(s, colon + 1, s.n);
        s.n = colon;
    }
    int n = 0;
    bool ok = ollama_part_ok(tag, false);
    for (size_t from = 0; ok && from <= s.n; n++) {
        size_t to = str_find(s, STR("/"), from);
        if (to == (size_t)-1)
            to = s.n;
        ok = n < 3;
        if (ok)
            parts[n] = str_slice(s, from, to);
        from = to + 1;
    }
    for (int i = 0; ok && i < n; i++)
        ok = ollama_part_ok(parts[i], n == 3 && i == 0);
    if (!ok || n == 0)
        return t9_fail(err, T9_STATUS_INVALID,
                       "%.80s: expected MODEL[:TAG] or NAMESPACE/MODEL[:TAG], such as llama3.2:1b",
                       spec);
    part_set(out->tag, tag);
    part_set(out->model, parts[n - 1]);
    part_set(out->space, n > 1 ? parts[n - 2] : STR(OLLAMA_SPACE_DEFAULT));
    part_set(out->host, n > 2 ? parts[0] : STR(OLLAMA_HOST_DEFAULT));
    return T9_STATUS_OK;
}

void ollama_name_format(const struct ollama_name *n, char *out, size_t cap)
{
    bool host = strcmp(n->host, OLLAMA_HOST_DEFAULT) != 0;
    bool space = host || strcmp(n->space, OLLAMA_SPACE_DEFAULT) != 0;
    snprintf(out, cap, "%s%s%s%s%s:%s", host ? n->host : "", host ? "/" : "", space ? n->space : "",
             space ? "/" : "", n->model, n->tag);
}
