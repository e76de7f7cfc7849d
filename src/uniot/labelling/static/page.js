// The labelling page: connects controls and keys to actions.

import { makeViewer } from "./viewer.js";
import { about, allCategories, classHere, current, exists, groupHere, samples, thumbnail, titleOf } from "./state.js";
import { byId } from "./dom.js";
import { destinations } from "./destinations.js";
import { DOUBTFUL, addressOf, like, readList, selectionOf } from "./lists.js";
import { makeDragging } from "./dragging.js";
import { makeNextSteps } from "./next_steps.js";
import { Gallery } from "./gallery.js";
import { listenToShortcuts } from "./shortcuts.js";
import { choose } from "./picker.js";
import { makeQuestions } from "./questions.js";
import { makeQueue } from "./queue.js";
import { remember } from "./preferences.js";
import { Problem, act, readGallery, readQuestions, readSource, readState, sendImport, tellSource, writeExport } from "./server.js";
import { hasSource, makeSource } from "./source.js";
import { say, showHeading, showNameNote, showPager, showCategories, showProgress, showSelection, showSimilar } from "./render.js";

const gallery = new Gallery(byId("gallery"), {
  sourceOf: about.pictures ? (row) => thumbnail("target", row) : null,
  hasTexts: about.texts,
  onSelect: () => showSelected(),
  onLook: (index) => look(index),
});
const look = makeViewer(gallery, { onLike: (row) => goToList(like(row), false) });

// Requests are sent one after another, so that each has the state after the previous one.

let queue = Promise.resolve();

function enqueue(work) {
  queue = queue.then(work).catch(async (problem) => {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.state) {
      current.state = problem.state;
      gallery.selected.clear();
      await show().catch(() => {});
    }
    say(problem.message, true);
  });
  return queue;
}

const MOST_ON_MAP = 5000;
const isAsking = () => current.mode === "questions";
const isSource = () => current.mode === "source";
const wanted = () => ({ category: current.category, page: current.page, order: byId("order").value, search: byId("search").value.trim(), everywhere: byId("everywhere").checked, listed: current.list });
/** What is asked about: the list of the page, from the first sample on that was not passed over; null without a list. */
const listed = () => (current.list ? { listed: current.list, at: questions.following() } : null);

async function show() {
  if (isSource()) return showSource(await readSource());
  if (isAsking()) return showQuestions(await readQuestions(listed()));
  if (!exists(current.category)) [current.category, current.page] = [allCategories()[0], 0];
  const view = await readGallery(wanted());
  if (view.revision !== current.state.revision) current.state = await readState();
  showView(view);
}

async function showQuestions(view) {
  if (view.revision !== current.state.revision) current.state = await readState();
  history.replaceState(null, "", current.list ? addressOf(current.list, true) : "#questions");
  showMode();
  showProgress();
  showCategories(go);
  questions.show(view);
}

function showSelected() {
  showSelection(gallery.selected);
  if (gallery.selected.size) byId("on-map").href = `/report#${selectionOf([...gallery.selected].slice(0, MOST_ON_MAP))}`;
}

function showSource(view) {
  history.replaceState(null, "", "#source-labels");
  showMode();
  source.show(view);
}

