#!/usr/bin/env python3
"""The commands of the program as a user types them: output, exit codes, messages.

  cli_test.py --program PATH --mkgguf PATH --data tests/data --man docs/man/tempo9.1

Standard library only.
"""

import argparse
import array
import csv
import fcntl
import hashlib
import io
import json
import math
import os
import pty
import re
import resource
import signal
import shutil
import socket
import ssl
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tty
import urllib.request

import gguf_split
import t9server
import tokenizer_oracle

COMMANDS = ("serve", "run", "inspect", "tokenize", "detokenize", "render", "eval", "bench",
            "perplexity", "replay", "pull", "openapi", "help")


def check(ok, what):
    if not ok:
        raise AssertionError(what)


class Cli:
    def __init__(self, a, tmp):
        self.a, self.tmp = a, tmp
        self.tiny = os.path.join(tmp, "tiny.gguf")
        subprocess.run([a.mkgguf, self.tiny], check=True)

    def run(self, *args, stdin=b"", code=0, timeout=120):
        """(stdout, stderr) of a run that must end with `code`."""
        p = subprocess.run([self.a.program, *map(str, args)], input=stdin, capture_output=True,
                           timeout=timeout)
        check(p.returncode == code, "%s: exit %d instead of %d\n%s"
              % (" ".join(map(str, args)), p.returncode, code, p.stderr.decode()))
        return p.stdout, p.stderr.decode()

    def file(self, name, data):
        path = os.path.join(self.tmp, name)
        with open(path, "wb") as f:
            f.write(data.encode() if isinstance(data, str) else data)
        return path

    def parts(self):
        """What files that are being written are called until they are whole."""
        return [x for x in os.listdir(self.tmp) if x.endswith(".part")]


# ---- options ----

def test_usage_errors(cli):
    """Exit 2, what is wrong and the usage on standard error, nothing on standard output."""
    m = cli.tiny
    for args in ((), ("serve",), ("frobnicate",), ("--bogus",), ("-Z",), (m, "--port"),
                 (m, "--port", "abc"), (m, "--port", "65536"), (m, "--port", "-1"),
                 (m, "--port", "80 "), (m, "--port", "0x50"), (m, "--port", ""),
                 (m, "--max-length", "0"), (m, "--max-length", "1"),
                 (m, "--max-batch", "1e3"), (m, "--kv-memory", "0"),
                 (m, "--kv-memory", "4Q"), (m, "--threads", "0"), (m, "--kv-type", "f8"),
                 (m, "--log-level", "loud"), (m, "--speculation-k", "4"), (m, "--mmproj", m),
                 (m, "extra"), (m, "--strict=1"), (m, "--json"), ("run", m, "--port", "1"),
                 ("run", m, "Hello"), ("run", m, "--temperature", "nan"), ("run", m, "--temperature", "warm"),
                 ("run", m, "--top-p", "0"), ("run", m, "-p", ""), ("run", m, "--top-p", "1.5"),
                 ("run", m, "--seed", "-1"), ("run", m, "--seed", "18446744073709551616"),
                 ("inspect",), ("tokenize", m, "--ids", "--pieces"), ("render", "--template", "x"),
                 ("render", "--template", "x", "--input", "y", "--now", "yesterday"),
                 ("eval", m), ("eval", m, "--tokens", "x"), ("bench", m, "-p", "1,,2"),
                 ("bench", m, "-p", ",".join("1" * 17)), ("bench", m, "-b", "0"),
                 ("bench", m, "-r", "0"), ("perplexity", m),
                 ("perplexity", "--file", "x"), ("perplexity", m, "--file", "x", "--context", "1"),
                 ("bench", m, "--json", "--csv"), ("bench", m, "--mixed", "0"), ("replay",), ("replay", "a", "b"), ("pull",), ("pull", "a/b", "c"),
                 (m, "--hf", "a/b"), (m, "--ollama", "a"), ("--hf", "a/b", "--retries", "-1"),
                 ("pull", "a/b", "--stall-timeout", "0"), (m, "--log-prompts"),
                 (m, "--config", "/no/such/file"), ("help", "nothing"), (m, "--unix", "s", "--port", "1"), (m, "--api-key", ""),
                 (m, "--rate-limit", "0"),
                 (m, "--max-per-client", "0"), (m, "--drain-timeout", "-1"),
                 ("run", m, "--plan-log", "x")):
        out, err = cli.run(*args, code=2)
        check("-p" not in args or "" not in args or "--prompt: empty" in err, err)
        check(out == b"" and err.startswith("tempo9: ") and
              ("usage: tempo9 " in err or "--config" in args),
              "%r: %r %r" % (args, out, err))


def test_failures(cli):
    """Exit 1 with one line."""
    short = cli.file("short.gguf", b"GGUF\3\0\0\0")
    junk = cli.file("junk.gguf", os.urandom(4096))
    wrong = cli.file("wrong.json", "{")
    good = cli.file("good.json", "[1, 2]")
    m = cli.tiny
    for args, stdin in (
            (("inspect", "/nowhere/x.gguf"), b""), (("inspect", cli.tmp), b""),
            (("inspect", short), b""), (("inspect", junk), b""), (("serve", junk), b""),
            (("run", junk), b""), (("bench", short), b""), (("tokenize", junk), b""),
            ((m, "--host", "no.such.host.invalid", "--port", "0"), b""),
            ((m, "--host", "0.0.0.0", "--port", "0"), b""),
            ((m, "--cors-origin", "http://a,,http://b"), b""),
            ((m, "--cors-origin", "http://a/"), b""), ((m, "--cors-origin", "*"), b""),
            ((m, "--api-key-file", cli.file("keys", "# ours\n\na key\n")), b""),
            (("run", m, "--isa", "mmx"), b""), (("run", m, "--backend", "abacus"), b""),
            (("detokenize", m), b"[1, 99999]"), (("detokenize", m), b"[-1]"),
            (("detokenize", m), b"{}"), (("detokenize", m), b"[1"),
            (("eval", m, "--tokens", wrong, "--logits", cli.tmp + "/o"), b""),
            (("eval", m, "--tokens", good, "--logits", cli.tmp + "/no/o"), b""),
            (("eval", m, "--tokens", cli.file("big.json", "[512]"), "--logits", cli.tmp + "/o"), b""),
            (("perplexity", m, "--file", cli.tmp + "/no-such-text"), b""),
            (("perplexity", m, "--file", cli.file("empty.txt", b"")), b""),
            (("perplexity", m, "--file", "-"), b"far too short"),
            (("perplexity", m, "--file", "-", "--context", "8", "--stride", "8"), b"x" * 99),
            (("perplexity", m, "--file", "-", "--context", "999999"), b"x" * 99),
            (("perplexity", m, "--file", "-", "--context", "8", "--kl", junk), b"x" * 99),
            (("perplexity", m, "--file", "-", "--context", "8", "--save-logits", cli.tmp + "/no/o"),
             b"x" * 99),
            (("run", m, "-p", "hello " * 3000), b"")):
        out, err = cli.run(*args, stdin=stdin, code=1)
        lines = [x for x in err.splitlines() if x.startswith("tempo9: ")]
        logged = args[0] in ("serve", m)  # which tells what it does on the way
        check(out == b"" and len(lines) == 1 and (logged or len(err.splitlines()) == 1),
              "%r: %r %r" % (args, out, err))
    check(not cli.parts(), "a partial output stays: %r" % cli.parts())


