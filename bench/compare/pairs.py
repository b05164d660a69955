"""Measuring two programs fairly: A B A B, pairs that are void, ratios, and what is kept.

The rules, in one place:
  - runs alternate, ours first; a pair is one run of each;
  - a pair is void when processes other than the two and this one used more than 6% of the CPUs in
    either run, or when a run says that its own repetitions spread by more than 8%;
  - for figures of the middle (rates, medians) pairs are void, those farthest from a side's median
    first, until each side's (largest - smallest) / median is at most 8%;
  - figures of the tail (a worst gap) spread by nature: all pairs count, and there is a difference
    only where the two ranges do not overlap;
  - fewer valid pairs than asked for: the ratio is printed, and called no claim.
Ratios say how many times better ours is: above 1 is ahead, whichever way the figure counts.
"""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
import host  # noqa: E402
import stats  # noqa: E402

OTHER_CPU_PERCENT_MAX = 6.0
SPREAD_PERCENT_MAX = 8.0


class Metric:
    def __init__(self, name, unit, higher_is_better=False, tail=False):
        self.name, self.unit = name, unit
        self.higher_is_better, self.tail = higher_is_better, tail

    def ratio(self, ours, peers):
        """How many times better ours is; None where it cannot be said."""
        if not ours or not peers:
            return None
        return ours / peers if self.higher_is_better else peers / ours


class Run:
    """One run of one side: figures by metric name, and all that is kept of it."""

    def __init__(self, figures, record, other_cpu_percent, spread_percent=None):
        self.figures, self.record = figures, record
        self.other_cpu_percent, self.spread_percent = other_cpu_percent, spread_percent

    def void_reason(self):
        if self.other_cpu_percent is not None and self.other_cpu_percent > OTHER_CPU_PERCENT_MAX:
            return "others used %.0f%% of the CPUs" % self.other_cpu_percent
        if self.spread_percent is not None and self.spread_percent > SPREAD_PERCENT_MAX:
            return "repetitions spread by %.0f%%" % self.spread_percent
        return None

    def kept(self):
        return {"figures": self.figures, "other_cpu_percent": self.other_cpu_percent,
                "spread_percent": self.spread_percent, "record": self.record}


def measure(n_pairs, ours, peer, say=print):
    """`ours()` and `peer()` give a Run each. Until n_pairs are valid, at most twice as many tries.
    A list of (ours, peer, why void or None)."""
    pairs = []
    while sum(p[2] is None for p in pairs) < n_pairs and len(pairs) < 2 * n_pairs:
        a = ours()
        b = peer()
        why = a.void_reason() or b.void_reason()
        pairs.append((a, b, why))
        say("  pair %d%s" % (len(pairs), ": void, " + why if why else ""))
    return pairs


def drop_outliers(values):
    """Pairs of (ours, peer) without those that spread a side beyond the limit."""
    values = list(values)
    while len(values) > 1:
        sides = list(zip(*values))
        if all((stats.spread_percent(side) or 0) <= SPREAD_PERCENT_MAX for side in sides):
            break
        middle = [stats.median(side) or 1 for side in sides]
        values.remove(max(values, key=lambda v: max(abs(x / m - 1) for x, m in zip(v, middle))))
    return values


def summarise(metric, pairs, n_wanted):
    """One metric over the pairs of a cell, as a dictionary."""
    values = [(a.figures.get(metric.name), b.figures.get(metric.name)) for a, b, why in pairs
              if why is None]
    values = [v for v in values if None not in v]
    out = {"metric": metric.name, "unit": metric.unit, "higher_is_better": metric.higher_is_better,
           "tail": metric.tail, "n_measured": len(pairs)}
    kept = values if metric.tail else drop_outliers(values)
    out["n_valid"] = len(kept)
    if not kept:  # shown, so that one sees that it ran; they say nothing
        void = [[x.figures.get(metric.name) for x in side] for side in list(zip(*pairs))[:2]]
        void = [stats.median([v for v in side if v is not None]) for side in void] or [None, None]
        return dict(out, claim=False, ratio=None, void_ours=void[0], void_peer=void[1])
    ours, peers = zip(*kept)
    ratios = [r for r in (metric.ratio(*v) for v in kept) if r is not None]
    out.update(ours_median=stats.median(ours), peer_median=stats.median(peers),
               ours_range=[min(ours), max(ours)], peer_range=[min(peers), max(peers)],
               ours_spread_percent=stats.spread_percent(ours),
               peer_spread_percent=stats.spread_percent(peers), ratio=stats.median(ratios),
               ratio_range=[min(ratios), max(ratios)] if ratios else None)
    apart = max(ours) < min(peers) or max(peers) < min(ours)
    out["claim"] = len(kept) >= n_wanted and (apart or not metric.tail)
    return out


