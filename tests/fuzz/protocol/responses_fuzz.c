/*
 * tests/fuzz/protocol/responses_fuzz.c - any bytes as the body of a Responses request.
 */
#include "check.h"
#include "protocol/responses.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_parser(&responses_adapter, data, size);
    return 0;
}
