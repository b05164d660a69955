// The chat: the open conversation, answers under way (they go on when another one is opened), and the composer.
import { Announcer } from "./announce.js";
import { explain, streamChat } from "./api.js";
import { newConversation, newId, requestBody, takeChunk, titleOf } from "./conversation.js";
import { byId, h, icon, setIcon, toast } from "./dom.js";
import { MessageView } from "./message.js";
import { summary } from "./settings.js";
import { loadDefaults } from "./store.js";

// Shown text follows the tokens this often; more would only heat the machine that also computes them.
const FRAME_MS = 60;
// How far from its end a conversation may be scrolled and still follow it.
const FOLLOW_PX = 80;

const IDEAS = [
  ["Explain", "Explain how a hash table works, with a small example in Python."],
  ["Write", "Write a friendly note to my neighbours about a party on Saturday."],
  ["Compare", "Compare TCP and UDP in a short table."],
  ["Plan", "Plan a weekend in a small town by the sea."],
];

// What belongs to one version of an answer.
const VERSION_KEYS = ["content", "reasoning", "finish", "usage", "timings", "warnings", "seed", "model", "stopped", "error"];

function snapshot(message) {
  return Object.fromEntries(VERSION_KEYS.filter((key) => message[key] !== undefined).map((key) => [key, message[key]]));
}

export class Chat {
  #runs = new Map(); // conversation id -> {controller, message}
  #views = new Map(); // message -> MessageView
  #follow = true;

