// The samples of a category: tiles to select with mouse, touch or keys.

import { element, picture, showItems } from "./dom.js";
import { textElement } from "./texts.js";

export class Gallery {
  /**
   * @param list the listbox
   * @param sourceOf returns the address of the thumbnail of a row; null if the run has no pictures
   * @param hasTexts whether the samples have texts or links
   * @param onSelect called when the selection has changed
   * @param onLook called with the index of a tile to enlarge
   */
  constructor(list, { sourceOf, hasTexts, onSelect, onLook }) {
    Object.assign(this, { list, sourceOf, onSelect, onLook });
    this.samples = [];
    this.selected = new Set();
    this.current = 0;
    this.anchor = 0;
    list.classList.toggle("without-pictures", sourceOf === null);
    list.classList.toggle("with-texts", hasTexts);
    list.addEventListener("click", (event) => this.#onClick(event));
    list.addEventListener("dblclick", (event) => this.#onDoubleClick(event));
    list.addEventListener("keydown", (event) => this.#onKey(event));
    list.addEventListener("focus", () => this.focus());
  }

  show(samples) {
    const hadFocus = this.list.contains(document.activeElement);
    this.samples = samples;
    this.current = Math.min(this.current, Math.max(0, samples.length - 1));
    showItems(this.list, samples, (sample) => sample.row, (sample) => this.#make(sample), (tile, sample) => {
      tile.classList.toggle("by-hand", sample.by_hand);
      this.#update(tile, sample);
    });
    this.#mark();
    if (hadFocus) this.focus();
  }

  focus() {
    (this.list.children[this.current] ?? this.list).focus();
  }

  focusOn(index) {
    this.current = index;
    this.#mark();
    this.focus();
  }

  /** Selects the tile that is dragged, unless it is part of the selection. */
  takeUp(tile) {
    const index = [...this.list.children].indexOf(tile);
    if (this.selected.has(this.samples[index].row)) return;
    this.selected.clear();
    this.toggle(index);
  }

  clear() {
    this.selected.clear();
    this.#mark();
    this.onSelect();
  }

  selectAll() {
    const all = this.samples.every((sample) => this.selected.has(sample.row));
    for (const sample of this.samples) this.#choose(sample.row, !all);
    this.#mark();
    this.onSelect();
  }

  toggle(index) {
    const { row } = this.samples[index];
    this.#choose(row, !this.selected.has(row));
    this.anchor = index;
    this.#mark();
    this.onSelect();
  }

  #make(sample) {
    const short = this.sourceOf && sample.name.split("/").pop();
    const name = element("span", { className: "name", textContent: short || sample.name });
    const image = this.sourceOf && picture(this.sourceOf(sample.row));
    return element("div", { className: "tile", title: sample.name, id: `sample-${sample.row}`, draggable: true, aria: { role: "option" } }, image, name);
  }

  /** A search shows other parts of the texts, and where each sample is. */
  #update(tile, sample) {
    const [text, place] = [tile.querySelector(".text"), tile.querySelector(".place")];
    if (sample.text !== undefined && text?.textContent !== sample.text) {
      text?.remove();
      tile.querySelector(".name").before(textElement(sample, { canFocus: false }));
    }
    if (sample.in === undefined) place?.remove();
    else (place ?? tile.appendChild(element("span", { className: "place" }))).textContent = `in ${sample.in}`;
  }

  #choose(row, wanted) {
    if (wanted) this.selected.add(row);
    else this.selected.delete(row);
  }

  #mark() {
    [...this.list.children].forEach((tile, index) => {
      tile.setAttribute("aria-selected", String(this.selected.has(this.samples[index].row)));
      tile.tabIndex = index === this.current ? 0 : -1;
    });
  }

  #indexOf(event) {
    return [...this.list.children].indexOf(event.target.closest(".tile"));
  }

  #onClick(event) {
    const index = this.#indexOf(event);
    if (index < 0 || event.detail > 1 || event.target.closest("a")) return;
    this.current = index;
    if (event.shiftKey) this.#selectTo(index);
    else this.toggle(index);
    this.focus();
  }

  #onDoubleClick(event) {
    const index = this.#indexOf(event);
    if (index < 0 || event.target.closest("a")) return;
    this.toggle(index); // the first of the two clicks selected it
    this.onLook(index);
  }

  #selectTo(index) {
    const [first, last] = [Math.min(this.anchor, index), Math.max(this.anchor, index)];
    for (const sample of this.samples.slice(first, last + 1)) this.selected.add(sample.row);
    this.#mark();
    this.onSelect();
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.samples.length === 0) return;
    const last = this.samples.length - 1;
    const columns = this.#columns();
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -last, End: last };
    if (event.key in steps) {
      const before = this.current;
      this.current = Math.max(0, Math.min(last, before + steps[event.key]));
      if (event.shiftKey) {
        if (!this.selected.has(this.samples[before].row)) this.anchor = before;
        this.#selectTo(this.current);
      }
      this.#mark();
      this.focus();
    } else if (event.key === " ") this.toggle(this.current);
    else if (event.key === "Enter") this.onLook(this.current);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #columns() {
    const tiles = [...this.list.children];
    const second = tiles.findIndex((tile) => tile.offsetTop > tiles[0].offsetTop);
    return second < 0 ? tiles.length : second;
  }
}
