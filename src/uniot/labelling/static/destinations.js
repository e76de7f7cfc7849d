// Categories that samples or a group can be moved to.

import { current, exemplarOf, hintOf, isGroup, nameOf, samples } from "./state.js";
import { similarityText } from "./render.js";

/** Choices for the picker, the most similar first. */
export function destinations(onlyClasses, ofSelection) {
  // Samples that a search found anywhere are not of the category that is shown.
  const { everywhere } = current.view;
  const rank = new Map(current.view.similar.map((one, index) => [one.category, index]));
  const cosine = new Map(current.view.similar.map((one) => [one.category, similarityText(one.cosine)]));
  const all = [...(onlyClasses ? [] : current.state.groups), ...current.state.classes]
    .filter((one) => (ofSelection && everywhere) || one.category !== current.category)
    .sort((a, b) => (rank.get(a.category) ?? 0) - (rank.get(b.category) ?? 0));
  const choices = all.map((one) => ({
    category: one.category,
    name: isGroup(one) && one.name ? `${one.name} (group ${one.number})` : nameOf(one),
    detail: [isGroup(one) ? samples(one.size) : "known class", cosine.get(one.category)].filter(Boolean).join(" · "),
    source: exemplarOf(one),
    hint: hintOf(one),
  }));
  if (ofSelection && !onlyClasses) choices.push({ category: "new", name: "A new group", detail: "", source: null });
  if ((current.category !== "discarded" || (ofSelection && everywhere)) && !onlyClasses) choices.push({ category: "discarded", name: "Discarded", detail: "left out", source: null });
  return choices;
}
