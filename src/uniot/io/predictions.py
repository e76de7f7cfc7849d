"""Predictions of a method, one per sample, and their tables in CSV and Parquet files.

`uniot.runs.saving` writes the predictions.csv of a run with it, `uniot predict` those of new samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import numpy as np

from uniot.errors import DataError, RunFolderError
from uniot.io.csv_tables import CsvError, CsvWriter
from uniot.io.files import replacing
from uniot.io.text import as_utf8

COLUMNS = ("path", "label", "known", "confidence", "nearest_class", "group", "group_confidence")

# Predictions become Python objects in blocks: a million of them at once would fill the memory.
_BLOCK_ROWS = 1 << 13
# A Parquet file of many small row groups is slow to read.
_GROUP_ROWS = 1 << 16

Row = tuple[str, Any, bool, float, Any, int | None, float | None]


@dataclass(frozen=True)
class Prediction:
    """Predictions in the order of the samples; every array has the shape (n_samples,).

    Attributes:
        nearest: index of the nearest source class.
        known: whether the sample belongs to that class, bool.
        known_score: score of being known, from 0 to 1; at least one half if and only if the sample is known.
        confidence: probability of the prediction: of the class if known, of being unknown otherwise.
        group: private group of an unknown sample; -1 if known or not grouped.
        group_confidence: how clearly an unknown sample belongs to its group, from 0 at the boundary to another group
            to 1 at the group's centre; 0 without a group.
    """

    nearest: np.ndarray
    known: np.ndarray
    known_score: np.ndarray
    confidence: np.ndarray
    group: np.ndarray
    group_confidence: np.ndarray

    @classmethod
    def none(cls) -> Prediction:
        """Return predictions for no samples."""
        indices = np.zeros(0, dtype=np.int64)
        return cls(indices, np.zeros(0, dtype=bool), np.zeros(0), np.zeros(0), indices, np.zeros(0))

    @classmethod
    def joined(cls, parts: Sequence[Prediction]) -> Prediction:
        """Return the predictions of all parts, in their order; there is at least one part."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def rows(self, chosen: slice | np.ndarray) -> Prediction:
        """Return the predictions for some of the samples, given by a slice, a mask or indices."""
        return Prediction(*(getattr(self, part.name)[chosen] for part in fields(self)))

    def __len__(self) -> int:
        return len(self.nearest)

    def labels(self, classes: np.ndarray, unknown: object, group_names: Mapping[int, str] | None = None) -> np.ndarray:
        """Return the class names of known samples, and the group name or `unknown` of the others, (n_samples,).

        Args:
            classes: source classes, text or integers, (n_classes,).
            unknown: label of unknown samples.
            group_names: names of groups by their number; with such names all labels are text.
        """
        if group_names:
            called = {group: group_names.get(group, str(unknown)) for group in np.unique(self.group).tolist()}
            of_group = np.array([called[group] for group in self.group.tolist()], dtype=str)
            return np.asarray(np.where(self.known, classes.astype(str)[self.nearest], of_group))
        named: np.ndarray = classes[self.nearest]
        if not self.known.all() and isinstance(unknown, str) and named.dtype.kind == "U":
            named = named.astype(np.result_type(named.dtype, np.array(unknown).dtype))
        named = named.copy()
        named[~self.known] = unknown
        return named


@dataclass(frozen=True)
class Predictions:
    """A table of predictions; every column has the shape (n_samples,).

    Attributes:
        names: names of the samples.
        labels: class names and the unknown label; text even if the classes are integers, since a CSV file does not
            distinguish the two.
        known: whether the sample belongs to a source class, bool.
        confidence: probability of the label, which is a class or unknown.
        nearest_classes: names of the nearest source classes, text.
        groups: group of an unknown sample; -1 if it has none.
        group_confidence: how clearly an unknown sample belongs to its group, from 0 to 1; 0 if it has none.
    """

    names: list[str]
    labels: np.ndarray
    known: np.ndarray
    confidence: np.ndarray
    nearest_classes: np.ndarray
    groups: np.ndarray
    group_confidence: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def to_dict(self) -> dict[str, Any]:
        """Return the columns by their names in predictions.csv.

        Examples:
            >>> pandas.DataFrame(run.predictions.to_dict())
        """
        values = (getattr(self, part.name) for part in fields(self))
        return dict(zip(COLUMNS, values, strict=True))


