#!/usr/bin/env python3
"""Hostile clients beside good ones: nothing breaks, nothing leaks, nobody notices.

  hostile.py --program build/tempo9 --model M.gguf [--hostile 64] [--streams 8] [--seconds 600]

The hostile ones, in a process of their own, send random bytes, cut bodies, a byte a second, 100 MB
bodies, pipelines, 10,000 headers, invalid UTF-8, deep JSON, wrong types, two lengths, and close or
stop reading at any moment. The good ones stream greedy answers, one after another. Checked: each bad
request that is answered gets a 4xx with a message (429 and 503 say when to come back); whoever is
slow is cut off in time; every good answer is complete and is its solo run's, byte for byte; the gaps
between a good stream's tokens keep promise P3; memory is flat in the second half; the server ends
with 0. Standard library only.
"""

import asyncio
import collections
import json
import multiprocessing
import os
import random
import socket
import sys
import threading
import time

import client
import common
import host
import soak
import stats

P3_FLOOR_MS = 200.0
REQUEST_TIMEOUT_S = 5
TIMEOUT_S = 60  # for a reply: bad requests wait for their turn as good ones do
SERVER_ARGS = " --request-timeout %d --max-connections 256" % REQUEST_TIMEOUT_S
# Replies that refuse without blaming the client.
LATER = (429, 503)


# ---- hostile ----

class Bad:
    """One connection of a hostile client."""

    def __init__(self, port, timeout_s=TIMEOUT_S):
        self.begin = self.sent = time.monotonic()
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.got = b""
        self.timed_out = False
        self.error = None

    def send(self, data):
        """False when the server has closed, which it may."""
        try:
            self.sock.sendall(data)
            return True
        except OSError as e:
            self.error = e
            return False
        finally:
            self.sent = time.monotonic()

    def read(self, limit=1 << 20):
        """All that comes until the server closes."""
        try:
            while len(self.got) < limit:
                part = self.sock.recv(65536)
                if not part:
                    break
                self.got += part
        except socket.timeout:
            self.timed_out = True
        except OSError as e:
            self.error = e
        return self.got

    def was_slow(self):
        """Whether this side itself took longer than a request may, on a machine that is busy."""
        return self.sent - self.begin > REQUEST_TIMEOUT_S

    def how(self):
        return "%s, %.1f s to send it, %.1f s since" % (
            type(self.error).__name__ if self.error else "the end", self.sent - self.begin,
            time.monotonic() - self.sent)

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self):
        self.sock.close()


def head(path, *lines, method="POST", length=None):
    out = ["%s %s HTTP/1.1" % (method, path), "Host: localhost", "Connection: close"]
    if length is not None:
        out.append("Content-Length: %d" % length)
    return "\r\n".join(out + list(lines) + ["", ""]).encode("latin-1")


CHAT = "/v1/chat/completions"


def chat(body, *lines):
    return head(CHAT, "Content-Type: application/json", *lines, length=len(body)) + body


def random_bytes(rng, c, note):
    c.send(rng.randbytes(rng.randrange(1, 4096)) + (b"\r\n\r\n" if rng.random() < 0.5 else b""))
    c.sock.shutdown(socket.SHUT_WR)
    c.read()
    note.reply(c, maybe=True)


def cut_body(rng, c, note):
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 4000}]}).encode()
    c.send(chat(body)[:rng.randrange(1, len(body) + 100)])
    if rng.random() < 0.5:
        c.reset()


def slow(rng, c, note):
    data = chat(b"{" + b" " * 1000)
    begin = time.monotonic()
    at = rng.choice((0, 20, data.index(b"\r\n\r\n") + 4))
    c.send(data[:at])
    c.sock.settimeout(1)
    while at < len(data) and not note.stop():
        if not c.send(data[at:at + 1]):
            break
        at += 1
        try:
            part = c.sock.recv(4096)
            c.got += part
            if not part:
                break
        except socket.timeout:
            continue
        except OSError:
            break
    took = time.monotonic() - begin
    # A head of no line at all may be taken for an idle connection; the library ends that.
    if not note.stop() and took > REQUEST_TIMEOUT_S * 4 + 5:
        note.problem("a byte a second was let go on for %.0f s" % took)
    note.reply(c, maybe=True)


