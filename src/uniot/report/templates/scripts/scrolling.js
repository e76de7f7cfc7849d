"use strict";
// What scrolls sideways fades out towards the side on which there is more.
(() => {
  function mark(box) {
    const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.dataset.more = [box.scrollLeft > 1 && "left", rest > 1 && "right"].filter(Boolean).join(" ");
  }

  const boxes = document.querySelectorAll(".bar nav, .scroller");
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => mark(target)));
  for (const box of boxes) {
    box.addEventListener("scroll", () => mark(box), { passive: true });
    resized.observe(box);
  }
  page.on("ready", () => boxes.forEach(mark));
})();
