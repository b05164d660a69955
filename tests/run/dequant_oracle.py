#!/usr/bin/env python3
"""Compares dequantisation with an independent implementation (the `gguf` package, in numpy), bit for bit.

    dequant_oracle.py --dump build/…/dequant_dump [--blocks N]

Per type: random blocks (every scale occurs, infinite and NaN ones too), and edge blocks: all zeros, all ones, one byte
value everywhere, the largest and smallest scales with every code. A NaN equals a NaN; everything else, the sign of a
zero included, must be the same bits. The package has no Q1_0 and Q2_0: the unit tests hold those.

Exit status: 0 equal, 1 different, 77 the package is missing.
"""
import argparse
import subprocess
import sys

SKIP = 77
# Offsets of f16 scales in a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ1_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64]}
CORNERS = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
NOT_THERE = {"Q1_0", "Q2_0"}


def blocks_of(np, name, n_bytes, n_random):
    rng = np.random.default_rng(1 + sum(map(ord, name)))
    random = rng.integers(0, 256, (n_random, n_bytes), dtype=np.uint8)
    uniform = np.repeat(np.arange(256, dtype=np.uint8)[:, None], n_bytes, axis=1)
    edges = rng.integers(0, 256, (len(CORNERS) ** 2, n_bytes), dtype=np.uint8)
    edges[::7] = 0
    edges[1::7] = 255
    for i, block in enumerate(edges):
        for k, at in enumerate(SCALES.get(name, [])):
            corner = CORNERS[i // len(CORNERS) ** k % len(CORNERS)]
            block[at], block[at + 1] = corner & 255, corner >> 8
    # Ordinary scales, so that most results are finite numbers of every kind.
    ordinary = rng.integers(0, 256, (n_random, n_bytes), dtype=np.uint8)
    for at in SCALES.get(name, []):
        ordinary[:, at + 1] = ordinary[:, at + 1] & 0x8F | 0x20
    return np.concatenate([random, uniform, edges, ordinary])


def compare(np, gguf, dump, name, type_id, block_elems, block_bytes, n_random):
    blocks = blocks_of(np, name, block_bytes, n_random)
    got = subprocess.run([dump, name], input=blocks.tobytes(), stdout=subprocess.PIPE, check=True).stdout
    got = np.frombuffer(got, dtype=np.float32)
    with np.errstate(all="ignore"):
        if name == "F32":
            want = blocks.reshape(-1).view(np.float32)
        else:
            want = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(type_id))
    want = np.ascontiguousarray(want, dtype=np.float32).reshape(-1)
    if got.size != want.size:
        print(f"{name}: {got.size} values, {want.size} wanted")
        return False
    differ = (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))
    if differ.any():
        at = int(np.argmax(differ))
        print(f"{name}: {int(differ.sum())} of {want.size} values differ; block {at // block_elems}, value "
              f"{at % block_elems}: {got[at]!r}, {want[at]!r} wanted")
        return False
    print(f"{name}: {want.size} values equal, {int(np.isfinite(want).sum())} of them finite")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dump", required=True)
    parser.add_argument("--blocks", type=int, default=600)
    args = parser.parse_args()
    try:
        import gguf
        import gguf.quants
        import numpy as np
    except ImportError as error:
        print(f"skipped: {error}; tools/get-deps test installs it")
        return SKIP
    ok = True
    n_types = 0
    for line in subprocess.run([args.dump], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines():
        name, type_id, block_elems, block_bytes = line.split()
        if name in NOT_THERE:
            continue
        n_types += 1
        ok = compare(np, gguf, args.dump, name, int(type_id), int(block_elems), int(block_bytes), args.blocks) and ok
    if n_types < 25:
        print(f"only {n_types} types were compared")
        ok = False
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
