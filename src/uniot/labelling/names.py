"""What people called samples: the rules for a name, and `labels.csv`, written and read back."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from uniot.errors import DataError
from uniot.run_folder import write_text
from uniot.untrusted import open_regular

COLUMNS = ("path", "label", "decision", "group")
MOST_CHARACTERS = 200

Decision = Literal["named", "class", "discarded"]
Line = tuple[str, str, Decision, int | None]

_DECISIONS = get_args(Decision)
# Control characters, halves of characters, and line separators: none of them can be seen in a name.
_FORBIDDEN = {"Cc", "Cs", "Zl", "Zp"}
# These turn the direction of the text that follows, beyond the end of the name.
_TURNS_TEXT = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Names:
    """What people decided about samples of a target, each (n,).

    Attributes:
        names: of the samples, as in predictions.csv; no two are the same.
        labels: the new class (`named`) or the source class (`class`); empty where discarded.
        decisions: `named`, `class` or `discarded`.
    """

    names: list[str]
    labels: np.ndarray
    decisions: np.ndarray

    @property
    def new_classes(self) -> list[str]:
        """Names of the new classes, in alphabetical order."""
        return sorted(set(self.labels[self.decisions == "named"].tolist()))

    def followed_by(self, later: Names) -> Names:
        """With what was decided later; of two decisions about a sample the later one counts."""
        decided = {
            name: (label, decision)
            for names in (self, later)
            for name, label, decision in zip(names.names, names.labels.tolist(), names.decisions.tolist(), strict=True)
        }
        labels, decisions = zip(*decided.values(), strict=True) if decided else ((), ())
        return Names(list(decided), np.array(labels, dtype=str), np.array(decisions, dtype=str))

    def lines(self) -> Iterator[Line]:
        """For `write_names`."""
        for name, label, decision in zip(self.names, self.labels.tolist(), self.decisions.tolist(), strict=True):
            yield name, label, decision, None


def clean_name(text: str) -> str:
    """A name as it is kept: composed (NFC), without blanks around it; empty where there is none.

    Raises:
        DataError: the name is too long, cannot be seen, or holds control characters.
    """
    if any(unicodedata.category(letter) in _FORBIDDEN or letter in _TURNS_TEXT for letter in text.strip()):
        raise DataError("a name may not hold line breaks or other control characters. Type it in one line.")
    name = unicodedata.normalize("NFC", text.strip())
    if len(name) > MOST_CHARACTERS:
        raise DataError(
            f"the name has {len(name)} characters, and {MOST_CHARACTERS} are the most. Choose a shorter one."
        )
    if name and all(unicodedata.category(letter)[0] in "CZ" for letter in name):
        raise DataError("the name has no character that can be seen. Type at least one letter or digit.")
    return name


def write_names(path: Path, lines: Iterable[Line]) -> None:
    """Writes the table, whole or not at all: path, label, decision, and the group's number or nothing."""
    write_text(path, "".join(_csv_lines(lines)))


def read_names(path: Path) -> Names:
    """Reads a table that the labelling page exported, or one made by hand with path, label and decision.

    Raises:
        DataError: the file is missing or no such table, or a line of it contradicts itself or another.
    """
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            found = dict(_read_lines(path, file))
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Name the groups with `uniot label`.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is no table of names ({error}). Export it again with `uniot label`.") from None
    labels, decisions = zip(*found.values(), strict=True) if found else ((), ())
    return Names(list(found), np.array(labels, dtype=str), np.array(decisions, dtype=str))


def _csv_lines(lines: Iterable[Line]) -> Iterator[str]:
    yield ",".join(COLUMNS) + "\n"
    for line in lines:
        # With its own line end the writer also quotes a carriage return, which would end the line when read.
        text = io.StringIO()
        csv.writer(text).writerow(line)
        yield text.getvalue().removesuffix("\r\n") + "\n"


def _read_lines(path: Path, file: Iterable[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    lines = csv.reader(file)
    header = next(lines, [])
    missing = [name for name in COLUMNS[:3] if name not in header]
    if missing:
        raise DataError(
            f"{path} has no column called {missing[0]}. A table of names has path, label and decision; "
            "`uniot label` exports one."
        )
    places = [header.index(name) for name in COLUMNS[:3]]
    seen: set[str] = set()
    for line in filter(None, lines):
        where = f"{path}, line {lines.line_num}"
        if len(line) < len(header):
            raise DataError(f"{where}, is cut off. Export the table again with `uniot label`.")
        name, label, decision = (line[place] for place in places)
        if name in seen:
            raise DataError(f"{where}, names {name!r} a second time. Leave one line per sample.")
        seen.add(name)
        yield name, (_checked_label(where, label, decision), decision)


def _checked_label(where: str, label: str, decision: str) -> str:
    if decision not in _DECISIONS:
        raise DataError(f"{where}, has the decision {decision!r}. It is one of {', '.join(_DECISIONS)}.")
    if decision == "discarded":
        if label:
            raise DataError(f"{where}, discards a sample and labels it {label!r}. Leave the label empty, or name it.")
        return label
    if decision == "named":
        try:
            label = clean_name(label)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
    if not label:
        raise DataError(f"{where}, has no label. Give one, or remove the line.")
    return label
