#!/usr/bin/env python3
"""`pull`, --hf and --ollama against a stand-in for the hub, and that nothing else connects to anything.

  hub_test.py --program PATH --mkgguf PATH [--shim LIB] [--sanitized] [--only a,b]

Standard library only.
"""

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import gguf_split
import t9server
from hub_double import COMMIT, File, Hub

TOKEN = "hf_TheSecretOfTheseTests"
FOLDER = "models--owner--repo"
# What could lead the program elsewhere is not inherited.
CLEAN_ENV = {k: v for k, v in os.environ.items()
             if not k.startswith(("HF_", "OLLAMA_", "TEMPO9_", "XDG_")) and not k.lower().endswith("_proxy")}


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def data_of(n, seed=1):
    return random.Random(seed).randbytes(n)


class Bench:
    """A cache of its own, and the program run against a hub with it."""

    def __init__(self, a, tmp):
        self.a, self.tmp = a, tmp
        self.home = tempfile.mkdtemp(dir=tmp)
        self.cache = os.path.join(self.home, "cache")
        self.env = dict(CLEAN_ENV, HOME=self.home, HF_HUB_CACHE=self.cache)

    def start(self, hub, *args, env=(), preload=False, **more):
        e = {**self.env, "HF_ENDPOINT": hub.url() if hub else "http://127.0.0.1:9", **dict(env)}
        if preload:
            e["LD_PRELOAD"] = self.a.shim
        return subprocess.Popen([self.a.program, *map(str, args)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=e, **more)

    def run(self, hub, *args, code=0, timeout=120, **more):
        """(stdout, stderr) of a run that must end with `code` and must not show the token."""
        p = self.start(hub, *args, **more)
        out, err = (t.decode() for t in p.communicate(timeout=timeout))
        check(p.returncode == code, "%s: exit %d instead of %d\n%s%s"
              % (" ".join(map(str, args)), p.returncode, code, out, err))
        check(TOKEN not in out + err and "signature" not in out + err, "a secret is shown: " + err)
        check("ERROR: AddressSanitizer" not in err, err)
        return out, err

    def pull(self, hub, spec="owner/repo", *args, **more):
        return self.run(hub, "pull", spec, *args, **more)

    def blob(self, name):
        return os.path.join(self.cache, FOLDER, "blobs", name)

    def snapshot(self, name):
        return os.path.join(self.cache, FOLDER, "snapshots", COMMIT, name)

    def blobs(self):
        return sorted(os.listdir(os.path.join(self.cache, FOLDER, "blobs")))

    def has(self, name, file):
        """The file is in the cache as the hub's own tools would have it."""
        link = self.snapshot(name)
        check(os.readlink(link) == "../" * (2 + name.count("/")) + "blobs/" + file.hash(), "link of " + name)
        with open(link, "rb") as f:
            check(f.read() == file.data, "bytes of " + name)
        with open(os.path.join(self.cache, FOLDER, "refs", "main")) as f:
            check(f.read() == COMMIT, "refs/main")
        check(not [b for b in self.blobs() if b.endswith(".incomplete")], "a partial file is left")


def wait_for(good, what, wait_s=30):
    until = time.monotonic() + wait_s
    while not good():
        check(time.monotonic() < until, what + ": not seen")
        time.sleep(0.02)


def one(n=3 << 20, name="m-Q8_0.gguf", **more):
    f = File(data_of(n), **more)
    return name, f, Hub({name: f})


# ---- what should work ----

def test_plain(a, tmp):
    """Fetched, checked, linked, printed; the second time nothing is fetched."""
    b = Bench(a, tmp)
    name, f, hub = one()
    with hub:
        out, err = b.pull(hub)
        check(out == b.snapshot(name) + "\n", "path: %r" % out)
        b.has(name, f)
        check(len(hub.seen("cdn")) == 1, "one download")
        check(hub.seen()[0].headers["user-agent"].startswith("tempo9/"), "user agent")
        check(all("authorization" not in r.headers for r in hub.seen()), "a token from nowhere")
        out2, _ = b.pull(hub)
        check(out2 == out and len(hub.seen("cdn")) == 1, "fetched again")
        check(oct(os.stat(b.blob(f.sha256)).st_mode & 0o022) == "0o0", "others may write")
        shutil.rmtree(b.cache)
        b.pull(hub, env={"HF_HUB_CACHE": "", "HF_HOME": b.home + "/hf"})
        check(os.path.exists(b.home + "/hf/hub/%s/blobs/%s" % (FOLDER, f.sha256)), "HF_HOME")
        b.pull(hub, env={"HF_HUB_CACHE": ""})
        check(os.path.exists(b.home + "/.cache/huggingface/hub/" + FOLDER), "~/.cache")


def test_choice(a, tmp):
    b = Bench(a, tmp)
    names = ["r-Q2_K.gguf", "r-Q4_K_M.gguf", "sub/r-Q8_0.gguf", "mmproj-F16.gguf"]
    files = {n: File(data_of(1000, i)) for i, n in enumerate(names)}
    with Hub(files) as hub:
        out, err = b.pull(hub)
        check(out.endswith("/r-Q4_K_M.gguf\n") and "mmproj-F16.gguf" in err, out + err)
        out, _ = b.pull(hub, "owner/repo:q8_0")
        b.has(names[2], files[names[2]])
        check(out.endswith("/sub/r-Q8_0.gguf\n"), out)
        b.pull(hub, "owner/repo:r-Q2_K.gguf")
        b.has(names[0], files[names[0]])
        _, err = b.pull(hub, "owner/repo:Q3_K", code=1)
        check("no weights Q3_K" in err and all(n in err for n in names[:3]), err)
        hub.files = {names[0]: files[names[0]], "r-Q6_K.gguf": files[names[1]]}
        _, err = b.pull(hub, code=1)
        check("Q2_K" in err and "Q6_K" in err and "owner/repo:QUANT" in err, err)


def test_split(a, tmp):
    """All parts of a split file; serving it uses all of them."""
    b = Bench(a, tmp)
    tiny = os.path.join(tmp, "tiny.gguf")
    subprocess.run([a.mkgguf, tiny], check=True)
    with open(tiny, "rb") as f:
        parts = gguf_split.split(f.read(), 3)
    files = {"d/m-F32-%05d-of-00003.gguf" % (i + 1): File(p) for i, p in enumerate(parts)}
    with Hub(files) as hub:
        out, _ = b.pull(hub)
        check(out.strip() == b.snapshot(sorted(files)[0]), out)
        for n, f in files.items():
            b.has(n, f)
        env = dict(b.env, HF_ENDPOINT=hub.url())
        with t9server.Server(a.program, None, "--hf", "owner/repo", env=env) as s:
            status, _, _ = s.post({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2,
                                   "model": "default"})
            check(status == 200, status)
        del hub.files[sorted(files)[1]]
        _, err = b.pull(hub, code=1)
        check("part 2 of" in err and "missing" in err, err)


def test_small_file(a, tmp):
    """One that is not in large-file storage: its hash is git's, and the hub sends it itself."""
    b = Bench(a, tmp)
    name, f, hub = one(5000, lfs=False)
    with hub:
        b.pull(hub)
        b.has(name, f)
        check(len(f.sha1) == 40 and b.blobs() == [f.sha1], "blob's name")


def test_serve(a, tmp):
    """A model by name is served under the file's name, online and offline."""
    b = Bench(a, tmp)
    tiny = os.path.join(tmp, "tiny.gguf")
    subprocess.run([a.mkgguf, tiny], check=True)
    with open(tiny, "rb") as f:
        hub = Hub({"tiny-F32.gguf": File(f.read())})
    with hub:
        env = dict(b.env, HF_ENDPOINT=hub.url())
        for more in ((), ("--offline",)):
            n = len(hub.seen())
            with t9server.Server(a.program, None, "--hf", "owner/repo", *more, env=env) as s:
                _, _, raw = s.request("GET", "/v1/models")
                check(json.loads(raw)["data"][0]["id"] == "tiny-F32", raw)
                check(s.stop() == 0, s.stderr())
            check((len(hub.seen()) == n) == bool(more), "requests: %r" % hub.seen()[n:])
        out, _ = b.run(hub, "tokenize", "--hf", "owner/repo")
        check(out == "[]\n", out)


# ---- what goes wrong on the way ----

def test_resume(a, tmp):
    """Cut connections: within one run and over several, only what is missing is asked for."""
    b = Bench(a, tmp)
    name, f, hub = one(6 << 20)
    with hub:
        hub.cut_after = [1 << 20, 2 << 20]
        _, err = b.pull(hub)
        b.has(name, f)
        ranges = [r.headers.get("range") for r in hub.seen("cdn")]
        check(ranges == [None, "bytes=%d-" % (1 << 20), "bytes=%d-" % (3 << 20)], ranges)
        check("again in" in err, err)
        check(all(r.headers.get("if-range") == '"%s"' % f.sha256 for r in hub.seen("cdn")[1:]), "If-Range")

        c = Bench(a, tmp)
        hub.requests.clear()
        hub.cut_after = [1 << 20]
        c.pull(hub, "owner/repo", "--retries", "0", code=1)
        check(c.blobs() == [f.sha256 + ".incomplete"], c.blobs())
        check(not os.path.exists(c.snapshot(name)), "a link to nothing")
        _, err = c.pull(hub)
        c.has(name, f)
        check(hub.seen("cdn")[-1].headers["range"] == "bytes=%d-" % (1 << 20), hub.seen("cdn"))
        check("going on at 1.0 of 6.3 MB" in err, err)

        # The body became another one: If-Range brings the whole, and the hash still decides.
        d = Bench(a, tmp)
        hub.cut_after = [1 << 20]
        real = hub.serve_bytes
        tags = iter(['"a"', '"b"', '"b"'])
        def other_tag(h, path):
            hub.etag = next(tags).strip('"')
            return real(h, path)
        hub.serve_bytes = other_tag
        d.pull(hub)
        d.has(name, f)
        hub.serve_bytes, hub.etag = real, None

        # A server that cannot send a part sends the whole.
        e = Bench(a, tmp)
        hub.ranges, hub.cut_after = False, [1 << 20]
        e.pull(hub)
        e.has(name, f)


def test_damaged_partial(a, tmp):
    """What an earlier run left is wrong, or too long: the file is fetched from its start."""
    for junk in (b"x" * 1000000, b"y" * (4 << 20)):
        b = Bench(a, tmp)
        name, f, hub = one()
        with hub:
            os.makedirs(os.path.dirname(b.blob("x")))
            with open(b.blob(f.sha256 + ".incomplete"), "wb") as part:
                part.write(junk)
            b.pull(hub)
            b.has(name, f)


def test_bad_hash(a, tmp):
    b = Bench(a, tmp)
    name, f, hub = one(sha256="0" * 64)
    with hub:
        _, err = b.pull(hub, code=1)
        check("another hash" in err and "removed" in err, err)
        check(b.blobs() == [] and not os.path.exists(b.snapshot(name)), "it is still there")
        hub.linked_etag = "1" * 64
        _, err = b.pull(hub, code=1)
        check("contradicts itself" in err, err)


def test_wrong_sizes(a, tmp):
    b = Bench(a, tmp)
    name, f, hub = one(300000)
    with hub:
        f.size = 300001
        _, err = b.pull(hub, code=1)
        check("promised 300001" in err, err)
        hub.chunked = True
        _, err = b.pull(hub, "owner/repo", "--retries", "0", code=1)
        check("ended early" in err, err)
        f.size = 300000
        hub.extra = b"!" * 100000
        shutil.rmtree(b.cache)
        _, err = b.pull(hub, code=1)
        check("more bytes come" in err, err)
        hub.extra, hub.chunked, hub.range_shift = b"", False, 7
        shutil.rmtree(b.cache)
        hub.cut_after = [100000]
        _, err = b.pull(hub, code=1)
        check("another part than was asked for" in err, err)


def test_disk_full(a, tmp):
    b = Bench(a, tmp)
    name, f, hub = one()
    with hub:
        f.size = 1 << 43
        _, err = b.pull(hub, code=1)
        check("8796.1 GB are still to come" in err and "HF_HUB_CACHE" in err, err)
        check(hub.seen("cdn") == [], "fetched all the same")
        f.size = len(f.data)
        _, err = b.pull(hub, code=1, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        check("over the limit" in err and "1.0 MB are kept" in err and "HF_HUB_CACHE" in err, err)
        check(os.stat(b.blob(f.sha256 + ".incomplete")).st_size == 1 << 20, "what came is kept")
        if a.shim:
            _, err = b.pull(hub, code=1, preload=True, env={"HUB_SHIM_FULL_AFTER": "1000000"})
            check("is full; 2.0 of 3.1 MB are kept" in err, err)
        b.pull(hub)
        b.has(name, f)


def test_disk_fills_up(a, tmp):
    """A file system that others fill meanwhile: what came is kept, and the rest fetched when there is room again."""
    if not shutil.which("unshare"):
        print("  no unshare here: left out")
        return
    b = Bench(a, tmp)
    name, f, hub = one()
    os.makedirs(b.cache)
    script = 'mount -t tmpfs -o size=80m tmpfs "$HF_HUB_CACHE" || exit 77; echo mounted; "$@"; echo first $?; ' \
             'read go; "$@" && cat "$HF_HUB_CACHE"/*/snapshots/*/* | sha256sum'
    with hub:
        hub.hold = threading.Event()
        p = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", script, "sh", a.program, "pull", "owner/repo"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**b.env, "HF_ENDPOINT": hub.url()}, text=True)
        try:
            if p.stdout.readline() != "mounted\n":
                print("  no file system can be mounted here: left out")
                return
            wait_for(lambda: hub.seen("cdn"), "the request for the file")
            inside = "/proc/%d/root%s" % (p.pid, b.cache)
            free = os.statvfs(inside)
            with open(inside + "/filler", "wb") as filler:
                os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize - (1 << 20))
            hub.hold.set()
            first = p.stdout.readline()
            check(first == "first 1\n", first)
            partial = os.path.join(inside, FOLDER, "blobs", f.sha256 + ".incomplete")
            kept = os.stat(partial).st_size
            check(0 < kept < len(f.data), "%d bytes are kept" % kept)
            os.unlink(inside + "/filler")
            out, err = p.communicate("go\n", timeout=60)
        finally:
            hub.hold.set()
            p.kill()
            p.wait()
        check("is full; %.1f of 3.1 MB are kept: make room, or set HF_HUB_CACHE" % (kept / 1e6) in err, err)
        check(out.split()[1] == f.sha256, out)
        check(hub.seen("cdn")[-1].headers.get("range") == "bytes=%d-" % kept, "all was fetched again")


def test_statuses(a, tmp):
    b = Bench(a, tmp)
    name, f, hub = one(1000)
    tok = {"HF_TOKEN": TOKEN}
    with hub:
        hub.token = TOKEN
        _, err = b.pull(hub, code=1)
        check("no such repository, or it is private" in err and "HF_TOKEN" in err, err)
        _, err = b.pull(hub, "owner/other", code=1)
        check("owner/other" in err and "no such" in err, err)
        _, err = b.pull(hub, "owner/repo:F32", code=1, env=tok)
        check(not os.path.exists(b.cache), "what was not found left %s" % os.listdir(tmp))
        hub.gated, hub.token = True, None
        _, err = b.pull(hub, code=1, env=tok)
        check("accept its licence at %s/owner/repo" % hub.url() in err, err)
        hub.gated = False
        hub.list_status = [(401, [])]
        _, err = b.pull(hub, code=1, env=tok)
        check("does not accept the token" in err, err)
        n = len(hub.seen())
        hub.list_status = [(400, [])]
        _, err = b.pull(hub, code=1)
        check("status 400" in err and len(hub.seen()) == n + 1, err)
        hub.list_status = [(429, [("Retry-After", "2")]), (503, [])]
        begin = time.monotonic()
        _, err = b.pull(hub)
        check("429" in err and "503" in err and time.monotonic() - begin >= 2 + 2, err)
        shutil.rmtree(b.cache)
        n = len(hub.seen())
        hub.list_status = [(500, [])] * 9
        _, err = b.pull(hub, "owner/repo", "--retries", "1", code=1)
        check("status 500" in err and len(hub.seen()) == n + 2, err)
        hub.list_status = [(429, [("Retry-After", "100000")])]
        _, err = b.pull(hub, code=1)
        check("come back in 100000 s" in err, err)
        hub.list_status, hub.file_status = [], [(500, []), (404, [])]
        _, err = b.pull(hub, code=1)
        check("404" in err and "m-Q8_0.gguf" in err, err)


def test_token(a, tmp):
    """The token goes to the hub and to nobody else, and is shown to nobody."""
    b = Bench(a, tmp)
    name, f, hub = one()
    with hub:
        hub.token = TOKEN
        hub.cut_after = [1 << 20]
        b.pull(hub, "owner/repo", "--log-level", "debug", env={"HF_TOKEN": TOKEN})
        b.has(name, f)
        check(len(hub.seen("hub")) == 3 and len(hub.seen("cdn")) == 2, hub.requests)
        for r in hub.seen("hub"):
            check(r.headers.get("authorization") == "Bearer " + TOKEN, r)
        for r in hub.seen("cdn"):
            check(TOKEN not in repr(r), r)
        # The file of the hub's own login, and what is no token.
        shutil.rmtree(b.cache)
        os.makedirs(b.home + "/hf")
        with open(b.home + "/hf/token", "w") as t:
            t.write(TOKEN + "\n")
        b.pull(hub, env={"HF_HOME": b.home + "/hf"})
        _, err = b.pull(hub, env={"HF_TOKEN": TOKEN + "\r\nX-Evil: 1"}, code=1)
        check("does not hold a token" in err, err)
        for root, _, names in os.walk(b.cache):
            for n in names:
                with open(os.path.join(root, n), "rb") as f2:
                    check(TOKEN.encode() not in f2.read(), "the token is in " + n)


def test_redirects(a, tmp):
    b = Bench(a, tmp)
    name, f, hub = one()
    with hub:
        hub.redirect = "none"
        b.pull(hub)
        b.has(name, f)
        shutil.rmtree(b.cache)
        for to, why in (("http://example.invalid/x", "without encryption"), ("ftp://127.0.0.1/x", "web address"),
                        ("file:///etc/passwd", "web address"), ("http://u:p@127.0.0.1/", "web address"),
                        ("http://127.evil.invalid/", "without encryption"),
                        ("/owner/repo/resolve/%s/%s" % (COMMIT, name), "too many times")):
            hub.redirect = to
            _, err = b.pull(hub, code=1)
            check(why in err, "%s: %s" % (to, err))
    for endpoint in ("http://example.invalid", "ftp://127.0.0.1", "nonsense", "http://u:p@127.0.0.1"):
        _, err = b.pull(None, env={"HF_ENDPOINT": endpoint}, code=1)
        check("HF_ENDPOINT" in err, err)


def test_hostile_lists(a, tmp):
    b = Bench(a, tmp)
    name, f, hub = one(1000)
    head = '{"sha":"%s","siblings":[' % COMMIT
    lfs = ',"lfs":{"sha256":"%s","size":1000}}' % f.sha256
    with hub:
        for answer, why in (
                (b"", "answer"), (b"<html>", "answer"), (b"[]", "no commit"),
                (b"[" * 100000, "answer"), (b" " * (17 << 20), "over 16 MB"),
                ((head + '{"rfilename":"../../../../x.gguf"' + lfs + "]}").encode(), "not safe"),
                ((head + '{"rfilename":"/tmp/x.gguf"' + lfs + "]}").encode(), "not safe"),
                ((head + '{"rfilename":"a\\u0000/x.gguf"' + lfs + "]}").encode(), "not safe"),
                ((head + '{"rfilename":"x.gguf","size":-5}]}').encode(), "size"),
                ((head + '{"rfilename":"x.gguf","lfs":{"sha256":"../../x","size":5}}]}').encode(), "hash"),
                (b'{"sha":"../../../../../../etc/xxxxxxxxxxxxxxxxxxx","siblings":[]}', "no commit")):
            hub.answer = answer
            _, err = b.pull(hub, code=1)
            check(why in err, "%r: %s" % (answer[:80], err))
        for spec in ("../x", "owner/..", "owner/repo:../x.gguf", "a/b/c", "", "owner/repo:/x.gguf"):
            _, err = b.pull(hub, spec, code=1)
            check("OWNER/REPO" in err, err)
    check(not [n for _, _, names in os.walk(tmp) for n in names if "gguf" in n], "something was written")


def test_links_in_the_cache(a, tmp):
    """What somebody has put into the cache does not lead the program elsewhere."""
    name, f, hub = one()
    with hub:
        for place in ("models", "blobs", "partial", "snapshot", "ref"):
            b = Bench(a, tmp)
            victim = os.path.join(b.home, "victim")
            os.makedirs(victim)
            with open(victim + "/file", "w") as v:
                v.write("mine")
            folder = os.path.join(b.cache, FOLDER)
            os.makedirs(b.cache if place == "models" else folder)
            if place == "models":
                os.symlink(victim, folder)
            elif place == "blobs":
                os.symlink(victim, folder + "/blobs")
            elif place == "partial":
                os.makedirs(folder + "/blobs")
                os.symlink(victim + "/file", b.blob(f.sha256 + ".incomplete"))
            elif place == "snapshot":
                os.makedirs(folder + "/snapshots")
                os.symlink(victim, folder + "/snapshots/" + COMMIT)
            else:
                os.symlink(victim, folder + "/refs")
            b.pull(hub, code=1)
            check(os.listdir(victim) == ["file"], place)
            with open(victim + "/file") as v:
                check(v.read() == "mine", place)
        # A snapshot whose link leads out of the cache is not served.
        b = Bench(a, tmp)
        b.pull(hub)
        os.unlink(b.snapshot(name))
        os.symlink("/etc/passwd", b.snapshot(name))
        _, err = b.pull(hub, "owner/repo", "--offline", code=1)
        check("not in the cache" in err, err)
        b.pull(hub)
        b.has(name, f)


def test_offline(a, tmp):
    b = Bench(a, tmp)
    name, f, hub = one()
    with hub:
        _, err = b.pull(hub, "owner/repo", "--offline", code=1)
        check("offline, and not in the cache" in err, err)
        _, err = b.pull(hub, env={"HF_HUB_OFFLINE": "1"}, code=1)
        check("offline" in err and hub.seen() == [], err)
        path, _ = b.pull(hub)
        n = len(hub.seen())
        out, _ = b.pull(hub, "owner/repo:Q8_0", "--offline")
        check(out == path, out)
        _, err = b.pull(hub, "owner/repo:Q4_0", env={"HF_HUB_OFFLINE": "1"}, code=1)
        check("Q4_0" in err, err)
        _, err = b.pull(hub, env={"HF_HUB_OFFLINE": "perhaps"}, code=1)
        check("HF_HUB_OFFLINE" in err, err)
        check(len(hub.seen()) == n, "asked")
    # The hub is gone: pull says so; who wants to use the model gets the copy.
    _, err = b.pull(hub, "owner/repo", "--retries", "0", code=1)
    check("cannot be reached" in err, err)
    _, err = b.run(hub, "inspect", "--hf", "owner/repo", code=1)
    check("using the copy in the cache" in err and "not a GGUF file" in err, err)


def test_interrupt(a, tmp):
    """Ctrl-C: exit 130 (a server: 0), what came is kept, and the next run goes on."""
    b = Bench(a, tmp)
    name, f, hub = one(4 << 20)
    with hub:
        hub.rate = 1 << 20
        for command in (("pull", "owner/repo"), ("serve", "--hf", "owner/repo", "--port", "0")):
            p = b.start(hub, *command)
            part = b.blob(f.sha256 + ".incomplete")
            before = os.stat(part).st_size if os.path.exists(part) else 0
            wait_for(lambda: os.path.exists(part) and os.stat(part).st_size > before + 200000, "bytes")
            p.send_signal(signal.SIGINT)
            begin = time.monotonic()
            out, err = p.communicate(timeout=30)
            want = 0 if command[0] == "serve" else 130
            check(p.returncode == want and b"goes on from there" in err, "%d %r" % (p.returncode, err))
            check(time.monotonic() - begin < 3, "it took too long")
        # while it waits before a new try, too
        hub.list_status = [(429, [("Retry-After", "60")])]
        p = b.start(hub, "pull", "owner/repo")
        wait_for(lambda: hub.list_status == [], "a try")
        time.sleep(0.3)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=10)
        check(p.returncode == 143, p.returncode)
        hub.rate = None
        kept = os.stat(part).st_size
        b.pull(hub)
        b.has(name, f)
        check(hub.seen("cdn")[-1].headers["range"] == "bytes=%d-" % kept, hub.seen("cdn")[-1])


