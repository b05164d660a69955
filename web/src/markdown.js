// Markdown of a model to elements. What a model writes is hostile: markup in it is shown as text, what the Markdown
// library makes goes through the sanitiser with a short list of tags, links go to the web or to mail and nowhere else,
// and pictures are links, so that reading an answer asks nobody for anything.
import createPurify from "dompurify";
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { Marked } from "marked";

for (const [name, language] of Object.entries({
  bash, c, cpp, css, diff, go, ini, java, javascript, json, python, rust, sql, typescript, xml, yaml,
}))
  hljs.registerLanguage(name, language);

// Colouring longer code costs more than it helps.
const COLOUR_CHARS_MAX = 60_000;

const TAGS = [
  "p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "ul", "ol", "li", "blockquote",
  "table", "thead", "tbody", "tr", "th", "td", "a", "span", "sub", "sup", "kbd",
];
const CONFIG = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["href", "title", "class", "align", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  KEEP_CONTENT: true,
  RETURN_DOM_FRAGMENT: true,
};
const INLINE_HTML = /^<\/?(?:br|sub|sup|kbd)\s*\/?>$/i;

function escapeHtml(text) {
  return text.replace(/[&<>"']/g, (ch) => `&#${ch.charCodeAt(0)};`);
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  async: false,
  renderer: {
    html({ text }) {
      return INLINE_HTML.test(text.trim()) ? text : escapeHtml(text);
    },
    heading({ tokens, depth }) {
      // Below the headings of the page itself.
      const level = Math.min(depth + 2, 6);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    image({ href, text }) {
      return `<a href="${escapeHtml(href)}">${escapeHtml(text || "picture")}</a>`;
    },
    checkbox({ checked }) {
      return checked ? "☑ " : "☐ ";
    },
    code({ text, lang }) {
      const name = /^[\w+#-]{1,24}/.exec(lang ?? "")?.[0] ?? "";
      return `<pre><code class="language-${escapeHtml(name)}">${escapeHtml(text)}</code></pre>`;
    },
  },
});

export function makeMarkdown(window, { onCopy } = {}) {
  const document = window.document;
  const purify = createPurify(window);
  purify.addHook("uponSanitizeAttribute", (_node, data) => {
    if (data.attrName === "class") data.keepAttr = /^(?:hljs-[\w-]+_?|language-[\w+#-]*)(?: [\w-]+_?)*$/.test(data.attrValue);
    if (data.attrName === "start") data.keepAttr = /^\d{1,9}$/.test(data.attrValue);
  });
  purify.addHook("afterSanitizeAttributes", (node) => {
    if (node.tagName !== "A") return;
    if (!node.hasAttribute("href")) return;
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  });

  function clean(html) {
    return purify.sanitize(html, CONFIG);
  }

  function colour(code) {
    const wanted = /language-([\w+#-]+)/.exec(code.className)?.[1]?.toLowerCase() ?? "";
    const text = code.textContent;
    if (wanted && hljs.getLanguage(wanted) && text.length <= COLOUR_CHARS_MAX)
      code.replaceChildren(clean(hljs.highlight(text, { language: wanted, ignoreIllegals: true }).value));
    return wanted;
  }

  // A code block gets a head with its language and a button that copies it.
  function dress(root) {
    for (const pre of root.querySelectorAll("pre")) {
      const code = pre.querySelector("code");
      if (!code) continue;
      const language = colour(code);
      const box = document.createElement("div");
      box.className = "code";
      const head = document.createElement("div");
      head.className = "code-head";
      const name = document.createElement("span");
      name.textContent = language || "text";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.setAttribute("aria-label", `Copy the ${language || "text"} block`);
      button.addEventListener("click", () => onCopy?.(code.textContent, button));
      head.append(name, button);
      pre.replaceWith(box);
      pre.tabIndex = 0;
      pre.setAttribute("role", "region");
      pre.setAttribute("aria-label", `Code, ${language || "text"}`);
      box.append(head, pre);
    }
    for (const table of root.querySelectorAll("table")) {
      const box = document.createElement("div");
      box.className = "table";
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "Table");
      table.replaceWith(box);
      box.append(table);
    }
  }

  function block(token) {
    const el = document.createElement("div");
    el.className = "block";
    el.append(clean(marked.parser([token])));
    dress(el);
    return el;
  }

  // Shows `text` in `container`. Called again with a longer text, it makes anew only the blocks that changed, so that a
  // long answer stays cheap and a selection in its finished part survives.
  return function render(container, text) {
    const old = container.t9Blocks ?? [];
    const next = [];
    let reuse = true;
    for (const token of marked.lexer(text)) {
      if (token.type === "space") continue;
      const at = next.length;
      reuse &&= at < old.length && old[at].raw === token.raw;
      next.push(reuse ? old[at] : { raw: token.raw, el: block(token) });
    }
    let keep = 0;
    while (keep < next.length && next[keep] === old[keep]) keep++;
    for (const gone of old.slice(keep)) gone.el.remove();
    container.append(...next.slice(keep).map((b) => b.el));
    container.t9Blocks = next;
  };
}
