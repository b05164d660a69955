#!/usr/bin/env python3
"""Requests that agents sent to our server, which it must go on taking where no agent is installed.

    agent_requests.py --server SCRIPTED_SERVER [--program TEMPO9 --mkgguf MKGGUF]
                                                       check those of tests/data/agents
    agent_requests.py --make DIR                       write them anew, from what
                                                       `agents_test.py --keep DIR` left

What is kept of a request is its structure: names of tools and members, types, roles, the words of
our own task. Ids and folders are others, and in the place of an agent's own texts stand neutral
words of the same lengths, long ones cut short.

Each request ends a session with a task done; it is sent as it is, and the scripted model answers it
with a call of the last of the tools, so the prompt had both. Sent again, all of it is cached; so it
is by the true engine, too.
Standard library only.
"""

import argparse
import glob
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile

from agents_test import AGAIN, AGENTS, FINAL, LAST, PROMPT, SEEN, SHELL, is_aside, usages
from recorder import LIMITS, Exchange
from scripted import TESTS, Scripted, template_of
import t9server

FOLDER = os.path.join(TESTS, "data", "agents")
TEXT_MAX = 1200
ANSWER_TOKENS = 4
OURS = (AGAIN, FINAL, LAST, PROMPT, SEEN, SHELL, "I will read it first.", "cat note.txt",
        "note.txt", "Copy the note")
# Members whose texts are names, not prose.
NAMES = {"type", "role", "name", "model", "status", "tool_choice", "effort", "format", "pattern",
         "$schema", "const", "$ref", "display", "summary", "keep", "syntax"}
LISTS = {"required", "enum", "include", "type"}
IDS = {"id", "call_id", "tool_use_id", "tool_call_id", "prompt_cache_key"}
HEADERS = {"anthropic-version", "anthropic-beta"}
NEUTRAL = "plainwordsinplaceoftextofothers"


# ---- making them ----

