"""Office-31, published split: H-score and number of new classes after some answers of a person.

    python benchmarks/office31_answers.py
    python benchmarks/office31_answers.py --features efficientnet.npz

Six open-partial tasks: ten common classes, ten of the source, eleven of the target. Answers are the true labels, asked
for by `model.ask`; samples that were asked about do not count in H. The number of new classes, counted again after the
answers, is in brackets; its error is the mean of |found - 11|.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from pathlib import Path

import numpy as np
from measure import arguments
from office31_tasks import TASKS, Task, load_tasks, missing_data

from uniot import UniNCM
from uniot.errors import UniotWarning
from uniot.metrics import h_score

COUNTS = (0, 5, 10, 20)
N_PRIVATE = 11


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--features", type=Path, metavar="FILE", help="features of another backbone, .npz")
    options = parser.parse_args()
    missing = missing_data() if options.features is None else None
    if missing:
        sys.exit(missing)
    warnings.simplefilter("ignore", UniotWarning)
    tasks = load_tasks(TASKS[:1] if options.quick else TASKS, features=options.features)
    rows = {task.name: scores(task) for task in tasks}
    print("| answers | " + " | ".join(rows) + " | mean H | error of the number of new classes |")
    for place, count in enumerate(COUNTS):
        found = [row[place] for row in rows.values()]
        cells = " | ".join(f"{100 * h:.1f} ({n})" for h, n in found)
        error = statistics.fmean(abs(n - N_PRIVATE) for _, n in found)
        print(f"| {count} | {cells} | {100 * statistics.fmean(h for h, _ in found):.1f} | {error:.2f} |")


def scores(task: Task) -> list[tuple[float, int]]:
    """Return H and the number of new classes after each number of answers."""
    model = UniNCM(random_state=0).fit(task.source, task.source_labels, task.target)
    oracle_answers = np.where(np.isin(task.target_labels, model.classes_), task.target_labels, "unknown")
    found, kept = [], np.ones(len(oracle_answers), dtype=bool)
    for count in range(COUNTS[-1] + 1):
        if count in COUNTS:
            h = h_score(task.target_labels[kept], model.labels_[kept], source_classes=model.classes_)
            found.append((h, model.n_private_classes_))
        row = int(model.ask()[0])
        model.tell(row, oracle_answers[row])
        kept[row] = False
    return found


if __name__ == "__main__":
    main()
