"""Read labels in CSV or JSON Lines, and answers in CSV, that were made outside the page."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniot.errors import DataError
from uniot.io.csv_tables import CsvError, dict_reader
from uniot.io.files import MOST_TEXT_BYTES, read_bounded
from uniot.io.text import as_utf8, listed
from uniot.labelling.names import clean_name

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples

SAMPLE_COLUMNS = ("path", "sample")


def parse_labels(text: str, samples: Sequence[str]) -> dict[int, str | None]:
    """Parse labels in CSV with a header, or in JSON Lines.

    A line has `path` or `sample`, as in predictions.csv, and `label`. If `decision` is `discarded`, the label is empty.
    A line with the decision `unknown` has no label to import and is left out. Other columns are ignored.

    Args:
        text: content of the file.
        samples: names of the target samples, (n_samples,).

    Returns:
        Label by row of the target; None if the sample is discarded.

    Raises:
        DataError: a column is missing, a sample is not in the target or occurs twice, or a label is not allowed.
    """
    text = text.removeprefix("\ufeff")
    lines = _json_lines(text) if text.lstrip().startswith("{") else _csv_lines(text)
    row_of = {as_utf8(name): row for row, name in enumerate(samples)}
    labels: dict[int, str | None] = {}
    missing: list[str] = []
    for number, line in lines:
        if line.get("decision") == "unknown" and not line.get("label"):
            continue
        where = f"line {number}"
        name = next((str(line[column]) for column in SAMPLE_COLUMNS if line.get(column) is not None), None)
        if name is None or "label" not in line:
            raise DataError(f"{where} has no sample or no label. Give `path` (or `sample`) and `label` on every line.")
        row = row_of.get(as_utf8(name))
        if row is None:
            missing.append(name)
        elif row in labels:
            raise DataError(f"{where} contains {name!r} a second time. Keep one line per sample.")
        else:
            labels[row] = _label(where, line)
    if missing:
        raise DataError(
            f"{len(missing)} of {len(missing) + len(labels)} samples are not in this run, for example "
            f"{missing[0]!r}. Use the names of predictions.csv."
        )
    if not labels:
        raise DataError("it contains no label. Give a header with path and label, and one line per sample.")
    return labels


def _label(where: str, line: dict[str, Any]) -> str | None:
    if line.get("decision") == "discarded":
        return None
    try:
        name = clean_name("" if line["label"] is None else str(line["label"]))
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    if not name:
        raise DataError(f"{where} has no label. Give one, remove the line, or write `discarded` as its decision.")
    return name


@dataclass(frozen=True)
class TableOfAnswers:
    """Answers that were read from a table.

    Attributes:
        answers: index of a source class, `UNKNOWN` or `CANNOT_TELL` by row of the target.
        n_repeated: samples with several answers, of which the last one counts.
    """

    answers: dict[int, int]
    n_repeated: int


def parse_answers(text: str, target: TargetSamples) -> TableOfAnswers:
    """Parse answers in CSV: `path` or `sample` as in predictions.csv, or `row`; and `answer`.

    An answer is a source class, the label of unknown samples, or `?` or nothing for "cannot tell".

    Raises:
        DataError: a column is missing, a sample or a class does not exist, or the text is not CSV.
    """
    row_of = {as_utf8(name): row for row, name in enumerate(target.names)}
    answers: dict[int, int] = {}
    repeated: set[int] = set()
    missing: list[str] = []
    for number, line in _csv_lines(text.removeprefix("\ufeff"), "answer", (*SAMPLE_COLUMNS, "row")):
        column = next(name for name in (*SAMPLE_COLUMNS, "row") if name in line)
        name, said = str(line[column] or ""), str(line["answer"] or "").strip()
        row = _row_number(name, len(target.names), number) if column == "row" else row_of.get(as_utf8(name))
        if row is None:
            missing.append(name)
            continue
        try:
            index = target.answer_index(None if said in ("", "?") else said)
        except DataError as error:
            raise DataError(f"line {number}: {error}") from None
        if row in answers:
            repeated.add(row)
        answers.pop(row, None)
        answers[row] = index
    if missing:
        raise DataError(
            f"{len(missing)} of {len(missing) + len(answers)} samples are not in this run, for example "
            f"{missing[0]!r}. Give the questions that `uniot ask` wrote for this run."
        )
    if not answers:
        raise DataError("it contains no answer. Give a header with path and answer, and one line per sample.")
    return TableOfAnswers(answers, len(repeated))


def _row_number(text: str, n_samples: int, line: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:12]) >= n_samples:
        raise DataError(f"line {line} is about row {text[:40]!r}, and the run has rows 0 to {n_samples - 1}.")
    return int(text)


def read_text(path: Path) -> str:
    """Return the text of a table.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or is too large.
    """
    try:
        return read_bounded(path, MOST_TEXT_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read ({reason}). Give a .csv file in UTF-8.") from None


def _csv_lines(
    text: str, needed: str = "label", columns: Sequence[str] = SAMPLE_COLUMNS
) -> Iterator[tuple[int, dict[str, Any]]]:
    table = dict_reader(io.StringIO(text, newline=""), strict=True)
    try:
        fields = table.fieldnames or []
        if needed not in fields or not any(column in fields for column in columns):
            raise DataError(
                f"the header is {listed(fields)!r}. It needs path (or {' or '.join(columns[1:])}) and {needed}."
            )
        for line in table:
            yield table.line_num, line
    except CsvError as error:
        raise DataError(f"line {table.line_num} is not CSV ({error}). Correct it, or save the table as CSV.") from None


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} is not JSON ({error}). Give one object per line.") from None
        if not isinstance(found, dict):
            raise DataError(f"line {number} is not a JSON object. Give one with path and label per line.")
        yield number, found
