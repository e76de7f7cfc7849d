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

  function marker({ marker, customdata }) {
    const own = { ...marker, line: { ...marker.line } };
    // Hollow signs are drawn with their line; filled ones are set off from their neighbours by it.
    if (!marker.symbol.endsWith("open")) own.line.color = colour("page");
    if (colourBy.value === "confidence") {
      const [, ofTarget] = data.points[customdata[0]];
      own.color = ofTarget ? customdata.map((point) => ofKnown(data.samples[data.points[point][0]])) : colour("line");
      own.colorscale = [[0, "#c98a1b"], [0.5, colour("neutral")], [1, colour("accent")]];
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
      page.about.tell({ ...page.sampleLines(row), picture }, event, pin);
    } else {
      const key = category < 0 ? null : data.categories[category][1];
      const lines = category < 0 ? "source; the class was not found in the target" : "source, labelled";
      page.about.tell({ heading: data.classes[ofClass], lines, where: "", key, picture, shown: data.sourceTexts[row] }, event, pin);
    }
  }

  kinds.addEventListener("change", () => { readKinds(); page.paintMap(); page.emit("kinds"); });
  colourBy.addEventListener("change", page.paintMap);
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
