// The page in a headless browser against running servers: chat, its dangers, its memory, keys, phones, the dashboard,
// accessibility. Each check says what it saw; the first failure of each is told and the rest goes on.
//
//   node page_e2e.mjs --packages FOLDER --browser PATH --url URL --locked URL --key KEY [--shots FOLDER] [--only WORD]
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ATTACKS, LOOK } from "./attacks.mjs";

const { values: options } = parseArgs({
  options: Object.fromEntries(["packages", "browser", "url", "locked", "key", "shots", "only"].map((name) => [name, { type: "string" }])),
});
const require = createRequire(join(options.packages, "node_modules", "here.js"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const CHAT = "**/v1/chat/completions";

const failures = [];
const begun = Date.now();

function expect(good, what) {
  if (!good) throw new Error(what);
}

async function check(name, body) {
  if (options.only && !name.includes(options.only)) return;
  const at = Date.now();
  try {
    await body();
    console.log(`ok      ${name} (${Date.now() - at} ms)`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED  ${name}: ${error.stack ?? error}`);
  }
}

const browser = await chromium.launch({ executablePath: options.browser, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });

// A page that notes whatever must not happen: requests to others, errors, refusals by the policy.
async function open(url = options.url, settings = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, acceptDownloads: true, ...settings });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.wrong = [];
  page.on("request", (r) => {
    if (!r.url().startsWith(url) && !r.url().startsWith("blob:")) page.wrong.push(`request to ${r.url()}`);
  });
  page.on("pageerror", (e) => page.wrong.push(`error ${e.message}`));
  page.on("console", (m) => {
    if (/Content Security Policy|TrustedHTML|Refused to/i.test(m.text())) page.wrong.push(m.text());
  });
  await page.goto(`${url}/`);
  await page.waitForSelector(".ideas");
  return page;
}

async function close(page) {
  expect(page.wrong.length === 0, `must not happen: ${page.wrong.slice(0, 3).join("; ")}`);
  await page.context().close();
}

// The tiny model ends when it likes; this makes answers as long as a check needs.
async function longAnswers(page, tokens) {
  await page.route(CHAT, (route) => {
    const body = { ...route.request().postDataJSON(), ignore_eos: true, max_tokens: tokens, temperature: 0 };
    return route.continue({ postData: JSON.stringify(body) });
  });
}

function sse(text, more = {}) {
  const chunk = (delta, rest = {}) => `data: ${JSON.stringify({ object: "chat.completion.chunk", model: "m", choices: [{ index: 0, delta, finish_reason: null }], ...rest })}\n\n`;
  const end = `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], ...more })}\n\n`;
  return `${chunk({ role: "assistant", content: "" })}${Array.from(text.match(/[^]{1,7}/gu) ?? [], (piece) => chunk({ content: piece })).join("")}${end}data: [DONE]\n\n`;
}

async function scripted(page, text, more) {
  await page.unroute(CHAT);
  await page.route(CHAT, (route) => route.fulfill({ status: 200, contentType: "text/event-stream", body: sse(text, more) }));
}

async function ask(page, text) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
}

const done = (page) => page.waitForSelector("#send:not([hidden])");
const answers = (page) => page.locator(".message.assistant");
const answerText = (page) => answers(page).last().locator(".markdown").innerText();

async function axe(page, what) {
  // Past the end of what moves, so that colours are measured as they stay.
  await page.waitForTimeout(350);
  const result = await page.evaluate(async () => window.axe.run(document, { resultTypes: ["violations"] }));
  const bad = result.violations.filter((v) => ["serious", "critical"].includes(v.impact));
  expect(bad.length === 0, `${what}: ${bad.map((v) => `${v.id} at ${v.nodes.map((n) => `${n.target} (${n.failureSummary?.split("\n")[1]?.trim()})`).join(", ")}`).join("; ")}`);
}

async function shot(page, name) {
  if (!options.shots) return;
  mkdirSync(options.shots, { recursive: true });
  await page.screenshot({ path: join(options.shots, `${name}.png`) });
}

await check("an answer streams, and its numbers are shown", async () => {
  const page = await open();
  await longAnswers(page, 40);
  await ask(page, "Hello there");
  await page.waitForSelector(".message.assistant .markdown:not(:empty)");
  await done(page);
  expect((await answers(page).count()) === 1, "one answer");
  expect(/40 tokens/.test(await page.locator(".facts").innerText()), "the count of tokens");
  expect((await page.locator(".phases i").count()) > 0, "the phases");
  expect((await page.locator("#announce").innerText()).includes("The answer is complete"), "the screen reader is told");
  await close(page);
});

await check("stop ends the request at the server and keeps the text", async () => {
  const page = await open();
  await longAnswers(page, 6000);
  await ask(page, "Go on for long");
  await page.waitForFunction(() => document.querySelector(".message.assistant .markdown")?.textContent.length > 20);
  await page.click("#stop");
  await done(page);
  const text = await answerText(page);
  expect(text.length > 20, "text is kept");
  expect(/stopped/.test(await page.locator(".facts").innerText()), "it says so");
  for (let i = 0; ; i++) {
    const state = await (await fetch(`${options.url}/v1/state`)).json();
    if (state.engine.running === 0) break;
    expect(i < 100, "the server still computes");
    await page.waitForTimeout(50);
  }
  await page.waitForTimeout(200);
  expect((await answerText(page)) === text, "nothing is added after the stop");
  await close(page);
});

await check("answer again, versions, edit", async () => {
  const page = await open();
  await scripted(page, "first answer");
  await ask(page, "A question");
  await done(page);
  await scripted(page, "second answer");
  await page.locator(".message.assistant [aria-label='Answer again']").click();
  await page.waitForFunction(() => document.querySelector(".message.assistant .markdown")?.textContent.trim() === "second answer");
  await done(page);
  expect((await page.locator(".versions").innerText()).includes("2/2"), "two versions");
  await page.click("[aria-label='Version before']");
  expect((await answerText(page)) === "first answer", "the version before");
  await ask(page, "More");
  await done(page);
  expect((await answers(page).count()) === 2, "two answers");
  let sent = null;
  await page.unroute(CHAT);
  await page.route(CHAT, (route) => {
    sent = route.request().postDataJSON();
    return route.fulfill({ status: 200, contentType: "text/event-stream", body: sse("edited answer") });
  });
  await page.locator(".message.user").first().hover();
  await page.locator(".message.user [aria-label='Edit the message']").first().click();
  await page.fill(".edit textarea", "Another question");
  await page.press(".edit textarea", "Enter");
  await page.waitForFunction(() => document.querySelector(".message.assistant .markdown")?.textContent.trim() === "edited answer");
  expect(sent.messages.length === 1 && sent.messages[0].content === "Another question", "what was after it is gone");
  await close(page);
});

await check("settings reach the server, and only what was set", async () => {
  const page = await open();
  await page.click("#settings-open");
  await page.fill("#set-system", "Be brief.");
  await page.fill("#set-temperature", "0.3");
  await page.fill("#set-top_k", "7");
  await page.fill("#set-max_tokens", "12");
  await page.fill("#set-seed", "42");
  await page.fill("#set-min_p", "9");
  expect((await page.getAttribute("#set-min_p", "aria-invalid")) === "true", "out of range is marked");
  await page.click("#settings-form .primary");
  const request = page.waitForRequest((r) => r.url().endsWith("/v1/chat/completions"));
  await ask(page, "Hi");
  const body = (await request).postDataJSON();
  await done(page);
  expect(body.messages[0].role === "system" && body.messages[0].content === "Be brief.", "the system prompt");
  expect(body.temperature === 0.3 && body.top_k === 7 && body.max_tokens === 12 && body.seed === 42, "the numbers");
  expect(!("min_p" in body) && !("top_p" in body), "nothing that was not set");
  expect((await page.locator(".chip").allInnerTexts()).includes("temp 0.3"), "they are shown");
  await close(page);
});

await check("hostile Markdown does nothing", async () => {
  const page = await open();
  for (let at = 0; at < ATTACKS.length; at += 12) {
    await scripted(page, ATTACKS.slice(at, at + 12).join("\n\n"));
    await ask(page, `attack ${at}`);
    await done(page);
  }
  await page.waitForTimeout(200);
  const left = await page.evaluate(`[...document.querySelectorAll(".markdown")].map(${LOOK}).join("")`);
  expect(left === "", `left: ${left}`);
  expect((await page.evaluate(() => window.t9pwned)) === undefined, "a script ran");
  await ask(page, "<img src=x onerror=window.t9pwned=1>");
  await done(page);
  expect((await page.locator(".message.user .content").last().innerText()).startsWith("<img"), "what the user writes is text");
  await close(page);
});

await check("conversations survive a reload; rename, search, delete", async () => {
  const page = await open();
  await scripted(page, "An **answer** to keep");
  await ask(page, "Remember me");
  await done(page);
  await page.click("#new-chat");
  await ask(page, "The other one");
  await done(page);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#conversations a").length === 2);
  await page.click("#conversations a:has-text('Remember me')");
  expect((await page.locator(".markdown strong").innerText()) === "answer", "the text is back");
  const row = page.locator("#conversations li", { hasText: "Remember me" });
  await row.hover();
  await row.locator("[aria-label^='Rename']").click();
  await page.fill("#modal-name", "A new name");
  await page.press("#modal-name", "Enter");
  await page.waitForSelector("#conversations a:has-text('A new name')");
  await page.fill("#search", "other");
  await page.waitForFunction(() => document.querySelectorAll("#conversations a").length === 1);
  await page.fill("#search", "");
  await page.locator("#conversations li", { hasText: "A new name" }).hover();
  await page.locator("#conversations li", { hasText: "A new name" }).locator("[aria-label^='Delete']").click();
  await page.click("#modal-form .danger");
  await page.waitForFunction(() => document.querySelectorAll("#conversations a").length === 1);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#conversations a").length === 1);
  await close(page);
});

await check("export and import", async () => {
  const page = await open();
  await scripted(page, "```js\nlet a;\n```");
  await ask(page, "Export me");
  await done(page);
  const download = async (id) => {
    await page.click("#export-menu summary");
    const [file] = await Promise.all([page.waitForEvent("download"), page.click(id)]);
    return [file.suggestedFilename(), readFileSync(await file.path(), "utf8")];
  };
  const [mdName, md] = await download("#export-md");
  expect(mdName === "export-me.md" && md.includes("## You\n\nExport me") && md.includes("```js\nlet a;\n```"), md);
  const [jsonName, json] = await download("#export-json");
  expect(jsonName === "export-me.json" && JSON.parse(json).conversations[0].messages.length === 2, json);
  await page.setInputFiles("#import-file", { name: "x.json", mimeType: "application/json", buffer: Buffer.from(json) });
  await page.waitForFunction(() => document.querySelectorAll("#conversations a").length === 2);
  await page.setInputFiles("#import-file", { name: "x.json", mimeType: "application/json", buffer: Buffer.from("{}") });
  await page.waitForFunction(() => document.getElementById("toast").textContent.startsWith("Not imported"));
  await close(page);
});

await check("errors in plain words, and a way on", async () => {
  const page = await open();
  await page.route(CHAT, (route) => route.fulfill({ status: 503, headers: { "Retry-After": "7" }, contentType: "application/json", body: '{"error":{"message":"full","code":"server_busy"}}' }));
  await ask(page, "Hi");
  await page.waitForSelector(".message .failure");
  expect(/busy[^]*7 s/.test(await page.locator(".message .failure").innerText()), "busy");
  await page.unroute(CHAT);
  await page.route(CHAT, (route) => route.abort());
  await page.click(".message .failure button");
  await page.waitForSelector(".message .failure:has-text('can’t be reached')");
  await page.unroute(CHAT);
  await page.route(CHAT, (route) => route.fulfill({ status: 200, contentType: "text/event-stream", body: 'data: {"choices":[{"delta":{"content":"half"}}]}\n\n' }));
  await page.click(".message .failure button");
  await page.waitForSelector(".message .failure:has-text('cut off')");
  expect((await answerText(page)) === "half", "what came is kept");
  await scripted(page, "well");
  await page.click(".message .failure button");
  await page.waitForFunction(() => document.querySelector(".message.assistant .markdown")?.textContent.trim() === "well");
  await done(page);
  expect((await page.locator(".message .failure").count()) === 0, "the error is gone");
  await page.unroute(CHAT);
  await ask(page, "word ".repeat(20_000));
  await page.waitForSelector(".message .failure:has-text('too long for the model')");
  await close(page);
});

await check("a key is asked for, kept for the tab, and asked again when wrong", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  await page.goto(`${options.locked}/`);
  await page.fill("#modal-key", "wrong");
  await page.press("#modal-key", "Enter");
  await page.waitForSelector("#modal-title:has-text('not accepted')");
  await page.fill("#modal-key", options.key);
  await page.press("#modal-key", "Enter");
  await page.waitForSelector("#model:not(:empty)");
  await page.click("#settings-open");
  await page.fill("#set-max_tokens", "8");
  await page.click("#settings-form .primary");
  await ask(page, "Hi");
  await done(page);
  expect((await page.locator(".message .failure").count()) === 0, "the chat has the key");
  await page.click("#nav-dashboard");
  await page.waitForFunction(() => document.querySelector(".tile .value")?.textContent !== "–");
  await page.reload();
  await page.waitForSelector("#model:not(:empty)", { state: "attached" });
  expect(!(await page.locator("#modal").evaluate((d) => d.open)), "it is kept over a reload");
  const stored = await page.evaluate(() => JSON.stringify(localStorage));
  expect(!stored.includes(options.key), "and is in no lasting storage");
  await context.close();
});

await check("by keyboard alone", async () => {
  const page = await open();
  await scripted(page, "An answer");
  await page.keyboard.type("Typed at once");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("second line");
  await page.keyboard.press("Enter");
  await done(page);
  expect((await page.locator(".message.user .content").innerText()).includes("\n"), "two lines");
  expect((await page.evaluate(() => document.activeElement.id)) === "prompt", "the focus stays where one writes");
  await page.keyboard.press("Alt+s");
  await page.waitForSelector("#settings[open]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("#settings:not([open])", { state: "attached" });
  await page.keyboard.press("Alt+n");
  await page.waitForSelector(".ideas");
  await page.keyboard.press("Alt+ArrowDown");
  await page.waitForSelector(".message.assistant");
  await page.keyboard.press("Alt+b");
  await page.waitForSelector("#dash-view:not([hidden])");
  await page.keyboard.press("Alt+b");
  await page.waitForSelector("#chat-view:not([hidden]) .message.assistant");
  await page.keyboard.press("Alt+h");
  await page.waitForSelector("#modal[open] .keys");
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement.blur());
  const seen = new Set();
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const el = document.activeElement;
      const box = el.getBoundingClientRect();
      const style = getComputedStyle(el);
      const around = el.closest(".composer-box");
      return { name: el.id || el.getAttribute("aria-label") || el.textContent.trim().slice(0, 30), shown: box.width > 0 && box.height > 0,
        outlined: style.outlineStyle !== "none" || (around && getComputedStyle(around).boxShadow !== "none"), body: el === document.body };
    });
    if (at.body) continue;
    expect(at.shown, `${at.name} has the focus and is not seen`);
    expect(at.outlined, `${at.name} does not show the focus`);
    seen.add(at.name);
  }
  for (const name of ["new-chat", "search", "nav-chat", "nav-dashboard", "theme", "help", "settings-open", "scroll", "prompt", "send", "Copy the text", "Answer again"])
    expect(seen.has(name), `Tab does not reach ${name}: ${[...seen].join(", ")}`);
  await page.unroute(CHAT);
  await longAnswers(page, 6000);
  await page.focus("#prompt");
  await page.keyboard.type("long");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => [...document.querySelectorAll(".message.assistant .markdown")].at(-1).textContent.length > 5 && !document.getElementById("stop").hidden);
  await page.keyboard.press("Escape");
  await done(page);
  await close(page);
});

await check("a phone: nothing is wider than it, the list opens and closes", async () => {
  const page = await open(options.url, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  await scripted(page, `\`\`\`\n${"long line ".repeat(40)}\n\`\`\`\n\n|${" column |".repeat(14)}\n|${"---|".repeat(14)}\n\n${"unbroken".repeat(60)}`);
  await page.fill("#prompt", "wide things");
  await page.tap("#send");
  await done(page);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth || document.getElementById("scroll").scrollWidth > innerWidth);
  expect(!wide, "the chat scrolls sideways");
  await page.tap("#chat-view .side-open");
  await page.waitForSelector("#conversations a >> visible=true");
  await shot(page, "phone-list");
  await page.tap("#nav-dashboard");
  await page.waitForSelector("#dash-view:not([hidden])");
  await page.waitForFunction(() => document.querySelector(".tile .value")?.textContent !== "–");
  expect(!(await page.evaluate(() => document.getElementById("dash-scroll").scrollWidth > innerWidth)), "the dashboard scrolls sideways");
  expect(!(await page.evaluate(() => document.getElementById("app").classList.contains("side-shown"))), "the list closes");
  await shot(page, "phone-dashboard");
  await close(page);
});

