"""Labels that people gave to samples: names in their stored form, and labels.csv."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from uniot.errors import DataError
from uniot.io.csv_tables import CsvError, CsvReader, write_table
from uniot.io.files import open_regular
from uniot.io.text import as_utf8
from uniot.rejection.answers import UNKNOWN, Answers
from uniot.runs.files import LABEL_COLUMNS as COLUMNS

if TYPE_CHECKING:
    pass


MAX_NAME_LENGTH = 200
Decision = Literal["named", "class", "inferred", "unknown", "discarded"]
# Sample, label, decision, and number of its group or None.
Line = tuple[str, str, Decision, int | None]
_DECISIONS = get_args(Decision)
# Unicode categories that cannot be seen in a name: control characters, surrogates, line and paragraph separators.
_FORBIDDEN = {"Cc", "Cs", "Zl", "Zp"}
# Bidirectional controls change the direction of the text that follows the name.
_BIDIRECTIONAL = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Names:
    """The labels that people gave to samples of a target, and those that follow from them.

    Attributes:
        names: unique names of the samples, as in predictions.csv, (n_samples,).
        labels: the new class (`named`), the source class (`class`) or either (`inferred`); empty if unknown or
            discarded, (n_samples,).
        decisions: `named`, `class`, `inferred`, `unknown` or `discarded`, (n_samples,).
    """

    names: list[str]
    labels: np.ndarray
    decisions: np.ndarray

    @property
    def new_classes(self) -> list[str]:
        """Return the names of the new classes in alphabetical order."""
        return sorted(set(self.labels[self.decisions == "named"].tolist()))

    def followed_by(self, later: Names) -> Names:
        """Return these labels together with later ones, which replace earlier labels of the same sample.

        What follows from labels of other samples does not replace what a person decided, and a new class that is
        confirmed later stays new.
        """
        decided: dict[str, tuple[str, str]] = {}
        for names in (self, later):
            for name, label, decision in zip(names.names, names.labels.tolist(), names.decisions.tolist(), strict=True):
                label_before, before = decided.get(name, ("", "inferred"))
                is_confirmed = label != "" and label == label_before
                if before == "inferred" or not (decision == "inferred" or is_confirmed):
                    decided[name] = label, decision
        return _as_names(decided)

    @property
    def has_label(self) -> np.ndarray:
        """Return whether each sample has a label, (n_samples,); unknown and discarded ones have none."""
        return np.asarray(self.labels != "")

    def answers(self, samples: Sequence[str], classes: np.ndarray) -> Answers:
        """Return the labels as answers about the target of the next run.

        Args:
            samples: names of the target samples, (n_target,); labels of others are left out.
            classes: classes of the next run, text, (n_classes,).
        """
        row_of = {as_utf8(sample): row for row, sample in enumerate(samples)}
        index_of = {label: index for index, label in enumerate(classes.tolist())}
        found = [
            (row_of[name], index_of[label] if label else UNKNOWN, decision == "inferred")
            for name, label, decision in zip(self.names, self.labels.tolist(), self.decisions.tolist(), strict=True)
            if decision != "discarded" and name in row_of
        ]
        rows, indices, inferred = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return Answers(rows, indices, inferred.astype(bool))

    def lines(self) -> Iterator[Line]:
        """Yield the lines that `write_names` takes."""
        for name, label, decision in zip(self.names, self.labels.tolist(), self.decisions.tolist(), strict=True):
            yield name, label, decision, None


def clean_name(text: str) -> str:
    """Return a name in its stored form: composed (NFC) and stripped; empty if the text is blank.

    Raises:
        DataError: the name is too long, has no visible character, or contains control characters.
    """
    if any(unicodedata.category(letter) in _FORBIDDEN or letter in _BIDIRECTIONAL for letter in text.strip()):
        raise DataError("a name cannot contain line breaks or other control characters. Type it on one line.")
    name = unicodedata.normalize("NFC", text.strip())
    if len(name) > MAX_NAME_LENGTH:
        raise DataError(f"the name has {len(name)} characters; the limit is {MAX_NAME_LENGTH}. Choose a shorter one.")
    if name and all(unicodedata.category(letter)[0] in "CZ" for letter in name):
        raise DataError("the name has no visible character. Type at least one letter or digit.")
    return name


def write_names(path: Path, lines: Iterable[Line]) -> None:
    """Write labels.csv atomically: path, label, decision, and the number of the group or nothing."""
    write_table(path, COLUMNS, lines, keep_empty=True)


def read_names(path: Path) -> Names:
    """Read a labels.csv, or a table made by hand with the columns path and label; without decision, all are `named`.

    Returns:
        The labels, one per line.

    Raises:
        DataError: the file is missing or no such table, or a line contradicts itself or another line.
    """
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            return _as_names(dict(_read_lines(path, file)))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}). Name the groups with `uniot label` first."
        ) from None
    except (UnicodeDecodeError, CsvError) as error:
        raise DataError(f"{path} is not a table of labels ({error}). Export it again with `uniot label`.") from None


def _as_names(decided: Mapping[str, tuple[str, str]]) -> Names:
    labels, decisions = zip(*decided.values(), strict=True) if decided else ((), ())
    return Names(list(decided), np.array(labels, dtype=str), np.array(decisions, dtype=str))


def _read_lines(path: Path, file: Iterable[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    lines = CsvReader(file)
    header = next(lines, [])
    missing = [name for name in COLUMNS[:2] if name not in header]
    if missing:
        raise DataError(
            f"{path} has no column {missing[0]}. A table of labels has the columns path and label, and may have "
            "decision; `uniot label` exports one."
        )
    columns = [header.index(name) for name in COLUMNS[:3] if name in header]
    seen: set[str] = set()
    for line in filter(None, lines):
        where = f"{path}, line {lines.line_num}"
        if len(line) < len(header):
            raise DataError(f"{where}, is cut off. Export the table again with `uniot label`.")
        name, label, decision = (*(line[column] for column in columns), "named")[:3]
        if name in seen:
            raise DataError(f"{where}, contains {name!r} a second time. Keep one line per sample.")
        seen.add(name)
        yield name, (_checked_label(where, label, decision), decision)


def _checked_label(where: str, label: str, decision: str) -> str:
    if decision not in _DECISIONS:
        raise DataError(f"{where}, has the decision {decision!r}. Use one of {', '.join(_DECISIONS)}.")
    if decision in ("unknown", "discarded"):
        if label:
            does = "discards a sample" if decision == "discarded" else "calls a sample unknown"
            raise DataError(f"{where}, {does} and labels it {label!r}. Leave the label empty, or change the decision.")
        return label
    if decision == "named":
        try:
            label = clean_name(label)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
    if not label:
        raise DataError(f"{where}, has no label. Give one, or remove the line.")
    return label
