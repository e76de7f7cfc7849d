"""Flip 5 % of the labels at random, and count how many of them `uniot.suspect_labels` finds.

    python benchmarks/suspect_labels.py --features office31=features.npz --features pacs=pacs.npz

For every domain of every data set: precision at the number flipped (of as many samples with the highest scores as were
flipped, how many were), what is flagged as clear and how much of that was flipped, and how many labels are flagged as
clear without any flip. `--imbalanced` thins the classes out first, down to a tenth of the largest. The digits come with
the install. `--quick` takes one seed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure import arguments

from uniot import suspect_labels
from uniot.benchmark.features import DIGITS, write_digits

_FLIPPED = 0.05
_SEEDS = 5


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--features", action="append", default=[], metavar="NAME=FILE", help="a data set")
    parser.add_argument("--imbalanced", action="store_true", help="thin the classes out first")
    given = parser.parse_args()
    print(f"{'domain':32} samples  precision at n  lowest seed  clear, of which flipped  clear without flips")
    for name, x, y in domains(dict(text.split("=", 1) for text in given.features)):
        if given.imbalanced:
            kept = thinned(y)
            x, y = x[kept], y[kept]
        found = [measured(x, y, seed) for seed in range(1 if given.quick else _SEEDS)]
        precision = [one[0] for one in found]
        n_clear, right = np.mean([one[1:] for one in found], axis=0)
        print(
            f"{name:32} {len(y):7} {100 * np.mean(precision):15.1f} {100 * min(precision):12.1f} {n_clear:15.0f} "
            f"{100 * right:4.0f} % {suspect_labels(x, y).n_clear:20}",
            flush=True,
        )


def domains(features: dict[str, str]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(path) for name, path in features.items()} | {DIGITS: write_digits(Path(folder))}
        for dataset, path in files.items():
            with np.load(path) as arrays:
                for key in [key for key in arrays if key.endswith("_x")]:
                    domain = key.removesuffix("_x")
                    yield f"{dataset} {domain}", arrays[key].astype(np.float32), arrays[f"{domain}_y"]


def measured(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, int, float]:
    """Precision at the number flipped, how many labels are clear, and how many of these were flipped."""
    rng = np.random.default_rng(seed)
    classes, index = np.unique(y, return_inverse=True)
    flipped = rng.choice(len(y), round(_FLIPPED * len(y)), replace=False)
    index[flipped] = (index[flipped] + rng.integers(1, len(classes), len(flipped))) % len(classes)
    found = suspect_labels(x, classes[index])
    order = np.argsort(-found.score, kind="stable")
    clear = found.rows[: found.n_clear]
    precision = float(np.isin(order[: len(flipped)], flipped).mean())
    return precision, len(clear), float(np.isin(clear, flipped).mean()) if len(clear) else 1.0


def thinned(y: np.ndarray) -> np.ndarray:
    """Rows that stay: classes shrink one after another, the last one to a tenth, but none below 4 samples."""
    rng = np.random.default_rng(0)
    classes = rng.permutation(np.unique(y))
    kept = []
    for place, name in enumerate(classes):
        rows = rng.permutation(np.flatnonzero(y == name))
        kept.append(rows[: max(4, int(len(rows) * 0.1 ** (place / (len(classes) - 1))))])
    return np.sort(np.concatenate(kept))


if __name__ == "__main__":
    main()
