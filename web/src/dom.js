// Elements without markup strings: everything that is text stays text.

const SVG = "http://www.w3.org/2000/svg";

function fill(el, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2).toLowerCase(), value);
    else if (key === "class") el.setAttribute("class", value);
    else if (key === "style") for (const [name, v] of Object.entries(value)) el.style.setProperty(name, v);
    else if (key in el && typeof value !== "string" && !(el instanceof SVGElement)) el[key] = value;
    else el.setAttribute(key, value === true ? "" : String(value));
  }
  el.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return el;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function byId(id) {
  return document.getElementById(id);
}

// Drawn on a grid of 24, with strokes of the text's colour.
const ICONS = {
  plus: "M12 5v14M5 12h14",
  chat: "M4 6.5A2.5 2.5 0 0 1 6.5 4h11A2.5 2.5 0 0 1 20 6.5v7a2.5 2.5 0 0 1-2.5 2.5H11l-4.5 4v-4A2.5 2.5 0 0 1 4 13.5Z",
  gauge: "M4 18a8.9 8.9 0 1 1 16 0M12 14l4-5M12 15.5a1.2 1.2 0 1 0 0-2.4 1.2 1.2 0 0 0 0 2.4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8Z",
  copy: "M9 9h10v11H9ZM15 9V5H5v11h4",
  check: "m5 12.5 4.5 4.5L19 7.5",
  retry: "M19 8a8 8 0 1 0 1 5M19.5 4v4.5H15",
  edit: "m5 19 .8-3.6L16 5.2a1.4 1.4 0 0 1 2 0l.8.8a1.4 1.4 0 0 1 0 2L8.600 18.200ZM14 7.500l2.500 2.500",
  trash: "M5 7h14M10 7V4.500h4V7M7 7l.8 12.500h8.400L17 7M10.500 11v5M13.500 11v5",
  tune: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.500v5M9 14.500v5",
  menu: "M4 7h16M4 12h16M4 17h10",
  close: "m6 6 12 12M18 6 6 18",
  share: "M12 15V4M8 7.500 12 3.500l4 4M5 12v7.500h14V12",
  sun: "M12 16.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9M12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M18.700 5.300l-1.400 1.400M6.700 17.300l-1.400 1.400",
  moon: "M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10",
  system: "M4 5h16v11H4ZM9 20h6M12 16v4",
  help: "M9.200 9a2.900 2.900 0 1 1 4.300 2.600c-1 .55-1.500 1.100-1.500 2.200M12 17.400v.1M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18",
  down: "m6 10 6 6 6-6",
  left: "m14 6-6 6 6 6",
  right: "m10 6 6 6-6 6",
  warn: "M12 4 3.500 19h17ZM12 10v4M12 16.500v.1",
};

export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, s("path", { d: ICONS[name] }));
}

export function setIcon(button, name) {
  button.replaceChildren(icon(name));
}

// A value that may be shown as "12.3 s" or "840 ms".
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return `${n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function count(n) {
  return Math.round(n).toLocaleString("en");
}

// Works without a secure context too, as when the server is reached over a local network.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "sr-only", "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    document.body.append(area);
    area.select();
    const ok = document.execCommand("copy");
    area.remove();
    return ok;
  }
}

export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

let toastTimer = 0;
export function toast(text) {
  const el = byId("toast");
  el.textContent = text;
  el.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => el.classList.remove("shown"), 2600);
}
