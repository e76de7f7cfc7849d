"""Embeddings with labels and names, read from files and written to them; nothing in a file is ever executed.

A kind of file has one reader and, but for .csv, one writer; the tables of them are the list of what is supported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uniot.data.arrays import as_inputs, as_labels
from uniot.data.csv_tables import read_csv, write_table
from uniot.data.embedding_parts import Parts
from uniot.data.numpy_files import read_npy, read_npz, write_npy, write_npz
from uniot.data.parquet_files import read_parquet, write_parquet
from uniot.data.safetensors_files import read_safetensors, write_safetensors
from uniot.data.text import read_text
from uniot.errors import DataError
from uniot.words import listed

Replacing = Callable[[Path], AbstractContextManager[Path]]

_READERS: dict[str, Callable[[Path, bool], Parts]] = {
    ".npz": read_npz,
    ".npy": read_npy,
    ".parquet": read_parquet,
    ".safetensors": read_safetensors,
    ".csv": read_csv,
}
_WRITERS: dict[str, Callable[[Path, np.ndarray, np.ndarray | None, Sequence[str] | None], None]] = {
    ".npz": write_npz,
    ".npy": write_npy,
    ".parquet": write_parquet,
    ".safetensors": write_safetensors,
}
WRITTEN_SUFFIXES = tuple(_WRITERS)
"""Of the files that `write_embeddings` writes."""
_NO_LABELS = (
    "Give the true labels as an .npz with y, an .npy of labels, a .csv with the columns path and label, or a text file "
    "with a label a line."
)


@dataclass(frozen=True)
class EmbeddingFile:
    """What a file holds: embeddings (n, d), labels (n,) and names of the samples (n,) where it has them."""

    x: np.ndarray
    y: np.ndarray | None
    ids: list[str] | None


def read_embeddings(path: Path, table: Path | None = None) -> EmbeddingFile:
    """Reads embeddings, and labels and names where there are any.

    Args:
        path: a file of one of these kinds.
            .npz: arrays `x`, `y`, `ids`.
            .npy: the embeddings, left on disk until used; labels and names in a .csv of the same name beside it.
            .parquet: a list column `x` or, where there is none, every numeric column; columns `label` and `path`.
            .safetensors: tensors `x` and, of integers, `y`; metadata `classes` and `ids`, each a JSON list.
            .csv: a first line with names; columns `label` and `path`, and numbers in all others.
        table: a .csv with the columns path, label or both, in the order of the rows; goes before what `path` says.
    """
    parts = _read(path, with_x=True, table=table)
    x = parts.x
    if x is None or x.ndim == 0:
        raise DataError(f"{path} holds a single number. Give one row of numbers per sample.")
    for what, values in (("labels", parts.y), ("ids", parts.ids)):
        if values is not None and len(values) != len(x):
            raise DataError(f"{path} has {len(values)} {what} for {len(x)} rows of x. Give one per row, or none.")
    return EmbeddingFile(x, parts.y, parts.ids)


def read_labels(path: Path, ids: list[str]) -> np.ndarray:
    """One label per sample, in the order of `ids`.

    Args:
        path: any file that `read_embeddings` reads, with or without embeddings; an .npy of labels; or a text file
            with a label a line. Where it names its samples, the names decide, not the order.
        ids: names of the samples, as in predictions.csv.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist. Give a file with the true label of every target sample.")
    if path.suffix.lower() in _READERS:
        parts = _read(path, with_x=False)
    else:
        parts = Parts(y=np.array(read_text(path, _NO_LABELS).splitlines(), dtype=str))
    if parts.y is None:
        raise DataError(f"{path} holds no labels. Save them as y, or as the column label where the file has columns.")
    if parts.ids is not None and len(parts.ids) != len(parts.y):
        raise DataError(f"{path} has {len(parts.ids)} ids for {len(parts.y)} labels. Give one per label, or none.")
    if parts.ids is None or parts.ids == ids or _only_numbered(ids, parts.ids):
        if len(parts.y) != len(ids):
            raise DataError(
                f"{path} has {len(parts.y)} labels for {len(ids)} target samples. Give one per sample, in order."
            )
        return parts.y
    return _labels_by_name(path, parts.y, parts.ids, ids)


