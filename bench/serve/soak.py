#!/usr/bin/env python3
"""Many streaming clients with bad manners, for a while: right answers and flat memory.

  soak.py --program build/tempo9 --model M.gguf [--clients 64] [--seconds 600] [--seed 1]

A fixed set of requests, greedy and seeded, of many lengths, in families that share prefixes, is
first answered one after another on an idle server. Then all clients draw from the set: most read to
the end, some vanish after a few events (half of these by a reset), some read slowly through a small
receive buffer. Checked: every complete answer equals its solo run (text, token count, finish), every
torn one is a beginning of it; the server is idle again soon after the end; its memory is flat in the
second half. 429 and 503 are counted and obeyed. Standard library only.
"""

import asyncio
import collections
import random
import sys
import time

import client
import common
import host
import stats
import words

FLAT_MIB, FLAT_SHARE = 8.0, 0.02
SLOW_RECEIVE_BYTES = 2048


class Left(Exception):
    """A client that went away on purpose."""


def request_set(a, ruler):
    """Bodies: index decides the family, the lengths and the sampling."""
    out = []
    families = [ruler.text("family/%d" % f, a.prompt_tokens * (f + 1) // 4) for f in range(3)]
    for i in range(a.requests):
        family = families[i % 4] if i % 4 < 3 else ""
        body = {"messages": [{"role": "system", "content": family or "Be brief."},
                             {"role": "user", "content": ruler.text("soak/%d" % i, 4 + 37 * i % 97)}],
                "max_tokens": 1 + 13 * i % a.answer_tokens, "ignore_eos": i % 3 == 0}
        if i % 2:
            body.update(temperature=0.7 + 0.1 * (i % 5), seed=1000 + i, top_p=0.95)
        else:
            body["temperature"] = 0
        out.append(body)
    return out


def key(answer):
    return (answer.text, answer.answer_tokens(), answer.finish)


class Soak:
    def __init__(self, endpoint, a, bodies, solo):
        self.endpoint, self.a, self.bodies, self.solo = endpoint, a, bodies, solo
        self.counts = collections.Counter()
        self.problems = []
        self.until = time.monotonic() + a.seconds

    def problem(self, text):
        self.counts["wrong"] += 1
        if len(self.problems) < 20:
            self.problems.append(text)

    async def one_request(self, rng):
        i = rng.randrange(len(self.bodies))
        manner = rng.random()
        leave_after = rng.randrange(0, 12) if manner < 0.25 else None
        slow = manner >= 0.85
        reset = rng.random() < 0.5
        heard = client.Answer()

        async def on_text(connection, answer):
            heard.pieces = answer.pieces
            if slow:
                await asyncio.sleep(rng.random() * 0.05)
            if leave_after is not None and len(answer.pieces) > leave_after:
                if reset:
                    connection.tear()
                raise Left

        try:
            answer = await asyncio.wait_for(client.chat(
                self.endpoint, self.bodies[i], on_text, SLOW_RECEIVE_BYTES if slow else None),
                self.a.answer_timeout_s)
        except Left:
            self.counts["left"] += 1
            if not self.solo[i][0].startswith(heard.text):
                self.problem("request %d, torn: %r is no beginning of %r" % (
                    i, heard.text, self.solo[i][0]))
            return
        except client.Refused as e:
            if e.status not in (429, 503):
                self.problem("request %d: %s" % (i, e))
                return
            self.counts["refused"] += 1
            await asyncio.sleep(min(1.0, e.retry_after_s or 0.2) * (0.5 + rng.random()))
            return
        except asyncio.TimeoutError:
            self.problem("request %d: no end within %d s" % (i, self.a.answer_timeout_s))
            return
        except (client.Broken, OSError) as e:
            self.problem("request %d: %s: %s" % (i, type(e).__name__, e))
            return
        self.counts["slow" if slow else "complete"] += 1
        self.counts["tokens"] += answer.answer_tokens()
        self.counts["cached"] += answer.cached_tokens()
        self.counts["prompt"] += answer.prompt_tokens()
        if key(answer) != self.solo[i]:
            self.problem("request %d: %r, alone %r" % (i, key(answer), self.solo[i]))

    async def one_client(self, n):
        rng = random.Random("%d/%d" % (self.a.seed, n))
        await asyncio.sleep(rng.random() * 0.5)
        while time.monotonic() < self.until and self.counts["wrong"] < 100:
            await self.one_request(rng)

    async def watch_memory(self, pid, samples):
        begin = time.monotonic()
        while True:
            m = host.memory_kib(pid) if pid else None
            if m:
                samples.append((time.monotonic() - begin, m["VmRSS"] / 1024, m["RssAnon"] / 1024))
            await asyncio.sleep(max(0.1, min(1.0, self.a.seconds / 60)))


def flatness(samples):
    """Memory in the middle and at the end, MiB, and whether that is flat. None without figures."""
    if len(samples) < 10:
        return None
    n = len(samples)
    middle = stats.median([s[2] for s in samples[n * 2 // 5:n * 3 // 5]])
    end = stats.median([s[2] for s in samples[-max(1, n // 5):]])
    return {"anon_middle_mib": middle, "anon_end_mib": end,
            "anon_max_mib": max(s[2] for s in samples), "rss_max_mib": max(s[1] for s in samples),
            "flat": end - middle <= max(FLAT_MIB, FLAT_SHARE * middle)}


def gauge(text, name):
    for line in text.splitlines():
        if line.startswith(name + " ") or line.startswith(name + "{"):
            return float(line.rsplit(" ", 1)[1])
    return None


async def engine_counters(endpoint):
    """What tempo9 says of its cache under pressure; empty for other servers."""
    status, text = await client.get(endpoint, "/metrics")
    names = {"preemptions": "tempo9_preemptions_total",
             "evicted pages": "tempo9_kv_evicted_pages_total"}
    found = {k: gauge(text, v) for k, v in names.items()} if status == 200 else {}
    return {k: v for k, v in found.items() if v is not None}


async def wait_idle(endpoint, wait_s=20):
    """None when the server runs nothing any more, or has no such metric; else what it says."""
    until = time.monotonic() + wait_s
    while True:
        status, text = await client.get(endpoint, "/metrics")
        running = gauge(text, "tempo9_requests_running") if status == 200 else None
        if not running:
            return None
        if time.monotonic() > until:
            return "%d requests still run %d s after the last client left" % (running, wait_s)
        await asyncio.sleep(0.2)


async def run_once(endpoint, pid, a, ruler):
    bodies = request_set(a, ruler)
    solo = [key(await client.chat(endpoint, b)) for b in bodies]
    soak = Soak(endpoint, a, bodies, solo)
    samples = []
    watch = asyncio.ensure_future(soak.watch_memory(pid, samples))
    begin = time.monotonic()
    await asyncio.gather(*(soak.one_client(n) for n in range(a.clients)))
    seconds = time.monotonic() - begin
    watch.cancel()
    left_over = await wait_idle(endpoint)
    if left_over:
        soak.problems.append(left_over)
    # After all that, alone again: the cache must not have been spoiled.
    for i, b in enumerate(bodies):
        if key(await client.chat(endpoint, b)) != solo[i]:
            soak.problem("request %d, alone after the storm: another answer" % i)
    if not soak.counts["complete"] or not soak.counts["left"]:
        soak.problems.append("the storm was too short to mean anything: %s" % dict(soak.counts))
    flat = flatness(samples)
    if flat and not flat["flat"] and not a.no_memory:
        soak.problems.append("memory grows: %(anon_middle_mib).1f MiB in the middle, "
                             "%(anon_end_mib).1f MiB at the end" % flat)
    counters = await engine_counters(endpoint)
    for name in a.must_see.split(",") if a.must_see else ():
        if not counters.get(name):
            soak.problems.append("no %s: the pool is too large for this soak" % name)
    return {"seconds": seconds, "counts": dict(soak.counts), "memory": flat, "engine": counters,
            "memory_samples": samples}, soak.problems


def show(r):
    c = collections.Counter(r["counts"])
    print("%.0f s: %d complete answers, %d more by slow readers, %d torn, %d refused, %d wrong" % (
        r["seconds"], c["complete"], c["slow"], c["left"], c["refused"], c["wrong"]))
    print("%d tokens in complete answers, %.1f a second; %d of %d prompt tokens from the cache" % (
        c["tokens"], c["tokens"] / r["seconds"], c["cached"], c["prompt"]))
    if r["engine"]:
        print("engine: " + ", ".join("%d %s" % (v, k) for k, v in r["engine"].items()))
    m = r["memory"]
    print("memory: %s" % (
        "anonymous %.1f MiB in the middle, %.1f at the end, at most %.1f (resident %.1f): %s" % (
            m["anon_middle_mib"], m["anon_end_mib"], m["anon_max_mib"], m["rss_max_mib"],
            "flat" if m["flat"] else "GROWS") if m else "not known"))


def add_options(p):
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--requests", type=int, default=24, help="different ones (%(default)s)")
    p.add_argument("--prompt-tokens", type=int, default=400, help="of the longest shared prefix")
    p.add_argument("--answer-tokens", type=int, default=48, help="of the longest answer")
    p.add_argument("--answer-timeout-s", type=float, default=300)
    p.add_argument("--must-see", default="", metavar="WHAT,..", help="fail unless there were any: "
                   "preemptions, evicted pages")
    p.add_argument("--no-memory", action="store_true", help="do not judge its memory")


def options(text=()):
    """The defaults, for those who call this from a program."""
    return common.options(add_options, text)


def main():
    a = common.parser(__doc__, add_options).parse_args()
    with common.server(a) as s:
        ruler = asyncio.run(words.measure(s.endpoint))
        result, problems = asyncio.run(run_once(s.endpoint, s.pid, a, ruler))
        if s.proc and s.stop() != 0:
            problems.append("the server ended with %d after SIGTERM:\n%s" % (
                s.proc.returncode, s.output()[-2000:]))
    show(result)
    return common.finish(a, dict(result, workload=vars(a)), problems)


if __name__ == "__main__":
    sys.exit(main())
