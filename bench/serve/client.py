"""A small client for OpenAI-compatible servers: streamed chats with the time of every event.

One asyncio loop, one connection a request, HTTP/1.1 with chunked or plain bodies. Times are taken
when an event's bytes have been read, on the client's monotonic clock. It does not retry and does
not judge: the programs beside it do. Standard library only.
"""

import asyncio
import json
import socket
import time

READ_LIMIT = 1 << 20


class Refused(Exception):
    """An answer other than 200; `status`, `retry_after_s` (or None) and the body's text."""

    def __init__(self, status, retry_after_s, text):
        super().__init__("HTTP %d: %s" % (status, text.strip()[:400]))
        self.status = status
        self.retry_after_s = retry_after_s
        self.text = text


class Broken(Exception):
    """The answer ended or was not what the protocol promises."""


class Answer:
    """What one streamed chat gave. Times are seconds of time.monotonic()."""

    def __init__(self):
        self.sent_at = 0.0
        self.text_at = []  # when each event with text was read
        self.pieces = []
        self.finish = None
        self.usage = None
        self.timings = None
        self.seed = None
        self.complete = False  # [DONE] was seen and no error came

    @property
    def text(self):
        return "".join(self.pieces)

    def ttft_ms(self):
        """From sending to the first text; to the end where an answer has no text."""
        return (self.text_at[0] - self.sent_at) * 1e3 if self.text_at else None

    def prompt_tokens(self):
        return self.usage["prompt_tokens"]

    def answer_tokens(self):
        return self.usage["completion_tokens"]

    def cached_tokens(self):
        """Prompt tokens that were not computed; 0 where the server does not say."""
        details = self.usage.get("prompt_tokens_details") or {}
        if details.get("cached_tokens") is not None:
            return details["cached_tokens"]
        return (self.timings or {}).get("cache_n", 0)


class Connection:
    """One request on its own connection. `async with` closes it."""

    def __init__(self, endpoint, receive_bytes=None):
        self.endpoint = endpoint
        self.receive_bytes = receive_bytes
        self.reader = self.writer = None
        self.headers = {}
        self.status = 0
        self.left = None  # bytes left of a plain body; None: chunked, -1: until the end

    async def __aenter__(self):
        host, port = self.endpoint
        if self.receive_bytes is None:
            self.reader, self.writer = await asyncio.open_connection(host, port, limit=READ_LIMIT)
        else:  # a slow reader: the kernel and we hold little, so that the server feels it
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)
            sock.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(sock, (host, port))
            except BaseException:
                sock.close()
                raise
            self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=4096)
        return self

    async def __aexit__(self, *exc):
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    def tear(self):
        """Ends with a reset, as a killed client's kernel may."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()

    async def send(self, method, path, body=None, headers=None):
        raw = json.dumps(body).encode() if body is not None else b""
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: %s:%d" % self.endpoint,
                 "Connection: close"]
        if body is not None:
            lines += ["Content-Type: application/json", "Content-Length: %d" % len(raw)]
        lines += ["%s: %s" % item for item in (headers or {}).items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)
        await self.writer.drain()
        status = await self.reader.readline()
        words = status.split()
        if len(words) < 2 or not words[1].isdigit():
            raise Broken("no status line: %r" % status[:100])
        self.status = int(words[1])
        while True:
            line = (await self.reader.readline()).strip()
            if not line:
                break
            key, _, value = line.decode("latin-1").partition(":")
            self.headers[key.strip().lower()] = value.strip()
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            self.left = None
        else:
            self.left = int(self.headers.get("content-length", -1))

    async def read(self):
        """The next bytes of the body; b"" at its end."""
        if self.left is None:
            size = await self.reader.readline()
            if not size.strip():
                raise Broken("the connection ended inside a body")
            n = int(size.split(b";")[0], 16)
            data = await self.reader.readexactly(n)
            await self.reader.readline()
            return data
        if self.left == 0:
            return b""
        data = await self.reader.read(65536 if self.left < 0 else min(65536, self.left))
        if self.left > 0:
            if not data:
                raise Broken("the connection ended inside a body")
            self.left -= len(data)
        return data

    async def read_all(self):
        parts = []
        while True:
            part = await self.read()
            if not part:
                return b"".join(parts)
            parts.append(part)


def retry_after(headers):
    value = headers.get("retry-after", "")
    return float(value) if value.replace(".", "", 1).isdigit() else None


async def get(endpoint, path):
    """(status, text)"""
    async with Connection(endpoint) as c:
        await c.send("GET", path)
        return c.status, (await c.read_all()).decode("utf-8", "replace")


def take_event(answer, event, now):
    if event.get("error"):
        raise Broken("the server ended the stream: %s" % json.dumps(event["error"])[:400])
    answer.usage = event.get("usage") or answer.usage
    answer.timings = event.get("timings") or answer.timings
    answer.seed = (event.get("tempo9") or {}).get("seed", answer.seed)
    for choice in event.get("choices") or []:
        piece = (choice.get("delta") or {}).get("content")
        if piece:
            answer.pieces.append(piece)
            answer.text_at.append(now)
        answer.finish = choice.get("finish_reason") or answer.finish


async def chat(endpoint, body, on_text=None, receive_bytes=None, headers=None):
    """Streams one chat to its end and returns its Answer. `on_text(connection, answer)` may be a
    coroutine function; it is called after each event with text, and what it raises goes on."""
    body = dict(body, stream=True, stream_options={"include_usage": True})
    answer = Answer()
    answer.sent_at = time.monotonic()
    async with Connection(endpoint, receive_bytes) as c:
        try:
            await c.send("POST", "/v1/chat/completions", body, headers)
            if c.status != 200:
                text = (await c.read_all()).decode("utf-8", "replace")
                raise Refused(c.status, retry_after(c.headers), text)
            pending = b""
            while True:
                data = await c.read()
                now = time.monotonic()
                if not data:
                    break
                pending += data
                *lines, pending = pending.split(b"\n")
                n_before = len(answer.pieces)
                for line in lines:
                    line = line.strip()
                    if not line or line.startswith(b":"):
                        continue
                    if not line.startswith(b"data:"):
                        raise Broken("not an event: %r" % line[:100])
                    rest = line[5:].strip()
                    if rest == b"[DONE]":
                        answer.complete = True
                    else:
                        take_event(answer, json.loads(rest), now)
                if on_text and len(answer.pieces) > n_before:
                    await on_text(c, answer)
        except (asyncio.IncompleteReadError, ConnectionError, ValueError) as e:
            raise Broken("%s: %s" % (type(e).__name__, e)) from e
    if not answer.complete:
        raise Broken("the stream ended without [DONE] after %d events" % len(answer.pieces))
    if answer.usage is None:
        raise Broken("the stream gave no usage")
    return answer
