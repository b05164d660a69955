#!/usr/bin/env python3
"""Agents at work: a shared system prompt with tools, turn after turn with growing conversations.

  agents.py --program build/tempo9 --model M.gguf [--system-tokens 1500] [--runs 3]

Each agent sends the shared system prompt, its own task, then in every turn the model's answer and a
new tool output. All agents start at once. Written down for every turn: time to the first token,
prompt tokens, those taken from the cache, those computed, tokens of the answer.

Checked, with a server that is started here and so begins cold in every run:
  - computed <= prompt tokens that are new since this agent's last prompt + one page; in the first
    turn, new since the shared prefix, but for one agent, which computes it. A model with recurrent
    layers goes on only from where a state was kept: for it, by up to 1,024 tokens or a twentieth
    of what came before more;
  - the same greedy texts in every run.
A peer that does not promise these is measured with --no-check. The text of all prompts is made by
words.py; `--history script` continues with fixed text in place of the model's answers, so that two
servers get the same prompts. Standard library only.
"""

import asyncio
import sys
import time

import client
import common
import stats
import words

PAGE_TOKENS = 32
STATE_GAP_TOKENS, STATE_GAP_PARTS = 1024, 20  # at most between kept states


class Workload:
    """All that is sent, but for the model's own answers."""

    def __init__(self, a, ruler):
        self.n_agents, self.n_turns = a.agents, a.turns
        self.answer_tokens, self.history = a.answer_tokens, a.history
        self.think_s, self.ignore_eos = a.think_ms / 1e3, a.ignore_eos
        self.timeout_s = a.timeout_s
        n_tools = a.system_tokens * 2 // 5
        self.system = (ruler.text("system/%d" % a.system_tokens, a.system_tokens - n_tools) +
                       "\n\nTools:\n" + ruler.tools_text("tools/%d" % a.system_tokens, n_tools))
        self.tasks = [ruler.text("task/%d" % i, a.task_tokens) for i in range(a.agents)]
        self.outputs = [["Tool output:\n" + ruler.text("output/%d/%d" % (i, t), a.tool_tokens)
                         for t in range(a.turns)] for i in range(a.agents)]
        self.script = [[ruler.text("answer/%d/%d" % (i, t), a.answer_tokens)
                        for t in range(a.turns)] for i in range(a.agents)]

    def fingerprint(self):
        return words.fingerprint((
            self.system, self.tasks, self.outputs, self.answer_tokens, self.history, self.think_s,
            self.ignore_eos, self.script if self.history == "script" else None))

    def body(self, messages):
        body = {"messages": messages, "max_tokens": self.answer_tokens, "temperature": 0}
        if self.ignore_eos:
            body["ignore_eos"] = True
        return body


async def one_agent(endpoint, w, i, turns):
    messages = [{"role": "system", "content": w.system}, {"role": "user", "content": w.tasks[i]}]
    for t in range(w.n_turns):
        answer = await client.chat(endpoint, w.body(messages))
        turns.append({
            "agent": i, "turn": t, "ttft_ms": answer.ttft_ms(),
            "total_ms": (time.monotonic() - answer.sent_at) * 1e3,
            "prompt_tokens": answer.prompt_tokens(), "cached_tokens": answer.cached_tokens(),
            "computed_tokens": answer.prompt_tokens() - answer.cached_tokens(),
            "answer_tokens": answer.answer_tokens(), "finish": answer.finish,
            "text": answer.text, "timings": answer.timings})
        said = w.script[i][t] if w.history == "script" else answer.text
        messages += [{"role": "assistant", "content": said},
                     {"role": "user", "content": w.outputs[i][t]}]
        await asyncio.sleep(w.think_s)


async def keeps_states(endpoint):
    """Whether the model has recurrent layers."""
    _, text = await client.get(endpoint, "/metrics")
    sizes = [line.split()[1] for line in text.splitlines()
             if line.startswith("tempo9_kv_state_bytes ")]
    return any(float(size) > 0 for size in sizes)


async def run_once(endpoint, w):
    """All agents, all turns, on a server as it is."""
    turns = []
    begin = time.monotonic()
    await asyncio.wait_for(asyncio.gather(
        *(one_agent(endpoint, w, i, turns) for i in range(w.n_agents))), w.timeout_s)
    wall_ms = (time.monotonic() - begin) * 1e3
    # What the system text alone weighs; asked last, so that it warms nothing.
    with_text = await words.count(endpoint, [{"role": "system", "content": w.system},
                                             {"role": "user", "content": "x"}])
    without = await words.count(endpoint, [{"role": "system", "content": "x"},
                                           {"role": "user", "content": "x"}])
    turns.sort(key=lambda r: (r["turn"], r["agent"]))
    return {"turns": turns, "wall_ms": wall_ms, "system_tokens": with_text - without,
            "keeps_states": await keeps_states(endpoint)}


def sent_before(run, record):
    """Tokens of the longest prefix of a turn's prompt that was certainly sent before: this agent's
    last prompt (its answer may come on top), or the shared system text."""
    if record["turn"] == 0:
        return run["system_tokens"]
    return next(r["prompt_tokens"] for r in run["turns"]
                if r["agent"] == record["agent"] and r["turn"] == record["turn"] - 1)


def new_tokens(run, record):
    return record["prompt_tokens"] - sent_before(run, record)