/** Shows the questions, the groups or the source labels, and which of them in the header. */
function showMode() {
  byId("questions").hidden = !isAsking();
  byId("source-view").hidden = !isSource();
  for (const id of ["group-view", "show-sidebar", "progress-area"]) byId(id).hidden = isAsking() || isSource();
  for (const id of ["undo", "redo"]) byId(id).hidden = isSource();
  const isDoubtful = current.list === DOUBTFUL;
  for (const [id, isHere] of [["show-questions", isAsking() && !isDoubtful], ["show-doubtful", isDoubtful], ["show-groups", current.mode === "groups" && !isDoubtful], ["show-source", isSource()]]) {
    if (isHere) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
}

function showView(view) {
  if (view.category !== current.category) gallery.selected.clear();
  current.view = view;
  [current.category, current.page] = [view.category, view.page];
  const page = current.page ? `:${current.page + 1}` : "";
  history.replaceState(null, "", current.list ? addressOf(current.list, false) : `#${current.category}${page}`);
  showMode();
  showProgress();
  showCategories(go);
  showHeading(takeName);
  showSimilar(go, mergeInto);
  showPager();
  gallery.show(current.view.samples);
  showSelected();
}

function go(category, page = 0, list = "") {
  return enqueue(async () => {
    const isOther = category !== current.category || list !== current.list;
    if (isOther || current.mode !== "groups") {
      gallery.selected.clear();
      history.pushState(null, "", list ? addressOf(list, false) : `#${category}`);
    }
    current.mode = "groups";
    current.list = list;
    if (isOther) clearSearch();
    [current.category, current.page] = [category, page];
    gallery.current = 0;
    await show();
    openSidebar(false);
    if (document.activeElement !== byId("search")) window.scrollTo({ top: 0 });
  });
}

function goToQuestions() {
  return enqueue(async () => {
    if (!isAsking() || current.list) history.pushState(null, "", "#questions");
    [current.mode, current.list] = ["questions", ""];
    await show();
    window.scrollTo({ top: 0 });
  });
}

/** Shows a list across groups and classes: one sample after another, or all together. */
function goToList(list, asks) {
  if (!asks) return go(exists(current.category) ? current.category : allCategories()[0], 0, list);
  return enqueue(async () => {
    history.pushState(null, "", addressOf(list, true));
    if (list !== current.list) questions.forgetPassed();
    [current.mode, current.list] = ["questions", list];
    await show();
    window.scrollTo({ top: 0 });
  });
}

function goToSource() {
  return enqueue(async () => {
    if (!isSource()) history.pushState(null, "", "#source-labels");
    [current.mode, current.list] = ["source", ""];
    await show();
    source.go(0);
    window.scrollTo({ top: 0 });
  });
}

const goToDoubtful = () => goToList(DOUBTFUL, about.asks);
const goToLike = () => {
  if (isAsking()) return questions.row() !== null && goToList(like(questions.row()), false);
  return withSelection(([row]) => goToList(like(row), false));
};

const goToGroups = () => go(exists(current.category) ? current.category : allCategories()[0], current.page);

async function actAndShow(action) {
  const answer = await act(current.state.revision, action, isAsking() ? null : wanted(), isAsking() ? listed() : null);
  current.state = answer.state;
  if (isAsking()) await showQuestions(answer.questions);
  else showView(answer.view);
  say(current.state.problem || answer.message, current.state.problem !== "");
}

/** Enqueues an action on what the page shows now. */
const perform = (action) => enqueue(() => actAndShow(action));

// Actions.

const mergeInto = (to) => perform({ kind: "merge", group: groupHere().number, to });
const moveTo = (to) => withSelection((rows) => perform({ kind: "move", rows, to }));
const putBack = () => withSelection((rows) => perform({ kind: "put-back", rows }));
const rename = (name) => perform({ kind: "name", group: groupHere().number, name });
const takeName = (name) => rename(name).then(goOnAfterSaving);
const split = () => groupHere() && perform({ kind: "split", group: groupHere().number });

/** Returns the message of a request that is no action. */
async function messageOf(work) {
  let text = "";
  await enqueue(async () => {
    text = await work();
    say(text);
  });
  return text || byId("problem").textContent;
}

const exportAs = (format) => messageOf(async () => (await writeExport(format)).message);
const importText = (text) =>
  messageOf(async () => {
    const answer = await sendImport(text);
    current.state = answer.state;
    gallery.selected.clear();
    await show();
    return answer.message;
  });
const finish = makeNextSteps({ exportAs, importText });
const questions = makeQuestions({
  tell: (row, answer) => perform({ kind: "answer", row, answer }),
  pass: () => enqueue(show),
});
const source = makeSource({
  decide: async (row, decision, label) => {
    let answer = null;
    await enqueue(async () => {
      answer = await tellSource(row, decision, label);
      say(answer.message);
    });
    return answer;
  },
});
const openQueue = makeQueue({
  label: (row, label) => perform({ kind: "label", row, label }),
  discard: (row) => perform({ kind: "move", rows: [row], to: "discarded" }),
  onProblem: (problem) => say(problem.message, true),
});

/** Undoes or redoes; the step is looked up in its turn, because the key may be pressed several times. */
function step(kind) {
  return enqueue(() => {
    if (current.state[kind] === null) return say(`There is nothing to ${kind}.`);
    return actAndShow({ kind, of: current.state[kind].of });
  });
}

/** Takes and clears the selection, so that the next one can start at once. */
function withSelection(work) {
  const rows = [...gallery.selected];
  if (!rows.length) return say(`Select ${about.words.one}s first: click them, or move to them with the arrow keys and press Space.`);
  gallery.clear();
  return work(rows);
}

/** Asks where to move the selected samples, or the whole group if none is selected, and moves them. */
async function send(onlyClasses) {
  const selected = gallery.selected.size;
  if (!selected && !groupHere()) return withSelection(() => {});
  const what = selected ? samples(selected) : titleOf(groupHere());
  const title = onlyClasses ? `Assign ${what} to a known class` : `${selected ? "Move" : "Merge"} ${what} ${selected ? "to" : "into"}`;
  const to = await choose(title, destinations(onlyClasses, selected > 0));
  if (to !== null) await (selected ? moveTo(to) : mergeInto(to));
}

// Navigation.

function goToUnnamed() {
  const unnamed = current.state.groups.filter((one) => !one.name);
  if (!unnamed.length) return say("Every group has a name. Choose Finish to see the next steps.");
  const here = groupHere()?.number ?? -1;
  const next = unnamed.find((one) => one.number > here) ?? unnamed[0];
  return go(next.category).then(() => byId("name").focus());
}

/** Called after a name was saved. */
function goOnAfterSaving() {
  if (byId("problem").textContent) return;
  const isLast = current.state.groups.every((one) => one.name);
  if (!byId("go-on").checked || !groupHere()?.name) return byId("title").focus();
  if (!isLast) return goToUnnamed();
  say(`${byId("message").textContent} Every group has a name. Choose Finish to see the next steps.`);
  byId("show-finish").focus();
}

function goToNeighbour(steps) {
  const categories = allCategories();
  const index = categories.indexOf(current.category) + steps;
  if (index >= 0 && index < categories.length) go(categories[index]);
}

function turnPage(pages) {
  const page = current.page + pages;
  if (page >= 0 && page < current.view.pages) go(current.category, page, current.list);
}

function clearSearch() {
  byId("search").value = "";
  byId("everywhere").checked = false;
}

/** Shows what a search finds, on its first page. */
const search = () => go(current.category, 0, current.list);

function openSidebar(open) {
  byId("sidebar").classList.toggle("open", open);
  byId("show-sidebar").setAttribute("aria-expanded", String(open));
}

function readAddress() {
  if (hasSource && location.hash === "#source-labels") {
    [current.mode, current.list] = ["source", ""];
    if (!exists(current.category)) [current.category, current.page] = [allCategories()[0], 0];
    return;
  }
  const found = readList(location.hash);
  current.list = found?.list ?? "";
  if (found) {
    current.mode = found.asks ? "questions" : "groups";
    if (!exists(current.category)) [current.category, current.page] = [allCategories()[0], 0];
    return;
  }
  const isFirst = location.hash === "" && about.opens_at === "questions";
  current.mode = about.asks && (isFirst || location.hash === "#questions") ? "questions" : "groups";
  const place = /^#((?:group|class)-\d+|discarded)(?::(\d+))?$/.exec(location.hash);
  const page = Math.max(0, Number(place?.[2] ?? 1) - 1);
  [current.category, current.page] = place && exists(place[1]) ? [place[1], page] : [allCategories()[0], 0];
}

// Controls.

const controls = {
  "show-sidebar": () => openSidebar(!byId("sidebar").classList.contains("open")),
  undo: () => step("undo"),
  redo: () => step("redo"),
  "show-queue": openQueue,
  "show-finish": finish,
  "show-help": () => byId("help").showModal(),
  "list-all": () => goToList(current.list, false),
  "list-asks": () => goToList(current.list, true),
  "list-end": goToQuestions,
  pass: () => questions.pass(),
  "question-like": goToLike,
  "settled-groups": goToGroups,
  "settled-finish": finish,
  "next-unnamed": goToUnnamed,
  merge: () => { gallery.clear(); send(false); },
  "group-class": () => { gallery.clear(); send(true); },
  split,
  "discard-group": () => mergeInto("discarded"),
  "select-page": () => gallery.selectAll(),
  "previous-page": () => turnPage(-1),
  "next-page": () => turnPage(1),
  move: () => send(false),
  "selection-class": () => send(true),
  confirm: () => moveTo(classHere().category),
  "new-group": () => moveTo("new"),
  "put-back": putBack,
  discard: () => moveTo("discarded"),
  look: () => look(gallery.samples.findIndex((one) => gallery.selected.has(one.row))),
  "more-like": goToLike,
  clear: () => gallery.clear(),
};
for (const [id, work] of Object.entries(controls)) byId(id).addEventListener("click", work);

for (const [link, work] of [
  [document.querySelector(".skip"), () => (isSource() ? source.go(0) : isAsking() ? byId("question-title").focus() : gallery.focus())],
  [byId("show-questions"), goToQuestions],
  [byId("show-groups"), goToGroups],
  [byId("show-doubtful"), goToDoubtful],
  [byId("show-source"), goToSource],
]) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    work();
  });
}
for (const control of document.querySelectorAll(".of-pictures")) control.hidden = !about.pictures;
makeDragging(gallery, byId("sidebar"), moveTo);
remember("uniot-label-go-on", byId("go-on"), () => {});
remember("uniot-label-size", byId("size"), (size) => { byId("gallery").dataset.size = size; });
byId("order").addEventListener("change", () => go(current.category, 0, current.list));
let typing;
byId("search").addEventListener("input", () => {
  clearTimeout(typing);
  // Somebody who types is not done yet.
  typing = setTimeout(search, 200);
});
byId("search").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  event.preventDefault();
  clearTimeout(typing);
  clearSearch();
  search().then(() => gallery.focus());
});
byId("everywhere").addEventListener("change", () => { if (byId("search").value.trim()) search(); });
byId("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  search().then(() => gallery.focus());
});
byId("name").addEventListener("input", showNameNote);
byId("name-form").addEventListener("submit", (event) => {
  event.preventDefault();
  takeName(byId("name").value);
});

