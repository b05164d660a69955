// Numbers out of Prometheus' text format and out of /v1/state. No DOM.

// Returns a Map from "name" or "name{labels}" to a number.
export function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    if (!line || line[0] === "#") continue;
    const space = line.lastIndexOf(" ");
    const value = Number(line.slice(space + 1));
    if (space > 0 && !Number.isNaN(value)) out.set(line.slice(0, space), value);
  }
  return out;
}

// The buckets of a histogram: [{le, count}] with counts of their own (not of all below), in order.
export function histogram(metrics, name) {
  const rows = [];
  for (const [key, value] of metrics) {
    const found = key.startsWith(`${name}_bucket{`) && /le="([^"]+)"/.exec(key);
    if (found) rows.push({ le: found[1] === "+Inf" ? Infinity : Number(found[1]), count: value });
  }
  rows.sort((a, b) => a.le - b.le);
  for (let i = rows.length - 1; i > 0; i--) rows[i].count -= rows[i - 1].count;
  return rows;
}

export function difference(now, before) {
  if (!before || before.length !== now.length) return now;
  return now.map((row, i) => ({ le: row.le, count: Math.max(0, row.count - before[i].count) }));
}

export function totalOf(rows) {
  return rows.reduce((sum, row) => sum + row.count, 0);
}

// The q-quantile in the unit of `le`, by linear interpolation within its bucket; null when there is nothing.
export function quantile(rows, q) {
  const total = totalOf(rows);
  if (total === 0) return null;
  let below = 0;
  let from = 0;
  for (const row of rows) {
    if (below + row.count >= q * total && row.count > 0) {
      if (row.le === Infinity) return from;
      return from + ((row.le - from) * (q * total - below)) / row.count;
    }
    below += row.count;
    if (row.le !== Infinity) from = row.le;
  }
  return from;
}

// A counter over time as a rate: keeps samples of some seconds and tells the rate over the last ones.
export class Rate {
  #samples = [];
  #keepMs;

  constructor(keepMs = 2000) {
    this.#keepMs = keepMs;
  }

  // Returns units per second.
  push(atMs, value) {
    const all = this.#samples;
    if (all.length && value < all[all.length - 1].value) all.length = 0; // the server began anew
    all.push({ atMs, value });
    while (all.length > 2 && all[1].atMs <= atMs - this.#keepMs) all.shift();
    const span = atMs - all[0].atMs;
    return span > 0 ? ((value - all[0].value) * 1000) / span : 0;
  }
}

// What a request is doing, from its row of /v1/state.
export function phaseOf(row) {
  if (row.state === "preempted") return "preempted";
  if (row.state === "prefix") return "prefix";
  if (row.state !== "running") return "queue";
  return row.generated_tokens > 0 ? "decode" : "prefill";
}

// Follows requests from one snapshot to the next and remembers when each changed its phase. The times are as exact as
// the snapshots are close; when a request came is told by its age.
export class Timeline {
  #requests = new Map();
  #lanes = [];
  #keepMs;

  constructor(keepMs) {
    this.#keepMs = keepMs;
  }

  update(atMs, state) {
    const seen = new Set();
    for (const row of [...state.running, ...state.queue]) {
      seen.add(row.id);
      let request = this.#requests.get(row.id);
      const phase = phaseOf(row);
      if (!request) {
        const begin = atMs - row.age_ms;
        request = { id: row.id, begin, end: null, segments: [{ phase, from: begin, to: atMs }], lane: this.#lane(begin, row.id) };
        this.#requests.set(row.id, request);
      }
      const last = request.segments[request.segments.length - 1];
      last.to = atMs;
      if (last.phase !== phase) request.segments.push({ phase, from: atMs, to: atMs });
      request.row = row;
      request.phase = phase;
    }
    for (const request of this.#requests.values()) {
      if (request.end === null && !seen.has(request.id)) {
        request.end = atMs;
        request.segments[request.segments.length - 1].to = atMs;
      }
      if (request.end !== null && request.end < atMs - this.#keepMs) this.#requests.delete(request.id);
    }
    return this.list();
  }

  list() {
    return [...this.#requests.values()].sort((a, b) => a.begin - b.begin);
  }

  // The first lane whose last request was over before this one came.
  #lane(begin, id) {
    let lane = 0;
    while (this.#busy(this.#lanes[lane], begin)) lane++;
    this.#lanes[lane] = id;
    return lane;
  }

  #busy(id, begin) {
    const request = id === undefined ? null : this.#requests.get(id);
    return Boolean(request) && (request.end === null || request.end > begin);
  }
}

// Rounds up to 1, 2 or 5 times a power of ten: the top of a scale.
export function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= value) return factor * power;
  return 10 * power;
}

// Shares `cells` among amounts so that they add up, and whatever is not zero gets at least one.
export function shareCells(amounts, cells) {
  const total = amounts.reduce((sum, n) => sum + n, 0);
  if (total <= 0) return amounts.map(() => 0);
  const exact = amounts.map((n) => (n / total) * cells);
  const out = exact.map((n, i) => (amounts[i] > 0 ? Math.max(1, Math.floor(n)) : 0));
  let left = cells - out.reduce((sum, n) => sum + n, 0);
  const order = exact.map((n, i) => i).sort((a, b) => exact[b] - out[b] - (exact[a] - out[a]));
  for (let i = 0; left !== 0 && i < cells * 2; i++) {
    const at = order[i % order.length];
    if (left > 0 && amounts[at] > 0) (out[at]++, left--);
    else if (left < 0 && out[order[order.length - 1 - (i % order.length)]] > 1) (out[order[order.length - 1 - (i % order.length)]]--, left++);
  }
  return out;
}
