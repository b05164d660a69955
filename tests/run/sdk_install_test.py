#!/usr/bin/env python3
"""The library as others get it: installed, found by CMake and by pkg-config, linked shared and static, run.

    sdk_install_test.py --build FOLDER --source ROOT --mkgguf PROGRAM --program tempo9 [--cc COMPILER]
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import t9server  # noqa: E402

ARGS = None


def run(*command, **options):
    """Runs a command and returns its output; what it said is in the failure."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400, **options)
    if done.returncode:
        raise AssertionError("%s: exit status %d\n%s" % (" ".join(command), done.returncode, done.stdout))
    return done.stdout


def header_functions():
    with open(os.path.join(ARGS.source, "include", "tempo9.h")) as f:
        text = f.read()
    return set(re.findall(r"^T9_API [^;]*?\b(t9_[a-z0-9_]+)\(", text, re.M))


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="t9-sdk-")
        root = cls.folder.name
        # Installed under another name first: what is installed may be moved.
        run("cmake", "--install", ARGS.build, "--prefix", os.path.join(root, "before"), "--component", "library")
        cls.prefix = os.path.join(root, "prefix")
        os.rename(os.path.join(root, "before"), cls.prefix)
        cls.lib = next(os.path.join(folder) for folder, _, files in os.walk(cls.prefix) if "tempo9.pc" in files)
        cls.lib = os.path.dirname(cls.lib)
        cls.models = []
        for i, arch in enumerate(("llama", "qwen3")):
            path = os.path.join(root, arch + ".gguf")
            run(ARGS.mkgguf, "--arch", arch, "--seed", str(i + 3), path)
            cls.models.append(path)
        cls.bad = os.path.join(root, "bad.gguf")
        with open(cls.bad, "wb") as f:
            f.write(b"GGUF\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_embed(self, program):
        lines = run(program, *self.models, self.bad).strip().split("\n")
        self.assertEqual(len(lines), 7, lines)
        self.assertEqual(lines[:2], lines[5:], "the failures between changed an answer")
        for line, model in zip(lines, self.models):
            want = run(ARGS.program, "run", "--gguf", model, "-p", "Name three colours.", "--temperature", "0",
                       "--max-tokens", "24", "--threads", "1", "--log-level", "error")
            self.assertEqual(line[3:], want.split("\n")[0])
        for line, start in zip(lines[2:5], ("bad file: (CORRUPT|TOO_LARGE): bad.gguf",
                                            "little cache: INVALID: KV cache",
                                            "little memory: (NOMEM|AGAIN|IO)")):
            self.assertRegex(line, start)

    def copy_example(self, name):
        folder = os.path.join(self.folder.name, name)
        shutil.copytree(os.path.join(ARGS.source, "examples", "embed"), folder)
        return folder

    def test_cmake_package(self):
        for static in ("OFF", "ON"):
            folder = self.copy_example("cmake-" + static)
            run("cmake", "-S", folder, "-B", folder + "/build", "-DCMAKE_PREFIX_PATH=" + self.prefix,
                "-DSTATIC=" + static, "-DCMAKE_C_COMPILER=" + ARGS.cc)
            run("cmake", "--build", folder + "/build")
            self.check_embed(folder + "/build/embed")
            needed = run("ldd", folder + "/build/embed")
            self.assertEqual("libtempo9.so" in needed, static == "OFF")

    def test_pkg_config(self):
        if not shutil.which("make"):
            self.skipTest("no make")
        for static in ("", "1"):
            folder = self.copy_example("make-" + static)
            command = ["make", "-C", folder, "CC=" + ARGS.cc, "PKG_CONFIG_PATH=" + self.lib + "/pkgconfig"]
            run(*command + (["STATIC=1"] if static else []))
            self.check_embed(folder + "/embed")

    def test_symbols(self):
        """Both libraries show what the header marks, and nothing else."""
        want = header_functions()
        self.assertGreater(len(want), 40)
        for name, flags in (("libtempo9.so", ["-D"]), ("libtempo9.a", ["-g"])):
            out = run("nm", "--defined-only", *flags, os.path.join(self.lib, name))
            got = {line.split()[-1] for line in out.split("\n") if len(line.split()) == 3}
            self.assertEqual(got, want, name)
        dynamic = run("readelf", "-d", os.path.join(self.lib, "libtempo9.so"))
        self.assertIn("Library soname: [libtempo9.so.0.1]", dynamic)
        self.assertNotIn("RUNPATH", dynamic)

    def test_curl_example(self):
        if not shutil.which("curl"):
            self.skipTest("no curl")
        script = os.path.join(ARGS.source, "examples", "curl", "chat.sh")
        with t9server.Server(ARGS.program, self.models[0], "--kv-memory", "32M", "--api-key", "k-1") as server:
            env = dict(os.environ, TEMPO9_URL="http://127.0.0.1:%d" % server.port, TEMPO9_API_KEY="k-1")
            out = run("sh", script, 'Say "hi"\nand\\or bye.', env=env)
            self.assertIn("data: {", out)
            self.assertIn("data: [DONE]", out)
            env["TEMPO9_API_KEY"] = "wrong"
            self.assertNotEqual(subprocess.run(["sh", script], env=env, capture_output=True).returncode, 0)

    def test_header_in_cpp(self):
        compiler = shutil.which("g++") or shutil.which("clang++")
        if not compiler:
            self.skipTest("no C++ compiler")
        source = os.path.join(self.folder.name, "h.cc")
        with open(source, "w") as f:
            f.write("#include <tempo9.h>\nint main() { return t9_version()[0] == '0' ? 0 : 1; }\n")
        flags = run("pkg-config", "--cflags", "--libs", "tempo9",
                    env=dict(os.environ, PKG_CONFIG_PATH=self.lib + "/pkgconfig")).split()
        program = os.path.join(self.folder.name, "h")
        run(compiler, "-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", source, "-o", program, *flags,
            "-Wl,-rpath," + self.lib)
        run(program)


def main():
    global ARGS
    parser = argparse.ArgumentParser()
    for name in ("build", "source", "mkgguf", "program"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--cc", default="cc")
    ARGS, rest = parser.parse_known_args()
    for tool in ("cmake", "pkg-config", "nm", "readelf", "ldd"):
        if not shutil.which(tool):
            print("skipped: %s is not here" % tool)
            sys.exit(77)
    unittest.main(argv=[sys.argv[0]] + rest)


if __name__ == "__main__":
    main()
