#!/usr/bin/env python3
"""Ollama's API through the official `ollama` client against a running program.

    http_ollama.py PROGRAM MODEL.gguf [SCRIPTED_SERVER]

Exit 77 when the client is not installed. What is checked, whole and streamed: text, counts, durations,
done reasons, options, log probabilities, raw prompts, contexts, suffixes, the lists of models, what is
shown of one, loading, pulls and their progress, errors by the client's own class, a client that
leaves, and the asynchronous client; with the scripted server also tools made of Python functions, their results, and thinking.
"""

import asyncio
import datetime
import os
import sys
import tempfile
import time

try:
    import ollama
except ImportError:
    print("the ollama package is not installed: skipped")
    sys.exit(77)

import hub_double
import t9server

ASK = [{"role": "system", "content": "You are brief."},
       {"role": "user", "content": "Name three colours. \u65e5\u672c \U0001F600"}]
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def refused(status, call, says):
    try:
        call()
    except ollama.ResponseError as e:
        assert e.status_code == status and says in e.error, (e.status_code, e.error)
        return
    raise AssertionError(f"not refused: {says}")


def check_figures(r):
    assert r.done and r.done_reason in ("stop", "length"), r
    assert all(getattr(r, name) > 0 for name in DURATIONS[:3]), r
    assert r.total_duration < 600e9
    assert r.total_duration >= r.prompt_eval_duration + r.eval_duration + r.load_duration, r
    assert r.prompt_eval_count > 0
    at = datetime.datetime.fromisoformat(r.created_at.replace("Z", "+00:00"))
    assert abs(at.timestamp() - time.time()) < 60


