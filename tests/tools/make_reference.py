#!/usr/bin/env python3
"""Makes a folder of tests/data/models: a tiny random model and the reference library's logits.

  make_reference.py ARCH OUT_FOLDER [--seed N] [--set NAME=VALUE ...]   the architecture's usual shape
  make_reference.py ARCH OUT_FOLDER --random-shape --seed N             a shape that the seed chooses
  make_reference.py CASE OUT_FOLDER [--seed N]                          a shape of CASES, as stored
  make_reference.py cases OUT_FOLDER                                    all of these, each in its folder
  make_reference.py random OUT_FOLDER --seed N                          such shapes of all architectures, and the CASES
  make_reference.py --list                                              what there is

Needs PyPI torch, transformers, gguf and numpy; the tests only read what it wrote. Matrices are rounded to bfloat16, or
to a quantised type, and the reference computes with what the file then holds: K-quants have no encoder in the gguf
package, so their blocks are random codes with scales that give the usual deviation.
"""

import argparse
import json
import pathlib
import random

import gguf
import numpy
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from transformers.models.qwen3_5 import configuration_qwen3_5
from transformers.models.qwen3_5_moe import configuration_qwen3_5_moe
from transformers.models.qwen3_vl import configuration_qwen3_vl, modeling_qwen3_vl

VOCAB, TOKENS, PROMPT, GREEDY, DEEPSTACK = 512, 80, 24, 32, 2


# ---- architectures ---------------------------------------------------------------------------------------------------

class Arch:
    """What an architecture's file has. `norm_add`: files hold what is multiplied, the library what is added to that.
    `adjacent`: rows of Q and K are put so that rotary pairs are adjacent."""

    def __init__(self, cls, config, defaults, keys, names, norm_add=0.0, adjacent=False, shapes=None):
        self.cls, self.config_class, self.defaults, self.keys = cls, config, defaults, keys
        self.names, self.norm_add, self.adjacent = {**COMMON, **names}, norm_add, adjacent
        self.shapes = shapes or (lambda r: {})

    def config(self, over):
        return self.config_class(**{**self.defaults, **over})


COMMON = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp"}
DELTA = {
    "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_qkvz": "ssm_in", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}
LFM2 = {
    "operator_norm": "attn_norm", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj", "ffn_norm": "ffn_norm", "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "feed_forward.gate": "ffn_gate_inp"}


def base(**more):
    """Three query heads to a KV head, whose size is not width / heads; a vocabulary that 32 does not divide."""
    return {**dict(vocab_size=269, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=6,
                   num_key_value_heads=2, head_dim=20, max_position_embeddings=1024, rms_norm_eps=1e-6,
                   tie_word_embeddings=True), **more}


def is_gemma4(c):
    return isinstance(c, transformers.Gemma4TextConfig)


def head_size(c, kind="full_attention"):
    if is_gemma4(c):
        return c.per_layer_config[c.layer_types.index(kind if kind in c.layer_types else "full_attention")].head_dim
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def kv_heads(c):
    kinds = getattr(c, "layer_types", None) or []
    if is_gemma4(c):
        return [c.per_layer_config[i].num_key_value_heads for i in range(len(kinds))]
    return [c.num_key_value_heads * (k != "conv") for k in kinds] if "conv" in kinds else c.num_key_value_heads


def ffn_sizes(c):
    """Of gemma4, layers that share keys may have the double size."""
    if not is_gemma4(c) or not c.use_double_wide_mlp:
        return c.intermediate_size
    own = c.num_hidden_layers - c.num_kv_shared_layers
    return [c.intermediate_size * (1 + (i >= own)) for i in range(c.num_hidden_layers)]


def plain_keys(w, c):
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])


