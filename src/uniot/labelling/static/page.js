// The labelling page: what each control and key does.

import { makeCloser } from "./closer.js";
import { about, allPlaces, classHere, current, exists, groupHere, thumbnail } from "./current.js";
import { byId, count } from "./dom.js";
import { destinations } from "./destinations.js";
import { makeDragging } from "./dragging.js";
import { makeFinish } from "./finish.js";
import { Gallery } from "./gallery.js";
import { listenToKeys } from "./keys.js";
import { choose } from "./picker.js";
import { makeQueue } from "./queue.js";
import { remember } from "./remembered.js";
import { Problem, act, readGallery, readState, sendImport, writeExport } from "./server.js";
import { say, showHeading, showNameNote, showPager, showPlaces, showProgress, showSelection, showSimilar } from "./show.js";

const gallery = new Gallery(byId("gallery"), {
  sourceOf: about.pictures ? (row) => thumbnail("target", row) : null,
  onSelect: () => showSelection(gallery.selected),
  onLook: (index) => look(index),
});
const look = makeCloser(gallery);

// Requests go one after another, so that each knows what the one before it changed.

let queue = Promise.resolve();

function inTurn(work) {
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

const wanted = () => ({ place: current.place, page: current.page, order: byId("order").value });

async function show() {
  if (!exists(current.place)) [current.place, current.page] = [allPlaces()[0], 0];
  const view = await readGallery(wanted());
  if (view.revision !== current.state.revision) current.state = await readState();
  showView(view);
}

function showView(view) {
  if (view.place !== current.place) gallery.selected.clear();
  current.view = view;
  [current.place, current.page] = [view.place, view.page];
  history.replaceState(null, "", `#${current.place}${current.page ? `:${current.page + 1}` : ""}`);
  showProgress();
  showPlaces(go);
  showHeading();
  showSimilar(go, mergeInto);
  showPager();
  gallery.show(current.view.samples);
  showSelection(gallery.selected);
}

function go(place, page = 0) {
  return inTurn(async () => {
    if (place !== current.place) {
      gallery.selected.clear();
      history.pushState(null, "", `#${place}`);
    }
    [current.place, current.page] = [place, page];
    gallery.current = 0;
    await show();
    openPlaces(false);
    window.scrollTo({ top: 0 });
  });
}

async function actAndShow(action) {
  const answer = await act(current.state.revision, action, wanted());
  current.state = answer.state;
  showView(answer.view);
  say(current.state.problem || answer.message, current.state.problem !== "");
}

/** Does something when it is its turn; what it is about is on the screen now. */
const perform = (action) => inTurn(() => actAndShow(action));

// Actions.

const mergeInto = (to) => perform({ kind: "merge", group: groupHere().number, to });
const moveTo = (to) => withSelection((rows) => perform({ kind: "move", rows, to }));
const putBack = () => withSelection((rows) => perform({ kind: "put-back", rows }));
const rename = () => perform({ kind: "name", group: groupHere().number, name: byId("name").value });
const split = () => groupHere() && perform({ kind: "split", group: groupHere().number });

/** What came of a request that is no action, as a sentence. */
async function told(work) {
  let text = "";
  await inTurn(async () => {
    text = await work();
    say(text);
  });
  return text || byId("problem").textContent;
}

const exportAs = (format) => told(async () => (await writeExport(format)).message);
const importText = (text) =>
  told(async () => {
    const answer = await sendImport(text);
    current.state = answer.state;
    gallery.selected.clear();
    await show();
    return answer.message;
  });
const finish = makeFinish({ exportAs, importText });
const openQueue = makeQueue({
  label: (row, label) => perform({ kind: "label", row, label }),
  discard: (row) => perform({ kind: "move", rows: [row], to: "discarded" }),
  onProblem: (problem) => say(problem.message, true),
});

/** Undo or redo. What that is about is seen when it is its turn, for a person may press the key many times. */
function step(kind) {
  return inTurn(() => {
    if (current.state[kind] === null) return say(`There is nothing to ${kind}.`);
    return actAndShow({ kind, of: current.state[kind].of });
  });
}

/** Takes what is selected, so that the next selection can begin at once. */
function withSelection(work) {
  const rows = [...gallery.selected];
  if (!rows.length) return say("Select images first: click them, or go to them and press Space.");
  gallery.clear();
  return work(rows);
}

/** Asks where to put the selected images, or without any the whole group, and does it. */
async function send(onlyClasses) {
  const selected = gallery.selected.size;
  if (!selected && !groupHere()) return withSelection(() => {});
  const what = selected ? count(selected, "image") : `group ${groupHere().number}`;
  const title = onlyClasses ? `Which known class: ${what}` : `Where to put ${what}`;
  const to = await choose(title, destinations(onlyClasses, selected > 0));
  if (to !== null) await (selected ? moveTo(to) : mergeInto(to));
}

// Going about.

function goToUnnamed() {
  const unnamed = current.state.groups.filter((one) => !one.name);
  if (!unnamed.length) return say("Every group has a name. Finish says what to do next.");
  const here = groupHere()?.number ?? -1;
  const next = unnamed.find((one) => one.number > here) ?? unnamed[0];
  return go(next.place).then(() => byId("name").focus());
}

/** After a name was saved. */
function goOn() {
  if (byId("problem").textContent) return;
  const isLast = current.state.groups.every((one) => one.name);
  if (!byId("go-on").checked || !groupHere()?.name) return byId("title").focus();
  if (!isLast) return goToUnnamed();
  say(`${byId("message").textContent} Every group has a name: Finish says what to do next.`);
  byId("show-finish").focus();
}

function goAlong(steps) {
  const places = allPlaces();
  const index = places.indexOf(current.place) + steps;
  if (index >= 0 && index < places.length) go(places[index]);
}

function turnPage(pages) {
  const page = current.page + pages;
  if (page >= 0 && page < current.view.pages) go(current.place, page);
}

function openPlaces(open) {
  byId("places").classList.toggle("open", open);
  byId("show-places").setAttribute("aria-expanded", String(open));
}

function readAddress() {
  const found = /^#((?:group|class)-\d+|discarded)(?::(\d+))?$/.exec(location.hash);
  const page = Math.max(0, Number(found?.[2] ?? 1) - 1);
  [current.place, current.page] = found && exists(found[1]) ? [found[1], page] : [allPlaces()[0], 0];
}

// Controls.

const controls = {
  "show-places": () => openPlaces(!byId("places").classList.contains("open")),
  undo: () => step("undo"),
  redo: () => step("redo"),
  "show-queue": openQueue,
  "show-finish": finish,
  "show-help": () => byId("help").showModal(),
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
  confirm: () => moveTo(classHere().place),
  "new-group": () => moveTo("new"),
  "put-back": putBack,
  discard: () => moveTo("discarded"),
  look: () => look(gallery.samples.findIndex((one) => gallery.selected.has(one.row))),
  clear: () => gallery.clear(),
};
for (const [id, work] of Object.entries(controls)) byId(id).addEventListener("click", work);

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  gallery.focus();
});
for (const control of document.querySelectorAll(".of-pictures")) control.hidden = !about.pictures;
makeDragging(gallery, byId("places"), moveTo);
remember("uniot-label-go-on", byId("go-on"), () => {});
remember("uniot-label-size", byId("size"), (size) => { byId("gallery").dataset.size = size; });
byId("order").addEventListener("change", () => go(current.place, 0));
byId("name").addEventListener("input", showNameNote);
byId("name-form").addEventListener("submit", (event) => {
  event.preventDefault();
  rename().then(goOn);
});