await check("the dashboard moves while requests run", async () => {
  const page = await open();
  await page.click("#nav-dashboard");
  await page.waitForSelector("#live:has-text('Live')");
  const before = await page.locator(".tile .sub").first().innerText();
  const gone = new AbortController();
  const traffic = Array.from({ length: 3 }, (_, i) =>
    fetch(`${options.url}/v1/chat/completions`, { method: "POST", signal: gone.signal, body: JSON.stringify({ stream: true, ignore_eos: true, max_tokens: 7000, messages: [{ role: "user", content: `story ${i}` }] }) })
      .then((r) => r.text()).catch(() => {}));
  await page.waitForFunction(() => document.querySelectorAll(".p-requests-last-minute tbody tr").length === 3);
  await page.waitForFunction(() => Number(document.querySelector(".tile .value").textContent.replace(/,/g, "")) > 0);
  await page.waitForFunction((text) => document.querySelector(".tile .sub").textContent !== text, before);
  expect((await page.locator(".lanes rect").count()) >= 3, "bars of requests");
  expect((await page.locator(".cells .running").count()) > 0, "pages in use");
  await shot(page, "dashboard-busy");
  gone.abort();
  await Promise.all(traffic);
  await page.waitForFunction(() => document.querySelectorAll(".p-requests-last-minute tbody tr").length === 0);
  await page.waitForFunction(() => /\d/.test(document.querySelectorAll(".tile .value")[2].textContent));
  await page.click("#nav-chat");
  let asked = 0;
  page.on("request", (r) => (asked += r.url().endsWith("/v1/state") ? 1 : 0));
  await page.waitForTimeout(1200);
  expect(asked === 0, "it goes on asking when nobody looks");
  await close(page);
});

