#!/usr/bin/env python3
"""Anthropic's interface through the official `anthropic` client against a running program.

    http_anthropic.py PROGRAM MODEL.gguf

Exit 77 when the client is not installed. What is checked, whole and streamed: text, usage and what
the cache gave, stop sequences, max_tokens, a history of thoughts, calls and results, marks of the
cache, counted tokens, models, errors by the client's own classes, a stream that is left in
mid-answer, and streams at once that each equal their solo run.
"""

import concurrent.futures
import sys
import time
import urllib.request

try:
    import anthropic
except ImportError:
    print("the anthropic package is not installed: skipped")
    sys.exit(77)

import t9server

ASK = [{"role": "user", "content": "Name three colours. \u65e5\u672c \U0001F600"}]
TOOLS = [{"name": "weather", "description": "Weather of a city",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
         {"name": "now", "input_schema": {"type": "object", "properties": {}}}]
LONG = "Tell it in few words. " * 40
MARK = {"type": "ephemeral"}


def connect(port, key="none", **o):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{port}", api_key=key, max_retries=0,
                               timeout=120, **o)


def tokens_of(usage):
    return (usage.input_tokens + usage.cache_read_input_tokens
            + usage.cache_creation_input_tokens)


def text_of(message):
    return "".join(b.text for b in message.content if b.type == "text")


def request(**o):
    """Parameters of a call: the client's newest form has none for sampling, the server still does."""
    more = {k: o.pop(k) for k in ("temperature", "top_p", "top_k", "seed") if k in o}
    more.update(o.pop("extra_body", {}))
    return {**o, "extra_body": more}


