/*
 * tests/fuzz/protocol/openai_chat_fuzz.c - any bytes as the body of a chat completion request.
 */
#include "check.h"
#include "protocol/openai_chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_parser(&openai_chat_adapter, data, size);
    return 0;
}
