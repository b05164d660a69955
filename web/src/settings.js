// The drawer with the system prompt and the sampling controls of one conversation.
import { CONTROLS, NUMBERS, readNumber } from "./conversation.js";
import { byId, h, setIcon, toast } from "./dom.js";

function slider(control, params, changed) {
  const number = h("input", {
    id: `set-${control.name}`, class: "number", type: "number", inputmode: "decimal", min: String(control.min), max: String(control.max),
    step: String(control.step), placeholder: "default", "aria-describedby": `note-${control.name}`,
  });
  const range = h("input", { type: "range", min: String(control.min), max: String(control.max), step: String(control.step), "aria-label": `${control.label}, slider`, tabindex: "-1" });
  const show = () => {
    const value = params()[control.name];
    number.value = value ?? "";
    range.value = String(value ?? control.neutral);
    range.classList.toggle("unset", value === undefined);
    range.style.setProperty("--at", `${((Number(range.value) - control.min) / (control.max - control.min)) * 100}%`);
  };
  range.addEventListener("input", () => {
    params()[control.name] = Number(range.value);
    number.removeAttribute("aria-invalid");
    show();
    changed();
  });
  number.addEventListener("input", () => take(control, number, params(), () => {
    const value = params()[control.name];
    range.value = String(value ?? control.neutral);
    range.classList.toggle("unset", value === undefined);
    range.style.setProperty("--at", `${((Number(range.value) - control.min) / (control.max - control.min)) * 100}%`);
    changed();
  }));
  return { show, el: h("div", { class: "field" }, h("div", { class: "field-head" }, h("label", { for: number.id }, control.label), number), range, h("p", { class: "note", id: `note-${control.name}` }, control.note)) };
}

// Empty means absent; anything out of range is marked and not taken.
function take(control, input, params, done) {
  const empty = input.value.trim() === "" && !input.validity.badInput;
  const value = readNumber(control, input.value);
  if (!empty && value === null) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
  if (empty) delete params[control.name];
  else if (value !== null) params[control.name] = value;
  done();
}

function plain(control, params, changed) {
  const input = h("input", {
    id: `set-${control.name}`, class: "number wide", type: "number", inputmode: "numeric", min: String(control.min), max: String(control.max), step: "1",
    placeholder: control.name === "seed" ? "random" : "no limit", "aria-describedby": `note-${control.name}`,
  });
  input.addEventListener("input", () => take(control, input, params(), changed));
  return {
    show: () => (input.value = params()[control.name] ?? ""),
    el: h("div", { class: "field" }, h("div", { class: "field-head" }, h("label", { for: input.id }, control.label), input), h("p", { class: "note", id: `note-${control.name}` }, control.note)),
  };
}

// `current()` is the conversation; `changed()` is told after each change; `keep(conversation)` stores its settings for
// new chats.
export function startSettings({ current, changed, keep }) {
  const dialog = byId("settings");
  const system = h("textarea", { id: "set-system", rows: 5, placeholder: "None" });
  const params = () => current().params;
  const fields = [...CONTROLS.map((c) => slider(c, params, changed)), ...NUMBERS.map((c) => plain(c, params, changed))];
  byId("settings-body").append(
    h("div", { class: "field" }, h("label", { for: "set-system" }, "System prompt"), system, h("p", { class: "note" }, "What the model is told before the conversation begins.")),
    h("h3", {}, "Sampling"),
  );
  byId("settings-body").append(...fields.map((f) => f.el));
  system.addEventListener("input", () => {
    current().system = system.value;
    changed();
  });
  const show = () => {
    system.value = current().system;
    for (const field of fields) field.show();
    for (const input of dialog.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  };
  byId("settings-reset").addEventListener("click", () => {
    current().system = "";
    current().params = {};
    changed();
    show();
    toast("Back to the server’s defaults");
  });
  byId("settings-keep").addEventListener("click", () => {
    keep(current());
    toast("New chats begin with these settings");
  });
  setIcon(dialog.querySelector("header .icon-button"), "close");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  // Enter in a number closes the drawer as the Done button does; in the text it begins a line.
  return {
    open() {
      show();
      dialog.showModal();
      system.focus();
    },
  };
}

// The settings that differ from the server's defaults, in a few words each.
export function summary(conversation) {
  const out = [];
  if (conversation.system.trim()) out.push("system prompt");
  const short = { temperature: "temp", top_p: "top p", top_k: "top k", min_p: "min p", max_tokens: "max", seed: "seed" };
  for (const [name, label] of Object.entries(short)) {
    const value = conversation.params[name];
    if (value !== undefined) out.push(`${label} ${value}`);
  }
  return out;
}
