"use strict";
// What is known of the sample under the pointer.
(() => {
  const { data } = page;
  const about = page.byId("about");
  const [title, text, words, name] = about.querySelectorAll("strong, p");
  const link = about.querySelector("div > a"), canvas = about.querySelector("canvas");
  const sheets = [...document.querySelectorAll("img.sheet")];

  function drawPicture(picture) {
    canvas.hidden = picture < 0;
    if (picture < 0) return;
    const perSheet = data.sheetColumns ** 2, cell = picture % perSheet, side = data.side;
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(
      sheets[Math.floor(picture / perSheet)],
      (cell % data.sheetColumns) * side, Math.floor(cell / data.sheetColumns) * side, side, side,
      0, 0, canvas.width, canvas.height,
    );
  }

  // A text is text, whatever it contains; only an address that the report has checked, in a list, becomes a link.
  function showText(shown) {
    words.hidden = shown === undefined;
    if (words.hidden) return;
    if (!Array.isArray(shown) || !/^https?:/i.test(shown[0])) { words.textContent = shown; return; }
    const address = document.createElement("a");
    Object.assign(address, { href: shown[0], target: "_blank", rel: "noopener noreferrer", textContent: shown[0] });
    words.replaceChildren(address);
  }

  const buttons = about.querySelector(".buttons");
  let here = null;

  function tell({ heading, lines, where, key, picture, shown, row = null }, event, pin) {
    // What moves with the pointer cannot be clicked.
    here = pin && row !== null ? { row, where } : null;
    buttons.hidden = here === null;
    title.textContent = heading;
    text.textContent = lines;
    name.textContent = where;
    showText(shown);
    link.hidden = !key || !page.byId(key);
    if (key) link.href = `#${key}`;
    drawPicture(picture);
    about.classList.toggle("pinned", pin);
    about.hidden = false;
    const x = event.clientX ?? 0, y = event.clientY ?? 0;
    const box = about.getBoundingClientRect();
    about.style.left = `${Math.max(8, Math.min(x + 16, window.innerWidth - box.width - 8))}px`;
    about.style.top = `${Math.max(8, y + 16 + box.height > window.innerHeight ? y - box.height - 16 : y + 16)}px`;
  }

  const pinned = () => about.classList.contains("pinned") && !about.hidden;
  const hide = () => { about.hidden = true; about.classList.remove("pinned"); };
  page.about = { tell, pinned, hide, leave: () => { if (!pinned()) hide(); } };

  page.listen("about-label", "click", () => page.act({ title: here.where, rows: [here.row] }));
  page.listen("about-like", "click", () => page.act({ title: `More like ${here.where}`, selection: `like-${here.row}` }));
  page.listen("about-close", "click", hide);
  link.addEventListener("click", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
