/*
 * template/template.h - chat templates: a Jinja interpreter with the semantics of Python's jinja2
 * as the transformers library sets it up (trim_blocks, lstrip_blocks, loop controls, immutable
 * sandbox, no autoescape, plain `tojson`, raise_exception, strftime_now, transparent `generation`).
 *
 * A template is parsed once into an immutable tree and rendered from any thread, any number of
 * times at once; a rendering owns all of its memory. Templates come out of model files from
 * strangers and conversations out of requests, so source, nodes, nesting, steps, memory and output
 * are all bounded, and the C stack is bounded by `max_depth` (about 1 KiB per level).
 *
 * Provenance: every byte of the output carries an origin. Text that the template wrote is
 * JINJA_ORIGIN_TEMPLATE; text that came out of a string (or an object key) of the keyword arguments
 * has the origin that the caller gives it, JINJA_ORIGIN_USER unless it says otherwise. Origins
 * survive concatenation, slicing, strip, replace, split, join, case mapping, formatting and tojson,
 * so a user's text can't come out as the template's, whatever the template does with it.
 *
 * It has no loader: include, import and extends are refused, and nothing in it opens a file.
 */
#ifndef T9_TEMPLATE_TEMPLATE_H
#define T9_TEMPLATE_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_template;

#define JINJA_SOURCE_BYTES_MAX ((size_t)2 << 20)
#define JINJA_NODES_MAX        400000u
#define JINJA_NESTING_MAX      150u /* of blocks and of expressions, while parsing */

/* Parses `source` (UTF-8; copied). Free with jinja_free. A syntax error is INVALID with the line
 * number; a tag, filter or test that we don't have is UNSUPPORTED (unknown ones fail here, at load,
 * as in jinja2); over a limit is TOO_LARGE. */
t9_status jinja_parse(struct jinja_template **out, str source, struct t9_err *err);
void jinja_free(struct jinja_template *t); /* NULL allowed */

/* What it was parsed from, with a NUL after it; as long as the template lives. */
str jinja_source(const struct jinja_template *t);
/* Whether the template mentions `name` as a variable, attribute, keyword or string constant
 * ("tools", "enable_thinking", "reasoning_content"): a cheap hint of what it can use, no proof. */
bool jinja_mentions(const struct jinja_template *t, const char *name);

enum {
    JINJA_ORIGIN_TEMPLATE = 0,
    JINJA_ORIGIN_USER = 1,
    JINJA_ORIGIN_MAX = 15 /* 2..15 are the caller's own classes */
};

struct jinja_limits {
    uint64_t max_steps;      /* nodes evaluated, plus a charge for long strings and scans */
    size_t max_output_bytes; /* of the rendered text */
    size_t max_memory_bytes; /* of values made while rendering */
    uint32_t max_depth;      /* nested evaluations, macro calls included */
};
#define JINJA_LIMITS_DEFAULT                                                                       \
    ((struct jinja_limits){50u * 1000 * 1000, (size_t)128 << 20, (size_t)512 << 20, 700})

struct jinja_env {
    int64_t now_unix_s;   /* what strftime_now() shows, in UTC ... */
    int32_t utc_offset_s; /* ... plus this many seconds */
    /* Origin (0..15) of a string value or object key of the keyword arguments; NULL: all are
     * JINJA_ORIGIN_USER. Called once for each string while the arguments are taken over, before
     * the template runs; `text` points into the document. */
    uint8_t (*origin)(void *ctx, yyjson_val *text);
    void *origin_ctx;
};

/* Bytes up to `end` (from the previous span's end) have this origin. Neighbours differ. */
struct jinja_span {
    size_t end;
    uint8_t origin;
};

struct jinja_output {
    struct buf text;
    struct jinja_span *spans; /* n_spans of them, the last one ends at text.n */
    size_t n_spans, spans_cap;
};

/* Renders with the members of the object `kwargs` as variables (NULL: none). `limits` and `env` may
 * be NULL (defaults; the date 1970-01-01). `out` is overwritten, valid on success only, and freed
 * with jinja_output_deinit. Errors: raise_exception is INVALID ("template refused the conversation:
 * ..."); any other run-time error of the template is INVALID with the line number; something that
 * only Python could do is UNSUPPORTED; over a limit is TOO_LARGE. */
t9_status jinja_render(const struct jinja_template *t, yyjson_val *kwargs,
                       const struct jinja_limits *limits, const struct jinja_env *env,
                       struct jinja_output *out, struct t9_err *err);
void jinja_output_deinit(struct jinja_output *out); /* accepts a zeroed one */

#endif