const { one } = about.words;
const an = /^[aeiou]/.test(one) ? "an" : "a";
const ofQuestions = [
  { keys: ["y"], about: "yes, it is of the nearest class", run: () => questions.nearest(0) },
  { keys: ["c"], about: "it is of another class", run: () => questions.another() },
  { keys: ["n"], about: "it is of none of your classes", run: () => questions.none() },
  { keys: ["s"], about: "you cannot tell", run: () => questions.unsure() },
  { keys: ["1", "2", "3"], about: "it is of the first, second or third class that is shown", run: (key) => questions.nearest(key - 1) },
  { keys: ["→"], about: "in a list: leave this one for later" },
  { keys: ["r"], about: `show more ${one}s like this one`, run: goToLike },
  { keys: ["z", "u", "Ctrl+z"], about: "undo", run: () => step("undo") },
  { keys: ["Ctrl+y"], about: "redo", run: () => step("redo") },
  { keys: ["g"], about: "go to the groups", run: goToGroups },
];
const ofGroups = [
  { keys: ["n"], about: "name this group", run: () => groupHere() && byId("name").focus() },
  { keys: ["u"], about: "go to the next group without a name", run: goToUnnamed },
  { keys: ["/"], about: about.texts ? `search for words in the ${about.links ? "links" : "texts"}` : "search for names", run: () => byId("search").focus() },
  { keys: ["j"], about: "go to the next group or class", run: () => goToNeighbour(1) },
  { keys: ["k"], about: "go to the previous group or class", run: () => goToNeighbour(-1) },
  { keys: ["i"], about: `go to the ${one}s`, run: () => gallery.focus() },
  { keys: ["←", "→", "↑", "↓"], about: `move from ${one} to ${one}; with Shift, select them` },
  { keys: ["Space"], about: `select ${an} ${one}` },
  { keys: ["Enter"], about: about.pictures ? "enlarge an image" : `show all of ${an} ${one}` },
  { keys: ["a"], about: `select all ${one}s of the page`, run: () => gallery.selectAll() },
  { keys: ["Escape"], about: "clear the selection", run: () => gallery.clear() },
  { keys: ["m"], about: `move the selected ${one}s (or drag them to the list); without a selection, merge the group`, run: () => send(false) },
  { keys: ["c"], about: `assign the selected ${one}s, or the group, to a known class`, run: () => send(true) },
  { keys: ["g"], about: `make a new group of the selected ${one}s`, run: () => moveTo("new") },
  { keys: ["x", "Delete"], about: `discard the selected ${one}s`, run: () => moveTo("discarded") },
  { keys: ["r"], about: `show more ${one}s like the first one that is selected`, run: goToLike },
  { keys: ["s"], about: "split the group in two", run: split },
  { keys: ["z", "Ctrl+z"], about: "undo", run: () => step("undo") },
  { keys: ["y", "Ctrl+y"], about: "redo", run: () => step("redo") },
  { keys: [","], about: "previous page", run: () => turnPage(-1) },
  { keys: ["."], about: "next page", run: () => turnPage(1) },
  ...(about.asks ? [{ keys: ["q"], about: "go to the questions", run: goToQuestions }] : []),
];
const ofSource = [
  { keys: ["y"], about: "the sample is of the class that it looks like", run: () => source.suggested() },
  { keys: ["k"], about: "its label is right", run: () => source.right() },
  { keys: ["c"], about: "it is of another class", run: () => source.another() },
  { keys: ["x", "Delete"], about: "drop it: leave it out of the next run", run: () => source.drop() },
  { keys: ["z"], about: "withdraw what was said about it", run: () => source.withdraw() },
  { keys: ["ArrowDown"], about: "go to the next one", run: () => source.go(1) },
  { keys: ["ArrowUp"], about: "go to the previous one", run: () => source.go(-1) },
  { keys: ["g"], about: "go to the groups", run: goToGroups },
];
const everywhere = [
  { keys: ["d"], about: "go to the most doubtful predictions, across all groups and classes", run: goToDoubtful },
  { keys: ["l"], about: `label one by one, the most useful ${one}s first`, run: openQueue },
  { keys: ["e"], about: "finish: next steps, export and import", run: finish },
  { keys: ["?"], about: "show this help", run: () => byId("help").showModal() },
];
listenToShortcuts([
  ...(about.asks ? [{ title: "Questions", isOn: isAsking, keys: ofQuestions }] : []),
  { title: "Groups", isOn: () => current.mode === "groups", keys: ofGroups },
  ...(hasSource ? [{ title: "Source labels", isOn: isSource, keys: ofSource }] : []),
  { title: "Everywhere", isOn: () => true, keys: everywhere },
]);

// Another tab may have changed labels while this one was in the background.
window.addEventListener("focus", () =>
  enqueue(async () => {
    const latest = await readState();
    if (latest.revision === current.state.revision || isSource()) return;
    current.state = latest;
    await show();
    say("Labels were changed in another tab. This page now shows the latest state.");
  }),
);
window.addEventListener("popstate", () =>
  enqueue(async () => {
    gallery.selected.clear();
    readAddress();
    await show();
  }),
);

document.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowRight" || !isAsking() || !current.list || event.target.closest("input, select, dialog") || document.querySelector("dialog[open]")) return;
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  event.preventDefault();
  questions.pass();
});

readAddress();
enqueue(show);
