/*
 * tests/lib/byte_tokenizer.h - stands in for the tokenizer behind tokenizer/tokenizer.h: one token
 * per byte and a few special ones. It honours provenance, so tests see what became a special token.
 */
#ifndef T9_TESTS_LIB_BYTE_TOKENIZER_H
#define T9_TESTS_LIB_BYTE_TOKENIZER_H

#include "tokenizer/tokenizer.h"

enum {
    BYTE_TOK_IM_START = 256, /* <|im_start|>, CONTROL */
    BYTE_TOK_IM_END = 257,   /* <|im_end|>, CONTROL, end of generation, eos */
    BYTE_TOK_THINK = 258,    /* <think>, USER_DEFINED */
    BYTE_TOK_BOS = 259,      /* <s>, CONTROL, bos */
    BYTE_TOK_COUNT = 260,
};

/* One for the whole program; immutable. `chatml` false: there is no <|im_start|>. */
const struct tokenizer *byte_tokenizer(bool chatml);

#endif
