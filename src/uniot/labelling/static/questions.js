// The questions: is this sample of one of the classes? One at a time, the most useful first.

import { about, beliefText, current, exemplarOf, hintOf, samples, thumbnail } from "./state.js";
import { breakable, byId, count, element, picture } from "./dom.js";
import { choose } from "./picker.js";
import { similarityText } from "./render.js";
import { Problem, readFollowing } from "./server.js";
import { textElement } from "./texts.js";

const MOST_NAMES = 2;

const large = (row) => `/pictures/target/${row}/large?run=${about.version}`;

/**
 * @param tell called with a row and an answer: a class, the label of unknown samples, or null for "cannot tell"; resolves
 *   when it is saved and the next question is there
 * @param pass called when another sample of a list is to be shown without an answer about this one
 * @returns functions to show a question and to answer it: `show(view)`, `none()`, `unsure()`, `nearest(index)` and
 *   `another()`; of a list `pass()`, `forgetPassed()` and `following()`; `row()` is what is asked about
 */
export function makeQuestions({ tell, pass }) {
  let question = null;
  let isBusy = false;
  // Of a list: the samples that come next, and those that a person left for later.
  let strip = [];
  const passed = new Set();
  let chosen = null;

  /** The row to ask about next, of a list; null for the first one without an answer. */
  function following() {
    if (chosen !== null) return chosen;
    if (!passed.size) return null;
    return strip.find((one) => one.row !== question?.row && !passed.has(one.row))?.row ?? null;
  }

  async function passOver() {
    if (question === null || isBusy || strip.length < 2) return;
    passed.add(question.row);
    await pass();
  }

  async function take(row) {
    chosen = row;
    await pass();
  }

  function showList(listed) {
    byId("listed").hidden = !listed;
    byId("pass").hidden = !listed || listed.following.length < 2;
    strip = listed?.following ?? [];
    if (!listed) return;
    byId("listed-title").textContent = listed.title;
    byId("listed-note").textContent = `${listed.open} of ${samples(listed.total)} without an answer. ${listed.note}`;
    byId("listed-following").replaceChildren(...strip.map((one) => {
      const source = thumbnail("target", one.row);
      const button = element("button", { type: "button", className: "quiet", title: one.name, aria: { label: `Ask about ${one.name}`, pressed: String(one.row === question?.row) } },
        source ? picture(source) : element("span", { className: "name", dir: "auto", textContent: one.text ?? one.name }));
      button.addEventListener("click", () => take(one.row));
      return element("li", {}, button);
    }));
  }

  /** Answers about the sample on the screen; a key that is pressed before the next one is there does nothing. */
  async function answer(said) {
    if (question === null || isBusy) return;
    isBusy = true;
    byId("answers").setAttribute("aria-busy", "true");
    try {
      await tell(question.row, said);
    } finally {
      isBusy = false;
      byId("answers").removeAttribute("aria-busy");
    }
  }

  const nearest = (index) => question?.nearest[index] && answer(question.nearest[index].name);

  async function another() {
    if (question === null || isBusy) return;
    const asked = question;
    const known = new Map(current.state.classes.map((one) => [one.category, one]));
    const choices = asked.classes.map((category) => {
      const { name, ...other } = known.get(category);
      return { category, name, detail: "", source: exemplarOf(other), hint: hintOf(other) };
    });
    const category = await choose(`Which class is “${asked.name}”?`, choices);
    // The question may have changed behind the dialog, if another tab answered it.
    if (category !== null && question?.row === asked.row) await answer(known.get(category).name);
  }

  function showShare({ unknown, interval, share, answers }) {
    const [low, high] = interval ?? [unknown, unknown];
    const band = byId("share-interval").style;
    [band.left, band.width] = [`${100 * low}%`, `${100 * (high - low)}%`];
    byId("share-now").style.left = `${100 * unknown}%`;
    byId("share-text").textContent = share;
    byId("answers-text").textContent = answers ? count(answers, "answer") : "No answers yet";
  }

  function exemplars({ source, target, texts }) {
    if (!about.pictures && texts.length) {
      const examples = texts.map((one) => element("span", { className: "text", dir: "auto", textContent: one.text, title: one.text }));
      return element("span", { className: "examples" }, ...examples);
    }
    if (!about.pictures) {
      const names = target.slice(0, MOST_NAMES).map(({ name }) => element("span", { textContent: `“${name}”`, title: name }));
      return element("span", { className: "detail" }, ...names);
    }
    const addresses = source.length && about.source_pictures ? source.map((row) => thumbnail("source", row)) : target.map((one) => thumbnail("target", one.row));
    return element("span", { className: "exemplars" }, ...addresses.map((address) => picture(address)));
  }

  function makeNearest(one, index) {
    const button = element(
      "button",
      { type: "button", className: "quiet", title: similarityText(one.cosine), aria: { label: `It is ${one.name}`, keyshortcuts: String(index + 1) } },
      element("span", { className: "row" },
        element("kbd", { textContent: index + 1, aria: { hidden: "true" } }),
        element("span", { className: "name" }, ...breakable(one.name))),
      exemplars(one),
    );
    button.addEventListener("click", () => nearest(index));
    return element("li", {}, button);
  }

  function showSample() {
    const { row, name, now } = question;
    const image = about.pictures ? picture(large(row), "high") : null;
    if (image) Object.assign(image, { loading: "eager", alt: name });
    byId("question-picture").scrollTop = 0;
    // A new element: an old one would show the sample before until the next is loaded.
    const text = textElement(question);
    byId("question-picture").replaceChildren(image ?? text ?? element("span", { className: "name", textContent: name }));
    byId("question-name").replaceChildren(...[image || text ? name : null, image && text].filter(Boolean));
    byId("question-now").textContent = `Now: ${beliefText(now)}.`;
    byId("nearest").replaceChildren(...question.nearest.map(makeNearest));
    byId("answer-nearest").replaceChildren(...breakable(`Yes, ${question.nearest[0].name}`));
  }

  /** Loads the pictures that probably come next, while a person looks at this one. */
  async function preload({ row }) {
    if (!about.pictures) return;
    if (strip.length) {
      for (const next of strip.slice(1, 3)) new Image().src = large(next.row);
      return;
    }
    try {
      const { rows } = await readFollowing(row);
      for (const next of rows) new Image().src = large(next);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
    }
  }

  function show(view) {
    const isOther = view.question?.row !== question?.row;
    question = view.question;
    chosen = null;
    // All that is left was left for later: it is shown again.
    if (question !== null && passed.has(question.row)) passed.clear();
    showList(view.listed);
    showShare(view);
    byId("question").hidden = question === null;
    // Somebody who goes through a list does it for the samples of the list, not for the share of the unknown.
    byId("settled").hidden = view.listed ? question !== null : !view.settled;
    byId("settled-text").textContent =
      question === null ? `Every ${about.words.one} ${view.listed ? "of this list " : ""}has an answer.` : "More answers will hardly change this.";
    if (question === null) return;
    showSample();
    if (isOther) preload(question);
  }

  byId("question-picture").classList.toggle("text", !about.pictures);
  byId("answer-yes").addEventListener("click", () => nearest(0));
  byId("answer-class").addEventListener("click", another);
  byId("answer-none").addEventListener("click", () => answer(about.unknown));
  byId("answer-unsure").addEventListener("click", () => answer(null));

  return {
    show, nearest, another, following,
    none: () => answer(about.unknown),
    unsure: () => answer(null),
    pass: passOver,
    forgetPassed: () => passed.clear(),
    row: () => question?.row ?? null,
  };
}
