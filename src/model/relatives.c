/*
 * model/relatives.c - architectures that are known by name and not supported, each with what sets
 * it apart, so that a refusal tells a user more than that a name was not found. Pure, any thread.
 */
#include "model/model_impl.h"

const char *relative_find(str arch)
{
    static const struct {
        const char *arch, *what;
    } relatives[] = {
        {"qwen4exp", "Qwen3.8-Flash-Next: hyper-connections, sparse indexer"},
        {"qwen2moe", "Qwen2 with experts, one of them shared"},
        {"qwen2vl", "Qwen2-VL and Qwen2.5-VL"},
        {"qwen3tts", "Qwen3's speech"},
        {"gemma", "the first Gemma"},
        {"gemma2", "Gemma 2: soft-caps in attention"},
        {"gemma3n", "Gemma 3n: alternating updates"},
        {"gemma4-assistant", "Gemma 4's draft head, no model of its own"},
        {"gemma-embedding", "makes vectors, no text"},
        {"llama4", "Llama 4: attention in chunks, experts by sigmoids"},
        {"llama-embed", "makes vectors, no text"},
        {"mistral4", "Mistral 4: latent attention"},
        {"smollm3", "SmolLM3: layers without positions"},
        {"phi3", "Phi-3 to Phi-4: fused matrices"},
        {"phimoe", "Phi-3.5 with experts"},
        {"deepseek2", "DeepSeek V2, V3, R1, Kimi K2: latent attention"},
        {"glm4", "GLM-4: heads rotated in part"},
        {"glm4moe", "GLM 4.5 and later, with experts"},
        {"granite", "Granite 3: scaled residuals and logits"},
        {"granitehybrid", "Granite 4: state spaces"},
        {"nemotron_h", "Nemotron-H: state spaces"},
        {"mamba2", "Mamba 2: state spaces"},
        {"eagle3", "a draft head, no model of its own"},
        {"dflash", "a draft head, no model of its own"},
        {"clip", "an encoder of images or sound, no model of its own"},
        {"bert", "makes vectors, no text"},
    };
    for (size_t i = 0; i < T9_COUNT(relatives); i++) {
        if (str_eqz(arch, relatives[i].arch))
            return relatives[i].what;
    }
    return NULL;
}
