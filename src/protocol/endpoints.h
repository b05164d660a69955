/*
 * protocol/endpoints.h - every request that has a body and a table of fields: one list for routes,
 * /v1/capabilities, the OpenAPI description and tests.
 */
#ifndef T9_PROTOCOL_ENDPOINTS_H
#define T9_PROTOCOL_ENDPOINTS_H

#include "protocol/adapter.h"

extern const struct chat_adapter *const endpoints[];
extern const size_t n_endpoints;

/* Appends the OpenAPI 3.1 description of all routes; needs no model. */
void openapi_write(const char *version, struct buf *out);

#endif
