"use strict";
// Figures take their colours from the page, so that one place decides them.
(() => {
  const { colour } = page;
  const figures = new Map();
  for (const script of document.querySelectorAll("script[data-chart]")) {
    figures.set(script.dataset.chart, JSON.parse(script.textContent));
  }
  const settings = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" };
  const lineColours = () => [colour("accent"), colour("neutral"), "#c98a1b", "#a05bb5"];

  function themedLayout(id, figure) {
    const ink = colour("ink"), line = colour("line");
    const layout = structuredClone(figure.layout);
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, dragmode: false,
      font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { bgcolor: colour("page"), bordercolor: line, font: { color: ink } },
    });
    // A sheet of paper is narrower than a screen, and cannot be scrolled.
    if ("printing" in page.root.dataset) Object.assign(layout, { autosize: false, width: page.byId(id).clientWidth });
    for (const axis of ["xaxis", "yaxis"]) {
      layout[axis] = { ...layout[axis], gridcolor: line, zerolinecolor: line, linecolor: line };
      if (id !== "map") Object.assign(layout[axis], { fixedrange: true, automargin: true });
    }
    for (const shape of layout.shapes || []) shape.line = { ...shape.line, color: id === "confidence" ? ink : colour("neutral") };
    return layout;
  }

  function themedTrace(trace, number) {
    const own = { ...trace };
    if (own.type === "heatmap") own.colorscale = [[0, colour("low")], [1, colour("accent")]];
    if (own.type === "bar") own.marker = { color: colour(own.meta === "known" ? "accent" : "neutral") };
    if (own.mode === "lines") {
      const shade = own.meta ? colour(own.meta === "found" ? "accent" : "neutral") : lineColours()[number % 4];
      own.line = { color: shade, width: own.meta ? 1.3 : 2 };
      if (own.meta === "not found") own.opacity = 0.5;
    }
    return own;
  }

  page.figures = figures;
  // By id, what a part adds to a figure before it is drawn: (traces, layout) => [traces, layout].
  page.finish = new Map();
  page.drawChart = (id) => {
    const figure = figures.get(id), finish = page.finish.get(id);
    if (!figure || !page.byId(id)) return;
    let traces = figure.data.map(themedTrace), layout = themedLayout(id, figure);
    if (finish) [traces, layout] = finish(traces, layout);
    Plotly.react(id, traces, layout, settings);
  };
  page.on("draw", () => {
    for (const id of figures.keys()) {
      try { page.drawChart(id); } catch (error) { reportError(error); }
    }
  });
  // Charts have Plotly's own events only once they are drawn.
  page.listenChart = (id, event, action) => {
    if (figures.has(id)) page.byId(id)?.on(event, action);
  };
})();