def show_summary(s):
    if s["ratio"] is None:
        print("  %-26s no valid pair of %d (void: ours %s, peer %s)" % (
            s["metric"], s["n_measured"], stats.show(s["void_ours"]), stats.show(s["void_peer"])))
        return
    print("  %-26s ours %10.1f (%.1f..%.1f)  peer %10.1f (%.1f..%.1f) %-5s  ratio %.2f "
          "(%.2f..%.2f), %d of %d pairs%s" % (
              s["metric"], s["ours_median"], *s["ours_range"], s["peer_median"], *s["peer_range"],
              s["unit"], s["ratio"], *s["ratio_range"], s["n_valid"], s["n_measured"],
              "" if s["claim"] else ": NO CLAIM"))


# ---- who was measured ----

def without_paths(words):
    """A command line as it may be published."""
    short = [os.path.basename(w) if "/" in w else w for w in words]
    return " ".join(shlex.quote(w) if not w or any(c.isspace() for c in w) else w for w in short)


def file_sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def our_identity(program):
    done = subprocess.run([program, "--version", "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)


def peer_version(words):
    """The first line that has a digit of what `--version` says, or "unknown"."""
    try:
        done = subprocess.run([*words, "--version"], stdin=subprocess.DEVNULL, timeout=30,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if "version" in line.lower() and any(c.isdigit() for c in line):
            return line.strip()[:200]
    return "unknown"


def head(a, identity, peer_words):
    """The part of a result that says what was measured where; the peer's program is the last word."""
    return {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "ours": identity,
            "peer": {"program": os.path.basename(peer_words[-1]),
                     "version": peer_version(peer_words)},
            "model": {"file": os.path.basename(a.model), "sha256": file_sha256(a.model),
                      "file_bytes": os.path.getsize(a.model)},
            "threads": a.threads, "machine": host.machine(),
            "rules": {"other_cpu_percent_max": OTHER_CPU_PERCENT_MAX,
                      "spread_percent_max": SPREAD_PERCENT_MAX, "pairs": a.pairs}}


def show_head(h):
    print("%(cpu)s, %(cpus)s CPUs" % h["machine"])
    print("ours: tempo9 %s, build %s%s" % (h["ours"]["version"], h["ours"]["build"]["id"],
                                           ", DIRTY" if h["ours"]["build"]["dirty"] else ""))
    print("peer: %(program)s, %(version)s" % h["peer"])
    print("model: %s, %d threads" % (h["model"]["file"], h["threads"]))


def write(folder, result):
    """Into FOLDER/<machine>/<date>-<commit>.json, or with a number where that is taken."""
    build = result["ours"]["build"]
    where = os.path.join(folder, result["machine"]["name"])
    os.makedirs(where, exist_ok=True)
    stem = "%s-%s%s" % (result["date"][:10], build["id"].removesuffix("-dirty"),
                        "-dirty" if build["dirty"] else "")
    n = 1
    while True:
        path = os.path.join(where, stem + ("-%d" % n if n > 1 else "") + ".json")
        try:
            with open(path, "x", encoding="utf-8") as f:
                json.dump(result, f, indent=1)
                f.write("\n")
            return path
        except FileExistsError:
            n += 1


def end_on_sigterm():
    """An end from outside must end the servers, too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def add_options(p):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    p.add_argument("--program", default=os.path.join(root, "build", "tempo9"), help="tempo9")
    p.add_argument("--model", metavar="GGUF", required=True, help="the file both load")
    p.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    p.add_argument("--pairs", type=int, default=5, help="valid pairs of each cell (%(default)s)")
    p.add_argument("--results", metavar="FOLDER", default=os.path.join(root, "bench", "results"),
                   help="where the raw results go; - for nowhere")


def finish(a, result):
    for cell in result["cells"]:
        cell["same_work"] = not cell["work_problems"]
    if a.results != "-":
        print("raw results: " + os.path.relpath(write(a.results, result)))
    return 0 if all(c["same_work"] for c in result["cells"]) else 1