listenToKeys([
  { keys: ["n"], about: "name this group", run: () => groupHere() && byId("name").focus() },
  { keys: ["u"], about: "go to the next group without a name", run: goToUnnamed },
  { keys: ["j"], about: "go to the next group or class", run: () => goAlong(1) },
  { keys: ["k"], about: "go to the one before", run: () => goAlong(-1) },
  { keys: ["i"], about: "go to the images", run: () => gallery.focus() },
  { keys: ["←", "→", "↑", "↓"], about: "go from image to image; with Shift, select on the way" },
  { keys: ["Space"], about: "select an image" },
  { keys: ["Enter"], about: "look at an image closely" },
  { keys: ["a"], about: "select every image of the page", run: () => gallery.selectAll() },
  { keys: ["Escape"], about: "clear the selection", run: () => gallery.clear() },
  { keys: ["m"], about: "move the selected images, as dragging them to the list does, or merge the group", run: () => send(false) },
  { keys: ["c"], about: "the selected images, or the group, are a known class", run: () => send(true) },
  { keys: ["g"], about: "make a new group of the selected images", run: () => moveTo("new") },
  { keys: ["x", "Delete"], about: "discard the selected images", run: () => moveTo("discarded") },
  { keys: ["s"], about: "split the group in two", run: split },
  { keys: ["z", "Ctrl+z"], about: "undo", run: () => step("undo") },
  { keys: ["y", "Ctrl+y"], about: "redo", run: () => step("redo") },
  { keys: [","], about: "previous page", run: () => turnPage(-1) },
  { keys: ["."], about: "next page", run: () => turnPage(1) },
  { keys: ["l"], about: "label first what tells most about the others", run: openQueue },
  { keys: ["e"], about: "finish: what to do next, and export", run: finish },
  { keys: ["?"], about: "this help", run: () => byId("help").showModal() },
]);

// Another tab may have changed something while this one was not looked at.
window.addEventListener("focus", () =>
  inTurn(async () => {
    const latest = await readState();
    if (latest.revision === current.state.revision) return;
    current.state = latest;
    await show();
    say("Another tab has changed something. This is the present state.");
  }),
);
window.addEventListener("popstate", () =>
  inTurn(async () => {
    gallery.selected.clear();
    readAddress();
    await show();
  }),
);

readAddress();
inTurn(show);