class Scrubber:
    def __init__(self):
        self.ids = {}

    def text(self, s):
        s = re.sub(r"/tmp/agent-(work|home)-\w+", "/srv/project", s)
        if any(ours in s for ours in OURS) and len(s) < 200:
            return s
        mark = "x-anthropic-billing-header:"  # it is looked for
        kept = mark if s.startswith(mark) else ""
        words = re.sub(r"[A-Za-z]+", lambda m: (NEUTRAL * (len(m[0]) // 31 + 1))[:len(m[0])],
                       s[len(kept):len(kept) + TEXT_MAX])
        return kept + re.sub(r"[0-9]", "0", words)

    def name_of(self, s):
        """Another id of the same length, the same one every time."""
        if s not in self.ids:
            prefix = re.match(r"(?:[a-z]+_)?", s)[0]
            self.ids[s] = prefix + str(len(self.ids) + 1).rjust(len(s) - len(prefix), "0")
        return self.ids[s]

    def value(self, v, key="", listed=False):
        if isinstance(v, dict):
            return {k: self.value(x, k, key == "properties") for k, x in v.items()}
        if isinstance(v, list):
            return [x if key in LISTS and isinstance(x, str) and len(x) < 40 else
                    self.value(x, key) for x in v]
        if not isinstance(v, str):
            return v
        if key in IDS and not listed:
            return self.name_of(v)
        return v if key in NAMES and len(v) < 200 else self.text(v)


def last_turn(agent, folder):
    """The newest question that is no aside."""
    for path in sorted(glob.glob(os.path.join(folder, "*.json")), reverse=True):
        with open(path) as f:
            e = json.load(f)
        if not is_aside(agent, Exchange(e["method"], e["path"], {}, e["body"].encode())):
            return e
    raise SystemExit("no turn in " + folder)


def make(source):
    os.makedirs(FOLDER, exist_ok=True)
    for folder in sorted(glob.glob(os.path.join(source, "*-qwen_xml"))):
        agent = next(a for a in AGENTS if a.name == os.path.basename(folder).split("-")[0])
        e = last_turn(agent, folder)
        body = Scrubber().value(json.loads(e["body"]))
        headers = {k.lower(): v for k, v in e["headers"].items() if k.lower() in HEADERS}
        with open(os.path.join(FOLDER, agent.name + ".json"), "w") as f:
            json.dump({"path": e["path"], "headers": headers, "body": body}, f, indent=1,
                      ensure_ascii=False)
            f.write("\n")


# ---- checking them ----

def tool_name(tools):
    """The last one that is a function."""
    functions = [t.get("function", t) for t in tools if t.get("type") in (None, "function")]
    return functions[-1]["name"]


def ask(port, request):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps(request["body"]).encode()
    e = Exchange("POST", request["path"], {}, body)
    connection.request("POST", request["path"], body,
                       dict(request["headers"], **{"Content-Type": "application/json"}))
    r = connection.getresponse()
    e.status, e.reply = r.status, r.read()
    connection.close()
    if e.status != 200:
        raise AssertionError("%r: %r" % (e, e.reply[:600]))
    return e


def check(server, path):
    with open(path) as f:
        request = json.load(f)
    name = tool_name(request["body"]["tools"])
    # The name is in the prompt where the tools are, the question at its end.
    script = [{"when": AGAIN, "calls": [{"name": name, "arguments": {"any": "thing"}}]}]
    with Scripted(server, script, template_of("hermes")) as s:
        first, again = ask(s.port, request), ask(s.port, request)
        if json.dumps(name).encode() not in first.reply or b"thing" not in first.reply:
            raise AssertionError("%s: no call of %s: %r" % (path, name, first.reply[-900:]))
        n, cached = usages(again)
        if cached < n - 1:
            raise AssertionError("%s: of %d tokens %d are cached" % (path, n, cached))
        wrong = [x for x in s.stderr().splitlines() if re.match(r"\S+ (warn|error) ", x)]
        if wrong:
            raise AssertionError("%s: %s" % (path, wrong))
        system = request["body"].get("system")
        if system:  # a line that differs with every start of the agent costs nothing
            system[0]["text"] = system[0]["text"].replace("0", "7")
            n, cached = usages(ask(s.port, request))
            if cached < n - 1:
                raise AssertionError("%s: another first line: %d of %d cached" % (path, cached, n))
        print("%s: %d tools, %d tokens" % (os.path.basename(path), len(request["body"]["tools"]), n))


def check_engine(args, files):
    """The same with a tiny model of random weights: what is cached is the engine's own doing."""
    with tempfile.TemporaryDirectory(prefix="agent-model-") as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([args.mkgguf, "--width", "64", "--layers", "1", "--heads", "2", "--kv-heads",
                        "1", "--ffn", "128", "--context", "65536", model], check=True)
        with t9server.Server(args.program, model) as s:
            for path in files:
                with open(path) as f:
                    request = json.load(f)
                request["body"].update((k, ANSWER_TOKENS) for k in LIMITS if k in request["body"])
                if "input" in request["body"]:
                    request["body"]["max_output_tokens"] = ANSWER_TOKENS
                ask(s.port, request)
                n, cached = usages(ask(s.port, request))
                if cached < n - 1:
                    raise AssertionError("%s: the engine had %d of %d tokens" % (path, cached, n))
                print("%s: the engine had %d of %d tokens" % (os.path.basename(path), cached, n))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server")
    p.add_argument("--program")
    p.add_argument("--mkgguf")
    p.add_argument("--make")
    args = p.parse_args()
    if args.make:
        make(args.make)
        return 0
    files = sorted(glob.glob(os.path.join(FOLDER, "*.json")))
    if not files:
        raise SystemExit("no requests in " + FOLDER)
    for path in files:
        check(args.server, path)
    if args.program:
        check_engine(args, files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
