"use strict";
// Names on the map: beside what they name, where they cover neither a point nor another name.
(() => {
  const map = page.byId("map"), layer = page.byId("map-names"), lines = layer.querySelector("svg");
  const CELL = 4, SIGN = 6, LINE_HEIGHT = 16, RADII = [16, 24, 34, 46, 60, 78, 100, 126, 156, 190, 230], ANGLES = 16;
  const pen = document.createElement("canvas").getContext("2d");

  // How many signs lie in a box, from sums over a grid.
  class Occupied {
    constructor(width, height) {
      this.columns = Math.ceil(width / CELL) + 1;
      this.rows = Math.ceil(height / CELL) + 1;
      this.sums = new Float64Array((this.columns + 1) * (this.rows + 1));
    }

    add(x, y) {
      const column = Math.floor(x / CELL), row = Math.floor(y / CELL);
      if (column >= 0 && row >= 0 && column < this.columns && row < this.rows) {
        this.sums[(row + 1) * (this.columns + 1) + column + 1] += 1;
      }
    }

    finish() {
      const wide = this.columns + 1;
      for (let row = 1; row <= this.rows; row += 1) {
        for (let column = 1; column < wide; column += 1) {
          const here = row * wide + column;
          this.sums[here] += this.sums[here - 1] + this.sums[here - wide] - this.sums[here - wide - 1];
        }
      }
    }

    isFree({ left, top, right, bottom }) {
      const wide = this.columns + 1;
      const column = (x) => Math.min(this.columns, Math.max(0, x)), row = (y) => Math.min(this.rows, Math.max(0, y));
      const x0 = column(Math.floor((left - SIGN) / CELL)), x1 = column(Math.floor((right + SIGN) / CELL) + 1);
      const y0 = row(Math.floor((top - SIGN) / CELL)), y1 = row(Math.floor((bottom + SIGN) / CELL) + 1);
      return this.sums[y1 * wide + x1] - this.sums[y0 * wide + x1] - this.sums[y1 * wide + x0] + this.sums[y0 * wide + x0] === 0;
    }
  }

  const overlap = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

  function freeBox(x, y, width, isFree) {
    for (const radius of RADII) {
      // Above first, then in turn to both sides of it.
      for (let step = 0; step < ANGLES; step += 1) {
        const angle = -Math.PI / 2 + (step % 2 ? 1 : -1) * Math.ceil(step / 2) * (2 * Math.PI / ANGLES);
        const dx = Math.cos(angle) * (radius + width / 2 * Math.abs(Math.cos(angle))), dy = Math.sin(angle) * radius;
        const box = { left: x + dx - width / 2, right: x + dx + width / 2, top: y + dy - LINE_HEIGHT / 2, bottom: y + dy + LINE_HEIGHT / 2 };
        if (isFree(box)) return { box, dx, dy };
      }
    }
    return null;
  }

  function add(text, absent, x, y, { box, dx, dy }) {
    const name = document.createElement("span");
    name.textContent = text;
    name.classList.toggle("absent", absent);
    Object.assign(name.style, { left: `${x + dx}px`, top: `${y + dy}px` });
    layer.append(name);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const ends = { x1: x, y1: y, x2: Math.min(Math.max(x, box.left), box.right), y2: Math.min(Math.max(y, box.top), box.bottom) };
    for (const [end, value] of Object.entries(ends)) line.setAttribute(end, value);
    lines.append(line);
  }

  function place() {
    layer.hidden = !page.isKindShown("names");
    layer.replaceChildren(lines);
    lines.replaceChildren();
    if (layer.hidden) return;
    const { xaxis, yaxis, _size: { w: width, h: height } } = map._fullLayout;
    const taken = new Occupied(width, height);
    for (const trace of map.data) {
      if (trace.visible) trace.x.forEach((x, i) => taken.add(xaxis.d2p(x), yaxis.d2p(trace.y[i])));
    }
    taken.finish();
    pen.font = getComputedStyle(layer).font;
    const boxes = [];
    for (const [mapX, mapY, text, absent] of page.data.places) {
      const x = xaxis.d2p(mapX), y = yaxis.d2p(mapY);
      if (x < 0 || y < 0 || x > width || y > height) continue;
      const inside = (box) => box.left >= 0 && box.top >= 0 && box.right <= width && box.bottom <= height;
      const isFree = (box) => inside(box) && !boxes.some((other) => overlap(box, other)) && taken.isFree(box);
      const found = freeBox(x, y, pen.measureText(text).width + 6, isFree);
      if (!found) continue;
      boxes.push(found.box);
      add(text, absent === 1, x, y, found);
    }
  }

  page.on("map", place);
  page.on("ready", () => {
    // While the map is dragged, its names stay behind.
    page.listenChart("map", "plotly_relayouting", () => { layer.hidden = true; });
  });
})();