  constructor(store, { onListChange }) {
    this.store = store;
    this.onListChange = onListChange;
    this.conversation = newConversation(loadDefaults());
    this.announcer = new Announcer(byId("announce"));
    this.messages = byId("messages");
    this.scroller = byId("scroll");
    this.prompt = byId("prompt");
    this.#bindComposer();
    this.scroller.addEventListener("scroll", () => this.#noteScroll(), { passive: true });
    setIcon(byId("send"), "send");
    setIcon(byId("stop"), "stop");
    byId("jump").prepend(icon("down"));
    byId("jump").addEventListener("click", () => {
      this.#follow = true;
      this.#scrollDown();
    });
  }

  isRunning(id = this.conversation.id) {
    return this.#runs.has(id);
  }

  setModel(model) {
    this.model = model;
    if (!this.conversation.messages.length) this.show();
  }

  open(conversation) {
    this.conversation = conversation ?? newConversation(loadDefaults());
    this.#follow = true;
    this.show();
    this.announcer.begin();
  }

  show() {
    const c = this.conversation;
    byId("chat-title").textContent = titleOf(c);
    document.title = c.messages.length ? `${titleOf(c)} – tempo9` : "tempo9";
    this.#views.clear();
    this.messages.replaceChildren();
    byId("chat-view").classList.toggle("empty", c.messages.length === 0);
    if (c.messages.length === 0) this.messages.append(this.#welcome());
    for (const message of c.messages) this.#addView(message);
    this.refreshControls();
    this.#scrollDown();
  }

  #welcome() {
    return h("div", { class: "welcome" },
      h("h2", {}, "What shall we work on?"),
      h("p", {}, this.model ? h("span", {}, "You are talking to ", h("b", {}, this.model.id), ", on this machine, up to ", h("b", {}, this.model.max_model_len.toLocaleString("en")), " tokens.") : "A model on this machine answers."),
      h("div", { class: "ideas" }, IDEAS.map(([title, text]) =>
        h("button", { type: "button", onClick: () => { this.prompt.value = text; this.#fit(); this.prompt.focus(); } }, h("strong", {}, title), h("span", {}, text)))));
  }

  #addView(message) {
    const view = new MessageView(message, {
      retry: (m) => this.retry(m),
      edit: (m, text) => this.edit(m, text),
      version: (m, step) => this.version(m, step),
    });
    if (this.#runs.get(this.conversation.id)?.message === message) view.update({ isRunning: true });
    this.#views.set(message, view);
    this.messages.append(view.el);
    return view;
  }

  refreshControls() {
    const running = this.isRunning();
    const hadFocus = [byId("send"), byId("stop")].includes(document.activeElement);
    byId("send").hidden = running;
    byId("stop").hidden = !running;
    if (hadFocus) this.prompt.focus();
    byId("export-menu").hidden = this.conversation.messages.length === 0 && this.store.list().length === 0;
    byId("chips").replaceChildren(...summary(this.conversation).map((text) => h("span", { class: "chip" }, text)));
  }

  /* ---- the composer ---- */

  #bindComposer() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    byId("stop").addEventListener("click", () => this.stop());
    this.prompt.addEventListener("input", () => this.#fit());
    this.prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      if (matchMedia("(pointer: coarse)").matches && !event.ctrlKey) return; // a phone's Enter begins a line
      event.preventDefault();
      this.send();
    });
  }

  #fit() {
    this.prompt.style.height = "auto";
    this.prompt.style.height = `${Math.min(this.prompt.scrollHeight, innerHeight * 0.4)}px`;
  }

  send() {
    const text = this.prompt.value;
    if (!text.trim()) return;
    if (this.isRunning()) {
      toast("An answer is being written. Escape stops it.");
      return;
    }
    this.prompt.value = "";
    this.#fit();
    this.conversation.messages.push({ id: newId(), role: "user", content: text, at: Date.now() });
    this.#answer();
  }

  stop() {
    this.#runs.get(this.conversation.id)?.controller.abort();
  }

  /* ---- answers ---- */

  retry(message) {
    const all = this.conversation.messages;
    const at = message ? all.indexOf(message) : all.findLastIndex((m) => m.role === "assistant");
    if (at < 0 || this.isRunning()) return;
    const old = all[at];
    all.length = at;
    const versions = old.versions ?? [];
    if (old.content) versions[old.shown ?? versions.length] = snapshot(old);
    this.#answer(versions.filter(Boolean));
  }

  edit(message, text) {
    const at = this.conversation.messages.indexOf(message);
    if (at < 0) return;
    this.stop();
    this.conversation.messages.length = at;
    this.conversation.messages.push({ id: newId(), role: "user", content: text, at: Date.now() });
    this.#runs.delete(this.conversation.id);
    this.#answer();
  }

  version(message, step) {
    const versions = message.versions;
    const to = (message.shown ?? 0) + step;
    if (this.isRunning() || to < 0 || to >= versions.length) return;
    versions[message.shown] = snapshot(message);
    for (const key of VERSION_KEYS) delete message[key];
    Object.assign(message, versions[to], { shown: to });
    this.#views.get(message)?.update({ isRunning: false });
    this.#save(this.conversation);
  }

  async #answer(versions = []) {
    const conversation = this.conversation;
    const body = requestBody(conversation);
    const message = { id: newId(), role: "assistant", content: "", at: Date.now() };
    if (versions.length) Object.assign(message, { versions: [...versions, null], shown: versions.length });
    conversation.messages.push(message);
    const run = { controller: new AbortController(), message };
    this.#runs.set(conversation.id, run);
    this.#follow = true;
    this.show();
    this.announcer.begin();
    this.announcer.say("Sent. The answer follows.");
    this.#save(conversation);
    let shownAt = 0;
    let timer = 0;
    const grow = () => {
      timer = 0;
      shownAt = performance.now();
      if (this.conversation !== conversation) return;
      this.#views.get(message)?.grow();
      this.announcer.update(message.content, false);
      if (this.#follow) this.#scrollDown();
    };
    try {
      for await (const chunk of streamChat(body, run.controller.signal)) {
        takeChunk(message, chunk);
        timer ||= setTimeout(grow, Math.max(0, FRAME_MS - (performance.now() - shownAt)));
      }
    } catch (error) {
      if (run.controller.signal.aborted) message.stopped = true;
      else message.error = explain(error);
    }
    clearTimeout(timer);
    this.#end(conversation, run);
  }

  #end(conversation, run) {
    const { message } = run;
    const isCurrent = this.#runs.get(conversation.id) === run; // else an edit or a removal has overtaken it
    if (isCurrent) this.#runs.delete(conversation.id);
    if (message.versions) message.versions[message.shown] = snapshot(message);
    if (isCurrent && this.conversation === conversation) {
      this.#views.get(message)?.update({ isRunning: false });
      this.announcer.update(message.content, true);
      this.announcer.say(message.error ? message.error.title : message.stopped ? "Stopped." : "The answer is complete.");
      this.refreshControls();
      if (this.#follow) this.#scrollDown();
    }
    if (isCurrent) this.#save(conversation);
  }

  async #save(conversation) {
    conversation.updated = Date.now();
    try {
      if (conversation.messages.length) await this.store.put(conversation);
    } catch {
      toast("The browser has no room for this conversation: export it before you close the page");
    }
    this.onListChange();
  }

  // A change of settings.
  async settingsChanged() {
    this.refreshControls();
    if (this.conversation.messages.length) await this.#save(this.conversation);
  }

  async rename(conversation, title) {
    conversation.title = title;
    if (conversation === this.conversation) byId("chat-title").textContent = titleOf(conversation);
    try {
      await this.store.put(conversation);
    } catch {
      toast("The browser could not keep the name");
    }
    this.onListChange();
  }

  async remove(conversation) {
    this.#runs.get(conversation.id)?.controller.abort();
    this.#runs.delete(conversation.id);
    await this.store.remove(conversation.id).catch(() => toast("The browser could not delete it"));
    if (conversation === this.conversation) this.open(null);
    this.onListChange();
  }

  /* ---- scrolling ---- */

  #noteScroll() {
    const el = this.scroller;
    const isAtEnd = el.scrollHeight - el.scrollTop - el.clientHeight < FOLLOW_PX;
    this.#follow = isAtEnd;
    byId("jump").hidden = isAtEnd;
  }

  #scrollDown() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
