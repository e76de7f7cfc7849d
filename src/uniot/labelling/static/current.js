// What the page knows: the state of all labels, the place it shows, and the images of that place.

import { byId } from "./dom.js";

export const about = JSON.parse(byId("about").textContent);

export const current = {
  state: JSON.parse(byId("state").textContent),
  place: null,
  page: 0,
  view: { samples: [], similar: [], total: 0, pages: 1, first: 0 },
};

export const groupAt = (place) => current.state.groups.find((one) => one.place === place) ?? null;
export const classAt = (place) => current.state.classes.find((one) => one.place === place) ?? null;
export const groupHere = () => groupAt(current.place);
export const classHere = () => classAt(current.place);

export const exists = (place) => place === "discarded" || groupAt(place) !== null || classAt(place) !== null;
export const allPlaces = () =>
  [...current.state.groups, ...current.state.classes].map((one) => one.place).concat("discarded");

export const isGroup = (one) => "number" in one;
export const nameOf = (one) => one.name || `Group ${one.number}`;
export const titleOf = (one) =>
  isGroup(one) ? `group ${one.number}${one.name ? ` “${one.name}”` : ""}` : `known class “${one.name}”`;

/** Address of a thumbnail, null where there is none; the run is in it because browsers keep pictures. */
export const thumbnail = (collection, row) =>
  about.pictures && row >= 0 ? `/pictures/${collection}/${row}?run=${about.version}` : null;
export const faceOf = (one) => thumbnail(isGroup(one) ? "target" : "source", one.face);
