#!/usr/bin/env python3
"""The real server under real clients: same text alone and among others, memory that follows use,
clients that vanish, files that shrink, an end that loses nothing, refusals that say why.

  e2e_serve.py --program PATH --mkgguf PATH [--model GGUF] [--sanitized] [--only NAME,..]

Tiny models are made on the spot; --model adds the runs on a real one. Standard library only.
"""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from t9server import Server, ServerFailed, Stream, all_at_once, chat, chat_stream, TICKS_PER_S

CANCELLED = 'tempo9_requests_finished_total{reason="cancelled"}'


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def ask(text, n, **more):
    return dict({"messages": [{"role": "user", "content": text}], "max_tokens": n}, **more)


def eight_requests(scale):
    """Different prompts, lengths and ways of sampling. scale: how much text."""
    base = "The whales of the northern sea sing long songs; sailors write them down. "
    return [
        ask("Name three colours.", 12 * scale, temperature=0),
        ask("Why is the sky blue? " + base * (2 * scale), 9 * scale, temperature=0),
        ask(base * (5 * scale), 14 * scale, temperature=0),
        ask("Écris une phrase: été, naïve, 東京, 🐋.", 11 * scale, temperature=1.0, seed=1),
        ask("Count to ten.", 16 * scale, temperature=1.5, seed=2, top_k=40),
        ask(base, 7 * scale, temperature=0.8, seed=3, top_p=0.9),
        ask(base * scale + "Go on.", 10 * scale, temperature=1.2, seed=2 ** 53 - 1, min_p=0.05),
        ask("x", 1, temperature=2.0, seed=5),
    ]


class Run:
    def __init__(self, a, tmp):
        self.a, self.tmp = a, tmp
        self.tiny = self.model("tiny.gguf", "--context", "8192")
        # Steps of some ten milliseconds, so that two of them can be told from many.
        self.slow = self.model("slow.gguf", "--context", "8192", "--layers", "2" if a.sanitized else "8", "--width", "512",
                               "--heads", "8", "--ffn", "1024")

    def model(self, name, *args):
        path = os.path.join(self.tmp, name)
        subprocess.run([self.a.mkgguf, *args, path], check=True)
        return path

    def server(self, model, *args):
        return Server(self.a.program, model, *args)

    def slow_server(self, *args):
        return self.server(self.slow, "--backend", "canon", "--threads", "1", *args)


# ---- same answer in any company ----

def same_bits(run, model, requests, configs):
    with run.server(model) as s:
        alone = [chat(s, r) for r in requests]
        check(all(r.status == 200 for r in alone), "solo runs: %r" % alone)
        check(len({r.text for r in alone}) > 4, "the solo texts hardly differ: %r" % alone)
        streamed = [chat_stream(s, r) for r in requests]
        compare("stream against whole", alone, streamed)
        compare("eight at once", alone, all_at_once([lambda r=r: chat_stream(s, r)
                                                     for r in requests]))
        compare("eight at once, whole and streamed mixed", alone,
                all_at_once([lambda r=r, f=(chat, chat_stream)[i % 2]: f(s, r)
                             for i, r in enumerate(requests)]))
        check(s.stop() == 0, "exit code after SIGTERM")
    for config in configs:
        try:
            with run.server(model, *config) as s:
                got = all_at_once([lambda r=r: chat_stream(s, r) for r in requests])
                compare("eight at once with " + " ".join(config), alone, got)
                m = s.metrics()
                check(m["tempo9_kv_pages_used"] == 0, "pages left: %r" % m["tempo9_kv_pages_used"])
                check(s.stop() == 0, "exit code after SIGTERM")
        except ServerFailed as e:
            if "--isa" not in config:
                raise
            print("  without %s: %s" % (" ".join(config), e.stderr.strip()))


def compare(what, want, got):
    for i, (w, g) in enumerate(zip(want, got)):
        check(w.key() == g.key(), "%s: request %d differs:\n  alone %r\n  here  %r" % (what, i, w, g))
    print("  %s: equal" % what)


CONFIGS = [("--max-batch", "3"), ("--step-tokens", "17"), ("--threads", "1"), ("--isa", "avx2"),
           ("--max-batch", "3", "--step-tokens", "5", "--threads", "2", "--isa", "avx2")]


def test_same_bits_tiny(run):
    same_bits(run, run.tiny, eight_requests(4), CONFIGS)


def test_same_bits_model(run):
    if not run.a.model:
        print("  skipped: no --model")
        return
    same_bits(run, run.a.model, eight_requests(2), CONFIGS[:1] + CONFIGS[4:])


