#!/usr/bin/env python3
"""Do streams keep flowing while a long prompt is read?

  gap.py --program build/tempo9 --model M.gguf [--streams 8] [--prompt-tokens 16000]

Some streams decode; after --before-s seconds in which nothing else happens, one long prompt comes.
Every gap between two events with text of one stream is taken by the client's clock, and counted to
the time before the long prompt was sent or to the time until its first token. The step of decoding
alone is the median gap before. Promise P3 asks that at p99.9 a gap during the prompt is at most
max(200 ms, 2 x that step). A stream that ends is replaced by a new one; the wait for its first
token is no gap and is listed apart. Standard library only.

A token that brings no text (half of a character, a special token) brings no event, and the gap
around it would be counted twice as long as any step was. So the streams count: with a model that
can, every token of that is text. With one that cannot, what its streams' tokens were in events is
printed.
"""

import asyncio
import sys
import time

import client
import common
import stats
import words

P3_FLOOR_MS = 200.0

COUNT = ("Count from 1 to 2000. Write only the numbers, separated by spaces: 1 2 3 and so on, "
         "without stopping.")


class Gaps:
    """All gaps as (end of the gap, milliseconds), and the waits of streams that were replaced."""

    def __init__(self):
        self.gaps = []
        self.starts_ms = []
        self.n_replaced = 0
        self.n_tokens = self.n_events = 0  # of streams that have ended
        self.last_at = {}  # of each stream that runs, its newest event with text


async def keep_stream(endpoint, a, i, gaps):
    """One stream after another, for ever."""
    n = 0
    while True:
        body = {"messages": [{"role": "user", "content": COUNT}],
                "max_tokens": a.stream_tokens, "temperature": 0}

        async def on_text(_connection, answer):
            gaps.last_at[i] = answer.text_at[-1]
            if len(answer.text_at) == 1 and n > 0:
                gaps.starts_ms.append(answer.ttft_ms())
            if len(answer.text_at) > 1 and answer.text_at[-1] > answer.text_at[-2]:
                gaps.gaps.append((answer.text_at[-1],
                                  (answer.text_at[-1] - answer.text_at[-2]) * 1e3))

        answer = await client.chat(endpoint, body, on_text)
        gaps.n_tokens += answer.answer_tokens()
        gaps.n_events += len(answer.text_at)
        n += 1
        gaps.n_replaced += 1


async def until(what, condition, streams, wait_s):
    end = time.monotonic() + wait_s
    while not condition():
        for s in streams:
            if s.done():
                s.result()  # raises what ended it
        if time.monotonic() > end:
            raise SystemExit("gap: not within %d s: %s" % (wait_s, what))
        await asyncio.sleep(0.02)


async def run_once(endpoint, a, ruler):
    gaps = Gaps()
    streams = [asyncio.ensure_future(keep_stream(endpoint, a, i, gaps))
               for i in range(a.streams)]
    try:
        await until("all streams decode", lambda: len(gaps.last_at) == a.streams, streams,
                    a.timeout_s)
        begin = time.monotonic()
        await until("", lambda: time.monotonic() > begin + a.before_s, streams, a.timeout_s)
        long = asyncio.ensure_future(client.chat(endpoint, {
            "messages": [{"role": "user", "content": ruler.text("long", a.prompt_tokens)}],
            "max_tokens": 4, "temperature": 0}))
        sent = time.monotonic()
        await until("the long prompt's answer", long.done, streams, a.timeout_s)
        answer = long.result()
        first = answer.text_at[0] if answer.text_at else time.monotonic()
        # One more event of each stream, so that the gap in which the prompt ended is seen whole.
        await until("every stream went on after the long prompt",
                    lambda: min(gaps.last_at.values()) > first, streams, a.timeout_s)
        await asyncio.sleep(min(2.0, a.before_s))
        ended = time.monotonic()
    finally:
        for s in streams:
            s.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    return report(a, gaps, (begin, sent, first, ended), answer)


