#!/usr/bin/env python3
"""Streams an answer of a model in this process: stream.py MODEL.gguf [QUESTION]

The package is in python/ (pip install ./python, or PYTHONPATH=python) and finds libtempo9 where the system does;
TEMPO9_LIBRARY names another one.
"""
import sys

import tempo9


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    question = sys.argv[2] if len(sys.argv) > 2 else "Name three colours."
    with tempo9.Model(sys.argv[1]) as model, tempo9.Engine(model, kv_bytes=256 << 20) as engine:
        for part in engine.chat([{"role": "user", "content": question}], max_tokens=60, temperature=0):
            print(part, end="", flush=True)
        print()
        print("%d tokens" % engine.stats["generated_tokens"], file=sys.stderr)


if __name__ == "__main__":
    main()
