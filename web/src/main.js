// Puts the page together: the list at the side, the two views, keys, export and import.
import { getJson, onKeyNeeded } from "./api.js";
import { Chat } from "./chat.js";
import { fileName, fromJson, titleOf, toJson, toMarkdown } from "./conversation.js";
import { Dashboard } from "./dashboard.js";
import { askDelete, askKey, askName, showHelp } from "./dialogs.js";
import { byId, h, icon, saveFile, setIcon, toast } from "./dom.js";
import { startSettings } from "./settings.js";
import { Store, saveDefaults } from "./store.js";
import { startTheme } from "./theme.js";

const HEALTH_EVERY_MS = 15_000;
const narrow = matchMedia("(max-width: 820px)");

const store = new Store();
let chat = null;
let dashboard = null;
let settings = null;
let model = null;

/* ---- the list ---- */

function dayOf(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - 86_400_000) return "Yesterday";
  if (time >= midnight - 6 * 86_400_000) return "This week";
  return "Earlier";
}

function listItem(conversation) {
  const title = titleOf(conversation);
  const isOpen = conversation === chat.conversation && !byId("chat-view").hidden;
  return h("li", { class: chat.isRunning(conversation.id) ? "running" : "" },
    h("a", { href: `#/chat/${conversation.id}`, "aria-current": isOpen ? "page" : undefined, title }, title),
    h("button", { class: "icon-button", type: "button", "aria-label": `Rename ${title}`, title: "Rename", onClick: () => rename(conversation) }, icon("edit")),
    h("button", { class: "icon-button", type: "button", "aria-label": `Delete ${title}`, title: "Delete", onClick: () => remove(conversation) }, icon("trash")));
}

function showList() {
  const wanted = byId("search").value.trim().toLowerCase();
  const all = store.list().filter((c) => !wanted || titleOf(c).toLowerCase().includes(wanted) || c.messages.some((m) => m.content.toLowerCase().includes(wanted)));
  const items = [];
  let day = "";
  for (const conversation of all) {
    const its = dayOf(conversation.updated);
    if (its !== day) items.push(h("li", { class: "day" }, its));
    day = its;
    items.push(listItem(conversation));
  }
  if (!items.length) items.push(h("li", { class: "nothing" }, wanted ? "Nothing found" : "No conversations yet"));
  byId("conversations").replaceChildren(...items);
  byId("nav-chat").href = placeOf(chat.conversation);
}

async function rename(conversation) {
  const name = await askName(titleOf(conversation));
  if (name !== null) await chat.rename(conversation, name);
}

async function remove(conversation) {
  if (!(await askDelete(titleOf(conversation)))) return;
  const wasOpen = conversation === chat.conversation;
  await chat.remove(conversation);
  if (wasOpen) location.hash = "#/chat";
  byId("new-chat").focus();
}

/* ---- views ---- */

function show(view) {
  const isChat = view === "chat";
  byId("chat-view").hidden = !isChat;
  byId("dash-view").hidden = isChat;
  byId("nav-chat").toggleAttribute("aria-current", false);
  byId("nav-dashboard").toggleAttribute("aria-current", false);
  byId(isChat ? "nav-chat" : "nav-dashboard").setAttribute("aria-current", "page");
  document.querySelector(".skip").textContent = isChat ? "Skip to the conversation" : "Skip to the dashboard";
  if (isChat) dashboard.close();
  else {
    document.title = "Dashboard – tempo9";
    dashboard.open(model);
  }
}

function route() {
  const [, view, id] = location.hash.split("/");
  closeSide();
  if (view === "dashboard") show("dashboard");
  else {
    show("chat");
    const wanted = id ? store.get(id) : null;
    if (id && !wanted) history.replaceState(null, "", "#/chat");
    if (id ? wanted !== chat.conversation : chat.conversation.messages.length) chat.open(wanted);
    else chat.show();
    if (!narrow.matches) byId("prompt").focus();
  }
  showList();
}

function placeOf(conversation) {
  return store.get(conversation.id) ? `#/chat/${conversation.id}` : "#/chat";
}

function newChat() {
  chat.open(null);
  if (location.hash === "#/chat") route();
  else location.hash = "#/chat";
  byId("prompt").focus();
}

function toggleDashboard() {
  if (byId("dash-view").hidden) location.hash = "#/dashboard";
  else location.hash = placeOf(chat.conversation);
}

function step(by) {
  const all = store.list();
  const at = all.indexOf(chat.conversation);
  const next = all[at < 0 ? 0 : at + by];
  if (next) location.hash = `#/chat/${next.id}`;
}

/* ---- the side on a narrow screen ---- */

let sideOpener = null;

function openSide(event) {
  sideOpener = event.currentTarget;
  byId("app").classList.add("side-shown");
  byId("side").inert = false;
  byId("main").inert = true;
  byId("side-close").focus();
}

