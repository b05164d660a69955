#!/usr/bin/env python3
"""Tool calls in every dialect, judged by the official evaluator of the Berkeley Function Calling
Leaderboard.

    bfcl_oracle.py PYTHON --server SCRIPTED_SERVER [--templates DIR] [--forms NAME,..] [--every N]
                   [--show N]

PYTHON is the interpreter of an environment with `bfcl-eval` (`tools/get-deps bfcl` makes it); exit
77 where it is not there. Nothing of its data is kept.

Every single-turn case counts: those with possible answers whose truth the evaluator takes when it
is given directly, those where no function fits (the model writes text), and those where any call
will do. A scripted model writes the truth in a dialect's form; the case's tools are sent over HTTP
as the evaluator's own client declares them; what comes back, whole and streamed in turn, must score
100%. In forms whose values have no types a truth that is not of the type that its tool declares
can't come back as it was; these are counted apart. A sample of every N-th case; all of them with
--every 1 or T9_FULL in the environment.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import time

SAMPLE_EVERY = 61
HANDLER = "openbmb/MiniCPM-SALA-FC"  # the evaluator's plain client of chat completions
CATEGORIES = ["simple_python", "simple_java", "simple_javascript", "multiple", "parallel",
              "parallel_multiple", "live_simple", "live_multiple", "live_parallel",
              "live_parallel_multiple", "irrelevance", "live_irrelevance", "live_relevance"]
# Forms whose values have no types, or are brought to those that the tool declares.
BY_SCHEMA = {"glm", "qwen_xml", "gemma4", "lfm2"}
UNANSWERED = "None of the functions fits, so here is a text: {\"a\": [1, <b>]}."


# ---- cases; in the evaluator's environment ----

JSON_TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
              "object": dict}


def declared(value, schema):
    """Whether a value is of the type that its schema declares: some truths are not."""
    kind = schema.get("type")
    if value is None:
        return "default" in schema and schema["default"] is None
    if isinstance(value, bool):
        return kind == "boolean"
    if not isinstance(value, JSON_TYPES.get(kind, object)):
        return False
    if kind == "array":
        return all(declared(v, schema.get("items", {"type": None})) for v in value)
    inner = schema.get("properties") if kind == "object" else None
    return not inner or all(declared(v, inner[k]) for k, v in value.items() if k in inner)


def settle(value):
    """Nested objects name all values of their members."""
    if isinstance(value, dict):
        return {k: next((settle(x) for x in v if x != ""), "") if isinstance(v, list) else v
                for k, v in value.items() if not (isinstance(v, list) and "" in v)}
    if isinstance(value, list):
        return [settle(v) if isinstance(v, dict) else v for v in value]
    return value


def in_source(value, kind, java):
    """A value as Java or JavaScript text, which the cases of these languages have for arguments."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value) + {"long": "L", "float": "f" if java else "", "Bigint": "n"}.get(kind, "")
    if not java:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "new HashMap<String, Object>() {{ %s }}" % " ".join(
            'put("%s", %s);' % (k, in_source(json.dumps(v) if isinstance(v, str) else v, "", True))
            for k, v in value.items())
    # The evaluator takes the quotes of an array's texts for a part of them.
    quote = json.dumps if kind != "Array" else str
    items = ", ".join(in_source(quote(v) if isinstance(v, str) else v, "", True) for v in value)
    return ("new Object[]{%s}" if kind == "Array" else
            "new ArrayList<Object>(Arrays.asList(%s))") % items


def to_source(calls, functions, java):
    kinds = {f["name"].replace(".", "_"): f["parameters"]["properties"] for f in functions}
    return [(n, {k: in_source(v, kinds[n].get(k, {}).get("type"), java) for k, v in a.items()})
            for n, a in calls]


def truth_of(answers, tools):
    """Calls with one of the values that each argument may have, of the declared type where there is
    one; arguments that need not be there are left out where there is none."""
    schemas = {t["function"]["name"]: t["function"]["parameters"] for t in tools}
    calls = []
    for answer in answers:
        for name, possible in answer.items():
            name = name.replace(".", "_")
            schema, args = schemas[name], {}
            for key, values in possible.items():
                own = schema["properties"].get(key, {})
                values, free = [settle(v) for v in values], "" in values
                fitting = [v for v in values if v != "" and declared(v, own)]
                if fitting:
                    args[key] = fitting[0]
                elif values and (key in schema["required"] or not free):
                    args[key] = values[0]
            calls.append((name, args))
    return calls


