"use strict";
// What is known of the sample under the pointer.
(() => {
  const { data } = page;
  const about = page.byId("about");
  const [title, text, name] = about.querySelectorAll("strong, p");
  const link = about.querySelector("a"), canvas = about.querySelector("canvas");
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

  function tell({ heading, lines, where, key, picture }, event, pin) {
    title.textContent = heading;
    text.textContent = lines;
    name.textContent = where;
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

  page.listen("about-close", "click", hide);
  link.addEventListener("click", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
