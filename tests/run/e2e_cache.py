#!/usr/bin/env python3
"""What clients see of the shared cache, the queue and its limits: real program, real engine.

  e2e_cache.py --program PATH --mkgguf PATH [--sanitized] [--only NAME,..]

Standard library only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

from t9server import Server, Stream, chat, chat_stream


def check(ok, what):
    if not ok:
        raise AssertionError(what)


class Run:
    def __init__(self, a, tmp):
        self.a = a
        self.slow = os.path.join(tmp, "slow.gguf")
        layers = "2" if a.sanitized else "8"
        subprocess.run([a.mkgguf, self.slow, "--context", "8192", "--layers", layers, "--width",
                        "512", "--heads", "8", "--ffn", "1024"], check=True)

    def server(self, *args):
        return Server(self.a.program, self.slow, "--kv-memory", "128M", *args)


def ask(text, max_tokens, **more):
    return dict({"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens,
                 "ignore_eos": True, "seed": 5, "temperature": 1}, **more)


def state(s):
    status, headers, data = s.request("GET", "/v1/state")
    check(status == 200 and headers["cache-control"] == "no-store", "GET /v1/state: %d" % status)
    return json.loads(data)


def wait_state(s, good, what, wait_s=60):
    until = time.monotonic() + wait_s
    while True:
        now = state(s)
        if good(now):
            return now
        check(time.monotonic() < until, "%s: not seen; the last state: %s" % (what, now))
        time.sleep(0.002)


def later(call):
    """Starts call() on a thread; the returned function waits for its result."""
    box = []
    t = threading.Thread(target=lambda: box.append(call()), daemon=True)
    t.start()

    def result(wait_s=120):
        t.join(wait_s)
        check(box, "no answer within %d s" % wait_s)
        return box[0]
    return result


LONG = " ".join("part %d of a long text that two clients have in common." % i for i in range(60))


def test_hand_over(run):
    """A client vanishes while another one waits for what it computes: the other takes over."""
    body = ask(LONG, 12)
    with run.server() as s:
        alone = chat(s, body)
        n_prompt = int(s.metrics()["tempo9_prompt_tokens_total"])
    for stream in (False, True):
        with run.server("--step-tokens", "32") as s:
            first = Stream(s, dict(body, stream=True))
            wait_state(s, lambda t: t["running"] and t["running"][0]["prefilled_tokens"] >= 128,
                       "the first client's prompt being computed")
            second = later(lambda: (chat_stream if stream else chat)(s, dict(body, timings=True)))
            seen = wait_state(s, lambda t: t["engine"]["waiting_for_prefix"] == 1,
                              "the second client waiting for the first one's pages")
            at = seen["running"][0]["prefilled_tokens"]
            check(at < n_prompt, "the prompt of %d tokens was computed too soon" % n_prompt)
            first.close()
            got = second()
            check(got.text == alone.text and got.finish == alone.finish,
                  "after the hand-over:\n%r\nalone:\n%r" % (got.text, alone.text))
            m = s.wait_metric(lambda m: m["tempo9_requests_running"] == 0, "the end")
            print("  %d tokens, the first left at %d; %d were reused"
                  % (n_prompt, at, m["tempo9_cached_tokens_total"]))
            check(m['tempo9_prefix_requests_total{found="inflight"}'] == 1, "no in-flight hit")
            check(m["tempo9_cached_tokens_total"] >= 96, "nothing was reused")
            check(m['tempo9_requests_finished_total{reason="cancelled"}'] == 1, "no cancel")
            check(m["tempo9_prompt_tokens_total"] < 2 * n_prompt, "all was computed twice")


def test_reuse_is_told(run):
    """usage, timings and the metrics agree on what was reused; the text is the same."""
    body = ask(LONG, 8, timings=True)
    with run.server() as s:
        status, _, cold = s.post(body)
        check(status == 200, cold)
        status, _, warm = s.post(body)
        check(status == 200, warm)
        n = cold["usage"]["prompt_tokens"]
        check(cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, cold["usage"])
        check(warm["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1, warm["usage"])
        check(cold["choices"] == warm["choices"], "hit and miss differ")
        check(warm["timings"]["cache_n"] == n - 1 and warm["timings"]["prompt_n"] == 1,
              warm["timings"])
        check(0 < warm["timings"]["first_token_ms"] < cold["timings"]["first_token_ms"],
              (cold["timings"], warm["timings"]))
        # The pages are given back a moment after the last byte was read.
        wait_state(s, lambda now: now["pool"]["used"] == 0, "pages that nobody uses")
        m = s.metrics()
        check(m['tempo9_prefix_requests_total{found="full"}'] == 1, "full")
        check(m['tempo9_prefix_requests_total{found="nothing"}'] == 1, "nothing")
        check(m["tempo9_cached_tokens_total"] == n - 1, "cached")
        check(m["tempo9_kv_pages"] == m["tempo9_kv_pages_used"] + m["tempo9_kv_pages_cold"] +
              m["tempo9_kv_pages_free"], "the pages do not add up")
        now = state(s)
        check(now["pool"]["cold"] == m["tempo9_kv_pages_cold"] > 0, now["pool"])
        status, _, plain = s.post(ask(LONG, 1))
        check("timings" not in plain, "timings that nobody asked for")


def test_client_limits(run):
    """One client's second request waits, its fourth is refused; another client is not held up."""
    alice, bob = {"x-tempo9-client": "alice"}, {"x-tempo9-client": "bob"}
    body = json.dumps(ask("hello", 400))

    def post(s, who, body=body):
        return later(lambda: s.request("POST", "/v1/chat/completions", body, who))

    with run.server("--max-per-client", "1", "--queue", "4") as s:
        waits = [post(s, alice) for _ in range(3)]
        wait_state(s, lambda t: t["engine"]["running"] == 1 and t["engine"]["waiting"] == 2,
                   "one of alice's requests running and two waiting")
        status, headers, data = post(s, alice)()
        error = json.loads(data)["error"]
        check(status == 429 and error["code"] == "rate_limit_exceeded", (status, error))
        check(int(headers["retry-after"]) >= 1, headers)
        other = post(s, bob, json.dumps(ask("hi", 4)))
        check(other()[0] == 200, "bob was held up")
        check(state(s)["http"]["chats"] == 3, "bob had to wait for alice")
        check([w()[0] for w in waits] == [200] * 3, "alice's requests")


