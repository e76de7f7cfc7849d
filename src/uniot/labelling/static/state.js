// State of the page: all labels, the category that is shown (group, class or discarded), and its samples.

import { byId, count } from "./dom.js";

export const about = JSON.parse(byId("about").textContent);

/** A number of samples, such as "1 image" or "3 texts". */
export const samples = (number) => count(number, about.words.one);

export const current = {
  state: JSON.parse(byId("state").textContent),
  mode: "groups", // or "questions"
  category: null,
  page: 0,
  list: "", // shown in place of the category, or asked about one by one
  view: { samples: [], similar: [], total: 0, pages: 1, first: 0, listed: null },
};

export const groupAt = (category) => current.state.groups.find((one) => one.category === category) ?? null;
export const classAt = (category) => current.state.classes.find((one) => one.category === category) ?? null;
/** The group or class that is shown; null while a search shows samples of all of them. */
export const groupHere = () => (current.view.everywhere ? null : groupAt(current.category));
export const classHere = () => (current.view.everywhere ? null : classAt(current.category));

export const exists = (category) => category === "discarded" || groupAt(category) !== null || classAt(category) !== null;
export const allCategories = () =>
  [...current.state.groups, ...current.state.classes].map((one) => one.category).concat("discarded");

export const isGroup = (one) => "number" in one;
export const nameOf = (one) => one.name || (one.ungrouped ? "Unknown, not grouped" : `Group ${one.number}`);
export const titleOf = (one) => {
  if (!isGroup(one)) return `known class “${one.name}”`;
  return one.ungrouped ? "the unknown without a group" : `group ${one.number}${one.name ? ` “${one.name}”` : ""}`;
};

/** What the run believes about a sample, as the end of a sentence. */
export const beliefText = ({ label, confidence, group }) =>
  `${label}${group ? ` (${group})` : ""}${confidence === null ? "" : `, confidence ${confidence.toFixed(2)}`}`;

const SHOWN_TERMS = 4;

/** Address of a thumbnail, or null; it contains the run because browsers cache images. */
export const thumbnail = (collection, row) =>
  (collection === "source" ? about.source_pictures : about.pictures) && row >= 0 ? `/pictures/${collection}/${row}?run=${about.version}` : null;
/** Words about a category that has no picture: what is typical of it, or the beginning of a typical text. */
export const hintOf = (one) => {
  if (one.terms?.length) return one.terms.slice(0, SHOWN_TERMS).join(", ");
  return exemplarOf(one) ? "" : one.example ?? "";
};
export const exemplarOf = (one) => thumbnail(isGroup(one) ? "target" : "source", one.exemplar);
