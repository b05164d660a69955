#!/usr/bin/env python3
"""Generated tools and calls, written by a scripted model in every form and read over HTTP.

    dialects_http.py --server SCRIPTED_SERVER [--rounds N] [--seed N]

Each round has tools of its own, text, and one to three calls in the model's form. They must come
back as exactly these values, whole and streamed alike, and the same conversation with the calls and
their results in it must find what was asked before in the cache. Standard library only.
"""

import argparse
import http.client
import json
import random
import sys

from bfcl_oracle import ask_streamed, ask_whole
from scripted import FORMS, Scripted, template_of

# Nothing that a form can't carry, such as one closing tag before another.
SCRAPS = ["a", "Z", " ", "\n", "\"", "'", "\\", "{", "}", "[", "]", ":", ",", "<b>", "</", "\u00e9",
          "\u65e5\u672c", "\U0001F600", "02134", "true", "null", "None", "=", "#", "```", "\\n",
          "f0(a=1)", "{\"name\": \"f0\", \"arguments\": {}}", "functions.f0:0"]
WORDS = ["city", "path", "max_tokens", "q", "dateFrom", "X2", "new_string"]
TEXT = "Let me see.\n"
TAIL_BYTES = 64  # what a prompt for an answer ends with may not stand before it in the history


def text(r):
    return "".join(r.choice(SCRAPS) for _ in range(r.choice([0, 1, 3, 6, 200])))


def made(r, depth=0):
    """(schema, a value that it permits)"""
    kind = r.choice(["string"] * 3 + ["integer", "number", "boolean", "enum", "null", "array"] +
                    ["object"] * (depth < 3))
    if kind == "string":
        return {"type": "string", "description": "a \"text\""}, text(r)
    if kind == "integer":
        return {"type": "integer"}, r.choice([0, -1, 7, 9007199254740993])
    if kind == "number":
        return {"type": "number"}, r.choice([0.5, -3.25, 12, 1e-7])
    if kind == "boolean":
        return {"type": "boolean"}, r.random() < 0.5
    if kind == "enum":
        return {"type": "string", "enum": ["red", "02134", "true"]}, r.choice(["red", "02134", "true"])
    if kind == "null":
        return {"type": ["integer", "null"]}, r.choice([None, 3])
    if kind == "array":
        schema = {"type": "array", "items": {"type": "string"}}
        return schema, [text(r) for _ in range(r.randrange(3))]
    return made_object(r, depth + 1)


def made_object(r, depth=0):
    schema, value = {"type": "object", "properties": {}}, {}
    for i in range(r.randrange(5)):
        key = "%s_%d" % (r.choice(WORDS), i)
        schema["properties"][key], value[key] = made(r, depth)
        if r.random() < 0.2:
            del value[key]
    schema["required"] = list(value)
    return schema, value


def made_round(r, number):
    tools, calls = [], []
    for i in range(r.randrange(1, 4)):
        schema, value = made_object(r)
        tools.append({"type": "function", "function": {
            "name": "f%d" % i, "description": "one of them", "parameters": schema}})
        calls.append(("f%d" % i, value))
    return {"tools": tools, "calls": calls, "text": "" if number % 3 else TEXT}


def cached(connection, body):
    connection.request("POST", "/v1/chat/completions", json.dumps(dict(body, max_tokens=1)))
    usage = json.loads(connection.getresponse().read())["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def check_round(connection, form, number, one):
    body = {"messages": [{"role": "user", "content": "round %d; go on" % number}],
            "tools": one["tools"]}
    whole, streamed = ask_whole(connection, body), ask_streamed(connection, body)
    if whole != streamed:
        raise AssertionError("%s, round %d: whole %r, streamed %r" % (form, number, whole, streamed))
    calls, said, finish = whole
    got = [(name, json.loads(args)) for name, args in calls]
    wanted = one["text"].strip() or None
    if got != one["calls"] or finish != "tool_calls" or said != wanted:
        raise AssertionError("%s, round %d: %r, %r, %s; wanted %r, %r" % (
            form, number, got, said, finish, one["calls"], wanted))
    history = [{"role": "assistant", "content": said, "tool_calls": [
        {"id": "call%05d" % i, "type": "function", "function": {"name": n, "arguments": a}}
        for i, (n, a) in enumerate(calls)]}]
    history += [{"role": "tool", "tool_call_id": "call%05d" % i, "content": "done"}
                for i in range(len(calls))]
    first = cached(connection, body)
    after = cached(connection, dict(body, messages=body["messages"] + history))
    if first[1] < first[0] - 1 or after[1] < first[0] - TAIL_BYTES:
        raise AssertionError("%s, round %d: of %d tokens %d are cached, of %d in the next turn %d" %
                             (form, number, *first, *after))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", required=True)
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    for form in FORMS:
        r = random.Random(args.seed)
        rounds = [made_round(r, i) for i in range(args.rounds)]
        script = [{"when": "round %d;" % i, "text": one["text"] if form != "harmony" else "",
                   "calls": [{"name": n, "arguments": a} for n, a in one["calls"]]}
                  for i, one in enumerate(rounds)]
        with Scripted(args.server, script, template_of(form), form) as server:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            for i, one in enumerate(rounds):
                if form == "harmony":  # its text is a message of its own
                    one["text"] = ""
                check_round(connection, form, i, one)
        print("%-13s %d rounds" % (form, args.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
