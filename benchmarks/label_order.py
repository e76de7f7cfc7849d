"""How many samples have to be labelled: in the order of the labelling page's queue, and in random order.

    python benchmarks/label_order.py --csv benchmarks/results/label-order.csv

Random class splits of Office-31 and PACS, open-partial. Somebody who knows the truth labels one sample after another;
after each, the labels spread by the same code as on the page. Accuracy is over all samples of the target: the right
class, or a group that is called like the private class; a group without a name is wrong. Labelling everything
gives 100 %. "Needed" is the number of labels at 90 %, "expected" what the queue said that its labels would settle, and
"settled" how many more samples were right in the end, apart from those labelled.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import Figure, arguments
from office31_tasks import features_file
from random_splits import Domain, office31

from uniot import UniNCM
from uniot.annotations.places import class_index, is_class
from uniot.io.csv_tables import write_table
from uniot.labelling.propagation import LabelPropagation
from uniot.labelling.samples import TargetSamples
from uniot.labelling.state import AnnotationState, Renaming, assign

# Seeds 0 and 1 chose the constants of the spreading and the queue.
_SEEDS = (2, 3, 4)
_PAIRS = {"office31": ("A2W", "A2D", "W2A", "D2A"), "pacs": ("P2A", "A2C", "P2S")}
# Common classes, classes private to the source, classes private to the target.
_CLASSES = {"office31": (10, 10, 11), "pacs": (3, 2, 2)}
_MOST_SAMPLES = 1000
_ENOUGH = 0.9
_AT = (10, 20, 40, 80)
_RANDOM_ORDERS = 2
_RANDOM_STEP = 5

Line = dict[str, str | int | float]


class Task(NamedTuple):
    """A target, and the truth about it."""

    target: TargetSamples
    truth: np.ndarray


class Course(NamedTuple):
    """Accuracy by number of labels, and what the queue had promised."""

    labels: list[int]
    accuracy: list[float]
    expected: float = 0.0

    def needed(self) -> float:
        """Return the number of labels at which the accuracy is enough."""
        for index, accuracy in enumerate(self.accuracy):
            if accuracy >= _ENOUGH:
                before = max(0, index - 1)
                return float(np.interp(_ENOUGH, self.accuracy[before : index + 1], self.labels[before : index + 1]))
        return float(self.labels[-1])

    def at(self, n_labels: int) -> float:
        """Return the accuracy after a number of labels."""
        return float(np.interp(n_labels, self.labels, self.accuracy))


class Labeller:
    """Somebody who knows the truth, at the labelling page."""

    def __init__(self, task: Task) -> None:
        self.task, self.labels = task, AnnotationState.initial(task.target.start)
        self.propagation = LabelPropagation(task.target, self.labels)

    def label(self, row: int, *, spread: bool = True) -> None:
        """Label a sample as the page does, and spread it."""
        name = str(self.task.truth[row])
        known = self.task.target.class_named(name)
        groups = {called: group for group, called in self.labels.names.items()}
        place = -2 - known if known is not None else groups.get(name, self.labels.next_group)
        names = [] if known is not None or name in groups else [Renaming(place, "", name)]
        after = self.labels.category.copy()
        after[row] = place
        if spread:
            after = self.propagation.propagate(row, place)
        by_hand = self.labels.by_hand.copy()
        by_hand[row] = True
        self.labels.apply(assign(self.labels, np.arange(len(after)), after, by_hand, names))

    def accuracy(self) -> float:
        """Return the fraction of samples that stand in the right class or the group called like theirs."""
        names, classes = self.labels.names, self.task.target.classes
        places, index = np.unique(self.labels.category, return_inverse=True)
        called = [classes[class_index(one)] if is_class(one) else names.get(one, "") for one in places.tolist()]
        return float((np.array(called)[index] == self.task.truth).mean())


def queued(task: Task) -> Course:
    """Label in the order of the queue, until it is enough."""
    person = Labeller(task)
    course = Course([0], [person.accuracy()])
    expected = 0.0
    while course.accuracy[-1] < _ENOUGH or course.labels[-1] < max(_AT):
        following = person.propagation.next_to_label(1)
        if not following:
            break
        if course.accuracy[-1] < _ENOUGH:
            expected += following[0].settles
        person.label(following[0].row)
        course.labels.append(len(course.labels))
        course.accuracy.append(person.accuracy())
    return course._replace(expected=expected)


def random(task: Task, seed: int) -> Course:
    """Label in random order; the accuracy is computed after every few labels."""
    person = Labeller(task)
    course = Course([0], [person.accuracy()])
    for count, row in enumerate(np.random.default_rng(seed).permutation(len(task.truth)).tolist(), start=1):
        person.label(row, spread=count % _RANDOM_STEP == 0)
        if count % _RANDOM_STEP == 0:
            course.labels.append(count)
            course.accuracy.append(person.accuracy())
            if course.accuracy[-1] >= _ENOUGH and count >= max(_AT):
                break
    return course


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--csv", type=Path, help="keep every line here")
    options = parser.parse_args()
    lines: list[Line] = []
    for name, pairs in _PAIRS.items():
        domains = office31() if name == "office31" else pacs()
        for pair in pairs[: 1 if options.quick else None]:
            for seed in _SEEDS[: 1 if options.quick else None]:
                task = fitted(domains, pair, seed, _CLASSES[name])
                ours = queued(task)
                others = [random(task, order) for order in range(_RANDOM_ORDERS)]
                lines.append(line_of(name, pair, seed, task, ours, others))
                print(lines[-1], flush=True)
    if options.csv is not None:
        write_table(options.csv, list(lines[0]), [list(line.values()) for line in lines])
    for figure in figures(lines):
        print(figure)


def line_of(name: str, pair: str, seed: int, task: Task, ours: Course, others: list[Course]) -> Line:
    needed, by_chance = ours.needed(), float(np.mean([other.needed() for other in others]))
    first = next(index for index, accuracy in enumerate([*ours.accuracy, 1.0]) if accuracy >= _ENOUGH)
    first = min(first, len(ours.accuracy) - 1)
    settled = len(task.truth) * (ours.accuracy[first] - ours.accuracy[0]) - first
    line: Line = {
        "set": name,
        "task": pair,
        "seed": seed,
        "samples": len(task.truth),
        "needed_queue": round(needed, 1),
        "needed_random": round(by_chance, 1),
        "ratio": round(needed / by_chance, 3),
        "expected": round(ours.expected),
        "settled": round(settled),
        "start": round(ours.accuracy[0], 4),
    }
    for count in _AT:
        line[f"queue_{count}"] = round(ours.at(count), 4)
        line[f"random_{count}"] = round(float(np.mean([other.at(count) for other in others])), 4)
    return line


def figures(lines: list[Line]) -> Iterator[Figure]:
    by_set: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_set[str(line["set"])].append(line)
    for name, some in [*by_set.items(), ("both", lines)]:
        ours, chance = (sum(float(line[f"needed_{order}"]) for line in some) for order in ("queue", "random"))
        yield Figure(
            f"{name}: labels for 90 %, queue / random, all tasks together",
            ours / chance,
            "",
            "≤ 0.5",
            ours <= chance / 2,
        )
        ratio = float(np.mean([float(line["ratio"]) for line in some]))
        yield Figure(f"{name}: the same, mean of the ratios of the tasks", ratio, "", "≤ 0.5", ratio <= 0.5)


def pacs() -> dict[str, Domain]:
    file = features_file().parent.parent / "pacs" / "efficientnet_lite0_features.npz"
    if not file.is_file():
        sys.exit(f"{file} is absent: set UNIOT_DATA.")
    with np.load(file) as arrays:
        names = ("photo", "art_painting", "cartoon", "sketch")
        return {name[0].upper(): (arrays[f"{name}_x"], arrays[f"{name}_y"].astype(str)) for name in names}


def fitted(domains: dict[str, Domain], pair: str, seed: int, sizes: tuple[int, int, int]) -> Task:
    """A task with a random class split, and the run's answers for its target."""
    one, other = pair.split("2")
    drawn = np.random.default_rng(seed)
    classes = drawn.permutation(np.unique(domains[one][1]))
    common, of_source, of_target = np.split(classes[: sum(sizes)], np.cumsum(sizes)[:-1])
    (x, y), (target, truth) = domains[one], domains[other]
    source = np.isin(y, [*common, *of_source])
    rows = np.sort(drawn.permutation(np.flatnonzero(np.isin(truth, [*common, *of_target])))[:_MOST_SAMPLES])
    model = UniNCM(random_state=0).fit(x[source], y[source], target[rows]).model_
    return Task(TargetSamples.of(model, [str(row) for row in rows.tolist()]), truth[rows])


if __name__ == "__main__":
    main()
