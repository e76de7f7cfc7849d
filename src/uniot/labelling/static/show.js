// Puts what the page knows on the screen.

import { about, classHere, current, faceOf, groupAt, classAt, groupHere, isGroup, nameOf, titleOf } from "./current.js";
import { byId, count, element, picture, setSource, showItems } from "./dom.js";

// A place whose centre points elsewhere is no suggestion.
const WORTH_SHOWING = 0.1;
const MOST_OF_A_KIND = 3;

export function say(message, isProblem = false) {
  byId("message").textContent = isProblem ? "" : message;
  byId("problem").textContent = isProblem ? message : "";
}

export function showProgress() {
  const { groups_named, groups, images_decided, images } = current.state.progress;
  byId("progress").value = images ? images_decided / images : 1;
  byId("progress-text").textContent =
    `${groups_named} of ${count(groups, "group")} named, ${images_decided} of ${count(images, "image")} decided`;
  for (const [id, word] of [["undo", "Undo"], ["redo", "Redo"]]) {
    const step = current.state[id];
    byId(id).disabled = step === null;
    byId(id).title = step ? `${word}: ${step.text}` : "";
  }
}

export function showPlaces(go) {
  const { groups, classes, discarded } = current.state;
  showPlaceList(byId("groups"), groups, go);
  showPlaceList(byId("classes"), classes, go);
  showPlaceList(byId("aside"), [{ place: "discarded", name: "Discarded", size: discarded, face: -1 }], go);
  const names = new Set([...groups, ...classes].map((one) => one.name).filter(Boolean));
  byId("known-names").replaceChildren(...[...names].map((value) => element("option", { value })));
}

function showPlaceList(list, items, go) {
  const make = (one) =>
    element("li", {}, linkTo(one.place, go,
      faceOf(one) ? picture(faceOf(one), "low") : element("span", { className: "no-face" }),
      element("span", { className: "name" }),
      element("span", { className: "size" })));
  showItems(list, items, (one) => one.place, make, (item, one) => {
    const link = item.firstChild;
    const [image, name, size] = link.children;
    if (faceOf(one)) setSource(image, faceOf(one));
    name.textContent = nameOf(one);
    name.classList.toggle("unnamed", isGroup(one) && !one.name);
    size.textContent = one.size;
    size.title = count(one.size, "image");
    link.classList.toggle("named", isGroup(one) && one.name !== "");
    if (one.place !== current.place) link.removeAttribute("aria-current");
    else if (!link.hasAttribute("aria-current")) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest" });
    }
  });
}

function linkTo(place, go, ...children) {
  const link = element("a", { href: `#${place}`, draggable: false, data: { place } }, ...children);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    go(place);
  });
  return link;
}

export function showHeading() {
  const here = groupHere();
  const { total } = current.view;
  byId("title").textContent = here ? `Group ${here.number}${here.name ? `: ${here.name}` : ""}` : classHere()?.name ?? "Discarded";
  byId("subtitle").textContent = count(total, "image") + aboutPlace();
  for (const id of ["name-form", "group-tools"]) byId(id).hidden = here === null;
  byId("split").disabled = total < 2;
  const field = byId("name");
  const saved = here?.name ?? "";
  // What somebody has typed and not saved stays, unless the group is another or was renamed.
  if (field.dataset.place !== current.place || field.dataset.saved !== saved) field.value = saved;
  Object.assign(field.dataset, { place: current.place, saved });
  showNameNote();
}

function aboutPlace() {
  const [here, known] = [groupHere(), classHere()];
  if (here) return here.class === null ? "" : `, counted as the known class “${here.class}”`;
  if (known) return ` of a known class${known.by_hand ? `, ${known.by_hand} of them put here by you` : ""}`;
  return ": in no class, and left out of whatever is learnt from the labels";
}

export function showNameNote() {
  byId("name-note").textContent = aboutName(byId("name").value.trim().normalize("NFC"));
}

function aboutName(typed) {
  const { groups, classes } = current.state;
  const other = groups.find((one) => one.place !== current.place && one.name === typed);
  if (!typed) return "";
  if (classes.some((one) => one.name.trim().normalize("NFC") === typed)) return `“${typed}” is a known class: these images count as that class.`;
  if (other) return `Group ${other.number} has this name too: both are one class.`;
  if (typed === about.unknown) return `“${typed}” is what this run calls images of no class at all. Choose another name.`;
  return "";
}

export function showSimilar(go, mergeInto) {
  const nearest = (kind) =>
    current.view.similar.filter((one) => one.place.startsWith(kind) && one.cosine > WORTH_SHOWING).slice(0, MOST_OF_A_KIND);
  const suggestions = groupHere() ? [...nearest("group"), ...nearest("class")].sort((a, b) => b.cosine - a.cosine) : [];
  byId("similar").hidden = suggestions.length === 0;
  byId("similar-list").replaceChildren(...suggestions.map((one) => makeSuggestion(one, go, mergeInto)));
}

/** With its unit: the cosine of two centres, from -1 to 1. */
export const similarityText = (cosine) => `cosine ${cosine.toFixed(2)}`;

function makeSuggestion({ place, cosine }, go, mergeInto) {
  const other = groupAt(place) ?? classAt(place);
  const detail = isGroup(other) ? count(other.size, "image") : "known class";
  const link = linkTo(place, go,
    faceOf(other) && picture(faceOf(other)),
    element("span", { className: "name", textContent: nameOf(other) }),
    element("span", { className: "detail", textContent: detail }),
    element("span", { className: "detail", textContent: similarityText(cosine) }));
  link.title = `Look at ${titleOf(other)}`;
  const [text, label] = isGroup(other)
    ? ["Merge", `Merge this group into ${titleOf(other)}`]
    : ["Is this", `This group is the ${titleOf(other)}`];
  const button = element("button", { type: "button", className: "quiet", textContent: text, aria: { label } });
  button.addEventListener("click", () => mergeInto(place));
  return element("li", {}, link, button);
}

export function showPager() {
  const { first, samples, total, page, pages } = current.view;
  byId("page-text").textContent = `${first + 1}–${first + samples.length} of ${total}`;
  byId("pager").hidden = pages < 2;
  byId("previous-page").disabled = page === 0;
  byId("next-page").disabled = page >= pages - 1;
  byId("select-page").disabled = total === 0;
  byId("empty").hidden = total > 0;
  byId("empty").textContent = current.place === "discarded" ? "Nothing is discarded." : "No image of the target is in this class.";
}

export function showSelection(selected) {
  const { samples } = current.view;
  byId("selection").hidden = selected.size === 0;
  byId("selected-text").textContent = selected.size ? `${selected.size} selected` : "";
  byId("confirm").hidden = classHere() === null;
  byId("put-back").hidden = current.place !== "discarded" && !samples.some((one) => one.by_hand && selected.has(one.row));
  byId("discard").hidden = current.place === "discarded";
  byId("look").hidden = selected.size !== 1 || !samples.some((one) => selected.has(one.row));
  const isWhole = selected.size > 0 && samples.every((one) => selected.has(one.row));
  byId("select-page").textContent = isWhole ? "Unselect this page" : "Select this page";
}
