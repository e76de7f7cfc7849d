"use strict";
// Samples picked out on the map by a lasso, and their list as a file.
(() => {
  const { data } = page;
  const lasso = page.byId("map-lasso"), result = page.byId("map-selected");
  let selected = new Set();

  page.isSelected = (point) => (selected.size ? selected.has(point) : null);
  const isLasso = () => lasso.getAttribute("aria-pressed") === "true";
  const dragMode = page.dragMode;
  page.dragMode = () => (isLasso() ? "lasso" : dragMode());
  // A sample that is not shown is not selected either.
  const shown = (points) => new Set([...points].filter((point) => data.points[point][1] && page.isDrawn(point)));

  function tell() {
    const count = selected.size;
    result.value = count ? `${count.toLocaleString("en")} selected` : "";
    for (const id of ["map-label", "map-download", "map-deselect"]) page.byId(id).disabled = !count;
  }

  function select(points) {
    selected = shown(points);
    tell();
    page.emit("selection");
  }

  // As io/csv_tables.py writes CSV: an apostrophe before what a spreadsheet program would take for a formula.
  const formula = /^'*[ \v\f\xa0\u3000]*[=+@＝＋－＠-]/;
  const number = /^'*[ \v\f\xa0\u3000]*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|nan)[ \v\f\xa0\u3000]*$/;
  const escaped = (part) => (formula.test(part) && !number.test(part) ? `'${part}` : part);
  const text = (value) => (/^'*[\0\t\r\n]/.test(value) ? "'" : "") + value.split(/([;\t\r\n])/).map(escaped).join("");
  const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const field = (value) => quoted(typeof value === "string" ? text(value) : String(value));

  const selectedRows = () => [...selected].map((point) => data.points[point][0]);

  function asCsv(rows) {
    const lines = [["path", "label", "group", "confidence"]];
    for (const row of [...rows].sort((one, other) => one - other)) {
      const [name, confidence, , , category] = data.samples[row];
      const [, , known, index, label] = data.categories[category];
      lines.push([name, label, known || index < 0 ? "" : index, confidence.toFixed(6)]);
    }
    return lines.map((line) => `${line.map(field).join(",")}\r\n`).join("");
  }

  page.selectedRows = selectedRows;
  // Returns how many of the rows are drawn on the map, which are selected there.
  page.selectRows = (rows) => {
    select(rows.map((row) => page.pointOfRow.get(row)).filter((point) => point !== undefined));
    return selected.size;
  };
  page.downloadRows = (rows) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([asCsv(rows)], { type: "text/csv;charset=utf-8" }));
    link.download = "selected.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };

  lasso.addEventListener("click", () => {
    lasso.setAttribute("aria-pressed", String(!isLasso()));
    Plotly.relayout("map", { dragmode: page.dragMode() });
  });
  page.listen("map-select-all", "click", () => select(data.points.keys()));
  page.listen("map-deselect", "click", () => select([]));
  page.listen("map-download", "click", () => page.downloadRows(selectedRows()));
  const trim = () => { if (selected.size) select(selected); };
  page.on("filter", trim);
  page.on("kinds", trim);
  page.on("ready", () => {
    page.listenChart("map", "plotly_selected", (hit) => {
      // Only somebody who drew has drawn; Plotly reports its own redrawing too, and is still at work on it here.
      if (!hit?.lassoPoints) return;
      setTimeout(() => { select(hit.points.map(({ customdata }) => customdata)); page.paintMap(); });
    });
  });
  tell();
})();
