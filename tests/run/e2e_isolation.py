#!/usr/bin/env python3
"""Many conversations at once over HTTP, each with a marker of its own: nobody gets another one's.

  e2e_isolation.py --program PATH --mkgguf PATH [--model M.gguf] [--sanitized] [--conversations N] [--turns 2]

First the conversations run one after the other, with nothing else on the server. Then all of them run together on one whose pages are
too few for them; a part of the clients vanishes in the middle of an answer and asks again. Every answer must be the
one of the conversation alone, and no answer may have another conversation's marker. 64 conversations, 200 with T9_FULL in
the environment. Standard library only.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time

from t9server import Server, Stream, all_at_once, chat, chat_stream

SYSTEMS = ["You are a helpful assistant. Please answer the question with a short answer and then explain the reason.",
           "You are a helpful assistant. Please answer the question with a short answer, and call the tool by name.",
           "The weather in Paris is sunny and the weather in London is rainy. What is the capital of France?"]
QUESTIONS = ["It is not the strongest of the species that survives but the one that is the most responsive to change.",
             "Once upon a time there was a little girl who lived in a village near the forest."]


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def marker(i):
    return "mk-" + hashlib.sha256(b"marker %d" % i).hexdigest()[:8]


def body(i, turn, said):
    """Turn `turn` of conversation i after the answers so far."""
    system = "The code word of this chat is %s." % marker(i) if i % 4 == 3 else SYSTEMS[i % 4]
    messages = [{"role": "system", "content": system}]
    for t in range(turn + 1):
        messages.append({"role": "user", "content": "My code word is %s. %s Say my code word."
                         % (marker(i), QUESTIONS[(i // 4 + t) % 2])})
        if t < turn:
            messages.append({"role": "assistant", "content": said[t]})
    return {"messages": messages, "max_tokens": 240 if 24 <= i < 44 and turn == 0 else 6 + i % 23,
            "seed": i, "temperature": 0.8 if i % 2 else 0, "ignore_eos": 24 <= i < 44}


def talk(server, a, i, torn):
    """The answers of one conversation; `torn`: some requests are left in the middle and asked again."""
    said = []
    for turn in range(a.turns):
        b = body(i, turn, said)
        if torn and (i + turn) % 3 == 0:
            gone = Stream(server, dict(b, stream=True))
            if i % 2:
                gone.wait_bytes(b"data: ")
            gone.tear() if i % 4 < 2 else gone.close()
            b["priority"] = 1  # asked again while it is cached
        answer = (chat_stream if (i + turn) % 2 else chat)(server, b)
        check(answer.status == 200, "conversation %d: %r" % (i, answer))
        said.append(answer.text)
    return said


def count_markers(answers):
    """Other conversations' markers in answers, and answers with their own."""
    whose = {marker(i): i for i in range(len(answers))}
    foreign = own = 0
    for i, said in enumerate(answers):
        for text in said:
            found = {whose[m] for m in re.findall(r"mk-[0-9a-f]{8}", text) if m in whose}
            own += i in found
            foreign += len(found - {i})
    return foreign, own


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--mkgguf", required=True)
    p.add_argument("--model")
    p.add_argument("--kv-memory", default="1M")
    p.add_argument("--sanitized", action="store_true")
    p.add_argument("--conversations", type=int, default=200 if os.environ.get("T9_FULL") else 64)
    p.add_argument("--turns", type=int, default=2)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        if not a.model:
            a.model = os.path.join(tmp, "tiny.gguf")
            subprocess.run([a.mkgguf, a.model, "--width", "64", "--ffn", "128"], check=True)
        t0 = time.monotonic()
        with Server(a.program, a.model, "--kv-memory", "256M") as s:
            alone = [talk(s, a, i, False) for i in range(a.conversations)]
        with Server(a.program, a.model, "--kv-memory", a.kv_memory, "--max-batch", "32") as s:
            together = all_at_once([lambda i=i: talk(s, a, i, True) for i in range(a.conversations)])
            m = s.wait_metric(lambda m: m["tempo9_requests_running"] == 0, "the end")
    wrong = [i for i in range(a.conversations) if alone[i] != together[i]]
    foreign, own = count_markers(together)
    found = {k: int(m['tempo9_prefix_requests_total{found="%s"}' % k]) for k in ("full", "partial", "inflight", "nothing")}
    print("%d conversations of %d turns: %s, %d preemptions, %d cancelled; %d answers with their own marker, "
          "%d foreign markers, %d conversations answered otherwise than alone; %.0f s"
          % (a.conversations, a.turns, found, m["tempo9_preemptions_total"],
             m['tempo9_requests_finished_total{reason="cancelled"}'], own, foreign, len(wrong), time.monotonic() - t0))
    check(not wrong, "conversation %d: %r, alone %r" % (wrong[0], together[wrong[0]], alone[wrong[0]]) if wrong else "")
    check(foreign == 0, "a marker left its conversation")
    check(found["partial"] > 0 and m['tempo9_requests_finished_total{reason="cancelled"}'] > 0,
          "nothing was shared or nobody went away")
    return 0


if __name__ == "__main__":
    sys.exit(main())