def test_killed(a, tmp):
    """SIGKILL in the middle leaves nothing that stops the next run."""
    b = Bench(a, tmp)
    name, f, hub = one(4 << 20)
    with hub:
        hub.rate = 1 << 20
        p = b.start(hub, "pull", "owner/repo")
        part = b.blob(f.sha256 + ".incomplete")
        wait_for(lambda: os.path.exists(part) and os.stat(part).st_size > 100000, "bytes")
        p.kill()
        p.communicate()
        hub.rate = None
        b.pull(hub)
        b.has(name, f)


def test_two_at_once(a, tmp):
    """Two pulls of one file: one fetches, the other waits and uses it."""
    b = Bench(a, tmp)
    name, f, hub = one()
    with hub:
        hub.hold = threading.Event()
        first = b.start(hub, "pull", "owner/repo")
        wait_for(lambda: hub.seen("cdn"), "a download")
        second = b.start(hub, "pull", "owner/repo")
        wait_for(lambda: len(hub.seen("hub", "/api/")) == 2, "the second")
        time.sleep(0.5)
        hub.hold.set()
        for p in (first, second):
            out, err = p.communicate(timeout=60)
            check(p.returncode == 0 and out.decode().strip() == b.snapshot(name), err)
        check(b"another program is fetching" in err, err)
        check(len(hub.seen("cdn")) == 1, hub.seen("cdn"))
        b.has(name, f)


