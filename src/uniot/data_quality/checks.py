"""Check the source and the target, and write the tables of the results to a run folder."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uniot.data_quality.near_duplicates import NearDuplicates, near_duplicates
from uniot.data_quality.suspect_labels import CLEAR, SuspectLabels, suspect_labels
from uniot.errors import DataError, RunFolderError
from uniot.io.csv_tables import CsvError, CsvReader, write_table
from uniot.io.files import MOST_TEXT_BYTES, read_bounded
from uniot.io.text import as_utf8, counted, quoted

MOST_COMPARED = 1_000_000
"""Samples of both collections among which near-duplicates are searched; the search takes more than linear time."""
_WHOLE, _FRACTION = re.compile(r"\d{1,15}", re.ASCII), re.compile(r"-?\d\.\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class SuspectLabel:
    """Row of suspect_labels.csv: a source sample, its row in the source, its label and the suggested one."""

    sample: str
    row: int
    label: str
    suggested: str
    score: float
    clear: bool


@dataclass(frozen=True)
class NearDuplicate:
    """Row of near_duplicates.csv.

    Attributes:
        where: `source`, `target`, or `both` for a source sample and a target sample.
        first: name of the first sample.
        first_row: its row in its own collection.
        first_label: its label; for a target sample, the prediction.
        second: name of the second sample; the target sample if the pair is in both.
        second_row: its row in its own collection.
        second_label: its label; for a target sample, the prediction.
        similarity: cosine similarity of the embeddings.
    """

    where: str
    first: str
    first_row: int
    first_label: str
    second: str
    second_row: int
    second_label: str
    similarity: float


def write_suspect_labels(path: Path, lines: Sequence[SuspectLabel]) -> None:
    """Write one row per label; remove the file if there is none."""
    columns = ("sample", "row", "label", "suggested", "score", "clear")
    rows = (
        (one.sample, one.row, one.label, one.suggested, f"{one.score:.4f}", str(one.clear).lower()) for one in lines
    )
    write_table(path, columns, [[as_utf8(str(cell)) for cell in row] for row in rows])


def read_suspect_labels(path: Path) -> list[SuspectLabel]:
    """Return the labels of a file of `write_suspect_labels`; none if there is no file."""
    rows = _read(path, 6, whole=(1,), fractions=(4,))
    return [
        SuspectLabel(sample, int(row), label, suggested, float(score), clear == "true")
        for sample, row, label, suggested, score, clear in rows
    ]


def write_near_duplicates(path: Path, pairs: Sequence[NearDuplicate]) -> None:
    """Write one row per pair; remove the file if there is none."""
    columns = ("where", "first", "first_row", "first_label", "second", "second_row", "second_label", "similarity")
    rows = (
        (
            pair.where,
            pair.first,
            pair.first_row,
            pair.first_label,
            pair.second,
            pair.second_row,
            pair.second_label,
            f"{pair.similarity:.6f}",
        )
        for pair in pairs
    )
    write_table(path, columns, [[as_utf8(str(cell)) for cell in row] for row in rows])


def read_near_duplicates(path: Path) -> list[NearDuplicate]:
    """Return the pairs of a file of `write_near_duplicates`; none if there is no file."""
    rows = _read(path, 8, whole=(2, 5), fractions=(7,))
    return [
        NearDuplicate(where, first, int(first_row), label, second, int(second_row), other_label, float(similarity))
        for where, first, first_row, label, second, second_row, other_label, similarity in rows
    ]


def _read(path: Path, n_columns: int, whole: Iterable[int], fractions: Iterable[int]) -> list[list[str]]:
    """Return the rows of a table without its header after checking the columns with whole and decimal numbers."""
    forms = dict.fromkeys(whole, _WHOLE) | dict.fromkeys(fractions, _FRACTION)
    if not path.exists():
        return []
    try:
        text = read_bounded(path, MOST_TEXT_BYTES).decode("utf-8-sig")
        rows = list(CsvReader(io.StringIO(text, newline="")))[1:]
        for row in rows:
            if len(row) != n_columns:
                raise ValueError(f"a line has {len(row)} cells, not {n_columns}")
            for place, form in forms.items():
                if not form.fullmatch(row[place]):
                    raise ValueError(f"{row[place][:20]!r} is not a number")
    except (OSError, ValueError, CsvError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Remove it, or make the run again.") from None
    return rows


@dataclass(frozen=True)
class LabelledSamples:
    """The samples of a collection to check.

    Attributes:
        embeddings: (n_samples, ...), flattened here.
        names: names of the samples.
        labels: labels of the source samples, or predictions for the target samples, (n_samples,).
        of_target: whether each source sample is a labelled target sample, (n_samples,); None if there are none.
    """

    embeddings: np.ndarray
    names: Sequence[str]
    labels: np.ndarray
    of_target: np.ndarray | None = None


@dataclass(frozen=True)
class CheckedCollections:
    """The results of the checks.

    Attributes:
        suspects: source labels that are more likely wrong than right, the most likely first.
        pairs: near-duplicates, the most similar first.
        problem: reason why the checks failed; empty otherwise.
        too_many: whether there were too many samples to compare with each other.
    """

    suspects: list[SuspectLabel]
    pairs: list[NearDuplicate]
    problem: str = ""
    too_many: bool = False

    def write(self, suspect_labels: Path, near_duplicates: Path) -> None:
        """Write both tables, each to its file."""
        write_suspect_labels(suspect_labels, self.suspects)
        write_near_duplicates(near_duplicates, self.pairs)

    def lines(self, suspect_labels: Path, near_duplicates: Path) -> list[str]:
        """Return what there is to report, a sentence per line that names the file of the table."""
        if self.problem:
            return [f"Labels and duplicates were not checked: {self.problem}"]
        lines = []
        n_clear = sum(one.clear for one in self.suspects)
        if n_clear:
            labels = counted(n_clear, "source label looks", "source labels look")
            lines.append(f"{labels} wrong, marked clear in {quoted(suspect_labels)}")
        if self.too_many:
            lines.append(f"Near-duplicates were not searched: that is done among up to {MOST_COMPARED} samples.")
        if self.pairs:
            pairs = counted(len(self.pairs), "pair of samples is", "pairs of samples are")
            lines.append(f"{pairs} nearly the same{self._where()}: see {quoted(near_duplicates)}")
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
    """Return suspect labels of the source and near-duplicates of both collections; the source may be empty."""
    rows = [one.embeddings.reshape(len(one.embeddings), -1) if one.names else None for one in (source, target)]
    try:
        no_labels = SuspectLabels(np.zeros(0, np.float32), source.labels, source.labels)
        labels = no_labels if rows[0] is None else suspect_labels(rows[0], source.labels)
        too_many = len(source.names) + len(target.names) > MOST_COMPARED
        pairs = NearDuplicates.none(len(source.names)) if too_many else near_duplicates(*rows)
    except DataError as error:
        # A failed check must not discard a finished run.
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
    pairs = _unintended(pairs, source, target)
    return CheckedCollections(suspects, _named(pairs, source, target), too_many=too_many)


def _unintended(pairs: NearDuplicates, source: LabelledSamples, target: LabelledSamples) -> NearDuplicates:
    """Remove pairs of a labelled target sample with itself, which is in both collections on purpose."""
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