class PredictionWriter:
    r"""Write predictions block by block, in bounded memory.

    The file appears when the `with` block succeeds, and stays as it was if the block fails. The columns are path,
    label, known, confidence, nearest_class, group and group_confidence; the last two are empty for known samples. A
    byte of a name that is not UTF-8 is escaped, for instance as `\udcff`. In CSV, names and labels that begin like a
    formula of a spreadsheet program have an apostrophe before them, which `read_predictions` removes.

    Args:
        place: a path that ends with .csv or .parquet; or an open text stream, which receives CSV and stays open.
        classes: source classes, text or integers, (n_classes,).
        unknown: label of unknown samples.
        group_names: names that people gave to groups, which replace the unknown label of their samples; integer
            classes are then written as text.
    """

    def __init__(
        self,
        place: Path | TextIO,
        classes: np.ndarray,
        unknown: str | int,
        group_names: Mapping[int, str] | None = None,
    ) -> None:
        if isinstance(place, Path) and place.suffix.lower() not in (".csv", ".parquet"):
            raise DataError(f"{place} ends with {place.suffix!r}. Predictions are written to .csv or .parquet files.")
        self._place = place
        self._group_names = group_names or {}
        is_text = classes.dtype.kind == "U" or bool(self._group_names)
        self._classes = np.array([as_utf8(str(name)) for name in classes.tolist()]) if is_text else classes
        self._unknown = unknown
        self._n_written = 0
        self._failure: OSError | None = None

    def __enter__(self) -> PredictionWriter:
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
        # `replacing` reports any OSError as a failure to write this file; one from elsewhere keeps its own message.
        if isinstance(error, OSError) and error is not self._failure:
            kind, error = _Abandoned, _Abandoned()
        self._opened.__exit__(kind, error, trace)

    def write(self, names: Sequence[str] | None, prediction: Prediction) -> None:
        """Append predictions; without names, samples are named by their number in the table."""
        if names is not None and len(names) != len(prediction):
            raise DataError(
                f"there are {len(names)} names for {len(prediction)} predictions. Give one name per sample."
            )
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
    """Abort writing because of an error that does not concern the file."""


@contextmanager
def _csv_rows(stream: TextIO) -> Iterator[Callable[[list[Row]], None]]:
    writer = CsvWriter(stream)
    # Written with the first rows, so that an earlier error leaves the stream untouched.
    header = iter([COLUMNS])

    def append(rows: list[Row]) -> None:
        writer.write(header)
        writer.write(
            (name, label, str(known).lower(), _six(confidence), nearest, group, _six(sure))
            for name, label, known, confidence, nearest, group, sure in rows
        )

    yield append
    writer.write(header)


def _six(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


@contextmanager
def _parquet_rows(path: Path, integers: bool) -> Iterator[Callable[[list[Row]], None]]:
    from uniot.io.table_files import import_pyarrow

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


def read_predictions(path: Path) -> Predictions:
    """Return the table that `PredictionWriter` wrote to a .csv or .parquet file.

    Raises:
        RunFolderError: the file cannot be read, or is not such a table.
    """
    from uniot.io.table_files import read_columns

    try:
        columns = read_columns(path, COLUMNS)
        return Predictions(
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
    except (OSError, ValueError, TypeError, CsvError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Make the run again.") from None


def _as_bool(value: str | bool) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"known is {value!r}, neither true nor false")
    return text == "true"
