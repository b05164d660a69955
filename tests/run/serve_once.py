#!/usr/bin/env python3
"""The program as a user meets it: starts, answers one streamed question, and stops on SIGTERM with status 0.

    serve_once.py build/tempo9 MODEL.gguf
"""
import sys
import time

import t9server


def main():
    program, model = sys.argv[1:]
    begin = time.monotonic()
    with t9server.Server(program, model) as server:
        started = time.monotonic()
        pieces = []
        reply = t9server.chat_stream(
            server, {"model": "default", "messages": [{"role": "user", "content": "Name three colours."}],
                     "max_tokens": 24, "temperature": 0},
            on_chunk=lambda reply: pieces.append(len(reply.text)))
        answered = time.monotonic()
        if reply.status != 200 or reply.error or reply.finish not in ("stop", "length") or not 0 < reply.tokens <= 24:
            raise SystemExit("serve_once: a wrong answer: %r" % reply)
        if len(set(pieces)) < min(reply.tokens, 3):
            raise SystemExit("serve_once: the answer did not come in pieces: %r" % pieces)
        code = server.stop()
        if code != 0:
            raise SystemExit("serve_once: status %s after SIGTERM: %s" % (code, server.stderr()[-2000:]))
    print("started in %.1f s, %d tokens in %.1f s, stopped in %.1f s: %r" % (
        started - begin, reply.tokens, answered - started, time.monotonic() - answered, reply.text[:80]))


if __name__ == "__main__":
    main()
