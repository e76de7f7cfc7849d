// A dialog to label single samples, the most useful first.

import { about, beliefText, current, thumbnail } from "./state.js";
import { fillText } from "./viewer.js";
import { byId, count, element, picture, setSource } from "./dom.js";
import { Problem, readQueue } from "./server.js";

const SHOWN = 8;

const gainOf = ({ settles }) =>
  settles < 1 ? `Few other ${about.words.one}s are like this one.` : `Its label will probably fit about ${count(settles, `other ${about.words.one}`)}.`;

const guessOf = ({ now, nearest }) =>
  `Guess: ${beliefText(now)}${now.group ? `; most similar known class: ${nearest}` : ""}.`;

/**
 * @param label called with a row and a label; resolves when it is saved
 * @param discard called with a row; resolves when it is saved
 * @returns a function that opens the dialog
 */
export function makeQueue({ label, discard, onProblem }) {
  const [dialog, field] = [byId("queue"), byId("queue-label")];
  const skipped = new Set();
  let samples = [];
  let here = null;

  function show(sample) {
    here = sample;
    byId("queue-one").hidden = sample === null;
    byId("queue-none").hidden = sample !== null;
    if (sample === null) return;
    byId("queue-guess").textContent = guessOf(sample);
    byId("queue-gain").textContent = gainOf(sample);
    byId("queue-name").textContent = sample.name;
    fillText(byId("queue-shown"), sample, () => here === sample);
    byId("queue-picture").hidden = !about.pictures;
    if (about.pictures) setSource(byId("queue-picture"), `/pictures/target/${sample.row}/large?run=${about.version}`);
    for (const item of byId("queue-list").children) item.firstChild.setAttribute("aria-pressed", String(item.dataset.row === String(sample.row)));
    field.value = "";
    field.focus();
  }

  function item(sample) {
    const source = thumbnail("target", sample.row);
    const button = element("button", { type: "button", className: "quiet", title: gainOf(sample), aria: { label: `${sample.name}: ${gainOf(sample)}` } },
      source ? picture(source) : element("span", { className: "name", dir: "auto", textContent: sample.text ?? sample.name }),
      element("span", { className: "detail", textContent: sample.settles ? `~${count(sample.settles, "other")}` : "" }));
    button.addEventListener("click", () => show(sample));
    return element("li", { data: { row: sample.row } }, button);
  }

  async function refresh() {
    byId("queue-text").textContent = "";
    try {
      samples = (await readQueue(about.max_queue_length)).samples;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      dialog.close();
      return onProblem(problem);
    }
    // Skipped samples come last.
    const ordered = [...samples.filter((one) => !skipped.has(one.row)), ...samples.filter((one) => skipped.has(one.row))];
    byId("queue-list").replaceChildren(...ordered.slice(0, SHOWN).map(item));
    show(ordered[0] ?? null);
  }

  async function after(work) {
    byId("queue-text").textContent = "Saving…";
    await work;
    const message = byId("problem").textContent || byId("message").textContent;
    await refresh();
    byId("queue-text").textContent = message;
  }

  byId("queue-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) byId("queue-text").textContent = "Type a label, or skip it.";
    else if (here) after(label(here.row, text));
  });
  byId("queue-skip").addEventListener("click", () => {
    skipped.add(here.row);
    after(Promise.resolve());
  });
  byId("queue-discard").addEventListener("click", () => after(discard(here.row)));
  byId("queue-close").addEventListener("click", () => dialog.close());

  return async () => {
    if (current.state === null || dialog.open) return;
    // Text typed before the sample is there would be lost.
    byId("queue-one").hidden = byId("queue-none").hidden = true;
    dialog.showModal();
    await refresh();
  };
}