def against_schema(case):
    """Arguments that are of another type than declared: text without types can't carry them."""
    schemas = {t["function"]["name"]: t["function"]["parameters"]["properties"]
               for t in case["tools"]}
    return any(not declared(v, schemas[n].get(k, {})) for n, a in case["calls"]
               for k, v in a.items())


def any_value(schema):
    """Something of that type."""
    if schema.get("enum"):
        return schema["enum"][0]
    return {"integer": 3, "number": 0.5, "boolean": True, "array": [], "object": {}}.get(
        schema.get("type"), "some text")


def load_cases(every):
    from bfcl_eval.eval_checker.eval_runner import get_handler
    from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry

    os.environ.setdefault("OPENAI_API_KEY", "none")
    handler = get_handler(HANDLER)
    cases, total, left_out = [], 0, []
    for category in CATEGORIES:
        asked = load_dataset_entry(category)  # for a model: types of other languages are text
        entries = load_dataset_entry(category, include_language_specific_hint=False)
        answers = None if "relevance" in category else {
            a["id"]: a["ground_truth"] for a in load_ground_truth_entry(category)}
        for entry, to_ask in zip(entries, asked):
            total += 1
            tools = handler._compile_tools({}, to_ask)["tools"]
            case = {"category": category, "entry": entry, "tools": tools, "calls": [],
                    "answer": answers and answers[entry["id"]]}
            if answers:
                case["calls"] = truth_of(case["answer"], tools)
                if "java" in category:
                    case["calls"] = to_source(case["calls"], entry["function"],
                                              category == "simple_java")
            elif category == "live_relevance":
                f = tools[0]["function"]
                case["calls"] = [(f["name"], {k: any_value(v) for k, v in
                                              f["parameters"]["properties"].items()})]
            given = [{n: json.dumps(a, ensure_ascii=False)} for n, a in case["calls"]]
            if judge(handler, case, given or UNANSWERED) is None:
                cases.append(case)
            else:
                left_out.append(entry["id"])
    return handler, cases[::every], total, left_out


def judge(handler, case, result):
    """None when the evaluator gives it 100%, else what it says."""
    from bfcl_eval.constants.enums import Language, ReturnFormat
    from bfcl_eval.eval_checker.eval_runner import (_evaluate_single_ast_entry,
                                                    _evaluate_single_relevance_entry)

    category, entry = case["category"], case["entry"]
    if case["answer"] is None:
        got = _evaluate_single_relevance_entry(handler, entry["id"], result, entry, HANDLER,
                                               category)
    else:
        language, form = ((Language.JAVA, ReturnFormat.JAVA) if "java" in category.split("_") else
                          (Language.JAVASCRIPT, ReturnFormat.JAVASCRIPT)
                          if "javascript" in category else (Language.PYTHON, ReturnFormat.PYTHON))
        got = _evaluate_single_ast_entry(handler, entry["id"], result, case["answer"], entry,
                                         HANDLER, category, language, form)
    return None if got["valid"] else got.get("error")


# ---- asking ----

class TemplateRefuses(Exception):
    """Some models' templates can't write out each tool that there may be."""


def check_status(status, data):
    if status == 400 and json.loads(data)["error"].get("code") == "template_error":
        raise TemplateRefuses(json.loads(data)["error"]["message"])
    if status != 200:
        raise AssertionError("HTTP %d: %r" % (status, data[:500]))


def ask_whole(connection, body):
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    r = connection.getresponse()
    data = r.read()
    check_status(r.status, data)
    choice = json.loads(data)["choices"][0]
    calls = choice["message"].get("tool_calls") or []
    return ([(c["function"]["name"], c["function"]["arguments"]) for c in calls],
            choice["message"]["content"], choice["finish_reason"])


def ask_streamed(connection, body):
    connection.request("POST", "/v1/chat/completions", json.dumps(dict(body, stream=True)))
    r = connection.getresponse()
    data = r.read()
    check_status(r.status, data)
    calls, text, finish = [], "", None
    for line in data.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            finish = choice["finish_reason"] or finish
            for c in delta.get("tool_calls") or []:
                if c["index"] == len(calls):
                    calls.append([c["function"]["name"], ""])
                calls[c["index"]][1] += c["function"].get("arguments") or ""
    return [tuple(c) for c in calls], text or None, finish


