// Categories that images or a group can be moved to.

import { current, exemplarOf, isGroup, nameOf } from "./state.js";
import { count } from "./dom.js";
import { similarityText } from "./render.js";

/** Choices for the picker, the most similar first. */
export function destinations(onlyClasses, ofSelection) {
  const rank = new Map(current.view.similar.map((one, index) => [one.category, index]));
  const cosine = new Map(current.view.similar.map((one) => [one.category, similarityText(one.cosine)]));
  const all = [...(onlyClasses ? [] : current.state.groups), ...current.state.classes]
    .filter((one) => one.category !== current.category)
    .sort((a, b) => (rank.get(a.category) ?? 0) - (rank.get(b.category) ?? 0));
  const choices = all.map((one) => ({
    category: one.category,
    name: isGroup(one) && one.name ? `${one.name} (group ${one.number})` : nameOf(one),
    detail: [isGroup(one) ? count(one.size, "image") : "known class", cosine.get(one.category)].filter(Boolean).join(" · "),
    source: exemplarOf(one),
  }));
  if (ofSelection && !onlyClasses) choices.push({ category: "new", name: "A new group", detail: "", source: null });
  if (current.category !== "discarded" && !onlyClasses) choices.push({ category: "discarded", name: "Discarded", detail: "left out", source: null });
  return choices;
}