def part(gaps, begin, end):
    """Gaps that lie, by their end or their beginning, inside a span. One that spans it all does."""
    ms = [g for at, g in gaps if at > begin and at - g / 1e3 < end]
    return {"n": len(ms), "worst_ms": max(ms, default=None), "p99.9_ms": stats.percentile(ms, 99.9),
            "p99_ms": stats.percentile(ms, 99), "p50_ms": stats.percentile(ms, 50),
            "per_s": len(ms) / max(1e-9, end - begin)}


def report(a, gaps, times, answer):
    begin, sent, first, ended = times
    before = [g for g in gaps.gaps if g[0] <= sent]
    out = {"before": part([g for g in before if g[0] - g[1] / 1e3 >= begin], begin, sent),
           "during": part([g for g in gaps.gaps if g[0] > sent], sent, first),
           "after": part([g for g in gaps.gaps if g[0] - g[1] / 1e3 >= first], first, ended),
           "long_prompt_tokens": answer.prompt_tokens(),
           "long_cached_tokens": answer.cached_tokens(), "long_ttft_ms": (first - sent) * 1e3,
           "streams": a.streams, "streams_replaced": gaps.n_replaced,
           "replaced_ttft_worst_ms": max(gaps.starts_ms, default=None),
           "ended_tokens": gaps.n_tokens, "ended_events": gaps.n_events,
           "largest_during_ms": sorted((g[1] for g in gaps.gaps if sent < g[0]
                                        and g[0] - g[1] / 1e3 < first), reverse=True)[:40]}
    step = out["before"]["p50_ms"]
    out["p3_limit_ms"] = max(P3_FLOOR_MS, 2 * step) if step else None
    # No gap that ended during the prompt: the streams stood still all the time.
    out["p3_holds"] = bool(step and out["during"]["n"] > 0 and
                           out["during"]["p99.9_ms"] <= out["p3_limit_ms"])
    return out


def show(r):
    print("%d streams; a prompt of %d tokens (%d cached), its first token after %.1f s" % (
        r["streams"], r["long_prompt_tokens"], r["long_cached_tokens"], r["long_ttft_ms"] / 1e3))
    print("gaps, ms        n   events/s     p50      p99    p99.9    worst")
    for name in ("before", "during", "after"):
        g = r[name]
        print("%-7s %9d %10.1f %7s %8s %8s %8s" % (
            name, g["n"], g["per_s"], stats.show(g["p50_ms"]), stats.show(g["p99_ms"]),
            stats.show(g["p99.9_ms"]), stats.show(g["worst_ms"])))
    if r["streams_replaced"]:
        print("%d streams ended early and were replaced; slowest first token %s ms" % (
            r["streams_replaced"], stats.show(r["replaced_ttft_worst_ms"])))
        if r["ended_events"] < 0.99 * r["ended_tokens"]:
            print("their %d tokens came in %d events: a gap here may be several tokens long" % (
                r["ended_tokens"], r["ended_events"]))
    print("P3: p99.9 of the gaps during the prompt %s the limit of %s ms" % (
        "is within" if r["p3_holds"] else "EXCEEDS", stats.show(r["p3_limit_ms"])))


def add_options(p):
    p.add_argument("--streams", type=int, default=8)
    p.add_argument("--prompt-tokens", type=int, default=16000, help="about (%(default)s)")
    p.add_argument("--stream-tokens", type=int, default=4096, help="at most, of each stream")
    p.add_argument("--before-s", type=float, default=5)
    p.add_argument("--timeout-s", type=float, default=900)


def options(text=()):
    """The defaults, for those who call this from a program."""
    return common.options(add_options, text)


def main():
    a = common.parser(__doc__, add_options, runs=1).parse_args()
    runs, problems = [], []
    for n in range(a.runs):
        with common.server(a) as s:
            ruler = asyncio.run(words.measure(s.endpoint))
            runs.append(asyncio.run(run_once(s.endpoint, a, ruler)))
        show(runs[-1])
        if not a.no_check and not runs[-1]["p3_holds"]:
            problems.append("run %d: P3 does not hold" % n)
    return common.finish(a, {"workload": vars(a), "runs": runs}, problems)


if __name__ == "__main__":
    sys.exit(main())
