"""A server in front of another that passes everything on and keeps what went through.

Standard library only. Bodies are passed on piece by piece as they come, so that a stream stays one.
"""

import http.client
import http.server
import json
import threading

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


class Exchange:
    """One request and its answer."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.status, self.reply = None, b""

    def __repr__(self):
        return "%s %s: %s, %d bytes in, %d out" % (self.method, self.path, self.status,
                                                   len(self.body), len(self.reply))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def pass_on(self):
        recorder = self.server.recorder
        body = recorder.shorten(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        e = Exchange(self.command, self.path, dict(self.headers.items()), body)
        with recorder.lock:
            recorder.exchanges.append(e)
        up = http.client.HTTPConnection("127.0.0.1", recorder.upstream, timeout=600)
        try:
            up.request(self.command, self.path, body or None,
                       {k: v for k, v in e.headers.items() if k.lower() not in HOP})
            self.answer(e, up.getresponse())
        except (BrokenPipeError, ConnectionResetError, http.client.IncompleteRead):
            self.close_connection = True  # one of both went away
        finally:
            up.close()

    def answer(self, e, r):
        bodiless = self.command == "HEAD" or r.status in (204, 304)
        self.send_response(r.status)
        for k, v in r.getheaders():
            if k.lower() not in HOP:
                self.send_header(k, v)
        self.send_header("Content-Length", "0") if bodiless else self.send_header(
            "Transfer-Encoding", "chunked")
        self.end_headers()
        while not bodiless:
            piece = r.read1(65536)
            e.reply += piece
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if not piece:
                break
        e.status = r.status

    do_GET = do_POST = do_HEAD = do_DELETE = do_PUT = do_OPTIONS = pass_on


class Recorder:
    """`with Recorder(port_behind) as r`: listens on r.port; r.exchanges in order. `longest`: no
    answer may be asked for that has more tokens."""

    def __init__(self, upstream, longest=None):
        self.upstream, self.exchanges, self.lock = upstream, [], threading.Lock()
        self.longest = longest
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.recorder = self
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def shorten(self, body):
        if not self.longest or not body.startswith(b"{"):
            return body
        asked = json.loads(body)
        names = [n for n in LIMITS if n in asked] or [
            "max_output_tokens" if "input" in asked else "max_tokens"]
        asked.update((n, min(asked.get(n) or self.longest, self.longest)) for n in names)
        return json.dumps(asked).encode()

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
