// Tells a screen reader what an answer says while it comes: whole sentences, in order, each once. A region that changes
// with every token would be read as stutter.

const SENTENCE = /[.!?…:]["')\]]?\s|\n/g;
const PIECE_CHARS_MAX = 400;

// How much of `text` beyond `from` may be said now.
export function sayableEnd(text, from, isOver) {
  if (isOver) return text.length;
  let end = from;
  SENTENCE.lastIndex = from;
  for (let found; (found = SENTENCE.exec(text)); ) end = found.index + found[0].length;
  if (end === from && text.length - from > PIECE_CHARS_MAX) {
    const space = text.lastIndexOf(" ");
    if (space > from) end = space + 1;
  }
  return end;
}

export class Announcer {
  #region;
  #said = 0;

  constructor(region) {
    this.#region = region;
  }

  begin() {
    this.#said = 0;
    this.#region.replaceChildren();
  }

  update(text, isOver) {
    const end = sayableEnd(text, this.#said, isOver);
    if (end > this.#said) this.say(text.slice(this.#said, end).replace(/[*_`#>|]+/g, ""));
    this.#said = end;
  }

  say(text) {
    if (!text.trim()) return;
    const line = document.createElement("p");
    line.textContent = text;
    this.#region.append(line);
    while (this.#region.childElementCount > 20) this.#region.firstElementChild.remove();
  }
}