def test_stall(a, tmp):
    """A connection without bytes is given up and tried again."""
    b = Bench(a, tmp)
    name, f, hub = one()
    with hub:
        hub.hold = threading.Event()
        threading.Timer(6, hub.hold.set).start()
        _, err = b.pull(hub, "owner/repo", "--stall-timeout", "2")
        check("again in" in err, err)
        b.has(name, f)


def api_pull(s, model, **more):
    """(status, lines) of a client's download over HTTP."""
    status, headers, data = s.request("POST", "/api/pull", json.dumps({"model": model, **more}))
    if status == 200 and more.get("stream", True):
        check(headers["content-type"] == "application/x-ndjson", headers)
        check(data.endswith(b"\n"), data)
    return status, [json.loads(line) for line in data.splitlines()]


def serve_tiny(a, tmp, b, hub, *args):
    tiny = os.path.join(tmp, "tiny.gguf")
    if not os.path.exists(tiny):
        subprocess.run([a.mkgguf, tiny], check=True)
    return t9server.Server(a.program, tiny, *args, env=dict(b.env, HF_ENDPOINT=hub.url()))


def test_api_pull(a, tmp):
    """A client fetches a model: figures, the end, what is there already, and what fails."""
    b = Bench(a, tmp)
    name, f, hub = one(4 << 20)
    with hub, serve_tiny(a, tmp, b, hub, "--allow-pull") as s:
        hub.rate = 4 << 20
        status, lines = api_pull(s, "hf.co/owner/repo:latest")
        check(status == 200 and lines[0] == {"status": "pulling manifest"}, lines)
        check(lines[-1] == {"status": "success"}, lines)
        moves = [x for x in lines if "total" in x]
        check(len(moves) >= 3 and moves[-1]["completed"] == moves[-1]["total"] == f.size, moves)
        check([x["completed"] for x in moves] == sorted(x["completed"] for x in moves), moves)
        check(all(x["status"] == "pulling " + name and x["digest"] == name for x in moves), moves)
        check(os.stat(b.blob(f.sha256)).st_size == f.size and os.path.exists(b.snapshot(name)), "no file")
        n = len(hub.seen("cdn"))
        check(api_pull(s, "owner/repo", stream=False) == (200, [{"status": "success"}]), "again")
        check(len(hub.seen("cdn")) == n, "fetched twice")
        check(api_pull(s, "tiny:latest") == (200, [{"status": "pulling manifest"}, {"status": "success"}]), "served")
        status, lines = api_pull(s, "llama3.2")
        check(status == 400 and "OWNER/REPO" in lines[0]["error"], lines)
        status, lines = api_pull(s, "other/repo")
        check(status == 200 and "other/repo" in lines[-1]["error"] and len(lines) == 2, lines)
        status, lines = api_pull(s, "other/repo", stream=False)
        check(status == 404 and "other/repo" in lines[0]["error"], lines)
        status, lines = api_pull(s, "../../etc/passwd", stream=False)
        check(status == 400 and lines[0]["error"], lines)
        status, lines = api_pull(s, "owner/repo", insecure=True)
        check(status == 400 and "insecure" in lines[0]["error"], lines)
        status, lines = api_pull(s, "")
        check(status == 400 and "model" in lines[0]["error"], lines)
        check(s.stop() == 0, s.stderr())
        check(TOKEN not in s.stderr(), "the token is in the log")


