/*
 * tests/lib/mkgguf.h - tiny random-weight models for tests: every key, tensor and tokenizer part
 * that a real file has, a few hundred kilobytes, the same bytes for the same parameters.
 */
#ifndef T9_TESTS_LIB_MKGGUF_H
#define T9_TESTS_LIB_MKGGUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct mkgguf_params {
    const char *arch; /* gemma3, gemma4, gpt-oss, lfm2, lfm2moe, llama, mistral3, qwen2, qwen3,
                         qwen35, qwen35moe, qwen3moe, qwen3next, qwen3vl, qwen3vlmoe */
    uint32_t width, layers, heads, kv_heads, ffn, vocab, context;
    uint32_t rows;                  /* of token_embd and output; 0 = vocab */
    uint32_t head_dim;              /* 0 = width / heads */
    uint32_t experts, experts_used; /* of those that have them, each of `ffn`; 0 = 6 and 2, but in
                                       gemma4, where 0 = none */
    uint32_t ple, shared_kv;        /* gemma4: per-layer inputs, layers without keys of their own */
    bool merged;     /* their gate and up in one tensor (no biases of gate and up: not gpt-oss); in
                        qwen3next also a delta net's q, k, v and z */
    uint32_t period; /* of recurrent layers, but of each the last; 0 = 2 */
    uint32_t ssm_heads, ssm_key_heads, ssm_dim; /* of a delta net; 0 = 4, 2, MKGGUF_SSM_DIM */
    uint32_t dtype; /* of the matrices; rows that do not fill its blocks fall back as in the field:
                       Q4_K to Q5_0, Q5_K to Q5_1, Q6_K to Q8_0, Q2_K, Q3_K and TQ to Q4_0,
                       IQ to IQ4_NL, F16 when 32 does not divide either */
    bool mix;       /* Q6_K in token_embd, output and in attn_v, ffn_down of even layers */
    bool untied;    /* has output.weight, as gpt-oss always */
    bool draft;     /* of models with a delta net: a draft head's block behind the layers */
    uint64_t seed;
    bool fim;    /* tokens for a text with a hole, instead of <think> </think> <tool_call> */
    float min_p; /* not 0: the file recommends it, a temperature of 0.25 and a top_k of 20 */
};

/* llama, width 256, 2 layers, 4 heads, 2 kv heads, ffn 512, vocab 512, context 2048, Q8_0, seed 1
 */
#define MKGGUF_DEFAULT                                                                             \
    ((struct mkgguf_params){.arch = "llama",                                                       \
                            .width = 256,                                                          \
                            .layers = 2,                                                           \
                            .heads = 4,                                                            \
                            .kv_heads = 2,                                                         \
                            .ffn = 512,                                                            \
                            .vocab = 512,                                                          \
                            .context = 2048,                                                       \
                            .dtype = 8,                                                            \
                            .seed = 1})

/* Vocabulary: ids 0..255 are the bytes; then merged tokens; the last MKGGUF_N_SPECIAL ids are, from
 * vocab - 7: <|endoftext|> <|im_start|> <|im_end|> (control; bos, -, eos) and <think> </think>
 * <tool_call> </tool_call> (user-defined). */
#define MKGGUF_N_SPECIAL 7

/* gemma3, gemma4, gpt-oss: every other layer sees only so many keys. */
#define MKGGUF_WINDOW 40
/* mistral3: queries grow after every so many positions. */
#define MKGGUF_TEMPERATURE_EVERY 16

/* lfm2, lfm2moe: recurrent layers are a convolution of so many taps; of two layers or more the
 * first has no experts. */
#define MKGGUF_TAPS 3
/* qwen35, qwen35moe, qwen3next: the same of a delta net's; dimensions of its keys and values. */
#define MKGGUF_SSM_TAPS 4
#define MKGGUF_SSM_DIM  64

bool mkgguf_has_experts(const struct mkgguf_params *params);
/* INVALID for parameters that make no model, IO when the file cannot be written. */
t9_status mkgguf_write(const char *path, const struct mkgguf_params *params, struct t9_err *err);

#endif
