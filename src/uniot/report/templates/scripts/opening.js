"use strict";
// The first screen: faces of the largest classes and groups, and commands to copy.
(() => {
  const MOST_FACES = 3;
  for (const link of document.querySelectorAll("[data-faces]")) {
    // The pictures are in the galleries already; as the same address they take no bytes here.
    const pictures = page.byId(link.dataset.faces)?.querySelectorAll(".pictures img") ?? [];
    for (const picture of [...pictures].slice(0, MOST_FACES).reverse()) {
      link.prepend(Object.assign(new Image(), { src: picture.src, alt: "" }));
    }
  }

  for (const button of document.querySelectorAll(".copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        // Without leave to write, the command is selected: one key copies it.
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
})();
