// Lists of samples across groups and classes, as the address of the page and the server name them.

import { about } from "./state.js";

const DIGEST_LETTERS = 8;
export const DOUBTFUL = "doubtful";
export const like = (row) => `like-${row}`;

/** The text of a selection of single rows, such as rows-1a2b3c4d:3-9,15. */
export function selectionOf(rows) {
  const parts = [];
  for (const row of [...rows].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && row === last[1] + 1) last[1] = row;
    else parts.push([row, row]);
  }
  const ranges = parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
  return `rows-${about.version.slice(0, DIGEST_LETTERS)}:${ranges.join(",")}`;
}

/**
 * Reads a list from the fragment of an address: #doubtful, #ask:doubtful (one by one), #all:like-12 (all together).
 * @returns { list, asks } or null; the server checks the list
 */
export function readList(hash) {
  const found = /^#(?:(ask|all):)?(doubtful|like-\d+|rows-[0-9a-f]+:[\d,-]+)$/.exec(hash);
  if (!found) return null;
  return { list: found[2], asks: about.asks && (found[1] ?? (found[2] === DOUBTFUL ? "ask" : "all")) === "ask" };
}

export const addressOf = (list, asks) => `#${asks ? "ask" : "all"}:${list}`;
