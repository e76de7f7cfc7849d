// Helpers to create and update elements; text is never parsed as HTML.

export const byId = (id) => document.getElementById(id);

/** Creates an element with properties, `data` and `aria` attributes, and children. */
export function element(tag, { data = {}, aria = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  Object.assign(made.dataset, data);
  for (const [name, value] of Object.entries(aria)) made.setAttribute(name === "role" ? name : `aria-${name}`, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Updates a list to show items in order. Elements are reused, so that images do not flicker and keep the focus. */
export function showItems(list, items, keyOf, make, update) {
  const kept = new Map([...list.children].map((child) => [child.dataset.key, child]));
  const shown = items.map((item) => {
    const key = String(keyOf(item));
    const child = kept.get(key) ?? make(item);
    child.dataset.key = key;
    kept.delete(key);
    update(child, item);
    return child;
  });
  for (const gone of kept.values()) gone.remove();
  shown.forEach((child, index) => {
    if (list.children[index] !== child) list.insertBefore(child, list.children[index] ?? null);
  });
}

/** Creates an image that is hidden if it cannot be loaded. */
export function picture(source, fetchPriority = "auto") {
  const image = element("img", { alt: "", loading: "lazy", decoding: "async", draggable: false, fetchPriority });
  image.addEventListener("error", () => image.classList.add("gone"));
  image.addEventListener("load", () => image.classList.remove("gone"));
  setSource(image, source);
  return image;
}

export function setSource(image, source) {
  if (image.getAttribute("src") !== source) image.src = source;
}

export const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

/** Text with places where a line may break: after the signs that join the words of a name. */
export const breakable = (text) =>
  text.split(/(?<=[_/.-])/).flatMap((part, index) => (index ? [document.createElement("wbr"), part] : [part]));
