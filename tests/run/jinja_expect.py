"""Writes tests/data/templates/expected.json: what Python's jinja2 makes of our own templates and cases.

usage: jinja_expect.py     (jinja2 installed; run it after a change to a template or case)
"""
import json
import os

from jinja_oracle import make_env

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "templates")


def render(env, name, args):
    with open(os.path.join(FOLDER, name + ".jinja"), encoding="utf-8", newline="") as f:
        source = f.read()
    try:
        return {"text": env.from_string(source).render(**args)}
    except Exception as e:  # whatever Python raises is an error of the template
        return {"error": "%s: %s" % (type(e).__name__, e)}


def main():
    env = make_env()
    with open(os.path.join(FOLDER, "cases.json"), encoding="utf-8") as f:
        cases = json.load(f)
    expected = {t: {c: render(env, t, args) for c, args in group.items()} for t, group in cases.items()}
    with open(os.path.join(FOLDER, "expected.json"), "w", encoding="utf-8") as f:
        json.dump(expected, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
