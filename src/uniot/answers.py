"""What a run says of samples, written as a table and read back from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import numpy as np

from uniot.data.parquet_files import import_pyarrow
from uniot.data.text import as_utf8
from uniot.errors import DataError, RunFolderError
from uniot.prediction import Prediction
from uniot.run_folder import replacing
from uniot.untrusted import open_regular

COLUMNS = ("path", "label", "known", "confidence", "nearest_class", "group", "group_confidence")

# Answers become Python objects in blocks, so that a million of them never do at once.
_BLOCK_ROWS = 1 << 13
# A Parquet file of many small groups is slow to read.
_GROUP_ROWS = 1 << 16


Row = tuple[str, Any, bool, float, Any, int | None, float | None]


@dataclass(frozen=True)
class Answers:
    """A table of answers by column, each (n,).

    Attributes:
        names: what the samples are called.
        labels: class names and the unknown label, as text even where classes are integers: a .csv cannot tell.
        known: whether the sample belongs to a source class, bool.
        confidence: probability of the label, of a class or of being unknown.
        nearest_classes: names of the nearest source classes, text.
        groups: private group, -1 where there is none.
        group_confidence: how clearly an unknown sample belongs to its group, from 0 to 1; 0 where there is no group.
    """

    names: list[str]
    labels: np.ndarray
    known: np.ndarray
    confidence: np.ndarray
    nearest_classes: np.ndarray
    groups: np.ndarray
    group_confidence: np.ndarray


class AnswerWriter:
    r"""Writes answers a few at a time and keeps none of them.

    A file is there, whole, when the `with` block has ended well, and is left as it was otherwise. The columns are
    path, label, known, confidence, nearest_class, group and group_confidence; the last two are empty where known. A
    byte of a name that is no text in UTF-8 is written out, for instance as `\udcff`; nothing else of a name or label
    is changed.

    Args:
        place: a path that ends with .csv or .parquet; or an open text stream, which gets CSV and stays open.
        classes: source classes, text or integers, (c,).
        unknown: what an unknown sample is called.
        group_names: what people call groups; an unknown sample of such a group is called so. With such names, integer
            classes are written as text.
    """

    def __init__(
        self,
        place: Path | TextIO,
        classes: np.ndarray,
        unknown: str | int,
        group_names: Mapping[int, str] | None = None,
    ) -> None:
        if isinstance(place, Path) and place.suffix.lower() not in (".csv", ".parquet"):
            raise DataError(f"{place} ends with {place.suffix!r}. Answers are written to .csv or .parquet files.")
        self._place = place
        self._group_names = group_names or {}
        is_text = classes.dtype.kind == "U" or bool(self._group_names)
        self._classes = np.array([as_utf8(str(name)) for name in classes.tolist()]) if is_text else classes
        self._unknown = unknown
        self._n_written = 0
        self._failure: OSError | None = None

    def __enter__(self) -> AnswerWriter:
        with ExitStack() as opened:
            if not isinstance(self._place, Path):
                self._append = opened.enter_context(_csv_rows(self._place))
            elif self._place.suffix.lower() == ".csv":
                partial = opened.enter_context(replacing(self._place))
                stream = opened.enter_context(partial.open("w", encoding="utf-8", newline=""))
                self._append = opened.enter_context(_csv_rows(stream))
            else:
                partial = opened.enter_context(replacing(self._place))
                integers = self._classes.dtype.kind != "U"
                self._append = opened.enter_context(_parquet_rows(partial, integers))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # `replacing` would say of any OSError that this file cannot be written; one from elsewhere keeps its words.
        if isinstance(error, OSError) and error is not self._failure:
            kind, error = _Abandoned, _Abandoned()
        self._opened.__exit__(kind, error, trace)

    def write(self, names: Sequence[str] | None, prediction: Prediction) -> None:
        """Appends answers; without names, samples are called by their number in the table."""
        if names is not None and len(names) != len(prediction):
            raise DataError(f"there are {len(names)} names for {len(prediction)} answers. Give one name per sample.")
        for start in range(0, len(prediction), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            block = prediction.rows(rows)
            numbers = range(self._n_written, self._n_written + len(block))
            try:
                self._append(self._rows([str(number) for number in numbers] if names is None else names[rows], block))
            except OSError as error:
                self._failure = error
                raise
            self._n_written += len(block)

    def _rows(self, names: Sequence[str], block: Prediction) -> list[Row]:
        return list(
            zip(
                map(as_utf8, names),
                block.labels(self._classes, self._unknown, self._group_names).tolist(),
                block.known.tolist(),
                block.confidence.tolist(),
                self._classes[block.nearest].tolist(),
                [None if group < 0 else group for group in block.group.tolist()],
                [
                    None if group < 0 else sure
                    for group, sure in zip(block.group.tolist(), block.group_confidence.tolist(), strict=True)
                ],
                strict=True,
            )
        )


class _Abandoned(Exception):
    """Ends the writing of a file for a reason that is not the file's."""


