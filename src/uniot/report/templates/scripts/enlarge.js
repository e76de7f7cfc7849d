"use strict";
// A thumbnail enlarges; the arrow keys go on to its neighbours.
(() => {
  const dialog = page.byId("large");
  // A run from embeddings has no pictures.
  if (!dialog) return;
  const image = dialog.querySelector("img"), name = page.byId("large-name"), text = page.byId("large-text");
  let current;

  const thumbnails = () => [...document.querySelectorAll("button.enlarge")].filter((one) => one.offsetParent);

  function show(button) {
    current = button;
    const small = button.querySelector("img"), row = button.closest("li")?.dataset.row;
    image.src = small.src;
    image.alt = small.alt;
    name.textContent = button.title;
    const about = row === undefined ? null : page.sampleLines(row);
    page.byId("large-like").hidden = row === undefined;
    text.textContent = about ? `${about.heading}: ${about.lines}` : "";
    if (!dialog.open) dialog.showModal();
  }

  function move(step) {
    const all = thumbnails();
    show(all[(all.indexOf(current) + step + all.length) % all.length]);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.enlarge");
    if (button) show(button);
  });
  page.listen("large-close", "click", () => dialog.close());
  page.listen("large-previous", "click", () => move(-1));
  page.listen("large-next", "click", () => move(1));
  page.listen("large-like", "click", () => {
    const { row } = current.closest("li").dataset, { title } = current;
    dialog.close();
    page.act({ title: `More like ${title}`, selection: `like-${row}` });
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") move(-1);
    if (event.key === "ArrowRight") move(1);
  });
  // Focus returns to the thumbnail that was looked at last.
  dialog.addEventListener("close", () => current.focus());
})();