def big_body(rng, c, note):
    n = 100 << 20
    block = b"[" * 65536
    if rng.random() < 0.7:
        c.send(head(CHAT, length=n))
        sent = 0
        while sent < n and c.send(block):
            sent += len(block)
            if note.stop():
                return
        c.read()
        note.reply(c, maybe=True)
        return
    c.send(head(CHAT, "Transfer-Encoding: chunked"))
    for _ in range(n // len(block)):
        if note.stop() or not c.send(b"10000\r\n" + block + b"\r\n"):
            break
    c.send(b"0\r\n\r\n")
    c.read()
    note.reply(c, maybe=True)


def pipeline(rng, c, note):
    one = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    paths = [rng.choice((b"health", b"nothing", b"v1/models", b"metrics", b"%00")) for _ in range(50)]
    c.send(b"".join(one % p for p in paths) + chat(b"{}"))
    got = c.read()
    if rng.random() < 0.5 and got and got.count(b"HTTP/1.1 ") != 51:
        note.problem("%d replies to a pipeline of 51" % got.count(b"HTTP/1.1 "))


def many_headers(rng, c, note):
    c.send(head(CHAT, *["X-%d: %d" % (i, i) for i in range(10000)], length=2) + b"{}")
    c.read()
    note.reply(c, maybe=True)


def huge_line(rng, c, note):
    c.send(head("/" + "a" * rng.choice((5000, 200000)), method="GET"))
    c.read()
    note.reply(c, maybe=True)


def invalid_utf8(rng, c, note):
    text = rng.choice((b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80"))
    c.send(chat(b'{"messages":[{"role":"user","content":"' + text + b'"}]}'))
    c.read()
    note.reply(c)


def deep_json(rng, c, note):
    n = rng.choice((100, 1000, 100000, 1000000))
    text = rng.choice((b"[" * n, b'{"a":' * n, b"[" * n + b"]" * n,
                       b'{"messages":' + b"[" * n + b"]" * n + b"}"))
    c.send(chat(text))
    c.read()
    note.reply(c)


FIELDS = ("messages", "model", "stream", "temperature", "max_tokens", "stop", "seed", "top_p", "top_k",
          "n", "logprobs", "tools", "stream_options", "logit_bias", "response_format", "min_p",
          "presence_penalty", "tool_choice", "priority", "user")
WRONG = (None, True, -1, 1e308, 10 ** 30, "", "x", [], {}, [[]], [{}], {"a": []}, [None], "\u0000",
         [1, "a", None], {"role": 5}, [{"role": "user"}], [{"role": 5, "content": {}}], -0.0, 2 ** 63)

UNLIMITED = (None, 1e308, 10 ** 30, 2 ** 63)


def wrong_types(rng, c, note):
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    for _ in range(rng.randrange(1, 4)):
        body[rng.choice(FIELDS)] = rng.choice(WRONG)
    if rng.random() < 0.3:
        body["messages"] = rng.choice(WRONG)
    path = rng.choice((CHAT, CHAT, CHAT, "/v1/completions", "/tokenize", "/detokenize",
                       "/apply-template"))
    raw = json.dumps(body).encode()
    c.send(head(path, "Content-Type: application/json", length=len(raw)) + raw)
    if body["max_tokens"] in UNLIMITED:  # it may be fine, and write until the context is full
        return
    c.read()
    note.reply(c, may_be_fine=True)


def strange_heads(rng, c, note):
    c.send(rng.choice((
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        head(CHAT, "Content-Length: 3", length=2) + b"{}",
        head(CHAT, "Transfer-Encoding: chunked", length=2) + b"0\r\n\r\n",
        head(CHAT, "Transfer-Encoding: identity, chunked") + b"0\r\n\r\n",
        head(CHAT, "Transfer-Encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n",
        head(CHAT, "Transfer-Encoding: chunked") + b"ffffffffffffffffff\r\n{}\r\n",
        head("/%00x", method="GET"), head("/..%2f..", method="GET"), head("*", method="GET"),
        head("/health", method="BREW"), head("/health", method="A" * 300),
        head("/v1/models", "Host: evil.example", method="GET"),
        head("/v1/models", "Origin: http://evil.example", method="GET"),
        b"GET /v1/nothing HTTP/9.9\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: user@localhost\r\nConnection: close\r\n\r\n",
        b"GET  /health\r\n\r\n", b"\r\n\r\n\r\n\r\n", b"GET /health HTTP/1.1\r\n: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : localhost\r\nConnection: close\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")))
    c.sock.settimeout(REQUEST_TIMEOUT_S * 4)
    c.read()
    note.reply(c, maybe=True, may_be_fine=True)


def closed_socket(rng, c, note):
    body = json.dumps({"messages": [{"role": "user", "content": "Tell a story."}], "stream": True,
                       "max_tokens": 200}).encode()
    manner = rng.randrange(4)
    if manner > 0:
        c.send(chat(body))
    if manner == 2:
        c.sock.recv(rng.randrange(1, 4000))
    if manner == 3:  # it stops reading, and then it is gone
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        time.sleep(rng.random() * 3)
    if rng.random() < 0.7:
        c.reset()


ATTACKS = ((random_bytes, 10), (cut_body, 10), (slow, 6), (big_body, 1), (pipeline, 4),
           (many_headers, 4), (huge_line, 4), (invalid_utf8, 8), (deep_json, 6), (wrong_types, 20),
           (strange_heads, 16), (closed_socket, 10))


class Note:
    """What the hostile side has seen."""

    def __init__(self, until):
        self.until = until
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.problems = []
        self.here = threading.local()  # the attack of this thread

    def stop(self):
        return time.monotonic() > self.until

    def problem(self, text):
        with self.lock:
            self.counts["wrong"] += 1
            if len(self.problems) < 20:
                self.problems.append("%s: %s" % (getattr(self.here, "attack", "?"), text))

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def reply(self, c, maybe=False, may_be_fine=False):
        """Judges the first reply to `c`; `maybe`: the server may close without one."""
        got = c.got
        if not got.startswith(b"HTTP/1."):
            if not got and not maybe and c.was_slow():
                self.count("too slow itself")
            elif got or not maybe:
                self.problem("no reply but %r (%s)" % (got[:200], c.how()))
            self.count("closed")
            return
        line, _, rest = got.partition(b"\r\n")
        status = int(line.split()[1])
        fields, _, body = rest.partition(b"\r\n\r\n")
        self.count("%d" % status)
        if status in LATER:
            if b"retry-after" not in fields.lower():
                self.problem("%d without Retry-After" % status)
            return
        if status < 400 and (may_be_fine or status == 100):
            return
        if not 400 <= status < 500 and status not in (501, 505):
            self.problem("%r" % got[:300])
        elif b"application/json" in fields:
            message = json.loads(body.split(b"\r\nHTTP/1.1", 1)[0])["error"]["message"]
            if len(message) < 10:
                self.problem("a message that says nothing: %r" % message)
            self.count("with a JSON message")
        elif len(body) < 10:
            self.problem("no message: %r" % got[:300])


def hostile_client(port, seed, note):
    rng = random.Random(seed)
    attacks, weights = zip(*ATTACKS)
    while not note.stop():
        attack = rng.choices(attacks, weights)[0]
        try:
            c = Bad(port)
        except OSError as e:
            note.count("not connected: %s" % type(e).__name__)
            time.sleep(0.1)
            continue
        note.here.attack = attack.__name__
        try:
            attack(rng, c, note)
            if c.timed_out and not c.got:
                note.problem("silence for %d s" % TIMEOUT_S)
            note.count(attack.__name__)
        except OSError:
            note.count("closed")
        except Exception as e:  # noqa: BLE001 - told with its attack
            note.problem("%s: %s" % (type(e).__name__, e))
        finally:
            c.close()
        time.sleep(rng.random() * 0.05)


def hostile_process(port, n, seconds, seed, pipe):
    os.nice(5)  # the load is on the server, not on the clock of the good ones
    note = Note(time.monotonic() + seconds)
    threads = [threading.Thread(target=hostile_client, args=(port, "%d/%d" % (seed, i), note))
               for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    pipe.send((dict(note.counts), note.problems))
    pipe.close()


# ---- good ----

class Good:
    def __init__(self):
        self.gaps, self.problems, self.n_complete, self.n_later = [], [], 0, 0


def good_body(i, tokens):
    return {"messages": [{"role": "user", "content": "Story number %d, please." % i}],
            "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


async def good_stream(endpoint, body, solo, good, until):
    while time.monotonic() < until:
        times = []

        async def on_text(_connection, answer):
            times.append(answer.text_at[-1])

        try:
            answer = await client.chat(endpoint, body, on_text)
        except client.Refused as e:
            good.n_later += e.status in LATER
            if e.status not in LATER:
                good.problems.append("a good request: %s" % e)
            await asyncio.sleep(0.2)
            continue
        except (client.Broken, OSError) as e:
            good.problems.append("a good stream: %s: %s" % (type(e).__name__, e))
            if len(good.problems) > 20:
                return
            continue
        good.n_complete += 1
        good.gaps += [(b - a) * 1e3 for a, b in zip(times, times[1:])]
        if soak.key(answer) != solo:
            good.problems.append("a good answer differs from its solo run: %r, alone %r" % (
                soak.key(answer), solo))


async def run_good(s, a, good, samples):
    bodies = [good_body(i, a.stream_tokens) for i in range(a.streams)]
    solo = [soak.key(await client.chat(s.endpoint, b)) for b in bodies]
    # Alone, for the step that P3 speaks of.
    calm = Good()
    until = time.monotonic() + a.calm_s
    await asyncio.gather(*(good_stream(s.endpoint, b, k, calm, until) for b, k in zip(bodies, solo)))
    ours, theirs = multiprocessing.Pipe(False)
    enemy = multiprocessing.get_context("fork").Process(
        target=hostile_process, args=(s.endpoint[1], a.hostile, a.seconds, a.seed, theirs))
    enemy.start()
    theirs.close()
    begin = time.monotonic()
    until = begin + a.seconds

    async def watch():
        while True:
            m = host.memory_kib(s.pid) if s.pid else None
            if m:
                samples.append((time.monotonic() - begin, m["VmRSS"] / 1024, m["RssAnon"] / 1024))
            await asyncio.sleep(max(0.1, min(1.0, a.seconds / 60)))

    watcher = asyncio.ensure_future(watch())
    await asyncio.gather(*(good_stream(s.endpoint, b, k, good, until) for b, k in zip(bodies, solo)))
    while enemy.is_alive() and not ours.poll():
        await asyncio.sleep(0.1)
    watcher.cancel()
    counts, problems = ours.recv() if ours.poll() else ({}, ["the hostile clients died"])
    enemy.join(30)
    left = await soak.wait_idle(s.endpoint)
    return calm, counts, problems + ([left] if left else [])


def judge(a, calm, good, counts, problems, samples):
    problems = problems + calm.problems + good.problems
    step = stats.percentile(calm.gaps, 50)
    limit = a.gap_limit_ms or (max(P3_FLOOR_MS, 2 * step) if step else None)
    worst = stats.percentile(good.gaps, 99.9)
    if not good.gaps or worst is None or (not a.no_gaps and worst > limit):
        problems.append("p99.9 of the gaps of good streams is %s ms, where %s is allowed" % (
            stats.show(worst), stats.show(limit)))
    flat = soak.flatness(samples)
    grown = flat["anon_end_mib"] - flat["anon_middle_mib"] if flat else 0
    if flat and not flat["flat"] and grown > a.memory_slack_mib and not a.no_memory:
        problems.append("memory grows: %(anon_middle_mib).1f MiB in the middle, "
                        "%(anon_end_mib).1f MiB at the end" % flat)
    missing = [f.__name__ for f, w in ATTACKS if w > 1 and not counts.get(f.__name__)]
    if missing:
        problems.append("too short: never tried %s" % ", ".join(missing))
    return {"counts": counts, "memory": flat, "good_complete": good.n_complete,
            "good_later": good.n_later, "gap_p50_calm_ms": step, "gap_p99.9_ms": worst,
            "gap_worst_ms": max(good.gaps, default=None), "gap_limit_ms": limit}, problems


def show(r):
    print("hostile: " + ", ".join("%s %d" % kv for kv in sorted(r["counts"].items())))
    print("good: %d complete answers (%d told to come later), gaps p99.9 %s ms, worst %s ms, limit %s "
          "ms (calm p50 %s ms)" % (r["good_complete"], r["good_later"], stats.show(r["gap_p99.9_ms"]),
                                   stats.show(r["gap_worst_ms"]), stats.show(r["gap_limit_ms"]),
                                   stats.show(r["gap_p50_calm_ms"])))
    m = r["memory"]
    if m:
        print("memory: anonymous %.1f MiB in the middle, %.1f at the end, at most %.1f" % (
            m["anon_middle_mib"], m["anon_end_mib"], m["anon_max_mib"]))


def main():
    p = common.parser(__doc__)
    p.add_argument("--hostile", type=int, default=64)
    p.add_argument("--streams", type=int, default=8)
    p.add_argument("--stream-tokens", type=int, default=200)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--calm-s", type=float, default=3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--gap-limit-ms", type=float, help="instead of P3's")
    p.add_argument("--no-gaps", action="store_true", help="do not judge the gaps (sanitizers)")
    p.add_argument("--memory-slack-mib", type=float, default=0, help="more than this is growth; in a "
                   "short run the largest requests of the moment are seen")
    p.add_argument("--no-memory", action="store_true", help="do not judge its memory")
    a = p.parse_args()
    if not a.url:
        a.args += SERVER_ARGS
    good, samples = Good(), []
    with common.server(a) as s:
        calm, counts, problems = asyncio.run(run_good(s, a, good, samples))
        if s.proc and s.proc.poll() is not None:
            problems.append("the server died with %d" % s.proc.returncode)
        if s.proc and s.stop(120) != 0:
            problems.append("the server ended with %s:\n%s" % (s.proc.returncode, s.output()[-4000:]))
        if s.proc and ("Sanitizer" in s.output()):
            problems.append("a sanitizer spoke:\n%s" % s.output()[-4000:])
    result, problems = judge(a, calm, good, counts, problems, samples)
    show(result)
    return common.finish(a, dict(result, workload=vars(a)), problems)


if __name__ == "__main__":
    sys.exit(main())
