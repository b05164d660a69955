#!/usr/bin/env python3
"""The measuring programs of bench/serve and bench/compare: that they count right, see what is wrong,
and still run.

  bench_test.py --program PATH --mkgguf PATH [--sanitized]

Their rules are tried on made-up figures, their client on a server that misbehaves, and each program
runs for a moment against the real server with a tiny model. Nothing here is a speed. Standard
library only.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SERVE = os.path.join(ROOT, "bench", "serve")
COMPARE = os.path.join(ROOT, "bench", "compare")
sys.path[:0] = [SERVE, COMPARE]

import agents  # noqa: E402
import client  # noqa: E402
import gap  # noqa: E402
import pairs  # noqa: E402
import soak  # noqa: E402
import stats  # noqa: E402
import table  # noqa: E402
import words  # noqa: E402

ARGS = None

PEER_BENCH = """import json, sys
o = dict(zip(sys.argv[1::2], sys.argv[2::2]))
rate = 2.0 if o.get("-fa") == "on" else 1.0
for batch in o.get("-npl", "").split(",") if "-npl" in o else []:
    print(json.dumps({"pp": int(o["-npp"]), "tg": int(o["-ntg"]), "pl": int(batch),
                      "speed_tg": rate, "file": o["-m"]}))
"-npl" in o or print(json.dumps([{"n_prompt": int(o["-p"]), "n_gen": int(o["-n"]), "n_depth": int(o["-d"]),
                   "samples_ts": [rate, rate * 1.01], "build_commit": "abc",
                   "model_filename": o["-m"]}]))
"""

PEER_PERPLEXITY = """import sys
if "BROKEN" in sys.argv[sys.argv.index("-m") + 1]:
    sys.exit("no such type")
if "--kl-divergence" in sys.argv:
    print("Mean    KLD:   0.012500 \u00b1   0.001000\\nSame top p: 97.500 \u00b1 0.1 %")
