"use strict";
// A cell of a matrix says which sample and class it stands for.
(() => {
  const { data } = page;

  function tellCell(cell, event, unit) {
    const row = data.matrixRows[cell.pointIndex?.[0] ?? cell.y];
    const ofClass = data.matrixClasses[cell.pointIndex?.[1] ?? cell.x];
    const [where, confidence] = data.samples[row];
    const onMap = page.pointOfRow.get(row);
    page.about.tell({
      heading: `${data.classes[ofClass]}: ${cell.z.toFixed(2)}`,
      lines: `${unit}; confidence ${confidence.toFixed(2)}`,
      where, key: null, picture: onMap === undefined ? -1 : data.points[onMap][4], shown: data.texts[row],
    }, event, false);
  }

  page.on("ready", () => {
    for (const [id, unit] of [["similarity", "cosine to the centre of the class"], ["transport", "of the mean mass of a row"]]) {
      page.listenChart(id, "plotly_hover", (hit) => { if (!page.about.pinned()) tellCell(hit.points[0], hit.event, unit); });
      page.listenChart(id, "plotly_unhover", page.about.leave);
    }
  });
})();
