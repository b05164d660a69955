// The questions this page asks: a name, a yes, a key; and what it tells about itself.
import { byId, h } from "./dom.js";

const modal = () => byId("modal");

// Shows a form in the modal dialog; resolves to the value of the button that closed it, "" for Escape.
function ask(title, body, buttons, focus) {
  const dialog = modal();
  const form = byId("modal-form");
  form.replaceChildren(
    h("h2", { id: "modal-title" }, title),
    h("div", { class: "modal-body" }, body),
    h("footer", {}, buttons.map(([value, label, kind]) =>
      h("button", { type: value ? "submit" : "button", value, class: kind, onClick: value ? undefined : () => dialog.close("") }, label))),
  );
  dialog.returnValue = "";
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
    (focus ?? form.querySelector("button.primary, button.danger"))?.focus();
    focus?.select?.();
  });
}

export async function askName(current) {
  const input = h("input", { id: "modal-name", type: "text", value: current, maxLength: 200, autocomplete: "off" });
  const answer = await ask("Rename", [h("label", { for: "modal-name" }, "Name of the conversation"), input],
    [["", "Cancel", "quiet"], ["ok", "Rename", "primary"]], input);
  return answer === "ok" ? input.value.trim() : null;
}

export async function askDelete(title) {
  return (await ask("Delete this conversation?", [h("p", {}, `“${title}” is removed from this browser and can’t be brought back.`)],
    [["", "Keep it", "quiet"], ["ok", "Delete", "danger"]])) === "ok";
}

export async function askKey(wasWrong) {
  const input = h("input", { id: "modal-key", type: "password", autocomplete: "current-password", spellcheck: false, "aria-describedby": "modal-key-note" });
  const answer = await ask(wasWrong ? "That key was not accepted" : "This server needs an API key", [
    h("label", { for: "modal-key" }, "API key"), input,
    h("p", { class: "note", id: "modal-key-note" }, "The one the server was started with. It stays in this tab and is forgotten when you close it."),
  ], [["", "Cancel", "quiet"], ["ok", "Continue", "primary"]], input);
  return answer === "ok" ? input.value.trim() || null : null;
}

const KEYS = [
  ["Enter", "send; Shift Enter begins a new line"],
  ["Escape", "stop the answer"],
  ["Alt N", "new chat"],
  ["Alt ↑ / Alt ↓", "newer / older conversation"],
  ["Alt M", "write a message"],
  ["Alt S", "settings of this conversation"],
  ["Alt R", "answer again"],
  ["Alt B", "dashboard, and back to the chat"],
  ["Alt H", "this help"],
];

export async function showHelp() {
  const about = byId("about").dataset;
  await ask("Keyboard and about", [
    h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, key.split(" ").map((k) => (k === "/" ? " / " : h("kbd", {}, k)))), h("dd", {}, what)])),
    h("p", { class: "note" }, `tempo9 ${about.version}. Conversations are kept in this browser only. This page asks nobody but this server for anything. `,
      h("a", { href: about.licences, target: "_blank", rel: "noopener" }, "Licences of the libraries in it"), "."),
  ], [["", "Close", "primary"]]);
}