# ---- memory and rest ----

def test_memory(run):
    for model in [run.tiny] + ([run.a.model] if run.a.model else []):
        anon = {}
        for length in (2048, 8192, 1 << 20):
            with run.server(model, "--max-length", length, "--allow-long") as s:
                anon[length] = s.status_kib("RssAnon")
                print("  --max-length %d: RssAnon %d kB, VmRSS %d kB"
                      % (length, anon[length], s.status_kib("VmRSS")))
        diff = max(anon.values()) - min(anon.values())
        print("  difference %d kB" % diff)
        check(run.a.sanitized or diff < 2048, "memory at start follows --max-length: %r" % anon)


def test_idle(run):
    """A server without work takes no CPU time, whoever stays connected."""
    with run.server(run.tiny) as s:
        check(chat(s, ask("hello", 4)).status == 200, "answer")
        kept = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        kept.request("GET", "/health")
        check(kept.getresponse().read() != b"", "health")
        silent, half = (socket.create_connection(("127.0.0.1", s.port)) for _ in range(2))
        half.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        time.sleep(0.3)
        before = s.cpu_ticks()
        time.sleep(3)
        used = s.cpu_ticks() - before
        for connection in (kept, silent, half):
            connection.close()
        print("  %d ticks of 1/%d s in 3 s" % (used, TICKS_PER_S))
        check(used <= 2, "an idle server used %d ticks" % used)


# ---- clients that vanish ----

def empty(m):
    return (m["tempo9_requests_running"] == 0 and m["tempo9_requests_waiting"] == 0 and
            m["tempo9_kv_pages_used"] == 0)


def kill_one(s, what, stream, ready, end):
    """Kills one client and counts the steps until the engine is empty. A machine that is busy with
    something else can keep the server from hearing of the kill, which only ever adds steps: one
    attempt of three within the limit shows that the server keeps it."""
    for _ in range(3):
        steps, allowed = kill_once(s, what, stream, ready(s.metrics()), end)
        if steps <= allowed:
            return
    check(False, "%s: %d steps after the kill, at most %d allowed" % (what, steps, allowed))


def kill_once(s, what, stream, ready, end):
    before_all = s.metrics()
    body = ask("w " * 3000 if what == "prefill" else "hello", 4000, temperature=0, ignore_eos=True,
               stream=stream)
    client = Stream(s, body)
    s.wait_metric(ready, "%s begins" % what)
    t0 = time.monotonic()
    m0 = s.metrics()
    getattr(client, end)()
    gap = time.monotonic() - t0
    m1 = s.wait_metric(empty, "%s, %s: the sequence stops" % (what, end))
    steps = int(m1["tempo9_steps_total"] - m0["tempo9_steps_total"])
    check(m1[CANCELLED] == before_all[CANCELLED] + 1, "%s: not counted as cancelled" % what)
    mean = m1["tempo9_step_seconds_total"] / max(1, m1["tempo9_steps_total"])
    # Two steps after the kill, and those that passed between the look and the kill.
    allowed = 2 + 1 + int(gap / mean)
    print("  %s, %s, %s: %d steps after the kill (look to kill %.1f ms, a step %.1f ms)"
          % (what, "stream" if stream else "whole", end, steps, gap * 1e3, mean * 1e3))
    return steps, allowed


def test_kill(run):
    with run.slow_server() as s:
        for stream in (True, False):
            for end in ("tear", "close"):
                kill_one(s, "decode", stream, lambda m0: lambda m:
                         m["tempo9_requests_running"] == 1 and m["tempo9_generated_tokens_total"] >=
                         m0["tempo9_generated_tokens_total"] + 3, end)
                kill_one(s, "prefill", stream, lambda m0: lambda m:
                         m["tempo9_requests_running"] == 1 and m["tempo9_kv_pages_used"] > 0, end)
        check(chat(s, ask("hello", 3)).status == 200, "the server answers afterwards")
        check(s.stop() == 0, "exit code")
        gone = [line for line in s.stderr().splitlines() if "client gone" in line]
        check(len(gone) >= 8, "the log has %d clients that are gone" % len(gone))
        for line in gone:
            check("prefill=0.0 ms" not in line, "no time of the prompt: " + line)
            check("decode=0.0 ms" in line or "completion=0 " not in line, "no tokens: " + line)


