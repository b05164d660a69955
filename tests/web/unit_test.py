#!/usr/bin/env python3
"""The page's modules under Node's own test runner.

    unit_test.py --node N --build web/build.mjs --build-packages FOLDER --packages FOLDER

Exit 77 when the packages for it are not here.
"""

import argparse
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser()
    for name in ("node", "build", "build-packages", "packages"):
        parser.add_argument("--" + name, required=True)
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.packages, "node_modules", ".package-lock.json")):
        print("skipped: the DOM for Node is not here (tools/get-deps browser gets it)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        module = os.path.join(folder, "markdown.mjs")
        subprocess.run([args.node, args.build, "--packages", args.build_packages, "--module", "markdown.js", "--to", module],
                       check=True)
        env = dict(os.environ, T9_WEB_TEST_PACKAGES=os.path.abspath(args.packages), T9_WEB_MARKDOWN=module)
        tests = sorted(glob.glob(os.path.join(HERE, "unit", "*_test.mjs")))
        return subprocess.run([args.node, "--test", *tests], check=False, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
