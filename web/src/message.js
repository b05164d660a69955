// One message on the screen: its text, what can be done with it, and how its answer came about.
import { copyText, count, duration, h, icon } from "./dom.js";
import { makeMarkdown } from "./markdown.js";

export async function copyWithMark(text, button) {
  const ok = await copyText(text);
  const before = [...button.childNodes];
  button.replaceChildren(icon(ok ? "check" : "warn"), ...(before.some((n) => n.nodeType === 3) ? [ok ? "Copied" : "Not copied"] : []));
  button.classList.add("done");
  setTimeout(() => {
    button.replaceChildren(...before);
    button.classList.remove("done");
  }, 1400);
}

const render = makeMarkdown(window, { onCopy: copyWithMark });

function tool(name, label, onClick) {
  const button = h("button", { class: "tool", type: "button", "aria-label": label, title: label, onClick: () => onClick(button) }, icon(name));
  return button;
}

const PHASES = [
  ["queue_ms", "queue", "queue"],
  ["prefix_wait_ms", "prefix", "wait for a shared beginning"],
  ["prefill_ms", "prefill", "read the prompt"],
  ["decode_ms", "decode", "write the answer"],
];

function phasesBar(t) {
  const parts = PHASES.filter(([key]) => t[key] > 0.5);
  const all = parts.reduce((sum, [key]) => sum + t[key], 0);
  if (!all) return null;
  const label = parts.map(([key, , what]) => `${what} ${duration(t[key])}`).join(", ");
  return h("span", { class: "phases", role: "img", "aria-label": `Time of the answer: ${label}`, title: label },
    parts.map(([key, kind]) => h("i", { class: `phase-${kind}`, style: { "flex-grow": String(Math.max(t[key] / all, 0.02)) } })));
}

function facts(message) {
  const t = message.timings;
  const out = [];
  if (t) {
    out.push(phasesBar(t));
    if (t.predicted_n > 1) out.push(h("span", {}, h("b", {}, t.predicted_per_second.toFixed(t.predicted_per_second < 10 ? 1 : 0)), " tokens/s"));
    out.push(h("span", {}, "first after ", h("b", {}, duration(t.first_token_ms))));
    out.push(h("span", {}, h("b", {}, count(t.predicted_n)), " tokens"));
    if (t.cache_n > 0) out.push(h("span", {}, h("b", {}, `${Math.round((100 * t.cache_n) / (t.cache_n + t.prompt_n))}%`), " of the prompt cached"));
  }
  if (message.stopped) out.push(h("span", { class: "flag" }, "stopped"));
  if (message.finish === "length") out.push(h("span", { class: "flag", title: "The limit of tokens was reached" }, "cut at the limit"));
  return out.filter(Boolean);
}

// `actions` has retry(message), edit(message, text), version(message, step); `isLast` and `isRunning` say what is offered.
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    const who = message.role === "user" ? "You" : "Answer";
    this.content = h("div", { class: "content" });
    this.foot = h("div", { class: "foot" });
    this.el = h("article", { class: `message ${message.role}`, "aria-label": who }, h("h2", { class: "sr-only" }, who), this.content, this.foot);
    this.update({ isRunning: false });
  }

  update({ isRunning }) {
    const m = this.message;
    this.isRunning = isRunning;
    this.el.classList.toggle("running", isRunning);
    this.el.setAttribute("aria-busy", String(isRunning));
    if (m.role === "user") this.content.textContent = m.content;
    else this.#showAnswer(m, isRunning);
    this.#showFoot(m, isRunning);
  }

  // While tokens come: the text alone.
  grow() {
    this.#showAnswer(this.message, true);
  }

  #showAnswer(m, isRunning) {
    if (m.reasoning && !this.thought) {
      this.thoughtText = h("div", { class: "thought-text" });
      this.thought = h("details", { class: "thought" }, h("summary", {}, "Reasoning"), this.thoughtText);
      this.content.prepend(this.thought);
    }
    if (this.thought) this.thoughtText.textContent = m.reasoning ?? "";
    this.body ??= this.content.appendChild(h("div", { class: "markdown" }));
    render(this.body, m.content);
    this.wait?.remove();
    if (isRunning && !m.content) {
      this.wait = h("div", { class: "waiting" }, h("i", {}), h("i", {}), h("i", {}), h("span", { class: "sr-only" }, "Waiting for the first word"));
      this.content.append(this.wait);
    }
    this.failure?.remove();
    if (m.error && !isRunning) {
      this.failure = h("div", { class: "failure", role: "alert" }, icon("warn"), h("div", {}, h("strong", {}, m.error.title), h("p", {}, m.error.text)),
        h("button", { type: "button", class: "quiet", onClick: () => this.actions.retry(m) }, "Try again"));
      this.content.append(this.failure);
    }
  }

  #showFoot(m, isRunning) {
    if (isRunning) {
      this.foot.replaceChildren();
      return;
    }
    const tools = h("div", { class: "tools" });
    if (m.versions?.length > 1) {
      const at = m.shown ?? 0;
      tools.append(h("span", { class: "versions", role: "group", "aria-label": "Versions of this answer" },
        tool("left", "Version before", () => this.actions.version(m, -1)), h("span", {}, `${at + 1}/${m.versions.length}`), tool("right", "Next version", () => this.actions.version(m, 1))));
    }
    if (m.content) tools.append(tool("copy", "Copy the text", (button) => copyWithMark(m.content, button)));
    if (m.role === "assistant") tools.append(tool("retry", "Answer again", () => this.actions.retry(m)));
    else tools.append(tool("edit", "Edit the message", () => this.startEdit()));
    this.foot.replaceChildren(tools);
    if (m.role === "assistant") {
      this.foot.append(h("div", { class: "facts" }, facts(m)));
      for (const warning of m.warnings ?? []) this.foot.append(h("p", { class: "warning" }, warning));
    }
  }

  startEdit() {
    const area = h("textarea", { "aria-label": "Edit the message", rows: 3 });
    area.value = this.message.content;
    const stop = () => {
      form.remove();
      this.content.hidden = this.foot.hidden = false;
      this.foot.querySelector("[aria-label='Edit the message']")?.focus();
    };
    const form = h("form", { class: "edit" }, area,
      h("div", {}, h("span", { class: "note" }, "What follows is answered anew."), h("button", { type: "button", class: "quiet", onClick: stop }, "Cancel"), h("button", { type: "submit", class: "primary" }, "Send again")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (area.value.trim()) this.actions.edit(this.message, area.value);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        stop();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.content.hidden = this.foot.hidden = true;
    this.el.append(form);
    area.style.height = `${Math.min(area.scrollHeight + 4, 400)}px`;
    area.focus();
  }
}

