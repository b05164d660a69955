"""A stand-in for a Hugging Face hub and the host that it sends downloads to, for tests.

Standard library only. `Hub()` listens on two ports of 127.0.0.1: the hub itself, and another origin for the bytes, as
the real one has. What it does wrong is switched on by its fields. Every request is kept in `requests`.
"""

import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class File:
    def __init__(self, data, lfs=True, size=None, sha256=None):
        self.data, self.lfs = data, lfs
        self.size = len(data) if size is None else size
        self.sha256 = sha256 or hashlib.sha256(data).hexdigest()
        self.sha1 = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def hash(self):
        return self.sha256 if self.lfs else self.sha1


class Request:
    def __init__(self, server, method, path, headers):
        self.server, self.method, self.path, self.headers = server, method, path, headers

    def __repr__(self):
        return "%s %s %s %r" % (self.server, self.method, self.path, self.headers)


class Hub:
    def __init__(self, files, repo="owner/repo"):
        self.repo, self.files, self.commit = repo, files, COMMIT
        self.token = None          # that is needed
        self.gated = False         # the token may not read it
        self.answer = None         # bytes instead of the list of files
        self.list_status = []      # (status, headers) for the next requests for the list
        self.file_status = []      # the same for the bytes
        self.redirect = "cdn"      # "cdn", "none", or an address
        self.cut_after = []        # bytes after which the next downloads are cut
        self.ranges = True         # whether the rest of a file can be had
        self.range_shift = 0       # answers with another part
        self.etag = None           # of the body, if not the hash
        self.linked_etag = None    # if not the hash
        self.chunked = False
        self.rate = None           # bytes a second
        self.extra = b""           # after the promised bytes
        self.hold = None           # an Event before the bytes
        self.requests = []
        self.lock = threading.Lock()
        self.servers = [self.start("hub"), self.start("cdn")]

    def start(self, name):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                with hub.lock:
                    hub.requests.append(Request(name, "GET", self.path, {
                        k.lower(): v for k, v in self.headers.items()}))
                try:
                    hub.serve(self, name)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # a client that left is what some tests are about

        server = Server(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.hold:
            self.hold.set()
        for s in self.servers:
            s.shutdown()
            s.server_close()

    def url(self, i=0):
        return "http://127.0.0.1:%d" % self.servers[i].server_port

    def seen(self, server=None, what=""):
        with self.lock:
            return [r for r in self.requests if server in (None, r.server) and what in r.path]

    # ---- answers ----

    def send(self, h, status, body=b"", headers=()):
        h.send_response(status)
        for k, v in headers:
            h.send_header(k, v)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def take(self, queue):
        with self.lock:
            return queue.pop(0) if queue else None

    def refused(self, h):
        given = h.headers.get("Authorization")
        if self.token and given != "Bearer " + self.token:
            self.send(h, 401, b'{"error":"no"}', [("X-Error-Code", "RepoNotFound")])
            return True
        if self.gated:
            self.send(h, 403, b'{"error":"no"}', [("X-Error-Code", "GatedRepo")])
            return True
        return False

    def serve(self, h, name):
        path = urllib.parse.urlsplit(h.path)
        if name == "cdn":
            return self.serve_bytes(h, urllib.parse.unquote(path.path[1:]))
        if path.path == "/api/models/%s/revision/main" % self.repo:
            special = self.take(self.list_status)
            if special:
                return self.send(h, special[0], b"{}", special[1])
            if self.refused(h):
                return None
            return self.send(h, 200, self.answer if self.answer is not None else self.list(),
                             [("Content-Type", "application/json")])
        found = re.fullmatch("/%s/resolve/([0-9a-f]+)/(.+)" % re.escape(self.repo), path.path)
        if not found:
            return self.send(h, 404, b'{"error":"not found"}', [("X-Error-Code", "RepoNotFound")])
        if self.refused(h):
            return None
        file = self.files.get(urllib.parse.unquote(found.group(2)))
        if not file or found.group(1) != self.commit:
            return self.send(h, 404, b"{}", [("X-Error-Code", "EntryNotFound")])
        if self.redirect == "none" or not file.lfs:
            return self.serve_bytes(h, urllib.parse.unquote(found.group(2)))
        to = self.url(1) + "/" + found.group(2) + "?signature=secret" if self.redirect == "cdn" \
            else self.redirect
        etag = self.linked_etag or file.hash()
        return self.send(h, 302, b"Found", [("Location", to), ("X-Linked-ETag", '"%s"' % etag),
                                           ("X-Linked-Size", str(file.size)),
                                           ("X-Repo-Commit", self.commit)])

    def list(self):
        siblings = [{"rfilename": "README.md", "size": 3, "blobId": COMMIT}]
        for name, f in self.files.items():
            entry = {"rfilename": name, "size": f.size, "blobId": f.sha1}
            if f.lfs:
                entry["lfs"] = {"sha256": f.sha256, "size": f.size, "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"id": self.repo, "sha": self.commit, "siblings": siblings}).encode()

    def serve_bytes(self, h, path):
        special = self.take(self.file_status)
        if special:
            return self.send(h, special[0], b"{}", special[1])
        file = self.files[path]
        etag = '"%s"' % (self.etag or file.hash())
        first = 0
        wanted = re.fullmatch(r"bytes=(\d+)-", h.headers.get("Range", ""))
        if wanted and self.ranges and h.headers.get("If-Range", etag) == etag:
            first = int(wanted.group(1))
            if first >= len(file.data):
                return self.send(h, 416, b"", [("Content-Range", "bytes */%d" % len(file.data))])
        body = file.data[first:] + self.extra
        cut = self.take(self.cut_after)
        h.send_response(206 if first else 200)
        h.send_header("ETag", etag)
        if first:
            h.send_header("Content-Range", "bytes %d-%d/%d" % (
                first + self.range_shift, len(file.data) - 1, len(file.data)))
        if self.chunked:
            h.send_header("Transfer-Encoding", "chunked")
        else:
            h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if self.hold:
            self.hold.wait(60)
        self.write(h, body if cut is None else body[:cut])
        if cut is not None:
            h.close_connection = True
        elif self.chunked:
            h.wfile.write(b"0\r\n\r\n")
        return None

    def write(self, h, body):
        step = max(1, self.rate // 20) if self.rate else 1 << 16
        for at in range(0, len(body), step):
            piece = body[at:at + step]
            if self.chunked:
                piece = b"%x\r\n%s\r\n" % (len(piece), piece)
            h.wfile.write(piece)
            h.wfile.flush()
            if self.rate:
                time.sleep(0.05)
