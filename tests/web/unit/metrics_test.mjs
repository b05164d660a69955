// Numbers for the dashboard.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Rate, Timeline, difference, histogram, niceTop, parseMetrics, quantile, shareCells } from "../../../web/src/metrics.js";

const TEXT = `# HELP t_s Text with 12 numbers
# TYPE t_s histogram
t_s_bucket{le="0.1"} 2
t_s_bucket{le="0.5"} 6
t_s_bucket{le="+Inf"} 8
t_s_sum 3.5
t_s_count 8
n{status="4xx"} 3
plain 1e3
`;

test("the text format", () => {
  const m = parseMetrics(TEXT);
  assert.equal(m.get("plain"), 1000);
  assert.equal(m.get('n{status="4xx"}'), 3);
  assert.equal(m.size, 7);
  assert.deepEqual(histogram(m, "t_s"), [{ le: 0.1, count: 2 }, { le: 0.5, count: 4 }, { le: Infinity, count: 2 }]);
});

test("quantiles", () => {
  const rows = histogram(parseMetrics(TEXT), "t_s");
  assert.equal(quantile(rows, 0.25), 0.1);
  assert.ok(Math.abs(quantile(rows, 0.5) - 0.3) < 1e-9);
  assert.equal(quantile(rows, 0.99), 0.5);
  assert.equal(quantile([], 0.5), null);
  assert.equal(quantile(difference(rows, rows), 0.5), null);
  assert.deepEqual(difference(rows, [{ le: 0.1, count: 1 }]), rows);
});

test("rates over the last seconds, and a server that began anew", () => {
  const rate = new Rate(1000);
  assert.equal(rate.push(0, 100), 0);
  assert.equal(rate.push(500, 150), 100);
  assert.equal(rate.push(1000, 200), 100);
  for (let t = 1500; t <= 4000; t += 500) rate.push(t, 200);
  assert.equal(rate.push(4500, 200), 0);
  assert.equal(rate.push(5000, 5), 0);
  assert.equal(rate.push(5500, 10), 10);
});

function snapshot(running, queue = []) {
  return { running, queue };
}

test("phases of a request over time", () => {
  const timeline = new Timeline(10_000);
  timeline.update(1000, snapshot([], [{ id: 1, state: "waiting", age_ms: 400, generated_tokens: 0 }]));
  timeline.update(1500, snapshot([{ id: 1, state: "running", age_ms: 900, generated_tokens: 0 }]));
  timeline.update(2000, snapshot([{ id: 1, state: "running", age_ms: 1400, generated_tokens: 3 }]));
  timeline.update(2500, snapshot([], [{ id: 1, state: "preempted", age_ms: 1900, generated_tokens: 3 }]));
  const [request] = timeline.update(3000, snapshot([]));
  assert.equal(request.begin, 600);
  assert.equal(request.end, 3000);
  assert.deepEqual(request.segments.map((g) => [g.phase, g.from, g.to]), [["queue", 600, 1500], ["prefill", 1500, 2000], ["decode", 2000, 2500], ["preempted", 2500, 3000]]);
  assert.equal(timeline.update(20_000, snapshot([])).length, 0);
});

test("requests that overlap are on different lanes, and lanes are used again", () => {
  const timeline = new Timeline(60_000);
  const row = (id, age_ms) => ({ id, state: "running", age_ms, generated_tokens: 1 });
  timeline.update(1000, snapshot([row(1, 500), row(2, 400)]));
  timeline.update(2000, snapshot([row(2, 1400)]));
  const all = timeline.update(3000, snapshot([row(2, 2400), row(3, 500)]));
  assert.deepEqual(all.map((r) => [r.id, r.lane]), [[1, 0], [2, 1], [3, 0]]);
});

test("scales and shares", () => {
  assert.deepEqual([0, 0.3, 1, 1.2, 18, 51, 100, 101].map(niceTop), [1, 0.5, 1, 2, 20, 100, 100, 200]);
  assert.deepEqual(shareCells([0, 0, 0], 10), [0, 0, 0]);
  assert.deepEqual(shareCells([1, 1, 1_000_000], 240), [1, 1, 238]);
  assert.deepEqual(shareCells([500, 250, 250], 240), [120, 60, 60]);
  for (const amounts of [[1, 2, 3], [7, 0, 1], [1, 1, 1], [239, 1, 1], [1_000_000, 1, 0]])
    assert.equal(shareCells(amounts, 240).reduce((a, b) => a + b), 240, String(amounts));
});
