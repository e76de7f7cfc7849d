// Keyboard shortcuts; single keys can be switched off because speech input may trigger them by accident.

import { byId, element } from "./dom.js";
import { remember } from "./preferences.js";

const REMEMBERED = "uniot-label-keys";

/**
 * @param sections of the help: { title, isOn, keys }; the keys of a section work while `isOn()` is true, and are
 *   { keys: ["m"], about, run }, in the order of the help; `run` is called with the key
 */
export function listenToShortcuts(sections) {
  const on = byId("keys-on");
  remember(REMEMBERED, on, () => {});

  const line = ({ keys: names, about }) =>
    element("div", {},
      element("dt", {}, ...names.flatMap((name, index) => [index ? " " : null, element("kbd", { textContent: name })])),
      element("dd", { textContent: about }));
  byId("keys").replaceChildren(
    ...sections.flatMap(({ title, keys }) => [element("h4", { textContent: title }), element("dl", {}, ...keys.map(line))]),
  );

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("main input:not([type=checkbox]), main select")) return;
    const withControl = event.ctrlKey || event.metaKey;
    if (!withControl && !on.checked && event.key !== "?" && event.key !== "Escape") return;
    const pressed = `${withControl ? "Ctrl+" : ""}${event.key.length === 1 && !event.shiftKey ? event.key.toLowerCase() : event.key}`;
    const keys = sections.filter(({ isOn }) => isOn()).flatMap((section) => section.keys);
    const found = keys.find(({ keys: names, run }) => run && names.includes(pressed));
    if (!found) return;
    event.preventDefault();
    found.run(pressed);
  });
}