def test_kill_queued(run):
    with run.slow_server("--max-batch", "1") as s:
        first = Stream(s, ask("hello", 4000, temperature=0, ignore_eos=True, stream=True))
        first.wait_bytes(b'"content"')
        queued = [Stream(s, ask("hello", 8, stream=i % 2 == 0)) for i in range(4)]
        s.wait_metric(lambda m: m["tempo9_requests_waiting"] == 4, "four wait")
        for i, q in enumerate(queued):
            q.tear() if i < 2 else q.close()
        m = s.wait_metric(lambda m: m["tempo9_requests_waiting"] == 0, "the queue empties", 10)
        check(m["tempo9_requests_running"] == 1, "the running one goes on")
        check(m[CANCELLED] == 4, "four cancelled, not %d" % m[CANCELLED])
        first.tear()
        s.wait_metric(empty, "the running one stops")
        check(chat(s, ask("hello", 3)).status == 200, "the server answers afterwards")


def test_kill_among_others(run):
    """The neighbours of a killed client get the text that they get alone."""
    body = ask("Count to ten.", 40, temperature=1.1, seed=11, ignore_eos=True)
    with run.server(run.tiny) as s:
        alone = chat(s, body)

        def killed(i):
            c = Stream(s, ask("hello " * (i * 50 + 1), 3000, temperature=0, ignore_eos=True,
                              stream=True))
            time.sleep(0.02 * i)
            c.tear()

        got = all_at_once([lambda: chat_stream(s, body)] * 4 +
                          [lambda i=i: killed(i) for i in range(12)])
        compare("beside twelve killed ones", [alone] * 4, got[:4])
        s.wait_metric(empty, "all pages come back")
        check(s.stop() == 0, "exit code")


# ---- files that shrink ----

