#!/usr/bin/env python3
"""tools/support-matrix on tiny models: what it writes of files that work and that fail, its exit codes, Ctrl-C.

    support_matrix_test.py --program PATH --mkgguf PATH
"""
import argparse
import importlib.machinery
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(ROOT, "tools", "support-matrix")


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def section(text, name):
    return re.search(r"^## %s\n(.*?)(?=^## |\Z)" % name, text, re.DOTALL | re.MULTILINE).group(1)


class Tester:
    def __init__(self, a, folder):
        self.a, self.folder = a, folder
        self.out = os.path.join(folder, "MATRIX.md")
        self.models = os.path.join(folder, "models")
        os.makedirs(os.path.join(self.models, "some"))
        for arch, name in (("qwen2", "some/first.gguf"), ("gemma3", "second.gguf")):
            subprocess.run([a.mkgguf, "--arch", arch, "--width", "64", "--vocab", "300", "--layers", "1", "--quant",
                            "Q5_0", os.path.join(self.models, name)], check=True)

    def start(self, *more):
        return subprocess.Popen([sys.executable, TOOL, "--program", self.a.program, "--out", self.out, *more],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *more, code):
        p = self.start(*more)
        out, err = p.communicate(timeout=120)
        check(p.returncode == code and not out, "%s: %d: %s" % (more, p.returncode, err.decode()))
        return err.decode()

    def test_works(self):
        err = self.run(self.models, code=0)
        check("[1/2]" in err and "2 files work, 0 failed" in err, err)
        with open(self.out, encoding="utf-8") as f:
            text = f.read()
        good = section(text, "Tested")
        row = r"\| `some/first.gguf` \| `[0-9a-f]{12}` \| qwen2 \|.* Q5_0 \|.*\| runs \| not asked \|"
        check(re.search(row, good), good)
        check("| gemma3 |" in good and "None." in section(text, "Failed"), text)
        none, tiny, types = section(text, "Untested").strip().splitlines()
        check("`llama`" in none and "`qwen2`" not in none and "`qwen2`" in tiny and "`llama`" not in tiny, none + tiny)
        check("`Q4_K`" in types and "`Q5_0`" not in types and "`F32`" not in types, types)
        check(self.folder not in text, "the table names a folder of this machine")

    def test_failed_files(self):
        folder = os.path.join(self.folder, "bad")
        os.makedirs(folder)
        with open(os.path.join(self.models, "second.gguf"), "rb") as f:
            model = f.read()
        for name, data in (("cut.gguf", model[:len(model) // 2]), ("other.gguf", model.replace(b"gemma3", b"gemma9")),
                           ("again.gguf", model), ("same.gguf", model)):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)
        err = self.run(folder, code=1)
        check("the same as again.gguf" in err and "1 file works, 2 failed" in err, err)
        with open(self.out, encoding="utf-8") as f:
            bad = section(f.read(), "Failed")
        check(re.search(r"`cut.gguf`.*\| \? \| cut.gguf: ", bad), bad)
        check(re.search(r"`other.gguf`.*\| gemma9 \| .*'gemma9'", bad) and "again" not in bad, bad)

    def test_facts_in_a_text(self):
        """A server that knows three of the facts, and has a token for each four letters."""
        sys.dont_write_bytecode = True
        tool = types.ModuleType("tool")
        tool.__file__ = TOOL
        importlib.machinery.SourceFileLoader("tool", TOOL).exec_module(tool)
        prompts = []

        def request(_a, _server, path, body):
            if path == "/tokenize":
                return {"tokens": [0] * (len(body["content"]) // 4)}
            prompts.append(body["messages"][0]["content"])
            known = re.search("number of (Lisbon|Quito|Hanoi)[?]", prompts[-1])
            answer = "It is %d." % tool.secret(known.group(1)) if known else "1"
            return {"choices": [{"message": {"content": answer}}],
                    "usage": {"prompt_tokens": len(prompts[-1]) // 4, "completion_tokens": 3}}

        tool.request = request
        found, n, n_tokens = tool.needle(argparse.Namespace(needle_tokens=3000), None, {"chats": True})
        check((found, n) == (3, 5) and 3000 <= n_tokens < 3300, "%d of %d in %d" % (found, n, n_tokens))
        facts = [m.start() / len(prompts[0]) for m in re.finditer(r"The secret number of \w+ is \d+[.]", prompts[0])]
        for at, wanted in zip(facts, (0.02, 0.26, 0.5, 0.74, 0.98)):
            check(abs(at - wanted) < 0.05, "facts at %s" % facts)
        check(len(facts) == 5, "facts at %s" % facts)

    def test_usage(self):
        for words, part in (([os.path.join(self.folder, "none")], "no such file"),
                            (["--program", sys.executable, self.models], "no tempo9"),
                            (["--program", "none", self.models], "does not run"),
                            (["--out", os.path.join(self.folder, "none", "M.md"), self.models], "cannot be written"),
                            (["--out", self.folder, self.models], "a folder; --out names the file"),
                            (["--args", "--host '", self.models], "No closing quotation"),
                            (["--threads", "0", self.models], "'0' is no whole number from 1 on"),
                            (["--threads", "two", self.models], "'two' is no whole number"),
                            (["--needle-tokens=-1", self.models], "'-1' is no whole number from 0 on"),
                            (["--time-limit", "0", self.models], "'0' is no whole number from 1 on")):
            err = self.run(*words, code=2)
            check(part in err and "Traceback" not in err, "%s: %s" % (part, err))

    def test_no_files(self):
        """What is there by name alone is a model that failed: a link to nothing, a pipe, a folder of that name."""
        folder = os.path.join(self.folder, "odd")
        os.makedirs(os.path.join(folder, "inner.gguf"))
        os.symlink("nowhere", os.path.join(folder, "link.gguf"))
        os.mkfifo(os.path.join(folder, "pipe.gguf"))
        os.symlink(os.path.join(self.models, "second.gguf"), os.fsencode(folder) + b"/good \xff.gguf")
        err = self.run(folder, "--args", "--name {x}", code=1)
        check("2 failed" in err and "Traceback" not in err, err)
        with open(self.out, encoding="utf-8") as f:
            bad = section(f.read(), "Failed")
        check("| `link.gguf` | `?` | ? | cannot be read: No such file or directory |" in bad, bad)
        check("| `pipe.gguf` | `?` | ? | not a regular file |" in bad and "inner" not in bad, bad)
        for name in "link.gguf", "pipe.gguf":
            check("1 failed" in self.run(os.path.join(folder, name), code=1), name)

    def test_odd_outputs(self):
        """A link stays one, and what it names gets the text; a pipe is written to."""
        model = os.path.join(self.models, "second.gguf")
        link, target = (os.path.join(self.folder, name) for name in ("link.md", "target.md"))
        os.symlink("target.md", link)
        self.run(model, "--out", link, code=0)
        check(os.path.islink(link) and os.path.getsize(target) > 0, "the link was replaced")
        pipe = os.path.join(self.folder, "pipe.md")
        os.mkfifo(pipe)
        p = self.start(model, "--out", pipe)
        with open(pipe, encoding="utf-8") as f:
            text = f.read()
        _, err = p.communicate(timeout=120)
        check(p.returncode == 0 and stat.S_ISFIFO(os.stat(pipe).st_mode), err.decode())
        check("second.gguf" in section(text, "Tested"), text)

    def test_interrupted(self):
        with open(self.out, "w", encoding="utf-8") as f:
            f.write("before")
        p = self.start(self.models)
        while b"[1/2]" not in p.stderr.readline():
            check(p.poll() is None, "it ended")
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=60)[1].decode()
        check(p.returncode == 130 and "interrupted" in err and "Traceback" not in err, "%d: %s" % (p.returncode, err))
        with open(self.out, encoding="utf-8") as f:
            check(f.read() == "before", "it wrote the table")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--mkgguf", required=True)
    a = p.parse_args()
    for name in sorted(n for n in dir(Tester) if n.startswith("test_")):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            getattr(Tester(a, folder), name)()
        print("%s: %.1f s" % (name, time.monotonic() - begin))


if __name__ == "__main__":
    main()
