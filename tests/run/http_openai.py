#!/usr/bin/env python3
"""The OpenAI interface through the official `openai` client against a running program.

    http_openai.py PROGRAM MODEL.gguf

Exit 77 when the client is not installed. What is checked, whole and streamed: text, usage, finish
reasons, tools, stop strings, seeds, several choices, log probabilities, penalties and bias, stop tokens, token
ids, completions with echo and token prompts, errors by the client's own classes, and streams at once
that each equal their solo run.
"""

import concurrent.futures
import json
import math
import os
import struct
import sys
import tempfile
import time
import urllib.request

try:
    import openai
except ImportError:
    print("the openai package is not installed: skipped")
    sys.exit(77)

import t9server

ASK = [{"role": "system", "content": "You are brief."},
       {"role": "user", "content": "Name three colours. \u65e5\u672c \U0001F600"}]


class Answer:
    """One choice, gathered from a stream or taken from a whole reply."""

    def __init__(self):
        self.text, self.finish, self.roles = "", None, 0
        self.logprobs, self.ids, self.stop_reason = [], [], None


class Tester:
    def __init__(self, client):
        self.c = client
        self.model = client.models.list().data[0].id

    def chat(self, messages=None, **o):
        return self.c.chat.completions.create(model=self.model, messages=messages or ASK, **o)

    def text(self, prompt, **o):
        return self.c.completions.create(model=self.model, prompt=prompt, **o)

    def streamed(self, messages=None, **o):
        answers, usage = {}, None
        for chunk in self.chat(messages, stream=True, stream_options={"include_usage": True}, **o):
            usage = chunk.usage or usage
            for c in chunk.choices:
                a = answers.setdefault(c.index, Answer())
                assert a.finish is None, "something after the end of a choice"
                a.text += c.delta.content or ""
                a.roles += c.delta.role == "assistant"
                a.finish = c.finish_reason
                a.logprobs += c.logprobs.content if c.logprobs else []
                a.ids += getattr(c, "token_ids", None) or []
                a.stop_reason = getattr(c, "stop_reason", None)
        assert all(a.roles == 1 for a in answers.values())
        return [answers[i] for i in range(len(answers))], usage

    # ---- the same, whole and streamed ----

    def same(self, **o):
        """A chat request both ways; returns the whole reply."""
        whole = self.chat(**o)
        answers, usage = self.streamed(**o)
        assert len(answers) == len(whole.choices) == o.get("n", 1)
        for i, (a, c) in enumerate(zip(answers, whole.choices)):
            assert c.index == i
            assert a.text == c.message.content, (a.text, c.message.content)
            assert a.finish == c.finish_reason and a.finish in ("stop", "length")
            assert a.ids == (getattr(c, "token_ids", None) or [])
            assert a.stop_reason == getattr(c, "stop_reason", None)
            assert a.logprobs == (c.logprobs.content if c.logprobs else [])
        assert whole.usage.prompt_tokens == usage.prompt_tokens > 0
        assert whole.usage.completion_tokens == usage.completion_tokens
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
        return whole

    def test_plain(self):
        assert self.c.models.retrieve(self.model).id == self.model
        for o in ({"temperature": 0}, {"temperature": 0.8, "seed": 11, "top_p": 0.9},
                  {"seed": 3, "extra_body": {"top_k": 5, "min_p": 0.02}}):
            r = self.same(max_tokens=24, **o)
            assert r.usage.completion_tokens <= 24
        first = self.chat(max_tokens=1, temperature=0, extra_body={"return_token_ids": True})
        assert self.chat(max_tokens=1000000000, temperature=0, extra_body={
            "stop_token_ids": first.choices[0].token_ids}).warnings
        first = self.chat(max_completion_tokens=12)
        again = self.chat(max_tokens=12, seed=first.tempo9["seed"])
        assert first.choices[0].message.content == again.choices[0].message.content
        r = self.chat([{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
                       {"role": "user", "content": [{"type": "text", "text": "a"},
                                                    {"type": "text", "text": "b"}]}],
                      max_tokens=4, reasoning_effort="low",
                      extra_body={"chat_template_kwargs": {"x": 1}, "no_such_field": 1})
        assert any("no_such_field" in w for w in r.warnings)

    def test_stop(self):
        full = self.chat(max_tokens=24, temperature=0,
                         extra_body={"ignore_eos": True}).choices[0].message.content
        tried = 0
        for n in (1, 2, 3, 5):
            stop = full[4:4 + n]
            if len(full) < 8 or not stop.strip():
                continue
            r = self.same(max_tokens=24, temperature=0, stop=[stop, "never to be seen"],
                          logprobs=True, extra_body={"ignore_eos": True})
            assert r.choices[0].message.content == full[:full.index(stop)]
            assert r.choices[0].finish_reason == "stop"
            tried += 1
        assert tried, full

    def test_choices(self):
        r = self.same(n=5, seed=7, max_tokens=16, temperature=1.5)
        texts = [c.message.content for c in r.choices]
        assert len(set(texts)) > 1, texts
        assert self.chat(seed=7, max_tokens=16,
                         temperature=1.5).choices[0].message.content == texts[0]
        one = self.chat(seed=7, max_tokens=16)
        assert r.usage.prompt_tokens == one.usage.prompt_tokens

    def test_logprobs(self):
        r = self.same(max_tokens=12, logprobs=True, top_logprobs=5, temperature=0,
                      extra_body={"return_token_ids": True})
        c = r.choices[0]
        entries = c.logprobs.content
        assert len(entries) == len(c.token_ids) == r.usage.completion_tokens
        assert len(r.prompt_token_ids) == r.usage.prompt_tokens
        for e in entries:
            assert len(e.top_logprobs) == 5
            tops = [t.logprob for t in e.top_logprobs]
            assert tops == sorted(tops, reverse=True) and e.logprob == tops[0]
            assert sum(math.exp(t) for t in tops) <= 1.0001
        warm = self.same(max_tokens=6, logprobs=True, temperature=1.3, seed=5, presence_penalty=1)
        assert all(e.logprob <= 0 and not e.top_logprobs for e in warm.choices[0].logprobs.content)

    def test_shaping(self):
        greedy = self.chat(max_tokens=8, temperature=0, extra_body={"return_token_ids": True})
        first = greedy.choices[0].token_ids[0]
        r = self.same(max_tokens=8, temperature=0, logit_bias={str(first): -100},
                      extra_body={"return_token_ids": True})
        assert r.choices[0].token_ids[0] != first
        r = self.same(max_tokens=8, temperature=0, logit_bias={"70": 100}, frequency_penalty=0,
                      extra_body={"return_token_ids": True})
        assert r.choices[0].token_ids == [70] * 8
        r = self.same(max_tokens=40, temperature=0, frequency_penalty=2, presence_penalty=2,
                      extra_body={"return_token_ids": True, "repetition_penalty": 1.5,
                                  "ignore_eos": True})
        ids = r.choices[0].token_ids
        assert len(set(ids)) > len(ids) // 3, ids
        r = self.same(max_tokens=8, temperature=0,
                      extra_body={"stop_token_ids": [first], "return_token_ids": True})
        assert r.choices[0].message.content == "" and r.choices[0].stop_reason == first
        assert r.choices[0].finish_reason == "stop" and r.choices[0].token_ids == []
        r = self.same(max_tokens=8, temperature=0, extra_body={"stop_token_ids": [first],
                                                               "min_tokens": 3})
        assert r.usage.completion_tokens >= 3

        # A stop string counts when it is complete after min_tokens tokens.
        text = greedy.choices[0].message.content
        stop = text[len(text) // 2:len(text) // 2 + 3]
        cut = self.same(max_tokens=8, temperature=0, stop=[stop])
        n = cut.usage.completion_tokens
        late = self.same(max_tokens=8, temperature=0, stop=[stop], extra_body={"min_tokens": n - 1})
        assert late.choices[0].message.content == cut.choices[0].message.content
        later = self.same(max_tokens=8, temperature=0, stop=[stop], extra_body={"min_tokens": n})
        assert len(later.choices[0].message.content) > len(cut.choices[0].message.content)

    # ---- completions ----

    def text_streamed(self, prompt, **o):
        texts, finish, usage = {}, {}, None
        for chunk in self.text(prompt, stream=True, stream_options={"include_usage": True}, **o):
            usage = chunk.usage or usage
            for c in chunk.choices:
                texts[c.index] = texts.get(c.index, "") + c.text
                finish[c.index] = c.finish_reason or finish.get(c.index)
        return [texts.get(i, "") for i in range(len(finish))], finish, usage

    def test_completions(self):
        prompt = "Once upon a time \u65e5"
        for o in ({}, {"echo": True}, {"n": 3, "seed": 1}, {"echo": True, "logprobs": 2, "n": 2}):
            r = self.text(prompt, max_tokens=10, temperature=o.get("n") and 1.2 or 0,
                          **{"seed": 4, **o})
            texts, finish, usage = self.text_streamed(
                prompt, max_tokens=10, temperature=o.get("n") and 1.2 or 0, **{"seed": 4, **o})
            assert [c.text for c in r.choices] == texts, (r, texts)
            assert [c.finish_reason for c in r.choices] == [finish[i] for i in range(len(texts))]
            assert usage.completion_tokens == r.usage.completion_tokens
            if o.get("echo"):
                assert all(t.startswith(prompt) for t in texts)
        several = self.text([prompt, "Two"], max_tokens=6, temperature=0, n=2)
        solo = [self.text(p, max_tokens=6, temperature=0).choices[0].text for p in (prompt, "Two")]
        assert [c.text for c in several.choices] == [solo[0]] * 2 + [solo[1]] * 2
        assert len(self.text(prompt).choices[0].text) <= 16 * 64

    def test_scores(self):
        """Echoed prompts have log probabilities, and they are those of generating the same."""
        r = self.text("Hello wor", max_tokens=6, temperature=0, logprobs=3,
                      extra_body={"return_token_ids": True, "ignore_eos": True})
        made, ids = r.choices[0].logprobs, r.choices[0].token_ids
        again = self.text(r.prompt_token_ids + ids, max_tokens=0, echo=True, logprobs=3)
        scored = again.choices[0].logprobs
        assert again.usage.completion_tokens == 0 and scored.token_logprobs[0] is None
        n = len(r.prompt_token_ids)
        assert scored.tokens[n:] == made.tokens
        assert scored.token_logprobs[n:] == made.token_logprobs
        assert scored.top_logprobs[n:] == made.top_logprobs
        for top, token in zip(scored.top_logprobs[1:], scored.tokens[1:]):
            assert token in top and len(top) <= 4
        for text, offset, token in zip([again.choices[0].text] * n, scored.text_offset,
                                       scored.tokens):
            assert token.startswith("bytes:") or text[offset:].startswith(token)

    def test_tokens(self):
        def post(path, body):
            request = urllib.request.Request(str(self.c.base_url).replace("/v1/", "") + path,
                                             json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as f:
                return json.load(f)

        text = "Hello \u65e5\u672c wor"
        t = post("/tokenize", {"prompt": text, "with_pieces": True})
        assert t["count"] == len(t["tokens"]) == len(t["token_strs"])
        assert post("/detokenize", {"tokens": t["tokens"]})["prompt"].endswith(text)
        chat = post("/tokenize", {"messages": ASK})
        assert chat["count"] == self.chat(max_tokens=1).usage.prompt_tokens
        shown = post("/apply-template", {"messages": ASK})["prompt"]
        assert "Name three colours" in shown
        tools = [{"type": "function", "function": {"name": "weather", "description": "Of a city."}}]
        told = {"messages": ASK, "tools": tools}
        assert "Of a city." in post("/apply-template", told)["prompt"]
        assert post("/tokenize", told)["count"] == self.chat(max_tokens=1, tools=tools).usage.prompt_tokens
        assert post("/apply-template", {**told, "tool_choice": "none"})["prompt"] == shown
        r = self.text(shown, max_tokens=8, temperature=0)
        assert r.choices[0].text == self.chat(max_tokens=8, temperature=0).choices[0].message.content

    # ---- tools ----

    def test_tools(self):
        tools = [{"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}}}} for name in ("weather", "now")]
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        told = ASK + [{"role": "assistant", "content": None, "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "call_1", "content": "-3"}]
        o = {"temperature": 0, "max_tokens": 12, "extra_body": {"return_token_ids": True}}
        plain, offered = (self.chat(told, **o, **more) for more in ({}, {"tools": tools}))
        assert len(offered.prompt_token_ids) > len(plain.prompt_token_ids) + 20, "the tools are in the prompt"
        assert self.chat(told, tools=tools, **o).prompt_token_ids == offered.prompt_token_ids
        none = self.chat(told, tools=tools, tool_choice="none", **o)
        assert none.prompt_token_ids == plain.prompt_token_ids
        streamed, _ = self.streamed(told, tools=tools, parallel_tool_calls=False, **o)
        assert streamed[0].text == (offered.choices[0].message.content or "")
        bad = openai.BadRequestError
        self.refused(bad, "tool_choice", lambda: self.chat(tools=tools, tool_choice="required"))
        self.refused(bad, "tools[0].function.strict", lambda: self.chat(
            tools=[{"type": "function", "function": {"name": "f", "strict": True}}]))
        self.refused(bad, "tools[1].function.name", lambda: self.chat(tools=tools[:1] * 2))

    # ---- errors ----

    def refused(self, kind, param, call):
        try:
            call()
        except kind as e:
            assert param is None or e.param == param, (e.param, param)
            assert e.body["message"] and e.request_id, e
            return
        raise AssertionError(f"{kind.__name__} expected")

    def test_errors(self):
        bad = openai.BadRequestError
        self.refused(bad, "n", lambda: self.chat(n=0))
        self.refused(bad, "n", lambda: self.text(["a"] * 2, n=100))
        self.refused(bad, "temperature", lambda: self.chat(temperature=-1))
        self.refused(bad, "top_logprobs", lambda: self.chat(logprobs=True, top_logprobs=21))
        self.refused(bad, "top_logprobs", lambda: self.chat(top_logprobs=2))
        self.refused(bad, "logit_bias", lambda: self.chat(logit_bias={"x": 1}))
        self.refused(bad, "logit_bias", lambda: self.chat(logit_bias={"1000000": 1}))
        self.refused(bad, "stop_token_ids",
                     lambda: self.chat(extra_body={"stop_token_ids": [1000000]}))
        self.refused(bad, "min_tokens",
                     lambda: self.chat(max_tokens=2, extra_body={"min_tokens": 3}))
        self.refused(bad, "prompt", lambda: self.text([[1, 1000000]]))
        self.refused(bad, "prompt[1]", lambda: self.text([[1], [1, 1000000]]))
        self.refused(bad, "prompt", lambda: self.text([]))
        self.refused(bad, "min_tokens", lambda: self.text("x", max_tokens=0, echo=True,
                                                          extra_body={"min_tokens": 1}))
        self.refused(bad, "max_tokens", lambda: self.text("x", max_tokens=0))
        self.refused(bad, "messages",
                     lambda: self.chat([{"role": "user", "content": "long " * 200000}]))
        self.refused(bad, "temperature", lambda: self.chat(temperature=-1, stream=True))
        self.refused(openai.NotFoundError, "model",
                     lambda: self.c.chat.completions.create(model="no-such", messages=ASK))

    def test_together(self):
        jobs = [{"messages": [{"role": "user", "content": f"Count from {i} upwards."}],
                 "max_tokens": 16, "temperature": i % 2, "seed": i, "n": 1 + i % 3,
                 "presence_penalty": i % 3 - 1, "frequency_penalty": 0.5 * (i % 2)}
                for i in range(6)]

        def run(job):
            return [a.text for a in self.streamed(**job)[0]]

        solo = [run(j) for j in jobs]
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            assert list(pool.map(run, jobs)) == solo


def connect(port, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0,
                         timeout=120)


def check_keys_and_limits(program, model):
    """Errors of a key and of a busy server have classes of their own."""
    with t9server.serving(program, model, "--api-key", "secret", "--max-per-client", "1",
                          "--queue", "1", "--temperature", "0", "--max-batch", "1") as port:
        t = Tester(connect(port, "secret"))
        t.refused(openai.AuthenticationError, None, lambda: connect(port, "wrong").models.list())
        assert t.chat(max_tokens=8).choices == t.chat(max_tokens=8, temperature=0).choices

        def one(_):
            try:
                t.chat(max_tokens=200, extra_body={"ignore_eos": True})
                return None
            except openai.APIStatusError as e:
                return type(e)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            kinds = set(pool.map(one, range(8)))
        assert openai.RateLimitError in kinds and None in kinds, kinds
        assert kinds <= {None, openai.RateLimitError, openai.InternalServerError}, kinds


def recommending(model, path):
    """A copy of the model whose file recommends how to sample it."""
    def member(key, kind, value):
        return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value

    with open(model, "rb") as f:
        data = f.read()
    n_tensors, n_members = struct.unpack("<QQ", data[8:24])
    more = member("general.sampling.temp", 6, struct.pack("<f", 0.25))
    more += member("general.sampling.top_k", 5, struct.pack("<i", 20))
    more += member("general.sampling.min_p", 6, struct.pack("<f", 7))
    n = next(n for n in range(256) if (len(more) + len(member("x", 8, b"")) + 8 + n) % 256 == 0)
    more += member("x", 8, struct.pack("<Q", n) + b"x" * n)  # keeps the alignment of what follows
    good = more.replace(struct.pack("<f", 7), struct.pack("<f", 0.5))
    for name, members in (("bad", more), ("good", good)):
        with open(os.path.join(path, name + ".gguf"), "wb") as f:
            f.write(data[:8] + struct.pack("<QQ", n_tensors, n_members + 4) + members + data[24:])


def check_recommended_sampling(program, model):
    """Options win over the file, and the file over the plain defaults; nonsense in it is not used."""
    with tempfile.TemporaryDirectory() as path:
        recommending(model, path)
        for name, want in (("good", (0.25, 0.9, 20, 0.5)), ("bad", (1, 0.9, 0, 0))):
            with t9server.serving(program, os.path.join(path, name + ".gguf"), "--top-p", "0.9") as port:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/capabilities") as f:
                    d = json.load(f)["model"]["sampling_defaults"]
                assert (d["temperature"], d["top_p"], d["top_k"], d["min_p"]) == want, d


def main():
    begin = time.monotonic()
    with t9server.serving(sys.argv[1], sys.argv[2]) as port:
        t = Tester(connect(port))
        t9server.run_tests(t)
    check_keys_and_limits(sys.argv[1], sys.argv[2])
    check_recommended_sampling(sys.argv[1], sys.argv[2])
    print(f"openai {openai.__version__}: passed in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
