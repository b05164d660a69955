/*
 * Fuzz target of the headers that http/page reads: nothing beyond the text is looked at, and what a
 * header says does not depend on what it is read with.
 */
#include "http/page.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    /* In memory of its own and of just its size, so that one byte too far is seen. */
    char *text = malloc(n + 1);
    if (!text)
        return 0;
    memcpy(text, p, n);
    text[n] = 0;
    bool gzip = page_takes_gzip(text), html = page_takes_html(text);
    if (gzip && !strpbrk(text, "gG*"))
        abort();
    if (html && !strchr(text, '/'))
        abort();
    if (page_has_etag(text, "\"a1\"") && !strstr(text, "\"a1\"") && !strchr(text, '*'))
        abort();
    free(text);
    return 0;
}
