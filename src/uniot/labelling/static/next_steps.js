// A dialog with the next commands, export and import.

import { about } from "./state.js";
import { byId, element } from "./dom.js";

/**
 * @param exportAs called with a format; resolves to a sentence
 * @param importText called with the text of a file; resolves to a sentence
 * @returns a function that opens the dialog
 */
export function makeNextSteps({ exportAs, importText }) {
  const dialog = byId("finish");
  const report = (text) => { byId("finish-text").textContent = text; };

  async function copy(code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      report("Copied. Paste it into your terminal.");
    } catch {
      // Without a secure context there is no clipboard.
      getSelection().selectAllChildren(code);
      report("The command is selected: copy it with Ctrl+C.");
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
  byId("export").addEventListener("click", async () => report(await exportAs(byId("format").value)));
  byId("import-file").addEventListener("change", async ({ target }) => {
    const file = target.files[0];
    if (!file) return;
    report(await importText(await file.text()));
    target.value = "";
  });

  return async () => {
    if (dialog.open) return;
    report(await exportAs("csv"));
    dialog.showModal();
  };
}
