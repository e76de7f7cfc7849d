// A dialog to choose a category: type to search, arrow keys to move, Enter to choose.

import { byId, element, picture } from "./dom.js";

const dialog = byId("picker");
const filter = byId("picker-filter");
const list = byId("picker-list");

const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

/**
 * @param title of the dialog
 * @param choices in order: { category, name, detail, source (of a picture, or null), hint (what is typical of it) }
 * @returns the category, or null if the dialog was cancelled
 */
export function choose(title, choices) {
  byId("picker-title").textContent = title;
  filter.value = "";
  let shown = [];
  let current = 0;
  let chosen = null;

  function mark() {
    shown.forEach(({ item }, index) => item.setAttribute("aria-selected", String(index === current)));
    if (shown.length) filter.setAttribute("aria-activedescendant", shown[current].item.id);
    else filter.removeAttribute("aria-activedescendant");
    shown[current]?.item.scrollIntoView({ block: "nearest" });
  }

  function show() {
    const wanted = plain(filter.value.trim());
    shown = items.filter(({ name }) => name.includes(wanted));
    list.replaceChildren(...shown.map(({ item }) => item));
    byId("picker-none").hidden = shown.length > 0;
    current = 0;
    mark();
  }

  function take(category) {
    chosen = category;
    dialog.close();
  }

  const items = choices.map(({ category, name, detail, source, hint = "" }) => {
    const item = element(
      "li",
      { id: `choice-${category}`, aria: { role: "option" } },
      source === null ? null : picture(source),
      element("span", { className: "about" }, element("span", { className: "name", textContent: name }), hint ? element("span", { className: "hint", dir: "auto", textContent: hint }) : null),
      element("span", { className: "detail", textContent: detail }),
    );
    item.addEventListener("click", () => take(category));
    return { category, item, name: plain(`${name} ${hint}`) };
  });

  function onKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in steps) {
      current = Math.max(0, Math.min(shown.length - 1, current + steps[event.key]));
      mark();
    } else if (event.key === "Enter") {
      if (shown.length) take(shown[current].category);
    } else return;
    event.preventDefault();
  }

  return new Promise((resolve) => {
    filter.addEventListener("input", show);
    filter.addEventListener("keydown", onKey);
    dialog.addEventListener("close", () => {
      filter.removeEventListener("input", show);
      filter.removeEventListener("keydown", onKey);
      resolve(chosen);
    }, { once: true });
    show();
    dialog.showModal();
    filter.focus();
  });
}
