"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const sheets = [...document.querySelectorAll("img.sheet")];
  const figures = new Map();
  for (const script of document.querySelectorAll("script[data-chart]")) {
    figures.set(script.dataset.chart, JSON.parse(script.textContent));
  }

  // Charts take their colours from the page, so that one place decides them.

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  function lineColours() {
    return [colour("accent"), colour("neutral"), "#c98a1b", "#a05bb5"];
  }

  function themed(id, figure) {
    const ink = colour("ink"), line = colour("line");
    const layout = structuredClone(figure.layout);
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: 12 },
      dragmode: id === "map" && !coarse ? "pan" : false,
      hoverlabel: { bgcolor: colour("page"), bordercolor: line, font: { color: ink } },
    });
    for (const axis of ["xaxis", "yaxis"]) {
      layout[axis] = { ...layout[axis], gridcolor: line, zerolinecolor: line, linecolor: line };
      if (id !== "map") Object.assign(layout[axis], { fixedrange: true, automargin: true });
      else if (map.layout) layout[axis].range = map.layout[axis].range;
    }
    for (const shape of layout.shapes || []) shape.line = { ...shape.line, color: id === "confidence" ? ink : colour("neutral") };
    const traces = figure.data.map((trace, number) => {
      const own = { ...trace };
      if (own.type === "heatmap") own.colorscale = [[0, colour("low")], [1, colour("accent")]];
      if (own.type === "bar") own.marker = { color: colour(own.meta === "known" ? "accent" : "neutral") };
      if (own.meta === "names") {
        own.textfont = { color: own.customdata.map((absent) => (absent ? colour("soft") : ink)), size: 12 };
      }
      if (id === "map") own.visible = shownKinds().includes(own.meta);
      if (own.mode === "markers") own.marker = mapMarker(own);
      if (own.mode === "lines") {
        const shade = own.meta ? colour(own.meta === "found" ? "accent" : "neutral") : lineColours()[number % 4];
        own.line = { color: shade, width: own.meta ? 1.3 : 2 };
        if (own.meta === "not found") own.opacity = 0.5;
      }
      return own;
    });
    return [traces, layout];
  }

  const map = document.getElementById("map");
  const show = document.getElementById("map-show");
  const colourBy = document.getElementById("map-colour");
  const kinds = document.getElementById("map-kinds");
  const shownKinds = () => [...kinds.querySelectorAll("input:checked")].map((box) => box.value);

  const settings = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" };

  function drawOne(id) {
    const [traces, layout] = themed(id, figures.get(id));
    Plotly.react(id, traces, layout, settings);
  }

  function draw() {
    for (const id of figures.keys()) drawOne(id);
  }

  // The map.

  // One half, where known begins, is in the middle of the scale; halfway to the farthest its colours are full.
  const farthest = Math.max(0.05, ...Object.values(data.samples).map(([, confidence]) => Math.abs(confidence - 0.5)));

  function mapMarker({ marker, customdata }) {
    const own = { ...marker, line: { ...marker.line } };
    // Hollow signs are drawn with their line; filled ones are set off from their neighbours by it.
    if (!marker.symbol.endsWith("open")) own.line.color = colour("page");
    if (show.value !== "") {
      own.opacity = customdata.map((point) => (data.points[point][2] === Number(show.value) ? 1 : 0.07));
    }
    if (colourBy.value === "confidence") {
      const [, ofTarget] = data.points[customdata[0]];
      own.color = ofTarget ? customdata.map((point) => data.samples[data.points[point][0]][1]) : colour("line");
      own.colorscale = [[0, "#c98a1b"], [0.5, colour("neutral")], [1, colour("accent")]];
      own.cmin = 0.5 - farthest / 2;
      own.cmax = 0.5 + farthest / 2;
    }
    return own;
  }

  const paintMap = () => drawOne("map");

  function zoom(factor) {
    const change = {};
    for (const axis of ["xaxis", "yaxis"]) {
      const [low, high] = map.layout[axis].range;
      const middle = (low + high) / 2, half = (high - low) / 2 * factor;
      change[`${axis}.range`] = [middle - half, middle + half];
    }
    Plotly.relayout(map, change);
  }

  // What is known of the sample under the pointer.

  const about = document.getElementById("about");
  const [title, text, name] = about.querySelectorAll("strong, p");
  const link = about.querySelector("a");
  const canvas = about.querySelector("canvas");
  const pointOfRow = new Map();
  data.points.forEach(([row, ofTarget], point) => { if (ofTarget) pointOfRow.set(row, point); });

  function tell(heading, lines, where, key, picture, event, pin) {
    title.textContent = heading;
    text.textContent = lines;
    name.textContent = where;
    link.hidden = !key || !document.getElementById(key);
    if (key) link.href = `#${key}`;
    canvas.hidden = picture < 0;
    if (picture >= 0) {
      const perSheet = data.sheetColumns ** 2, cell = picture % perSheet, side = data.side;
      const context = canvas.getContext("2d");
      context.imageSmoothingQuality = "high";
      context.drawImage(
        sheets[Math.floor(picture / perSheet)],
        (cell % data.sheetColumns) * side, Math.floor(cell / data.sheetColumns) * side, side, side,
        0, 0, canvas.width, canvas.height,
      );
    }
    about.classList.toggle("pinned", pin);
    about.hidden = false;
    const x = event.clientX ?? 0, y = event.clientY ?? 0;
    const box = about.getBoundingClientRect();
    about.style.left = `${Math.max(8, Math.min(x + 16, window.innerWidth - box.width - 8))}px`;
    about.style.top = `${Math.max(8, y + 16 + box.height > window.innerHeight ? y - box.height - 16 : y + 16)}px`;
  }

  function sampleLines(row, category) {
    const [where, confidence, inGroup, nearest] = data.samples[row];
    const [heading, key, known] = data.categories[category];
    const lines = known
      ? `known, confidence ${confidence.toFixed(2)}`
      : `unknown (${confidence.toFixed(2)}), in its group ${inGroup.toFixed(2)}; nearest class ${data.classes[nearest]}`;
    return { heading, key, lines, where };
  }

  function tellPoint(point, event, pin) {
    const [row, ofTarget, category, ofClass, picture] = data.points[point];
    if (ofTarget) {
      const { heading, key, lines, where } = sampleLines(row, category);
      tell(heading, lines, where, key, picture, event, pin);
    } else {
      const key = category < 0 ? null : data.categories[category][1];
      const lines = category < 0 ? "source; the class was not found in the target" : "source, labelled";
      tell(data.classes[ofClass], lines, "", key, picture, event, pin);
    }
  }

  function tellCell(point, event, unit) {
    const row = data.matrixRows[point.pointIndex?.[0] ?? point.y];
    const ofClass = data.matrixClasses[point.pointIndex?.[1] ?? point.x];
    const [where, confidence] = data.samples[row];
    const onMap = pointOfRow.get(row);
    const picture = onMap === undefined ? -1 : data.points[onMap][4];
    tell(`${data.classes[ofClass]}: ${point.z.toFixed(2)}`, `${unit}; confidence ${confidence.toFixed(2)}`, where, null, picture, event, false);
  }

  const pinned = () => about.classList.contains("pinned") && !about.hidden;
  const hide = () => { about.hidden = true; about.classList.remove("pinned"); };

  // Names hide what they name where there is little room.
  const names = kinds.querySelector("input[value=names]");
  if (names && window.innerWidth < 640) names.checked = false;
  draw();
  map.on("plotly_hover", (hit) => { if (!pinned() && !coarse) tellPoint(hit.points[0].customdata, hit.event, false); });
  map.on("plotly_unhover", () => { if (!pinned()) hide(); });
  map.on("plotly_click", (hit) => tellPoint(hit.points[0].customdata, hit.event, true));
  for (const [id, unit] of [["similarity", "cosine to the prototype"], ["transport", "of the mean mass of a row"]]) {
    const chart = document.getElementById(id);
    chart.on("plotly_hover", (hit) => { if (!pinned()) tellCell(hit.points[0], hit.event, unit); });
    chart.on("plotly_unhover", () => { if (!pinned()) hide(); });
  }
  document.getElementById("about-close").addEventListener("click", hide);
  link.addEventListener("click", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  kinds.addEventListener("change", paintMap);
  show.addEventListener("change", paintMap);
  colourBy.addEventListener("change", paintMap);
  document.getElementById("map-in").addEventListener("click", () => zoom(0.7));
  document.getElementById("map-out").addEventListener("click", () => zoom(1 / 0.7));
  document.getElementById("map-reset").addEventListener("click", () => {
    show.value = "";
    paintMap();
    const { xaxis, yaxis } = figures.get("map").layout;
    Plotly.relayout(map, { "xaxis.range": [...xaxis.range], "yaxis.range": [...yaxis.range] });
  });
  document.getElementById("map-controls").addEventListener("submit", (event) => event.preventDefault());

  // Light and dark.

  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    draw();
  });
  dark.addEventListener("change", draw);

  // Paper is white.

  let before;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; draw(); });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    draw();
  });
})();