class Tester:
    def __init__(self, client):
        self.c = client
        self.model = client.models.list().data[0].id

    def ask(self, messages=None, **o):
        return self.c.messages.create(**request(**{
            "model": self.model, "messages": messages or ASK, "max_tokens": 12, **o}))

    def streamed(self, messages=None, **o):
        """A stream read event by event; its grammar is checked."""
        message, blocks, stopped, usage = None, [], None, None
        kinds = {"text_delta": "text", "thinking_delta": "thinking",
                 "input_json_delta": "partial_json", "signature_delta": "signature"}
        open_block = None
        for ev in self.ask(messages, stream=True, **o):
            assert (message is None) == (ev.type == "message_start"), ev
            assert stopped is None or ev.type == "message_stop", ev
            if ev.type == "message_start":
                message = ev.message
                assert message.content == [] and message.stop_reason is None
                assert message.usage.output_tokens == 0 and tokens_of(message.usage) > 0
            elif ev.type == "content_block_start":
                assert open_block is None and ev.index == len(blocks)
                open_block = ev.index
                blocks.append([ev.content_block.type, ""])
            elif ev.type == "content_block_delta":
                assert ev.index == open_block
                piece = getattr(ev.delta, kinds[ev.delta.type])
                assert piece, "an empty delta"
                if ev.delta.type != "signature_delta":
                    blocks[-1][1] += piece
            elif ev.type == "content_block_stop":
                assert ev.index == open_block
                open_block = None
            elif ev.type == "message_delta":
                assert open_block is None
                stopped, usage = ev.delta, ev.usage
        assert stopped is not None and tokens_of(usage) == tokens_of(message.usage)
        return blocks, stopped, usage, message

    def same(self, **o):
        """A request whole, as events and by the client's own helper; returns the whole reply."""
        whole = self.ask(**o)
        assert whole.type == "message" and whole.role == "assistant" and whole.id.startswith("msg_")
        assert all(b.type != "text" or b.text for b in whole.content), "an empty block"
        blocks, stopped, usage, _ = self.streamed(**o)
        assert [b.type for b in whole.content] == [b[0] for b in blocks], (whole, blocks)
        for b, (kind, text) in zip(whole.content, blocks):
            assert kind != "text" or b.text == text
            assert kind != "thinking" or b.thinking == text
        assert (whole.stop_reason, whole.stop_sequence) == (stopped.stop_reason,
                                                            stopped.stop_sequence)
        assert tokens_of(whole.usage) == tokens_of(usage)
        assert whole.usage.output_tokens == usage.output_tokens
        with self.c.messages.stream(**request(**{
                "model": self.model, "messages": ASK, "max_tokens": 12, **o})) as s:
            text = "".join(s.text_stream)
            final = s.get_final_message()
        assert text == text_of(whole) == text_of(final)
        assert final.stop_reason == whole.stop_reason
        assert final.usage.output_tokens == whole.usage.output_tokens
        return whole

    def test_plain(self):
        for o in ({"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 5},
                  {"top_k": 5, "seed": 6},
                  {"temperature": 0, "system": "You are brief."},
                  {"temperature": 0, "system": [{"type": "text", "text": "You are brief."}]}):
            r = self.same(**o)
            assert r.stop_reason in ("end_turn", "max_tokens") and r.usage.output_tokens <= 12
        r = self.ask(max_tokens=1000000000, temperature=0, stop_sequences=["e", "a", " "],
                     extra_body={"no_such_field": 1})
        assert len(r.tempo9["warnings"]) == 2, r.tempo9
        first = self.ask()
        again = self.ask(seed=first.tempo9["seed"])
        assert first.content == again.content
        assert self.ask(max_tokens=0).content == []

    def test_stop(self):
        full = text_of(self.ask(max_tokens=24, temperature=0))
        tried = 0
        for n in (1, 2, 3):
            stop_at = full[3:3 + n]
            if len(full) < 7 or not stop_at.strip():
                continue
            r = self.same(max_tokens=24, temperature=0, stop_sequences=["never", stop_at])
            assert r.stop_reason == "stop_sequence" and r.stop_sequence == stop_at
            assert text_of(r) == full[:full.index(stop_at)]
            tried += 1
        assert tried, full

    def test_usage_and_cache(self):
        system = [{"type": "text", "text": LONG, "cache_control": dict(MARK, ttl="1h")}]
        first = self.ask(system=system)
        assert first.usage.cache_creation_input_tokens > 10 * first.usage.cache_read_input_tokens
        assert first.usage.cache_creation.ephemeral_1h_input_tokens == \
            first.usage.cache_creation_input_tokens
        again = self.ask(system=system)
        assert again.usage.cache_creation_input_tokens == 0
        assert again.usage.cache_read_input_tokens > first.usage.cache_creation_input_tokens // 2
        _, _, _, message = self.streamed(system=system)
        assert message.usage.cache_read_input_tokens >= again.usage.cache_read_input_tokens
        assert tokens_of(first.usage) == tokens_of(again.usage)
        everything = self.ask([{"role": "user", "content": [
            {"type": "text", "text": LONG * 2, "cache_control": MARK}]}])
        assert everything.usage.input_tokens == 0 < everything.usage.cache_creation_input_tokens

    def history(self, thought):
        return ASK + [
            {"role": "assistant", "content": [
                thought, {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "-3"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True,
                 "content": [{"type": "text", "text": "no clock"}]},
                {"type": "text", "text": "So?"}]}]

    def test_tools(self):
        told = self.history({"type": "thinking", "thinking": "Hm.", "signature": "of another"})
        offered = self.same(messages=told, tools=TOOLS, temperature=0)
        plain = self.same(messages=told, temperature=0)
        assert tokens_of(offered.usage) > tokens_of(plain.usage) + 20, "the tools are in the prompt"
        none = self.ask(told, tools=TOOLS, tool_choice={"type": "none"})
        assert tokens_of(none.usage) == tokens_of(plain.usage)
        one = self.ask(told, tools=TOOLS, temperature=0, tool_choice={
            "type": "auto", "disable_parallel_tool_use": True})
        assert tokens_of(one.usage) == tokens_of(offered.usage)
        built_in = self.ask(tools=[{"type": "bash_20250124", "name": "bash"},
                                   {"type": "web_search_20250305", "name": "web_search"}])
        assert any("web_search_20250305" in w for w in built_in.tempo9["warnings"])

    def test_thinking(self):
        """What this server signs is known when it comes back, and known to be changed."""
        for kind in ({"type": "disabled"}, {"type": "adaptive"},
                     {"type": "enabled", "budget_tokens": 1024}):
            self.ask(thinking=kind, max_tokens=2000 if "budget_tokens" in kind else 12,
                     stop_sequences=["e", "a", " "])
        signed = {"type": "thinking", "thinking": "Let me think.",
                  "signature": "t9s10eb285279d58c00ac786bba41e3a00c2"}
        r = self.ask(self.history(signed))
        assert not any("changed" in w for w in r.tempo9.get("warnings", []))
        r = self.ask(self.history(dict(signed, thinking="Let me not.")))
        assert any("changed" in w for w in r.tempo9["warnings"])

    def test_count(self):
        told = self.history({"type": "thinking", "thinking": "Hm.", "signature": "x"})
        system = {"role": "system", "content": "Plan mode is off."}
        for o in ({"messages": ASK}, {"messages": ASK, "system": "Be brief."},
                  {"messages": told, "tools": TOOLS}, {"messages": told + [system]},
                  {"messages": ASK, "thinking": {"type": "adaptive"}}):
            n = self.c.messages.count_tokens(model=self.model, **o).input_tokens
            assert n == tokens_of(self.ask(**o).usage), o

    def test_models(self):
        page = self.c.models.list(limit=5)
        assert page.data[0].type == "model" and page.data[0].display_name
        assert page.data[0].created_at.year >= 2026 and not page.has_more
        assert page.first_id == page.data[0].id and page.last_id == page.data[-1].id
        assert [m.id for m in self.c.models.list()] == [m.id for m in page.data]
        assert self.c.models.retrieve(self.model).id == self.model

    def test_beta(self):
        r = self.c.beta.messages.create(
            model=self.model, messages=ASK, max_tokens=8, betas=["context-management-2025-06-27"],
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
        assert r.type == "message" and "warnings" not in r.tempo9, r

    def test_head(self):
        url = str(self.c.base_url)
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as f:
            assert f.status == 200

    def test_cancel(self):
        """Leaving a stream ends its answer: the next one finds the engine idle."""
        for _ in range(3):
            with self.c.messages.stream(model=self.model, messages=ASK, max_tokens=3000) as s:
                for event in s:
                    if event.type == "content_block_delta":
                        break
        url = str(self.c.base_url).rstrip("/") + "/v1/state"
        for _ in range(200):
            with urllib.request.urlopen(url) as f:
                if b'"running":0' in f.read():
                    return
            time.sleep(0.02)
        raise AssertionError("an answer goes on that nobody reads")

    def refused(self, kind, type_, words, call):
        try:
            call()
        except kind as e:
            assert e.type == type_ and words in e.message and e.request_id, e
            return
        raise AssertionError(f"{kind.__name__} expected")

    def test_errors(self):
        bad, what = anthropic.BadRequestError, "invalid_request_error"
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
        for words, o in (
                ("temperature", {"temperature": -1}), ("max_tokens", {"max_tokens": -1}),
                ("image", {"messages": [{"role": "user", "content": [image]}]}),
                ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "any"}}),
                ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "now"}}),
                ("tools[1].name", {"tools": TOOLS[:1] * 2}),
                ("tools[0].strict", {"tools": [dict(TOOLS[0], strict=True)]}),
                ("bash_20990101", {"tools": [{"type": "bash_20990101", "name": "bash"}]}),
                ("output_config.format", {"output_config": {"format": {
                    "type": "json_schema", "schema": {"type": "object"}}}}),
                ("messages[0].content", {"messages": [{"role": "user", "content": []}]}),
                ("assistant's", {"messages": ASK + [{"role": "assistant", "content": "A"}]}),
                ("2048 tokens", {"messages": [{"role": "user", "content": "long " * 200000}]})):
            self.refused(bad, what, words, lambda o=o: self.ask(**o))
            self.refused(bad, what, words, lambda o=o: self.ask(stream=True, **o))
        self.refused(anthropic.NotFoundError, "not_found_error", "no-such",
                     lambda: self.ask(model="no-such"))
        self.refused(anthropic.NotFoundError, "not_found_error", "no-such",
                     lambda: self.c.models.retrieve("no-such"))

    def test_together(self):
        jobs = [{"messages": [{"role": "user", "content": f"Count from {i} upwards."}],
                 "max_tokens": 16, "temperature": i % 2, "seed": i}
                for i in range(6)]

        def run(job):
            return self.streamed(**job)[0]

        solo = [run(j) for j in jobs]
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            assert list(pool.map(run, jobs)) == solo