function closeSide() {
  byId("app").classList.remove("side-shown");
  byId("main").inert = false;
  byId("side").inert = narrow.matches;
  if (sideOpener?.isConnected) sideOpener.focus();
  sideOpener = null;
}

/* ---- keys ---- */

const SHORTCUTS = {
  KeyN: newChat,
  KeyM: () => byId("prompt").focus(),
  KeyS: () => byId("dash-view").hidden && settings.open(),
  KeyR: () => byId("dash-view").hidden && chat.retry(null),
  KeyB: toggleDashboard,
  KeyH: () => showHelp(),
  ArrowUp: () => step(-1),
  ArrowDown: () => step(1),
};

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (byId("export-menu").open) {
      byId("export-menu").open = false;
      byId("export-menu").firstElementChild.focus();
    } else if (byId("app").classList.contains("side-shown")) closeSide();
    else if (!byId("chat-view").hidden) chat.stop();
    return;
  }
  if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const action = SHORTCUTS[event.code];
  if (!action) return;
  event.preventDefault();
  action();
}

/* ---- export and import ---- */

function bindMenu() {
  const menu = byId("export-menu");
  setIcon(menu.querySelector("summary"), "share");
  const item = (id, action) =>
    byId(id).addEventListener("click", () => {
      menu.open = false;
      action();
    });
  const JSON_TYPE = "application/json";
  item("export-md", () => saveFile(fileName(chat.conversation, "md"), "text/markdown", toMarkdown(chat.conversation)));
  item("export-json", () => saveFile(fileName(chat.conversation, "json"), JSON_TYPE, toJson([chat.conversation])));
  item("export-all", () => saveFile("tempo9-conversations.json", JSON_TYPE, toJson(store.list())));
  item("import", () => byId("import-file").click());
  byId("import-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    try {
      const found = fromJson(await file.text());
      for (const conversation of found) await store.put(conversation);
      toast(`${found.length} ${found.length === 1 ? "conversation" : "conversations"} imported`);
      showList();
    } catch (error) {
      toast(`Not imported: ${error.message}`);
    }
  });
  document.addEventListener("click", (event) => {
    if (menu.open && !menu.contains(event.target)) menu.open = false;
  });
}

/* ---- the server ---- */

function showHealth(kind, text) {
  byId("health").className = `health ${kind}`;
  byId("health").lastElementChild.textContent = text;
}

async function lookAtServer() {
  try {
    const response = await fetch("/health", { cache: "no-store" });
    showHealth(response.ok ? "good" : "bad", response.ok ? "Ready" : "Stopping");
    if (!model) await loadModel();
  } catch {
    showHealth("bad", "No answer");
  }
}

async function loadModel() {
  const list = await getJson("/v1/models");
  model = list.data[0] ?? null;
  if (!model) return;
  byId("model").textContent = model.id;
  byId("model").title = `${model.id}, up to ${model.max_model_len.toLocaleString("en")} tokens`;
  chat.setModel(model);
  dashboard.model = model;
}

/* ---- start ---- */

function bind() {
  startTheme(byId("theme"));
  setIcon(byId("help"), "help");
  setIcon(byId("side-close"), "close");
  setIcon(byId("settings-open"), "tune");
  for (const button of document.querySelectorAll(".side-open")) {
    setIcon(button, "menu");
    button.addEventListener("click", openSide);
  }
  byId("new-chat").querySelector(".icon-slot").append(icon("plus"));
  byId("nav-chat").querySelector(".icon-slot").append(icon("chat"));
  byId("nav-dashboard").querySelector(".icon-slot").append(icon("gauge"));
  byId("new-chat").addEventListener("click", newChat);
  byId("side-close").addEventListener("click", closeSide);
  byId("scrim").addEventListener("click", closeSide);
  byId("help").addEventListener("click", () => showHelp());
  byId("search").addEventListener("input", showList);
  byId("settings-open").addEventListener("click", () => settings.open());
  narrow.addEventListener("change", closeSide);
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", () => !document.hidden && lookAtServer());
  bindMenu();
}

async function start() {
  onKeyNeeded(askKey);
  await store.open();
  chat = new Chat(store, {
    onListChange() {
      const { id } = chat.conversation;
      if (store.get(id) && location.hash !== `#/chat/${id}` && !byId("chat-view").hidden) history.replaceState(null, "", `#/chat/${id}`);
      showList();
    },
  });
  dashboard = new Dashboard();
  settings = startSettings({
    current: () => chat.conversation,
    changed: () => chat.settingsChanged(),
    keep: (c) => saveDefaults({ system: c.system, params: c.params }),
  });
  store.onChange = showList;
  bind();
  route();
  if (!store.durable) toast("This browser keeps nothing here: export conversations before you close the page");
  await lookAtServer();
  setInterval(() => !document.hidden && lookAtServer(), HEALTH_EVERY_MS);
}

start();
