#!/usr/bin/env python3
"""Models of random shapes and weights beside the reference library, for the night.

    reference_seeds.py --test model_reference_test [--seed N] [--python PYTHON]

Needs a Python with PyPI torch, transformers, gguf and numpy: --python, T9_REFERENCE_PYTHON of the environment, or
build/reference-env. Without one, and without T9_FULL, it exits with 77 (skipped). Each night has another seed, which is
printed; --seed repeats one.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAKE = os.path.join(ROOT, "tests", "tools", "make_reference.py")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--test", required=True)
    p.add_argument("--seed", type=int)
    p.add_argument("--python", default=os.environ.get(
        "T9_REFERENCE_PYTHON", os.path.join(ROOT, "build", "reference-env", "bin", "python")))
    a = p.parse_args()
    if a.seed is None and not os.environ.get("T9_FULL"):
        print("skipped: T9_FULL is not set")
        return 77
    if subprocess.run([a.python, "-c", "import torch, transformers, gguf"], stderr=subprocess.DEVNULL,
                      check=False).returncode if os.path.exists(a.python) else True:
        print("skipped: no reference library (T9_REFERENCE_PYTHON)")
        return 77
    seed = a.seed if a.seed is not None else int(time.time()) // 3600
    print("seed %d" % seed, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([a.python, MAKE, "random", folder, "--seed", str(seed)], check=True)
        made = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        return subprocess.run([a.test, *made], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
