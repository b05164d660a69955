/*
 * protocol/tools/dialect.c - see dialect.h.
 */
#include "protocol/tools/dialect.h"

#define DIALECT_ADDRESS(name) &dialect_##name,
static const struct dialect *const all[] = {DIALECTS(DIALECT_ADDRESS)};
#undef DIALECT_ADDRESS

enum { N_DIALECTS = sizeof all / sizeof *all };

const struct dialect *dialect_at(size_t i)
{
    return i < N_DIALECTS ? all[i] : NULL;
}

const struct dialect *dialect_choose(const struct dialect_model *m)
{
    for (size_t i = 0; i + 1 < N_DIALECTS; i++) {
        if (all[i]->fits(m))
            return all[i];
    }
    return all[N_DIALECTS - 1];
}

const struct dialect *dialect_find(str name)
{
    for (size_t i = 0; i < N_DIALECTS; i++) {
        if (str_eqz(name, all[i]->name))
            return all[i];
    }
    return NULL;
}
