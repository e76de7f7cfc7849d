// Shows the state on the page.

import { about, classHere, current, exemplarOf, groupAt, classAt, groupHere, hintOf, isGroup, nameOf, samples, titleOf } from "./state.js";
import { byId, count, element, picture, setSource, showItems } from "./dom.js";

// Categories that are less similar are not suggested.
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
    `${groups_named} of ${count(groups, "group")} named, ${images_decided} of ${samples(images)} labelled`;
  for (const [id, word] of [["undo", "Undo"], ["redo", "Redo"]]) {
    const step = current.state[id];
    byId(id).disabled = step === null;
    byId(id).title = step ? `${word}: ${step.text}` : "";
  }
}

export function showCategories(go) {
  const { groups, classes, discarded } = current.state;
  showCategoryList(byId("groups"), groups, go);
  showCategoryList(byId("classes"), classes, go);
  showCategoryList(byId("aside"), [{ category: "discarded", name: "Discarded", size: discarded, exemplar: -1 }], go);
  const names = new Set([...groups, ...classes].map((one) => one.name).filter(Boolean));
  byId("known-names").replaceChildren(...[...names].map((value) => element("option", { value })));
}

function showCategoryList(list, items, go) {
  const make = (one) =>
    element("li", {}, linkTo(one.category, go,
      exemplarOf(one) ? picture(exemplarOf(one), "low") : element("span", { className: "no-thumbnail" }),
      element("span", { className: "about" }, element("span", { className: "name" }), element("span", { className: "hint", dir: "auto" })),
      element("span", { className: "size" })));
  showItems(list, items, (one) => one.category, make, (item, one) => {
    const link = item.firstChild;
    const [name, hint, size] = [".name", ".hint", ".size"].map((selector) => link.querySelector(selector));
    if (exemplarOf(one)) setSource(link.firstChild, exemplarOf(one));
    hint.textContent = hint.title = hintOf(one);
    hint.hidden = !hint.textContent;
    name.textContent = nameOf(one);
    name.classList.toggle("unnamed", isGroup(one) && !one.name);
    size.textContent = one.size;
    size.title = samples(one.size);
    link.classList.toggle("named", isGroup(one) && one.name !== "");
    if (one.category !== current.category || current.list) link.removeAttribute("aria-current");
    else if (!link.hasAttribute("aria-current")) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest" });
    }
  });
}

function linkTo(category, go, ...children) {
  const link = element("a", { href: `#${category}`, draggable: false, data: { category } }, ...children);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    go(category);
  });
  return link;
}

/** @param take called with a suggested name that was clicked */
export function showHeading(take) {
  const here = groupHere();
  const { total } = current.view;
  byId("title").textContent = titleHere(here);
  const { listed } = current.view;
  const described = listed ? `${samples(total)}. ${listed.note}` : samples(total) + describeCategory();
  byId("subtitle").textContent = isSearch() ? describeSearch(total) : described;
  byId("list-asks").hidden = !listed || !about.asks;
  for (const id of ["order", "order-label"]) byId(id).hidden = listed !== null;
  showWords(here, take);
  for (const id of ["name-form", "group-tools"]) byId(id).hidden = here === null;
  byId("split").disabled = here !== null && here.size < 2;
  const field = byId("name");
  const saved = here?.name ?? "";
  // Text that is not saved yet stays, unless another group is shown or the group was renamed.
  if (field.dataset.category !== current.category || field.dataset.saved !== saved) field.value = saved;
  Object.assign(field.dataset, { category: current.category, saved });
  showNameNote();
}

function titleHere(here) {
  if (current.view.listed) return current.view.listed.title;
  if (current.view.everywhere) return "Search everywhere";
  if (here) return here.name ? `Group ${here.number}: ${here.name}` : nameOf(here);
  return classHere()?.name ?? "Discarded";
}

const isSearch = () => byId("search").value.trim() !== "";
const describeSearch = (total) => `${samples(total)} found ${current.view.everywhere && !current.view.listed ? "in all groups and classes" : "here"}`;

/** Shows what is typical of the group, and names that are suggested for it. */
function showWords(here, take) {
  const [terms, suggestions] = [here?.terms ?? [], (here?.suggestions ?? []).filter((name) => name !== here.name)];
  byId("terms").hidden = terms.length === 0;
  byId("terms").textContent = `${about.terms.slice(0, 1).toUpperCase()}${about.terms.slice(1)}: ${terms.join(", ")}`;
  byId("suggestions").hidden = suggestions.length === 0;
  byId("suggestion-list").replaceChildren(...suggestions.map((name) => {
    const button = element("button", { type: "button", className: "quiet chip", dir: "auto", textContent: name, title: `Name this group “${name}”`, aria: { label: `Name this group “${name}”` } });
    button.addEventListener("click", () => take(name));
    return element("li", {}, button);
  }));
}

