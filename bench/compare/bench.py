#!/usr/bin/env python3
"""`tempo9 bench` and a llama-bench-like program on the same file, in interleaved pairs.

  bench.py --model M.gguf --peer PATH          [--peer-flags "-fa on"]... [--cells p512,n128] [--pairs 5]
  bench.py --model M.gguf --peer-python PYTHON [--peer-flags "-fa on"]... [--cells n128x8@4096]

Cells: pN reads a prompt of N tokens, nN decodes N tokens, nN@D does so with D tokens in the context,
nNxB and nNxB@D do so for B sequences at once, each with a context of its own.
The peer is asked with -m -t -p -n -d -r -o json and must print a list of objects with samples_ts.
Cells of several sequences need --peer-batched, a llama-batched-bench-like program: it is asked with
-m -t -c -npp -ntg -npl --output-format jsonl and must print an object with speed_tg for each B.
--peer-python is an interpreter that has the package llama-cpp-python: llama_cpp_package.py drives it
in all cells.
Where --peer-flags is given more than once the best candidate of one run each is taken for each cell.
Beside the rates of decoding stands what they mean in bytes of the file read a second; with
--read-gbs, measured apart, also the share of the machine's. Rules: pairs.py. Standard library only.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys

import pairs
from pairs import Metric, Run

import host  # noqa: E402
import stats  # noqa: E402

PACKAGE_DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_cpp_package.py")


class Cell:
    metric = Metric("tokens_per_s", "tok/s", higher_is_better=True)

    def __init__(self, name):
        m = re.fullmatch(r"p(\d+)|n(\d+)(?:x(\d+))?(?:@(\d+))?", name)
        if not m:
            raise SystemExit("bench.py: no cell named %s; p512, n128, n128@4096 and n128x8 are" %
                             name)
        self.name = name
        self.prompt, self.decode = int(m.group(1) or 0), int(m.group(2) or 0)
        self.batch, self.depth = int(m.group(3) or 1), int(m.group(4) or 0)

    def options(self, a):
        return ["-m", a.model, "-t", str(a.threads), "-p", str(self.prompt),
                "-n", str(self.decode), "-d", str(self.depth), "-r", str(a.repeat)]

    def ours(self, a):
        batch = ["-b", str(self.batch)] if self.batch > 1 else []
        return [a.program, "bench", *self.options(a), *batch, *shlex.split(a.args)]

    def peer(self, a, flags):
        if self.batch == 1 or a.peer_python:
            sequences = ["-x", str(self.batch)] if self.batch > 1 else []
            return [*a.peer_words, *self.options(a), *sequences, "-o", "json", *shlex.split(flags)]
        if not a.peer_batched:
            raise SystemExit("bench.py: the cell %s needs --peer-batched" % self.name)
        n_prompt = max(self.depth, 1)
        return [a.peer_batched, "-m", a.model, "-t", str(a.threads),
                "-c", str(self.batch * (n_prompt + self.decode)), "-npp", str(n_prompt),
                "-ntg", str(self.decode), "-npl", ",".join([str(self.batch)] * a.repeat),
                "--output-format", "jsonl", *shlex.split(flags)]


def run_text(words):
    """(standard output, share of the CPUs that others used)"""
    load = host.OtherLoad()
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    other = load.percent()  # the child has ended, so its time is this program's
    if done.returncode != 0:
        raise SystemExit("bench.py: %s ended with %d: %s" % (
            pairs.without_paths(words), done.returncode,
            done.stderr.decode("utf-8", "replace").strip()[-1000:]))
    return done.stdout.decode("utf-8", "replace"), other


def run_of(rates, record, other):
    return Run({"tokens_per_s": stats.median(rates)}, record, other, stats.spread_percent(rates))


def run_ours(a, cell):
    text, other = run_text([*cell.ours(a), "--json"])
    got = json.loads(text)
    if len(got["cells"]) != 1:
        raise SystemExit("bench.py: %d cells where one was asked for" % len(got["cells"]))
    return run_of(got["cells"][0]["runs"], got["cells"][0], other)


def without_files(record):
    return {k: v for k, v in record.items() if not (isinstance(v, str) and "/" in v)}


def run_peer_batched(a, cell, flags):
    text, other = run_text(cell.peer(a, flags))
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    rows = [without_files(r) for r in rows if (r["tg"], r["pl"]) == (cell.decode, cell.batch)]
    if len(rows) != a.repeat:
        raise SystemExit("bench.py: the peer gave %d results of the cell %s; %d were asked for" % (
            len(rows), cell.name, a.repeat))
    return run_of([r["speed_tg"] for r in rows], rows, other)


def run_peer(a, cell, flags):
    if cell.batch > 1 and not a.peer_python:
        return run_peer_batched(a, cell, flags)
    text, other = run_text(cell.peer(a, flags))
    got = json.loads(text)
    rows = [r for r in got if (r["n_prompt"], r["n_gen"]) == (cell.prompt, cell.decode)
            and (r.get("n_depth", 0), r.get("n_sequences", 1)) == (cell.depth, cell.batch)]
    if len(rows) != 1:
        raise SystemExit("bench.py: the peer gave %d results of the cell %s" % (
            len(rows), cell.name))
    if a.peer_version == "unknown":
        a.peer_version = str(rows[0].get("build_commit", "unknown"))
    return run_of(rows[0]["samples_ts"], without_files(rows[0]), other)


def best_flags(a, cell):
    candidates = a.peer_flags or [""]
    if len(candidates) == 1:
        return candidates[0]
    tried = [(run_peer(a, cell, flags).figures["tokens_per_s"], flags) for flags in candidates]
    for rate, flags in tried:
        print("  tried %-30s %.1f tok/s" % (flags, rate))
    return max(tried)[1]


def show_bytes(a, cell, summary, file_bytes):
    if cell.prompt or cell.depth or cell.batch > 1 or summary["ratio"] is None:
        return
    gbs = summary["ours_median"] * file_bytes / 1e9
    print("  at most %.1f GB/s of the file's bytes%s" % (
        gbs, ", %.0f%% of %.1f GB/s" % (100 * gbs / a.read_gbs, a.read_gbs) if a.read_gbs else ""))


def run_cell(a, name, file_bytes):
    cell = Cell(name)
    print("\n%s" % name)
    flags = best_flags(a, cell)
    commands = {"ours": pairs.without_paths(cell.ours(a)),
                "peer": pairs.without_paths(cell.peer(a, flags))}
    for who, command in commands.items():
        print("  %s: %s" % (who, command))
    done = pairs.measure(a.pairs, lambda: run_ours(a, cell), lambda: run_peer(a, cell, flags))
    summary = pairs.summarise(cell.metric, done, a.pairs)
    pairs.show_summary(summary)
    show_bytes(a, cell, summary, file_bytes)
    return {"name": name, "cold": False, "repeat": a.repeat, "commands": commands,
            "summaries": [summary], "work_problems": [],
            "pairs": [{"ours": x.kept(), "peer": y.kept(), "void": why} for x, y, why in done]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    pairs.add_options(p)
    peer = p.add_mutually_exclusive_group(required=True)
    peer.add_argument("--peer", metavar="PATH", help="a llama-bench-like program")
    peer.add_argument("--peer-python", metavar="PATH",
                      help="a Python that has the package llama-cpp-python")
    p.add_argument("--peer-batched", metavar="PATH", help="for cells of several sequences")
    p.add_argument("--peer-flags", metavar="FLAGS", action="append", default=[])
    p.add_argument("--args", default="", help="more arguments for tempo9 bench, in one string")
    p.add_argument("--cells", default="p512,n128")
    p.add_argument("--repeat", type=int, default=3, help="repetitions in one run (%(default)s)")
    p.add_argument("--read-gbs", type=float, help="measured read bandwidth of the machine, GB/s")
    a = p.parse_args()
    a.peer_words = [a.peer] if a.peer else [a.peer_python, PACKAGE_DRIVER]
    pairs.end_on_sigterm()
    result = pairs.head(a, pairs.our_identity(a.program), a.peer_words)
    pairs.show_head(result)
    a.peer_version = result["peer"]["version"]
    result["cells"] = [run_cell(a, name, result["model"]["file_bytes"])
                       for name in a.cells.split(",")]
    result["peer"]["version"] = a.peer_version
    return pairs.finish(a, result)


if __name__ == "__main__":
    sys.exit(main())