await check("accessibility, light and dark", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme, bypassCSP: true });
    const page = await context.newPage();
    await page.addInitScript(AXE);
    await page.goto(`${options.url}/`);
    await page.waitForSelector(".ideas");
    await axe(page, `${colorScheme}, empty`);
    await scripted(page, "# Head\n\nText with `code`, a [link](https://example.org).\n\n```python\ndef f():  # comment\n    return \"text\", 42\n```\n\n> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done",
      { timings: { queue_ms: 3, prefix_wait_ms: 2, prefill_ms: 90, decode_ms: 400, first_token_ms: 95, predicted_per_second: 31, predicted_n: 12, prompt_n: 30, cache_n: 60 }, warnings: ["a warning"] });
    await ask(page, "Show all");
    await done(page);
    await axe(page, `${colorScheme}, chat`);
    await shot(page, `chat-${colorScheme}`);
    await page.click("#settings-open");
    await axe(page, `${colorScheme}, settings`);
    await page.keyboard.press("Escape");
    await page.click("#export-menu summary");
    await axe(page, `${colorScheme}, menu`);
    await page.keyboard.press("Escape");
    await page.click("#help");
    await axe(page, `${colorScheme}, help`);
    await page.keyboard.press("Escape");
    await page.click("#nav-dashboard");
    await page.waitForFunction(() => document.querySelector(".tile .value")?.textContent !== "–");
    await axe(page, `${colorScheme}, dashboard`);
    await shot(page, `dashboard-${colorScheme}`);
    await context.close();
  }
});

await check("the choice of colours is kept", async () => {
  const page = await open(options.url, { colorScheme: "light" });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.click("#theme");
  await page.click("#theme");
  const dark = await background();
  expect(light !== dark, "dark is another colour");
  await page.reload();
  await page.waitForSelector(".ideas");
  expect((await background()) === dark, "it is kept");
  await close(page);
});

await browser.close();
console.log(failures.length ? `failed: ${failures.join("; ")}` : `all passed in ${Date.now() - begun} ms`);
process.exit(failures.length ? 1 : 0);
