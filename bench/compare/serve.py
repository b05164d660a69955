#!/usr/bin/env python3
"""tempo9 and another OpenAI-compatible server at the same work, in interleaved pairs.

  serve.py --model M.gguf --peer "PATH -m {model} --port {port} -t {threads} FLAGS" \\
           [--cells agents-1500,agents-6000,gap] [--pairs 5] \\
           [--peer-cell "gap=FLAGS"]... [--ours-cell "gap=FLAGS"]...

{model}, {port} and {threads} are filled in. Each run starts its server anew, so every run begins
cold. Flags of a cell are put behind the command; where a cell is given more than once the
candidates are tried once each, and the best by the cell's first figure is used for the pairs.

Cells:
  agents-N   bench/serve/agents.py with a shared system prompt of N tokens; later turns continue with
             fixed text, so that both sides read the same prompts, and answers have full length
  gap        bench/serve/gap.py

Rules for pairs, ratios and claims: pairs.py. Both sides must have done the same work: prompt and
answer tokens are compared, and greedy texts (which may differ between two programs; how many are
equal is printed). Standard library only.
"""

import argparse
import asyncio
import shlex
import sys

import pairs
from pairs import Metric, Run  # also makes bench/serve importable

import agents  # noqa: E402
import gap  # noqa: E402
import host  # noqa: E402
import words  # noqa: E402

TOKENS_DIFFER_MAX = 0.01


class AgentsCell:
    metrics = [Metric("wall_ms", "ms"), Metric("first_ttft_median_ms", "ms"),
               Metric("first_ttft_worst_ms", "ms"), Metric("later_ttft_median_ms", "ms"),
               Metric("later_ttft_worst_ms", "ms", tail=True),
               Metric("computed_tokens", "tok")]

    def __init__(self, name, a, ruler):
        o = agents.options(shlex.split(a.agents_args))
        o.system_tokens = int(name.split("-", 1)[1])
        o.history, o.ignore_eos = "script", True
        self.workload = agents.Workload(o, ruler)
        self.fingerprint = self.workload.fingerprint()
        self.parameters = vars(o)

    def run(self, endpoint):
        r = asyncio.run(agents.run_once(endpoint, self.workload))
        return agents.summary(r), r

    def work_problems(self, ours, peers):
        out = []
        for what in ("prompt_tokens", "answer_tokens"):
            x, y = (sum(t[what] for t in r["turns"]) for r in (ours, peers))
            if abs(x - y) > TOKENS_DIFFER_MAX * max(x, y):
                out.append("%s: ours %d, peer %d" % (what, x, y))
        return out

    def same_text(self, ours, peers):
        same, of, where = agents.first_difference(agents.texts(ours), agents.texts(peers))
        return {"equal": same, "of": of, "first_difference": where}


class GapCell:
    metrics = [Metric("p99.9_ms", "ms", tail=True), Metric("worst_ms", "ms", tail=True),
               Metric("long_ttft_ms", "ms"),
               Metric("tokens_per_s_before", "1/s", higher_is_better=True),
               Metric("tokens_per_s_during", "1/s", higher_is_better=True)]

    def __init__(self, _name, a, ruler):
        self.o = gap.options(shlex.split(a.gap_args))
        self.ruler = ruler
        self.parameters = vars(self.o)
        self.fingerprint = words.fingerprint((sorted(self.parameters.items()), ruler.per_word))

    def run(self, endpoint):
        r = asyncio.run(gap.run_once(endpoint, self.o, self.ruler))
        d = r["during"]
        # No gap ended while the prompt was read: it lasted as long as the prompt.
        stood = r["long_ttft_ms"] if not d["n"] else None
        return {"p99.9_ms": stood or d["p99.9_ms"], "worst_ms": stood or d["worst_ms"],
                "long_ttft_ms": r["long_ttft_ms"], "tokens_per_s_before": r["before"]["per_s"],
                "tokens_per_s_during": d["per_s"]}, r

    def work_problems(self, ours, peers):
        x, y = ours["long_prompt_tokens"], peers["long_prompt_tokens"]
        out = ["long prompt: ours %d tokens, peer %d" % (x, y)] if abs(
            x - y) > TOKENS_DIFFER_MAX * max(x, y) else []
        return out + ["%s took %d tokens of the long prompt from a cache" % (
            who, r["long_cached_tokens"]) for who, r in (("ours", ours), ("peer", peers))
            if r["long_cached_tokens"] > TOKENS_DIFFER_MAX * r["long_prompt_tokens"]]

    def same_text(self, _ours, _peers):
        return None


