// What is sent of a conversation, and its forms outside the page.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sayableEnd } from "../../../web/src/announce.js";
import {
  CONTROLS, NUMBERS, fileName, fromJson, newConversation, readNumber, requestBody, takeChunk, titleFrom, titleOf, toJson, toMarkdown,
} from "../../../web/src/conversation.js";

function sample() {
  const c = newConversation({ system: "Be short.", params: { temperature: 0, seed: 7 } });
  c.messages.push({ role: "user", content: "Hi **you**" }, { role: "assistant", content: "", error: {} }, { role: "user", content: "Again" },
    { role: "assistant", content: "Hello", model: "m", timings: { predicted_n: 1 } });
  return c;
}

test("the request has the messages that say something, and the settings that were made", () => {
  const body = requestBody(sample());
  assert.deepEqual(body.messages.map((m) => [m.role, m.content]), [["system", "Be short."], ["user", "Hi **you**"], ["user", "Again"], ["assistant", "Hello"]]);
  assert.equal(body.temperature, 0);
  assert.equal(body.seed, 7);
  assert.equal(body.stream, true);
  for (const absent of ["top_p", "top_k", "min_p", "max_tokens"]) assert.ok(!(absent in body), absent);
});

test("numbers are within the range of their control, or absent", () => {
  const by = Object.fromEntries([...CONTROLS, ...NUMBERS].map((c) => [c.name, c]));
  assert.equal(readNumber(by.temperature, "0"), 0);
  assert.equal(readNumber(by.temperature, " 1.5 "), 1.5);
  for (const bad of ["", " ", "x", "-1", "2.1", "NaN", "1e999"]) assert.equal(readNumber(by.temperature, bad), null, bad);
  assert.equal(readNumber(by.top_k, "1.5"), null);
  assert.equal(readNumber(by.seed, "9007199254740993"), null);
  assert.equal(readNumber(by.max_tokens, "0"), null);
});

test("chunks add up", () => {
  const m = { content: "" };
  for (const chunk of [
    { model: "m", choices: [{ delta: { role: "assistant", content: "" } }] }, { choices: [{ delta: { content: "a" } }] }, { choices: [{ delta: { content: "b" }, finish_reason: null }] },
    { choices: [{ delta: {}, finish_reason: "length" }], timings: { predicted_n: 2 }, tempo9: { seed: 3 }, warnings: ["w"] }, { choices: [], usage: { total_tokens: 5 } },
  ]) takeChunk(m, chunk);
  assert.deepEqual(m, { content: "ab", model: "m", finish: "length", timings: { predicted_n: 2 }, seed: 3, warnings: ["w"], usage: { total_tokens: 5 } });
});

test("titles are the first line, cut between words", () => {
  assert.equal(titleFrom("  two\n words "), "two words");
  assert.equal(titleFrom(`${"word ".repeat(20)}`), "word word word word word word word word word…");
  assert.equal([...titleFrom("🦊".repeat(60))].length, 49);
  assert.equal(titleOf(newConversation()), "New chat");
  assert.equal(titleOf({ title: "named", messages: [] }), "named");
});

test("what is exported comes back", () => {
  const before = sample();
  before.title = "A title";
  const [after] = fromJson(toJson([before]));
  assert.notEqual(after.id, before.id);
  assert.equal(after.title, "A title");
  assert.equal(after.system, before.system);
  assert.deepEqual(after.params, before.params);
  assert.equal(after.created, before.created);
  assert.deepEqual(after.messages.map((m) => [m.role, m.content]), before.messages.map((m) => [m.role, m.content]));
});

test("a file of strangers gives conversations or a message", () => {
  assert.throws(() => fromJson("{"), /not JSON/);
  for (const other of ["null", "[]", "{}", '{"format":"x","conversations":[]}', '{"format":"tempo9-conversations","conversations":{}}'])
    assert.throws(() => fromJson(other), /no export/, other);
  const hostile = { format: "tempo9-conversations", conversations: [null, 7, {
    title: { toString: 1 }, system: 5, created: "x", params: { temperature: 99, __proto__: { polluted: 1 }, seed: "3" },
    messages: [null, { role: "system", content: "x" }, { role: "user", content: 5 }, { role: "user", content: "ok", extra: "<b>" }, "x"] }] };
  const got = fromJson(JSON.stringify(hostile));
  assert.equal(got.length, 3);
  assert.deepEqual(got[2].messages.map((m) => [m.role, m.content, m.extra]), [["user", "ok", undefined]]);
  assert.deepEqual(got[2].params, { seed: 3 });
  assert.equal(got[2].title, "");
  assert.equal({}.polluted, undefined);
});

test("Markdown and file names", () => {
  const text = toMarkdown(sample());
  assert.match(text, /^# Hi \*\*you\*\*\n/);
  assert.ok(text.indexOf("## System\n\nBe short.") < text.indexOf("## You\n\nHi **you**"));
  assert.ok(text.endsWith("## m\n\nHello\n"));
  assert.equal(fileName({ title: "Où est ../../le Chat?", messages: [] }, "md"), "ou-est-le-chat.md");
  assert.equal(fileName({ title: "日本", messages: [] }, "json"), "conversation.json");
});

test("a screen reader gets whole sentences, each once", () => {
  const text = "One. Two is lo";
  assert.equal(text.slice(0, sayableEnd(text, 0, false)), "One. ");
  assert.equal(sayableEnd(text, 5, false), 5);
  assert.equal(sayableEnd(text, 5, true), text.length);
  const long = "word ".repeat(100);
  assert.equal(sayableEnd(long, 0, false), long.length);
});
