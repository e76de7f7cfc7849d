"use strict";
// A report that the labelling page serves follows what is said there: it is loaded again, and looks as it did before.
(() => {
  const { live } = page.data.acting;
  const note = page.byId("following");
  if (live === null || !note) return;
  const [text, button] = note.children, KEPT = "uniot-report-view", EVERY = 2000;
  const form = page.byId("filters"), colourBy = page.byId("map-colour");

  function reload() {
    const view = { top: window.scrollY, filters: [...new FormData(form)], colour: colourBy.value, theme: page.root.dataset.theme, rows: page.selectedRows() };
    sessionStorage.setItem(KEPT, JSON.stringify(view));
    location.reload();
  }

  function restore() {
    const kept = sessionStorage.getItem(KEPT);
    sessionStorage.removeItem(KEPT);
    if (!kept) return;
    const view = JSON.parse(kept);
    for (const [name, value] of view.filters) if (form.elements[name]) form.elements[name].value = value;
    // A class may be gone: then the filter shows all again.
    if (form.elements.category.selectedIndex < 0) form.elements.category.value = "";
    form.elements.category.dispatchEvent(new Event("input", { bubbles: true }));
    if ([...colourBy.options].some((one) => one.value === view.colour)) colourBy.value = view.colour;
    colourBy.dispatchEvent(new Event("change"));
    if (view.rows.length) page.selectRows(view.rows);
    window.scrollTo({ top: view.top, behavior: "instant" });
  }

  // Somebody who is reading one sample or typing is not interrupted.
  const isBusy = () => document.querySelector("dialog[open]") || page.about.pinned() || document.activeElement?.matches("input");

  async function look() {
    if (document.hidden) return;
    let state;
    try {
      const answer = await fetch("/report/state", { cache: "no-store", redirect: "error" });
      if (!answer.ok) throw new Error(await answer.text());
      state = await answer.json();
    } catch {
      text.textContent = "The labelling page is not running any more; this is how it was.";
      clearInterval(timer);
      return;
    }
    const isNew = state.ready !== null && state.ready !== live;
    button.hidden = !isNew;
    if (isNew && !isBusy()) return reload();
    text.textContent = isNew ? "There is a later state." : state.latest === live ? "Follows the labelling page." : "The latest state is being drawn…";
    if (state.problem) text.textContent = state.problem;
  }

  const theme = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}").theme;
  if (theme) page.root.dataset.theme = theme;
  page.listen("following-update", "click", reload);
  const timer = setInterval(look, EVERY);
  document.addEventListener("visibilitychange", look);
  page.on("ready", () => { restore(); look(); });
})();