def check_keys_and_limits(program, model):
    """Errors of a key and of a busy server have classes of their own; strict refuses what was left out."""
    with t9server.serving(program, model, "--api-key", "secret", "--max-per-client", "1", "--strict",
                          "--queue", "1", "--max-batch", "1") as port:
        t = Tester(connect(port, "secret"))
        t.refused(anthropic.AuthenticationError, "authentication_error", "key",
                  lambda: connect(port, "wrong").models.list())
        by_token = anthropic.Anthropic(base_url=f"http://127.0.0.1:{port}", auth_token="secret",
                                       api_key=None, max_retries=0)
        assert by_token.models.list().data
        t.refused(anthropic.BadRequestError, "invalid_request_error", "web_search_20250305",
                  lambda: t.ask(tools=[{"type": "web_search_20250305", "name": "web_search"}]))
        t.refused(anthropic.BadRequestError, "invalid_request_error", "no_such_field",
                  lambda: t.ask(extra_body={"no_such_field": 1}))

        def one(_):
            try:
                t.ask(max_tokens=200)
                return None
            except anthropic.APIStatusError as e:
                return (type(e).__name__, e.type)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            kinds = set(pool.map(one, range(8)))
        assert ("RateLimitError", "rate_limit_error") in kinds and None in kinds, kinds
        assert kinds <= {None, ("RateLimitError", "rate_limit_error"),
                         ("ServiceUnavailableError", "overloaded_error")}, kinds


def main():
    begin = time.monotonic()
    with t9server.serving(sys.argv[1], sys.argv[2]) as port:
        t = Tester(connect(port))
        t9server.run_tests(t)
    check_keys_and_limits(sys.argv[1], sys.argv[2])
    print(f"anthropic {anthropic.__version__}: passed in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
