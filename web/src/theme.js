// Light, dark, or as the system says. Kept in the browser.
import { setIcon } from "./dom.js";

const KEY = "t9.theme";
const ORDER = ["system", "light", "dark"];
const LABEL = { system: "as the system", light: "light", dark: "dark" };
const ICON = { system: "system", light: "sun", dark: "moon" };

function stored() {
  try {
    const value = localStorage.getItem(KEY);
    return ORDER.includes(value) ? value : "system";
  } catch {
    return "system";
  }
}

let current = stored();

function apply() {
  if (current === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = current;
}
apply();

export function startTheme(button) {
  const show = () => {
    setIcon(button, ICON[current]);
    const next = ORDER[(ORDER.indexOf(current) + 1) % ORDER.length];
    button.setAttribute("aria-label", `Colours: ${LABEL[current]}. Switch to ${LABEL[next]}`);
    button.title = `Colours: ${LABEL[current]}`;
  };
  button.addEventListener("click", () => {
    current = ORDER[(ORDER.indexOf(current) + 1) % ORDER.length];
    try {
      localStorage.setItem(KEY, current);
    } catch {
      // Then it lasts until the page is closed.
    }
    apply();
    show();
  });
  show();
}
