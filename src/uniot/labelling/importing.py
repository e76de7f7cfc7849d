"""Labels that were made elsewhere: a CSV table or JSON Lines with a sample and a label per line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from uniot.data.text import as_utf8
from uniot.errors import DataError
from uniot.labelling.names import clean_name

SAMPLE_COLUMNS = ("path", "sample")


@dataclass(frozen=True)
class Given:
    """Labels by row of the target; None if the sample is to be discarded."""

    labels: dict[int, str | None]


def parse_labels(text: str, samples: Sequence[str]) -> Given:
    """Read labels, in CSV with a header or in JSON Lines, whichever it is.

    A line has `path` or `sample`, as in predictions.csv, and `label`; `decision` may be `discarded`, and the label is
    empty then. Other columns do not matter.

    Raises:
        DataError: a column is missing, a sample is not in the target or is named twice, or a label cannot be used.
    """
    text = text.removeprefix("\ufeff")
    lines = _json_lines(text) if text.lstrip().startswith("{") else _csv_lines(text)
    row_of = {as_utf8(name): row for row, name in enumerate(samples)}
    labels: dict[int, str | None] = {}
    strange: list[str] = []
    for number, line in lines:
        where = f"line {number}"
        name = next((str(line[column]) for column in SAMPLE_COLUMNS if line.get(column) is not None), None)
        if name is None or "label" not in line:
            raise DataError(f"{where} has no sample or no label. Give `path` (or `sample`) and `label` on every line.")
        row = row_of.get(as_utf8(name))
        if row is None:
            strange.append(name)
        elif row in labels:
            raise DataError(f"{where} names {name!r} a second time. Leave one line per sample.")
        else:
            labels[row] = _label(where, line)
    if strange:
        raise DataError(
            f"{len(strange)} of {len(strange) + len(labels)} samples are not in the target of this run, {strange[0]!r} "
            "first. Name them as predictions.csv does."
        )
    if not labels:
        raise DataError("no label is in it. Give a header with path and label, and a line per sample.")
    return Given(labels)


def _label(where: str, line: dict[str, Any]) -> str | None:
    label = "" if line["label"] is None else str(line["label"])
    if line.get("decision") == "discarded":
        return None
    try:
        name = clean_name(label)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    if not name:
        raise DataError(f"{where} has no label. Give one, remove the line, or write `discarded` as its decision.")
    return name


def _csv_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        fields = table.fieldnames or []
        if "label" not in fields or not any(column in fields for column in SAMPLE_COLUMNS):
            raise DataError(f"the header is {', '.join(fields)[:200]!r}. It needs path (or sample) and label.")
        for line in table:
            yield table.line_num, line
    except csv.Error as error:
        raise DataError(f"line {table.line_num} is no CSV ({error}).") from None


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} is no JSON ({error}). Give one object per line.") from None
        if not isinstance(found, dict):
            raise DataError(f"line {number} is no JSON object. Give one with path and label per line.")
        yield number, found