class Tester:
    def __init__(self, server):
        self.server = server
        self.c = ollama.Client(host=f"http://127.0.0.1:{server.port}")
        self.model = self.c.list().models[0].model

    def chat(self, messages=None, **o):
        return self.c.chat(model=self.model, messages=messages or ASK, **o)

    def generate(self, prompt, **o):
        return self.c.generate(model=self.model, prompt=prompt, **o)

    # ---- the same, whole and streamed ----

    def same_chat(self, **o):
        whole = self.chat(**o)
        text, probabilities, last = "", [], None
        for part in self.chat(stream=True, **o):
            assert last is None, "something after the end"
            assert part.model == whole.model and part.message.role == "assistant"
            text += part.message.content
            probabilities += part.logprobs or []
            last = part if part.done else None
        assert text == whole.message.content, (text, whole.message.content)
        assert last.done_reason == whole.done_reason and last.eval_count == whole.eval_count
        assert probabilities == list(whole.logprobs or [])
        check_figures(whole)
        check_figures(last)
        return whole

    def same_text(self, prompt, **o):
        whole = self.generate(prompt, **o)
        parts = list(self.generate(prompt, stream=True, **o))
        assert "".join(p.response for p in parts) == whole.response
        assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
        assert parts[-1].context == whole.context
        check_figures(parts[-1])
        return whole

    def test_chat(self):
        for options in ({"temperature": 0}, {"temperature": 0.8, "seed": 11, "top_p": 0.9, "top_k": 40},
                        {"seed": 3, "min_p": 0.02, "repeat_penalty": 1.1, "repeat_last_n": -1},
                        ollama.Options(seed=5, presence_penalty=0.5, frequency_penalty=0.5)):
            n = 16
            if isinstance(options, dict):
                options["num_predict"] = n
            else:
                options.num_predict = n
            r = self.same_chat(options=options, keep_alive="5m", format="")
            assert r.eval_count <= n
        names = {self.model, self.model.removesuffix(":latest"), "default"}
        assert len(names) == 3
        for name in names:
            assert self.c.chat(model=name, messages=ASK, options={"num_predict": 1}).done

    def test_stop(self):
        o = {"temperature": 0, "num_predict": 24}
        full = self.chat(options=o).message.content
        for n in (1, 3):
            stop = full[4:4 + n]
            if len(full) < 8 or not stop.strip():
                continue
            r = self.same_chat(options={**o, "stop": [stop, "never to be seen"]})
            assert r.message.content == full[:full.index(stop)] and r.done_reason == "stop"

    def test_logprobs(self):
        r = self.same_chat(options={"temperature": 0, "num_predict": 6}, logprobs=True, top_logprobs=3)
        assert len(r.logprobs) == r.eval_count
        for t in r.logprobs:
            assert len(t.top_logprobs) == 3 and t.logprob <= 0
            assert abs(t.logprob - t.top_logprobs[0].logprob) < 1e-6
        r = self.same_text("a", options={"temperature": 0, "num_predict": 4}, logprobs=True)
        assert len(r.logprobs) == r.eval_count

    def test_generate(self):
        o = {"temperature": 0, "num_predict": 8}
        first = self.same_text("Hello", system="You are brief.", options=o)
        chat = self.chat([{"role": "system", "content": "You are brief."},
                          {"role": "user", "content": "Hello"}], options=o)
        assert first.response == chat.message.content
        assert len(first.context) >= first.prompt_eval_count + first.eval_count
        more = self.same_text("And now?", context=first.context, options=o)
        assert more.context[:len(first.context)] == first.context
        assert more.prompt_eval_count > len(first.context)
        raw = self.same_text("Once upon a time", raw=True, options=o)
        assert raw.context is None and raw.prompt_eval_count < first.prompt_eval_count
        if "insert" in self.c.show(self.model).capabilities:
            assert self.same_text("def f(", suffix="return 1", options=o).context
        else:
            refused(400, lambda: self.generate("def f(", suffix="return 1"), "fill-in-the-middle")

    def test_models(self):
        listed, running = self.c.list().models, self.c.ps().models
        assert len(listed) == len(running) == 1
        m, p, shown = listed[0], running[0], self.c.show(self.model)
        assert m.model == p.model == p.name and m.digest == p.digest and len(m.digest) == 64
        assert m.size > 0 and p.size > 0 and p.context_length > 0
        assert p.expires_at.year > 2100 and m.modified_at.timestamp() < time.time()
        assert m.details == p.details == shown.details
        assert m.details.format == "gguf" and m.details.families == [m.details.family]
        assert shown.modelinfo["general.architecture"] == m.details.family
        assert shown.modelinfo["general.parameter_count"] > 0
        assert shown.modelinfo["tokenizer.ggml.tokens"] is None
        assert "<|im_start|>" in shown.template and "completion" in shown.capabilities
        assert "tools" in shown.capabilities and "num_ctx" in shown.parameters

    def test_load(self):
        assert self.generate("").done_reason == "load"
        assert self.c.chat(model=self.model).done_reason == "load"
        assert next(self.generate("", stream=True)).done_reason == "load"
        refused(400, lambda: self.generate("", keep_alive=0), "unload")

    def test_errors(self):
        refused(404, lambda: self.c.chat(model="no-such", messages=ASK), "no-such")
        refused(404, lambda: list(self.c.chat(model="no-such", messages=ASK, stream=True)), "no-such")
        refused(404, lambda: self.c.show("no-such"), "no-such")
        refused(400, lambda: self.chat(format="json"), "format")
        refused(400, lambda: self.chat(format={"type": "object"}), "format")
        refused(400, lambda: self.chat(options={"temperature": -1}), "options.temperature")
        refused(400, lambda: self.chat(options={"mirostat": 1}), "options.mirostat")
        refused(400, lambda: self.generate("a", images=[b"x"]), "images")
        refused(400, lambda: self.generate("a", template="{{ .Prompt }}"), "template")
        refused(400, lambda: self.generate("a", raw=True, system="b"), "raw")
        refused(400, lambda: self.generate("a", context=[1 << 30]), "context")
        refused(400, lambda: self.chat([{"role": "user", "content": "a", "images": [b"x"]}]), "images")
        refused(400, lambda: self.c.embed(self.model, "a"), "embeddings")
        refused(400, lambda: self.c.embeddings(self.model, "a"), "embeddings")
        for call in (lambda: self.c.delete(self.model), lambda: self.c.copy(self.model, "b"),
                     lambda: self.c.push("a/b"), lambda: self.c.create("b", from_=self.model)):
            refused(400, call, "not supported")
        long = "word " * 100000
        refused(400, lambda: self.generate(long), "tokens")

    def test_leaving(self):
        """A stream that nobody reads any more ends, and its place is free again."""
        for part in self.chat(stream=True, options={"num_predict": 100000}):
            assert not part.done
            break
        self.server.wait_metric(lambda m: m["tempo9_http_streams"] == 0, "no stream", 20)

    def test_async(self):
        async def run():
            c = ollama.AsyncClient(host=f"http://127.0.0.1:{self.server.port}")
            o = {"temperature": 0, "num_predict": 8}
            whole = await c.chat(model=self.model, messages=ASK, options=o)

            async def streamed():
                text = ""
                async for part in await c.chat(model=self.model, messages=ASK, options=o, stream=True):
                    text += part.message.content
                return text

            assert await asyncio.gather(*(streamed() for _ in range(4))) == [whole.message.content] * 4

        asyncio.run(run())


