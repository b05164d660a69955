#!/usr/bin/env python3
"""The completions of a shell, loaded by that shell.

  completion_test.py --program PATH --shell zsh|fish

Exit code 77 where the shell is not there. bash's are tested with the package, by its own function.
"""

import argparse
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

COMMANDS = {"serve", "run", "inspect", "tokenize", "detokenize", "render", "eval", "bench", "perplexity", "replay",
            "pull", "openapi", "help"}

# What is typed, and the one word that it becomes; None: nothing is offered.
ONE = (("tempo9 tok", "tokenize"), ("tempo9 --hos", "--host"), ("tempo9 serve --hos", "--host"),
       ("tempo9 run --temp", "--temperature"), ("tempo9 run --hos", None), ("tempo9 help rend", "render"),
       ("tempo9 m.gguf --po", "--port"), ("tempo9 run m.g", "m.gguf"), ("tempo9 run --gguf m.g", "m.gguf"),
       ("tempo9 m.g", "m.gguf"), ("tempo9 --config m.g", "m.gguf"), ("tempo9 replay --temp", None))


def check(ok, what):
    if not ok:
        raise AssertionError(what)


class Fish:
    def __init__(self, program, folder):
        self.folder = folder
        self.file = os.path.join(folder, "tempo9.fish")
        with open(self.file, "wb") as f:
            f.write(subprocess.run([program, "help", "--completion", "fish"], check=True, capture_output=True).stdout)
        self.env = dict(os.environ, HOME=folder, LC_ALL="C.UTF-8", PATH=folder + os.pathsep + os.environ["PATH"])

    def offers(self, line):
        """{word: what is said of it}"""
        p = subprocess.run(["fish", "--no-config", "-c", 'source $argv[1]; complete -C "$argv[2]"', self.file, line],
                           cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=60)
        check(p.returncode == 0 and p.stderr == "", "fish: %s" % p.stderr)
        return dict((row + "\t").split("\t")[:2] for row in p.stdout.splitlines())

    def one(self, line):
        words = list(self.offers(line))
        check(len(words) <= 1, "%r: %s" % (line, words))
        return words[0] if words else None

    def end(self):
        pass


class Zsh:
    """A shell at a terminal of its own. A key is bound to tell the line, so that nobody waits for a time to pass."""
    SETUP = ("PS1=; unsetopt beep zle_bracketed_paste; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D;"
             "LISTMAX=1000; zstyle ':completion:*' list-separator '--';"
             "tell() { zle -I; print -r -- \"<line:$BUFFER>\" }; clear-line() { BUFFER=''; };"
             "zle -N tell; zle -N clear-line; bindkey '^Xt' tell; bindkey '^Xc' clear-line; print ready'>'\n")

    def __init__(self, program, folder):
        with open(os.path.join(folder, "_tempo9"), "wb") as f:
            f.write(subprocess.run([program, "help", "--completion", "zsh"], check=True, capture_output=True).stdout)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="vt100", HOME=folder, LC_ALL="C.UTF-8", PATH=folder + ":" + os.environ["PATH"])
            os.execvp("zsh", ["zsh", "-f", "-i"])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 500, 300, 0, 0))
        os.write(self.fd, self.SETUP.encode())
        self.until("ready>")

    def until(self, pattern):
        """The text up to something, without what steers the terminal."""
        text, raw, end = "", b"", time.monotonic() + 60
        while not re.search(pattern, text):
            check(time.monotonic() < end, "zsh: no %s in %r" % (pattern, text))
            if select.select([self.fd], [], [], 1)[0]:
                raw += os.read(self.fd, 65536)
            text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()=>78][0AB]?|\0|\r", b"", raw).decode("utf-8", "replace")
        return text

    def typed(self, line):
        """(line, everything that is shown) after a TAB behind it."""
        os.write(self.fd, b"\x18c" + line.encode() + b"\t\x18t")
        text = self.until("<line:.*>")
        return re.search("<line:(.*)>", text).group(1), text

    def offers(self, line):
        rows = re.findall(r"^(\S+)(?: +-\w)? +-- +(\S.*?) *$", self.typed(line)[1], re.M)
        return dict(rows)

    def one(self, line):
        after, _ = self.typed(line)
        return None if after == line else after.split()[-1]

    def end(self):
        os.kill(self.pid, signal.SIGHUP)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("--program", required=True)
    p.add_argument("--shell", required=True, choices=("zsh", "fish"))
    a = p.parse_args()
    if not shutil.which(a.shell):
        print("skipped: there is no %s here" % a.shell)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "m.gguf"), "wb").close()
        os.symlink(os.path.abspath(a.program), os.path.join(folder, "tempo9"))
        shell = (Zsh if a.shell == "zsh" else Fish)(a.program, folder)
        try:
            offered = shell.offers("tempo9 ")
            check(COMMANDS <= set(offered), "commands: %s" % sorted(COMMANDS - set(offered)))
            check("Time prompt reading" in offered["bench"], offered["bench"])
            offered = shell.offers("tempo9 run --")
            for name in ("--temperature", "--gguf", "--help", "--system"):
                check(offered.get(name), "tempo9 run --: no %s in %s" % (name, sorted(offered)))
            check("--port" not in offered, "another command's option")
            for line, word in ONE:
                got = shell.one(line)
                check(got == word, "%r gives %r, not %r" % (line, got, word))
                print("ok %s: %s<TAB> -> %s" % (a.shell, line, got or "nothing"))
        finally:
            shell.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
