// What a conversation is, what is sent of it, and its forms outside this page. No DOM, no network.

// Each sampling control: its place in the request, its range, and how it is explained. An empty control sends nothing,
// and the server's own default holds.
export const CONTROLS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, neutral: 1, note: "0 always takes the likeliest token; higher is more varied" },
  { name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.01, neutral: 1, note: "keeps the likeliest tokens that make up this share; 1 is off" },
  { name: "top_k", label: "Top k", min: 0, max: 200, step: 1, whole: true, neutral: 0, note: "keeps this many likeliest tokens; 0 is off" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, neutral: 0, note: "drops tokens below this share of the likeliest; 0 is off" },
];
export const NUMBERS = [
  { name: "max_tokens", label: "Most tokens of an answer", min: 1, max: 1_000_000, whole: true, note: "empty: all that fits" },
  { name: "seed", label: "Seed", min: 0, max: Number.MAX_SAFE_INTEGER, whole: true, note: "the same seed gives the same answer; empty: another one each time" },
];

export function newId() {
  const words = crypto.getRandomValues(new Uint32Array(3));
  return Array.from(words, (w) => w.toString(36).padStart(7, "0")).join("");
}

export function newConversation(defaults = {}) {
  const now = Date.now();
  return {
    id: newId(),
    title: "",
    created: now,
    updated: now,
    system: defaults.system ?? "",
    params: { ...defaults.params },
    messages: [],
  };
}

export function titleFrom(text) {
  const line = text.replace(/\s+/g, " ").trim();
  const cut = Array.from(line);
  if (cut.length <= 48) return line;
  const head = cut.slice(0, 48).join("");
  const space = head.lastIndexOf(" ");
  return `${space > 24 ? head.slice(0, space) : head}…`;
}

export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.messages.find((m) => m.role === "user");
  return first ? titleFrom(first.content) : "New chat";
}

// A number within a control's range, or null for an empty or impossible one.
export function readNumber(control, text) {
  const trimmed = String(text).trim();
  if (trimmed === "") return null;
  const value = Number(trimmed);
  if (!Number.isFinite(value) || (control.whole && !Number.isInteger(value))) return null;
  return value < control.min || value > control.max ? null : value;
}

// The body of the request that asks for the next answer.
export function requestBody(conversation) {
  const messages = [];
  if (conversation.system.trim()) messages.push({ role: "system", content: conversation.system });
  for (const m of conversation.messages)
    if (m.role === "user" || (m.role === "assistant" && m.content)) messages.push({ role: m.role, content: m.content });
  const body = { model: "default", messages, stream: true, stream_options: { include_usage: true }, timings: true };
  for (const control of [...CONTROLS, ...NUMBERS]) {
    const value = conversation.params[control.name];
    if (value !== undefined && value !== null) body[control.name] = value;
  }
  return body;
}

// Takes one chunk of a stream into a message.
export function takeChunk(message, chunk) {
  const choice = chunk.choices?.[0];
  if (choice?.delta?.content) message.content += choice.delta.content;
  const thought = choice?.delta?.reasoning_content;
  if (thought) message.reasoning = (message.reasoning ?? "") + thought;
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.usage) message.usage = chunk.usage;
  if (chunk.timings) message.timings = chunk.timings;
  if (chunk.warnings) message.warnings = chunk.warnings;
  if (chunk.tempo9?.seed !== undefined) message.seed = chunk.tempo9.seed;
  if (chunk.model) message.model = chunk.model;
}

/* ---- other forms ---- */

export function toMarkdown(conversation) {
  const parts = [`# ${titleOf(conversation)}`, `*${new Date(conversation.created).toISOString()}*`];
  if (conversation.system.trim()) parts.push("## System", conversation.system.trim());
  for (const m of conversation.messages) {
    if (m.role === "assistant" && !m.content) continue;
    parts.push(m.role === "user" ? "## You" : `## ${m.model || "Assistant"}`, m.content.trim());
  }
  return `${parts.join("\n\n")}\n`;
}

export function toJson(conversations) {
  return `${JSON.stringify({ format: "tempo9-conversations", version: 1, conversations }, null, 2)}\n`;
}

export function fileName(conversation, extension) {
  const base = titleOf(conversation)
    .normalize("NFKD")
    .replace(/[^\w -]+/g, "")
    .trim()
    .replace(/\s+/g, "-")
    .toLowerCase()
    .slice(0, 48);
  return `${base || "conversation"}.${extension}`;
}

function text(value) {
  return typeof value === "string" ? value : "";
}

function readMessage(m) {
  if (typeof m !== "object" || m === null || !["user", "assistant"].includes(m.role) || typeof m.content !== "string")
    return null;
  const out = { id: newId(), role: m.role, content: m.content };
  if (text(m.model)) out.model = m.model;
  if (text(m.reasoning)) out.reasoning = m.reasoning;
  return out;
}

// Conversations of an exported file, under new ids. Throws an Error with a message for people.
export function fromJson(source) {
  let data;
  try {
    data = JSON.parse(source);
  } catch {
    throw new Error("the file is not JSON");
  }
  if (data?.format !== "tempo9-conversations" || !Array.isArray(data.conversations))
    throw new Error("the file is no export of this page");
  return data.conversations.map((c) => {
    const params = {};
    for (const control of [...CONTROLS, ...NUMBERS]) {
      const value = readNumber(control, c?.params?.[control.name] ?? "");
      if (value !== null) params[control.name] = value;
    }
    const out = newConversation({ system: text(c?.system), params });
    out.title = text(c?.title).slice(0, 200);
    if (Number.isFinite(c?.created)) out.created = c.created;
    if (Number.isFinite(c?.updated)) out.updated = c.updated;
    out.messages = (Array.isArray(c?.messages) ? c.messages : []).map(readMessage).filter(Boolean);
    return out;
  });
}