def test_api_pull_off(a, tmp):
    """It is off unless the operator says so, and nothing is asked then."""
    b = Bench(a, tmp)
    _, _, hub = one(1000)
    with hub, serve_tiny(a, tmp, b, hub) as s:
        status, lines = api_pull(s, "owner/repo")
        check(status == 403 and "--allow-pull" in lines[0]["error"], lines)
        check(api_pull(s, "tiny", stream=False) == (200, [{"status": "success"}]), "served")
        check(hub.requests == [], hub.requests)


def test_api_pull_leaving(a, tmp):
    """A client that leaves stops it, what came is kept, and one download goes at a time."""
    b = Bench(a, tmp)
    _, f, hub = one(4 << 20)
    part = b.blob(f.sha256 + ".incomplete")
    size = lambda: os.stat(part).st_size if os.path.exists(part) else 0
    body = json.dumps({"model": "owner/repo"}).encode()
    with hub, serve_tiny(a, tmp, b, hub, "--allow-pull", "--drain-timeout", "1") as s:
        hub.rate = 1 << 20
        c = socket.create_connection(("127.0.0.1", s.port))
        c.sendall(b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_for(lambda: size() > 200000, "bytes")
        check(b"pulling manifest" in c.recv(4096), "no line")
        status, lines = api_pull(s, "owner/repo")
        check(status == 503 and "another" in lines[0]["error"], lines)
        c.close()
        s.wait_metric(lambda m: m["tempo9_http_streams"] == 0, "no stream", 20)
        time.sleep(1.5)
        kept = size()
        time.sleep(1)
        check(kept > 0 and size() == kept < f.size, "it goes on: %d" % size())
        hub.rate = None
        check(api_pull(s, "owner/repo")[1][-1] == {"status": "success"}, "it does not go on")
        check("bytes=%d-" % kept in [r.headers.get("range") for r in hub.seen("cdn")], "from the start")
        # The server stops in the middle of one.
        shutil.rmtree(b.cache)
        hub.rate = 1 << 20
        c = socket.create_connection(("127.0.0.1", s.port))
        c.sendall(b"POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_for(lambda: size() > 200000, "bytes")
        check(s.stop(20) == 0, s.stderr())
        c.close()


def test_ollama(a, tmp):
    b = Bench(a, tmp)
    tiny = os.path.join(tmp, "tiny.gguf")
    subprocess.run([a.mkgguf, tiny], check=True)
    with open(tiny, "rb") as f:
        data = f.read()
    digest = hashlib.sha256(data).hexdigest()
    store = os.path.join(b.home, ".ollama", "models")
    os.makedirs(store + "/blobs")
    os.makedirs(store + "/manifests/registry.ollama.ai/library/tiny")
    with open(store + "/blobs/sha256-" + digest, "wb") as f:
        f.write(data)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": len(data)},
              {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "1" * 64, "size": 5}]

    def manifest(tag, content):
        with open(store + "/manifests/registry.ollama.ai/library/tiny/" + tag, "w") as f:
            f.write(content if isinstance(content, str) else json.dumps({"schemaVersion": 2, "layers": content}))

    manifest("latest", layers)
    manifest("lora", layers + [dict(layers[0], mediaType="application/vnd.ollama.image.adapter")])
    manifest("junk", "{" * 2000)
    manifest("huge", " " * (2 << 20))
    os.symlink("/dev/zero", store + "/manifests/registry.ollama.ai/library/tiny/zero")
    before = sorted((r, sorted(n)) for r, _, n in os.walk(store))
    out, _ = b.run(None, "--list-ollama")
    check(re.search(r"^tiny:latest +0\.00 GB$", out, re.M) and "adapter" in out and "tiny:zero" in out, out)
    with t9server.Server(a.program, None, "--ollama", "tiny", env=b.env) as s:
        _, _, raw = s.request("GET", "/v1/models")
        check(json.loads(raw)["data"][0]["id"] == "tiny:latest", raw)
    for name, why in (("tiny:lora", "adapter"), ("tiny:junk", "tiny:junk"), ("tiny:huge", "over 1 MB"),
                      ("tiny:zero", "not a regular file"), ("none", "--list-ollama"), ("../tiny", "MODEL[:TAG]")):
        _, err = b.run(None, "inspect", "--ollama", name, code=1)
        check(why in err, "%s: %s" % (name, err))
    check(before == sorted((r, sorted(n)) for r, _, n in os.walk(store)), "the store was changed")
    _, err = b.run(None, "--list-ollama", env={"OLLAMA_MODELS": b.home + "/none"}, code=1)
    check("OLLAMA_MODELS" in err, err)


def test_no_other_connection(a, tmp):
    """A server of a file connects to nothing and looks up no name, whatever is asked of it."""
    if not a.shim:
        print("  no shim with the sanitizers: left out")
        return
    b = Bench(a, tmp)
    tiny = os.path.join(tmp, "tiny.gguf")
    subprocess.run([a.mkgguf, tiny], check=True)
    log = os.path.join(b.home, "connections")
    env = dict(b.env, LD_PRELOAD=a.shim, HUB_SHIM_LOG=log, HF_TOKEN=TOKEN)
    with t9server.Server(a.program, tiny, env=env) as s:
        status, _, _ = s.post({"model": "default", "messages": [{"role": "user", "content": "hello"}],
                               "max_tokens": 4})
        check(status == 200, status)
        for path in ("/", "/v1/models", "/metrics", "/health", "/v1/state", "/v1/capabilities"):
            s.request("GET", path)
        check(s.stop() == 0, s.stderr())
    b.run(None, "run", tiny, "-p", "hello", "-n", "4", env={"HUB_SHIM_LOG": log}, preload=True)
    b.run(None, "inspect", tiny, env={"HUB_SHIM_LOG": log}, preload=True)
    check(not os.path.exists(log), "it connected: " + (open(log).read() if os.path.exists(log) else ""))
    # The shim sees what there is to see, and offline there is nothing.
    name, f, hub = one(1000)
    with hub:
        b.pull(hub, env={"HUB_SHIM_LOG": log}, preload=True)
        with open(log) as lines:
            seen = lines.read()
        check(set(seen.splitlines()) == {"connect 127.0.0.1"}, seen)
        os.unlink(log)
        b.pull(hub, "owner/repo", "--offline", env={"HUB_SHIM_LOG": log}, preload=True)
        check(not os.path.exists(log), "offline connects")


def main():
    tests = {k[5:]: v for k, v in globals().items() if k.startswith("test_")}
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--mkgguf", required=True)
    p.add_argument("--shim")
    p.add_argument("--sanitized", action="store_true")
    p.add_argument("--only", help="comma list of: " + " ".join(tests))
    a = p.parse_args()
    wanted = a.only.split(",") if a.only else list(tests)
    failed = []
    for name in wanted:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as tmp:
            try:
                tests[name](a, tmp)
            except Exception as e:  # the others run all the same
                failed.append(name)
                print("%s: FAILED %s: %s" % (name, type(e).__name__, e))
                continue
        print("%s: ok, %.1f s" % (name, time.monotonic() - begin), flush=True)
    print("failed: " + ", ".join(failed) if failed else "all %d tests passed" % len(wanted))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