class _LineFeeds:
    """A stream for `csv.writer` that ends lines with a line feed alone.

    The writer quotes no carriage return unless its own line end holds one, and an unquoted one ends a line when read.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(line.removesuffix("\r\n") + "\n")


@contextmanager
def _csv_rows(stream: TextIO) -> Iterator[Callable[[list[Row]], None]]:
    writer = csv.writer(_LineFeeds(stream), lineterminator="\r\n")
    # Not before there is something to say, so that an error before the first answer leaves a stream untouched.
    header = iter([COLUMNS])

    def append(rows: list[Row]) -> None:
        writer.writerows(header)
        writer.writerows(
            (name, label, str(known).lower(), _six(confidence), nearest, group, _six(sure))
            for name, label, known, confidence, nearest, group, sure in rows
        )

    yield append
    writer.writerows(header)


def _six(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


@contextmanager
def _parquet_rows(path: Path, integers: bool) -> Iterator[Callable[[list[Row]], None]]:
    pyarrow, parquet = import_pyarrow()
    of_class = pyarrow.int64() if integers else pyarrow.string()
    number = pyarrow.float32()
    types = (pyarrow.string(), of_class, pyarrow.bool_(), number, of_class, pyarrow.int64(), number)
    schema = pyarrow.schema(list(zip(COLUMNS, types, strict=True)))
    waiting: list[Row] = []
    with path.open("wb") as file, parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            columns = zip(zip(*waiting, strict=True), types, strict=True)
            arrays = [pyarrow.array(values, kind) for values, kind in columns]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            waiting.clear()

        def append(rows: list[Row]) -> None:
            waiting.extend(rows)
            if len(waiting) >= _GROUP_ROWS:
                flush()

        yield append
        if waiting:
            flush()


def read_answers(path: Path) -> Answers:
    """Reads a table that `AnswerWriter` wrote to a .csv or .parquet file."""
    try:
        columns = _parquet_columns(path) if path.suffix.lower() == ".parquet" else _csv_columns(path)
        return Answers(
            names=columns["path"],
            labels=np.array([str(label) for label in columns["label"]], dtype=str),
            known=np.array([_as_bool(known) for known in columns["known"]], dtype=bool),
            confidence=np.array([float(value) for value in columns["confidence"]]),
            nearest_classes=np.array([str(name) for name in columns["nearest_class"]], dtype=str),
            groups=np.array([-1 if value in ("", None) else int(value) for value in columns["group"]], dtype=np.int64),
            group_confidence=np.array(
                [0.0 if value in ("", None) else float(value) for value in columns["group_confidence"]]
            ),
        )
    except DataError:  # pyarrow is missing
        raise
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Make the run again.") from None


def _csv_columns(path: Path) -> dict[str, list[Any]]:
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        _check_columns(header)
        places = [header.index(name) for name in COLUMNS]
        columns: list[list[Any]] = [[] for _ in COLUMNS]
        for row in filter(None, lines):
            if len(row) < len(header):
                raise ValueError(f"line {lines.line_num} is cut off")
            for column, place in zip(columns, places, strict=True):
                column.append(row[place])
    return dict(zip(COLUMNS, columns, strict=True))


def _parquet_columns(path: Path) -> dict[str, list[Any]]:
    pyarrow, parquet = import_pyarrow()
    try:
        with open_regular(path) as file:
            table = parquet.read_table(file)
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from None
    _check_columns(table.column_names)
    return {name: table.column(name).to_pylist() for name in COLUMNS}


def _check_columns(found: Sequence[str]) -> None:
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        raise ValueError(f"it has no column called {missing[0]}")


def _as_bool(value: str | bool) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"known is {value!r}, neither true nor false")
    return text == "true"