def most_computed(run, record):
    """Tokens of a turn's prompt that may be computed when its prefix was computed before."""
    gap = 0
    if run["keeps_states"]:
        gap = max(STATE_GAP_TOKENS, sent_before(run, record) // STATE_GAP_PARTS)
    return new_tokens(run, record) + PAGE_TOKENS + gap


def check_run(run):
    """What is wrong with one run, as sentences."""
    problems = []
    over = []
    for r in run["turns"]:
        if r["computed_tokens"] < 1:
            problems.append("agent %(agent)d turn %(turn)d: %(computed_tokens)d tokens computed; "
                            "at least one must be" % r)
        if r["computed_tokens"] > most_computed(run, r):
            over.append(r)
    first = [r for r in over if r["turn"] == 0]
    if len(first) == 1:  # somebody has to compute the shared prefix
        over.remove(first[0])
    for r in over:
        problems.append("agent %d turn %d: %d tokens computed, %d were new" % (
            r["agent"], r["turn"], r["computed_tokens"], new_tokens(run, r)))
    return problems


def texts(run):
    return {(r["agent"], r["turn"]): r["text"] for r in run["turns"]}


def first_difference(a, b):
    """(how many of the texts are equal, of how many, where the first difference is or None)"""
    same, where = 0, None
    for key in sorted(a, key=lambda k: (k[1], k[0])):
        if a[key] == b.get(key):
            same += 1
        elif where is None:
            other = b.get(key, "")
            at = next((i for i, (x, y) in enumerate(zip(a[key], other)) if x != y),
                      min(len(a[key]), len(other)))
            where = "agent %d turn %d, character %d" % (*key, at)
    return same, len(a), where


def summary(run):
    """The figures of one run that are compared."""
    first = [r["ttft_ms"] for r in run["turns"] if r["turn"] == 0]
    later = [r["ttft_ms"] for r in run["turns"] if r["turn"] > 0]
    return {"first_ttft_worst_ms": max(first), "first_ttft_median_ms": stats.median(first),
            "later_ttft_median_ms": stats.median(later),
            "later_ttft_worst_ms": max(later) if later else None,
            "wall_ms": run["wall_ms"],
            "prompt_tokens": sum(r["prompt_tokens"] for r in run["turns"]),
            "computed_tokens": sum(r["computed_tokens"] for r in run["turns"]),
            "answer_tokens": sum(r["answer_tokens"] for r in run["turns"])}


def show_runs(runs):
    print("turn  prompt tokens  new  computed (min..max)   first token, ms: median of agents over "
          "%d runs | slowest agent" % len(runs))
    for t in range(1 + max(r["turn"] for r in runs[0]["turns"])):
        rows = [[r for r in run["turns"] if r["turn"] == t] for run in runs]
        every = [r for some in rows for r in some]
        computed = [r["computed_tokens"] for r in every]
        middle = [stats.median([r["ttft_ms"] for r in some]) for some in rows]
        worst = [max(r["ttft_ms"] for r in some) for some in rows]
        print("%4d  %13d %4d  %8d..%-8d %14.0f..%-8.0f | %.0f..%.0f" % (
            t, stats.median([r["prompt_tokens"] for r in every]),
            stats.median([new_tokens(run, r) for run, some in zip(runs, rows) for r in some]),
            min(computed), max(computed), min(middle), max(middle), min(worst), max(worst)))
    for run in runs:
        s = summary(run)
        print("run: system text %d tokens, all prompts %d tokens, %d computed, %.1f s" % (
            run["system_tokens"], s["prompt_tokens"], s["computed_tokens"], s["wall_ms"] / 1e3))


def add_options(p):
    p.add_argument("--agents", type=int, default=4)
    p.add_argument("--turns", type=int, default=10)
    p.add_argument("--system-tokens", type=int, default=1500)
    p.add_argument("--task-tokens", type=int, default=40)
    p.add_argument("--tool-tokens", type=int, default=110, help="of each tool output (%(default)s)")
    p.add_argument("--answer-tokens", type=int, default=32, help="at most (%(default)s)")
    p.add_argument("--think-ms", type=float, default=0, help="time a tool takes (%(default)s)")
    p.add_argument("--history", choices=("own", "script"), default="own",
                   help="what was answered, in later turns: the model's answer or fixed text")
    p.add_argument("--ignore-eos", action="store_true", help="answers of full length")
    p.add_argument("--timeout-s", type=float, default=1800)


def options(text=()):
    """The defaults, for those who call this from a program."""
    return common.options(add_options, text)


def main():
    a = common.parser(__doc__, add_options, runs=3).parse_args()
    with common.server(a) as s:  # not one of the runs, so that each of them is cold
        ruler = asyncio.run(words.measure(s.endpoint))
    w = Workload(a, ruler)
    runs, problems = [], []
    for _ in range(a.runs):
        with common.server(a) as s:
            runs.append(asyncio.run(run_once(s.endpoint, w)))
    show_runs(runs)
    if not a.no_check:
        for n, run in enumerate(runs):
            problems += ["run %d: %s" % (n, x) for x in check_run(run)]
            same, of, where = first_difference(texts(runs[0]), texts(run))
            if same < of:
                problems.append("run %d: %d of %d greedy texts differ from run 0, first at %s" % (
                    n, of - same, of, where))
    return common.finish(a, {"workload": vars(a), "fingerprint": w.fingerprint(),
                             "cold": not a.url, "runs": runs}, problems)


if __name__ == "__main__":
    sys.exit(main())
