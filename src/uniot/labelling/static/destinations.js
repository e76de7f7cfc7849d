// Where images or a group can be put.

import { current, faceOf, isGroup, nameOf } from "./current.js";
import { count } from "./dom.js";
import { similarityText } from "./show.js";

/** Places to choose from, the most similar first. */
export function destinations(onlyClasses, ofSelection) {
  const rank = new Map(current.view.similar.map((one, index) => [one.place, index]));
  const cosine = new Map(current.view.similar.map((one) => [one.place, similarityText(one.cosine)]));
  const all = [...(onlyClasses ? [] : current.state.groups), ...current.state.classes]
    .filter((one) => one.place !== current.place)
    .sort((a, b) => (rank.get(a.place) ?? 0) - (rank.get(b.place) ?? 0));
  const choices = all.map((one) => ({
    place: one.place,
    name: isGroup(one) && one.name ? `${one.name} (group ${one.number})` : nameOf(one),
    detail: [isGroup(one) ? count(one.size, "image") : "known class", cosine.get(one.place)].filter(Boolean).join(" · "),
    source: faceOf(one),
  }));
  if (ofSelection && !onlyClasses) choices.push({ place: "new", name: "A new group", detail: "", source: null });
  if (current.place !== "discarded" && !onlyClasses) choices.push({ place: "discarded", name: "Discarded", detail: "in no class", source: null });
  return choices;
}