def test_key_file_names_the_line(cli):
    for text, line in ("k1\n a\tb \n", 2), ("k1 # the first\n", 1), ("#\n\n\xe9\n", 3):
        path = cli.file("keys", text)
        os.chmod(path, 0o600)
        _, err = cli.run(cli.tiny, "--api-key-file", path, code=1)
        check("keys, line %d: " % line in err and "a key a line" in err, err)


def test_openapi(cli):
    """The description without a server; it is the one that a server gives."""
    out, err = cli.run("openapi")
    doc = json.loads(out)
    check(err == "" and doc["openapi"].startswith("3.1") and "/v1/chat/completions" in doc["paths"],
          doc.keys())
    with t9server.Server(cli.a.program, cli.tiny) as s:
        check(s.request("GET", "/openapi.json")[2].strip() == out.strip(), "the server's differs")


def test_message_does_not_drive_the_terminal(cli):
    """What a file says is quoted without its control characters."""
    text = '{{ raise_exception("a\x1b[31m\u009b1m\\nb\u00e9") }}'
    t = cli.file("esc.jinja", text.encode())
    _, err = cli.run("render", "--template", t, "--input", cli.file("in.json", "{}"), code=1)
    check("\x1b" not in err and "\u009b" not in err and err.count("\n") == 1, repr(err))
    check("a\\x1b[31m\\x9b1m\\x0ab\u00e9" in err, repr(err))


def test_file_at_its_limit(cli):
    """A file that may not grow is a failed write with a message, not a death by signal."""
    ids, out = cli.file("ids.json", json.dumps([1] * 1000)), cli.tmp + "/big.f32"
    p = subprocess.run(
        [cli.a.program, "eval", cli.tiny, "--tokens", ids, "--logits", out], capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000)))
    check(p.returncode == 1 and b"File too large" in p.stderr, "%d %r" % (p.returncode, p.stderr))
    check(not cli.parts(), "a partial output stays: %r" % cli.parts())


def test_more_kv_memory_than_there_is(cli):
    """Taken, since it costs nothing until it is used, and said."""
    _, err = cli.run("run", cli.tiny, "-p", "hi", "-n", "2", "--kv-memory", "5000G")
    check("--kv-memory allows 5.4 TB" in err, err)
    _, err = cli.run("run", cli.tiny, "-p", "hi", "-n", "2", "--kv-memory", "1M")
    check("--kv-memory allows" not in err, err)


def test_limits_say_what_helps(cli):
    """A prompt that is too long: the model's limit, the option's, or what the memory holds."""
    for more, part in (((), "what the model was made for"),
                       (("--max-length", "64"), "set by --max-length"),
                       (("--kv-memory", "1M"), "--kv-memory (kv_bytes) gives it more")):
        _, err = cli.run("run", cli.tiny, "-p", "a b c d " * 1500, "-n", "2", *more, code=1)
        check(part in err and "limit is" in err, err)
    ids = cli.file("long.json", json.dumps([65] * 70))
    path = os.path.join(cli.tmp, "short.gguf")
    subprocess.run([cli.a.mkgguf, "--width", "64", "--layers", "1", "--context", "64", path], check=True)
    _, err = cli.run("eval", path, "--tokens", ids, "--logits", cli.tmp + "/long.f32")
    check("has 70 tokens and the model was made for 64" in err, err)


def test_rows_for_tokens(cli):
    """A file with fewer rows than tokens is refused alike by all that compute with it."""
    path = os.path.join(cli.tmp, "rows.gguf")
    subprocess.run([cli.a.mkgguf, "--vocab", "600", "--rows", "599", path], check=True)
    ids = cli.file("rows.json", json.dumps([65] * 8))
    text = cli.file("rows.txt", "some words " * 40)
    for command in (("run", path, "-p", "hi"), (path, "--port", "0"), ("bench", path, "-n", "2"),
                    ("eval", path, "--tokens", ids, "--logits", cli.tmp + "/rows.f32"),
                    ("perplexity", path, "--file", text, "--context", "32")):
        _, err = cli.run(*command, code=1)
        check("rows.gguf: token_embd.weight has 599 rows, and the tokenizer 600 tokens" in err, "%s: %s" % (command, err))


def test_start_line_names_states(cli):
    path = os.path.join(cli.tmp, "delta.gguf")
    subprocess.run([cli.a.mkgguf, "--arch", "qwen35", "--width", "64", "--ffn", "64", "--context", "64", path],
                   check=True)
    for model, words in (cli.tiny, "memory for keys and values as used"), (path, "states and their checkpoints"):
        with t9server.Server(cli.a.program, model, "--kv-memory", "16M") as s:
            check(words in s.stderr(), s.stderr())


def test_help_and_man(cli):
    """Every command has help, and the manual page has exactly the flags that the helps have."""
    in_help = set()
    for command in COMMANDS:
        out, err = cli.run(command, "--help-all" if command == "serve" else "--help")
        text = out.decode()
        check(text.startswith("usage: tempo9 ") and err == "", command)
        check(all(len(line) <= 80 for line in text.splitlines()), "%s: a long line" % command)
        in_help |= set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text, re.M))
    text = cli.run("--help")[0].decode()
    check(text == cli.run("help")[0].decode() and len(text.splitlines()) < 60, "help")
    check(cli.run("help", "run")[0] == cli.run("run", "--help")[0], "help run")
    check(all(len(line) <= 80 for line in text.splitlines()), "--help: a long line")
    check(all(re.search(r"^  %s " % c, text, re.M) for c in COMMANDS), "a command is not in --help")
    with open(cli.a.man) as f:
        man = f.read().replace("\\-", "-")
    with open(cli.a.man, "rb") as f:
        check(cli.run("help", "--man")[0] == f.read(), "help --man is not the program's page")
    for words in (("bench", "--man"), ("--man", "bench")):
        check(cli.run("help", *words)[0].startswith(b".TH TEMPO9\\-BENCH 1 "), "help bench --man")
    check(cli.run("help", "serve", "--man")[0].startswith(b".TH TEMPO9\\-SERVE 1 "), "help serve --man")
    options = man[man.index(".SH OPTIONS"):man.index(".SH HTTP")]
    in_man = set(re.findall(r"^\.B[RI]?\b[^\n]*?--([a-z-]+)", options, re.M))
    check(in_man == in_help, "only in the manual: %s; only in --help: %s"
          % (sorted(in_man - in_help), sorted(in_help - in_man)))
    commands = set(re.findall(r"^\.B (\w+)$", man[man.index(".SH COMMANDS"):], re.M))
    check(set(COMMANDS) <= commands, "commands of the manual: %r" % commands)


def test_config_file(cli):
    """A configuration file's mistakes are told with its line; its options hold."""
    path = cli.file("t9.conf", "# one\ngguf = %s\nprot = 8080\n" % cli.tiny)
    err = cli.run("--config", path, code=2)[1]
    check('t9.conf:3: there is no option "prot"' in err, err)
    for words in ((cli.tiny[:-5],), ("run", cli.tiny[:-5])):
        check("did you mean %s?" % cli.tiny in cli.run(*words, code=1)[1], "a forgotten .gguf")
    path = cli.file("t9.conf", "gguf = /no/such.gguf\nport = 0\n")
    err = cli.run("--config", path, code=1)[1]
    check("/no/such.gguf" in err, err)