"""


class Words(unittest.TestCase):
    def test_same_on_every_machine(self):
        self.assertEqual(words.fingerprint(words.text("a", 300)), "6820f531020e3fc7")
        self.assertEqual(words.fingerprint(words.tools_text("a", 300)), "5e88636a4b203226")

    def test_length_and_labels(self):
        self.assertEqual(len(words.text("b", 123).split()), 123)
        self.assertEqual(words.text("b", 0), "")
        self.assertEqual(len({words.text("stream/%d/0" % i, 64)[:24] for i in range(64)}), 64)


class Figures(unittest.TestCase):
    def test_percentile(self):
        v = list(range(1, 1001))
        self.assertEqual([stats.percentile(v, p) for p in (50, 99, 99.9, 100)],
                         [500, 990, 999, 1000])
        self.assertEqual(stats.percentile([7], 99.9), 7)
        self.assertIsNone(stats.percentile([], 50))

    def test_median_and_spread(self):
        self.assertEqual(stats.median([3, 1, 2, 10]), 2.5)
        self.assertAlmostEqual(stats.spread_percent([9, 10, 11]), 20)


def run_of(value, other=0.0, spread=None):
    return pairs.Run({"x": value}, {}, other, spread)


def measured(values):
    """Pairs without a void one."""
    return [(run_of(a), run_of(b), None) for a, b in values]


class Pairs(unittest.TestCase):
    def test_ratio_is_how_much_better_ours_is(self):
        lower, higher = pairs.Metric("x", "ms"), pairs.Metric("x", "1/s", higher_is_better=True)
        five = measured([(100, 150)] * 5)
        self.assertAlmostEqual(pairs.summarise(lower, five, 5)["ratio"], 1.5)
        self.assertAlmostEqual(pairs.summarise(higher, five, 5)["ratio"], 100 / 150)

    def test_outlier_voids_its_pair(self):
        s = pairs.summarise(pairs.Metric("x", "ms"), measured(
            [(100, 200), (101, 202), (140, 201), (99, 199), (102, 200), (100, 260), (100, 201)]), 5)
        self.assertEqual((s["n_valid"], s["n_measured"], s["claim"]), (5, 7, True))
        self.assertEqual(s["ours_range"], [99, 102])

    def test_too_few_are_no_claim(self):
        s = pairs.summarise(pairs.Metric("x", "ms"), measured([(100, 200)] * 4), 5)
        self.assertFalse(s["claim"])
        self.assertIsNone(pairs.summarise(pairs.Metric("x", "ms"), [], 5)["ratio"])

    def test_tails_claim_by_ranges(self):
        tail = pairs.Metric("x", "ms", tail=True)
        apart = [(10, 500), (30, 900), (20, 700), (12, 480), (40, 600)]
        s = pairs.summarise(tail, measured(apart), 5)
        self.assertEqual((s["n_valid"], s["claim"]), (5, True))
        self.assertFalse(pairs.summarise(tail, measured(apart[1:] + [(490, 500)]), 5)["claim"])

    def test_busy_machine_voids_and_is_tried_again(self):
        others = iter([50.0, 0.0, 0.0, 0.0, 7.0, 0.0, 1.0, 2.0])
        done = pairs.measure(2, lambda: run_of(1, next(others)), lambda: run_of(1, next(others)),
                             say=lambda _: None)
        self.assertEqual([why is None for _, _, why in done], [False, True, False, True])
        done = pairs.measure(2, lambda: run_of(1, 90.0), lambda: run_of(1), say=lambda _: None)
        self.assertEqual(len(done), 4)

    def test_spread_of_repetitions_voids(self):
        self.assertIsNone(run_of(1, 0, 7.9).void_reason())
        self.assertIn("spread", run_of(1, 0, 8.1).void_reason())

    def test_no_paths_in_commands(self):
        self.assertEqual(pairs.without_paths(["/a/b/prog", "-m", "../x/m.gguf", "--port", "{port}"]),
                         "prog -m m.gguf --port {port}")


def turn(agent, n, prompt, computed):
    return {"agent": agent, "turn": n, "prompt_tokens": prompt, "computed_tokens": computed,
            "text": ""}


class Table(unittest.TestCase):
    def result(self, file, name, **summary):
        summary = dict({"ratio": 2.0, "claim": True, "ours_median": 20.0, "peer_median": 10.0},
                       **summary)
        return {"model": {"file": file}, "cells": [{"name": name, "summaries": [summary]}]}

    def test_rows_are_models_and_the_later_result_counts(self):
        rows = table.rows_of([self.result("a", "p512"), self.result("b", "p512", claim=False),
                              self.result("a", "n128", ratio=None),
                              self.result("b", "p512", ratio=1.5)])
        self.assertEqual(table.markdown(rows, ["p512", "n128"]).splitlines()[2:], [
            "| `a` | 2.00 (20.0 / 10.0) | no valid pair |", "| `b` | 1.50 (20.0 / 10.0) |  |"])

    def test_no_claim_is_marked(self):
        rows = table.rows_of([self.result("a", "p512", claim=False)])
        self.assertEqual(rows["a"]["p512"], "~2.00 (20.0 / 10.0)")


class AgentRules(unittest.TestCase):
    def problems(self, *turns):
        return agents.check_run({"system_tokens": 1000, "turns": list(turns),
                                 "keeps_states": False})

    def test_good(self):
        self.assertEqual(self.problems(turn(0, 0, 1050, 1050), turn(1, 0, 1050, 82),
                                       turn(0, 1, 1150, 132), turn(1, 1, 1150, 20)), [])

    def test_prefix_computed_twice(self):
        self.assertEqual(len(self.problems(turn(0, 0, 1050, 1050), turn(1, 0, 1050, 83),
                                           turn(2, 0, 1050, 50))), 2)

    def test_later_turn_over_a_page(self):
        self.assertEqual(len(self.problems(turn(0, 0, 1050, 1050), turn(0, 1, 1150, 133))), 1)

    def test_kept_states_lie_so_near(self):
        run = {"system_tokens": 40000, "turns": [turn(0, 0, 40050, 40050), turn(1, 0, 40050, 2082)],
               "keeps_states": True}
        self.assertEqual(agents.check_run(run), [])
        run["turns"][1] = turn(1, 0, 40050, 2083)
        self.assertEqual(len(agents.check_run(run)), 2)
        run["system_tokens"] = 1000
        run["turns"] = [turn(0, 0, 2050, 2050), turn(1, 0, 2050, 2106), turn(2, 0, 2050, 2106)]
        self.assertEqual(agents.check_run(run), [])
        run["turns"][1:] = [turn(1, 0, 2050, 2107), turn(2, 0, 2050, 2107)]
        self.assertEqual(len(agents.check_run(run)), 2)

    def test_nothing_computed_cannot_be(self):
        self.assertEqual(len(self.problems(turn(0, 0, 1050, 0))), 1)

    def test_texts(self):
        a, b = {(0, 0): "same", (0, 1): "abcd"}, {(0, 0): "same", (0, 1): "abXd"}
        self.assertEqual(agents.first_difference(a, b), (1, 2, "agent 0 turn 1, character 2"))


class GapRules(unittest.TestCase):
    def report(self, gaps, sent=10.0, first=20.0):
        a = types.SimpleNamespace(streams=1)
        g = gap.Gaps()
        g.gaps = gaps
        answer = client.Answer()
        answer.usage = {"prompt_tokens": 5, "completion_tokens": 1}
        return gap.report(a, g, (0.0, sent, first, 30.0), answer)

    def test_even_streams_hold(self):
        r = self.report([(t / 10, 100.0) for t in range(1, 300)])
        self.assertTrue(r["p3_holds"])
        self.assertAlmostEqual(r["p3_limit_ms"], 200)

    def test_stall_over_the_whole_prompt_is_seen(self):
        r = self.report([(t / 10, 100.0) for t in range(1, 100)] + [(20.5, 10600.0)])
        self.assertFalse(r["p3_holds"])
        self.assertAlmostEqual(r["during"]["worst_ms"], 10600.0)
        self.assertLessEqual(r["before"]["worst_ms"], 100.0)

    def test_slow_steps_raise_the_limit(self):
        r = self.report([(t / 4, 250.0) for t in range(1, 100)])
        self.assertAlmostEqual(r["p3_limit_ms"], 500)
        self.assertTrue(r["p3_holds"])


class SoakRules(unittest.TestCase):
    def test_flat(self):
        even = [(t, 200.0, 100.0 + min(t, 20)) for t in range(100)]
        self.assertTrue(soak.flatness(even)["flat"])

    def test_leak(self):
        self.assertFalse(soak.flatness([(t, 200.0, 100.0 + t) for t in range(100)])["flat"])
        self.assertIsNone(soak.flatness([(0, 1.0, 1.0)]))


async def with_server(reply, use):
    """Serves the bytes to whoever asks, cut into pieces of seven."""
    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for i in range(0, len(reply), 7):
            writer.write(reply[i:i + 7])
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        return await use(("127.0.0.1", server.sockets[0].getsockname()[1]))


class Client(unittest.TestCase):
    OPEN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    TEXT = b'data: {"choices":[{"delta":{"content":"h\xc3\xa9"},"finish_reason":null}]}\n\n'
    END = (b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
           b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,'
           b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n')
    DONE = b"data: [DONE]\n\n"

    @staticmethod
    def chunk(data):
        return b"%x\r\n%s\r\n" % (len(data), data)

    def ask(self, reply):
        return asyncio.run(with_server(reply, lambda e: client.chat(e, {"messages": []})))

    def test_whole(self):
        a = self.ask(self.OPEN + self.chunk(b": wait\n\n" + self.TEXT[:40]) +
                     self.chunk(self.TEXT[40:] + self.TEXT + self.END + self.DONE) + b"0\r\n\r\n")
        self.assertEqual((a.text, a.finish, a.prompt_tokens(), a.cached_tokens()),
                         ("h\xe9h\xe9", "stop", 9, 4))
        self.assertEqual(len(a.text_at), 2)

    def test_ends_early(self):
        for reply in (self.OPEN + self.chunk(self.TEXT), self.OPEN + b"ff\r\nda", b"",
                      self.OPEN + self.chunk(self.TEXT + self.END) + b"0\r\n\r\n",
                      self.OPEN + self.chunk(self.TEXT + self.DONE) + b"0\r\n\r\n",
                      self.OPEN + self.chunk(b'data: {"error":{"message":"no"}}\n\n') + b"0\r\n\r\n",
                      self.OPEN + self.chunk(b"data: {\n\n") + b"0\r\n\r\n"):
            with self.assertRaises(client.Broken, msg=repr(reply[-60:])):
                self.ask(reply)

    def test_refused(self):
        with self.assertRaises(client.Refused) as r:
            self.ask(b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbusy")
        self.assertEqual((r.exception.status, r.exception.retry_after_s, r.exception.text),
                         (503, 3.0, "busy"))

    def test_cancelled_while_closing(self):
        """Who waits for the end of a task would wait for ever if it went on."""
        class Closing:
            def close(self):
                pass

            async def wait_closed(self):
                await asyncio.Event().wait()

        async def leave():
            connection = client.Connection(("127.0.0.1", 0))
            connection.writer = Closing()
            task = asyncio.ensure_future(connection.__aexit__(None, None, None))
            await asyncio.sleep(0)
            task.cancel()
            await task

        with self.assertRaises(asyncio.CancelledError):
            asyncio.run(leave())


class Programs(unittest.TestCase):
    """Each program once, on a tiny model."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.tiny = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([ARGS.mkgguf, "--context", "8192", cls.tiny], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_program(self, path, *args, code=0, env=None):
        done = subprocess.run([sys.executable, path, "--program", ARGS.program, "--model", self.tiny,
                               "--threads", "2", *args], capture_output=True, text=True, timeout=400,
                              env=env)
        self.assertEqual(done.returncode, code, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout

    def test_agents(self):
        out = os.path.join(self.folder.name, "agents.json")
        self.run_program(os.path.join(SERVE, "agents.py"), "--turns", "3", "--runs", "2",
                         "--system-tokens", "700", "--answer-tokens", "8", "--json", out)
        with open(out, encoding="utf-8") as f:
            got = json.load(f)
        turns = got["runs"][0]["turns"]
        self.assertEqual(len(turns), 12)
        self.assertEqual(got["problems"], [])
        self.assertTrue(550 < got["runs"][0]["system_tokens"] < 850, got["runs"][0]["system_tokens"])
        self.assertTrue(all(t["ttft_ms"] is None or t["ttft_ms"] > 0 for t in turns))

    def test_gap(self):
        # The verdict is the machine's affair here, so it is not asked for.
        said = self.run_program(os.path.join(SERVE, "gap.py"), "--streams", "3", "--prompt-tokens",
                                "2000", "--before-s", "0.5", "--stream-tokens", "300", "--no-check")
        self.assertIn("P3: p99.9", said)

    def test_soak(self):
        seconds = "4" if ARGS.sanitized else "6"
        said = self.run_program(os.path.join(SERVE, "soak.py"), "--clients", "24", "--seconds",
                                seconds, "--prompt-tokens", "200", "--answer-tokens", "24", "--args",
                                "--kv-memory 8M", *(("--no-memory",) if ARGS.sanitized else ()))
        self.assertIn("0 wrong", said)

    def test_compare_serve(self):
        results = os.path.join(self.folder.name, "results")
        peer = "%s serve --gguf {model} --port {port} --threads {threads}" % ARGS.program
        self.run_program(os.path.join(COMPARE, "serve.py"), "--peer", peer, "--pairs", "1",
                         "--cells", "agents-300,gap", "--results", results,
                         "--peer-cell", "agents-300=--max-batch 4",
                         "--peer-cell", "agents-300=--max-batch 2",
                         "--agents-args", "--turns 2 --answer-tokens 8 --agents 2",
                         "--gap-args", "--streams 2 --prompt-tokens 600 --before-s 0.3")
        got, raw = self.only_result(results)
        cells = {c["name"]: c for c in got["cells"]}
        self.assertEqual(cells["agents-300"]["same_text"]["equal"], 4)
        self.assertTrue(all(c["same_work"] for c in got["cells"]))
        self.assertIn("--max-batch", cells["agents-300"]["commands"]["peer"])
        self.assertNotIn(self.folder.name, raw)
        self.assertNotIn(os.path.dirname(ARGS.program), raw)

    def test_compare_bench(self):
        results = os.path.join(self.folder.name, "results-bench")
        peer = self.write_program("peer-bench", PEER_BENCH)
        said = self.run_program(os.path.join(COMPARE, "bench.py"), "--peer", peer, "--peer-flags",
                                "-fa off", "--peer-flags", "-fa on", "--pairs", "1", "--cells",
                                "p64,n8,n8x3@16", "--peer-batched", peer, "--repeat", "2",
                                "--results", results)
        self.assertIn("tried -fa on", said)
        got, raw = self.only_result(results)
        self.assertEqual([c["name"] for c in got["cells"]], ["p64", "n8", "n8x3@16"])
        self.assertTrue(all(c["commands"]["peer"].endswith("-fa on") for c in got["cells"]))
        self.assertIn("-c 72 -npp 16 -ntg 8 -npl 3,3", got["cells"][2]["commands"]["peer"])
        self.assertEqual(got["cells"][2]["pairs"][0]["ours"]["record"]["batch"], 3)
        self.assertEqual(got["peer"]["version"], "abc")
        self.assertNotIn(self.folder.name, raw)

    def test_compare_package(self):
        results, python = self.folder.name + "/results-package", self.folder.name + "/python"
        info = os.path.join(python, "llama_cpp_python-1.2.dist-info")
        os.makedirs(info)
        with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as f:
            f.write("Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 1.2\n")
        shutil.copy(os.path.join(ROOT, "tests", "run", "llama_cpp_double.py"),
                    os.path.join(python, "llama_cpp.py"))
        calls = os.path.join(self.folder.name, "calls")
        env = dict(os.environ, PYTHONPATH=python, LLAMA_CPP_DOUBLE=calls)
        said = self.run_program(os.path.join(COMPARE, "bench.py"), "--peer-python", sys.executable,
                                "--peer-flags", "-fa on -b 40 -ub 40", "--pairs", "1", "--cells",
                                "p64,n4,n4x2@48", "--repeat", "1", "--results", results, env=env)
        self.assertIn("llama_cpp_package.py", said)
        got, raw = self.only_result(results)
        self.assertEqual(got["peer"]["version"], "llama-cpp-python version 1.2")
        self.assertNotIn(self.folder.name, raw)
        peers = [c["pairs"][0]["peer"]["record"] for c in got["cells"]]
        self.assertEqual([r["n_sequences"] for r in peers], [1, 1, 2])
        # Of each pair two runs, the first not counted; pairs are tried again on a busy machine.
        once = "40/0 24/1 " * 2 * self.n_pairs(got, 0) + "1/1 " * 8 * self.n_pairs(got, 1)
        both = ("40/0 8/1 " * 2 + "2/2 " * 8) * self.n_pairs(got, 2)
        with open(calls, encoding="utf-8") as f:
            self.assertEqual(f.read(), once + both)

    def test_type_table(self):
        models, out = os.path.join(self.folder.name, "types"), self.folder.name + "/types.json"
        os.mkdir(models)
        for name in ("F32", "Q8_0", "BROKEN"):
            subprocess.run([ARGS.mkgguf, "--quant", "F32" if name == "F32" else "Q8_0",
                            os.path.join(models, name + ".gguf")], check=True)
        text = os.path.join(self.folder.name, "text")
        with open(text, "w", encoding="utf-8") as f:
            f.write(words.text("a", 400))
        peers = []
        for name, source in (("bench", PEER_BENCH), ("perplexity", PEER_PERPLEXITY)):
            peers += ["--peer-" + name, self.write_program("types-" + name, source)]
        done = subprocess.run(
            [sys.executable, os.path.join(COMPARE, "type_table.py"), "--program", ARGS.program,
             "--models", models, "--text", text, "--context", "64", "--windows", "2", "--cells",
             "n2", "--repeat", "1", "--threads", "2", "--json", out, *peers],
            capture_output=True, text=True, timeout=400, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 0.0125 ± 0.0010, 97.5% |", done.stdout)
        self.assertRegex(done.stdout, "- BROKEN, peer KL: .*no such type")
        with open(out, encoding="utf-8") as f:
            rows = {r["type"]: r for r in json.load(f)["rows"]}
        self.assertEqual(set(rows), {"F32", "Q8_0", "BROKEN"})
        self.assertLess(rows["F32"]["KL"]["mean"], rows["Q8_0"]["KL"]["mean"])
        self.assertGreater(rows["Q8_0"]["n2"]["tokens_per_s"], 0)
        self.assertGreater(rows["F32"]["file_bytes"], rows["Q8_0"]["file_bytes"])
        self.assertIsNone(rows["BROKEN"]["peer KL"])

    def write_program(self, name, source):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!%s\n%s" % (sys.executable, source))
        os.chmod(path, 0o700)
        return path

    @staticmethod
    def n_pairs(result, cell):
        return len(result["cells"][cell]["pairs"])

    def only_result(self, folder):
        found = [os.path.join(d, f) for d, _, files in os.walk(folder) for f in files]
        self.assertEqual(len(found), 1, found)
        with open(found[0], encoding="utf-8") as f:
            raw = f.read()
        got = json.loads(raw)
        self.assertIn(got["ours"]["build"]["id"].removesuffix("-dirty"), os.path.basename(found[0]))
        return got, raw


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--program", required=True, type=os.path.abspath)
    parser.add_argument("--mkgguf", required=True, type=os.path.abspath)
    parser.add_argument("--sanitized", action="store_true", help="slow build: memory is not judged")
    parser.add_argument("rest", nargs="*", help="names of tests")
    ARGS = parser.parse_args()
    unittest.main(argv=[sys.argv[0], *ARGS.rest], verbosity=2)
