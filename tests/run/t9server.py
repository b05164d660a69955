"""What the end-to-end tests share: starting the program, talking HTTP to it, reading its metrics.

Standard library only. Nothing here judges; the tests do.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Server:
    """One running `tempo9 serve`. `with Server(...) as s` ends it by SIGKILL if nothing else did.

    Without `model`, one of the arguments names it.
    """

    def __init__(self, program, model, *args, wait_s=120, env=None, preexec=None):
        self.log = tempfile.TemporaryFile()
        self.proc = subprocess.Popen(
            [program, "serve", *(("--gguf", model) if model else ()), "--port", "0",
             *map(str, args)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log, env=env,
            preexec_fn=preexec)
        self.port = None
        until = time.monotonic() + wait_s
        while self.port is None:
            if self.proc.poll() is not None:
                raise ServerFailed(self.proc.returncode, self.stderr())
            if time.monotonic() > until:
                self.kill()
                raise ServerFailed(None, self.stderr())
            found = re.search(r"listening on http://[^ ]*:(\d+)", self.stderr())
            if found:
                self.port = int(found.group(1))
            else:
                time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.kill()

    def stderr(self):
        return os.pread(self.log.fileno(), 1 << 24, 0).decode("utf-8", "replace")

    def kill(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait()

    def stop(self, wait_s=60):
        """SIGTERM; the exit code."""
        self.proc.send_signal(signal.SIGTERM)
        return self.proc.wait(wait_s)

    # ---- HTTP ----

    def request(self, method, path, body=None, headers=None, timeout=300):
        """(status, headers with lower-case names, bytes)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, body=body, headers=headers or {})
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def post(self, body, path="/v1/chat/completions", timeout=300):
        raw = body if isinstance(body, (bytes, str)) else json.dumps(body)
        status, headers, data = self.request(
            "POST", path, raw, {"Content-Type": "application/json"}, timeout)
        return status, headers, json.loads(data)

    def metrics(self):
        status, _, data = self.request("GET", "/metrics")
        if status != 200:
            raise AssertionError("GET /metrics: %d" % status)
        out = {}
        for line in data.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def wait_metric(self, good, what, wait_s=60):
        """Polls /metrics until good(metrics); returns them."""
        until = time.monotonic() + wait_s
        while True:
            m = self.metrics()
            if good(m):
                return m
            if time.monotonic() > until:
                raise AssertionError("%s: not seen within %d s" % (what, wait_s))
            time.sleep(0.005)

    # ---- /proc ----

    def status_kib(self, key):
        with open("/proc/%d/status" % self.proc.pid) as f:
            for line in f:
                if line.startswith(key + ":"):
                    return int(line.split()[1])
        raise AssertionError("no %s in /proc/PID/status" % key)

    def cpu_ticks(self):
        with open("/proc/%d/stat" % self.proc.pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])


@contextlib.contextmanager
def serving(program, model, *args):
    """The port of a server that must end well, too."""
    with Server(program, model, *args) as s:
        yield s.port
        code = s.stop()
        assert code == 0, f"the server ended with {code}"


def run_tests(tester):
    """Each method named test_..., with its time."""
    for name in [n for n in dir(tester) if n.startswith("test_")]:
        at = time.monotonic()
        getattr(tester, name)()
        print(f"{name}: {time.monotonic() - at:.1f} s", flush=True)


class ServerFailed(Exception):
    def __init__(self, code, stderr):
        super().__init__("the server ended with %s: %s" % (code, stderr.strip()[-2000:]))
        self.code = code
        self.stderr = stderr


class Stream:
    """A streamed chat over a raw socket, so that it can be torn at any point."""

    def __init__(self, server, body, timeout=300):
        raw = json.dumps(dict(body)).encode()
        self.sock = socket.create_connection(("127.0.0.1", server.port), timeout=timeout)
        self.sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                          b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                          % len(raw) + raw)
        self.pending = b""

    def tear(self):
        """Closes with a reset, as a killed client's kernel may."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self):
        self.sock.close()

    def wait_bytes(self, needle):
        while needle not in self.pending:
            got = self.sock.recv(65536)
            if not got:
                raise AssertionError("the stream ended early: %r" % self.pending[-300:])
            self.pending += got


class Reply:
    """One answer, whole or streamed, in the parts that must agree."""

    def __init__(self, status, text="", tokens=0, finish=None, error=None, headers=None):
        self.status, self.text, self.tokens = status, text, tokens
        self.finish, self.error, self.headers = finish, error, headers or {}

    def key(self):
        return (self.status, self.text, self.tokens, self.finish)

    def __repr__(self):
        return "%s %s %d tokens %r%s" % (self.status, self.finish, self.tokens, self.text[:120],
                                         " " + str(self.error) if self.error else "")


def chat(server, body, timeout=300):
    status, headers, data = server.post(body, timeout=timeout)
    if status != 200:
        return Reply(status, error=data.get("error"), headers=headers)
    choice = data["choices"][0]
    return Reply(status, choice["message"]["content"], data["usage"]["completion_tokens"],
                 choice["finish_reason"], headers=headers)


def chat_stream(server, body, timeout=300, on_chunk=None):
    """Reads a stream to its end and checks its grammar: role first, finish once, usage, [DONE]."""
    body = dict(body, stream=True, stream_options={"include_usage": True})
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        c.request("POST", "/v1/chat/completions", json.dumps(body),
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        headers = {k.lower(): v for k, v in r.getheaders()}
        if r.status != 200:
            return Reply(r.status, error=json.loads(r.read()).get("error"), headers=headers)
        if not headers.get("content-type", "").startswith("text/event-stream"):
            raise AssertionError("a stream of type %s" % headers.get("content-type"))
        reply = Reply(200, headers=headers)
        done = False
        for line in iter(r.readline, b""):
            text = line.decode("utf-8").strip()  # strict: a chunk must be whole characters
            if not text or text.startswith(":"):
                continue
            if done:
                raise AssertionError("after [DONE]: %r" % text)
            if not text.startswith("data: "):
                raise AssertionError("not an event: %r" % text)
            done = text == "data: [DONE]"
            if not done:
                take_event(reply, json.loads(text[6:]))
                if on_chunk:
                    on_chunk(reply)
        if not done and not reply.error:
            raise AssertionError("the stream ended without [DONE]: %r" % reply)
        return reply
    finally:
        c.close()


def take_event(reply, event):
    if "error" in event:
        reply.error = event["error"]
        return
    if event["object"] != "chat.completion.chunk":
        raise AssertionError("object %r" % event["object"])
    if event.get("usage"):
        reply.tokens = event["usage"]["completion_tokens"]
    for choice in event["choices"]:
        piece = choice["delta"].get("content") or ""
        piece.encode("utf-8")  # no lone surrogates
        if reply.finish and piece:
            raise AssertionError("text after the finish reason")
        reply.text += piece
        reply.finish = choice["finish_reason"] or reply.finish


def all_at_once(calls):
    """Runs the functions in threads; their results in order, the first failure raised."""
    results, failures = [None] * len(calls), []

    def run(i):
        try:
            results[i] = calls[i]()
        except BaseException as e:  # noqa: B036 - reported by the caller's thread
            failures.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return results
