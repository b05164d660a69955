/*
 * http/page.h - the files of the page at "/": chat and dashboard. They are built from web/ and end
 * up in a generated table; a build without Node has an empty one (page_none.c).
 */
#ifndef T9_HTTP_PAGE_H
#define T9_HTTP_PAGE_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct page_file {
    const char *path; /* as asked for: "/", "/assets/app-1a2b3c4d.js" */
    const char *type;
    const char *etag; /* with its quotes; of the bytes before compression */
    bool is_final;    /* the path has a hash in it: what is there never changes */
    const uint8_t *bytes;
    size_t n_bytes;
    const uint8_t *gzip; /* NULL: it does not get smaller */
    size_t n_gzip;
};

extern const struct page_file page_files[];
extern const size_t page_n_files;

/* Whether an Accept-Encoding header (NULL: there is none) takes gzip: named, or covered by '*',
 * and not with a weight of 0. */
bool page_takes_gzip(const char *accept);
/* Whether an Accept header (NULL: there is none) names HTML: a browser does, a script does not. */
bool page_takes_html(const char *accept);
/* Whether an If-None-Match header (NULL: there is none) names the tag. Weak comparison. */
bool page_has_etag(const char *if_none_match, const char *etag);

#endif
