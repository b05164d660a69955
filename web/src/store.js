// Conversations in the browser's own database, small settings in its storage. Where the browser keeps nothing (some
// private windows), everything works until the page is closed.

const NAME = "tempo9";
const TABLE = "conversations";
const DEFAULTS = "t9.defaults";

function wait(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class Store {
  #db = null;
  #all = new Map();
  #channel = null;
  onChange = null; // another tab changed something
  durable = true;

  async open() {
    try {
      const request = indexedDB.open(NAME, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: "id" });
      this.#db = await wait(request);
      await this.#load();
    } catch {
      this.#db = null;
      this.durable = false;
    }
    if ("BroadcastChannel" in globalThis) {
      this.#channel = new BroadcastChannel(NAME);
      this.#channel.onmessage = async () => {
        await this.#load();
        this.onChange?.();
      };
    }
  }

  async #load() {
    if (!this.#db) return;
    const rows = await wait(this.#db.transaction(TABLE).objectStore(TABLE).getAll());
    // What is open keeps its object: it may be in the middle of an answer.
    const next = new Map();
    for (const row of rows) {
      const old = this.#all.get(row.id);
      next.set(row.id, old && old.updated >= row.updated ? old : row);
    }
    this.#all = next;
  }

  // Newest first.
  list() {
    return [...this.#all.values()].sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.#all.get(id) ?? null;
  }

  async put(conversation) {
    this.#all.set(conversation.id, conversation);
    await this.#write((table) => table.put(structuredClone(conversation)));
  }

  async remove(id) {
    this.#all.delete(id);
    await this.#write((table) => table.delete(id));
  }

  async #write(change) {
    if (!this.#db) return;
    try {
      const transaction = this.#db.transaction(TABLE, "readwrite");
      await wait(change(transaction.objectStore(TABLE)));
      this.#channel?.postMessage("changed");
    } catch (error) {
      this.durable = false;
      throw error;
    }
  }
}

export function loadDefaults() {
  try {
    const value = JSON.parse(localStorage.getItem(DEFAULTS));
    return value && typeof value === "object" ? value : {};
  } catch {
    return {};
  }
}

export function saveDefaults(value) {
  try {
    localStorage.setItem(DEFAULTS, JSON.stringify(value));
  } catch {
    // Then new chats begin with the server's defaults.
  }
}
