"""Names groups one after another and says so, for a test that kills it: `acts_until_killed.py labels.sqlite`."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import numpy as np

from uniot.labelling.state import AnnotationState, move, rename
from uniot.labelling.store import LabelStore
from uniot.runs.files import RunFiles


def main(path: Path) -> None:
    store, labels = LabelStore(RunFiles(path.parent), "a run"), AnnotationState.initial(np.arange(1000) // 10)
    revision = 0
    for number in count():
        rows = labels.members(number % 50)
        changes = [rename(labels, number % 50, f"name {number}"), move(labels, rows[:3], 50 + number % 50)]
        for change in filter(None, changes):
            revision = store.append(revision, "name", f"step {number}", change)
            labels.apply(change)
            sys.stdout.write(f"{revision}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
