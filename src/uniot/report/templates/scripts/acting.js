"use strict";
// From looking to acting: samples open in the labelling page, or there is a command to copy that opens them there.
(() => {
  const { acting, samples } = page.data;
  const [dialog, said, open] = ["acting", "acting-said", "acting-open"].map(page.byId);
  // A longer command is hard to paste; the samples go through a file.
  const LONGEST = 1200;
  const isLive = acting.live !== null;
  let here = null;

  // As annotations/selections.py writes rows: 3-9,15.
  function textOf(rows) {
    const parts = [];
    for (const row of [...rows].sort((one, other) => one - other)) {
      const last = parts.at(-1);
      if (last && row === last[1] + 1) last[1] = row; else parts.push([row, row]);
    }
    return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
  }

  function rowsOf(text) {
    return text.split(",").flatMap((part) => {
      const [first, last = first] = part.split("-").map(Number);
      return Array.from({ length: Math.min(last - first + 1, acting.most) }, (_, index) => first + index);
    });
  }

  function how(isLong) {
    if (isLive) return "";
    const command = `The command opens the labelling page there. Run it in the folder that contains “${acting.folder}”.`;
    return isLong ? `Download the list first, into that folder. ${command}` : command;
  }

  page.act = ({ title, selection = null, rows = null }) => {
    const chosen = selection ?? `rows-${acting.digest}:${textOf(rows)}`;
    const isLong = !isLive && chosen.length > LONGEST;
    here = { rows, command: `${acting.command} --select ${isLong ? "selected.csv" : chosen}` };
    page.byId("acting-title").textContent = rows && rows.length > 1 ? `${title} (${rows.length.toLocaleString("en")})` : title;
    page.byId("acting-how").textContent = rows && rows.length > acting.most ? `At most ${acting.most.toLocaleString("en")} samples open at once: choose fewer.` : how(isLong);
    const isTooMany = rows !== null && rows.length > acting.most;
    page.byId("acting-command").textContent = here.command;
    page.byId("acting-command").hidden = page.byId("acting-copy").hidden = isLive || isTooMany;
    open.hidden = !isLive || isTooMany;
    open.href = `/#${chosen}`;
    page.byId("acting-map").hidden = !rows?.some((row) => page.pointOfRow.has(row));
    page.byId("acting-download").hidden = !rows?.every((row) => row in samples);
    said.value = "";
    if (!dialog.open) dialog.showModal();
  };

  async function copy() {
    try {
      await navigator.clipboard.writeText(here.command);
      said.value = "Copied. Paste it into your terminal.";
    } catch {
      // A page that was opened as a file may not use the clipboard.
      getSelection().selectAllChildren(page.byId("acting-command"));
      said.value = "The command is selected: copy it with Ctrl+C.";
    }
  }

  function showOnMap(rows) {
    const count = page.selectRows(rows);
    page.byId("map-section").scrollIntoView();
    if (!count) page.byId("map-selected").value = "None of these samples is drawn on the map";
  }

  // An address such as report.html#rows-1a2b3c4d:3-9,15 selects these samples on the map.
  function readAddress() {
    const found = /^#rows-([0-9a-f]{8}):([\d,-]+)$/.exec(decodeURIComponent(location.hash));
    if (found && found[1] === acting.digest) showOnMap(rowsOf(found[2]));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button.act");
    if (!button) return;
    const { selection, rows, title } = button.dataset;
    page.act(rows ? { title, rows: rowsOf(rows) } : { title, selection });
  });
  page.listen("map-label", "click", () => page.act({ title: "Selected on the map", rows: page.selectedRows() }));
  page.listen("acting-copy", "click", copy);
  page.listen("acting-map", "click", () => { dialog.close(); showOnMap(here.rows); });
  page.listen("acting-download", "click", () => page.downloadRows(here.rows));
  page.listen("acting-close", "click", () => dialog.close());
  open.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  window.addEventListener("hashchange", readAddress);
  page.on("ready", readAddress);
})();
