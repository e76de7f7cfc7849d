"""Embeddings in a folder of Parquet files, its shards, in the order of their names."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import DataError
from uniot.io.array_files import FileContent
from uniot.io.files import open_regular
from uniot.io.table_files import import_pyarrow, read_parquet

# Embeddings of more bytes are kept in a temporary file on disk, which is mapped, not in memory.
MOST_BYTES_IN_MEMORY = 1 << 30


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


def read_shards(folder: Path, with_x: bool) -> FileContent:
    """Return the embeddings of all shards, their labels and names.

    One shard at a time is in memory. Embeddings of more than a gigabyte go to a temporary file, in the folder that
    the environment variable TMPDIR names, which ends with the process.

    Raises:
        DataError: a shard cannot be read, or has another width, type or columns than the first.
    """
    files = shard_files(folder)
    n_rows, x, labels, names = sum(map(_count_rows, files)), None, [], []
    start, first = 0, None
    for path in files:
        shard = read_parquet(path, with_x)
        first = shard if first is None else first
        _check_alike(path, shard, files[0], first)
        if shard.x is not None:
            if x is None:
                x = _allocate((n_rows, *shard.x.shape[1:]), shard.x.dtype)
            x[start : start + len(shard.x)] = shard.x
            start += len(shard.x)
        if shard.y is not None:
            labels.append(shard.y)
        names += shard.ids or []
    assert first is not None
    return FileContent(x, None if first.y is None else np.concatenate(labels), None if first.ids is None else names)


def _count_rows(path: Path) -> int:
    pyarrow, parquet = import_pyarrow()
    try:
        with open_regular(path) as file:
            return int(parquet.read_metadata(file).num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a Parquet file ({error}). It may be truncated; make it again."
        ) from None


def _check_alike(path: Path, shard: FileContent, first_path: Path, first: FileContent) -> None:
    """Raise DataError if a shard does not continue the first one."""
    for what, own, other in (("labels", shard.y, first.y), ("names", shard.ids, first.ids)):
        if (own is None) != (other is None):
            with_it, without = (path, first_path) if other is None else (first_path, path)
            raise DataError(f"{with_it} has {what} and {without} has none. Give shards of one and the same kind.")
    kinds = [_kind(content) for content in (first, shard)]
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{path} has {kinds[1]} and {first_path} has {kinds[0]}. Give shards of embeddings by one model."
        )


def _kind(content: FileContent) -> str:
    labels = "" if content.y is None else f" and {'text' if content.y.dtype.kind == 'U' else 'integers'} as labels"
    return labels if content.x is None else f"rows of {content.x.shape[1]} {content.x.dtype} numbers{labels}"


def _allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an array for embeddings: in memory, or in a file that has no name and ends with the array."""
    if math.prod(shape) * dtype.itemsize <= MOST_BYTES_IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        # The mapping keeps the file alive after its handle is closed.
        return np.memmap(file, dtype, "w+", shape=shape)
