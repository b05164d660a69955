#!/usr/bin/env python3
"""What each type of weights costs: bytes, tokens a second, and the distance from float32.

  type_table.py --models FOLDER --text FILE [--peer-perplexity PATH] [--peer-bench PATH]

The folder has one model in many types: F32.gguf, which is the reference, and others that are named
after their type. Of each file: its bytes; KL(reference || file) over the scored tokens of the text
(`tempo9 perplexity --kl`, keys and values of the reference in float32); prompt and decode rates
(`tempo9 bench`, as bench.py asks it). Beside them the same of a llama-perplexity-like and a
llama-bench-like program, against that program's own run of the reference. Both cut the text into
windows of --context tokens and score the second half of each; ours begins a window every half of
that, the peer every whole, so of two windows of ours the peer scores one.

The table is Markdown; rates that could not be had quietly (pairs.py: other processes, spread) have
a ~, what a program refused is listed below it. --json keeps all. Standard library only.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import bench
import pairs

TRIES = 3


class Refused(Exception):
    """A program ended with an error; the text is for people."""


def output_of(words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise Refused("%s ended with %d: %s" % (
            os.path.basename(words[0]), done.returncode, errors[-1][-300:]))
    return said


# ---- distance ----

def our_kl(a, model, *more):
    said = json.loads(output_of([
        a.program, "perplexity", "--gguf", model, "-f", a.text, "-t", str(a.threads), "--context",
        str(a.context), "--chunks", str(a.windows), "--json", *more]))
    return said


def peer_kl(a, model, base, *more):
    """Mean, its standard error, and the share of the same likeliest token; of the reference none."""
    said = output_of([
        a.peer_perplexity, "-m", model, "-f", a.text, "-t", str(a.threads), "-c", str(a.context),
        "--chunks", str(max(1, a.windows // 2)), "--kl-divergence-base", base, *more])
    if not more:
        return None
    mean = re.search(r"Mean\s+KLD:\s*(\S+)\s*±\s*(\S+)", said)
    same = re.search(r"Same top p:\s*(\S+)", said)
    if not mean or not same:
        raise Refused("%s printed no divergence" % os.path.basename(a.peer_perplexity))
    return {"mean": float(mean.group(1)), "standard_error": float(mean.group(2)),
            "same_top": float(same.group(1)) / 100}


def ours_kl_to(a, model, base):
    kl = our_kl(a, model, "--kl", base)["kl"]
    return {k: kl[k] for k in ("mean", "standard_error", "same_top")}


# ---- speed ----

def rate(a, model, cell, run):
    """Tokens a second and whether nothing disturbed it."""
    a.model = model
    for _ in range(TRIES):
        try:
            got = run(a, cell)
        except SystemExit as e:  # what bench.py says of a program that failed
            raise Refused(str(e).splitlines()[-1][-300:]) from e
        if got.void_reason() is None:
            break
    return {"tokens_per_s": got.figures["tokens_per_s"], "quiet": got.void_reason() is None}


# ---- the table ----

def jobs_of(a, work):
    """Name of a column, and what gives its value for a file."""
    ours_base, peer_base = os.path.join(work, "ours.base"), os.path.join(work, "peer.base")
    if a.text:
        our_kl(a, a.reference, "--save-logits", ours_base, "--kv-type", "f32")
        yield "KL", lambda f: ours_kl_to(a, f, ours_base)
        if a.peer_perplexity:
            peer_kl(a, a.reference, peer_base)
            yield "peer KL", lambda f: peer_kl(a, f, peer_base, "--kl-divergence")
    for cell in [bench.Cell(c) for c in a.cells.split(",") if c]:
        yield cell.name, lambda f, c=cell: rate(a, f, c, bench.run_ours)
        if a.peer_bench:
            yield "peer " + cell.name, lambda f, c=cell: rate(
                a, f, c, lambda a, c: bench.run_peer(a, c, a.peer_flags))


def show(value):
    if value is None:
        return "-"
    if "mean" in value:
        return "%.4f ± %.4f, %.1f%%" % (
            value["mean"], value["standard_error"], 100 * value["same_top"])
    return "%.1f%s" % (value["tokens_per_s"], "" if value["quiet"] else " ~")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("--program", default=os.path.join(root, "build", "tempo9"), help="tempo9")
    p.add_argument("--models", metavar="FOLDER", required=True)
    p.add_argument("--types", help="only these, in this order: Q8_0,Q4_K")
    p.add_argument("--text", metavar="FILE", help="without it: no distances")
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--windows", type=int, default=16, help="of ours; the peer has half as many")
    p.add_argument("--cells", default="p128,n32", help="of bench.py; an empty one: no speeds")
    p.add_argument("--repeat", type=int, default=3, help="counted repetitions (%(default)s)")
    p.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    p.add_argument("--peer-perplexity", metavar="PATH")
    p.add_argument("--peer-bench", metavar="PATH")
    p.add_argument("--peer-flags", default="", help="more for the peer's bench, in one string")
    p.add_argument("--work", metavar="FOLDER", help="where logits go for the time being")
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    a.args, a.peer_words = "", [a.peer_bench]
    a.peer_version = pairs.peer_version([a.peer_bench]) if a.peer_bench else "unknown"
    a.reference = os.path.join(a.models, "F32.gguf")
    files = glob.glob(os.path.join(a.models, "*.gguf"))
    if a.types:
        files = [os.path.join(a.models, t + ".gguf") for t in a.types.split(",")]
    else:
        files.sort(key=os.path.getsize, reverse=True)
    pairs.end_on_sigterm()
    with tempfile.TemporaryDirectory(dir=a.work) as work:
        jobs = list(jobs_of(a, work))
        print("| type | MB | %s |\n|---|---|%s" % (
            " | ".join(name for name, _ in jobs), "---|" * len(jobs)))
        rows = [table_row(path, jobs) for path in files]
    for row in rows:
        for name, why in row["refused"].items():
            print("- %s, %s: %s" % (row["type"], name, why))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"ours": pairs.our_identity(a.program), "peer": a.peer_version,
                       "threads": a.threads, "rows": rows}, f, indent=1)
    return 0


def table_row(path, jobs):
    row = {"type": os.path.basename(path).removesuffix(".gguf"), "refused": {},
           "file_bytes": os.path.getsize(path)}
    for name, job in jobs:
        try:
            row[name] = job(path)
        except Refused as e:
            row[name], row["refused"][name] = None, str(e)
    print("| %s | %.1f | %s |" % (row["type"], row["file_bytes"] / 1e6,
                                  " | ".join(show(row[name]) for name, _ in jobs)), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
