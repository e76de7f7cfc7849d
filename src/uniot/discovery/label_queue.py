"""Which samples to label first: the most uncertain and most representative, one per neighbourhood."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from uniot.discovery.label_spreading import Neighbourhoods

# Two sums of the same numbers in another order differ by less.
_ROUNDING = 1e-5


class Queued(NamedTuple):
    """A sample worth labelling.

    Attributes:
        row: of the target.
        settles: number of other samples whose label it is expected to settle.
    """

    row: int
    settles: float


def label_queue(
    neighbourhoods: Neighbourhoods,
    uncertain: np.ndarray,
    done: np.ndarray,
    count: int,
    skipped: np.ndarray | None = None,
) -> list[Queued]:
    """Return samples in the order in which labelling them settles most, the first first.

    Greedy facility location: a sample gains by as much as it is uncertain and not covered by a sample that is labelled
    or earlier in the queue. So the second of two similar samples comes late.

    Args:
        neighbourhoods: which samples are near each other.
        uncertain: how open the label of each sample in the graph is, from 0 to 1, (m,).
        done: indices into the graph of samples that a person labelled; they cover their neighbourhoods.
        count: length of the queue, at most.
        skipped: indices of samples that are not asked for, and cover nothing.

    References: Wei et al., Submodularity in Data Subset Selection and Active Learning, ICML 2015.
    """
    coverage = neighbourhoods.coverage
    covered = coverage[done].max(axis=0) if len(done) else np.zeros(len(coverage), dtype=coverage.dtype)
    barred = np.concatenate([done, np.zeros(0, dtype=np.int64) if skipped is None else skipped]).astype(np.int64)
    weights = uncertain.astype(coverage.dtype)
    gains = np.maximum(coverage - covered, 0) @ weights
    gains[barred] = -1
    queue: list[Queued] = []
    while len(queue) < count:
        best = int(gains.argmax())
        if gains[best] < 0:
            break
        # A gain only shrinks while the queue grows: the largest that is up to date is the largest of all.
        gain = float(np.maximum(coverage[best] - covered, 0) @ weights)
        if gain < gains[best] * (1 - _ROUNDING):
            gains[best] = gain
            continue
        own = float(weights[best] * (1 - covered[best]))
        queue.append(Queued(int(neighbourhoods.rows[best]), max(0.0, gain - own) * neighbourhoods.scale))
        covered = np.maximum(covered, coverage[best])
        gains[best] = -1
    return queue
