// Markdown of a hostile model, in a DOM without a browser. The browser's own test repeats this under the real policy.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { test } from "node:test";
import { ATTACKS, allowedOnly } from "../attacks.mjs";

const require = createRequire(`${process.env.T9_WEB_TEST_PACKAGES}/node_modules/here.js`);
const { JSDOM } = require("jsdom");
const { makeMarkdown } = await import(pathToFileURL(process.env.T9_WEB_MARKDOWN).href);
const { window } = new JSDOM("<!doctype html><body></body>");
const { document } = window;
const copied = [];
const render = makeMarkdown(window, { onCopy: (text) => copied.push(text) });

function shown(text) {
  const el = document.createElement("div");
  render(el, text);
  return el;
}

test("markup of a model stays text", () => {
  for (const attack of ATTACKS) assert.equal(allowedOnly(shown(attack)), "", attack);
});

test("usual Markdown", () => {
  const el = shown("# Head\n\n**bold** and `code`\n\n- one\n- [x] two\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n> quote\n\nx<sub>2</sub>");
  assert.equal(el.querySelector("h3").textContent, "Head");
  assert.equal(el.querySelector("strong").textContent, "bold");
  assert.match(el.querySelector("ul").textContent, /☑ two/);
  assert.equal(el.querySelectorAll("td").length, 2);
  assert.equal(el.querySelector("sub").textContent, "2");
  assert.ok(el.querySelector("blockquote"));
  assert.equal(el.querySelectorAll("input").length, 0);
});

test("links open elsewhere and tell nothing; pictures are links", () => {
  const a = shown("[x](https://example.org/)").querySelector("a");
  assert.equal(a.getAttribute("rel"), "noopener noreferrer nofollow");
  assert.equal(a.getAttribute("target"), "_blank");
  const picture = shown("![a cat](https://example.org/cat.png)");
  assert.equal(picture.querySelector("img"), null);
  assert.equal(picture.querySelector("a").textContent, "a cat");
});

test("code is coloured, copied whole, and shown as it is", () => {
  const code = "def f(x):\n    return '<b>&amp;</b>'";
  const el = shown(`\`\`\`python\n${code}\n\`\`\``);
  assert.equal(el.querySelector("code").textContent, code);
  assert.ok(el.querySelector(".hljs-keyword"));
  assert.equal(el.querySelector("b"), null);
  el.querySelector("button").click();
  assert.deepEqual(copied.splice(0), [code]);
  assert.equal(shown("```\"><img src=x onerror=alert(1)>\nx\n```").querySelector("img"), null);
});

test("a growing text ends as the whole one, and keeps its finished blocks", () => {
  const text = "Para one.\n\n```js\nlet a = 1;\n\nlet b = 2;\n```\n\n1. x\n2. y\n\nEnd **now**.";
  const el = document.createElement("div");
  let first = null;
  for (let n = 1; n <= text.length; n++) {
    render(el, text.slice(0, n));
    if (n === 12) first = el.firstElementChild;
  }
  assert.equal(el.innerHTML, shown(text).innerHTML);
  assert.equal(el.firstElementChild, first);
  render(el, "");
  assert.equal(el.childElementCount, 0);
});
