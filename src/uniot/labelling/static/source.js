// Source labels that look wrong: each is confirmed, changed or dropped, for the next run.

import { about, current, exemplarOf, thumbnail } from "./state.js";
import { byId, count, element, picture } from "./dom.js";
import { choose } from "./picker.js";
import { textElement } from "./texts.js";

const SAID = {
  right: (one) => `“${one.label}” is right`,
  changed: (one) => `now “${one.said}”`,
  dropped: () => "left out of the next run",
};

/**
 * @param decide called with a row, a decision and a label; resolves to the new view when it is saved
 * @returns functions for the controls and keys, which act on the sample that is current
 */
export function makeSource({ decide }) {
  const list = byId("suspects");
  let suspects = [];
  let here = 0;

  const one = () => suspects[here] ?? null;

  async function say(decision, label = "") {
    if (one() === null) return;
    const { row } = one();
    const view = await decide(row, decision, label);
    if (!view) return;
    const next = view.suspects.findIndex((other, index) => index > here && !other.decision);
    if (decision && next >= 0) here = next;
    show(view);
    focus();
  }

  async function another() {
    const asked = one();
    if (asked === null) return;
    const choices = current.state.classes.map((known) => ({ category: known.category, name: known.name, detail: "", source: exemplarOf(known) }));
    const category = await choose(`Which class is “${asked.name}”?`, choices);
    if (category !== null && one() === asked) await say("changed", current.state.classes.find((known) => known.category === category).name);
  }

  const actions = {
    suggested: () => say("changed", one().suggested),
    right: () => say("right"),
    another,
    drop: () => say("dropped"),
    withdraw: () => say(""),
  };

  function button(name, text, key) {
    return element("button", { type: "button", className: "quiet", data: { act: name } }, text, " ", element("kbd", { textContent: key, aria: { hidden: "true" } }));
  }

  function item(suspect, index) {
    const source = thumbnail("source", suspect.row);
    const said = suspect.decision ? SAID[suspect.decision](suspect) : "";
    const made = element("li", { className: "suspect", tabIndex: index === here ? 0 : -1, data: { row: suspect.row }, aria: { label: `${suspect.name}: labelled ${suspect.label}, looks like ${suspect.suggested}` } },
      source ? picture(source) : null,
      element("div", { className: "about" },
        element("p", {}, element("b", { textContent: suspect.label }), " looks like ", element("b", { textContent: suspect.suggested }), element("span", { className: "detail", textContent: ` · score ${suspect.score.toFixed(2)}${suspect.clear ? ", clear" : ""}` })),
        textElement(suspect, { canFocus: false }),
        element("p", { className: "detail", textContent: suspect.name }),
        said ? element("p", { className: "said", textContent: said }) : null),
      element("div", { className: "bar" },
        button("suggested", `It is ${suspect.suggested}`, "y"), button("right", `${suspect.label} is right`, "k"),
        button("another", "Another class…", "c"), button("drop", "Drop", "x"),
        ...(said ? [button("withdraw", "Withdraw", "z")] : [])));
    if (index === here) made.setAttribute("aria-current", "true");
    return made;
  }

  function show(view) {
    suspects = view.suspects;
    here = Math.min(here, Math.max(0, suspects.length - 1));
    list.replaceChildren(...suspects.map(item));
    byId("suspects-text").textContent = `${view.decided} of ${count(suspects.length, "label")} decided.`;
    byId("suspects-next").hidden = view.decided === 0;
  }

  const focus = () => list.children[here]?.focus();

  function go(index) {
    if (index < 0 || index >= suspects.length) return;
    list.children[here]?.removeAttribute("aria-current");
    if (list.children[here]) list.children[here].tabIndex = -1;
    here = index;
    list.children[here].setAttribute("aria-current", "true");
    list.children[here].tabIndex = 0;
    focus();
  }

  list.addEventListener("click", (event) => {
    const clicked = event.target.closest(".suspect");
    if (!clicked || event.target.closest("a")) return;
    const { act } = event.target.closest("button")?.dataset ?? {};
    here = [...list.children].indexOf(clicked);
    if (act) actions[act]();
    else go(here);
  });

  return { show, ...actions, go: (steps) => go(here + steps) };
}

export const hasSource = about.suspects > 0;
