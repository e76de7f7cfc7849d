"""UniNCM with two to four source classes of which one or none is common: what is silently wrong, and what answers do.

    python benchmarks/few_classes.py

Gaussian classes of 100 samples each, drawn with eight seeds. Each domain is centred on its own mean, which makes a
private class the mirror image of the common one, so that no score can tell both apart. A line has the means over the
seeds: accuracy over all target samples (private ones are right if they are called unknown), the run's own estimate of
it, the width of the interval of the share of unknown samples, how many draws are silently wrong (below 0.7 without a
warning that doubts the labels, or with an interval that misses the true share), and the accuracy after some answers, on
the samples that were not asked about; last the worst draw after five answers. Answers are the true labels, asked for by
`model.ask`. `--quick` draws each case twice.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from measure import arguments
from odd_targets import DOUBTED, LOW_ACCURACY, Pair, short, toy

from uniot import UniNCM
from uniot.errors import UniotWarning

SEEDS = 8
# Source, common and private classes.
CASES = ((2, 1, 1), (3, 1, 1), (2, 1, 2), (2, 0, 2), (4, 1, 1))
COUNTS = (3, 5, 10)


@dataclass(frozen=True)
class Outcome:
    """A draw of a case.

    Attributes:
        accuracy: without answers.
        estimate: of it by the run.
        interval: of the share of unknown samples.
        is_silent: whether the run is wrong and does not say so.
        answered: accuracy by the number of answers, in the order of `COUNTS`.
    """

    accuracy: float
    estimate: float
    interval: tuple[float, float]
    is_silent: bool
    answered: tuple[float, ...]


def main() -> None:
    given = arguments(__doc__).parse_args()
    after = " | ".join(f"after {count} answers" for count in COUNTS)
    head = f"| source / common / private | accuracy | estimate | interval | silently wrong | {after} | worst after 5 |"
    print(f"{head}\n|{'---|' * (head.count('|') - 1)}", flush=True)
    for n_source, n_common, n_private in CASES:
        seeds = range(2 if given.quick else SEEDS)
        sizes = n_common, n_source - n_common, n_private
        found = [outcome(toy(seed, *sizes, samples_per_class=100), seed) for seed in seeds]
        accuracy = np.mean([one.accuracy for one in found])
        estimate = np.mean([one.estimate for one in found])
        width = np.mean([one.interval[1] - one.interval[0] for one in found])
        silent = sum(one.is_silent for one in found)
        answered = np.array([one.answered for one in found])
        cells = [f"{accuracy:.2f}", f"{estimate:.2f}", f"{width:.2f}", f"{silent} of {len(found)}"]
        cells += [f"{value:.2f}" for value in (*answered.mean(axis=0), answered[:, COUNTS.index(5)].min())]
        print(f"| {n_source} / {n_common} / {n_private} | {' | '.join(cells)} |", flush=True)


def outcome(pair: Pair, seed: int) -> Outcome:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = UniNCM(random_state=seed).fit(pair.x, pair.y, pair.target)
    words = [short(str(one.message)) for one in told if issubclass(one.category, UniotWarning)]
    right = np.where(np.isin(pair.truth, pair.y), pair.truth, "unknown")
    accuracy, interval = float((model.labels_ == right).mean()), model.private_share_interval_
    is_covered = interval[0] - 0.02 <= float((right == "unknown").mean()) <= interval[1] + 0.02
    is_doubted = bool(set(words) & set(DOUBTED.values())) and is_covered
    estimate, is_asked = float(model.reliability_.accuracy), np.zeros(len(right), dtype=bool)
    answered = []
    for count in range(1, COUNTS[-1] + 1):
        row = model.ask()
        model.tell(row, right[row])
        is_asked[row] = True
        if count in COUNTS:
            answered.append(float((model.labels_ == right)[~is_asked].mean()))
    return Outcome(accuracy, estimate, interval, accuracy < LOW_ACCURACY and not is_doubted, tuple(answered))


if __name__ == "__main__":
    main()