def cell_of(name, a, ruler):
    if name == "gap":
        return GapCell(name, a, ruler)
    if name.startswith("agents-") and name[7:].isdigit():
        return AgentsCell(name, a, ruler)
    raise SystemExit("serve.py: no cell named %s" % name)


def run_side(a, command, cell):
    with host.Server(command, a.model, a.threads) as s:
        load = host.OtherLoad(s.pid)
        figures, record = cell.run(s.endpoint)
        other = load.percent()
        memory = host.memory_kib(s.pid)
    return Run(figures, dict(record, load_ms=s.load_ms, memory_kib=memory), other)


def best_command(a, base, candidates, cell):
    """The base with the candidate flags that do best in one run each."""
    commands = [base + " " + flags for flags in candidates] or [base]
    if len(commands) == 1:
        return commands[0]
    metric = cell.metrics[0]
    tried = []
    for command, flags in zip(commands, candidates):
        value = run_side(a, command, cell).figures[metric.name]
        print("  tried %-40s %s %.1f" % (flags, metric.name, value))
        tried.append((-value if metric.higher_is_better else value, command))
    return min(tried)[1]


def flags_of(given, name):
    return [v.split("=", 1)[1] for v in given if v.split("=", 1)[0] == name]


def run_cell(a, name, ruler):
    cell = cell_of(name, a, ruler)
    print("\n%s" % name)
    ours = best_command(a, a.ours, flags_of(a.ours_cell, name), cell)
    peer = best_command(a, a.peer, flags_of(a.peer_cell, name), cell)
    for who, command in (("ours", ours), ("peer", peer)):
        print("  %s: %s" % (who, pairs.without_paths(shlex.split(command))))
    done = pairs.measure(a.pairs, lambda: run_side(a, ours, cell), lambda: run_side(a, peer, cell))
    summaries = [pairs.summarise(m, done, a.pairs) for m in cell.metrics]
    for s in summaries:
        pairs.show_summary(s)
    last_ours, last_peer = done[-1][0].record, done[-1][1].record
    problems = cell.work_problems(last_ours, last_peer)
    same = cell.same_text(last_ours, last_peer)
    if same:
        print("  greedy texts: %(equal)d of %(of)d equal; first difference: %(first_difference)s"
              % same)
    for p in problems:
        print("  NOT THE SAME WORK: " + p)
    return {"name": name, "workload": cell.parameters, "workload_fingerprint": cell.fingerprint,
            "cold": True, "summaries": summaries, "work_problems": problems, "same_text": same,
            "commands": {"ours": pairs.without_paths(shlex.split(ours)),
                         "peer": pairs.without_paths(shlex.split(peer))},
            "pairs": [{"ours": x.kept(), "peer": y.kept(), "void": why} for x, y, why in done]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    pairs.add_options(p)
    p.add_argument("--peer", metavar="COMMAND", required=True)
    p.add_argument("--args", default="", help="more arguments for tempo9 serve, in one string")
    p.add_argument("--cells", default="agents-1500,agents-6000,gap")
    p.add_argument("--ours-cell", metavar="CELL=FLAGS", action="append", default=[])
    p.add_argument("--peer-cell", metavar="CELL=FLAGS", action="append", default=[])
    p.add_argument("--agents-args", default="", help="as of agents.py, in one string")
    p.add_argument("--gap-args", default="", help="as of gap.py, in one string")
    a = p.parse_args()
    pairs.end_on_sigterm()
    a.ours = "%s serve --gguf {model} --port {port} --threads {threads} %s" % (
        shlex.quote(a.program), a.args)
    result = pairs.head(a, pairs.our_identity(a.program), shlex.split(a.peer)[:1])
    pairs.show_head(result)
    with host.Server(a.ours, a.model, a.threads) as s:
        ruler = asyncio.run(words.measure(s.endpoint))
    result["cells"] = [run_cell(a, name, ruler) for name in a.cells.split(",")]
    return pairs.finish(a, result)


if __name__ == "__main__":
    sys.exit(main())
