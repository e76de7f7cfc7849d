"""What labels do to the run that follows (`uniot adapt --continue`): Office-31 and PACS, random class splits.

    python benchmarks/continued_runs.py --csv continued-runs.csv
    python benchmarks/continued_runs.py --parts closed            # one part; --quick for one task per data set

corrections  the tasks of benchmarks/label_order.py: 20 labels in the order of the page's queue, then the next run.
             Accuracy over all target samples, on the page and after; "changed" counts labels by hand that the next run
             changed.
closed       PACS photo → sketch with all seven classes in both, the whole target: 40 labels from the queue, then the
             next run; and 20 answers in the order of `ask`, without another run and with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from label_order import _CLASSES, _MOST_SAMPLES, _PAIRS, _SEEDS, Labeller, Task, pacs
from measure import arguments
from random_splits import Domain, office31

from uniot import UniNCM
from uniot.config import Settings
from uniot.io.csv_tables import write_table
from uniot.labelling import Names, named_embeddings
from uniot.labelling.formats import decided
from uniot.labelling.state import AnnotationState
from uniot.labelling.target import Target
from uniot.training.domains import domains_from_arrays
from uniot.training.fit import FitContext, fit
from uniot.training.model import AdaptedModel

_LABELS, _LABELS_CLOSED, _ANSWERS = 20, 40, 20
_SETTINGS = Settings(method="unincm", seed=0)

Line = dict[str, str | int | float]


class Data(NamedTuple):
    """A labelled source, a target, and the truth about it."""

    x: np.ndarray
    y: np.ndarray
    target: np.ndarray
    truth: np.ndarray

    @property
    def names(self) -> list[str]:
        return [str(row) for row in range(len(self.target))]


def first_run(data: Data) -> AdaptedModel:
    return fit(domains_from_arrays(data.x, data.y, data.target, _SETTINGS), _SETTINGS)


def continued(data: Data, target: Target, state: AnnotationState) -> AdaptedModel:
    """The run that `uniot adapt --continue` makes from the labels of a page."""
    lines = list(decided(target, state))
    names = Names(
        [name for name, *_ in lines],
        np.array([label for _, label, *_ in lines]),
        np.array([decision for _, _, decision, _ in lines]),
    )
    x, y, kept_target, _ = named_embeddings(data.x, data.y, data.target, data.names, names)
    domains = domains_from_arrays(x, y, kept_target, _SETTINGS)
    return fit(domains, _SETTINGS, FitContext(answers=names.answers(data.names, domains.classes)))


def labels_of(model: AdaptedModel) -> np.ndarray:
    return model.labels(model.target).astype(str)


def labelled_in_queue(data: Data, model: AdaptedModel, n_labels: int) -> tuple[Task, Labeller, np.ndarray]:
    task = Task(Target.of(model, Path(), data.names, None), data.truth)
    person = Labeller(task)
    for _ in range(n_labels):
        person.label(person.propagation.next_to_label(1)[0].row)
    return task, person, np.flatnonzero(person.labels.by_hand)


def corrections(name: str, domains: dict[str, Domain], pair: str, seed: int) -> Line:
    data = drawn(domains, pair, seed, _CLASSES[name])
    model = first_run(data)
    task, person, rows = labelled_in_queue(data, model, _LABELS)
    page = person.accuracy()
    after = labels_of(continued(data, task.target, person.labels))
    return {
        "part": "corrections",
        "task": f"{name} {pair} {seed}",
        "first_run": float((labels_of(model) == data.truth).mean()),
        "page": page,
        "continued": float((after == data.truth).mean()),
        "changed": int((after[rows] != data.truth[rows]).sum()),
    }


def closed() -> Iterator[Line]:
    domains = pacs()
    data = Data(*domains["P"], *domains["S"])
    model = first_run(data)
    before = labels_of(model)
    task, person, rows = labelled_in_queue(data, model, _LABELS_CLOSED)
    page = person.accuracy()
    after = labels_of(continued(data, task.target, person.labels))
    told = UniNCM(random_state=0).fit(data.x, data.y, data.target)
    asked = Labeller(task)
    for _ in range(_ANSWERS):
        row = int(told.ask()[0])
        told.tell(row, data.truth[row])
        asked.label(row)
    following = labels_of(continued(data, task.target, asked.labels))
    for what, labels, changed in (
        ("first run", before, 0),
        (f"{_LABELS_CLOSED} labels, next run", after, int((after[rows] != data.truth[rows]).sum())),
        (f"{_ANSWERS} answers", told.labels_.astype(str), 0),
        (f"the same {_ANSWERS} as labels, next run", following, 0),
    ):
        yield {
            "part": "closed",
            "task": f"pacs P2S, {what}",
            "page": page,
            "accuracy": float((labels == data.truth).mean()),
            "unknown": int((labels == "unknown").sum()),
            "samples": len(labels),
            "changed": changed,
        }


def drawn(domains: dict[str, Domain], pair: str, seed: int, sizes: tuple[int, int, int]) -> Data:
    """A task with a random class split."""
    one, other = pair.split("2")
    random = np.random.default_rng(seed)
    classes = random.permutation(np.unique(domains[one][1]))
    common, of_source, of_target = np.split(classes[: sum(sizes)], np.cumsum(sizes)[:-1])
    (x, y), (target, truth) = domains[one], domains[other]
    source = np.isin(y, [*common, *of_source])
    rows = random.permutation(np.flatnonzero(np.isin(truth, [*common, *of_target])))
    fitted = np.sort(rows[:_MOST_SAMPLES])
    return Data(x[source], y[source], target[fitted], truth[fitted])


def lines(parts: list[str], seeds: tuple[int, ...], *, quick: bool) -> Iterator[Line]:
    if "closed" in parts:
        yield from closed()
    for name, pairs in _PAIRS.items():
        domains = office31() if name == "office31" else pacs()
        for pair in pairs[: 1 if quick else None]:
            for seed in seeds[: 1 if quick else None]:
                if "corrections" in parts:
                    yield corrections(name, domains, pair, seed)


def main() -> None:
    parser = arguments(__doc__)
    parts = ("corrections", "closed")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seeds", nargs="+", type=int, default=_SEEDS, help="0 and 1 chose the constants")
    parser.add_argument("--csv", type=Path, help="keep every line here")
    options = parser.parse_args()
    found: list[Line] = []
    for line in lines(options.parts, tuple(options.seeds), quick=options.quick):
        found.append({key: round(value, 4) if isinstance(value, float) else value for key, value in line.items()})
        print(found[-1], flush=True)
    if options.csv is not None:
        columns = list(dict.fromkeys(key for line in found for key in line))
        write_table(options.csv, columns, [[line.get(key, "") for key in columns] for line in found])
    for part in options.parts:
        some = [line for line in found if line["part"] == part]
        for key in dict.fromkeys(key for line in some for key in line):
            values = [line[key] for line in some if isinstance(line.get(key), float)]
            if values:
                print(f"{part}: {key}: mean {np.nanmean(values):.3f}, least {np.nanmin(values):.3f}")


if __name__ == "__main__":
    main()
