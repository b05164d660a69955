"""What the programs here share: where the server comes from, and how results leave."""

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import urllib.parse

import host


def parser(doc, add_options=None, runs=None):
    """What every program here understands, and its own; `runs`: how many there are, where a server is
    started anew for each."""
    p = argparse.ArgumentParser(description=doc.split("\n\n", 1)[0])
    p.add_argument("--url", help="a running server, such as http://127.0.0.1:11435")
    p.add_argument("--pid", type=int, help="its process, for memory and CPU figures (with --url)")
    p.add_argument("--program", default="build/tempo9", help="tempo9 to start (%(default)s)")
    p.add_argument("--model", metavar="GGUF", help="model to start it with")
    p.add_argument("--args", default="", help="more arguments for it, in one string")
    p.add_argument("--server", metavar="COMMAND", help="start this instead of tempo9; {model}, "
                   "{port} and {threads} are filled in")
    p.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    p.add_argument("--json", metavar="FILE", help="write all records there")
    if add_options:
        add_options(p)
    if runs:
        p.add_argument("--runs", type=int, default=runs)
        p.add_argument("--no-check", action="store_true", help="measure only")
    return p


def options(add_options, text):
    """A program's own alone, for those who call it from another one."""
    p = argparse.ArgumentParser()
    add_options(p)
    return p.parse_args(text)


class Running:
    """A server that was there before."""

    def __init__(self, url, pid):
        parts = urllib.parse.urlsplit(url)
        self.endpoint = (parts.hostname, parts.port or 80)
        self.pid = pid
        self.proc = None


def command_of(a):
    return a.server or "%s serve --gguf {model} --port {port} --threads {threads} %s" % (
        shlex.quote(a.program), a.args)


def server(a):
    """A context manager that gives an object with `endpoint` and `pid`. SIGTERM ends it, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if a.url:
        return contextlib.nullcontext(Running(a.url, a.pid))
    if not a.model:
        raise SystemExit("--model or --url is needed")
    return host.Server(command_of(a), a.model, a.threads)


def finish(a, result, problems):
    """Writes the records, prints the verdict, gives the exit code."""
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(dict(result, problems=problems, machine=host.machine()), f, indent=1)
            f.write("\n")
    for p in problems:
        print("FAILED: " + p)
    print("%d problems" % len(problems) if problems else "all checks hold")
    sys.stdout.flush()
    return 1 if problems else 0
