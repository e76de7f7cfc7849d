"""Both checks of two collections at once, with the names of their samples: what `uniot adapt` reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uniot.data.text import as_utf8
from uniot.data_quality.near_duplicates import NearDuplicates, near_duplicates
from uniot.data_quality.suspect_labels import CLEAR, suspect_labels
from uniot.data_quality.tables import (
    NEAR_DUPLICATES,
    SUSPECT_LABELS,
    NearDuplicate,
    SuspectLabel,
    write_near_duplicates,
    write_suspect_labels,
)
from uniot.errors import DataError
from uniot.words import counted


@dataclass(frozen=True)
class LabelledSamples:
    """Samples of a collection as they are checked.

    Attributes:
        embeddings: (n, ...), flattened here.
        names: what they are called.
        labels: theirs; of the target, what the run answers.
        of_target: for the source: whether a sample is one of the target's that somebody labelled, (n,); none is if
            None.
    """

    embeddings: np.ndarray
    names: Sequence[str]
    labels: np.ndarray
    of_target: np.ndarray | None = None


@dataclass(frozen=True)
class CheckedCollections:
    """Labels that look wrong, and pairs that are nearly the same, each list sorted.

    Attributes:
        suspects: source labels that are more likely wrong than right.
        pairs: near-duplicates.
        problem: why nothing could be checked; empty otherwise.
    """

    suspects: list[SuspectLabel]
    pairs: list[NearDuplicate]
    problem: str = ""

    def write(self, folder: Path) -> None:
        """Write both tables to a run folder."""
        write_suspect_labels(folder / SUSPECT_LABELS, self.suspects)
        write_near_duplicates(folder / NEAR_DUPLICATES, self.pairs)

    def lines(self, folder: Path) -> list[str]:
        """Return what there is to report, a sentence per line."""
        if self.problem:
            return [f"Labels and duplicates were not checked: {self.problem}"]
        lines = []
        n_clear = sum(one.clear for one in self.suspects)
        if n_clear:
            labels = counted(n_clear, "source label looks", "source labels look")
            lines.append(f"{labels} wrong: see {folder / SUSPECT_LABELS}")
        if self.pairs:
            pairs = counted(len(self.pairs), "pair of samples is", "pairs of samples are")
            lines.append(f"{pairs} nearly the same{self._where()}: see {folder / NEAR_DUPLICATES}")
        return lines

    def _where(self) -> str:
        of = {where: [pair for pair in self.pairs if pair.where == where] for where in ("source", "target", "both")}
        parts = []
        if of["source"]:
            differ = sum(pair.first_label != pair.second_label for pair in of["source"])
            parts.append(f"{len(of['source'])} in the source" + (f", {differ} with two labels" if differ else ""))
        if of["target"]:
            parts.append(f"{len(of['target'])} in the target")
        if of["both"]:
            agree = sum(pair.first_label == pair.second_label for pair in of["both"])
            parts.append(f"{len(of['both'])} between the two, {agree} of which got the label of the source sample")
        return f" ({'; '.join(parts)})"


def check_collections(source: LabelledSamples, target: LabelledSamples) -> CheckedCollections:
    """Look for wrong labels in the source and for near-duplicates in both collections."""
    rows = [one.embeddings.reshape(len(one.embeddings), -1) for one in (source, target)]
    try:
        labels, pairs = suspect_labels(rows[0], source.labels), near_duplicates(*rows)
    except DataError as error:
        # A run that has been made is worth more than its checks.
        return CheckedCollections([], [], str(error))
    suspects = [
        SuspectLabel(
            source.names[row],
            row,
            str(labels.given[row]),
            str(labels.suggested[row]),
            float(labels.score[row]),
            bool(labels.score[row] >= CLEAR),
        )
        for row in labels.rows.tolist()
    ]
    return CheckedCollections(suspects, _named(_unintended(pairs, source, target), source, target))


def _unintended(pairs: NearDuplicates, source: LabelledSamples, target: LabelledSamples) -> NearDuplicates:
    """Leave out a target sample that somebody labelled: it is in both collections on purpose."""
    if source.of_target is None:
        return pairs

    def on_purpose(where: str, first: int, second: int) -> bool:
        if where != "both" or source.of_target is None or not source.of_target[first]:
            return False
        return as_utf8(source.names[first]) == as_utf8(target.names[second - pairs.n_source])

    kept = [not on_purpose(*pair) for pair in zip(pairs.where, pairs.first, pairs.second, strict=True)]
    return pairs.only(np.array(kept, dtype=bool))


def _named(pairs: NearDuplicates, source: LabelledSamples, target: LabelledSamples) -> list[NearDuplicate]:
    def sample(row: int) -> tuple[str, int, str]:
        collection, place = (source, row) if row < pairs.n_source else (target, row - pairs.n_source)
        return collection.names[place], place, str(collection.labels[place])

    values = zip(
        pairs.where.tolist(), pairs.first.tolist(), pairs.second.tolist(), pairs.similarity.tolist(), strict=True
    )
    return [
        NearDuplicate(where, *sample(first), *sample(second), similarity=similarity)
        for where, first, second, similarity in values
    ]
