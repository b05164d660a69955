#!/usr/bin/env python3
"""The page in a headless browser, against this program with a tiny model.

    page_test.py --program P --mkgguf M --node N --packages FOLDER [--shots FOLDER] [--only WORD]

Exit 77 with a line that says why when the browser or the packages are not here (tools/get-deps browser).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "run"))
from t9server import Server  # noqa: E402 - found through the line above

KEY = "a-key-for-the-test"


def skip(why):
    print("skipped: %s (tools/get-deps browser gets it)" % why)
    sys.exit(77)


def browser_path():
    """The program itself: Debian's wrapper looks at the user's home and greets."""
    for name in ("/usr/lib/chromium/chromium", "chromium", "google-chrome", "chrome"):
        found = shutil.which(name)
        if found:
            return found
    return None


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "mkgguf", "node", "packages"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--shots")
    parser.add_argument("--only", help="checks whose name has this word")
    args = parser.parse_args()
    browser = browser_path()
    if not browser:
        skip("no Chromium here")
    if not os.path.exists(os.path.join(args.packages, "node_modules", ".package-lock.json")):
        skip("the browser's driver is not here")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        subprocess.run([args.mkgguf, "--context", "8192", model], check=True, stdout=subprocess.DEVNULL)
        with Server(args.program, model) as open_one, Server(args.program, model, "--api-key", KEY) as locked:
            status, headers, _ = open_one.request("GET", "/", headers={"Accept": "text/html"})
            if status != 200 or not headers["content-type"].startswith("text/html"):
                raise SystemExit("the program has no page: %d %s" % (status, headers.get("content-type")))
            command = [args.node, os.path.join(HERE, "page_e2e.mjs"), "--packages", os.path.abspath(args.packages),
                       "--browser", browser, "--url", "http://127.0.0.1:%d" % open_one.port,
                       "--locked", "http://127.0.0.1:%d" % locked.port, "--key", KEY]
            for name in ("shots", "only"):
                if getattr(args, name):
                    command += ["--" + name, getattr(args, name)]
            done = subprocess.run(command, check=False, env=dict(os.environ, HOME=folder, XDG_CONFIG_HOME=folder))
            if done.returncode:
                print(open_one.stderr()[-3000:], file=sys.stderr)
            return done.returncode


if __name__ == "__main__":
    sys.exit(main())