function describeCategory() {
  const [here, known] = [groupHere(), classHere()];
  if (here?.ungrouped) return `. ${here.ungrouped}`;
  if (here) return here.class === null ? "" : `, counted as the known class “${here.class}”`;
  if (known) return ` of a known class${known.by_hand ? `, ${known.by_hand} of them assigned by hand` : ""}`;
  return ", left out when you adapt again";
}

export function showNameNote() {
  byId("name-note").textContent = aboutName(byId("name").value.trim().normalize("NFC"));
}

function aboutName(typed) {
  const { groups, classes } = current.state;
  const other = groups.find((one) => one.category !== current.category && one.name === typed);
  if (!typed) return "";
  if (classes.some((one) => one.name.trim().normalize("NFC") === typed)) return `“${typed}” is a known class: these ${about.words.one}s count as that class.`;
  if (other) return `Group ${other.number} has this name too: both are one class.`;
  if (typed === about.unknown) return `“${typed}” is the word of this run for ${about.words.one}s of no known class. Choose another name.`;
  return "";
}

export function showSimilar(go, mergeInto) {
  const nearest = (kind) =>
    current.view.similar.filter((one) => one.category.startsWith(kind) && one.cosine > WORTH_SHOWING).slice(0, MOST_OF_A_KIND);
  const suggestions = groupHere() ? [...nearest("group"), ...nearest("class")].sort((a, b) => b.cosine - a.cosine) : [];
  byId("similar").hidden = suggestions.length === 0;
  byId("similar-list").replaceChildren(...suggestions.map((one) => makeSuggestion(one, go, mergeInto)));
}

/** Cosine similarity of two centres, from -1 to 1. */
export const similarityText = (cosine) => `similarity ${cosine.toFixed(2)}`;

function makeSuggestion({ category, cosine }, go, mergeInto) {
  const other = groupAt(category) ?? classAt(category);
  const detail = isGroup(other) ? samples(other.size) : "known class";
  const link = linkTo(category, go,
    exemplarOf(other) && picture(exemplarOf(other)),
    element("span", { className: "name", textContent: nameOf(other) }),
    hintOf(other) ? element("span", { className: "hint", dir: "auto", textContent: hintOf(other) }) : null,
    element("span", { className: "detail", textContent: detail }),
    element("span", { className: "detail", textContent: similarityText(cosine) }));
  link.title = `Show ${titleOf(other)}`;
  const [text, label] = isGroup(other)
    ? ["Merge", `Merge this group into ${titleOf(other)}`]
    : ["Assign", `Assign this group to the ${titleOf(other)}`];
  const button = element("button", { type: "button", className: "quiet", textContent: text, aria: { label } });
  button.addEventListener("click", () => mergeInto(category));
  return element("li", {}, link, button);
}

export function showPager() {
  const { first, samples: shown, total, page, pages } = current.view;
  byId("page-text").textContent = `${first + 1}–${first + shown.length} of ${total}`;
  byId("pager").hidden = pages < 2;
  byId("previous-page").disabled = page === 0;
  byId("next-page").disabled = page >= pages - 1;
  byId("select-page").disabled = total === 0;
  byId("empty").hidden = total > 0;
  byId("empty").textContent = emptyText();
}

function emptyText() {
  const { one } = about.words;
  if (isSearch()) return `No ${one} ${current.view.everywhere ? "" : "here "}contains these words.`;
  if (current.view.listed) return `Every ${one} of this list has an answer.`;
  return current.category === "discarded" ? `No ${one} is discarded.` : `No ${one} is in this class.`;
}

export function showSelection(selected) {
  const { samples: shown, everywhere } = current.view;
  byId("selection").hidden = selected.size === 0;
  byId("selected-text").textContent = selected.size ? `${selected.size} selected` : "";
  byId("confirm").hidden = classHere() === null;
  byId("put-back").hidden = current.category !== "discarded" && !shown.some((one) => one.by_hand && selected.has(one.row));
  byId("discard").hidden = current.category === "discarded" && !everywhere;
  byId("look").hidden = selected.size !== 1 || !shown.some((one) => selected.has(one.row));
  byId("more-like").hidden = selected.size !== 1;
  const isWhole = selected.size > 0 && shown.every((one) => selected.has(one.row));
  byId("select-page").textContent = isWhole ? "Unselect this page" : "Select this page";
}
