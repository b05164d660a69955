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
