"""What naming samples of the target does to the run that follows, on random class splits of Office-31.

    python benchmarks/naming.py             # two of the splits that defaults were chosen on, six tasks each

Accuracy on the common classes, recall of what is still unknown, and accuracy on the classes that were named; before and
after. Whoever names knows the truth, which is taken from the labels of the target.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from measure import arguments
from random_splits import office31, read_splits

from uniot import UniDAClassifier, UniNCM

_CONFIRMED = 6


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--splits", type=int, default=2, help="how many splits, in the open-partial setting")
    options = parser.parse_args()
    splits = [
        s for s in read_splits() if (s["set"], s["purpose"], s["setting"]) == ("office31", "choice", "open-partial")
    ]
    domains = office31()
    found: dict[str, list[list[float]]] = defaultdict(list)
    for split in splits[: 1 if options.quick else options.splits]:
        common, private = set(split["common"]), set(split["target_private"])
        for one, (x, y) in domains.items():
            for other, (target, truth) in domains.items():
                if one == other:
                    continue
                of_source, of_target = (
                    np.isin(y, [*common, *split["source_private"]]),
                    np.isin(truth, [*common, *private]),
                )
                data = x[of_source], y[of_source], target[of_target], truth[of_target]
                first = fit(*data[:3])
                for what, rows, names in choices(first, data[3], common, private):
                    after = fit(np.concatenate([data[0], data[2][rows]]), np.append(data[1], data[3][rows]), data[2])
                    found[what].append([*scores(first, data[3], common, names), *scores(after, data[3], common, names)])
    heads = "".join(f"{head:>9}" for head in ("common", "unknown", "named") * 2)
    print(f"{'':38}{'before':>27}{'after':>27}\n{'':38}{heads}")
    for what, rows in found.items():
        means = np.mean(rows, axis=0)
        print(f"{what:38}{''.join('        –' if np.isnan(mean) else f'{100 * mean:9.1f}' for mean in means)}")


def fit(x: np.ndarray, y: np.ndarray, target: np.ndarray) -> UniDAClassifier:
    return UniNCM(n_private_classes=1, random_state=0).fit(x, y, target)


def choices(
    model: UniDAClassifier, truth: np.ndarray, common: set[str], private: set[str]
) -> list[tuple[str, np.ndarray, set[str]]]:
    """What is named: a title, rows of the target, and the classes they are of."""
    half = set(sorted(private)[: len(private) // 2])
    unknown = model.labels_ == "unknown"
    random = np.random.default_rng(0)
    some = [random.permutation(np.flatnonzero(truth == name))[:_CONFIRMED] for name in sorted(common)]
    return [
        ("half of the new classes named", np.flatnonzero(unknown & np.isin(truth, sorted(half))), half),
        ("all new classes named", np.flatnonzero(unknown & np.isin(truth, sorted(private))), private),
        (f"{_CONFIRMED} of two common classes confirmed", np.concatenate(some[:2]), set(sorted(common)[:2])),
        (f"{_CONFIRMED} of each common class confirmed", np.concatenate(some), common),
    ]


def scores(model: UniDAClassifier, truth: np.ndarray, common: set[str], named: set[str]) -> list[float]:
    """Accuracy on the common classes, recall of the unknown, accuracy on the classes that were named."""
    is_unknown = ~np.isin(truth, [*common, *named])
    recall = float((model.labels_[is_unknown] == "unknown").mean()) if is_unknown.any() else float("nan")
    return [_accuracy(model, truth, common), recall, _accuracy(model, truth, named)]


def _accuracy(model: UniDAClassifier, truth: np.ndarray, classes: set[str]) -> float:
    return float(np.mean([(model.labels_[truth == name] == name).mean() for name in classes if (truth == name).any()]))


if __name__ == "__main__":
    main()
