#!/usr/bin/env python3
"""tools/check_includes, tools/check_src and tools/fetch_package.py find what they should, and nothing else."""
import functools
import hashlib
import http.server
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = "/* A header comment. */\n"


class Tree(unittest.TestCase):
    """A small repository of its own for each test."""

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        os.makedirs(self.root + "/tools")
        for name in ("check_includes", "check_src", "fetch_package.py"):
            shutil.copy(os.path.join(ROOT, "tools", name), self.root + "/tools/" + name)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.put("src/base/err.h", HEADER + "typedef int t9_status;\n")

    def put(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as out:
            out.write(text)

    def run_tool(self, name, *args, env=None):
        done = subprocess.run([sys.executable, self.root + "/tools/" + name, *args], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, env=env)
        return done.returncode, done.stdout.decode("utf-8")

    def expect(self, tool, text):
        code, out = self.run_tool(tool)
        self.assertEqual(code, 1, out)
        self.assertIn(text, out)

    def expect_clean(self, tool):
        code, out = self.run_tool(tool)
        self.assertEqual(code, 0, out)


class Includes(Tree):
    def test_allowed_edge(self):
        self.put("src/gguf/a.c", HEADER + '#include "base/err.h"\n')
        self.expect_clean("check_includes")

    def test_forbidden_edge(self):
        self.put("src/protocol/protocol.h", HEADER)
        self.put("src/engine/a.c", HEADER + '\n#include "protocol/protocol.h"\n')
        self.expect("check_includes", 'src/engine/a.c:3: engine may not include "protocol/protocol.h"')

    def test_single_header_edge(self):
        self.put("src/tokenizer/vocab.h", HEADER)
        self.put("src/tokenizer/bpe.h", HEADER)
        self.put("src/engine/a.c", HEADER + '#include "tokenizer/vocab.h"\n')
        self.expect_clean("check_includes")
        self.put("src/engine/a.c", HEADER + '#include "tokenizer/bpe.h"\n')
        self.expect("check_includes", "engine may not include")

    def test_files_that_see_more(self):
        self.put("src/engine/engine.h", HEADER)
        self.put("src/cli/runtime.h", HEADER + '#include "engine/engine.h"\n')
        self.put("src/cli/cmd_bench.c", HEADER + '#include "cli/runtime.h"\n')
        self.expect_clean("check_includes")
        self.put("src/cli/cmd_serve.c", HEADER + '#include "cli/runtime.h"\n')
        self.expect("check_includes", 'src/cli/cmd_serve.c:2: cli may not include "cli/runtime.h"')
        self.put("src/cli/cmd_serve.c", HEADER + '#include "engine/engine.h"\n')
        self.expect("check_includes", 'src/cli/cmd_serve.c:2: cli may not include "engine/engine.h"')

    def test_library_home(self):
        self.put("src/engine/a.c", HEADER + "#include <microhttpd.h>\n")
        self.expect("check_includes", "<microhttpd.h> belongs to src/http")

    def test_form_and_existence(self):
        self.put("src/gguf/a.c", HEADER + '#include "err.h"\n')
        self.expect("check_includes", "src/gguf/a.c:2: write")
        self.put("src/gguf/a.c", HEADER + '#include "base/none.h"\n')
        self.expect("check_includes", "no such file")

    def test_unknown_module(self):
        self.put("src/extra/a.c", HEADER)
        self.expect("check_includes", "has no row")


class Source(Tree):
    def code(self, body, path="src/gguf/a.c"):
        self.put(path, HEADER + body)

    def test_clean(self):
        self.code('int f(void)\n{\n    return 0; /* malloc( is fine here */\n}\nconst char *s = "exit(1)";\n')
        self.expect_clean("check_src")

    def test_banned_call_and_its_home(self):
        self.code("void f(void)\n{\n    free(0);\n}\n")
        self.expect("check_src", "src/gguf/a.c:4: free(): only in src/base/mem.c")
        self.code("void f(struct x *x)\n{\n    x->free(0);\n    my_free(0);\n}\n")
        self.expect_clean("check_src")
        self.code("void f(void)\n{\n    free(0);\n}\n", "src/base/mem.c")
        self.expect_clean("check_src")

    def test_function_length(self):
        self.code("int f(void)\n{\n%s}\n" % ("    g();\n" * 118))
        self.expect("check_src", "f: function-length of 121 is over 120")
        self.code("int f(void)\n{\n%s}\n" % ("    g();\n" * 117))
        self.expect_clean("check_src")

    def test_parameters_and_nesting(self):
        self.code("int f(int a, int b, int c, int d, int e, int g, int h,\n      int (*i)(int, int), int j)\n{\n}\n")
        self.expect("check_src", "f: params of 9 is over 8")
        self.code("int f(void)\n{\n%s%s}\n" % ("    if (1) {\n" * 4, "    }\n" * 4))
        self.expect_clean("check_src")
        self.code("int f(void)\n{\n%s%s}\n" % ("    if (1) {\n" * 5, "    }\n" * 5))
        self.expect("check_src", "f: nesting of 5 is over 4")

    def test_leftovers(self):
        for text, message in (("int a;\t\n", "tab"), ("int a; \n", "space at the end"), ("/* TO" "DO */\n", "leftover"),
                              ("/* /wo" "rk/x */\n", "path or host"), ("int a;", "no newline")):
            self.code(text)
            self.expect("check_src", message)
        self.put("src/gguf/a.c", "int a;\n")
        self.expect("check_src", "no header comment")

    def test_allow_list(self):
        self.code("int f(void)\n{\n%s}\n" % ("    g();\n" * 130))
        self.put("tools/check_src.allow", "function-length src/gguf/a.c f 140 a table\n")
        self.expect_clean("check_src")
        self.code("int f(void)\n{\n}\n")
        self.expect("check_src", "no longer needed")


class Fetch(Tree):
    def test_unpacks_checks_and_skips(self):
        archive = self.root + "/p.tar.gz"
        data = b"int a;\n"
        with tarfile.open(archive, "w:gz") as box:
            info = tarfile.TarInfo("p/a.c")
            info.size = len(data)
            box.addfile(info, io.BytesIO(data))
        sys.path.insert(0, self.root + "/tools")
        sys.dont_write_bytecode = True
        import fetch_package as fetch  # the copy in this test's tree
        right = hashlib.sha256(data).hexdigest()
        target = self.root + "/out/a.c"
        with self.assertRaises(SystemExit):
            fetch.unpack(archive, "p/a.c", target, "0" * 64)
        self.assertEqual(os.listdir(self.root + "/out"), [])
        with self.assertRaises(SystemExit):
            fetch.unpack(archive, "p/none.c", target, right)
        fetch.unpack(archive, "p/a.c", target, right)
        self.assertTrue(fetch.file_is(target, right))
        # With the target in place, nothing is downloaded: this package does not exist.
        code, out = self.run_tool("fetch_package.py", "no-such-package-t9==0", "0" * 64, "--file", "a", target,
                                  right)
        self.assertEqual(code, 0, out)
        self.assertIn("already here", out)

    def test_index_and_folder(self):
        """The archive comes from where pip is told to look, and only with the pinned hash."""
        data, setup = b"int a;\n", b"raise SystemExit('was run')\n"
        folder = self.root + "/index/some-pkg"
        os.makedirs(folder)
        archive = folder + "/some_pkg-1.0.tar.gz"
        with tarfile.open(archive, "w:gz") as box:
            for name, text in (("some_pkg-1.0/a.c", data), ("some_pkg-1.0/setup.py", setup)):
                info = tarfile.TarInfo(name)
                info.size = len(text)
                box.addfile(info, io.BytesIO(text))
        self.put("index/some-pkg/index.html", '<a href="some_pkg-1.0.tar.gz">some_pkg-1.0.tar.gz</a>')
        with open(archive, "rb") as stream:
            right = hashlib.sha256(stream.read()).hexdigest()
        handler = functools.partial(Quiet, directory=self.root + "/index")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = "http://reader:secret@127.0.0.1:%d" % server.server_port
        target = self.root + "/out/a.c"
        member = ("--file", "some_pkg-1.0/a.c", target, hashlib.sha256(data).hexdigest())
        try:
            for good, sha256, more in ((False, "0" * 64, {"PIP_INDEX_URL": index}),
                                       (False, right, {"PIP_NO_INDEX": "1"}),
                                       (True, right, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder}),
                                       (True, right, {"PIP_INDEX_URL": index})):
                code, out = self.run_tool("fetch_package.py", "some.pkg==1.0", sha256, *member,
                                          env={**os.environ, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", **more})
                self.assertEqual((code == 0, os.path.exists(target)), (good, good), out)
                self.assertNotIn("secret", out)
                if good:
                    os.unlink(target)
        finally:
            server.shutdown()
            server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


if __name__ == "__main__":
    unittest.main()
