// A dialog to look at one image closely, and from there at the next.

import { about } from "./current.js";
import { byId, setSource } from "./dom.js";

/** @returns a function that opens the dialog at an index of the gallery */
export function makeCloser(gallery) {
  const dialog = byId("closer");
  let index = 0;

  function look(wanted) {
    if (wanted < 0 || wanted >= gallery.samples.length) return;
    index = wanted;
    const sample = gallery.samples[index];
    byId("closer-title").textContent = sample.name;
    byId("closer-picture").hidden = !about.pictures;
    if (about.pictures) setSource(byId("closer-picture"), `/pictures/target/${sample.row}/large?run=${about.version}`);
    byId("closer-about").textContent =
      `The run ${sample.known ? "labelled it" : "called it unknown, in"} ${sample.start}, with confidence ` +
      `${sample.confidence.toFixed(2)}. Nearest known class: ${sample.nearest}.` +
      (sample.by_hand ? " A person put it where it is now." : "");
    byId("closer-previous").disabled = index === 0;
    byId("closer-next").disabled = index === gallery.samples.length - 1;
    showSelected();
    if (!dialog.open) dialog.showModal();
  }

  function showSelected() {
    const isSelected = gallery.selected.has(gallery.samples[index].row);
    byId("closer-select").setAttribute("aria-pressed", String(isSelected));
    byId("closer-select").textContent = isSelected ? "Selected" : "Select";
  }

  byId("closer-previous").addEventListener("click", () => look(index - 1));
  byId("closer-next").addEventListener("click", () => look(index + 1));
  byId("closer-select").addEventListener("click", () => {
    gallery.toggle(index);
    showSelected();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") look(index - 1);
    if (event.key === "ArrowRight") look(index + 1);
  });
  dialog.addEventListener("close", () => gallery.focusOn(index));
  return look;
}
