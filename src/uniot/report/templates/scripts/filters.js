"use strict";
// Filters act on the map and the galleries together.
(() => {
  const { data } = page;
  const form = page.byId("filters");
  const { category, low, high, words } = form.elements;
  const sections = [...document.querySelectorAll("section[data-gallery]")];
  const items = [...document.querySelectorAll(".card li[data-row]")];
  const nOnMap = data.points.filter(([, ofTarget]) => ofTarget).length;
  let wanted;

  // An empty field, or one that holds no number, sets no limit.
  const limit = (field, otherwise) => (Number.isNaN(field.valueAsNumber) ? otherwise : field.valueAsNumber);

  function read() {
    wanted = {
      category: category.value,
      low: limit(low, -Infinity),
      high: limit(high, Infinity),
      words: words.value.trim().toLocaleLowerCase(),
    };
    wanted.ofSamples = low.value !== "" || high.value !== "" || wanted.words !== "";
    wanted.any = wanted.ofSamples || wanted.category !== "";
  }

  function inCategory(index) {
    if (wanted.category === "") return true;
    if (wanted.category === "known") return index >= 0 && data.categories[index][2] === 1;
    if (wanted.category === "unknown") return index >= 0 && data.categories[index][2] === 0;
    return index === Number(wanted.category);
  }

  const contains = (name, shown = "") => wanted.words === "" || `${name}\n${shown}`.toLocaleLowerCase().includes(wanted.words);

  page.matchesRow = (row) => {
    const [name, confidence, , , index] = data.samples[row];
    return inCategory(index) && confidence >= wanted.low && confidence <= wanted.high
      && contains(name, data.texts[row]);
  };
  // Samples of the source have a class, but neither a confidence nor a name.
  page.matchesPoint = (point) => {
    const [row, ofTarget, index] = data.points[point];
    return ofTarget ? page.matchesRow(row) : inCategory(index) && !wanted.ofSamples;
  };

  function filterGalleries() {
    for (const item of items) item.hidden = !page.matchesRow(item.dataset.row);
    for (const section of sections) {
      let shown = 0;
      for (const card of section.querySelectorAll(".card")) {
        for (const list of card.querySelectorAll("ul")) {
          const empty = !list.querySelector("li:not([hidden])");
          list.hidden = empty;
          list.previousElementSibling.hidden = empty;
        }
        card.hidden = wanted.any && !card.querySelector("li[data-row]:not([hidden])");
        if (!card.hidden) shown += 1;
      }
      for (const tag of section.querySelectorAll("[data-index] li")) {
        tag.hidden = page.byId(tag.querySelector("a").hash.slice(1)).hidden;
      }
      section.querySelector(".nothing").hidden = shown > 0;
    }
  }

  function count() {
    const onMap = data.points.filter(([, ofTarget], point) => ofTarget && page.isDrawn(point)).length;
    const inGalleries = items.filter((item) => !item.hidden).length;
    const part = (some, all) => (some === all ? all.toLocaleString("en") : `${some.toLocaleString("en")} of ${all.toLocaleString("en")}`);
    page.byId("filter-count").value = `Shown: ${part(onMap, nOnMap)} on the map, ${part(inGalleries, items.length)} in the galleries`;
    page.byId("filter-clear").disabled = !wanted.any;
  }

  function apply() {
    read();
    filterGalleries();
    page.emit("filter");
  }

  function clear() {
    form.reset();
    apply();
  }

  let waiting;
  form.addEventListener("input", (event) => {
    clearTimeout(waiting);
    // Somebody who types is not done yet.
    if (event.target === category) apply(); else waiting = setTimeout(apply, 150);
  });
  page.listen("filter-clear", "click", clear);
  // A link to a gallery that the filter hides shows it again.
  document.addEventListener("click", (event) => {
    const hash = event.target.closest?.('a[href^="#"]')?.hash;
    if (hash && page.byId(hash.slice(1))?.hidden) clear();
  });
  page.on("filter", count);
  page.on("kinds", count);
  read();
  page.on("ready", () => { filterGalleries(); count(); });
})();
