#!/usr/bin/env python3
"""Makes a folder of tests/data/models: a tiny random model and the reference library's logits.

  make_reference.py gemma3|lfm2|lfm2moe|qwen3vl OUT_FOLDER [--seed N] [--set NAME=NUMBER ...]

Needs PyPI torch, transformers, gguf and numpy; the tests only read what it wrote. Weights are
rounded to bfloat16, so that the file holds exactly what the reference computes with.
"""

import argparse
import json
import pathlib

import gguf
import numpy
import torch
import transformers
from transformers.models.qwen3_vl import configuration_qwen3_vl, modeling_qwen3_vl

VOCAB, TOKENS, PROMPT, GREEDY, DEEPSTACK = 512, 80, 24, 32, 2


def gemma3_config(over):
    return transformers.Gemma3TextConfig(**{
        **dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=160, num_hidden_layers=3,
               num_attention_heads=4, num_key_value_heads=1, head_dim=48, sliding_window=24,
               query_pre_attn_scalar=48, max_position_embeddings=1024, rms_norm_eps=1e-6,
               layer_types=["sliding_attention", "sliding_attention", "full_attention"],
               rope_parameters={
                   "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), **over})


def gemma3_keys(w, c):
    w.add_sliding_window(c.sliding_window)
    w.add_array("gemma3.attention.sliding_window_pattern",
                [t == "sliding_attention" for t in c.layer_types])
    full, sliding = (c.rope_parameters[k] for k in ("full_attention", "sliding_attention"))
    w.add_rope_freq_base(full["rope_theta"])
    w.add_float32("gemma3.rope.freq_base_swa", sliding["rope_theta"])
    w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    w.add_rope_scaling_factor(full["factor"])


GEMMA3_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}

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


def qwen3vl_config(over):
    return configuration_qwen3_vl.Qwen3VLTextConfig(**{
        **dict(vocab_size=VOCAB, hidden_size=96, intermediate_size=128, num_hidden_layers=3,
               num_attention_heads=3, num_key_value_heads=1, head_dim=32,
               max_position_embeddings=1024, rms_norm_eps=1e-6,
               rope_parameters={"rope_type": "default", "rope_theta": 5e6,
                                "mrope_section": [8, 4, 4]}), **over})


def qwen3vl_keys(w, c):
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_rope_dimension_sections([*c.rope_parameters["mrope_section"], 0])
    w.add_uint32("qwen3vl.n_deepstack_layers", DEEPSTACK)


QWEN3VL_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down"}


def lfm2_config(over):
    return transformers.Lfm2Config(**{
        **dict(vocab_size=VOCAB, hidden_size=96, intermediate_size=160, num_hidden_layers=4,
               num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=1024,
               norm_eps=1e-5, block_auto_adjust_ff_dim=False, conv_L_cache=3,
               layer_types=["conv", "full_attention", "conv", "conv"],
               rope_parameters={"rope_type": "default", "rope_theta": 1e6}), **over})


def lfm2moe_config(over):
    return transformers.Lfm2MoeConfig(**{
        **dict(vocab_size=VOCAB, hidden_size=96, intermediate_size=160, moe_intermediate_size=32,
               num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1,
               max_position_embeddings=1024, norm_eps=1e-5, conv_L_cache=3, num_dense_layers=1,
               num_experts=8, num_experts_per_tok=3, use_expert_bias=True, norm_topk_prob=True,
               routed_scaling_factor=1.25,
               layer_types=["conv", "full_attention", "conv", "conv"],
               rope_parameters={"rope_type": "default", "rope_theta": 1e6}), **over})


def lfm2_keys(w, c):
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_uint32(c.model_type.replace("_", "") + ".shortconv.l_cache", c.conv_L_cache)


def lfm2moe_keys(w, c):
    lfm2_keys(w, c)
    w.add_expert_count(c.num_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    w.add_expert_feed_forward_length(c.moe_intermediate_size)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(c.routed_scaling_factor)
    w.add_leading_dense_block_count(c.num_dense_layers)


LFM2_NAMES = {
    "operator_norm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj", "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp"}


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


# model class, configuration, keys, names within a layer, what is added to norms (files hold what
# is multiplied)
ARCHS = {"gemma3": (transformers.Gemma3ForCausalLM, gemma3_config, gemma3_keys, GEMMA3_NAMES, 1.0),
         "lfm2": (transformers.Lfm2ForCausalLM, lfm2_config, lfm2_keys, LFM2_NAMES, 0.0),
         "lfm2moe": (transformers.Lfm2MoeForCausalLM, lfm2moe_config, lfm2moe_keys, LFM2_NAMES, 0.0),
         "qwen3vl": (Qwen3VLText, qwen3vl_config, qwen3vl_keys, QWEN3VL_NAMES, 0.0)}


def randomise(model, seed, norm_mean):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            r = norm_mean + 0.1 * r if p.dim() == 1 else r / p.shape[-1] ** 0.5
            if name.endswith("feed_forward.gate.weight"):
                r *= 3  # experts that are nearly equal are rare
            p.copy_(r.to(torch.bfloat16).to(torch.float32))
        for name, p in model.named_buffers():
            if name.endswith("expert_bias"):
                p.copy_(0.2 * torch.randn(p.shape, generator=g))


def file_name(name, names):
    ends = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
            "model.embedding_norm": "token_embd_norm"}
    stem, kind = name.rsplit(".", 1)
    if stem in ends:
        return ends[stem] + "." + kind
    _, _, layer, rest = stem.split(".", 3)
    return "blk.%s.%s.%s" % (layer, names[rest], kind)


def file_tensors(model, names):
    """Name in the file and values of each tensor. Experts come with gate and up in one."""
    for name, p in model.named_parameters():
        v, stem = p.detach(), name.split(".experts.")[0]
        if name.endswith(".conv.conv.weight"):
            v = v.squeeze(1)
        if stem == name:
            yield file_name(name, names), v
            continue
        layer = stem.split(".")[2]
        if name.endswith("down_proj"):
            yield "blk.%s.ffn_down_exps.weight" % layer, v
        else:
            yield "blk.%s.ffn_gate_exps.weight" % layer, v[:, :v.shape[1] // 2].contiguous()
            yield "blk.%s.ffn_up_exps.weight" % layer, v[:, v.shape[1] // 2:].contiguous()
    for name, p in model.named_buffers():
        if name.endswith("expert_bias"):
            yield "blk.%s.exp_probs_b.bias" % name.split(".")[2], p.detach()


def write_file(path, arch, model, keys, names, norm_add):
    c = model.config
    w = gguf.GGUFWriter(str(path), arch)
    w.add_name("tiny " + arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    kinds = getattr(c, "layer_types", None) or []
    w.add_head_count_kv([c.num_key_value_heads * (k != "conv") for k in kinds] if "conv" in kinds
                        else c.num_key_value_heads)
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_layer_norm_rms_eps(c.norm_eps if hasattr(c, "norm_eps") else c.rms_norm_eps)
    keys(w, c)
    for name, v in file_tensors(model, names):
        if v.dim() == 1 or name.endswith((".conv.weight", ".ffn_gate_inp.weight")):
            v = v + norm_add if v.dim() == 1 else v
            w.add_tensor(name, v.numpy().astype(numpy.float32))
        else:
            bits = v.to(torch.bfloat16).view(torch.uint16).numpy()
            w.add_tensor(name, bits.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("arch", choices=ARCHS)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER",
                   help="of the configuration")
    a = p.parse_args()
    cls, config, keys, names, norm_add = ARCHS[a.arch]
    over = {k: json.loads(v) for k, v in (s.split("=", 1) for s in a.set)}
    c = config(over)
    c._attn_implementation = "eager"
    model = cls(c).eval().to(torch.float32)
    randomise(model, a.seed, 1 - norm_add)
    tokens = torch.randint(0, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(a.seed))
    with torch.no_grad():
        logits = model(tokens[None], use_cache=False).logits[0]
        greedy = tokens[:PROMPT].tolist()
        for _ in range(GREEDY):
            greedy.append(int(model(torch.tensor([greedy]), use_cache=False).logits[0, -1].argmax()))
    a.out.mkdir(parents=True, exist_ok=True)
    extra = {}
    if a.arch == "qwen3vl":
        with torch.no_grad():
            extra["media"] = media(model, tokens, a.out)
    write_file(a.out / "model.gguf", a.arch, model, keys, names, norm_add)
    logits.numpy().astype("<f4").tofile(a.out / "logits.f32")
    (a.out / "reference.json").write_text(json.dumps({
        "architecture": cls.__name__,
        "reference": "transformers %s float32 eager CPU; weights rounded to bf16"
                     % transformers.__version__,
        "vocab": VOCAB, "tokens": tokens.tolist(), "logits_shape": list(logits.shape),
        "greedy": {"prompt": PROMPT, "tokens": greedy[PROMPT:]}, **extra}) + "\n")


if __name__ == "__main__":
    main()
