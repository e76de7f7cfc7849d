"""Expected calibration error of the confidence, on the class splits of random_splits.toml that nothing was chosen on.

    python benchmarks/calibration.py
    python benchmarks/calibration.py --methods ovanet --steps 300 --quick

Mean over runs, and over all answers of a data set together; "as it is" is the confidence before it is calibrated to the
estimated accuracy.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from measure import arguments
from random_splits import digits, fitted, office31, read_splits

from uniot import UniDAClassifier
from uniot.methods.decision import Calibration

_BINS = 15


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", choices=("office31", "digits"), default=("office31", "digits"))
    parser.add_argument("--methods", nargs="+", default=("unincm",))
    parser.add_argument("--steps", type=int, help="training steps of a method that trains")
    options = parser.parse_args()
    options.count = False
    for name in options.sets:
        domains = office31() if name == "office31" else digits()
        splits = [split for split in read_splits() if (split["set"], split["purpose"]) == (name, "check")]
        for method in options.methods:
            found = defaultdict(list)
            for split in splits[:: 12 if options.quick else 2]:
                for _, truth, model in fitted(domains, split, method, {}, options):
                    expected = np.where(np.isin(truth, model.classes_), truth, "unknown")
                    right = model.labels_ == expected
                    found["calibrated"].append((model.model_.target.confidence, right))
                    found["as it is"].append((_uncalibrated(model), right))
            for kind, runs in found.items():
                mean = np.mean([calibration_error(*run) for run in runs])
                whole = calibration_error(*map(np.concatenate, zip(*runs, strict=True)))
                print(f"{name}, {method}, {kind}: {mean:.3f} over {len(runs)} runs, {whole:.3f} together", flush=True)


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean distance of confidence and accuracy, over bins of equal width, weighted by their samples."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    parts = [bins == number for number in np.unique(bins)]
    return float(sum(abs(confidence[part].mean() - right[part].mean()) * part.mean() for part in parts))


def _uncalibrated(model: UniDAClassifier) -> np.ndarray:
    kept = model.model_
    odds, of_class = torch.from_numpy(kept.target_odds), torch.from_numpy(kept.target_class_probability)
    return Calibration().confidence(odds, of_class, torch.from_numpy(kept.target.known)).numpy()


if __name__ == "__main__":
    main()
