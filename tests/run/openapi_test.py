#!/usr/bin/env python3
"""The OpenAPI description of a running program, held to what it does, by schemathesis.

    openapi_test.py PYTHON PROGRAM MODEL.gguf [--seconds 40] [--examples 12]

PYTHON has schemathesis; exit 77 when it has not. Requests are made from the description, right and
wrong ones: no answer may be a 500, of another status, type or form than described, and what the
description forbids must be refused. What the description allows may still be refused (a prompt of
tokens that the vocabulary does not have), so that alone is not checked. The seed is fixed.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import threading

CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,"
          "response_schema_conformance,negative_data_rejection,unsupported_method")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("python")
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("--seconds", type=int, default=40)
    p.add_argument("--examples", type=int, default=12)
    a = p.parse_args()
    if subprocess.run([a.python, "-c", "import schemathesis"], stderr=subprocess.DEVNULL,
                      check=False).returncode != 0:
        print("schemathesis is not installed: skipped")
        return 77
    server = subprocess.Popen([a.program, "serve", "--gguf", a.model, "--port", "0",
                               "--max-length", "256"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"listening on (http://[^ ]*:\d+)", line)
        if found:
            break
    else:
        print(f"the server ended with {server.wait()}")
        return 1
    threading.Thread(target=server.stderr.read, daemon=True).start()
    folder = tempfile.TemporaryDirectory()  # it leaves a cache where it runs
    try:
        run = subprocess.run(
            [a.python, "-m", "schemathesis.cli", "run", found.group(1) + "/openapi.json",
             "--checks", CHECKS, "--max-examples", str(a.examples), "--seed", "9",
             "--phases", "examples,coverage,fuzzing", "--request-timeout", "20",
             "--max-failures", "20", "--suppress-health-check", "all", "--no-color"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=a.seconds * 12,
            cwd=folder.name, check=False)
    finally:
        server.terminate()
        code = server.wait(60)
        folder.cleanup()
    print(run.stdout[-6000:])
    assert code == 0, f"the server ended with {code}"
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
