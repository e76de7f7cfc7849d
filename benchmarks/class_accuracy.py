"""How far the estimated accuracy of single classes, as the report shows it, is from the measured one.

    uniot evaluate run/ --labels truth.csv
    python benchmarks/class_accuracy.py run/ other-run/

For each run, over the labels with at least ten samples: the mean difference of estimated and measured accuracy, the
same if every class had the estimate of the whole run, and the rank correlation of estimate and measurement.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from uniot import Run
from uniot.report.categories import Categories
from uniot.report.opening import class_accuracies

FEWEST = 10


def line(folder: Path) -> str:
    """Return the figures of a run as a line."""
    run = Run.open(folder)
    if run.true_labels is None:
        sys.exit(f"{folder} has no true labels. Run `uniot evaluate` first.")
    whole = run.model.reliability_of_decision.accuracy
    found = [one for one in class_accuracies(run, Categories.of(run.model)) if one.count >= FEWEST]
    estimated = np.array([one.estimated for one in found])
    measured = np.array([one.measured for one in found], dtype=float)
    apart = 100 * np.abs(estimated - measured).mean()
    same = float("nan") if whole is None else 100 * np.abs(whole - measured).mean()
    ranked = spearmanr(estimated, measured).statistic if len(found) > 2 else float("nan")
    return f"{folder.name:16} {len(found):7} {apart:15.1f} {same:18.1f} {ranked:17.2f}"


def main() -> None:
    """Print a line per run."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.stdout.write("run               labels  difference (%)  with one estimate  rank correlation\n")
    for folder in sys.argv[1:]:
        sys.stdout.write(f"{line(Path(folder))}\n")


if __name__ == "__main__":
    main()
