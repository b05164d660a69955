"""The machine and the server process: starting, readiness, memory, who used the CPUs.

`Server` runs one command line in which {model}, {port} and {threads} stand for what the program
chooses. Reads /proc, so memory and CPU figures need Linux; elsewhere they are None.
"""

import asyncio
import os
import platform
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time

import client

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ServerFailed(Exception):
    pass


class Server:
    """`with Server(command, model) as s`: s.endpoint answers. Ends with the block."""

    def __init__(self, command, model, threads, wait_s=300):
        self.port = free_port()
        self.words = [w.format(model=model, port=self.port, threads=threads)
                      for w in shlex.split(command)]
        self.wait_s = wait_s
        self.endpoint = ("127.0.0.1", self.port)
        self.proc = self.log = None
        self.load_ms = 0.0

    def __enter__(self):
        begin = time.monotonic()
        self.log = tempfile.TemporaryFile()
        try:
            self.proc = subprocess.Popen(self.words, stdin=subprocess.DEVNULL,
                                         stdout=self.log, stderr=self.log)
        except OSError as e:
            raise ServerFailed("%s: %s" % (self.words[0], e)) from e
        try:
            asyncio.run(self.wait_ready())
        except BaseException:
            self.stop()
            raise
        self.load_ms = (time.monotonic() - begin) * 1e3
        return self

    def __exit__(self, *exc):
        self.stop()

    @property
    def pid(self):
        return self.proc.pid

    def output(self):
        return os.pread(self.log.fileno(), 1 << 22, 0).decode("utf-8", "replace")

    async def wait_ready(self):
        until = time.monotonic() + self.wait_s
        while True:
            if self.proc.poll() is not None:
                raise ServerFailed("%s ended with %d:\n%s" % (
                    os.path.basename(self.words[0]), self.proc.returncode, self.output()[-2000:]))
            try:
                for path in ("/health", "/v1/models"):
                    status, _ = await client.get(self.endpoint, path)
                    if status == 200:
                        return
                    if status != 404:
                        break
            except (OSError, client.Broken):
                pass
            if time.monotonic() > until:
                raise ServerFailed("not ready after %d s:\n%s" % (
                    self.wait_s, self.output()[-2000:]))
            await asyncio.sleep(0.05)

    def stop(self, wait_s=30):
        """SIGTERM, SIGKILL when that did not end it. The exit code."""
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(wait_s)
            except subprocess.TimeoutExpired:
                self.proc.kill()
        return self.proc.wait()


# ---- /proc ----

def memory_kib(pid):
    """{"VmRSS": .., "RssAnon": ..} or None."""
    try:
        with open("/proc/%d/status" % pid) as f:
            rows = dict(line.split(":", 1) for line in f if ":" in line)
        return {k: int(rows[k].split()[0]) for k in ("VmRSS", "RssAnon")}
    except (OSError, KeyError):
        return None


def process_ticks(pid):
    """CPU ticks of a process and of its children that ended."""
    with open("/proc/%s/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return sum(int(x) for x in fields[11:15])


def own_cpus():
    """Numbers of the CPUs that this program, and so what it starts, may use."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:
        return set(range(os.cpu_count() or 1))


def busy_ticks(cpus):
    """Ticks in which these CPUs did something, or were taken from this machine by its host."""
    busy = 0
    with open("/proc/stat") as f:
        for row in f:
            m = re.match(r"cpu(\d+) (.*)", row)
            if m and int(m.group(1)) in cpus:
                user, nice, system, _idle, _wait, irq, softirq, steal = (
                    int(x) for x in m.group(2).split()[:8])
                busy += user + nice + system + irq + softirq + steal
    return busy


class OtherLoad:
    """Share of this program's CPUs that others than it and the given processes used, in percent.
    Under `taskset` these are the chosen ones: several measurements may run beside each other."""

    def __init__(self, *pids):
        self.pids = pids + ("self",)
        self.cpus = own_cpus()
        self.at = self.begin = None
        try:
            self.begin = self.read()
            self.at = time.monotonic()
        except (OSError, ValueError, IndexError):
            pass

    def read(self):
        return busy_ticks(self.cpus) - sum(process_ticks(p) for p in self.pids)

    def percent(self):
        if self.begin is None:
            return None
        span = (time.monotonic() - self.at) * TICKS_PER_S * len(self.cpus)
        return max(0.0, 100.0 * (self.read() - self.begin) / max(span, 1.0))


def machine():
    """What results carry, and the name of their folder. No host name."""
    cpu = platform.processor() or "unknown"
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    flags = []
    try:
        with open("/proc/cpuinfo") as f:
            rows = f.read()
        cpu = re.search(r"model name\s*: (.*)", rows).group(1)
        have = set(re.search(r"flags\s*: (.*)", rows).group(1).split())
        flags = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")
                 if f in have]
    except (OSError, AttributeError):
        pass
    isa = flags[-1] if flags else platform.machine()
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\([rc]+\)|\(tm\)", "", cpu.lower())).strip("-")
    return {"cpu": cpu, "cpus": os.cpu_count(), "isa": flags, "memory_bytes": memory_bytes,
            "system": platform.system(), "release": platform.release(),
            "name": "%s-%dcpu-%s" % (slug, os.cpu_count() or 1, isa.replace("_", "-"))}
