// A dialog that says what to do next, writes labels for other tools, and takes labels over from them.

import { about } from "./current.js";
import { byId, element } from "./dom.js";

/**
 * @param exportAs called with a format; resolves to a sentence
 * @param importText called with the text of a file; resolves to a sentence
 * @returns a function that opens the dialog
 */
export function makeFinish({ exportAs, importText }) {
  const dialog = byId("finish");
  const tell = (text) => { byId("finish-text").textContent = text; };

  async function copy(code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      tell("Copied. Paste it into your terminal.");
    } catch {
      // Without a secure context there is no clipboard.
      getSelection().selectAllChildren(code);
      tell("The command is selected: copy it with Ctrl+C.");
    }
  }

  byId("finish-commands").replaceChildren(
    ...about.commands.map(({ about: what, command }) => {
      const code = element("code", { textContent: command });
      const button = element("button", { type: "button", className: "quiet copy", textContent: "Copy", aria: { label: `Copy the command: ${command}` } });
      button.addEventListener("click", () => copy(code));
      return element("li", {}, element("p", { textContent: what }), element("div", { className: "row" }, code, button));
    }),
  );
  byId("export").addEventListener("click", async () => tell(await exportAs(byId("format").value)));
  byId("import-file").addEventListener("change", async ({ target }) => {
    const file = target.files[0];
    if (!file) return;
    tell(await importText(await file.text()));
    target.value = "";
  });

  return async () => {
    if (dialog.open) return;
    tell(await exportAs("csv"));
    dialog.showModal();
  };
}
