#!/usr/bin/env python3
"""OpenAI's Responses through the official `openai` client against running programs.

    http_responses.py PROGRAM MODEL.gguf SCRIPTED_SERVER

Exit 77 when the client is not installed. Every object and event is held to the client's own types,
required members and all. With a model: text, log probabilities, limits, stored responses (going on,
references, lists, deletion, clients that see their own only, a restart), errors, streams that are
left. With a script: reasoning and its way back, calls, custom tools, namespaces, the tools' results.
"""

import concurrent.futures
import json
import os
import sys
import tempfile

from http_openai import openai  # exits with 77 where there is no client
import t9server
from pydantic import TypeAdapter
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_item import ResponseItem
from scripted import TESTS, Scripted

ASK = [{"role": "developer", "content": "You are brief."},
       {"role": "user", "content": [{"type": "input_text", "text": "Name three colours. \u65e5 \U0001F600"}]}]
INPUT = "*** \"a\"\n\u00e9\U0001F600\\"
EVENT, ITEM = TypeAdapter(ResponseStreamEvent), TypeAdapter(ResponseItem)
WEATHER = {"type": "function", "name": "weather", "description": "Of a city.", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
PATCH = {"type": "custom", "name": "patch", "description": "Changes files."}
AGENTS = {"type": "namespace", "name": "agents", "description": "Others.", "tools": [
    {"type": "function", "name": "close", "strict": False,
     "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}}]}


def connect(port, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0, timeout=120)


def checked(response):
    """The response, held to the published type without any forgiving."""
    Response.model_validate(response.to_dict())
    assert response.service_tier == "default" and response.usage.total_tokens == (
        response.usage.input_tokens + response.usage.output_tokens)
    return response


class Parts:
    """What the deltas of a stream add up to, item by item."""

    def __init__(self):
        self.items, self.last, self.n = {}, None, 0

    def take(self, e):
        EVENT.validate_python(e.to_dict())
        assert e.sequence_number == self.n and self.last is None, e
        self.n += 1
        kind = e.type.removeprefix("response.")
        if kind == "output_item.added":
            assert e.output_index == len(self.items)
            self.items[e.output_index] = {"text": "", "done": None, "id": e.item.id}
        elif kind.endswith(".delta"):
            assert e.item_id == self.items[e.output_index]["id"]
            self.items[e.output_index]["text"] += e.delta
        elif kind.endswith("_text.done") or kind.endswith("arguments.done") or kind.endswith("input.done"):
            said = getattr(e, "text", None) or getattr(e, "arguments", None) or getattr(e, "input", None) or ""
            assert said == self.items[e.output_index]["text"], e
        elif kind == "output_item.done":
            self.items[e.output_index]["done"] = e.item.to_dict()
        elif kind in ("completed", "incomplete", "failed"):
            self.last = e.response
        else:
            assert kind in ("created", "in_progress") or "part." in kind, kind


def streamed(client, **o):
    parts = Parts()
    for e in client.responses.create(stream=True, **o):
        parts.take(e)
    assert parts.last is not None, "no last event"
    assert [i["done"] for i in parts.items.values()] == [i.to_dict() for i in parts.last.output]
    return checked(parts.last)


def plain(response):
    """Without what differs from reply to reply."""
    def strip(v):
        if isinstance(v, dict):
            return {k: json.loads(x) if k == "arguments" else strip(x) for k, x in v.items()
                    if k not in ("id", "created_at", "call_id", "tempo9", "cached_tokens")}
        return [strip(x) for x in v] if isinstance(v, list) else v
    return strip(response.to_dict())


def refused(kind, code, call, param=None):
    try:
        call()
    except kind as e:
        assert e.code == code and (param is None or e.param == param), (e.code, e.param, str(e))
        return
    raise AssertionError(f"was not refused with {code}")


class Tester:
    """With a model that nobody trained: what it says is of no use, and always the same."""

    def __init__(self, client):
        self.c = client

    def ask(self, said=None, **o):
        return {"model": "default", "input": said or ASK, "max_output_tokens": 12, "temperature": 0, **o}

    def whole(self, *a, **o):
        return checked(self.c.responses.create(**self.ask(*a, **o)))

    def test_text(self):
        for o in ({}, {"temperature": 0.9, "top_p": 0.9, "extra_body": {"seed": 5}},
                  {"instructions": "Be brief.", "metadata": {"a": "b"}, "user": "u", "truncation": "disabled"},
                  {"top_logprobs": 3, "include": ["message.output_text.logprobs"]},
                  {"text": {"format": {"type": "text"}}, "reasoning": {"effort": None}}):
            whole = self.whole(**o)
            assert plain(whole) == plain(streamed(self.c, **self.ask(**o)))
            assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
            assert whole.usage.output_tokens == 12 and whole.output_text
            assert whole.instructions == o.get("instructions") and whole.metadata == o.get("metadata", {})
        logprobs = self.whole(top_logprobs=3).output[0].content[0].logprobs
        assert len(logprobs) == 12 and all(len(p.top_logprobs) == 3 for p in logprobs)
        assert self.whole("a").usage.input_tokens == self.whole([{"role": "user", "content": "a"}]).usage.input_tokens

    def test_goes_on(self):
        first = self.whole("Count.")
        assert first.store is True
        second = self.whole("More.", previous_response_id=first.id)
        by_hand = self.whole([{"role": "user", "content": "Count."}, *[i.to_dict() for i in first.output],
                              {"role": "user", "content": "More."}])
        assert second.output_text == by_hand.output_text
        assert second.usage.input_tokens == by_hand.usage.input_tokens
        third = streamed(self.c, **self.ask("And?", previous_response_id=second.id))
        again = self.c.responses.retrieve(third.id)
        assert again.to_dict() == third.to_dict() and again.previous_response_id == second.id
        items = list(self.c.responses.input_items.list(third.id, order="asc", limit=2))  # over pages
        for i in items:
            ITEM.validate_python(i.to_dict())
        assert [i.role for i in items] == ["user", "assistant", "user", "assistant", "user"]
        assert [i.id for i in self.c.responses.input_items.list(third.id)] == [i.id for i in items][::-1]
        page = self.c.responses.input_items.list(third.id, order="asc", limit=2, after=items[1].id)
        assert [i.id for i in page.data] == [items[2].id, items[3].id] and page.has_more
        by_reference = self.whole([{"type": "item_reference", "id": i.id} for i in items])
        assert by_reference.usage.input_tokens == third.usage.input_tokens
        self.c.responses.delete(second.id)
        not_found, bad = openai.NotFoundError, openai.BadRequestError
        refused(not_found, "response_not_found", lambda: self.c.responses.retrieve(second.id))
        refused(not_found, "response_not_found", lambda: self.c.responses.delete(second.id))
        refused(bad, "previous_response_not_found", lambda: self.whole("a", previous_response_id=third.id))
        assert self.whole("a", previous_response_id=first.id).output_text
        refused(bad, "item_not_found",
                lambda: self.whole([{"type": "item_reference", "id": second.output[0].id}]), "input[0]")
        refused(not_found, "response_not_found", lambda: self.c.responses.retrieve(self.whole(store=False).id))

    def test_refused(self):
        bad = openai.BadRequestError
        for param, o in (("text.format", {"text": {"format": {"type": "json_object"}}}),
                         ("tool_choice", {"tools": [WEATHER], "tool_choice": "required"}),
                         ("tools[0].strict", {"tools": [{**WEATHER, "strict": True}]}),
                         ("background", {"background": True}), ("prompt", {"prompt": {"id": "p"}})):
            refused(bad, "unsupported_parameter", lambda o=o: self.whole(**o), param)
        image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]}]
        refused(bad, "unsupported_content", lambda: self.whole(image), "input[0].content")
        refused(bad, "context_length_exceeded", lambda: self.whole("a b c " * 20000), "input")
        refused(openai.NotFoundError, "model_not_found", lambda: self.whole(model="other"))
        told = self.whole(tools=[{"type": "web_search"}]).to_dict()["warnings"]
        assert len(told) == 1 and "web_search" in told[0]

    def test_left(self):
        """A client that goes away in mid-answer; the next one is served as ever."""
        for _ in range(3):
            stream = self.c.responses.create(stream=True, **self.ask(max_output_tokens=200,
                                                                     extra_body={"ignore_eos": True}))
            for n, _e in enumerate(stream):
                if n == 6:
                    break
            stream.close()
        assert self.whole().output_text

    def test_side_by_side(self):
        jobs = [self.ask(f"Tell of {n}.", max_output_tokens=20) for n in range(6)]
        solo = [plain(streamed(self.c, **j)) for j in jobs]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            assert [plain(r) for r in pool.map(lambda j: streamed(self.c, **j), jobs)] == solo

    def test_helper(self):
        """The client's own gathering of a stream."""
        seen = []
        with self.c.responses.stream(**self.ask(extra_body={"stop": ["e"]}, max_output_tokens=400)) as s:
            for e in s:
                seen.append(e.type)
            final = s.get_final_response() if seen[-1] == "response.completed" else None
        assert seen[0] == "response.created" and final is None or final.output_text is not None


def check_clients_and_restart(program, model):
    """Each key sees its own; a restart keeps them; without --store there are none."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "r.db")
        options = ("--api-key", "one", "--api-key", "two", "--store", path)
        with t9server.serving(program, model, *options) as port:
            one, two = Tester(connect(port, "one")), Tester(connect(port, "two"))
            first = one.whole("Hello.")
            refused(openai.NotFoundError, "response_not_found", lambda: two.c.responses.retrieve(first.id))
            refused(openai.BadRequestError, "previous_response_not_found",
                    lambda: two.whole("a", previous_response_id=first.id))
            assert os.stat(path).st_mode & 0o777 == 0o600
        with t9server.serving(program, model, *options) as port:
            assert connect(port, "one").responses.retrieve(first.id).to_dict() == first.to_dict()
        with open(path, "r+b") as f:  # the server must say no, and not fall
            f.write(b"no database" * 100)
        try:
            t9server.Server(program, model, *options).kill()
            raise AssertionError("a damaged file was taken")
        except t9server.ServerFailed as e:
            assert e.code == 1, e
    with t9server.serving(program, model) as port:
        t = Tester(connect(port))
        assert t.whole().store is False
        assert "--store" in t.whole(store=True).to_dict()["warnings"][0]
        refused(openai.BadRequestError, "unsupported_parameter", lambda: t.whole("a", previous_response_id="resp_1"))
        refused(openai.NotFoundError, "response_not_found", lambda: t.c.responses.retrieve("resp_1"))


def both(client, **o):
    whole, said = checked(client.responses.create(**o)), streamed(client, **o)
    # The script's model breaks its lines as it likes.
    assert {**plain(whole), "usage": None} == {**plain(said), "usage": None}
    return whole


def check_tools(server):
    script = [{"when": "-3 degrees", "text": "It snows."},
              {"when": "<tool_response>\nclosed", "text": "Done."},
              {"when": "Weather", "text": "Let me see.",
               "calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]},
              {"when": "Both", "calls": [{"name": "patch", "arguments": {"input": INPUT}},
                                         {"name": "agents__close", "arguments": {"id": "7"}}]},
              {"text": "Hello."}]
    with Scripted(server, script, os.path.join(TESTS, "data", "templates", "agent.jinja")) as s:
        client = connect(s.port)
        ask = {"model": "scripted", "tools": [WEATHER, PATCH, AGENTS], "include": ["reasoning.encrypted_content"],
               "extra_body": {"enable_thinking": True}}
        told = [{"role": "user", "content": "Weather in Oslo?"}]
        r = both(client, input=told, **ask)
        assert [i.type for i in r.output] == ["reasoning", "message", "function_call"], r.output
        reasoning, message, call = r.output
        assert reasoning.content[0].text and not reasoning.summary and message.content[0].text == "Let me see."
        assert (call.name, json.loads(call.arguments), call.namespace) == ("weather", {"city": "Oslo"}, None)
        assert 0 < r.usage.output_tokens_details.reasoning_tokens < r.usage.output_tokens
        # With the reasoning sealed, as such or as it was: the prompt is the same.
        sealed = {"type": "reasoning", "summary": [], "encrypted_content": reasoning.encrypted_content}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "-3 degrees"}
        counts = set()
        for first in (reasoning.to_dict(), sealed):
            more = told + [first, message.to_dict(), call.to_dict(), result]
            last = both(client, input=more, **ask)
            assert last.output_text == "It snows."
            counts.add(last.usage.input_tokens)
        assert len(counts) == 1 and last.usage.input_tokens_details.cached_tokens > 100
        summary = both(client, input=told, reasoning={"summary": "auto"}, **ask).output[0]
        assert summary.summary[0].text == reasoning.content[0].text and not summary.content
        r = both(client, input="Both, please.", **ask)
        custom, close = [i for i in r.output if i.type != "reasoning"]
        assert (custom.type, custom.name, custom.input) == ("custom_tool_call", "patch", INPUT)
        assert (close.name, close.namespace, json.loads(close.arguments)) == ("close", "agents", {"id": "7"})
        history = [{"role": "user", "content": "Both, please."}, *[i.to_dict() for i in r.output],
                   {"type": "custom_tool_call_output", "call_id": custom.call_id, "output": "patched"},
                   {"type": "function_call_output", "call_id": close.call_id,
                    "output": [{"type": "input_text", "text": "closed"}]}]
        assert both(client, input=history, **ask).output_text == "Done."
        alone = both(client, input="Both, please.", parallel_tool_calls=False, **ask)
        assert [i.type for i in alone.output if i.type != "reasoning"] == ["custom_tool_call"]
        none = checked(client.responses.create(input="Weather?", tool_choice="none", **ask))
        assert not [i for i in none.output if i.type.endswith("_call")]


def main():
    program, model, server = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        with t9server.serving(program, model, "--store", os.path.join(folder, "r.db")) as port:
            t = Tester(connect(port))
            t9server.run_tests(t)
    check_clients_and_restart(program, model)
    check_tools(server)


if __name__ == "__main__":
    main()