def test_deadline(run):
    """A request that would wait for too long is told so, with a time to come back."""
    with run.server("--max-batch", "1") as s:
        busy = Stream(s, ask("hello", 4000, stream=True))
        busy.wait_bytes(b'"content"')
        for stream in (False, True):
            status, headers, data = s.request(
                "POST", "/v1/chat/completions", json.dumps(ask("hi", 4, stream=stream)),
                {"x-tempo9-queue-timeout-ms": "150"})
            check(status == 503 and json.loads(data)["error"]["code"] == "queue_timeout", data)
            check(int(headers["retry-after"]) >= 1, headers)
        check(s.metrics()["tempo9_requests_expired_total"] == 2, "expired")
        busy.close()


def test_priority(run):
    """Of what waits, the higher priority is served first."""
    order = []
    with run.server("--max-batch", "1") as s:
        busy = Stream(s, ask("hello", 4000, stream=True))
        busy.wait_bytes(b'"content"')

        def one(priority):
            status, _, _ = s.post(ask("hi", 2, priority=priority))
            order.append((priority, status))
        waits = []
        for n, priority in enumerate((-5, 0, 7)):
            waits.append(later(lambda p=priority: one(p)))
            wait_state(s, lambda t: len(t["queue"]) == n + 1, "the queue growing")
        queue = [q["priority"] for q in state(s)["queue"]]
        check(queue == [7, 0, -5], "queue: %r" % queue)
        busy.close()
        for w in waits:
            w()
    check(sorted(order) == [(-5, 200), (0, 200), (7, 200)], order)


def test_log_has_no_prompts(run):
    """Where a prompt leaves the cache is in the log; tokens and words only when both flags say so."""
    first, second = "a text that begins alike " * 8 + "ALPHA", "a text that begins alike " * 8 + "OMEGA"
    for flags, words in (((), False), (("--log-prompts",), True)):
        with run.server("--log-level", "debug", *flags) as s:
            chat(s, ask(first, 2))
            chat(s, ask(second, 2))
            check(s.stop() == 0, "exit code")
            log = s.stderr()
        check("leaves the cached text at token" in log, log)
        check(bool(re.search(r"(\(| )\d+ \d+ \d+", log)) == words, log)
        check(("OMEGA" in log) == words and ("ALPHA" in log) == words, log)
        check("begins alike" not in log, log)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--mkgguf", required=True)
    p.add_argument("--sanitized", action="store_true")
    p.add_argument("--only", default="")
    a = p.parse_args()
    only = [n for n in a.only.split(",") if n]
    tests = {name[5:]: f for name, f in globals().items() if name.startswith("test_")}
    failed = []
    with tempfile.TemporaryDirectory() as tmp:
        run = Run(a, tmp)
        for name, f in tests.items():
            if only and name not in only:
                continue
            t0 = time.monotonic()
            print(name, flush=True)
            try:
                f(run)
            except Exception as e:  # the next test says something of its own
                failed.append(name)
                print("  FAILED: %s: %s" % (type(e).__name__, e))
            print("  %.1f s" % (time.monotonic() - t0), flush=True)
    if failed:
        print("failed: " + " ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