def check_pull(program, model):
    """The client fetches from a stand-in for the hub, and sees how far it is."""
    data = os.urandom(3 << 20)
    hub = hub_double.Hub({"m-Q8_0.gguf": hub_double.File(data)})
    with tempfile.TemporaryDirectory() as cache, hub:
        hub.rate = 4 << 20
        env = dict(os.environ, HF_ENDPOINT=hub.url(), HF_HUB_CACHE=cache)
        with t9server.Server(program, model, "--allow-pull", env=env) as server:
            c = ollama.Client(host=f"http://127.0.0.1:{server.port}")
            parts = list(c.pull("hf.co/owner/repo:Q8_0", stream=True))
            assert [parts[0].status, parts[-1].status] == ["pulling manifest", "success"], parts
            moves = [p.completed for p in parts if p.total]
            assert moves == sorted(moves) and moves[-1] == len(data), moves
            assert c.pull("owner/repo").status == "success"
            refused(404, lambda: c.pull("other/repo"), "other/repo")
            refused(400, lambda: c.pull("llama3.2"), "OWNER/REPO")
    with t9server.Server(program, model) as server:
        c = ollama.Client(host=f"http://127.0.0.1:{server.port}")
        assert c.pull(c.list().models[0].model).status == "success"
        refused(403, lambda: c.pull("owner/repo"), "--allow-pull")


def get_weather(city: str, days: int) -> str:
    """
    Weather of a city.

    Args:
      city: its name
      days: how many
    """
    return f"{city}, {days} days: -3, snow"


def check_tools(program):
    """A loop as the client's own examples have it: functions, calls, results by name, an answer."""
    import scripted

    script = [{"when": "-3, snow", "text": "It snows in Oslo."},
              {"text": "I look.", "calls": [{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}},
                                            {"name": "get_weather", "arguments": {"city": "Bergen", "days": 1}}]}]
    template = os.path.join(scripted.TESTS, "data", "templates", "agent.jinja")
    with scripted.Scripted(program, script, template) as server:
        c = ollama.Client(host=f"http://127.0.0.1:{server.port}")
        for stream in (False, True):
            messages = [{"role": "user", "content": "Weather?"}]
            parts = c.chat("default", messages, tools=[get_weather], think=True, stream=stream)
            parts = list(parts) if stream else [parts]
            calls = [call for p in parts for call in p.message.tool_calls or []]
            assert [call.function.name for call in calls] == ["get_weather"] * 2
            assert [call.function.arguments for call in calls] == [{"city": "Oslo", "days": 2},
                                                                   {"city": "Bergen", "days": 1}]
            assert "".join(p.message.content for p in parts) == "I look."
            assert "".join(p.message.thinking or "" for p in parts)
            messages.append({"role": "assistant", "content": "I look.", "tool_calls": calls})
            messages += [{"role": "tool", "tool_name": call.function.name,
                          "content": get_weather(**call.function.arguments)} for call in calls]
            r = c.chat("default", messages, tools=[get_weather])
            assert r.message.content == "It snows in Oslo." and not r.message.tool_calls
            assert r.done_reason == "stop"


def main():
    begin = time.monotonic()
    with t9server.Server(sys.argv[1], sys.argv[2]) as server:
        t = Tester(server)
        t9server.run_tests(t)
    check_pull(sys.argv[1], sys.argv[2])
    if len(sys.argv) > 3:
        check_tools(sys.argv[3])
    print(f"ollama: passed in {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