class Tally:
    def __init__(self):
        self.failures, self.other, self.refused, self.undeclared = [], [], [], []


def run_cases(args, form, template, handler, cases, tally):
    """Asks for all of them in one form; those that the template refuses come to tally.refused."""
    from scripted import Scripted

    script = [{"times": 1, "when": "case %d;" % i, "text": "" if c["calls"] else UNANSWERED,
               "calls": [{"name": n, "arguments": a} for n, a in c["calls"]]}
              for i, c in enumerate(cases)]
    with Scripted(args.server, script, template, form) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for i, case in enumerate(cases):
            messages = list(case["entry"]["question"][0])
            messages[-1] = dict(messages[-1], content="%s\n\ncase %d;" % (
                messages[-1]["content"], i))
            body = {"model": "default", "messages": messages, "tools": case["tools"]}
            try:
                calls, text, finish = (ask_streamed if i % 2 else ask_whole)(connection, body)
            except TemplateRefuses as e:
                tally.refused.append((case, str(e)))
                continue
            says = judge(handler, case, [{n: a} for n, a in calls] or text)
            if says is None and finish != ("tool_calls" if case["calls"] else "stop"):
                says = "it finished by %s" % finish
            if says is not None and form in BY_SCHEMA and against_schema(case):
                tally.undeclared.append(case)
            elif says is not None:
                tally.failures.append((case["entry"]["id"], says, calls or text))
            elif [(n, json.loads(a)) for n, a in calls] != case["calls"]:
                tally.other.append((case["entry"]["id"], case["calls"], calls))


def run_form(args, form, handler, cases):
    """Where a model's own template refuses a case, ours takes it."""
    from scripted import template_of

    tally = Tally()
    run_cases(args, form, template_of(form, args.templates), handler, cases, tally)
    again, tally.refused = tally.refused, []
    if again:
        run_cases(args, form, template_of(form), handler, [c for c, _ in again], tally)
    tally.failures += [(c["entry"]["id"], why, None) for c, why in tally.refused]
    tally.refused = again
    return tally


def inside(args):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from scripted import FORMS

    started = time.monotonic()
    handler, cases, total, left_out = load_cases(args.every)
    print("%d single-turn cases, %d whose truth is not taken as it is; %d in each form (%.0f s)" % (
        total, len(left_out), len(cases), time.monotonic() - started), flush=True)
    bad = 0
    for form in args.forms.split(",") if args.forms else FORMS:
        started = time.monotonic()
        t = run_form(args, form, handler, cases)
        n = len(cases) - len(t.undeclared)
        print("%-13s %d of %d score 100%%; %d truths against their own schema; %d with values of "
              "another type; %d not by the model's template (%.0f s)" % (
                  form, n - len(t.failures), n, len(t.undeclared), len(t.other), len(t.refused),
                  time.monotonic() - started), flush=True)
        for f in t.failures[:args.show]:
            print("   %s: %s\n      came back: %.600r" % (f[0], str(f[1])[:600], f[2]))
        for o in t.other[:args.show]:
            print("   %s: %.300r became %.300r" % o)
        for why in sorted({why for _, why in t.refused})[:args.show]:
            print("   %s" % why)
        bad += len(t.failures)
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("python")
    p.add_argument("--server", required=True)
    p.add_argument("--templates", default="")
    p.add_argument("--forms", default="")
    p.add_argument("--every", type=int, default=1 if os.environ.get("T9_FULL") else SAMPLE_EVERY)
    p.add_argument("--show", type=int, default=5)
    p.add_argument("--inside", action="store_true")
    args = p.parse_args()
    if args.inside:
        return inside(args)
    try:
        found = subprocess.run([args.python, "-c", "import importlib.util as u, sys; "
                                "sys.exit(u.find_spec('bfcl_eval') is None)"]).returncode == 0
    except FileNotFoundError:
        found = False
    if not found:
        print("no bfcl-eval in %s (tools/get-deps bfcl gets it): skipped" % args.python)
        return 77
    return subprocess.run([args.python, os.path.abspath(__file__)] + sys.argv[1:] +
                          ["--inside"]).returncode


if __name__ == "__main__":
    sys.exit(main())
