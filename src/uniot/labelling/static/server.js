// Requests to the server of this page.

/** An error message for people; `state` is the latest one if the page was out of date. */
export class Problem extends Error {
  constructor(message, state = null) {
    super(message);
    this.state = state;
  }
}

const ENDED = "The command that serves this page is not running any more. Everything you did is saved. Start it again and open the address that it prints.";

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", cache: "no-store", redirect: "error", ...options });
  } catch {
    throw new Problem(ENDED);
  }
  const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
  const answer = isJson ? await response.json() : { message: await response.text() };
  if (!response.ok) throw new Problem(answer.message, answer.state ?? null);
  return answer;
}

const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const readState = () => ask("/state");
/** A page of a gallery; that of a list is asked for in the body of a request, because a list may be long. */
export const readGallery = (view) => (view.listed ? post("/gallery", view) : ask(`/gallery?${new URLSearchParams(view)}`));
export const readText = (collection, row) => ask(`/texts/${collection}/${row}`);
/** The next question; `listed` is { listed, at } of the list that it is about, or null. */
export const readQuestions = (listed) => (listed ? post("/questions", listed) : ask("/questions"));
export const readFollowing = (row) => ask(`/questions/following?${new URLSearchParams({ row })}`);
/** Carries out an action; returns the gallery page of `view`, or if that is null the next question, of a list or any. */
export const act = (seen, action, view, listed) => post("/actions", { seen, action, view, questions: view === null, listed });
export const readQueue = (count) => ask(`/queue?${new URLSearchParams({ count })}`);
export const writeExport = (format) => post("/export", { format });
export const sendImport = (text) => post("/import", { text });
export const readSource = () => ask("/source-labels");
/** Saves what is said about the label of a source sample; returns all suspect labels as they are then. */
export const tellSource = (row, decision, label) => post("/source-labels", { row, decision, label });
