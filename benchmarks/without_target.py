"""Whether a run without its target answers as the full run does: the share of equal labels, and both scores.

    python benchmarks/without_target.py

Pairs of domains, each open-partial and closed with classes drawn at random, targets of several sizes. "Fitted" are the
target's own samples, "held-out" others of the same domain and classes, at most 600. Of each data set and size the mean
over pairs and splits. Office-31 and PACS are left out if their features are not found under UNIOT_DATA.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from measure import Report, arguments
from office31_tasks import features_file

from uniot import UniNCM
from uniot.datasets.digits import load_digit_archives
from uniot.neighbours import fit_landmarks

SIZES = (100, 400, 3000)
PAIRS = {
    "digits": (("small", "large"), ("large", "small")),
    "office31": (("amazon", "webcam"), ("webcam", "amazon"), ("dslr", "amazon"), ("webcam", "dslr")),
    "pacs": (("photo", "art_painting"), ("photo", "sketch"), ("sketch", "cartoon"), ("cartoon", "photo")),
}
_FILES = {"pacs": "pacs/efficientnet_lite0_features.npz"}
_MOST_SOURCE, _MOST_HELD_OUT = 3000, 600
# A size that leaves fewer samples than this above the one before says nothing new.
_LEAST_GROWTH = 200
_MUST_AGREE = 95
Domain = tuple[np.ndarray, np.ndarray]


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("without_target", options.quick)
    sizes = SIZES[:1] if options.quick else SIZES
    for name, pairs in PAIRS.items():
        domains = read_domains(name)
        if not domains:
            print(f"{name} is left out: its features are absent. Set UNIOT_DATA.")
            continue
        for size in sizes:
            found: dict[str, list[float]] = defaultdict(list)
            for (seed, pair), is_closed in product(enumerate(pairs[:1] if options.quick else pairs), (False, True)):
                for what, value in compared(domains, pair, seed=seed, is_closed=is_closed, size=size):
                    found[what].append(value)
            for what, values in found.items():
                mean = float(np.mean(values))
                told = f"{name}, {'up to ' * (size == SIZES[-1])}{size} samples: {what}"
                if what.startswith("equal labels"):
                    report.at_least(told, mean, _MUST_AGREE, "%", each=values)
                else:
                    report.tell(told, mean, "s" if "time" in what else "kB" if "size" in what else "%", each=values)
    report.finish(options.json)


def read_domains(name: str) -> dict[str, Domain]:
    """Embeddings and labels of each domain; none if the file is absent."""
    if name == "digits":
        small, small_labels, large, large_labels = load_digit_archives()
        return {
            "small": (small.reshape(len(small), -1), small_labels.astype(str)),
            "large": (large.reshape(len(large), -1), large_labels.astype(str)),
        }
    path: Path = features_file().parents[1] / _FILES[name] if name in _FILES else features_file()
    if not path.is_file():
        return {}
    with np.load(path) as file:
        names = [key.removesuffix("_x") for key in file if key.endswith("_x")]
        return {name: (file[f"{name}_x"].astype(np.float32), file[f"{name}_y"].astype(str)) for name in names}


def compared(
    domains: dict[str, Domain], pair: tuple[str, str], *, seed: int, is_closed: bool, size: int
) -> Iterator[tuple[str, float]]:
    """Figures of one task; none if the target has hardly more samples than the size before."""
    rng = np.random.default_rng(seed)
    (x_source, y_source), (x_target, y_target) = (domains[name] for name in pair)
    classes = rng.permutation(np.unique(y_source))
    third = 0 if is_closed else len(classes) // 3
    of_source = np.flatnonzero(np.isin(y_source, classes[: len(classes) - third]))
    of_source = rng.permutation(of_source)[:_MOST_SOURCE]
    of_target = rng.permutation(np.flatnonzero(np.isin(y_target, classes[third:])))
    held_out, rest = np.split(of_target, [min(_MOST_HELD_OUT, len(of_target) // 3)])
    smaller = max((other for other in SIZES if other < size), default=-_LEAST_GROWTH)
    if len(rest) < smaller + _LEAST_GROWTH:
        return
    fitted = rest[:size]
    full = UniNCM(n_private_classes=1, random_state=0).fit(x_source[of_source], y_source[of_source], x_target[fitted])
    without = copy.deepcopy(full)
    method = without.model_.method
    neighbours = method.fitted.get().neighbours
    method.forget_samples()
    for kind, rows in (("fitted", fitted), ("held-out", held_out)):
        labels = [model.predict(x_target[rows]) for model in (full, without)]
        features = [model.transform(x_target[rows]) for model in (full, without)]
        truth = np.where(np.isin(y_target[rows], full.classes_), y_target[rows], "unknown")
        yield f"equal labels, {kind}", 100 * float((labels[0] == labels[1]).mean())
        yield f"mean cosine of the features, {kind}", 100 * float((features[0] * features[1]).sum(axis=1).mean())
        for model, answers in zip(("full run", "run without its target"), labels, strict=True):
            yield f"right labels of the {model}, {kind}", 100 * float((answers == truth).mean())
    begin = perf_counter()
    fit_landmarks(neighbours.rows, neighbours.transform(neighbours.rows), torch.Generator())
    yield "time to fit the landmarks", perf_counter() - begin
    state = full.model_.method.state_dict()
    for what, part in (("target", "neighbours."), ("landmarks", "landmarks.")):
        yield f"size of the {what}", sum(value.nbytes for key, value in state.items() if part in key) / 1e3


if __name__ == "__main__":
    main()
