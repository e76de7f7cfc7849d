"use strict";
// What the parts of the page share. Each part is a script element of its own: if one fails, the others still work.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const listeners = new Map();
  const pointOfRow = new Map();
  data.points.forEach(([row, ofTarget], point) => { if (ofTarget) pointOfRow.set(row, point); });

  return {
    data,
    root,
    pointOfRow,
    coarse: window.matchMedia("(pointer: coarse)").matches,
    colour: (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim(),
    byId: (id) => document.getElementById(id),

    // An element that this run's report lacks is no error.
    listen(id, event, action) { document.getElementById(id)?.addEventListener(event, action); },

    on(event, action) { listeners.set(event, [...(listeners.get(event) || []), action]); },
    emit(event) {
      for (const action of listeners.get(event) || []) {
        try { action(); } catch (error) { reportError(error); }
      }
    },

    // Replaced by the parts that know better.
    matchesRow: () => true,
    matchesPoint: () => true,
    isSelected: () => null,
    isDrawn: () => true,
    isKindShown: () => true,
    selectedRows: () => [],
    selectRows: () => 0,
    downloadRows: () => {},
    act: () => {},

    sampleLines(row) {
      const [where, confidence, inGroup, nearest, category, ofTruth] = data.samples[row];
      const [heading, key, known] = data.categories[category];
      const sure = `${known ? "known" : "unknown"}, confidence ${confidence.toFixed(2)}`;
      const of = known ? sure : `${sure}; group confidence ${inGroup.toFixed(2)}; nearest class ${data.classes[nearest]}`;
      const lines = ofTruth === undefined ? of : `${of}; true class ${data.truth.names[ofTruth]}`;
      return { heading, key, lines, where, shown: data.texts[row] };
    },
  };
})();
