// Drag samples to a group or class of the sidebar; with the keyboard, “Move to…” does the same.

/**
 * @param gallery that samples are dragged from
 * @param list with the links of the categories
 * @param moveTo called with the category that the samples are dropped on
 */
export function makeDragging(gallery, list, moveTo) {
  const linkAt = (event) => event.target.closest?.("a[data-category]") ?? null;

  gallery.list.addEventListener("dragstart", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    gallery.takeUp(tile);
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", [...gallery.selected].join(" "));
  });
  list.addEventListener("dragover", (event) => {
    const link = linkAt(event);
    if (!link || !gallery.selected.size) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "move";
    link.classList.add("drop");
  });
  list.addEventListener("dragleave", (event) => linkAt(event)?.classList.remove("drop"));
  list.addEventListener("drop", (event) => {
    const link = linkAt(event);
    if (!link) return;
    event.preventDefault();
    link.classList.remove("drop");
    moveTo(link.dataset.category);
  });
}
