#!/usr/bin/env python3
"""Makes a folder of tests/data/models: a tiny random model and the reference library's logits.

  make_reference.py gemma3|qwen3vl OUT_FOLDER [--seed N] [--set NAME=NUMBER ...]

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
         "qwen3vl": (Qwen3VLText, qwen3vl_config, qwen3vl_keys, QWEN3VL_NAMES, 0.0)}


def randomise(model, seed, norm_mean):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            r = norm_mean + 0.1 * r if p.dim() == 1 else r / p.shape[-1] ** 0.5
            p.copy_(r.to(torch.bfloat16).to(torch.float32))


def file_name(name, names):
    ends = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem, kind = name.rsplit(".", 1)
    if stem in ends:
        return ends[stem] + "." + kind
    _, _, layer, rest = stem.split(".", 3)
    return "blk.%s.%s.%s" % (layer, names[rest], kind)


def write_file(path, arch, model, keys, names, norm_add):
    c = model.config
    w = gguf.GGUFWriter(str(path), arch)
    w.add_name("tiny " + arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    keys(w, c)
    for name, p in model.named_parameters():
        v = p.detach()
        if v.dim() == 1:
            w.add_tensor(file_name(name, names), (v + norm_add).numpy().astype(numpy.float32))
        else:
            bits = v.to(torch.bfloat16).view(torch.uint16).numpy()
            w.add_tensor(file_name(name, names), bits.view(numpy.uint8),
                         raw_dtype=gguf.GGMLQuantizationType.BF16)
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
