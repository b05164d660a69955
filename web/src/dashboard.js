// The dashboard: what the server does now, from /v1/state twice a second (four times while requests run) and /metrics
// every two seconds. It asks only while it is looked at.
import { explain, getJson, getText } from "./api.js";
import { byId, bytes, count, duration, h, s } from "./dom.js";
import { Rate, Timeline, difference, histogram, niceTop, parseMetrics, phaseOf, quantile, shareCells, totalOf } from "./metrics.js";

const WINDOW_MS = 120_000;
const TIMELINE_MS = 60_000;
const METRICS_EVERY_MS = 2000;
// Quantiles are told over this time, so that an old storm does not colour them for ever.
const RECENT_MS = 300_000;
const CELLS = 240;
const LANES_MAX = 12;

const PHASES = { queue: "in the queue", prefix: "waits for a shared beginning", prefill: "reads its prompt", decode: "writes its answer", preempted: "gave its memory back" };
const POOL = [["used", "running", "used by requests that run"], ["cold", "cached", "kept text that no request uses now"], ["free", "free", "nothing in them"]];
const FOUND = [["full", "all of it"], ["partial", "a part"], ["inflight", "a part, being computed"], ["nothing", "nothing"]];

function panel(title, note, ...children) {
  const name = `p-${title.toLowerCase().replace(/\W+/g, "-")}`;
  return h("section", { class: `panel ${name}`, "aria-labelledby": name }, h("header", {}, h("h2", { id: name }, title), note), children);
}

