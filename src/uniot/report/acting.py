"""Link the report to the labelling page: the samples of a selection, and the command that opens them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from uniot.annotations.places import as_text, class_place
from uniot.annotations.selections import DIGEST_LETTERS, MOST_SELECTED
from uniot.io.text import as_utf8, command

if TYPE_CHECKING:
    from uniot.report.categories import Category
    from uniot.report.confusion import RowsOf
    from uniot.runs.run import Run

# Rows of all cells of the confusion matrix together: each is on the page with its name.
_MOST_IN_CELLS = 20_000


def acting_values(run: Run, live: int | None) -> dict[str, Any]:
    """Return the values that scripts read to open samples in the labelling page.

    Args:
        run: the run.
        live: number of the last action that the page shows, if the labelling page serves it; None for a file.
    """
    return {
        "live": live,
        "digest": run.digest[:DIGEST_LETTERS],
        # The name of the folder alone: a report that is sent to others shall not tell where it was made.
        "command": command("label", run.files.title, "--open"),
        "folder": run.files.title,
        "most": MOST_SELECTED,
    }


def place_of(category: Category, n_groups: int) -> str:
    """Return the category as the labelling page names it: group-3, class-0; ungrouped samples form the last group."""
    if category.known:
        return as_text(class_place(category.index))
    return as_text(category.index if category.index >= 0 else n_groups)


def rows_of_cells(run: Run, unknown: str) -> RowsOf:
    """Return a function that finds the samples of a cell of the confusion matrix, by the true labels of the run."""
    truth, model = run.true_labels, run.model
    if truth is None or len(truth) != len(model.target):
        return lambda *_: ()
    true = np.array([as_utf8(label) for label in truth.tolist()], dtype=str)
    labels = np.array([as_utf8(str(label)) for label in model.target.labels(model.classes, model.unknown).tolist()])
    room = _MOST_IN_CELLS

    def rows_of(name: str, label: str, count: int) -> tuple[int, ...]:
        nonlocal room
        found = (true == name) & (labels == label)
        # Samples that people labelled since the run are not in the scores, those from before it are.
        for chosen in (found & ~model.labelled_by_people, found):
            if int(chosen.sum()) == count and count <= min(room, MOST_SELECTED):
                room -= count
                return tuple(np.flatnonzero(chosen).tolist())
        return ()

    return rows_of
