#!/usr/bin/env python3
"""Chat completions through the official `openai` client against a running program.

    http_openai.py PROGRAM MODEL.gguf

Exit 77 when the client is not installed. What is checked: models, whole and streamed answers with
equal text for a seed, usage, finish reasons, stop strings, the seed that comes back, errors by class,
and four streams at once that each equal their solo run.
"""

import re
import subprocess
import sys
import threading
import time

try:
    import openai
except ImportError:
    print("the openai package is not installed: skipped")
    sys.exit(77)


def start(program, model):
    proc = subprocess.Popen([program, "serve", "--gguf", model, "--port", "0"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)
    for line in proc.stderr:
        found = re.search(r"listening on http://[^ ]*:(\d+)", line)
        if found:
            threading.Thread(target=proc.stderr.read, daemon=True).start()
            return proc, int(found.group(1))
    raise SystemExit(f"the server ended with {proc.wait()}")


def streamed(client, model, messages, **options):
    text, finish, usage, roles = "", None, None, []
    for chunk in client.chat.completions.create(
            model=model, messages=messages, stream=True,
            stream_options={"include_usage": True}, **options):
        if chunk.usage:
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if choice.delta.role:
                roles.append(choice.delta.role)
            finish = choice.finish_reason or finish
    assert roles == ["assistant"], roles
    return text, finish, usage


def refused(kind, param, call):
    try:
        call()
    except kind as e:
        assert param is None or e.param == param, (e.param, param)
        return
    raise AssertionError(f"{kind.__name__} expected")


def check(client):
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    ask = [{"role": "system", "content": "You are brief."},
           {"role": "user", "content": "Name three colours. \u65e5\u672c \U0001F600"}]

    def create(**options):
        return client.chat.completions.create(model=model, messages=ask, **options)

    for options in ({"temperature": 0}, {"temperature": 0.8, "seed": 11, "top_p": 0.9}):
        whole = create(max_tokens=24, **options)
        text, finish, usage = streamed(client, model, ask, max_tokens=24, **options)
        assert whole.choices[0].message.content == text and text, (whole, text)
        assert whole.choices[0].finish_reason == finish and finish in ("stop", "length")
        assert whole.usage.prompt_tokens == usage.prompt_tokens > 0
        assert whole.usage.completion_tokens == usage.completion_tokens <= 24
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens

    first = create(max_tokens=12)
    again = create(max_tokens=12, seed=first.tempo9["seed"])
    assert first.choices[0].message.content == again.choices[0].message.content

    full = create(max_tokens=24, temperature=0).choices[0].message.content
    if len(full) > 8:
        stop = full[4:7]
        cut = create(max_tokens=24, temperature=0, stop=[stop])
        assert cut.choices[0].message.content == full[:full.index(stop)]
        assert cut.choices[0].finish_reason == "stop"

    refused(openai.BadRequestError, "n", lambda: create(n=2))
    refused(openai.BadRequestError, "temperature", lambda: create(temperature=-1))
    refused(openai.NotFoundError, "model",
            lambda: client.chat.completions.create(model="no-such", messages=ask))
    refused(openai.BadRequestError, "messages",
            lambda: client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "long " * 200000}]))

    prompts = [[{"role": "user", "content": f"Count from {i} upwards."}] for i in range(4)]
    solo = [streamed(client, model, p, max_tokens=16, temperature=0)[0] for p in prompts]
    together = [None] * len(prompts)

    def one(i):
        together[i] = streamed(client, model, prompts[i], max_tokens=16, temperature=0)[0]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == solo, (together, solo)


def main():
    proc, port = start(sys.argv[1], sys.argv[2])
    begin = time.monotonic()
    try:
        check(openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0,
                            timeout=120))
        print(f"openai {openai.__version__}: passed in {time.monotonic() - begin:.1f} s")
    finally:
        proc.terminate()
        code = proc.wait(60)
    assert code == 0, f"the server ended with {code}"


if __name__ == "__main__":
    main()
