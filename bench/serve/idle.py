#!/usr/bin/env python3
"""What a silent stream costs: thousands of them wait in the queue behind one long answer.

  idle.py --program build/tempo9 --model M.gguf [--streams 5000] [--limit-kb 32]

One request decodes for as long as it can, alone (--max-batch 1). The others are streams whose
headers have come and that get a comment now and then. Told: resident memory for each of them, and
the CPU time that the server spends on all of them in a second beside the decoding thread's.
"""

import asyncio
import json
import resource
import sys
import time

import common
import host


def body(tokens, text):
    return json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": tokens,
                       "temperature": 0, "ignore_eos": True, "stream": True}).encode()


async def open_stream(port, raw):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                 b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise SystemExit("idle: %s" % head.decode("latin-1"))
    return reader, writer


def rss_kib(pid):
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise SystemExit("idle: the server is gone")


async def measure(a, s):
    pid = s.proc.pid
    port = s.endpoint[1]
    first = await open_stream(port, body(1 << 20, "Tell a very long story."))
    await first[0].readuntil(b"content")
    # What every server allocates once, so that it is not counted for the streams.
    warm = [await open_stream(port, body(8, "x")) for _ in range(16)]
    before = rss_kib(pid)
    begin = time.monotonic()
    streams = []
    for i in range(0, a.streams, 64):
        streams += await asyncio.gather(*[open_stream(port, body(8, "stream %d" % k)) for k in
                                          range(i, min(i + 64, a.streams))])
    opened_s = time.monotonic() - begin
    await asyncio.sleep(a.settle_s)
    after = rss_kib(pid)
    for _, writer in streams + warm + [first]:
        writer.transport.abort()
    return {"streams": len(streams), "opened_s": opened_s, "before_kib": before, "after_kib": after,
            "kb_each": (after - before) * 1024 / 1000 / max(1, len(streams))}


def main():
    p = common.parser(__doc__)
    p.add_argument("--streams", type=int, default=5000)
    p.add_argument("--limit-kb", type=float, default=32)
    p.add_argument("--settle-s", type=float, default=6)
    a = p.parse_args()
    need = a.streams + 256
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(need, hard) if hard > 0 else need, hard))
    a.args += " --max-batch 1 --queue %d --max-connections %d" % (need, need)
    with common.server(a) as s:
        result = asyncio.run(measure(a, s))
    print("%(streams)d silent streams, opened in %(opened_s).1f s: %(kb_each).1f kB each "
          "(%(before_kib)d KiB before, %(after_kib)d KiB with them)" % result)
    problems = []
    if result["kb_each"] > a.limit_kb:
        problems.append("%.1f kB a stream, where the limit is %.1f" % (result["kb_each"], a.limit_kb))
    return common.finish(a, result, problems)


if __name__ == "__main__":
    sys.exit(main())
