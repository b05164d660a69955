/*
 * tests/lib/dialect_forms.h - how the models of each dialect write calls of tools.
 *
 * If you add a dialect: a writer and a line in the table of dialect_forms.c.
 */
#ifndef T9_TESTS_LIB_DIALECT_FORMS_H
#define T9_TESTS_LIB_DIALECT_FORMS_H

#include "base/buf.h"
#include "base/json.h"

struct dialect_call {
    str name;
    yyjson_val *args; /* an object */
};

struct dialect_form {
    const char *name;
    const char *dialect; /* NULL: its name is the dialect's */
    /* Appends calls as the model writes them. `seed`: for choices where the form has any
     * (test_random). */
    void (*write)(struct buf *out, const struct dialect_call *calls, size_t n, uint64_t *seed);
    /* Whether this form can carry this string as it is; NULL: any. */
    bool (*can_carry)(str s);
    bool names_are_words; /* letters, digits, underscores only */
    bool no_text_before, no_text_after;
};

/* NULL when there is none of that name. */
const struct dialect_form *dialect_form_find(str name);
/* The name of the dialect that reads it. */
const char *dialect_form_dialect(const struct dialect_form *f);

#endif
