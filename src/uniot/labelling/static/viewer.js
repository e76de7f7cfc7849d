// A dialog that shows one sample in full, with buttons for the previous and the next one.

import { about } from "./state.js";
import { byId, setSource } from "./dom.js";
import { Problem, readText } from "./server.js";
import { textElement } from "./texts.js";

/** Shows the whole text of a sample in a box; `isHere()` is false once another sample is shown there. */
export async function fillText(box, sample, isHere) {
  const put = (shown) => {
    box.replaceChildren(...[textElement(shown)].filter(Boolean));
    box.scrollTop = 0;
  };
  box.hidden = sample.text === undefined;
  put(sample);
  if (!sample.cut) return;
  try {
    const whole = await readText("target", sample.row);
    if (isHere()) put(whole);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
  }
}

/**
 * @param onLike called with a row whose like is to be shown
 * @returns a function that opens the dialog at an index of the gallery
 */
export function makeViewer(gallery, { onLike }) {
  const dialog = byId("viewer");
  let index = 0;

  function look(wanted) {
    if (wanted < 0 || wanted >= gallery.samples.length) return;
    index = wanted;
    const sample = gallery.samples[index];
    byId("viewer-title").textContent = sample.name;
    byId("viewer-picture").hidden = !about.pictures;
    if (about.pictures) setSource(byId("viewer-picture"), `/pictures/target/${sample.row}/large?run=${about.version}`);
    fillText(byId("viewer-text"), sample, () => gallery.samples[index]?.row === sample.row);
    byId("viewer-about").textContent =
      `Prediction: ${sample.known ? "" : "unknown, "}${sample.start} (confidence ${sample.confidence.toFixed(2)}). ` +
      `Most similar known class: ${sample.nearest}.` + (sample.by_hand ? " Moved here by hand." : "");
    byId("viewer-previous").disabled = index === 0;
    byId("viewer-next").disabled = index === gallery.samples.length - 1;
    showSelected();
    if (!dialog.open) dialog.showModal();
  }

  function showSelected() {
    const isSelected = gallery.selected.has(gallery.samples[index].row);
    byId("viewer-select").textContent = isSelected ? "Unselect" : "Select";
  }

  byId("viewer-previous").addEventListener("click", () => look(index - 1));
  byId("viewer-next").addEventListener("click", () => look(index + 1));
  byId("viewer-like").addEventListener("click", () => {
    dialog.close();
    onLike(gallery.samples[index].row);
  });
  byId("viewer-select").addEventListener("click", () => {
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