function tile(label) {
  const value = h("span", { class: "value" }, "–");
  const unit = h("span", { class: "unit" });
  const sub = h("p", { class: "sub" });
  const spark = s("svg", { class: "spark", viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" }, s("path", { class: "area" }), s("path", { class: "line" }));
  const el = h("section", { class: "tile", "aria-label": label }, h("h2", {}, label), h("p", { class: "figure" }, value, unit), sub, spark);
  return {
    el,
    set(v, u, text) {
      value.textContent = v;
      unit.textContent = u;
      sub.textContent = text;
    },
    spark(values) {
      const top = Math.max(...values, 1e-9);
      drawLine(spark.children[1], spark.children[0], values, (i) => (100 * i) / Math.max(1, values.length - 1), (v) => 27 - (24 * v) / top, 28);
    },
  };
}

function drawLine(line, area, values, x, y, bottom) {
  if (values.length < 2) return;
  const points = values.map((v, i) => `${x(i).toFixed(1)} ${y(v).toFixed(1)}`);
  line.setAttribute("d", `M${points.join("L")}`);
  area.setAttribute("d", `M${x(0).toFixed(1)} ${bottom}L${points.join("L")}L${x(values.length - 1).toFixed(1)} ${bottom}Z`);
}

function legend(items) {
  return h("ul", { class: "legend" }, items.map(([kind, label, value]) => h("li", {}, h("i", { class: kind, "aria-hidden": "true" }), label, value)));
}

export class Dashboard {
  #timer = 0;
  #metricsAt = 0;
  #failures = 0;
  #generated = new Rate(1500);
  #prompt = new Rate(1500);
  #series = [];
  #timeline = new Timeline(TIMELINE_MS);
  #history = []; // [{atMs, ttft, gap}] of /metrics
  #medians = [];
  #isOpen = false;

  constructor() {
    this.#build();
    document.addEventListener("visibilitychange", () => this.#wake());
  }

  open(model) {
    this.model = model;
    this.#isOpen = true;
    this.#wake();
  }

  close() {
    this.#isOpen = false;
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #wake() {
    if (this.#isOpen && !document.hidden && !this.#timer) this.#tick();
  }

  /* ---- what stands there ---- */

  #build() {
    this.speed = tile("Tokens per second");
    this.first = tile("Time to first token");
    this.load = tile("Requests");
    this.hits = tile("Cache hits");

    this.chart = s("svg", { class: "chart", viewBox: "0 0 600 180", preserveAspectRatio: "none", role: "img" },
      s("g", { class: "grid" }, [0, 1, 2, 3].map((i) => s("line", { x1: 0, x2: 600, y1: 8 + i * 56, y2: 8 + i * 56 }))),
      s("path", { class: "area prompt" }), s("path", { class: "line prompt" }), s("path", { class: "area decode" }), s("path", { class: "line decode" }));
    this.scale = h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}), h("span", {}), h("span", {}), h("span", {}, "0"));
    this.chartNow = h("span", { class: "note" });

    this.cells = h("div", { class: "cells", role: "img" }, Array.from({ length: CELLS }, () => h("i", {})));
    this.poolLegend = h("ul", { class: "legend big" });
    this.poolNote = h("span", { class: "note" });

    this.lanes = s("svg", { class: "lanes", role: "img", viewBox: "0 0 1000 40", preserveAspectRatio: "none" });
    this.lanesNone = h("p", { class: "nothing" }, "No request in the last minute. Send one from the chat, and watch it here.");
    this.rows = h("tbody", {});
    this.table = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Running and waiting requests" },
      h("table", {}, h("caption", { class: "sr-only" }, "Running and waiting requests"),
        h("thead", {}, h("tr", {}, ["Request", "Phase", "Age", "Prompt", "Answer", "Pages"].map((t) => h("th", { scope: "col" }, t)))), this.rows));

    this.found = h("div", { class: "split", role: "img" });
    this.foundLegend = h("ul", { class: "legend" });
    this.bars = h("div", { class: "bars", role: "img" });
    this.gaps = h("p", { class: "note" });
    this.facts = h("dl", { class: "facts-list" });
    this.trouble = h("div", { class: "failure", role: "alert", hidden: true });

    byId("board").append(
      this.trouble,
      h("div", { class: "tiles" }, this.speed.el, this.load.el, this.first.el, this.hits.el),
      panel("Throughput", this.chartNow, h("div", { class: "chart-box" }, this.scale, this.chart),
        h("div", { class: "chart-foot" }, h("span", { class: "note" }, "2 minutes ago"), legend([["phase-decode", "tokens written"], ["phase-prefill", "prompt tokens read"]]), h("span", { class: "note" }, "now"))),
      panel("Memory for context", this.poolNote, this.cells, this.poolLegend),
      panel("Requests, last minute", legend(["queue", "prefix", "prefill", "decode", "preempted"].map((p) => [`phase-${p}`, PHASES[p]])), this.lanesNone, this.lanes, this.table),
      panel("First tokens", null, this.bars, this.gaps),
      panel("Prompts found in the cache", null, this.found, this.foundLegend),
      panel("Server", null, this.facts),
    );
  }

  /* ---- asking ---- */

  async #tick() {
    this.#timer = -1;
    let next = 500;
    try {
      const state = await getJson("/v1/state", { quiet: this.#failures > 0 });
      const now = performance.now();
      if (now - this.#metricsAt >= METRICS_EVERY_MS) {
        this.#metricsAt = now;
        this.#takeMetrics(now, parseMetrics(await getText("/metrics", { quiet: true })));
      }
      this.#takeState(now, state);
      this.#failures = 0;
      if (state.engine.running + state.engine.waiting > 0) next = 250;
    } catch (error) {
      this.#failures++;
      this.#showTrouble(explain(error));
      next = Math.min(8000, 1000 * 2 ** Math.min(this.#failures, 3));
    }
    this.#showLive();
    this.#timer = this.#isOpen && !document.hidden ? setTimeout(() => this.#tick(), next) : 0;
  }

  #showTrouble(told) {
    this.trouble.hidden = false;
    this.trouble.replaceChildren(h("div", {}, h("strong", {}, told.title), h("p", {}, `${told.text} This page goes on asking.`)));
  }

  #showLive() {
    const good = this.#failures === 0;
    if (good) this.trouble.hidden = true;
    byId("live").classList.toggle("bad", !good);
    byId("live").lastElementChild.textContent = good ? "Live" : "No answer";
  }

  #takeMetrics(atMs, metrics) {
    const entry = { atMs, ttft: histogram(metrics, "tempo9_time_to_first_token_seconds"), gap: histogram(metrics, "tempo9_token_gap_seconds") };
    const last = this.#history[this.#history.length - 1];
    if (last && totalOf(entry.ttft) < totalOf(last.ttft)) this.#history.length = 0; // the server began anew
    this.#history.push(entry);
    while (this.#history.length > 2 && this.#history[1].atMs < atMs - RECENT_MS) this.#history.shift();
    const first = this.#history[0];
    const recent = difference(entry.ttft, first.ttft);
    const isRecent = this.#history.length > 1 && totalOf(recent) > 0;
    const ttft = isRecent ? recent : entry.ttft;
    const gapRecent = difference(entry.gap, first.gap);
    const gap = this.#history.length > 1 && totalOf(gapRecent) > 0 ? gapRecent : entry.gap;
    const p50 = quantile(ttft, 0.5);
    const p95 = quantile(ttft, 0.95);
    const [value, unit] = p50 === null ? ["–", ""] : duration(p50 * 1000).split(" ");
    this.first.set(value, unit, p50 === null ? "no answer yet" : `median ${isRecent ? "lately" : "since the start"}; 95% within ${duration(p95 * 1000)}`);
    if (p50 !== null) this.#medians.push(p50);
    if (this.#medians.length > 60) this.#medians.shift();
    this.first.spark(this.#medians);
    this.#showBars(entry.ttft);
    const g50 = quantile(gap, 0.5);
    this.gaps.textContent = g50 === null ? "" : `Answers by the time to their first token, at most. Between two tokens of a stream: half within ${duration(g50 * 1000)}, 95% within ${duration(quantile(gap, 0.95) * 1000)}.`;
    this.metrics = metrics;
  }

  #showBars(rows) {
    const used = rows.filter((r) => r.count > 0);
    if (!used.length) {
      this.bars.replaceChildren(h("p", { class: "nothing" }, "No answer yet."));
      this.bars.setAttribute("aria-label", "No answer yet");
      return;
    }
    const from = Math.max(0, rows.indexOf(used[0]) - 1);
    const to = Math.min(rows.length, rows.indexOf(used[used.length - 1]) + 2);
    const top = Math.max(...rows.map((r) => r.count));
    const name = (row) => (row.le === Infinity ? "more" : duration(row.le * 1000).replace(".0", "").replace(" ", "\u00a0"));
    this.bars.replaceChildren(...rows.slice(from, to).map((row) =>
      h("div", { class: "bar-column" }, h("b", {}, row.count ? count(row.count) : ""), h("i", { style: { height: `${Math.max(row.count ? 3 : 1, (92 * row.count) / top)}px` } }), h("span", {}, name(row)))));
    this.bars.setAttribute("aria-label", `Answers by time to the first token: ${used.map((r) => `${r.count} within ${name(r)}`).join(", ")}`);
  }

  #takeState(atMs, state) {
    const t = state.totals;
    const decode = this.#generated.push(atMs, t.generated_tokens);
    const prompt = this.#prompt.push(atMs, t.prompt_tokens);
    const e = state.engine;
    const read = t.cached_tokens + t.prompt_tokens;
    this.#series.push({ atMs, decode, prompt, busy: e.running + e.waiting, hits: read ? t.cached_tokens / read : 0 });
    while (this.#series.length && this.#series[0].atMs < atMs - WINDOW_MS) this.#series.shift();
    this.#showTiles(state, decode);
    this.#showChart(atMs, decode, prompt);
    this.#showPool(state.pool);
    this.#showLanes(atMs, this.#timeline.update(atMs, state));
    this.#showRows(state);
    this.#showFound(t);
    this.#showFacts(state);
  }

  #showTiles(state, decode) {
    const t = state.totals;
    const e = state.engine;
    this.speed.set(decode < 10 ? decode.toFixed(decode > 0.05 ? 1 : 0) : count(decode), "tok/s", `${count(t.generated_tokens)} written since the start`);
    this.speed.spark(this.#series.map((p) => p.decode));
    const waiting = e.waiting + e.waiting_for_prefix;
    this.load.set(String(e.running), "running", waiting ? `${waiting} waiting${e.preempted ? `, ${e.preempted} of them gave their memory back` : ""}` : "none waiting");
    this.load.spark(this.#series.map((p) => p.busy));
    const read = t.cached_tokens + t.prompt_tokens;
    this.hits.set(read ? String(Math.round((100 * t.cached_tokens) / read)) : "–", read ? "%" : "", read ? `${count(t.cached_tokens)} of ${count(read)} prompt tokens` : "no prompt yet");
    this.hits.spark(this.#series.map((p) => p.hits));
  }

  #showChart(atMs, decode, prompt) {
    const points = this.#series;
    const top = niceTop(Math.max(...points.map((p) => Math.max(p.decode, p.prompt)), 1));
    const x = (i) => 600 - (600 * (atMs - points[i].atMs)) / WINDOW_MS;
    const y = (v) => 176 - (168 * v) / top;
    const [, areaP, lineP, areaD, lineD] = this.chart.children;
    drawLine(lineP, areaP, points.map((p) => p.prompt), x, y, 176);
    drawLine(lineD, areaD, points.map((p) => p.decode), x, y, 176);
    [top, (top * 2) / 3, top / 3].forEach((v, i) => (this.scale.children[i].textContent = v >= 10 ? count(v) : v.toFixed(1)));
    this.chartNow.textContent = `${count(decode)} written, ${count(prompt)} read a second`;
    this.chart.setAttribute("aria-label", `Tokens per second over two minutes; now ${count(decode)} written and ${count(prompt)} read`);
  }

  #showPool(pool) {
    const amounts = POOL.map(([key]) => pool[key]);
    const shares = shareCells(amounts, CELLS);
    const kinds = shares.flatMap((n, i) => Array(n).fill(POOL[i][1]));
    [...this.cells.children].forEach((cell, i) => {
      if (cell.className !== kinds[i]) cell.className = kinds[i];
    });
    this.cells.setAttribute("aria-label", `Pages for keys and values: ${POOL.map(([key, name]) => `${count(pool[key])} ${name}`).join(", ")}`);
    this.poolLegend.replaceChildren(...POOL.map(([key, name, what]) =>
      h("li", { title: what }, h("i", { class: `cell ${name}`, "aria-hidden": "true" }), name, h("b", {}, count(pool[key])), h("span", { class: "note" }, bytes(pool[key] * pool.page_bytes)))));
    const states = pool.states_used + pool.states_kept;
    const windows = pool.windows_used + pool.windows_cold;
    this.poolNote.textContent = `${count(pool.pages)} pages, ${bytes(pool.pages * pool.page_bytes)} at most` +
      (states ? `; ${count(states)} states, ${bytes(states * pool.state_bytes)}` : "") +
      (windows ? `; ${count(windows)} of layers with a window, ${bytes(windows * pool.window_bytes)}` : "");
  }

  #showLanes(atMs, requests) {
    const shown = requests.filter((r) => r.lane < LANES_MAX);
    const lanes = Math.max(1, ...shown.map((r) => r.lane + 1));
    const height = lanes * 22;
    const x = (t) => Math.max(0, 1000 - (1000 * (atMs - t)) / TIMELINE_MS);
    this.lanesNone.hidden = shown.length > 0;
    this.lanes.classList.toggle("hidden", shown.length === 0);
    this.lanes.setAttribute("viewBox", `0 0 1000 ${height}`);
    this.lanes.style.height = `${height}px`;
    this.lanes.replaceChildren(
      s("g", { class: "grid" }, [0, 1, 2, 3, 4].map((i) => s("line", { x1: i * 250, x2: i * 250, y1: 0, y2: height, "vector-effect": "non-scaling-stroke" }))),
      ...shown.map((r) => s("g", {}, s("title", {}, `request ${r.id}: ${duration((r.end ?? atMs) - r.begin)}`),
        r.segments.map((g) => s("rect", { class: `phase-${g.phase}`, x: x(g.from).toFixed(1), y: r.lane * 22 + 3, width: Math.max(1.5, x(g.to) - x(g.from)).toFixed(1), height: 16, rx: 2 })))),
    );
    const open = shown.filter((r) => r.end === null);
    this.lanes.setAttribute("aria-label", `${shown.length} requests in the last minute, ${open.length} under way`);
  }

  #showRows(state) {
    const rows = [...state.running, ...state.queue];
    this.table.hidden = rows.length === 0;
    const meter = (part, cached, all, kind) =>
      h("span", { class: "meter", "aria-hidden": "true" }, h("i", { class: "cached", style: { width: `${(100 * cached) / Math.max(all, 1)}%` } }), h("i", { class: kind, style: { width: `${(100 * Math.max(0, part - cached)) / Math.max(all, 1)}%` } }));
    this.rows.replaceChildren(...rows.map((r) => {
      const phase = phaseOf(r);
      return h("tr", {}, h("td", {}, `#${r.id}`), h("td", {}, h("span", { class: "phase-name" }, h("i", { class: `phase-${phase}` }), PHASES[phase])), h("td", {}, duration(r.age_ms)),
        h("td", {}, meter(r.prefilled_tokens, r.cached_tokens, r.prompt_tokens, "phase-prefill"), `${count(r.prompt_tokens)}${r.cached_tokens ? `, ${count(r.cached_tokens)} cached` : ""}`),
        h("td", {}, meter(r.generated_tokens, 0, r.max_tokens, "phase-decode"), `${count(r.generated_tokens)} of ≤ ${count(r.max_tokens)}`), h("td", {}, count(r.pages)));
    }));
  }

  #showFound(t) {
    const amounts = [t.prefix_full, t.prefix_partial, t.prefix_inflight, t.prefix_miss];
    const all = amounts.reduce((sum, n) => sum + n, 0);
    this.found.replaceChildren(...amounts.map((n, i) => h("i", { class: `found-${FOUND[i][0]}`, style: { "flex-grow": String(n) } })).filter((_, i) => amounts[i] > 0));
    this.found.classList.toggle("none", all === 0);
    this.foundLegend.replaceChildren(...FOUND.map(([kind, label], i) => h("li", {}, h("i", { class: `found-${kind}`, "aria-hidden": "true" }), label, h("b", {}, count(amounts[i])))));
    this.found.setAttribute("aria-label", `Requests by what of their prompt was in the cache: ${FOUND.map(([, label], i) => `${label} ${amounts[i]}`).join(", ")}`);
  }

  #showFacts(state) {
    const m = this.metrics;
    const get = (name) => m?.get(name) ?? 0;
    const rows = [
      ["Model", this.model?.id ?? "–"],
      ["Longest request", this.model ? `${count(this.model.max_model_len)} tokens` : "–"],
      ["Up for", duration(state.http.uptime_s * 1000)],
      ["Requests taken", count(state.totals.requests_admitted)],
      ["Connections", `${count(state.http.connections)}, ${count(state.http.streams)} streams`],
      ["One token takes", state.cost.decode_step_us ? duration(state.cost.decode_step_us / 1000) : "–"],
      ["Memory given back", `${count(state.totals.preemptions)} times`],
      ["Pages dropped", count(state.totals.evicted_pages)],
      ["Clients that left", count(state.http.hangups)],
      ["Refused", `${count(get('tempo9_http_requests_total{status="4xx"}') + get('tempo9_http_requests_total{status="5xx"}'))} requests`],
    ];
    this.facts.replaceChildren(...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }
}