def test_truncated_file(run):
    copy = os.path.join(run.tmp, "shrinks.gguf")
    source = run.a.model or run.tiny
    shutil.copy(source, copy)
    body = ask("Name three colours.", 8, temperature=0)
    with run.server(copy) as s:
        before = chat(s, body)
        os.truncate(copy, 1000)
        after = all_at_once([lambda: chat_stream(s, body) for _ in range(3)])
        compare("after the file shrank", [before] * 3, after)
        check(s.stop() == 0, "exit code")
    fails_cleanly(run, copy, "already short")
    ended = 0
    for delay_ms in (2, 10, 30, 80, 200):
        shutil.copy(source, copy)
        p = subprocess.Popen([run.a.program, "--gguf", copy, "--port", "0"],
                             stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        time.sleep(delay_ms / 1e3)
        os.truncate(copy, os.path.getsize(copy) // 2)
        try:
            err = p.communicate(timeout=3 if not run.a.sanitized else 20)[1].decode()
            check(p.returncode == 1, "shrunk after %d ms: exit %d: %s" % (delay_ms, p.returncode, err))
            one_line(err)
            ended += 1
        except subprocess.TimeoutExpired:  # it had been read by then
            p.terminate()
            p.communicate()
            check(p.returncode == 0, "exit %d" % p.returncode)
    print("  shrunk while loading: %d of 5 refused, the others had read it" % ended)


def one_line(err):
    """The last line is the program's one message; before it only log lines of the start."""
    lines = [x for x in err.strip().splitlines() if x.startswith("tempo9: ")]
    check(len(lines) == 1, "one line of message, not %r" % err)
    return lines[0]


def fails_cleanly(run, model, what, *args):
    p = subprocess.run([run.a.program, "--gguf", model, "--port", "0", *args],
                       capture_output=True, text=True, timeout=120)
    check(p.returncode == 1, "%s: exit %d, %r" % (what, p.returncode, p.stderr))
    print("  %s: %s" % (what, one_line(p.stderr)))


# ---- the end ----

def test_drain(run):
    with run.slow_server() as s:
        t0 = time.monotonic()
        chat(s, ask("hello", 8, temperature=1, seed=4, ignore_eos=True))
        # About three seconds: longer than what is asked below, shorter than the drain's limit.
        n = max(8, min(2000, int(3 * 8 / (time.monotonic() - t0))))
        body = ask("hello", n, temperature=1, seed=4, ignore_eos=True)
        alone = chat(s, body)
        told = []

        def at_chunk(reply):
            if not told and len(reply.text) > 3:
                told.append(1)
                s.proc.send_signal(signal.SIGTERM)
                time.sleep(0.2)
                status, headers, data = s.post(ask("hello", 1))
                if status != 503 or data["error"]["code"] != "server_stopping":
                    told.append("a new request got %d %r" % (status, data))
                if not 1 <= int(headers.get("retry-after", 0)) <= 11:
                    told.append("retry-after: %r" % headers)
                if s.request("GET", "/health")[0] != 503:
                    told.append("healthy while it stops")

        got = chat_stream(s, body, on_chunk=at_chunk)
        check(told == [1], "while stopping: %r" % told)
        compare("the stream that ran at SIGTERM", [alone], [got])
        check(s.proc.wait(30) == 0, "exit code after draining")
    with run.slow_server() as s:
        c = Stream(s, ask("hello", 4000, ignore_eos=True, stream=True))
        c.wait_bytes(b'"content"')
        s.proc.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        check(s.proc.poll() is None, "waits for the stream")
        t0 = time.monotonic()
        s.proc.send_signal(signal.SIGTERM)
        code = s.proc.wait(5)
        print("  a second signal: exit %d after %.0f ms" % (code, (time.monotonic() - t0) * 1e3))
        check(code == -signal.SIGTERM, "ends at once")
        c.close()


def test_drain_limit(run):
    """An answer that would take for ever is ended after the drain's limit, with an error event."""
    with run.slow_server() as s:
        c = Stream(s, ask("hello", 8000, ignore_eos=True, stream=True))
        c.wait_bytes(b'"content"')
        t0 = time.monotonic()
        s.proc.send_signal(signal.SIGTERM)
        c.wait_bytes(b'"error"')
        check(s.proc.wait(30) == 0, "exit code")
        took = time.monotonic() - t0
        print("  ended after %.1f s" % took)
        check(took < 20, "too late")
        check(b"[DONE]" not in c.pending, "an ended answer passed as a whole one")
        c.close()


def test_taken_port(run):
    with run.server(run.tiny) as s:
        p = subprocess.run([run.a.program, run.tiny, "--port", str(s.port)],
                           capture_output=True, text=True, timeout=60)
        check(p.returncode == 1, "exit %d" % p.returncode)
        line = one_line(p.stderr)
        check(str(s.port) in line, line)
        print("  " + line)


# ---- crowds ----

def test_crowd(run):
    body = ask("Count to ten.", 24, temperature=1.1, seed=9, ignore_eos=True)
    with run.server(run.tiny) as s:
        alone = chat(s, body)
        got = all_at_once([lambda i=i: (chat, chat_stream)[i % 2](s, body) for i in range(64)])
        compare("64 at once", [alone] * 64, got)
        check(empty(s.wait_metric(empty, "empty")), "empty")
    with run.server(run.tiny, "--queue", "4", "--max-batch", "2") as s:
        got = all_at_once([lambda i=i: (chat, chat_stream)[i % 2](s, body) for i in range(64)])
        busy = [r for r in got if r.status == 503]
        fine = [r for r in got if r.status == 200]
        check(len(busy) + len(fine) == 64, "other states: %r" % [r.status for r in got])
        check(busy and all("retry-after" in r.headers for r in busy), "503 with Retry-After")
        check(all(r.error["code"] == "server_busy" for r in busy), "%r" % busy[0].error)
        compare("the answered ones of 64 with a queue of 4", [alone] * len(fine), fine)
        print("  %d answered, %d got 503" % (len(fine), len(busy)))
        check(chat(s, body).key() == alone.key(), "afterwards")


# ---- refusals ----

def refusals():
    hello = [{"role": "user", "content": "hello"}]
    long = [{"role": "user", "content": "w " * 20000}]
    return [
        # body, status, param or None, code or None
        (b'{"messages":', 400, None, "invalid_json"),
        (b"", 400, None, None),
        (b"[]", 400, None, None),
        (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', 400, None, "invalid_json"),
        (b"[" * 100000, 400, None, "invalid_json"),
        ({}, 400, "messages", "missing_required_parameter"),
        ({"messages": []}, 400, "messages", None),
        ({"messages": "hello"}, 400, "messages", None),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role", None),
        ({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:,"}}]}]}, 400, None,
         "unsupported_content"),
        ({"messages": hello, "temperature": "warm"}, 400, "temperature", "invalid_value"),
        ({"messages": hello, "temperature": -1}, 400, "temperature", "invalid_value"),
        ({"messages": hello, "top_p": 3}, 400, "top_p", "invalid_value"),
        ({"messages": hello, "max_tokens": 0}, 400, "max_tokens", "invalid_value"),
        ({"messages": hello, "audio": True}, 400, "audio", "unsupported_parameter"),
        ({"messages": hello, "top_logprobs": 2}, 400, "top_logprobs", "invalid_value"),
        ({"messages": hello, "model": "gpt-9"}, 404, "model", "model_not_found"),
        ({"messages": long}, 400, "messages", "context_length_exceeded"),
    ]


def test_refusals(run):
    with run.server(run.tiny, "--max-length", "2048") as s:
        for body, status, param, code in refusals():
            for stream in (False, True) if isinstance(body, dict) else (False,):
                sent = dict(body, stream=True) if stream else body
                got, _, data = s.post(sent)
                e = data.get("error", {})
                name = repr(body)[:70]
                check(got == status, "%s: %d %r" % (name, got, data))
                check(e.get("message") and e.get("type"), "%s: %r" % (name, data))
                check(param is None or e.get("param") == param, "%s: param of %r" % (name, e))
                check(code is None or e.get("code") == code, "%s: code of %r" % (name, e))
        for method, path, headers, status in (
                ("GET", "/nothing", {}, 404), ("GET", "/v1/chat/completions", {}, 405),
                ("GET", "/v1/models/none", {}, 404), ("GET", "/v1/models", {"Host": "evil.example"}, 403),
                ("GET", "/v1/models", {"Origin": "http://evil.example"}, 403),
                ("POST", "/v1/chat/completions", {"Content-Length": str(1 << 40)}, 413),
                ("GET", "/v1/models?beta=true", {}, 200), ("HEAD", "/health", {}, 200),
                ("GET", "/v1/capabilities", {}, 200), ("OPTIONS", "/v1/chat/completions", {}, 204)):
            got, h, data = s.request(method, path, None, headers, timeout=20)
            check(got == status, "%s %s %r: %d %r" % (method, path, headers, got, data[:200]))
            if status >= 400:
                check("error" in json.loads(data), "%s: %r" % (path, data))
            if status == 405:
                check("allow" in h, "405 without Allow")
        unknown = ask("hello", 2, colour="red")
        status, _, data = s.post(unknown)
        check(status == 200 and "colour" in str(data.get("warnings")), "%d %r" % (status, data))
        status, _, data = s.post(ask("hello", 99999, ignore_eos=False))
        check(status == 200 and "max_tokens" in str(data.get("warnings")), "%d %r" % (status, data))
        for junk in (b"\r\n\r\n", b"GET\r\n\r\n", b"\0" * 5000, b"POST / HTTP/1.1\r\nHost: a\r\n" +
                     b"X: " + b"y" * 100000 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
                try:
                    c.sendall(junk)
                    c.shutdown(socket.SHUT_WR)
                    while c.recv(4096):
                        pass
                except OSError:
                    pass
        check(chat(s, ask("hello", 3)).status == 200, "the server answers afterwards")
        check(s.stop() == 0, "exit code")
    key = {"Authorization": "Bearer secret"}
    with run.server(run.tiny, "--api-key", "secret", "--cors-origin",
                    "http://a.example,http://b.example") as s:
        for path, headers, status in (("/v1/models", {}, 401), ("/v1/models", key, 200),
                                      ("/v1/models", {"x-api-key": "secret"}, 200),
                                      ("/v1/models", {"x-api-key": "secre"}, 401),
                                      ("/health", {}, 200)):
            got = s.request("GET", path, None, headers)[0]
            check(got == status, "%s with %r: %d" % (path, headers, got))
        _, h, _ = s.request("GET", "/v1/models", None, dict(key, Origin="http://b.example"))
        check(h.get("access-control-allow-origin") == "http://b.example", "%r" % h)
    with run.server(run.tiny, "--strict") as s:
        status, _, data = s.post(ask("hello", 2, colour="red"))
        check(status == 400 and data["error"]["param"] == "colour", "--strict: %r" % data)


def main():
    tests = {name[5:]: f for name, f in globals().items() if name.startswith("test_")}
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--mkgguf", required=True)
    p.add_argument("--model", help="a real model; its absence leaves those runs out")
    p.add_argument("--sanitized", action="store_true", help="memory figures mean nothing")
    p.add_argument("--only", help="comma list of: " + " ".join(tests))
    a = p.parse_args()
    if a.model and not os.path.exists(a.model):
        a.model = None
    failed = []
    with tempfile.TemporaryDirectory() as tmp:
        run = Run(a, tmp)
        for name in a.only.split(",") if a.only else tests:
            print("%s" % name, flush=True)
            t0 = time.monotonic()
            try:
                tests[name](run)
                print("  ok, %.1f s" % (time.monotonic() - t0), flush=True)
            except Exception as e:
                failed.append(name)
                print("  FAILED %s: %s" % (type(e).__name__, e), flush=True)
    print("failed: %s" % ", ".join(failed) if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