def gemma3_keys(w, c):
    w.add_sliding_window(c.sliding_window)
    w.add_array("gemma3.attention.sliding_window_pattern",
                [t == "sliding_attention" for t in c.layer_types])
    full, sliding = (c.rope_parameters[k] for k in ("full_attention", "sliding_attention"))
    w.add_rope_freq_base(full["rope_theta"])
    w.add_float32("gemma3.rope.freq_base_swa", sliding["rope_theta"])
    if c.query_pre_attn_scalar != c.head_dim:
        w.add_float32("gemma3.attention.scale", c.query_pre_attn_scalar ** -0.5)
    if full["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(full["factor"])


def gemma4_keys(w, c):
    kinds, shared = c.layer_types, c.num_kv_shared_layers
    full, sliding = (c.rope_parameters[k] for k in ("full_attention", "sliding_attention"))
    for add in (w.add_key_length_swa, w.add_value_length_swa, w.add_rope_dimension_count_swa):
        add(head_size(c, "sliding_attention"))
    w.add_rope_dimension_count(head_size(c))
    w.add_rope_freq_base(full["rope_theta"])
    w.add_rope_freq_base_swa(sliding["rope_theta"])
    w.add_sliding_window(c.sliding_window)
    w.add_sliding_window_pattern([k == "sliding_attention" for k in kinds])
    w.add_shared_kv_layers(shared)
    w.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    w.add_final_logit_softcapping(c.final_logit_softcapping)
    if c.enable_moe_block:
        expert_keys(w, c.num_experts, c.top_k_experts, c.moe_intermediate_size)


def qwen3vl_keys(w, c):
    plain_keys(w, c)
    w.add_rope_dimension_sections([*c.rope_parameters["mrope_section"], 0])
    w.add_uint32("qwen3vl.n_deepstack_layers", DEEPSTACK)


def yarn_keys(w, r):
    w.add_rope_freq_base(r["rope_theta"])
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(r["factor"])
    w.add_rope_scaling_orig_ctx_len(r["original_max_position_embeddings"])
    w.add_rope_scaling_yarn_beta_fast(r["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(r["beta_slow"])


def mistral3_keys(w, c):
    r = c.rope_parameters
    yarn_keys(w, r)
    w.add_rope_scaling_yarn_log_mul(r["mscale_all_dim"])
    w.add_float32("mistral3.attention.temperature_scale", r["llama_4_scaling_beta"])


def expert_keys(w, n, n_used, n_ff):
    w.add_expert_count(n)
    w.add_expert_used_count(n_used)
    w.add_expert_feed_forward_length(n_ff)


def qwen3moe_keys(w, c):
    plain_keys(w, c)
    expert_keys(w, c.num_experts, c.num_experts_per_tok, c.moe_intermediate_size)


def gpt_oss_keys(w, c):
    yarn_keys(w, c.rope_parameters)
    w.add_sliding_window(c.sliding_window)
    expert_keys(w, c.num_local_experts, c.num_experts_per_tok, c.intermediate_size)


def delta_keys(w, c, name):
    n_rot = int(c.head_dim * c.rope_parameters["partial_rotary_factor"])
    plain_keys(w, c)
    w.add_rope_dimension_count(n_rot)
    w.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    w.add_ssm_state_size(c.linear_key_head_dim)
    w.add_ssm_group_count(c.linear_num_key_heads)
    w.add_ssm_time_step_rank(c.linear_num_value_heads)
    w.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)
    w.add_uint32(name + ".full_attention_interval", 2)
    if name != "qwen3next":
        w.add_rope_dimension_sections([*c.rope_parameters["mrope_section"], 0])
    if name != "qwen35":
        expert_keys(w, c.num_experts, c.num_experts_per_tok, c.moe_intermediate_size)
        w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)


def qwen35_keys(w, c):
    delta_keys(w, c, "qwen35")


def qwen35moe_keys(w, c):
    delta_keys(w, c, "qwen35moe")


def qwen3next_keys(w, c):
    delta_keys(w, c, "qwen3next")


def lfm2_keys(w, c):
    plain_keys(w, c)
    w.add_uint32(c.model_type.replace("_", "") + ".shortconv.l_cache", c.conv_L_cache)


def lfm2moe_keys(w, c):
    lfm2_keys(w, c)
    expert_keys(w, c.num_experts, c.num_experts_per_tok, c.moe_intermediate_size)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(c.routed_scaling_factor)
    w.add_leading_dense_block_count(c.num_dense_layers)


def gemma4_base(**more):
    """Two sliding layers and two full ones with larger heads; of each kind, the second has no keys of its own."""
    return base(**{**dict(
        num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_attention_heads=6, head_dim=20,
        global_head_dim=36, num_global_key_value_heads=1, num_kv_shared_layers=2, attention_k_eq_v=True,
        use_double_wide_mlp=True, hidden_size_per_layer_input=12, vocab_size_per_layer_input=269, sliding_window=16,
        final_logit_softcapping=30.0,
        rope_parameters={"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), **more})


def lfm2_base(**more):
    return dict(vocab_size=VOCAB, hidden_size=96, intermediate_size=160, num_hidden_layers=4, num_attention_heads=3,
                num_key_value_heads=1, max_position_embeddings=1024, norm_eps=1e-5, conv_L_cache=3,
                layer_types=["conv", "full_attention", "conv", "conv"],
                rope_parameters={"rope_type": "default", "rope_theta": 1e6}, **more)


def lfm2_shapes(r):
    n = r.randrange(2, 5)
    return {"num_hidden_layers": n, "conv_L_cache": r.randrange(2, 6),
            "layer_types": ["full_attention", *(r.choice(("conv", "full_attention")) for _ in range(n - 1))]}


def delta_base(**more):
    """A layer with a gated delta net, with two value heads to a key head, and one that attends."""
    return base(head_dim=24, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=3,
                linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5,
                                 "mrope_section": [2, 2, 2], "mrope_interleaved": True}, **more)


class Qwen3VLText(torch.nn.Module):
    """The text side alone, with the embedding as its head."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = modeling_qwen3_vl.Qwen3VLTextModel(config)

    def forward(self, *args, **more):
        hidden = self.model(*args, **more).last_hidden_state
        logits = torch.nn.functional.linear(hidden, self.model.embed_tokens.weight)
        return transformers.modeling_outputs.CausalLMOutput(logits=logits)


def some_experts(r):
    n = r.choice((2, 3, 5, 8, 512))
    return {"num_experts_per_tok": r.randrange(1, min(n, 10) + 1), "num_experts": n}


def gpt_oss_shapes(r):
    more = some_experts(r)
    more["num_local_experts"] = more.pop("num_experts")
    return {**more, "sliding_window": r.choice((4, 17, 256)), "intermediate_size": r.randrange(2, 12) * 8}


def gemma3_shapes(r):
    n = r.randrange(1, 4)
    return {"num_hidden_layers": n, "sliding_window": r.choice((4, 17, 256)),
            "layer_types": [r.choice(("sliding_attention", "full_attention")) for _ in range(n)]}


def gemma4_shapes(r):
    """Layers that share keys come after one of each kind that they are of, and (the library wants them) have inputs."""
    kinds = [r.choice(("sliding_attention", "full_attention")) for _ in range(r.randrange(0, 5))] + ["full_attention"]
    n_ple = r.choice((0, 8, 20))
    n = next(n for n in (r.randrange(0, len(kinds)) if n_ple else 0, 0) if set(kinds[:len(kinds) - n]) == set(kinds))
    n_kv, n_vocab = r.choice((1, 2, 3)), r.randrange(290, 700)
    more = some_experts(r)
    more["top_k_experts"] = more.pop("num_experts_per_tok")
    return {"num_hidden_layers": len(kinds), "layer_types": kinds, "num_kv_shared_layers": n,
            "num_attention_heads": 6, "num_key_value_heads": n_kv, "num_global_key_value_heads": r.choice((1, 2, 3)),
            "global_head_dim": 4 * r.randrange(2, 14), "attention_k_eq_v": r.random() < 0.5,
            "use_double_wide_mlp": r.random() < 0.5, "hidden_size_per_layer_input": n_ple,
            "vocab_size": n_vocab, "vocab_size_per_layer_input": n_vocab, "sliding_window": r.choice((4, 17, 256)),
            "enable_moe_block": r.random() < 0.5, "moe_intermediate_size": 4 * r.randrange(2, 12), **more}


def delta_shapes(r):
    n = r.choice((1, 2, 3))
    return {"num_hidden_layers": 2, "head_dim": 24, "linear_num_key_heads": n,
            "linear_num_value_heads": n * r.choice((1, 2, 3)), "linear_key_head_dim": 4 * r.randrange(1, 6),
            "linear_value_head_dim": 4 * r.randrange(1, 6)}


ARCHS = {
    "gemma3": Arch(
        transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig,
        dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=160, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=1, head_dim=48, sliding_window=24,
             query_pre_attn_scalar=48, max_position_embeddings=1024, rms_norm_eps=1e-6,
             layer_types=["sliding_attention", "sliding_attention", "full_attention"],
             rope_parameters={
                 "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
        gemma3_keys, {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                      "post_feedforward_layernorm": "post_ffw_norm"}, norm_add=1.0, shapes=gemma3_shapes),
    "gemma4": Arch(
        transformers.Gemma4ForCausalLM, transformers.Gemma4TextConfig, gemma4_base(), gemma4_keys,
        {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
         "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2",
         "router.proj": "ffn_gate_inp", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
         "post_per_layer_input_norm": "post_norm"}, shapes=gemma4_shapes),
    "gpt-oss": Arch(
        transformers.GptOssForCausalLM, transformers.GptOssConfig,
        base(hidden_size=64, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=16,
             rms_norm_eps=1e-5, tie_word_embeddings=False,
             rope_parameters={"rope_type": "yarn", "factor": 32.0, "rope_theta": 150000.0, "beta_fast": 32.0,
                              "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096}),
        gpt_oss_keys, {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"},
        shapes=gpt_oss_shapes),
    "lfm2": Arch(transformers.Lfm2ForCausalLM, transformers.Lfm2Config, lfm2_base(block_auto_adjust_ff_dim=False),
                 lfm2_keys, LFM2, shapes=lfm2_shapes),
    "lfm2moe": Arch(transformers.Lfm2MoeForCausalLM, transformers.Lfm2MoeConfig,
                    lfm2_base(moe_intermediate_size=32, num_dense_layers=1, num_experts=8, num_experts_per_tok=3,
                              use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.25),
                    lfm2moe_keys, LFM2, shapes=lambda r: {**lfm2_shapes(r), **some_experts(r)}),
    "llama": Arch(transformers.LlamaForCausalLM, transformers.LlamaConfig, base(), plain_keys, {}, adjacent=True),
    "mistral3": Arch(
        transformers.Ministral3ForCausalLM, transformers.Ministral3Config,
        base(rope_parameters={"rope_type": "yarn", "factor": 16.0, "rope_theta": 1e6, "beta_fast": 32.0,
                              "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
                              "original_max_position_embeddings": 8, "max_position_embeddings": 1024}),
        mistral3_keys, {}, adjacent=True),
    "qwen2": Arch(transformers.Qwen2ForCausalLM, transformers.Qwen2Config, base(), plain_keys, {}),
    "qwen35": Arch(transformers.Qwen3_5ForCausalLM, configuration_qwen3_5.Qwen3_5TextConfig, delta_base(), qwen35_keys,
                   DELTA, norm_add=1.0, shapes=delta_shapes),
    "qwen35moe": Arch(transformers.Qwen3_5MoeForCausalLM, configuration_qwen3_5_moe.Qwen3_5MoeTextConfig,
                      delta_base(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24,
                                 shared_expert_intermediate_size=40), qwen35moe_keys, DELTA, norm_add=1.0,
                      shapes=lambda r: {**delta_shapes(r), **some_experts(r)}),
    "qwen3next": Arch(transformers.Qwen3NextForCausalLM, transformers.Qwen3NextConfig,
                      delta_base(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True,
                                 shared_expert_intermediate_size=40), qwen3next_keys, DELTA, norm_add=1.0,
                      shapes=lambda r: {**delta_shapes(r), **some_experts(r)}),
    "qwen3": Arch(transformers.Qwen3ForCausalLM, transformers.Qwen3Config, base(), plain_keys, {}),
    "qwen3moe": Arch(transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig,
                     base(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True),
                     qwen3moe_keys, {}, shapes=some_experts),
    "qwen3vl": Arch(
        Qwen3VLText, configuration_qwen3_vl.Qwen3VLTextConfig,
        dict(vocab_size=269, hidden_size=96, intermediate_size=128, num_hidden_layers=3,
             num_attention_heads=3, num_key_value_heads=1, head_dim=32,
             max_position_embeddings=1024, rms_norm_eps=1e-6,
             rope_parameters={"rope_type": "default", "rope_theta": 5e6,
                              "mrope_section": [8, 4, 4]}), qwen3vl_keys, {}),
}

# The stored shapes: architecture, what differs from its usual one, types of matrices by the end of their names.
KQUANTS = {"attn_q": Type.Q4_K, "attn_k": Type.Q3_K, "attn_v": Type.Q6_K, "attn_output": Type.Q5_K,
           "token_embd": Type.Q6_K, "output": Type.Q2_K}
CASES = {
    "shape-llama": ("llama", dict(num_hidden_layers=1, tie_word_embeddings=False), {}),
    "shape-qwen2": ("qwen2", dict(num_attention_heads=5, num_key_value_heads=1, hidden_size=60, head_dim=12), {}),
    "shape-qwen3": ("qwen3", dict(head_dim=44), {}),
    "shape-qwen3moe": ("qwen3moe", dict(num_attention_heads=5, num_key_value_heads=1, mlp_only_layers=[0]), {}),
    "shape-experts": ("qwen3moe", dict(num_hidden_layers=1, hidden_size=16, num_experts=512, num_experts_per_tok=10,
                                       moe_intermediate_size=4), {}),
    "shape-gpt-oss": ("gpt-oss", dict(sliding_window=256), {"_exps": Type.MXFP4}),
    "shape-gemma3": ("gemma3", dict(
        vocab_size=269, hidden_size=60, intermediate_size=56, num_hidden_layers=2, num_attention_heads=5, head_dim=20,
        query_pre_attn_scalar=16, sliding_window=256, layer_types=["sliding_attention", "full_attention"]), {}),
    "shape-gemma4": ("gemma4", dict(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=12,
                                    hidden_size=36), {}),
    "shape-gemma4-one": ("gemma4", dict(num_hidden_layers=1, layer_types=["full_attention"], num_kv_shared_layers=0,
                                        num_attention_heads=5, num_key_value_heads=1, sliding_window=256,
                                        attention_k_eq_v=False, hidden_size_per_layer_input=0), {}),
    "shape-mistral3": ("mistral3", dict(num_hidden_layers=1, num_attention_heads=6, num_key_value_heads=1), {}),
    "shape-qwen35": ("qwen35", {}, {}),
    "shape-qwen35moe": ("qwen35moe", {}, {}),
    "shape-qwen3next": ("qwen3next", {}, {}),
    "wide-qwen35": ("qwen35", dict(hidden_size=256, num_attention_heads=8, head_dim=32, intermediate_size=64,
                                   rope_parameters={"rope_type": "default", "rope_theta": 1e6,
                                                    "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2],
                                                    "mrope_interleaved": True}),
                    {**KQUANTS, "attn_qkv": Type.Q4_K, "attn_gate": Type.Q3_K, "ffn_gate": Type.Q4_K,
                     "ffn_up": Type.Q5_K, "ffn_down": Type.Q5_0}),
    "wide-gemma4": ("gemma4", dict(hidden_size=256, num_hidden_layers=3, num_attention_heads=4, head_dim=32,
                                   global_head_dim=64, intermediate_size=64, num_kv_shared_layers=1, sliding_window=256,
                                   layer_types=["sliding_attention", "full_attention", "full_attention"],
                                   hidden_size_per_layer_input=32),
                    {"per_layer_token_embd": Type.Q8_0, "blk.0.attn_output": Type.Q5_0, **KQUANTS,
                     "per_layer_model_proj": Type.Q4_K, "inp_gate": Type.Q3_K, ".proj": Type.Q8_0,
                     "ffn_gate": Type.Q4_K, "ffn_up": Type.Q5_K, "ffn_down": Type.Q5_0}),
    "wide-gpt-oss": ("gpt-oss", dict(hidden_size=256, num_hidden_layers=1, num_attention_heads=8, head_dim=32,
                                     intermediate_size=64, num_local_experts=3), {**KQUANTS, "_exps": Type.MXFP4}),
    "wide-qwen3moe": ("qwen3moe", dict(hidden_size=256, num_hidden_layers=1, num_attention_heads=8, head_dim=32,
                                       num_experts=3, num_experts_per_tok=2, moe_intermediate_size=64),
                      {**KQUANTS, "gate_exps": Type.Q4_K, "up_exps": Type.Q3_K, "down_exps": Type.Q5_0}),
}


def random_shape(arch, seed):
    """One that the model classes allow; the seed decides."""
    r = random.Random("%s %d" % (arch, seed))
    n_kv = r.choice((1, 2, 3))
    n_head = n_kv * r.choice((1, 2, 3, 5, 6))
    return {"num_key_value_heads": n_kv, "num_attention_heads": n_head, "head_dim": 4 * r.randrange(2, 14),
            "hidden_size": n_head * 4 * r.randrange(1, 8), "intermediate_size": r.randrange(20, 200),
            "num_hidden_layers": r.randrange(1, 4), "vocab_size": r.randrange(290, 700), **ARCHS[arch].shapes(r)}


# ---- weights ---------------------------------------------------------------------------------------------------------

def randomise(model, seed, norm_mean):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if ".linear_attn.norm." in name:
                r = 1 + 0.1 * r
            elif "bias" in name or "sinks" in name:
                r = 0.3 * r
            elif p.dim() == 1:
                r = norm_mean + 0.1 * r
            else:
                r = r / p.shape[-1] ** 0.5
            if name.endswith((".mlp.gate.weight", ".router.weight", ".router.proj.weight",
                              ".feed_forward.gate.weight")):
                r *= 3  # experts that are nearly equal are rare
            p.copy_(r.to(torch.bfloat16).to(torch.float32))
        for name, p in model.named_buffers():
            if name.endswith("expert_bias"):
                p.copy_(0.2 * torch.randn(p.shape, generator=g))
            elif name.endswith("layer_scalar"):
                p.copy_(0.5 + torch.rand(p.shape, generator=g))


def pieces(arch, name, p, c):
    """(name in the file, view of the parameter, its shape in the file, (dimension, order) or None)"""
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight", "model.embedding_norm.weight": "token_embd_norm.weight",
            "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
            "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
            "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight"}
    if name in ends:
        return [(ends[name], p, p.shape, None)]
    _, _, layer, rest = name.split(".", 3)
    at = "blk.%s." % layer
    one = {"self_attn.sinks": "attn_sinks.weight", "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a",
           "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}
    if "experts." in rest:
        return [(at + n, v, v.shape, None) for n, v in expert_pieces(rest.split("experts.")[1], p, c)]
    stem, kind = rest.rsplit(".", 1)
    full = at + (one[rest] if rest in one else arch.names[stem] + "." + kind)
    if arch.adjacent and stem in ("self_attn.q_proj", "self_attn.k_proj"):
        return [(full, p.view(-1, 2, c.head_dim // 2, p.shape[-1]).transpose(1, 2), p.shape, None)]
    return [(full, p.squeeze(1) if p.dim() == 3 else p, [p.shape[0], p.shape[-1]] if p.dim() == 3 else p.shape,
             value_order(stem, rest, c))]


def value_order(stem, rest, c):
    """Files have one value head of each key head after the other; the library has a key head's side by side. Those of
    qwen3next are as in the library."""
    if not rest.startswith("linear_attn.") or isinstance(c, transformers.Qwen3NextConfig):
        return None
    n_keys, n, d = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_value_head_dim
    heads = torch.arange(n).view(n_keys, -1).T.reshape(-1)
    values = (heads[:, None] * d + torch.arange(d)).reshape(-1)
    first = 2 * n_keys * c.linear_key_head_dim
    what = rest[len("linear_attn."):].split(".")[0]
    if what in ("conv1d", "in_proj_qkv"):
        return 0, torch.cat((torch.arange(first), first + values))
    return {"in_proj_z": (0, values), "out_proj": (1, values), "in_proj_a": (0, heads), "in_proj_b": (0, heads),
            "dt_bias": (0, heads), "A_log": (0, heads)}.get(what)


def expert_pieces(rest, p, c):
    """gpt-oss has the columns of gate and up in turns, and an input's values in a column; the others have gate's rows,
    then up's, and files of gemma4 keep that as one tensor."""
    if rest == "gate_up_proj_bias":
        return [("ffn_gate_exps.bias", p[:, 0::2]), ("ffn_up_exps.bias", p[:, 1::2])]
    if rest == "down_proj_bias":
        return [("ffn_down_exps.bias", p)]
    transposed = isinstance(c, transformers.GptOssConfig)
    if rest == "down_proj":
        return [("ffn_down_exps.weight", p.transpose(1, 2) if transposed else p)]
    if is_gemma4(c):
        return [("ffn_gate_up_exps.weight", p)]
    gate, up = (p[:, :, 0::2].transpose(1, 2), p[:, :, 1::2].transpose(1, 2)) if transposed else p.chunk(2, dim=1)
    return [("ffn_gate_exps.weight", gate), ("ffn_up_exps.weight", up)]


def random_blocks(kind, shape, seed):
    """Bytes of K-quant blocks [..., blocks * bytes] whose values have the deviation of a matrix of such rows."""
    n_values, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    rows = int(numpy.prod(shape[:-1]))
    raw = numpy.random.default_rng(seed).integers(0, 256, (rows, shape[-1] // n_values, n_bytes), dtype=numpy.uint8)
    # Where the f16 scale of values is, and of minimums with what makes the mean 0.
    at, at_min, ratio = {Type.Q2_K: (80, 82, 1.5), Type.Q3_K: (108, None, 0), Type.Q4_K: (0, 2, 7.5),
                         Type.Q5_K: (0, 2, 15.5), Type.Q6_K: (208, None, 0)}[kind]

    def put(d):
        for where, v in ((at, d), (at_min, d * ratio)):
            if where is not None:
                raw[..., where:where + 2] = numpy.frombuffer(numpy.float16(v).tobytes(), dtype=numpy.uint8)
        return raw.reshape(*shape[:-1], -1)

    deviation = gguf.quants.dequantize(put(1 / 64), kind).std()
    return put(1 / 64 / deviation / shape[-1] ** 0.5)


def encode(kind, values, seed):
    """Values as the file has them, and as a reader has them again."""
    if kind == Type.F32:
        return values, values
    if kind == Type.BF16:
        bits = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
        return bits.view(numpy.uint8), values
    if kind in (Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K):
        data = random_blocks(kind, values.shape, seed)
    else:
        data = gguf.quants.quantize(values, kind)
    return data, gguf.quants.dequantize(data, kind)


def type_of(name, shape, types):
    if len(shape) == 1 or name.endswith(".bias") or "ffn_gate_inp" in name or "conv1d" in name \
            or name.endswith(".conv.weight"):
        return Type.F32
    stem = name[:-len(".weight")]
    for end, kind in types.items():
        if stem.endswith(end):
            return kind
    return Type.BF16


def tensors(arch, model, types):
    """(name, data, type) of the file's tensors; the model gets the values that a reader of the file has."""
    out, c = [], model.config
    with torch.no_grad():
        for name, p in model.named_parameters():
            for at, view, shape, order in pieces(arch, name, p, c):
                ordered = view.index_select(*order) if order else view
                values = numpy.ascontiguousarray(ordered.numpy().reshape(tuple(shape)), dtype=numpy.float32)
                kind = type_of(at, shape, types)
                data, again = encode(kind, values, len(out))
                if kind not in (Type.F32, Type.BF16):
                    again = torch.from_numpy(numpy.ascontiguousarray(again)).reshape(ordered.shape)
                    view.copy_(again) if order is None else view.index_copy_(*order, again)
                if at.endswith("norm.weight") and not at.endswith("ssm_norm.weight"):
                    data = data + numpy.float32(arch.norm_add)
                elif at.endswith("ssm_a"):
                    data = -numpy.exp(data)
                out.append((at, data, kind))
        for name, p in model.named_buffers():
            if name.endswith("expert_bias"):
                out.append(("blk.%s.exp_probs_b.bias" % name.split(".")[2], p.numpy(), Type.F32))
            elif name.endswith("layer_scalar"):
                out.append(("blk.%s.layer_output_scale.weight" % name.split(".")[2], p.numpy(), Type.F32))
            elif name == "model.rotary_emb.full_attention_inv_freq" and is_gemma4(c):
                out.append(("rope_freqs.weight", numpy.where(p.numpy() > 0, 1, 1e30).astype("<f4"), Type.F32))
    return out


def write_file(path, name, model, keys, made):
    c = model.config
    w = gguf.GGUFWriter(str(path), name)
    w.add_name("tiny " + name)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    if hasattr(c, "intermediate_size"):
        w.add_feed_forward_length(ffn_sizes(c))
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(kv_heads(c))
    w.add_key_length(head_size(c))
    w.add_value_length(head_size(c))
    w.add_layer_norm_rms_eps(c.norm_eps if hasattr(c, "norm_eps") else c.rms_norm_eps)
    keys(w, c)
    for at, data, kind in made:
        w.add_tensor(at, data, raw_dtype=None if kind == Type.F32 else kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- what the library computes ---------------------------------------------------------------------------------------

def media(model, tokens, out):
    """A grid of 3 by 4 rows behind the seventh token, with inputs behind two layers: positions of
    all tokens, media.f32 [1 + DEEPSTACK, 12, width], and the logits."""
    at, height, width = 7, 3, 4
    n, c = height * width, model.config
    pos = [[i] * 3 for i in range(at)]
    pos += [[at, at + i // width, at + i % width] for i in range(n)]
    pos += [[at + max(height, width) + i] * 3 for i in range(TOKENS - at - n)]
    given = torch.randn(1 + DEEPSTACK, n, c.hidden_size, generator=torch.Generator().manual_seed(5))
    x = model.model.embed_tokens(tokens[None]).clone()
    x[0, at:at + n] = given[0]
    mask = torch.zeros(1, TOKENS, dtype=torch.bool)
    mask[0, at:at + n] = True
    logits = model(inputs_embeds=x, position_ids=torch.tensor(pos).T[:, None], use_cache=False,
                   visual_pos_masks=mask, deepstack_visual_embeds=list(given[1:])).logits[0]
    given.numpy().astype("<f4").tofile(out / "media.f32")
    logits.numpy().astype("<f4").tofile(out / "media_logits.f32")
    return {"first": at, "rows": n, "deepstack": DEEPSTACK, "positions": sum(pos, [])}


def make(what, out, seed, over, random_shapes=False):
    types, n_tokens, n_greedy = {}, TOKENS, GREEDY
    if what in CASES:
        name, more, types = CASES[what]
        over, n_tokens, n_greedy = {**more, **over}, PROMPT, 12
    else:
        name = what
    if random_shapes:
        over = {**random_shape(name, seed), **over}
    arch = ARCHS[name]
    c = arch.config(over)
    c._attn_implementation = "eager"
    model = arch.cls(c).eval().to(torch.float32)
    randomise(model, seed, 1 - arch.norm_add)
    made = tensors(arch, model, types)
    vocab = c.vocab_size
    tokens = torch.randint(0, vocab, (n_tokens,), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(tokens[None], use_cache=False).logits[0]
        greedy = tokens[:PROMPT].tolist()
        for _ in range(n_greedy):
            greedy.append(int(model(torch.tensor([greedy]), use_cache=False).logits[0, -1].argmax()))
    out.mkdir(parents=True, exist_ok=True)
    extra = {}
    if name == "qwen3vl":
        with torch.no_grad():
            extra["media"] = media(model, tokens, out)
    write_file(out / "model.gguf", name, model, arch.keys, made)
    logits.numpy().astype("<f4").tofile(out / "logits.f32")
    (out / "reference.json").write_text(json.dumps({
        "architecture": arch.cls.__name__,
        "reference": "transformers %s float32 eager CPU; weights as the file has them" % transformers.__version__,
        "vocab": vocab, "quantised": bool(types), "tokens": tokens.tolist(), "logits_shape": list(logits.shape),
        "greedy": {"prompt": PROMPT, "tokens": greedy[PROMPT:]}, **extra}) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="?", choices=[*ARCHS, *CASES, "cases", "random"], metavar="ARCH|CASE")
    p.add_argument("out", nargs="?", type=pathlib.Path)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--random-shape", action="store_true")
    p.add_argument("--list", action="store_true")
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the configuration")
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.list:
        print("\n".join([*ARCHS, *CASES]))
        return
    if not a.out:
        p.error("ARCH or CASE, and OUT_FOLDER")
    if a.what in ("cases", "random"):
        for case in CASES:
            make(case, a.out / case, a.seed, {})
        for arch in ARCHS:
            if a.what == "random" and arch != "qwen3vl":
                for k in range(3):
                    make(arch, a.out / ("%s-%d" % (arch, k)), 3 * a.seed + k, {}, True)
        return
    make(a.what, a.out, a.seed, {k: json.loads(v) for k, v in (s.split("=", 1) for s in a.set)}, a.random_shape)


if __name__ == "__main__":
    main()
