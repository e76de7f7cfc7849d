"""Methods on class splits drawn at random, listed in random_splits.toml: what the first defaults were chosen on.

    python benchmarks/random_splits.py                                     # the splits that defaults were chosen on
    python benchmarks/random_splits.py --purpose check                     # those that nothing was chosen on
    python benchmarks/random_splits.py --methods uniot unincm     # UniOT as published takes hours
    python benchmarks/random_splits.py --count        # instead: how far off the number of private classes is

H, or the accuracy where nothing is private; the mean over splits and tasks. Digits are their pixels, 1500 of the target
at most, in both directions.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measure import arguments
from office31_tasks import features_file

from uniot import UniDAClassifier
from uniot.datasets.digits import load_digit_archives
from uniot.methods import hyperparameters
from uniot.metrics.accuracy import h_score

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPLITS = Path(__file__).with_suffix(".toml")
SETTINGS = ("open-partial", "open", "partial", "closed")
_MOST_DIGITS = 1500
Domain = tuple[np.ndarray, np.ndarray]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--purpose", choices=("choice", "check"), default="choice")
    parser.add_argument("--sets", nargs="+", choices=("office31", "digits"), default=("office31", "digits"))
    parser.add_argument("--methods", nargs="+", default=("unincm",))
    parser.add_argument("--count", action="store_true", help="how far the number of private classes is off, instead")
    parser.add_argument("--steps", type=int, help="training steps of a method that trains")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=SETTINGS)
    parser.add_argument("--option", nargs="*", default=(), metavar="NAME=VALUE", help="of the method alone")
    options = parser.parse_args()
    given = dict(_option(text) for text in options.option)
    for name in options.sets:
        domains = office31() if name == "office31" else digits()
        splits = [split for split in read_splits() if (split["set"], split["purpose"]) == (name, options.purpose)]
        splits = [split for split in splits if split["setting"] in options.settings]
        if options.quick:
            splits = splits[:4]
        for method in options.methods:
            scores: dict[tuple[str, str], list[float]] = defaultdict(list)
            for split in splits:
                for task, truth, model in fitted(domains, split, method, given, options):
                    has_private = bool(split["target_private"])
                    off = abs(model.n_private_classes_ - len(split["target_private"]))
                    score = off if options.count else 100 * _score(truth, model, has_private=has_private)
                    scores[split["setting"], task].append(score)
            print_scores(f"{name}, {method}, {options.purpose}{', off by' * options.count}", scores)


def read_splits() -> list[dict[str, Any]]:
    splits: list[dict[str, Any]] = tomllib.loads(SPLITS.read_text(encoding="utf-8"))["split"]
    return splits


def office31() -> dict[str, Domain]:
    if not features_file().is_file():
        sys.exit(f"{features_file()} is absent: set UNIOT_DATA, or leave Office-31 out with --sets digits.")
    with np.load(features_file()) as file:
        names = file["classes"].astype(str)
        return {d[0].upper(): (file[f"{d}_x"], names[file[f"{d}_y"]]) for d in ("amazon", "dslr", "webcam")}


def digits() -> dict[str, Domain]:
    small, small_labels, large, large_labels = load_digit_archives()
    return {
        "S": (small.reshape(len(small), -1), small_labels.astype(str)),
        "M": (large.reshape(len(large), -1), large_labels.astype(str)),
    }


def fitted(
    domains: Mapping[str, Domain],
    split: Mapping[str, Any],
    method: str,
    of_method: Mapping[str, Any],
    options: Namespace,
) -> Iterator[tuple[str, np.ndarray, UniDAClassifier]]:
    """Each task with the truth and a model that was fitted."""
    of_source, of_target = ([*split["common"], *split[f"{side}_private"]] for side in ("source", "target"))
    for one in domains:
        for other in domains:
            if one == other:
                continue
            (x_source, y_source), (x_target, y_target) = (
                _only(domains[one], of_source),
                _only(domains[other], of_target),
            )
            if len(domains) == 2:
                drawn = np.random.default_rng(0).permutation(len(x_target))[:_MOST_DIGITS]
                x_target, y_target = x_target[drawn], y_target[drawn]
            model = UniDAClassifier(
                method=method,
                **of_method,
                **({"steps": options.steps} if "steps" in hyperparameters(method) else {}),
                n_private_classes=None if options.count else 1,
                random_state=0,
            )
            yield f"{one}2{other}", y_target, model.fit(x_source, y_source, x_target)


def _only(domain: Domain, classes: list[str]) -> Domain:
    kept = np.isin(domain[1], classes)
    return domain[0][kept], domain[1][kept]


def _score(truth: np.ndarray, model: UniDAClassifier, *, has_private: bool) -> float:
    if has_private:
        return float(h_score(truth, model.labels_, source_classes=model.classes_))
    return float(np.mean([(model.labels_[truth == name] == name).mean() for name in np.unique(truth)]))


def _option(text: str) -> tuple[str, bool | int | float]:
    name, _, value = text.partition("=")
    return name, tomllib.loads(f"value = {value}")["value"]


def print_scores(title: str, scores: Mapping[tuple[str, str], list[float]]) -> None:
    tasks = sorted({task for _, task in scores})
    print(f"{title}\n{'':14}{''.join(f'{task:>8}' for task in tasks)}{'mean':>8}")
    for setting in dict.fromkeys(setting for setting, _ in scores):
        means = [float(np.mean(scores[setting, task])) for task in tasks]
        print(f"{setting:14}{''.join(f'{mean:8.1f}' for mean in [*means, float(np.mean(means))])}", flush=True)


if __name__ == "__main__":
    main()
