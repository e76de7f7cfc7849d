// Keyboard shortcuts; single keys can be switched off because speech input may trigger them by accident.

import { byId, element } from "./dom.js";
import { remember } from "./preferences.js";

const REMEMBERED = "uniot-label-keys";

/** @param keys shortcuts in the order of the help: { keys: ["m"], about, run } */
export function listenToShortcuts(keys) {
  const on = byId("keys-on");
  remember(REMEMBERED, on, () => {});

  byId("keys").replaceChildren(
    ...keys.map(({ keys: names, about }) =>
      element(
        "div",
        {},
        element("dt", {}, ...names.flatMap((name, index) => [index ? " " : null, element("kbd", { textContent: name })])),
        element("dd", { textContent: about }),
      ),
    ),
  );

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("main input:not([type=checkbox]), main select")) return;
    const withControl = event.ctrlKey || event.metaKey;
    if (!withControl && !on.checked && event.key !== "?" && event.key !== "Escape") return;
    const pressed = `${withControl ? "Ctrl+" : ""}${event.key.length === 1 && !event.shiftKey ? event.key.toLowerCase() : event.key}`;
    const found = keys.find(({ keys: names, run }) => run && names.includes(pressed));
    if (!found) return;
    event.preventDefault();
    found.run();
  });
}
