"""Embeddings in a folder of Parquet files, its shards, in the order of their names."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from uniot.errors import DataError
from uniot.io.array_files import FileContent, Unpacked, label_bytes
from uniot.io.columns import Columns
from uniot.io.files import MOST_SETTINGS_BYTES, open_regular, parse_json
from uniot.io.table_files import WRITE_PLAIN, Vectors, allocate, opened_parquet, read_parquet
from uniot.io.text import listed

_USUAL = Columns()

MANIFEST = "_shards.json"
"""File of a folder of shards in which `uniot embed --engine ray` says what they are, and whether all are there."""


def is_shard_folder(where: Path) -> bool:
    """Return whether a path is a folder of Parquet files and nothing else, as `uniot embed --engine ray` writes it.

    Names that begin with a dot or with `_` do not count.
    """
    if not where.is_dir():
        return False
    found = False
    with os.scandir(where) as entries:
        for entry in entries:
            if entry.name[0] in "._":
                continue
            if not entry.name.lower().endswith(".parquet"):
                return False
            found = True
    return found


def shard_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder of shards, sorted by name."""
    return sorted(path for path in folder.glob("*") if path.suffix.lower() == ".parquet" and path.name[0] not in "._")


def read_shards(folder: Path, with_x: bool, columns: Columns = _USUAL) -> FileContent:
    """Return the embeddings of all shards, their labels and names. Shards without rows are left out.

    A part of one shard at a time is in memory. Embeddings of more than a gigabyte go to a temporary file, in the folder
    that the environment variable TMPDIR names, which ends with the process.

    Raises:
        DataError: a shard cannot be read, has another width, type or columns than the first, or changes meanwhile; the
            shards together would take more memory than embeddings ever do; or the folder is the output of a command
            that has not finished.
    """
    counts = {path: _count_rows(path) for path in shard_files(folder)}
    n_rows = sum(counts.values())
    check_complete(folder, _manifest_text(folder), n_rows)
    files = [path for path, count in counts.items() if count] or list(counts)[:1]
    unpacked = Unpacked(folder, sum(path.stat().st_size for path in files), WRITE_PLAIN)
    x = None
    if with_x:
        first_vectors = _vectors(files[0], columns)
        shape = (n_rows, first_vectors.shape[1])
        unpacked.add("x", math.prod(shape) * first_vectors.dtype.itemsize)
        x = allocate(shape, first_vectors.dtype)
    first, labels, names, start = None, [], [], 0
    shown: list[str] = []
    texts: list[str] = []
    for path in files:
        rows = None
        if x is not None:
            _check_vectors(path, _vectors(path, columns), files[0], first_vectors)
            rows = x[start : start + counts[path]]
        shard = read_parquet(path, with_x, columns, rows)
        first = first or shard
        _check_alike(path, shard, files[0], first)
        start += counts[path]
        if shard.y is not None:
            labels.append(shard.y)
        names += shard.ids or []
        shown += shard.shown or []
        texts += shard.texts or []
    assert first is not None
    y = None if first.y is None else _concatenated(folder, labels, unpacked)
    return FileContent(
        x,
        y,
        None if first.ids is None else names,
        first.columns,
        None if first.shown is None else shown,
        None if first.texts is None else texts,
        first.left_out,
    )


def check_complete(where: object, manifest: bytes | None, n_rows: int) -> None:
    """Raise DataError if a folder is the output of a command in shards, and not all of its rows are there.

    Args:
        where: the folder, for the message.
        manifest: content of its `_shards.json`; None if it has none.
        n_rows: rows of all its files together.
    """
    if manifest is None:
        return
    try:
        content = parse_json(manifest)
        complete, expected = content["complete"], content["rows"]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{where}/{MANIFEST} cannot be read ({str(error)[:200]}). Write the shards again, or delete this file if "
            "they are whole."
        ) from None
    if not complete:
        raise DataError(f"{where} is not finished. Run the command that writes it again; it continues.")
    if expected != n_rows:
        raise DataError(
            f"Expected {expected} rows in {where}, got {n_rows}. Run the command that wrote it again; it repairs it."
        )


def _manifest_text(folder: Path) -> bytes | None:
    path = folder / MANIFEST
    try:
        with open_regular(path) as file:
            return file.read(MOST_SETTINGS_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Check its permissions.") from None


def _count_rows(path: Path) -> int:
    with opened_parquet(path) as table:
        return table.n_rows


def _vectors(path: Path, columns: Columns) -> Vectors:
    with opened_parquet(path, columns) as table:
        return table.vectors


def _check_vectors(path: Path, vectors: Vectors, first_path: Path, first: Vectors) -> None:
    """Raise DataError if the embeddings of a shard do not continue those of the first one."""
    kinds = [f"rows of {one.shape[1]} {one.dtype} numbers" for one in (vectors, first)]
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{path} has {kinds[0]} and {first_path} has {kinds[1]}. Give shards of embeddings by one model."
        )
    if vectors.columns != first.columns:
        raise DataError(
            f"{path} has its numbers in the columns {listed(vectors.columns)} and {first_path} in "
            f"{listed(first.columns)}. Give the same columns in the same order."
        )


def _check_alike(path: Path, shard: FileContent, first_path: Path, first: FileContent) -> None:
    """Raise DataError if labels and names of a shard do not continue those of the first one."""
    kept = (
        ("labels", shard.y, first.y),
        ("names", shard.ids, first.ids),
        ("column to show", shard.shown, first.shown),
        ("texts", shard.texts, first.texts),
    )
    for what, own, other in kept:
        if (own is None) != (other is None):
            with_it, without = (path, first_path) if other is None else (first_path, path)
            raise DataError(f"{with_it} has {what} and {without} has none. Give shards of one and the same kind.")
    if shard.y is not None and first.y is not None:
        kinds = ["text" if y.dtype.kind == "U" else "integers" for y in (shard.y, first.y)]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"{path} has {kinds[0]} as labels and {first_path} has {kinds[1]}. Give shards of one kind."
            )


def _concatenated(folder: Path, labels: list[np.ndarray], unpacked: Unpacked) -> np.ndarray:
    if labels[0].dtype.kind == "U":
        n_rows = sum(map(len, labels))
        longest = max(part.dtype.itemsize // np.dtype("U1").itemsize for part in labels)
        n_letters = sum(int(np.char.str_len(part).sum()) for part in labels)
        unpacked.add("labels", label_bytes(folder, n_rows, longest, n_letters))
    return np.concatenate(labels)
