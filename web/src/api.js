// Talks to the server this page came from. The key, when one is needed, is kept for this tab only.
import { SseParser } from "./sse.js";

const KEY = "t9.key";
let askKey = null; // () => Promise<string|null>
let asking = null;

export function onKeyNeeded(ask) {
  askKey = ask;
}

function key() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function setKey(value) {
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage the key has to be typed again after a reload.
  }
}

export class ApiError extends Error {
  constructor(status, body, retryAfter) {
    super(body?.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.code = body?.code ?? "";
    this.param = body?.param ?? "";
    this.retryAfter = retryAfter;
  }
}

async function failure(response) {
  let body = null;
  try {
    body = (await response.json()).error;
  } catch {
    // Not ours: a proxy's page, perhaps. The status says enough.
  }
  const wait = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, body, wait > 0 ? wait : 0);
}

async function send(path, init, quiet) {
  for (;;) {
    const used = key();
    const headers = { ...init?.headers };
    if (used) headers.Authorization = `Bearer ${used}`;
    const response = await fetch(path, { ...init, headers, credentials: "omit", cache: "no-store" });
    if (response.ok) return response;
    if (response.status !== 401 || quiet || !askKey) throw await failure(response);
    if (used !== key()) continue; // another request has asked in the meantime
    asking ??= askKey(used !== "").finally(() => (asking = null));
    const given = await asking;
    if (!given) throw await failure(response);
    setKey(given);
  }
}

export async function getJson(path, options = {}) {
  return (await send(path, { signal: options.signal }, options.quiet)).json();
}

export async function getText(path, options = {}) {
  return (await send(path, { signal: options.signal }, options.quiet)).text();
}

// Yields the chunks of a streamed answer. Ends early only by an exception.
export async function* streamChat(body, signal) {
  const response = await send("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const parser = new SseParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let done = false;
  for (;;) {
    const piece = await reader.read();
    if (piece.done) break;
    for (const { data } of parser.push(piece.value)) {
      if (data === "[DONE]") {
        done = true;
        continue;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(500, chunk.error, 0);
      yield chunk;
    }
  }
  if (!done) throw new ApiError(0, { message: "the connection ended before the answer did", code: "cut_short" }, 0);
}

// An error in plain words: {title, text, fatal}. `text` says what to do where that is known.
export function explain(error) {
  if (!(error instanceof ApiError)) {
    if (error instanceof SyntaxError)
      return { title: "The answer could not be read", text: "Something between this page and the server changed it." };
    return {
      title: "The server can’t be reached",
      text: "Is tempo9 still running? What you wrote is kept; try again when it is back.",
    };
  }
  const wait = error.retryAfter ? ` It asks to wait ${error.retryAfter} s.` : "";
  switch (error.code) {
    case "context_length_exceeded":
      return {
        title: "The conversation is too long for the model",
        text: `Start a new chat, or edit an earlier message to go on from there. The server says: ${error.message}.`,
      };
    case "rate_limit_exceeded":
      return { title: "Too many requests of yours are under way", text: `Let one of them end first.${wait}` };
    case "server_busy":
    case "queue_timeout":
      return { title: "The server is busy", text: `Many requests are waiting.${wait} Then try again.` };
    case "server_stopping":
      return { title: "The server is being stopped", text: "Start it again, then try again." };
    case "invalid_api_key":
      return { title: "This server needs an API key", text: "Try again and enter the key it was started with." };
    case "no_chat_template":
      return {
        title: "This model is not made for chat",
        text: "Its file has no chat template, so messages can’t be laid out for it. Serve an “instruct” or “chat” model.",
      };
    case "template_error":
      return { title: "The model’s chat template refused this conversation", text: `It says: ${error.message}` };
    case "cut_short":
      return { title: "The answer was cut off", text: "The connection ended before the answer did. Try again." };
    case "foreign_host":
    case "foreign_origin":
      return { title: "The server refused this address", text: `${error.message}.` };
  }
  if (error.status === 401 || error.status === 403) return { title: "The server refused", text: `${error.message}.` };
  if (error.status === 413) return { title: "That is too much at once", text: `${error.message}.` };
  if (error.status >= 500) return { title: "Something failed on the server", text: `It says: ${error.message}.` };
  const where = error.param ? `The setting “${error.param}” was not accepted. ` : "";
  return { title: "The server did not accept the request", text: `${where}It says: ${error.message}.` };
}
