// A dialog that asks for one of many places: type to filter, arrows to go, Enter to choose.

import { byId, element, picture } from "./dom.js";

const dialog = byId("picker");
const filter = byId("picker-filter");
const list = byId("picker-list");

const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

/**
 * @param title what is asked
 * @param choices in order: { place, name, detail, source (of a picture, or null) }
 * @returns the place, or null where the person thought better of it
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

  function take(place) {
    chosen = place;
    dialog.close();
  }

  const items = choices.map(({ place, name, detail, source }) => {
    const item = element(
      "li",
      { id: `choice-${place}`, aria: { role: "option" } },
      source === null ? null : picture(source),
      element("span", { className: "name", textContent: name }),
      element("span", { className: "detail", textContent: detail }),
    );
    item.addEventListener("click", () => take(place));
    return { place, item, name: plain(name) };
  });

  function onKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in steps) {
      current = Math.max(0, Math.min(shown.length - 1, current + steps[event.key]));
      mark();
    } else if (event.key === "Enter") {
      if (shown.length) take(shown[current].place);
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