def test_tls(cli):
    """https with a certificate of our own, where the library and openssl can."""
    if not shutil.which("openssl"):
        print("  passed over: there is no openssl here")
        return
    cert, key = os.path.join(cli.tmp, "cert.pem"), os.path.join(cli.tmp, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out",
                    cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost"], check=True, stderr=subprocess.DEVNULL)
    err = cli.run(cli.tiny, "--port", "0", "--tls-cert", key, "--tls-key", cert, code=1)[1]
    check("tls-cert" in err or "TLS did not start" in err, err)
    if "without TLS" in err:
        return
    with open(os.path.join(cli.tmp, "tls.log"), "w+") as log:
        p = subprocess.Popen([cli.a.program, cli.tiny, "--port", "0", "--kv-memory", "16M", "--tls-cert",
                              cert, "--tls-key", key], stderr=log)
        try:
            found, until = None, time.monotonic() + 60
            while not found and time.monotonic() < until:
                with open(log.name) as f:
                    found = re.search(r"listening on https://127.0.0.1:(\d+)", f.read())
                time.sleep(0.05)
            check(found, "no listener")
            url = "https://localhost:%s/health" % found.group(1)
            with urllib.request.urlopen(url, context=ssl.create_default_context(cafile=cert),
                                        timeout=30) as r:
                check(r.status == 200 and b"ok" in r.read(), "health")
        finally:
            p.terminate()
            check(p.wait(60) == 0, "it ended with %d" % p.returncode)


def test_version(cli):
    out = cli.run("--version")[0]
    check(re.match(rb"tempo9 \d+\.\d+\.\d+ \(", out) and b"modified" not in out, "--version")
    v = json.loads(cli.run("--version", "--json")[0])
    check(v["version"] and v["build"]["id"] and v["build"]["dirty"] in (True, False), "build")
    check(v["machine"]["cpus"] >= 1 and v["machine"]["memory_bytes"] > 0, "machine")
    check("llama" in v["architectures"] and "gpt-oss" in v["architectures"], "architectures")
    check("Q4_K" in v["types"] and "F32" in v["types"] and "Q8_K" not in v["types"], "types")


# ---- commands ----

def test_inspect(cli):
    text = cli.run("inspect", cli.tiny)[0].decode()
    for word in ("general.architecture", "Q8_0", "blk.0.attn_q.weight", "Chat template"):
        check(word in text, "inspect: no %s" % word)
    check(cli.run("inspect", "--gguf", cli.tiny)[0].decode() == text, "--gguf and the bare name")
    j = json.loads(cli.run("inspect", cli.tiny, "--json")[0])
    check(j["metadata"]["general.architecture"] == "llama", "metadata")
    check(len(j["metadata"]["tokenizer.ggml.tokens"]) == 512, "arrays are whole")
    names = {t["name"]: t for t in j["tensors"]}
    check(names["token_embd.weight"]["shape"] == [256, 512], "shape")
    check(j["file_bytes"] == os.path.getsize(cli.tiny), "size")
    check(sum(t["bytes"] for t in j["tensors"]) == j["tensor_bytes"] < j["file_bytes"], "bytes")


def test_tokenize(cli):
    for text in ("", "hello the world", "été 東京 🐋\n\n\t x  ", "<|im_end|><think>", "\r\n\0 a" * 500,
                 "a" * 100000):
        raw = text.encode()
        ids = cli.run("tokenize", "--gguf", cli.tiny, stdin=raw)[0]
        numbers = json.loads(ids)
        check(all(0 <= i < 512 for i in numbers) and (len(numbers) > 0) == (text != ""), text[:20])
        check(cli.run("detokenize", "--gguf", cli.tiny, stdin=ids)[0] == raw, "round trip of %r"
              % text[:40])
        pieces = json.loads(cli.run("tokenize", cli.tiny, "--pieces", stdin=raw)[0])
        check(len(pieces) == len(numbers), "pieces")
    plain = json.loads(cli.run("tokenize", cli.tiny, stdin=b"<|im_end|>")[0])
    special = json.loads(cli.run("tokenize", cli.tiny, "--special", stdin=b"<|im_end|>")[0])
    check(special == [507] and 507 not in plain, "control tokens need --special: %r %r"
          % (plain, special))
    check(cli.run("detokenize", cli.tiny, stdin=b"[507]")[0] == b"", "control tokens are silent")
    check(cli.run("detokenize", cli.tiny, "--special", stdin=b"[507]")[0] == b"<|im_end|>", "shown")


def vocabulary(cli, kind, tokens, **more):
    """A file that is a vocabulary and no model."""
    path = os.path.join(cli.tmp, kind + ".gguf")
    values = {"general.architecture": "llama", "tokenizer.ggml.model": kind,
              "tokenizer.ggml.tokens": [t for t, _ in tokens],
              "tokenizer.ggml.token_type": [t for _, t in tokens],
              "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1}
    values.update({"tokenizer.ggml." + k: v for k, v in more.items()})
    tokenizer_oracle.write_metadata(path, values)
    return path


def test_tokenize_kinds(cli):
    """Each kind, with what begins and ends a text; a text is never a control token by itself."""
    ends = [("<s>", 3), ("</s>", 3)]
    words = [(w, 1) for w in ("\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "\n", "\n\n")]
    scores = [float(-i) for i in range(10)]
    merges = ["\u2581 a", "a b", "\u2581a b", "\n \n"]
    llama = vocabulary(cli, "llama", ends + words, scores=scores, add_eos_token=True)
    gemma4 = vocabulary(cli, "gemma4", ends + words, merges=merges)
    bert = vocabulary(cli, "bert", [("[CLS]", 3), ("[SEP]", 3), ("[UNK]", 2), ("ab", 1), ("##a", 1)])
    for path, text, plain, special in (
            (llama, "ab ab", [" ab", " ab"], ["<s>", " ab", " ab", "</s>"]),
            (gemma4, "ab ab\n\n", ["ab", " ab", "\n\n"], ["<s>", "ab", " ab", "\n\n"]),
            (bert, "AB\tab\u00e4", [" ab", " ab", "a"], ["[CLS]", " ab", " ab", "a", "[SEP]"])):
        got = json.loads(cli.run("tokenize", path, "--pieces", stdin=text.encode())[0])
        check(got == plain, "%s: %r" % (path, got))
        got = json.loads(cli.run("tokenize", path, "--pieces", "--special", stdin=text.encode())[0])
        check(got == special, "%s: %r" % (path, got))
        ids = cli.run("tokenize", path, stdin=text.encode())[0]
        back = cli.run("detokenize", path, stdin=ids)[0].decode()
        check(back == ("ab aba" if path == bert else text), "%s: back to %r" % (path, back))
        got = json.loads(cli.run("tokenize", path, stdin=b"<s>ab</s>[SEP]")[0])
        check(0 not in got and 1 not in got, "%s: control tokens in %r" % (path, got))
    for kind, more, why in (
            ("llama", {}, "tokenizer.ggml.scores is missing"),
            ("gpt2", {"pre": "klingon"}, "'klingon'; known pre-tokenizers: gpt-2, default, smollm"),
            ("gemma4", {"pre": "qwen2"}, "'qwen2'; known for this kind: gemma4, default"),
            ("t5", {}, "'t5'; known kinds: gpt2, llama, gemma4, bert")):
        _, err = cli.run("tokenize", vocabulary(cli, kind, ends + words, **more), stdin=b"a", code=1)
        check(why in err, "%s: %r" % (kind, err))


def test_render(cli):
    folder = os.path.join(cli.a.data, "templates")
    with open(os.path.join(folder, "cases.json")) as f:
        cases = json.load(f)
    with open(os.path.join(folder, "expected.json")) as f:
        expected = json.load(f)
    n = 0
    for name, of_template in expected.items():
        for case, want in of_template.items():
            args = ("render", "--template", os.path.join(folder, name + ".jinja"), "--input", "-",
                    "--now", "2026-11-29T09:05:07")
            stdin = json.dumps(cases[name][case]).encode()
            if "error" in want:
                out, err = cli.run(*args, stdin=stdin, code=1)
                check(out == b"" and len(err.splitlines()) == 1, "%s %s: %r" % (name, case, err))
            else:
                out, _ = cli.run(*args, stdin=stdin)
                check(out.decode() == want["text"], "%s %s: %r" % (name, case, out))
            n += 1
    check(n >= 4, "only %d cases" % n)
    out, err = cli.run("render", "--template", cli.file("bad.jinja", "{% if %}"), "--input", "-",
                       stdin=b"{}", code=1)
    check("bad.jinja" in err, err)


def worst_error(got, want, width):
    worst = 0.0
    for p in range(len(want) // width):
        g, w = got[p * width:(p + 1) * width], want[p * width:(p + 1) * width]
        d = math.sqrt(sum((x - y) ** 2 for x, y in zip(g, w)))
        worst = max(worst, d / math.sqrt(sum(y * y for y in w)))
    return worst


def floats(path):
    a = array.array("f")
    with open(path, "rb") as f:
        a.frombytes(f.read())
    if sys.byteorder == "big":
        a.byteswap()
    return a


def test_eval(cli):
    root = os.path.join(cli.a.data, "models")
    # Odd shapes and quantised weights are the model tests', which know where experts tie.
    names = sorted(d for d in os.listdir(root) if os.path.isdir(os.path.join(root, d)) and
                   not d.startswith(("shape-", "wide-")))
    check(names, "no models in %s" % root)
    for name in names:
        folder = os.path.join(root, name)
        with open(os.path.join(folder, "reference.json")) as f:
            ids = cli.file("ids.json", json.dumps(json.load(f)["tokens"]))
        want = floats(os.path.join(folder, "logits.f32"))
        outs = {}
        for what, bound, args in (("ref", 1e-5, ("--backend", "ref")),
                                  ("cpu", 3e-3, ()),
                                  ("cpu kv f32", 2e-5, ("--kv-type", "f32")),
                                  ("canon", 3e-3, ("--backend", "canon")),
                                  ("cpu in chunks of 7", 3e-3, ("--chunk", "7", "--threads", "1"))):
            out = os.path.join(cli.tmp, "out.f32")
            _, err = cli.run("eval", "--gguf", os.path.join(folder, "model.gguf"), "--tokens", ids,
                             "--logits", out, *args)
            check("backend " in err and len(err.splitlines()) == 1, "kernels not named: %r" % err)
            got = floats(out)
            check(len(got) == len(want), "%d logits instead of %d" % (len(got), len(want)))
            e = worst_error(got, want, 512)
            print("  %s, %s: relative error %.2e" % (name, what, e))
            check(e <= bound, "%s, %s: %g over %g" % (name, what, e, bound))
            outs[what] = got.tobytes()
        check(outs["cpu"] == outs["canon"] == outs["cpu in chunks of 7"], "%s: not the same bits" % name)
    check(not cli.parts(), "a partial file stays: %r" % cli.parts())


def scored_by_hand(cli, ids, context, stride, n_windows):
    """The definition, from what `eval` writes: -log p of the last `stride` tokens of each window."""
    out, nll = cli.tmp + "/ppl.f32", []
    for k in range(n_windows):
        window = ids[k * stride:k * stride + context]
        cli.run("eval", cli.tiny, "--tokens", cli.file("ppl.json", json.dumps(window)), "--logits", out)
        rows = floats(out)
        n_vocab = len(rows) // context
        for t in range(context - stride, context):
            row = rows[(t - 1) * n_vocab:t * n_vocab]
            top = max(row)
            nll.append(top + math.log(math.fsum(math.exp(x - top) for x in row)) - row[window[t]])
    return nll


def test_perplexity(cli):
    text = bytes(32 + i * i % 90 for i in range(700)) + b"\xff\xfe not UTF-8 \x00 at all"
    path = cli.file("text.txt", text)
    ids = json.loads(cli.run("tokenize", cli.tiny, stdin=text)[0])
    args = ("perplexity", cli.tiny, "--file", path, "--context", "48")
    kept = cli.tmp + "/kept"
    for stride, more in ((24, ()), (1, ("--stride", "1", "--chunks", "5")), (47, ("--stride", "47"))):
        got = json.loads(cli.run(*args, "--json", *more)[0])
        n_windows = 5 if "--chunks" in more else (len(ids) - 48) // stride + 1
        check((got["windows"], got["tokens_scored"], got["complete"], got["bos"]) ==
              (n_windows, n_windows * stride, True, False), "%r" % got)
        want = scored_by_hand(cli, ids, 48, stride, n_windows)
        mean = sum(want) / len(want)
        error = math.sqrt(sum((x - mean) ** 2 for x in want) / (len(want) - 1) / len(want))
        check(abs(got["perplexity"] / math.exp(mean) - 1) < 1e-5, "%r, not %g" % (got, math.exp(mean)))
        check(abs(got["mean_nll_standard_error"] / error - 1) < 1e-4, "%r, not %g" % (got, error))
    said = cli.run(*args, "--save-logits", kept)[0].decode()
    check("perplexity" in said and "+-" in said and "windows of 48" in said, said)
    check(cli.run(*args, stdin=text)[0].split(b";")[0] == said.encode().split(b";")[0], "another run")
    same = json.loads(cli.run(*args, "--kl", kept, "--json", "--threads", "1")[0])
    check(same["kl"]["max"] == 0 and same["kl"]["same_top"] == 1, "%r" % same["kl"])
    check(abs(same["kl"]["kept_perplexity"] / same["perplexity"] - 1) < 1e-6, "%r" % same)
    other = json.loads(cli.run(*args, "--kl", kept, "--json", "--kv-type", "q8_0")[0])["kl"]
    check(0 < other["median"] <= other["p99"] <= other["max"] < 0.1 and other["mean"] > 0, "%r" % other)
    _, err = cli.run(*args, "--stride", "3", "--kl", kept, code=1)
    check("--stride 24 (3)" in err, err)
    with open(kept, "r+b") as f:
        f.truncate(os.path.getsize(kept) - 1)
    check("it was cut off" in cli.run(*args, "--kl", kept, code=1)[1], "cut base")


def test_written_files(cli):
    """What a command writes takes the place of no link, pipe, device, folder, model or input."""
    text = cli.file("text.txt", bytes(32 + i % 90 for i in range(300)))
    ids = cli.file("ids.json", "[1, 2, 3]")
    model = cli.tmp + "/model.gguf"
    shutil.copy(cli.tiny, model)
    with open(model, "rb") as f:
        model_bytes = f.read()
    scored = ("perplexity", model, "--file", text, "--context", "16", "--save-logits")
    commands = (scored, ("eval", model, "--tokens", ids, "--logits"))
    socket_path = cli.tmp + "/sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(socket_path)
    os.symlink(model, cli.tmp + "/model.link")
    os.link(model, cli.tmp + "/model.hard")
    for args in commands:
        plain, target, link = (cli.tmp + "/out." + x for x in ("plain", "target", "link"))
        cli.run(*args, plain)
        with open(plain, "rb") as f:
            want = f.read()
        os.path.lexists(link) or os.symlink("out.target", link)
        cli.run(*args, link)
        with open(target, "rb") as f:
            check(os.path.islink(link) and f.read() == want, "%s through a link" % args[0])
        fifo = cli.tmp + "/fifo"
        os.path.exists(fifo) or os.mkfifo(fifo)
        with open(plain, "w+b") as got:
            with subprocess.Popen(["cat", fifo], stdout=got):
                cli.run(*args, fifo)
            got.seek(0)
            check(got.read() == want and stat.S_ISFIFO(os.stat(fifo).st_mode), "%s through a FIFO" % args[0])
        cli.run(*args, "/dev/null")
        check(stat.S_ISCHR(os.stat("/dev/null").st_mode), "/dev/null is gone")
        for path, word in ((socket_path, "socket"), (cli.tmp, "folder"), (cli.tmp + "/no/x", "No such"),
                           (model, "the model itself"), (cli.tmp + "/model.link", "the model itself"),
                           (cli.tmp + "/model.hard", "the model itself"), (args[3], "is what is read")):
            _, err = cli.run(*args, path, code=1)
            check(word in err, "%s to %s: %s" % (args[0], path, err))
    cli.run(model, "--port", "0", "--plan-log", model, code=1)
    cli.run(model, "--port", "0", "--plan-log", cli.tmp, code=1)
    with open(model, "rb") as f:
        check(f.read() == model_bytes, "the model was written to")
    check(not cli.parts(), "%r" % cli.parts())


def test_relatives(cli):
    """A known relative is told as that, whatever its tokenizer is."""
    data = open_bytes(cli.tiny)
    arch = json.loads(cli.run("inspect", cli.tiny, "--json")[0])["metadata"]["general.architecture"].encode()
    check(len(arch) == 5, "as long as the relative's")
    at = data.index(struct.pack("<Q", 5) + arch)
    data[at + 8:at + 13] = b"gemma"
    key = b"tokenizer.ggml.model"
    data = data.replace(key, b"tokenizer.ggml.m0del")
    bad, text = cli.file("relative.gguf", data), cli.file("text.txt", "some words")
    for args in (("run", bad, "-p", "hi"), ("bench", bad), ("perplexity", bad, "--file", text), ("serve", bad)):
        _, err = cli.run(*args, code=1)
        check("the first Gemma" in err and err.count("relative.gguf") == 1, "%s: %s" % (args[0], err))
    _, err = cli.run("tokenize", bad, code=1)
    check("key tokenizer.ggml.model is missing" in err and err.count("relative.gguf") == 1, err)


def open_bytes(path):
    with open(path, "rb") as f:
        return bytearray(f.read())


def test_not_finite(cli):
    """One logit that is no number, or all of them: nobody computes on with the others."""
    tensors = {t["name"]: t for t in json.loads(cli.run("inspect", cli.tiny, "--json")[0])["tensors"]}
    row_bytes = 256 // 32 * 34  # Q8_0: a scale of half precision and 32 weights
    ids, text = cli.file("ids.json", "[1, 2, 3]"), cli.file("text.txt", "some words " * 9)
    for what, at, value in (
            ("a row of the output", tensors["token_embd.weight"]["offset"] + 300 * row_bytes, b"\x00\x7e"),
            ("an infinite scale", tensors["blk.0.ffn_down.weight"]["offset"], b"\x00\x7c")):
        data = open_bytes(cli.tiny)
        data[at:at + len(value)] = value
        bad = cli.file("bad.gguf", data)
        for args in (("run", bad, "-p", "hi"), ("eval", bad, "--tokens", ids, "--logits", cli.tmp + "/o"),
                     ("perplexity", bad, "--file", text, "--context", "8", "--save-logits", cli.tmp + "/o"),
                     ("bench", bad, "-p", "8", "-n", "4", "-r", "1")):
            _, err = cli.run(*args, code=1)
            check("not finite numbers" in err, "%s, %s: %s" % (what, args[0], err))
        check(not os.path.exists(cli.tmp + "/o") and not cli.parts(), "an output of nonsense")
        with t9server.Server(cli.a.program, bad) as s:
            ask = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
            score = {"prompt": "hi there", "max_tokens": 0, "echo": True, "logprobs": 1}
            for path, body in (("/v1/chat/completions", ask), ("/v1/completions", score)) * 2:
                code, _, reply = s.post(body, path)
                check(code == 500 and "not finite numbers" in reply["error"]["message"], "%s: %d %r" % (path, code, reply))
            check(s.request("GET", "/health")[0] == 200, "a bad row ended the engine")
    at = tensors["output_norm.weight"]["offset"]
    data = open_bytes(cli.tiny)
    data[at:at + 4] = struct.pack("<f", math.inf)
    _, err = cli.run("run", cli.file("bad.gguf", data), "-p", "hi", code=1)
    check("output_norm.weight has a value that is no finite number" in err, err)


def test_bench(cli):
    args = ("bench", cli.tiny, "-p", "64", "-n", "8", "-d", "0,200", "-b", "1,4", "-r", "3")
    text = cli.run(*args)[0].decode()
    check("tok/s" in text and len([x for x in text.splitlines() if ".." in x]) == 5, text)
    check(all(x in text for x in ("flags: ", "threads", "kv f16", "memory read")), text)
    j = json.loads(cli.run(*args, "--json")[0])
    check(j["model"]["arch"] == "llama" and len(j["model"]["sha256"]) == 1, "identity")
    check(j["build"]["id"] and j["machine"]["cpus"] >= 1 and j["backend"]["numerics"], "identity")
    check(j["workload_fingerprint"], "fingerprint")
    check(len(j["cells"]) == 5, "cells")
    for c in j["cells"]:
        check(len(c["runs"]) == 3 and min(c["runs"]) > 0, "%r" % c)
        check(min(c["runs"]) <= c["median_tokens_per_s"] <= max(c["runs"]), "%r" % c)
    again = json.loads(cli.run(*args, "--json", "--threads", "1")[0])
    for key in "text_hash", "logits_hash":
        check([c[key] for c in again["cells"]] == [c[key] for c in j["cells"]],
              "one thread gives another " + key)
    check(len({c["logits_hash"] for c in j["cells"]}) == 5, "hashes of nothing: %r" % j["cells"])


def test_bench_mixed(cli):
    args = ("bench", cli.tiny, "-p", "0", "-n", "0", "-d", "40", "-b", "3", "--mixed", "700", "-r", "2")
    j = json.loads(cli.run(*args, "--json")[0])
    cell, = j["cells"]
    check((cell["kind"], cell["prompt"], cell["batch"], cell["depth"]) == ("mixed", 700, 3, 40), "%r" % cell)
    # 700 rows take at least three steps, and every stream gets a token in each
    for rate, streams in zip(cell["runs"], cell["streams_runs"]):
        check(streams / rate * 700 > 8, "%r" % cell)
    check(j["complete"] and j["date"][:2] == "20" and j["read_gb_per_s"] > 0, "%r" % j)
    again = json.loads(cli.run(*args, "--json", "--step-tokens", "64")[0])["cells"][0]
    check((again["text_hash"], again["logits_hash"]) == (cell["text_hash"], cell["logits_hash"]),
          "smaller steps give other results")


def test_bench_formats(cli):
    args = ("bench", cli.tiny, "-p", "16", "-n", "4", "-r", "2", "--mixed", "32")
    rows = list(csv.DictReader(io.StringIO(cli.run(*args, "--csv")[0].decode())))
    check([r["kind"] for r in rows] == ["prompt", "decode", "mixed"], "%r" % rows)
    for r in rows:
        check(None not in r and None not in r.values() and len(r["model_sha256"]) == 64, "%r" % r)
        check(float(r["min_tokens_per_s"]) <= float(r["median_tokens_per_s"]) <=
              float(r["max_tokens_per_s"]) and r["threads"] and r["flags"], "%r" % r)
    check(float(rows[1]["bytes_per_token"]) > 0 and rows[0]["bytes_per_token"] == "", "%r" % rows)
    table = [x for x in cli.run(*args, "--markdown")[0].decode().splitlines() if x.startswith("|")]
    check(len(table) == 5 and len({x.count("|") for x in table}) == 1, "%r" % table)


def test_bench_bytes_per_token(cli):
    """The weights that are read, without a draft head's, the keys and values, and the state twice."""
    path = os.path.join(cli.tmp, "delta.gguf")
    heads, keys, dim, taps, kv_heads, head_dim = 4, 2, 64, 4, 2, 16
    for flags in [], ["--draft"]:
        subprocess.run([cli.a.mkgguf, "--arch", "qwen35", "--width", "64", "--heads", "4", "--ffn", "64", "--context",
                        "64", *flags, path], check=True)
        tensors = json.loads(cli.run("inspect", path, "--json")[0])["tensors"]
        check(any("nextn" in t["name"] for t in tensors) == bool(flags), "%r" % flags)
        weights = sum(t["bytes"] for t in tensors if not t["name"].startswith("blk.2."))
        state = 4 * (heads * dim * dim + (taps - 1) * (2 * keys + heads) * dim)
        cells = json.loads(cli.run("bench", path, "-p", "0", "-n", "4", "-d", "20", "-b", "1,2", "-r", "1",
                                   "--json")[0])["cells"]
        for cell, batch in zip(cells, (1, 2)):
            wanted = weights / batch + 22 * 2 * kv_heads * head_dim * 2 + 2 * state
            check(abs(cell["bytes_per_token"] - wanted) < 1, "%r: %r" % (wanted, cell))


def test_bench_refuses_early(cli):
    """What cannot be run is refused before anything is measured; what waits for others has a place."""
    out, err = cli.run("bench", cli.tiny, "-p", "8", "-n", "4", "-d", "0,5000", "-r", "1", code=1)
    check(out == b"" and "--depth 5000" in err and "2048" in err, "%r %r" % (out, err))
    for option in "-p", "--mixed":
        out, err = cli.run("bench", cli.tiny, "-n", "4", option, "4,2048", "-r", "1", code=1)
        check(out == b"" and " 2048: " in err, "%r %r" % (out, err))
    cli.run("bench", cli.tiny, "-p", "2047", "-n", "4", "-d", "2043", "-r", "1")
    out, _ = cli.run("bench", cli.tiny, "-p", "0", "-n", "2", "-b", "300", "-r", "1")
    check(b"batch 300" in out, out)


def test_names_do_not_drive_the_terminal(cli):
    name = 'a "b"\x1b[31m.gguf'
    path = os.path.join(cli.tmp, name)
    shutil.copy(cli.tiny, path)
    text = cli.file("text.txt", "some words " * 9)
    bench = ("bench", path, "-p", "8", "-n", "0", "-r", "1")
    for args in (bench, (*bench, "--markdown"), ("inspect", path),
                 ("perplexity", path, "--file", text, "--context", "8")):
        out, _ = cli.run(*args)
        check(b"\x1b" not in out and b"\\x1b[31m.gguf" in out, "%s: %r" % (args[0], out[:600]))
    out, _ = cli.run(*bench, "--csv")
    check(next(csv.DictReader(io.StringIO(out.decode())))["model"] == name, out)


def test_bench_of_a_split_file(cli):
    """Every part of the file is in the identity of its figures."""
    with open(cli.tiny, "rb") as f:
        parts = gguf_split.split(f.read(), 3)
    paths = [cli.file("split-%05d-of-00003.gguf" % (i + 1), p) for i, p in enumerate(parts)]
    want = [hashlib.sha256(p).hexdigest() for p in parts]
    args = ("bench", paths[0], "-p", "8", "-n", "0", "-r", "1")
    row = next(csv.DictReader(io.StringIO(cli.run(*args, "--csv")[0].decode())))
    check(row["model_sha256"].split(" ") == want, row["model_sha256"])
    check(json.loads(cli.run(*args, "--json")[0])["model"]["sha256"] == want, "JSON")


def test_run(cli):
    args = ("run", cli.tiny, "-p", "hello", "-n", "12", "--seed", "3")
    out, err = cli.run(*args)
    check(out.endswith(b"\n") and len(out) > 1, "%r" % out)
    check(cli.run(*args)[0] == out, "the same seed gives the same text")
    talk = b"hello\n\n/reset\nhello\n"
    lines, err = cli.run("run", cli.tiny, "-n", "4", "--temperature", "0", stdin=talk)
    check(len(lines) % 2 == 0 and lines[:len(lines) // 2] == lines[len(lines) // 2:],
          "after /reset the same question has the same answer: %r" % lines)


def test_run_of_nothing(cli):
    """A template that makes no text of the messages is no conversation that is too long."""
    template = json.loads(cli.run("inspect", cli.tiny, "--json")[0])["metadata"]["tokenizer.chat_template"]
    with open(cli.tiny, "rb") as f:
        data = f.read()
    check(data.count(template.encode()) == 1, "the template")
    silent = "{#%s#}" % ("x" * (len(template.encode()) - 4))
    path = cli.file("silent.gguf", data.replace(template.encode(), silent.encode()))
    _, err = cli.run("run", path, "-p", "hi", code=1)
    check("template makes no text" in err, err)


def test_run_commands(cli):
    """What begins like a command is one or is refused; it never becomes a message."""
    ask = ("run", cli.tiny, "-n", "4", "--temperature", "0")
    one = cli.run(*ask, stdin=b"hello\n")[0]
    for word in (b"/quit", b"/exit"):
        out, err = cli.run(*ask, stdin=b"hello\n%s\nhello\n" % word)
        check(out == one and "command" not in err, "%r: %r %r" % (word, out, err))
    # Neither one that is not known nor /help changes or ends the conversation.
    two = cli.run(*ask, stdin=b"hello\nand you?\n")[0]
    out, err = cli.run(*ask, stdin=b"hello\n/leave\nand you?\n")
    check(out == two != one and "tempo9: /leave is no command, and was not sent: /help" in err, "%r %r" % (out, err))
    out, err = cli.run(*ask, stdin=b"hello\n/help\nand you?\n")
    check(out == two and all(word in err for word in ("/reset", "/quit", "/exit", "/help")), "%r %r" % (out, err))
    check(cli.run(*ask, stdin=b"/etc/passwd\n")[0] != b"", "a path is a message")


def test_closed_streams(cli):
    """A standard stream that is not there is never the next file that is opened."""
    def run(redirect, *args, code=0):
        p = subprocess.run(["sh", "-c", 'exec "$0" "$@" ' + redirect, cli.a.program, *args],
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        check(p.returncode == code, "%s %s: %d %r" % (args[0], redirect, p.returncode, p.stderr))
        return p.stdout, p.stderr.decode()

    out, err = run("<&-", "tokenize", cli.tiny, code=1)
    check(out == b"" and err.startswith("tempo9: ") and "GGUF" not in err, "%r %r" % (out, err))
    out, err = run("<&-", "run", cli.tiny, code=1)
    check(out == b"" and "standard input" in err, "%r %r" % (out, err))
    one = ("run", cli.tiny, "-p", "hi", "-n", "4", "--seed", "1")
    check(run("<&-", *one)[0] == cli.run(*one)[0], "an answer needs no standard input")
    _, err = run(">&-", "inspect", cli.tiny, code=1)
    check("standard output" in err, err)
    run(">&- 2>&-", "--version", code=1)
    run("<&- >&- 2>&-", *one, code=1)
    log = os.path.join(cli.tmp, "closed.log")
    p = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', cli.a.program, cli.tiny, "--port", "0",
                          "--plan-log", log, "--kv-memory", "16M"])
    until = time.monotonic() + 60
    while not os.path.exists(log) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5 if not cli.a.sanitized else 3)  # it says where it listens
    p.terminate()
    check(p.wait(60) == 0, "it ended with %d" % p.returncode)
    with open(log) as f:
        check(all(json.loads(line)["t9_plan"] == 2 for line in f), "messages are in the plan log")


def on_terminal(words, stdin=None, timeout=60):
    """What a program writes to a terminal of its own, as it was written."""
    master, slave = pty.openpty()
    tty.setraw(slave)  # no line feed is changed on the way
    p = subprocess.Popen(words, stdin=stdin or subprocess.DEVNULL, stdout=slave, stderr=subprocess.DEVNULL)
    os.close(slave)
    out = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        out += piece
    os.close(master)
    check(p.wait(timeout) == 0, "%r: %d" % (words, p.returncode))
    return out


def test_terminal(cli):
    """Control characters that a model says are shown on a terminal, and are bytes in a pipe."""
    for seed in range(40):
        words = ("run", cli.tiny, "-p", "hi", "-n", "400", "--temperature", "100", "--top-p", "1", "--min-p", "0",
                 "--seed", seed)
        raw = cli.run(*words)[0]
        if b"\x1b" in raw:
            break
    check(b"\x1b" in raw, "no answer has an escape character in it")
    want = "".join("\\x%02x" % ord(c) if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 else c
                   for c in raw.decode())
    got = on_terminal([cli.a.program, *map(str, words)]).decode()
    check(got == want, "%r instead of %r" % (got[:300], want[:300]))
    template = cli.file("bell.jinja", b'\a{{ "\xc2\x9b" }}\xf0\x9f\x90\x8b')
    words = ("render", "--template", template, "--input", cli.file("none.json", "{}"))
    check(cli.run(*words)[0] == b"\a\xc2\x9b\xf0\x9f\x90\x8b", "a pipe gets the bytes")
    got = on_terminal([cli.a.program, *words])
    check(got == b"\\x07\\x9b\xf0\x9f\x90\x8b", got)


def test_hangup(cli):
    """A terminal that goes away stops a server as SIGTERM does: running answers end."""
    master, slave = pty.openpty()

    def on_it():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    with t9server.Server(cli.a.program, cli.tiny, preexec=on_it) as s:
        os.close(slave)
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "ignore_eos": True}
        first, got = threading.Event(), []
        thread = threading.Thread(target=lambda: got.append(
            t9server.chat_stream(s, body, on_chunk=lambda reply: first.set())))
        thread.start()
        check(first.wait(60), "no answer")
        os.close(master)
        check(s.proc.wait(60) == 0, "it ended with %s" % s.proc.returncode)
        thread.join(60)
        check(got and got[0].tokens == 200 and not got[0].error, "%r" % got)
        check("stopping: running answers" in s.stderr(), s.stderr())


def test_no_terminal(cli):
    """A server without a terminal goes on after a SIGHUP; in the journal it leaves time and level to that."""
    with tempfile.TemporaryFile() as journal:
        st = os.fstat(journal.fileno())
        env = dict(os.environ, JOURNAL_STREAM="%d:%d" % (st.st_dev, st.st_ino))
        p = subprocess.Popen([cli.a.program, "serve", "--gguf", cli.tiny, "--port", "0"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=journal, env=env, start_new_session=True)
        try:
            until = time.monotonic() + 60
            while b"listening on" not in os.pread(journal.fileno(), 1 << 20, 0):
                check(time.monotonic() < until and p.poll() is None, "it did not start")
                time.sleep(0.02)
            p.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            check(p.poll() is None, "it ended with %s" % p.returncode)
            p.send_signal(signal.SIGTERM)
            check(p.wait(60) == 0, "it ended with %s" % p.returncode)
        finally:
            p.kill()
            p.wait()
        lines = os.pread(journal.fileno(), 1 << 20, 0).decode().splitlines()
    check(all(re.match(r"<[3467]>[a-z]+: ", line) for line in lines), lines)


def test_replay(cli):
    """A plan log of a server is replayed to the same plans; a changed one is found out."""
    log = os.path.join(cli.tmp, "plan.log")
    with t9server.Server(cli.a.program, cli.tiny, "--plan-log", log) as s:
        body = {"messages": [{"role": "user", "content": "hello " * 40}], "max_tokens": 20,
                "ignore_eos": True}
        for _ in range(2):
            t9server.chat(s, body)
        check(s.stop() == 0, "exit code of the server")
    with open(log) as f:
        lines = f.readlines()
    check(len(lines) >= 40, "%d lines" % len(lines))
    for line in lines:
        check(json.loads(line)["t9_plan"] == 2, line)
    out, err = cli.run("replay", log)
    check(out == b"%d steps, the same plans\n" % len(lines) and err == "", "%r %r" % (out, err))
    out, _ = cli.run("replay", "-", stdin="".join(lines[:3]).encode() + lines[3][:-1].encode())
    check(out.startswith(b"3 steps, the same plans; the last line"), out)
    # Without some of its steps, and out of order.
    for kept, word in ((lines[:2] + lines[3:], "line 3: plan log: step 3 is missing"),
                       (lines[:2] + lines[5:], "line 3: plan log: steps 3 to 5 are missing"),
                       (lines[:3] + lines[2:], "line 4: plan log: step 3 after step 3: "),
                       (lines[2:4] + lines[:2], "line 3: plan log: step 1 after step 4: ")):
        _, err = cli.run("replay", cli.file("gap.log", "".join(kept)), code=1)
        check(word in err and len(err.splitlines()) == 1, err)
    out, _ = cli.run("replay", cli.file("end.log", "".join(lines[4:])))
    check(out == b"%d steps, the same plans; the log begins with step 5\n" % (len(lines) - 4), out)
    out, _ = cli.run("replay", cli.file("one.log", lines[0]))
    check(out == b"1 step, the same plans\n", out)
    # One row more than was planned.
    at = next(i for i, line in enumerate(lines) if json.loads(line)["rows"] > 0)
    bad = re.sub(r"(\d+)\]\],", lambda m: "%d]]," % (int(m.group(1)) + 1), lines[at])
    check(bad != lines[at], lines[at])
    _, err = cli.run("replay", cli.file("bad.log", "".join(lines[:at]) + bad), code=1)
    check("line %d: plan log: step " % (at + 1) in err, err)
    for text in ("x\n", "{}\n", '{"t9_plan":1}\n', "\0\n", "x" * 500000):
        _, err = cli.run("replay", cli.file("junk.log", text), code=0 if text == "" else 1)
        check("line 1: " in err and len(err.splitlines()) == 1, err)
    _, err = cli.run("replay", cli.tmp + "/none", code=1)
    check("No such file" in err, err)
    _, err = cli.run(cli.tiny, "--port", "0", "--plan-log", cli.tmp + "/none/plan.log", code=1)
    check("No such file" in err and "errno" not in err, err)
    for path in (cli.file("empty.log", ""), "/dev/null", cli.file("cut.log", lines[0][:-1])):
        out, err = cli.run("replay", path, code=1)
        check(out == b"" and "there is no step in it" in err, "%s: %r %r" % (path, out, err))


def test_allow_long(cli):
    """More tokens than the model was made for are refused unless they were asked for by name."""
    _, err = cli.run("run", cli.tiny, "-p", "hi", "--max-length", "4096", code=1)
    check("made for 2048 tokens" in err and "--allow-long" in err, err)
    cli.run("run", cli.tiny, "-p", "hi", "-n", "4", "--max-length", "4096", "--allow-long")


def test_interrupt(cli):
    """SIGINT and SIGTERM end every command, soon and without a word too many; exit 130 and 143."""
    ids = cli.file("many.json", json.dumps([i % 500 for i in range(2000)]))
    text_path = cli.file("long.txt", os.urandom(200000))
    begun = []
    for args, text in ((("run", cli.tiny, "-p", "hello", "--backend", "canon"), True),
                       (("run", cli.tiny), False),
                       (("tokenize", cli.tiny), False), (("detokenize", cli.tiny), False),
                       (("render", "--template", ids, "--input", "-"), False),
                       (("eval", cli.tiny, "--tokens", ids, "--logits", cli.tmp + "/o", "--backend",
                         "canon"), True),
                       (("bench", cli.tiny, "-r", "1000"), True),
                       (("perplexity", cli.tiny, "--file", text_path, "--backend", "canon",
                         "--save-logits", cli.tmp + "/o"), True),
                       (("perplexity", cli.tiny, "--file", "-"), True), (("replay", "-"), True),
                       ((cli.tiny, "--port", "0"), False)):
        sent = signal.SIGTERM if args[0] in ("eval", "run", cli.tiny) else signal.SIGINT
        begun.append((args, text, sent, subprocess.Popen([cli.a.program, *args], stdin=subprocess.PIPE,
                                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
    time.sleep(1 if not cli.a.sanitized else 5)
    for _, _, sent, p in begun:
        p.send_signal(sent)
    for args, text, sent, p in begun:
        # What bench measures of the machine at first is not broken off, and takes long with checks.
        err = p.stderr.read() if p.wait(30 if not cli.a.sanitized else 180) is not None else b""
        p.stdin.close()
        p.stdout.close()
        p.stderr.close()
        # Those that have nothing to wind up end by the signal itself, of which a shell makes 130.
        code = 0 if args[0] == cli.tiny else 130 if text or args[0] == "run" else -sent
        check(p.returncode == (code + 13 if code == 130 and sent == signal.SIGTERM else code),
              "%r: %d %r" % (args, p.returncode, err))
        check(not text or err == b"tempo9: interrupted\n", "%r: %d %r" % (args, p.returncode, err))
    check(not os.path.exists(cli.tmp + "/o") and not cli.parts(), "an interrupted eval left its output")


def test_interrupt_before_it_begins(cli):
    """Before the model is loaded, too; a server that is stopped then has not failed."""
    fifo, ids = cli.tmp + "/no-reader", cli.file("ids.json", "[1]")
    os.mkfifo(fifo)
    begun = []
    for args, code in ((("eval", cli.tiny, "--tokens", ids, "--logits", fifo), 128),
                       (("perplexity", cli.tiny, "--file", ids, "--save-logits", fifo), 128),
                       ((cli.tiny, "--port", "0", "--plan-log", fifo), 0)):
        for sent in signal.SIGINT, signal.SIGTERM:
            begun.append((args, code, sent, subprocess.Popen([cli.a.program, *map(str, args)],
                                                             stderr=subprocess.PIPE)))
    time.sleep(1 if not cli.a.sanitized else 4)
    for args, code, sent, p in begun:
        p.send_signal(sent)
        err = p.communicate(timeout=30)[1]
        check(p.returncode == (code and code + sent), "%r: %d %r" % (args, p.returncode, err))


def test_closed_pipe(cli):
    """A reader that leaves is nothing to talk about."""
    ids = json.dumps([65] * 300000).encode()
    for args, stdin in ((("inspect", cli.tiny, "--json"), b""), (("detokenize", cli.tiny), ids),
                        (("run", cli.tiny, "-p", "hello"), b""), (("--help",), b""),
                        (("bench", cli.tiny, "-n", "2", "-p", "2,2", "-r", "1"), b"")):
        r, w = os.pipe()
        os.close(r)
        p = subprocess.run([cli.a.program, *args], input=stdin, stdout=w, stderr=subprocess.PIPE,
                           timeout=60)
        os.close(w)
        check(p.returncode in (0, 1) and p.stderr == b"", "%r: %d %r" % (args, p.returncode, p.stderr))
    with open("/dev/full", "wb") as full:
        p = subprocess.run([cli.a.program, "--help"], stdout=full, stderr=subprocess.PIPE, timeout=60)
        check(p.returncode == 1 and len(p.stderr.splitlines()) == 1, "/dev/full: %r" % p)


def main():
    tests = {name[5:]: f for name, f in globals().items() if name.startswith("test_")}
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--mkgguf", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--man", required=True)
    p.add_argument("--sanitized", action="store_true")
    p.add_argument("--only", help="comma list of: " + " ".join(tests))
    a = p.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as tmp:
        cli = Cli(a, tmp)
        for name in a.only.split(",") if a.only else tests:
            t0 = time.monotonic()
            try:
                tests[name](cli)
                print("%s: ok, %.1f s" % (name, time.monotonic() - t0), flush=True)
            except Exception as e:
                failed.append(name)
                print("%s: FAILED %s: %s" % (name, type(e).__name__, e), flush=True)
    print("failed: %s" % ", ".join(failed) if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
