// Images dragged to a group or class of the list; the keyboard does the same with “Move to…”.

/**
 * @param gallery where images are dragged from
 * @param list where the links of places are
 * @param moveTo called with the place that the selected images were dropped on
 */
export function makeDragging(gallery, list, moveTo) {
  const linkAt = (event) => event.target.closest?.("a[data-place]") ?? null;

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
    moveTo(link.dataset.place);
  });
}
