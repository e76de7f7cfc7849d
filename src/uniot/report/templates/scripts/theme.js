"use strict";
// Light and dark; paper is white.
(() => {
  const { root } = page;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const draw = () => { page.emit("draw"); page.emit("map"); };
  let before;

  page.listen("theme", "click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    draw();
  });
  dark.addEventListener("change", draw);
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; root.dataset.printing = ""; draw(); });
  window.addEventListener("afterprint", () => {
    delete root.dataset.printing;
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    draw();
  });
})();
