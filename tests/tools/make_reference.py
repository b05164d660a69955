#!/usr/bin/env python3
"""Makes a folder of tests/data/models: a tiny random model and the reference library's logits.

  make_reference.py gemma3 OUT_FOLDER [--seed N] [--set NAME=NUMBER ...]

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

VOCAB, TOKENS, PROMPT, GREEDY = 512, 80, 24, 32


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

# model class, configuration, keys, names within a layer, what is added to norms (files hold what
# is multiplied)
ARCHS = {"gemma3": (transformers.Gemma3ForCausalLM, gemma3_config, gemma3_keys, GEMMA3_NAMES, 1.0)}


def randomise(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            r *= 0.1 if p.dim() == 1 else 1 / p.shape[-1] ** 0.5
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
    randomise(model, a.seed)
    tokens = torch.randint(0, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(a.seed))
    with torch.no_grad():
        logits = model(tokens[None], use_cache=False).logits[0]
        greedy = tokens[:PROMPT].tolist()
        for _ in range(GREEDY):
            greedy.append(int(model(torch.tensor([greedy]), use_cache=False).logits[0, -1].argmax()))
    a.out.mkdir(parents=True, exist_ok=True)
    write_file(a.out / "model.gguf", a.arch, model, keys, names, norm_add)
    logits.numpy().astype("<f4").tofile(a.out / "logits.f32")
    (a.out / "reference.json").write_text(json.dumps({
        "architecture": cls.__name__,
        "reference": "transformers %s float32 eager CPU; weights rounded to bf16"
                     % transformers.__version__,
        "vocab": VOCAB, "tokens": tokens.tolist(), "logits_shape": list(logits.shape),
        "greedy": {"prompt": PROMPT, "tokens": greedy[PROMPT:]}}) + "\n")


if __name__ == "__main__":
    main()
