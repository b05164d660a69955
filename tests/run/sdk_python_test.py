#!/usr/bin/env python3
"""The Python package over the built library: layouts against the header, every call, the streaming example.

    sdk_python_test.py --library libtempo9.so --mkgguf PROGRAM --source ROOT [--cc COMPILER]
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ARGS = None
tempo9 = None


class Layout(unittest.TestCase):
    def test_structs_are_the_headers(self):
        """Offsets and sizes of every struct, as the C compiler sees them."""
        from tempo9 import _native
        import ctypes
        if not shutil.which(ARGS.cc):
            self.skipTest("no C compiler")
        lines, want = [], []
        for struct in _native.STRUCTS:
            name = struct._c_name_
            lines.append('printf("%s %%zu\\n", sizeof(struct %s));' % (name, name))
            want.append("%s %d" % (name, ctypes.sizeof(struct)))
            for field, _ in struct._fields_:
                lines.append('printf("%s.%s %%zu\\n", offsetof(struct %s, %s));' % (name, field, name, field))
                want.append("%s.%s %d" % (name, field, getattr(struct, field).offset))
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "layout.c")
            with open(source, "w") as f:
                f.write("#include <stddef.h>\n#include <stdio.h>\n#include <tempo9.h>\nint main(void)\n{\n%s\n}\n"
                        % "\n".join(lines))
            program = os.path.join(folder, "layout")
            subprocess.run([ARGS.cc, "-I", os.path.join(ARGS.source, "include"), source, "-o", program], check=True)
            got = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
        self.assertEqual(got, want)

    def test_functions_are_the_headers(self):
        from tempo9 import _native
        with open(os.path.join(ARGS.source, "include", "tempo9.h")) as f:
            header = f.read()
        for name in _native._FUNCTIONS:
            self.assertIn(" " + name + "(", header.replace("*" + name, " " + name))


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([ARGS.mkgguf, cls.path], check=True)
        cls.model = tempo9.Model(cls.path, threads=1)
        cls.engine = tempo9.Engine(cls.model, kv_bytes=32 << 20)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()
        cls.model.close()
        cls.folder.cleanup()

    def test_model(self):
        info = self.model.info
        self.assertEqual((info["arch"], info["n_vocab"], info["file_name"]), ("llama", 512, "tiny.gguf"))
        self.assertIn("general.architecture", self.model.keys())
        self.assertEqual(self.model.metadata("general.architecture"), "llama")
        self.assertEqual(len(self.model.metadata("tokenizer.ggml.tokens")), 512)
        self.assertEqual(tempo9.version(), "0.1.0")
        self.assertTrue(tempo9.build_id())

    def test_text(self):
        text = "h\u00e9llo <|im_start|>"
        plain, special = self.model.tokenize(text), self.model.tokenize(text, special=True)
        self.assertEqual(self.model.detokenize(plain), text)
        self.assertEqual(self.model.detokenize(special, special=True), text)
        self.assertLess(len(special), len(plain))
        self.assertEqual(self.model.tokenize(""), [])

    def test_chat(self):
        messages = [{"role": "user", "content": "<|im_end|> hi"}]
        rendered = self.model.chat_render(messages)
        self.assertIn("<|im_end|> hi", rendered)
        tokens = self.model.chat_tokens(messages)
        self.assertEqual(self.model.detokenize(tokens, special=True), rendered)
        same, marks = self.model.chat_tokens_marked(messages)
        self.assertEqual(same, tokens)
        self.assertTrue(marks and all(0 < n <= len(tokens) for n, _ in marks))
        with self.assertRaises(tempo9.Error):
            self.engine.submit(tokens, marks=[(len(tokens) + 1, 0)])
        parts = list(self.engine.chat(messages, max_tokens=20, temperature=0, ignore_eos=True))
        again = "".join(self.engine.chat(messages, max_tokens=20, temperature=0, ignore_eos=True))
        self.assertEqual("".join(parts), again)
        self.assertGreater(self.engine.stats["cached_tokens"], 0)

    def test_events(self):
        tokens = self.model.tokenize("the sky")
        with self.engine.submit(tokens, max_tokens=8, temperature=0, ignore_eos=True, n_logprobs=3) as request:
            events = list(request)
        self.assertEqual(events[-1].kind, "done")
        self.assertEqual(events[-1].finish, "length")
        out = [t for e in events for t in e.tokens]
        rows = [r for e in events if e.logprobs for r in e.logprobs]
        self.assertEqual(len(out), 8)
        self.assertEqual([r[0][0] for r in rows], out)
        self.assertTrue(all(len(r) == 3 and r[1][1] >= r[2][1] for r in rows))
        text = "".join(e.text for e in events)
        self.assertEqual(text, self.model.detokenize(out))
        with self.engine.submit(tokens, prompt_only=True, prompt_logprobs=True, n_logprobs=2) as request:
            events = list(request)
            rows = request.prompt_logprobs()
        self.assertEqual((events[-1].kind, events[-1].finish, events[-1].n_prompt), ("done", "length", len(tokens)))
        self.assertEqual([e for e in events if e.tokens or e.text], [])
        self.assertIsNone(rows[0])
        self.assertEqual([row[0][0] for row in rows[1:]], tokens[1:])
        self.assertTrue(all(len(row) == 2 and row[0][1] <= 0 for row in rows[1:]))
        self.refused("prompt_only", lambda: self.engine.submit(tokens, prompt_only=True, max_tokens=2))
        with self.engine.submit(tokens, max_tokens=1) as request:
            list(request)
            self.assertIsNone(request.prompt_logprobs())
        biased = self.engine.submit(tokens, max_tokens=4, logit_bias={65: 100}, ignore_eos=True)
        self.assertEqual([t for e in biased for t in e.tokens], [65] * 4)
        biased.close()

    def test_stop_and_cancel(self):
        whole = "".join(self.engine.generate("abc", max_tokens=30, temperature=0, ignore_eos=True))
        stop = whole[4:6]
        cut = "".join(self.engine.generate("abc", max_tokens=30, temperature=0, ignore_eos=True, stop=stop))
        self.assertEqual(cut, whole[:whole.index(stop)])
        before = self.engine.stats["requests_cancelled"]
        stream = self.engine.generate("abc", ignore_eos=True)
        next(stream)
        stream.close()
        self.assertEqual(self.engine.stats["requests_cancelled"], before + 1)

    def test_errors(self):
        with self.assertRaises(tempo9.Error) as caught:
            tempo9.Model(os.path.join(self.folder.name, "missing.gguf"))
        self.assertEqual(caught.exception.status, "NOT_FOUND")
        with self.assertRaises(tempo9.Error) as caught:
            self.engine.submit([1], temperature=-1)
        self.assertEqual(caught.exception.status, "INVALID")
        self.assertIn("temperature", str(caught.exception))
        with self.assertRaises(tempo9.Error) as caught:
            self.model.chat_tokens([{"role": "king", "content": "x"}])
        self.assertIn("messages[0].role", str(caught.exception))
        with self.assertRaises(TypeError):
            self.engine.submit([1], temprature=1)
        with self.assertRaises(tempo9.Error) as caught:
            tempo9.Model(self.path, progress=lambda done, total: False)
        self.assertEqual(caught.exception.status, "CANCELLED")
        with self.assertRaises(ZeroDivisionError):
            tempo9.Model(self.path, progress=lambda done, total: 1 / 0)
        closed = tempo9.Model(self.path, vocab_only=True)
        closed.close()
        with self.assertRaises(ValueError):
            closed.tokenize("x")

    def refused(self, name, call):
        with self.assertRaises(tempo9.Error) as caught:
            call()
        self.assertEqual(caught.exception.status, "INVALID")
        self.assertIn(name, str(caught.exception))

    def test_numbers_that_do_not_fit(self):
        """Nothing is cut to its lowest bits, and no text at a NUL byte."""
        submit, wide = self.engine.submit, 2 ** 32 + 5
        for name in ("max_tokens", "min_tokens", "top_k", "n_logprobs", "priority", "choice", "seed"):
            value = 2 ** 64 if name == "seed" else wide
            self.refused(name, lambda n=name, v=value: submit([5], **{n: v}))
        self.refused("seed", lambda: submit([5], seed=-1))
        self.refused("choice", lambda: submit([5], choice=-1))
        self.refused("tokens", lambda: submit([wide]))
        self.refused("stop_ids", lambda: submit([5], stop_ids=[wide]))
        self.refused("logit_bias", lambda: submit([5], logit_bias={wide: 1}))
        self.refused("ids", lambda: self.model.detokenize([wide]))
        self.refused("max_tokens", lambda: self.model.chat_tokens([], max_tokens=wide))
        self.refused("stop_ids[0]", lambda: submit([5], stop_ids=[512]))
        self.refused("min_tokens", lambda: submit([5], max_tokens=2, min_tokens=3))
        self.refused("threads", lambda: tempo9.Model(self.path, threads=2 ** 32))
        self.refused("step_tokens", lambda: tempo9.Model(self.path, step_tokens=2 ** 32))
        self.refused("path", lambda: tempo9.Model(self.path + "\0.gguf"))
        self.refused("backend", lambda: tempo9.Model(self.path, backend="cpu\0x"))
        self.refused("stop", lambda: submit([5], stop="a\0b"))
        self.refused("key", lambda: self.model.metadata("general.architecture\0x"))
        with tempo9.Model(self.path, threads=1) as model:
            self.refused("kv_bytes", lambda: tempo9.Engine(model, kv_bytes=-1))
            self.refused("queue", lambda: tempo9.Engine(model, queue=wide))
            self.refused("max_length", lambda: tempo9.Engine(model, kv_bytes=8 << 20, max_length=10 ** 6))
        self.assertEqual(self.model.detokenize(self.model.tokenize("a\0b")), "a\0b")
        with submit([5], seed=2 ** 64 - 1, max_tokens=1) as request:
            self.assertEqual(list(request)[-1].kind, "done")

    def closed_while(self, what, close):
        """Closes in this thread while four others call `what` for ever; they end with ValueError or Error."""
        ends = []

        def call():
            try:
                while True:
                    what()
            except (ValueError, tempo9.Error) as error:
                ends.append(error)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.02)
        close()
        for t in threads:
            t.join(20)
        self.assertEqual(len(ends), 4, "a call did not end")

    def test_close_during_calls(self):
        for _ in range(5):
            with tempo9.Model(self.path, threads=1) as model:
                engine = tempo9.Engine(model, kv_bytes=8 << 20)
                self.closed_while(lambda: engine.stats, engine.close)
                engine = tempo9.Engine(model, kv_bytes=8 << 20)  # the model has none any more
                self.closed_while(lambda: list(engine.submit([5, 6], max_tokens=3)), engine.close)
                self.closed_while(lambda: model.tokenize("hello world " * 200), model.close)

    def test_close_during_next(self):
        """A reader that waits hears of it, and close() does not wait for the answer's end."""
        with tempo9.Model(self.path, threads=1) as model, tempo9.Engine(model, kv_bytes=8 << 20, max_batch=1) as engine:
            for close_engine in (False, True):
                first = engine.submit([5], max_tokens=0, ignore_eos=True)
                waiting = engine.submit([6], max_tokens=0, ignore_eos=True)
                ends = []

                def read():
                    try:
                        ends.append([e.finish for e in waiting][-1:])
                    except ValueError as error:
                        ends.append(error)

                thread = threading.Thread(target=read)
                thread.start()
                time.sleep(0.05)
                (engine if close_engine else waiting).close()
                thread.join(20)
                self.assertEqual(len(ends), 1, "the reader still waits")
                if close_engine:
                    self.assertEqual(ends, [["cancelled"]])
                first.close()
                waiting.close()
            self.assertRaises(ValueError, lambda: engine.stats)

    def test_one_reader(self):
        with tempo9.Model(self.path, threads=1) as model, tempo9.Engine(model, kv_bytes=8 << 20, max_batch=1) as engine:
            with engine.submit([5], max_tokens=0, ignore_eos=True), engine.submit([6]) as waiting:
                thread = threading.Thread(target=lambda: next(waiting))
                thread.start()
                time.sleep(0.05)
                with self.assertRaises(ValueError) as caught:
                    next(waiting)
                self.assertIn("another thread", str(caught.exception))
            thread.join(20)

    def test_close_within_a_call(self):
        """Of its own thread, as a signal handler may: freed when the call returns."""
        with tempo9.Model(self.path, threads=1) as model:
            engine = tempo9.Engine(model, kv_bytes=8 << 20)
            engine._call(lambda p: engine.close())
            self.assertTrue(engine._gone)
            self.assertRaises(ValueError, lambda: engine.stats)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_fork(self):
        """The child's calls raise, it ends, and the parent's objects go on."""
        script = """if True:
            import os, sys, tempo9
            model = tempo9.Model(sys.argv[1], threads=2)
            engine = tempo9.Engine(model, kv_bytes=8 << 20)
            stream = engine.generate("abc", ignore_eos=True)
            next(stream)
            request = engine.submit([5], ignore_eos=True)
            next(request)
            pid = os.fork()
            if pid == 0:
                for call in (lambda: engine.stats, lambda: next(request), request.cancel, lambda: next(stream),
                             lambda: model.tokenize("x"), lambda: engine.submit([5]), lambda: tempo9.Engine(model)):
                    try:
                        call()
                        os._exit(3)
                    except tempo9.Error as error:
                        if error.status != "INVALID" or "fork" not in str(error):
                            os._exit(4)
                request.close()
                with tempo9.Model(sys.argv[1], threads=1) as own, tempo9.Engine(own, kv_bytes=8 << 20) as another:
                    "".join(another.generate("abc", max_tokens=3))
                sys.exit(0)
            _, status = os.waitpid(pid, 0)
            print(status, next(e.kind for e in request if e.tokens), engine.stats["running"])
        """
        env = dict(os.environ, PYTHONPATH=os.path.join(ARGS.source, "python"), PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run([sys.executable, "-c", script, self.path], env=env, capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("0 tokens 2\n", "", 0))

    def test_threads(self):
        want = "".join(self.engine.generate("one", max_tokens=20, temperature=0, ignore_eos=True))
        got = [None] * 4

        def ask(i):
            got[i] = "".join(self.engine.generate("one", max_tokens=20, temperature=0, ignore_eos=True))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(got, [want] * 4)

    def test_log(self):
        lines = []
        tempo9.set_log(lambda level, module, message: lines.append((level, module, message)))
        with tempo9.Model(self.path, threads=1) as model, tempo9.Engine(model, kv_bytes=8 << 20):
            pass
        tempo9.set_log(None)
        self.assertTrue(any(level == "info" for level, _, _ in lines))

    def test_example(self):
        env = dict(os.environ, PYTHONPATH=os.path.join(ARGS.source, "python"), TEMPO9_LIBRARY=ARGS.library)
        done = subprocess.run([sys.executable, os.path.join(ARGS.source, "examples", "python", "stream.py"), self.path],
                              env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        with tempo9.Engine(tempo9.Model(self.path), kv_bytes=32 << 20) as engine:
            want = "".join(engine.chat([{"role": "user", "content": "Name three colours."}], max_tokens=60,
                                       temperature=0))
        self.assertEqual(done.stdout, want + "\n")
        self.assertIn("tokens", done.stderr)


def main():
    global ARGS, tempo9
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--mkgguf", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--cc", default="cc")
    ARGS, rest = parser.parse_known_args()
    os.environ["TEMPO9_LIBRARY"] = ARGS.library
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(ARGS.source, "python"))
    import tempo9 as package
    tempo9 = package
    unittest.main(argv=[sys.argv[0]] + rest)


if __name__ == "__main__":
    main()
