"""Corrections of source labels by people: a label is confirmed, changed, or its sample dropped."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from uniot.errors import DataError
from uniot.io.csv_tables import CsvError, CsvReader
from uniot.io.files import open_regular
from uniot.io.text import as_utf8, counted, plural
from uniot.labelling.names import clean_name
from uniot.runs.files import SOURCE_LABEL_COLUMNS as COLUMNS

SourceDecision = Literal["right", "changed", "dropped"]
_DECISIONS = get_args(SourceDecision)
MAX_LINES = 1_000_000


@dataclass(frozen=True)
class SourceLabels:
    """Corrections of source labels, by the name of the sample.

    Attributes:
        said: label and decision of each sample; the label of a dropped one is empty.
    """

    said: dict[str, tuple[str, SourceDecision]]

    def __len__(self) -> int:
        return len(self.said)

    @classmethod
    def read(cls, path: Path) -> SourceLabels:
        """Read a table with path and label, and perhaps decision; an empty label drops the sample.

        Raises:
            DataError: the file is missing or no such table, or a line contradicts itself or another line.
        """
        try:
            with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
                return cls(dict(_lines(path, file)))
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}). Give a .csv with path and label.") from None
        except (UnicodeDecodeError, CsvError) as error:
            raise DataError(f"{path} is no table of labels ({error}). Give a .csv in UTF-8.") from None

    @classmethod
    def of_run(cls, path: Path) -> SourceLabels:
        """Read what people said about a run; nothing if there is no file."""
        return cls.read(path) if path.is_file() else cls({})

    def followed_by(self, later: SourceLabels) -> SourceLabels:
        """Return these together with later ones, which replace what was said of the same sample."""
        return SourceLabels(self.said | later.said)

    @property
    def sentence(self) -> str:
        """Return how many labels of a source people changed or dropped; empty if none."""
        of = {name: sum(decision == name for _, decision in self.said.values()) for name in _DECISIONS}
        parts = []
        if of["changed"]:
            parts.append(f"{counted(of['changed'], 'source label')} {plural(of['changed'], 'is', 'are')} corrected")
        if of["dropped"]:
            parts.append(f"{counted(of['dropped'], 'source sample')} {plural(of['dropped'], 'is', 'are')} left out")
        return f"{' and '.join(parts)}." if parts else ""

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Yield path, label and decision of each sample."""
        for name, (label, decision) in self.said.items():
            yield name, label, decision

    def apply(self, names: Sequence[str], labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Apply what was said to the labels of a source.

        Args:
            names: names of the source samples, (n_source,).
            labels: their labels, (n_source,).

        Returns:
            The labels, (n_source,), and which samples are kept, (n_source,), bool.

        Raises:
            DataError: a sample is not in the source, or its name is there twice.
        """
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(as_utf8(name), []).append(row)
        missing = [name for name in self.said if name not in rows]
        if missing:
            raise DataError(
                f"{len(missing)} of {counted(len(self), 'source sample')} whose label was corrected are not in the "
                f"source, for example {missing[0]!r}. Use the names of suspect_labels.csv, and the source of the run."
            )
        twice = [name for name in self.said if len(rows[name]) > 1]
        if twice:
            raise DataError(
                f"several source samples are named {twice[0]!r}, so a correction by name is ambiguous. "
                "Give each sample a name of its own."
            )
        corrected, kept = np.asarray(labels).astype(str).astype(object), np.ones(len(names), dtype=bool)
        for name, (label, decision) in self.said.items():
            (row,) = rows[name]
            if decision == "changed":
                corrected[row] = label
            elif decision == "dropped":
                kept[row] = False
        return corrected.astype(str), kept


def _lines(path: Path, file: Iterable[str]) -> Iterator[tuple[str, tuple[str, SourceDecision]]]:
    lines = CsvReader(file)
    header = next(lines, [])
    names = "path" if "path" in header else "sample"
    if names not in header or "label" not in header:
        raise DataError(f"{path} needs the columns path (or sample) and label; without a label, a sample is dropped.")
    columns = [header.index(name) for name in (names, "label", COLUMNS[2]) if name in header]
    seen: set[str] = set()
    for line in filter(None, lines):
        where = f"{path}, line {lines.line_num}"
        if len(line) < len(header) or len(seen) >= MAX_LINES:
            raise DataError(f"{where}, is cut off, or one of too many. Write the table again.")
        name, label, decision = (*(line[column] for column in columns), "")[:3]
        if name in seen:
            raise DataError(f"{where}, contains {name!r} a second time. Keep one line per sample.")
        seen.add(name)
        try:
            yield name, checked(label, decision)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None


def checked(label: str, decision: str = "") -> tuple[str, SourceDecision]:
    """Return a label in its stored form with its decision; without one, an empty label drops the sample.

    Raises:
        DataError: there is no such decision, the label contradicts it, or it cannot be a name.
    """
    label = clean_name(label)
    decision = decision or ("changed" if label else "dropped")
    if decision not in _DECISIONS:
        raise DataError(f"the decision is {decision!r}. Use one of {', '.join(_DECISIONS)}.")
    if (decision == "dropped") == bool(label):
        raise DataError(f"the decision is {decision} and the label {label!r}. A dropped sample alone has no label.")
    found: SourceDecision = "right" if decision == "right" else "changed" if decision == "changed" else "dropped"
    return label, found