def write_embeddings(
    path: Path,
    x: np.ndarray,
    y: np.ndarray | None = None,
    ids: Sequence[str] | None = None,
    *,
    replacing: Replacing,
) -> None:
    """Writes what `read_embeddings` reads back.

    An .npy has its labels and names in a .csv beside it, where whole numbers come back as text.

    Args:
        path: ends with .npz, .npy, .parquet or .safetensors, which decides the kind.
        x: embeddings, (n, d).
        y: labels, (n,), text or whole numbers.
        ids: names of the samples. What UTF-8 cannot hold of a name is written as `uniot.data.text.as_utf8` says.
        replacing: gives a temporary path for a final one, and renames; `uniot.run_folder.replacing`.
    """
    kind = path.suffix.lower()
    if kind not in _WRITERS:
        raise DataError(f"{path} ends with {kind!r}. Embeddings are written to {listed(_WRITERS)} files.")
    x = as_inputs(x, "x")
    y = None if y is None else as_labels(y, "y")
    for what, values in (("labels", y), ("ids", ids)):
        if values is not None and len(values) != len(x):
            raise DataError(f"there are {len(values)} {what} for {len(x)} rows of x. Give one per row, or none.")
    beside = path.with_suffix(".csv") if kind == ".npy" else None
    has_table = y is not None or ids is not None
    if beside is not None and not has_table and beside.exists():
        raise DataError(
            f"{beside} would be read as the labels of {path}, and it is not of these embeddings. "
            "Remove it, or give another name."
        )
    with ExitStack() as files:
        _WRITERS[kind](files.enter_context(replacing(path)), x, y, ids)
        if beside is not None and has_table:
            write_table(files.enter_context(replacing(beside)), y, ids)


def _read(path: Path, *, with_x: bool, table: Path | None = None) -> Parts:
    kind = path.suffix.lower()
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give a file of embeddings: {listed(_READERS)}.")
    if not path.is_file():
        raise DataError(f"{path} does not exist. Give a file of embeddings: {listed(_READERS)}.")
    if kind not in _READERS:
        raise DataError(f"{path} ends with {kind!r}. Embeddings are read from {listed(_READERS)} files.")
    try:
        parts = _READERS[kind](path, with_x)
    except MemoryError as error:
        raise DataError(
            f"{path} takes more memory than there is ({error}). Give fewer samples, or an .npy file."
        ) from None
    beside = path.with_suffix(".csv")
    if table is None and kind == ".npy" and parts.y is None and beside.is_file():
        table = beside
    if table is None:
        return parts
    named = read_csv(table, with_x=False)
    return Parts(parts.x, parts.y if named.y is None else named.y, parts.ids if named.ids is None else named.ids)


def _labels_by_name(path: Path, labels: np.ndarray, names: list[str], ids: list[str]) -> np.ndarray:
    row_of: dict[str, int] = {}
    for row, name in enumerate(names):
        if labels[row_of.setdefault(name, row)] != labels[row]:
            raise DataError(f"{path} names {name!r} twice, with two labels. Give each sample a name of its own.")
    missing = [name for name in ids if name not in row_of]
    if missing:
        raise DataError(
            f"{path} has no label for {len(missing)} of {len(ids)} samples, {missing[0]!r} first. "
            "Use the paths of the run's predictions.csv."
        )
    return np.array(labels[[row_of[name] for name in ids]])


def _only_numbered(ids: list[str], names: list[str]) -> bool:
    """Whether a run had no names for its samples while the truth has: then only the order can tell."""
    return ids == [str(row) for row in range(len(ids))] and not set(ids) <= set(names)
