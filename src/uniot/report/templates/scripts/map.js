"use strict";
// The map: what is drawn of it and how, and the part of it that is in view.
(() => {
  const { data, colour } = page;
  const map = page.byId("map"), colourBy = page.byId("map-colour"), kinds = page.byId("map-kinds");
  const kindOf = new Map();
  for (const { meta, customdata } of page.figures.get("map").data) customdata.forEach((point) => kindOf.set(point, meta));
  const boxes = [...kinds.querySelectorAll("input")];
  // There is no room for names on a telephone.
  for (const box of boxes) if (box.value === "names" && window.innerWidth < 640) box.checked = false;
  let shownKinds;
  const readKinds = () => { shownKinds = new Set(boxes.filter((box) => box.checked).map((box) => box.value)); };
  readKinds();

  page.isKindShown = (kind) => shownKinds.has(kind);
  page.isDrawn = (point) => shownKinds.has(kindOf.get(point)) && page.matchesPoint(point);

  // One half, where known begins, is in the middle of the scale; halfway to the farthest its colours are full.
  const ofKnown = ([, confidence, , , category]) => (data.categories[category][2] ? confidence : 1 - confidence);
  const farthest = Object.values(data.samples).reduce((most, sample) => Math.max(most, Math.abs(ofKnown(sample) - 0.5)), 0.05);

  // Filters and selections change the opacity of signs that are already drawn: to have Plotly draw them anew is slow.
  function fade() {
    const fadedTo = (point) => {
      if (!page.matchesPoint(point)) return 0.07;
      const selected = page.isSelected(point);
      if (selected === null) return null;
      return selected ? 1 : 0.2;
    };
    for (const group of map.querySelectorAll(".trace.scatter")) {
      const { customdata, marker } = group.__data__[0].trace;
      for (const sign of group.querySelectorAll(".points path")) {
        sign.style.opacity = fadedTo(customdata[sign.__data__.i]) ?? marker.opacity;
      }
    }
  }

  const SOURCE = "#c98a1b", WRONG = "#d1495b", NO_CLASS = "#9aa3ad", MOST_IN_KEY = 24;
  const isYours = new Set(data.classes), placeOfTrue = new Map((data.truth?.names ?? []).map((name, place) => [name, place]));
  const trueColour = (name) => data.truth.colours[placeOfTrue.get(name)] ?? NO_CLASS;
  const trueName = (row) => data.truth.names[data.samples[row][5]];

  function isRight(row) {
    const [, , , nearest, category] = data.samples[row], name = trueName(row);
    return data.categories[category][2] ? data.classes[nearest] === name : !isYours.has(name);
  }

  // By the value of the choice: the colour of a point, as text or, with a scale, as a number; and the key below the map.
  const colourings = {
    domain: {
      of: (row, ofTarget) => (ofTarget ? colour("accent") : SOURCE),
      key: () => [[SOURCE, "source"], [colour("accent"), "target"]],
    },
    truth: {
      of: (row, ofTarget, category, ofClass) => trueColour(ofTarget ? trueName(row) : data.classes[ofClass]),
      key: () => data.truth.names.slice(0, MOST_IN_KEY).map((name, place) => [data.truth.colours[place], isYours.has(name) ? name : `${name} *`]),
    },
    right: {
      of: (row, ofTarget) => { if (!ofTarget) return colour("line"); return isRight(row) ? colour("accent") : WRONG; },
      key: () => [[colour("accent"), "right"], [WRONG, "wrong"], [colour("line"), "source"]],
    },
    confidence: {
      of: (row, ofTarget) => (ofTarget ? ofKnown(data.samples[row]) : colour("line")),
      scale: () => [[0, SOURCE], [0.5, colour("neutral")], [1, colour("accent")]],
      key: () => [[SOURCE, "unknown"], [colour("neutral"), "in between"], [colour("accent"), "known"], [colour("line"), "source"]],
    },
  };

  function showKey() {
    const key = page.byId("map-key"), chosen = colourings[colourBy.value];
    const lines = (chosen?.key() ?? []).map(([shade, words]) => {
      const item = document.createElement("li"), dot = document.createElement("span");
      dot.style.background = shade;
      item.append(dot, words);
      return item;
    });
    const left = colourBy.value === "truth" ? data.truth.names.length - MOST_IN_KEY : 0;
    if (left > 0) lines.push(Object.assign(document.createElement("li"), { textContent: `and ${left} more` }));
    if (colourBy.value === "truth") {
      lines.push(Object.assign(document.createElement("li"), { textContent: "* none of your classes" }));
    }
    key.replaceChildren(...lines);
    key.hidden = !lines.length;
  }

  function marker({ marker, customdata }) {
    const own = { ...marker, line: { ...marker.line } };
    // Hollow signs are drawn with their line; filled ones are set off from their neighbours by it.
    if (!marker.symbol.endsWith("open")) own.line.color = colour("page");
    const chosen = colourings[colourBy.value];
    if (!chosen) return own;
    const shades = customdata.map((point) => chosen.of(...data.points[point]));
    own.color = typeof shades[0] === "number" || new Set(shades).size > 1 ? shades : shades[0];
    if (chosen.scale && typeof shades[0] === "number") {
      own.colorscale = chosen.scale();
      own.cmin = 0.5 - farthest / 2;
      own.cmax = 0.5 + farthest / 2;
    }
    return own;
  }

  page.dragMode = () => (page.coarse ? false : "pan");
  page.finish.set("map", (traces, layout) => {
    for (const trace of traces) Object.assign(trace, { visible: page.isKindShown(trace.meta), marker: marker(trace) });
    Object.assign(layout, { dragmode: page.dragMode(), selections: [] });
    for (const axis of ["xaxis", "yaxis"]) if (map.layout) layout[axis].range = map.layout[axis].range;
    return [traces, layout];
  });

  page.paintMap = () => { page.drawChart("map"); page.emit("map"); };
  page.on("draw", showKey);
  page.on("map", fade);
  page.on("filter", fade);
  page.on("selection", fade);

  function zoom(factor) {
    const change = {};
    for (const axis of ["xaxis", "yaxis"]) {
      const [start, stop] = map.layout[axis].range;
      const middle = (start + stop) / 2, half = (stop - start) / 2 * factor;
      change[`${axis}.range`] = [middle - half, middle + half];
    }
    Plotly.relayout(map, change);
  }

  function tellPoint({ points: [{ customdata: point }], event }, pin) {
    const [row, ofTarget, category, ofClass, picture] = data.points[point];
    if (!page.isDrawn(point)) return;
    if (ofTarget) {
      page.about.tell({ ...page.sampleLines(row), picture, row }, event, pin);
    } else {
      const key = category < 0 ? null : data.categories[category][1];
      const lines = category < 0 ? "source; the class was not found in the target" : "source, labelled";
      page.about.tell({ heading: data.classes[ofClass], lines, where: "", key, picture, shown: data.sourceTexts[row] }, event, pin);
    }
  }

  // A map that has the focus moves by the arrow keys, and zooms by + and −; 0 shows all of it.
  function shift(right, up) {
    const change = {};
    for (const [axis, part] of [["xaxis", right], ["yaxis", up]]) {
      const [start, stop] = map.layout[axis].range, by = part * (stop - start) / 8;
      change[`${axis}.range`] = [start + by, stop + by];
    }
    Plotly.relayout(map, change);
  }
  const KEYS = {
    ArrowLeft: () => shift(-1, 0), ArrowRight: () => shift(1, 0), ArrowUp: () => shift(0, 1), ArrowDown: () => shift(0, -1),
    "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: () => page.byId("map-reset").click(),
  };
  page.byId("map-frame").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  kinds.addEventListener("change", () => { readKinds(); page.paintMap(); page.emit("kinds"); });
  colourBy.addEventListener("change", () => { showKey(); page.paintMap(); });
  page.listen("map-in", "click", () => zoom(0.7));
  page.listen("map-out", "click", () => zoom(1 / 0.7));
  page.listen("map-reset", "click", () => {
    const { xaxis, yaxis } = page.figures.get("map").layout;
    Plotly.relayout(map, { "xaxis.range": [...xaxis.range], "yaxis.range": [...yaxis.range] });
  });
  page.on("ready", () => {
    page.listenChart("map", "plotly_afterplot", () => page.emit("map"));
    page.listenChart("map", "plotly_hover", (hit) => { if (!page.about.pinned() && !page.coarse) tellPoint(hit, false); });
    page.listenChart("map", "plotly_unhover", page.about.leave);
    page.listenChart("map", "plotly_click", (hit) => tellPoint(hit, true));
  });
})();
