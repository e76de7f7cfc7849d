// Texts and links of samples. They are text on the page, whatever they contain, and keep their direction to themselves.

import { element } from "./dom.js";

/** Creates the text of a sample, or a link to its address; null if the sample has neither. */
export function textElement({ text, href }, { className = "text", canFocus = true } = {}) {
  if (text === undefined) return null;
  // The server sends no other address; this line makes sure.
  if (!href || !/^https?:\/\//i.test(href)) return element("span", { className, dir: "auto", textContent: text });
  const link = element("a", { className: `${className} link`, href, target: "_blank", rel: "noopener noreferrer", dir: "auto", draggable: false, textContent: text });
  if (!canFocus) link.tabIndex = -1;
  return link;
}
