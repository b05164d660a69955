// Events from pieces cut anywhere.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../../web/src/sse.js";

const STREAM = ': a comment\r\ndata: {"a":1}\r\n\r\ndata: one\ndata:two\n\nevent: ping\rdata: 3\r\rid: 7\nretry: 5\ndata\n\n\n\ndata: [DONE]\n\n';
const EVENTS = [
  { event: "message", data: '{"a":1}' },
  { event: "message", data: "one\ntwo" },
  { event: "ping", data: "3" },
  { event: "message", data: "" },
  { event: "message", data: "[DONE]" },
];

test("one piece", () => {
  assert.deepEqual(new SseParser().push(STREAM), EVENTS);
});

test("every size of piece gives the same events", () => {
  for (let size = 1; size <= STREAM.length; size++) {
    const parser = new SseParser();
    const got = [];
    for (let at = 0; at < STREAM.length; at += size) got.push(...parser.push(STREAM.slice(at, at + size)));
    assert.deepEqual(got, EVENTS, `pieces of ${size}`);
  }
});

test("an event that is not ended is not told", () => {
  assert.deepEqual(new SseParser().push("data: x\n"), []);
});

test("a mark of the byte order is skipped, once", () => {
  assert.deepEqual(new SseParser().push("\ufeffdata: x\n\n"), [{ event: "message", data: "x" }]);
  assert.deepEqual(new SseParser().push("data: \ufeffx\n\n"), [{ event: "message", data: "\ufeffx" }]);
});

test("an endless event is refused", () => {
  const parser = new SseParser();
  const piece = "x".repeat(1 << 20);
  assert.throws(() => {
    for (let i = 0; i < 20; i++) parser.push(piece);
  }, /too large/);
  const lines = new SseParser();
  assert.throws(() => {
    for (let i = 0; i < 20; i++) lines.push(`data: ${piece}\n`);
  }, /too large/);
});
