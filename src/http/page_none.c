/*
 * http/page_none.c - the table of page.h in a build without the page.
 */
#include "http/page.h"

const struct page_file page_files[1] = {{0}};
const size_t page_n_files = 0;
