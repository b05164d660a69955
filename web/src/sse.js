// Server-sent events from pieces of text that may be cut anywhere. What the format says: lines end with LF, CR or
// CRLF, an empty line ends an event, a line that begins with a colon is a comment, several data lines are joined.

// An event larger than this is no token of ours.
const EVENT_CHARS_MAX = 16 << 20;

export class SseParser {
  #rest = "";
  #data = [];
  #chars = 0;
  #event = "";
  #began = false;

  // Returns the events that are complete now, as {event, data}.
  push(piece) {
    const out = [];
    let text = this.#rest + piece;
    if (!this.#began && text.length > 0) {
      this.#began = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    let at = 0;
    for (;;) {
      const end = lineEnd(text, at);
      if (end < 0) break;
      // A CR at the end may be the first half of a CRLF.
      if (text[end] === "\r" && end + 1 === text.length) break;
      this.#line(text.slice(at, end), out);
      at = end + (text[end] === "\r" && text[end + 1] === "\n" ? 2 : 1);
    }
    this.#rest = text.slice(at);
    if (this.#rest.length + this.#chars > EVENT_CHARS_MAX) throw new Error("an event of the stream is too large");
    return out;
  }

  #line(line, out) {
    if (line === "") {
      if (this.#data.length) out.push({ event: this.#event || "message", data: this.#data.join("\n") });
      this.#data = [];
      this.#chars = 0;
      this.#event = "";
      return;
    }
    if (line[0] === ":") return;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value[0] === " ") value = value.slice(1);
    if (field === "data") {
      this.#data.push(value);
      this.#chars += value.length;
    } else if (field === "event") this.#event = value;
  }
}

function lineEnd(text, from) {
  for (let i = from; i < text.length; i++) if (text[i] === "\n" || text[i] === "\r") return i;
  return -1;
}
