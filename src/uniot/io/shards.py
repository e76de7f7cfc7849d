"""Embeddings in a folder of Parquet files, its shards, in the order of their names."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import DataError
from uniot.io.array_files import FileContent, check_label_length
from uniot.io.files import MOST_SETTINGS_BYTES, open_regular, parse_json
from uniot.io.table_files import import_pyarrow, read_parquet
from uniot.io.text import listed

MANIFEST = "_shards.json"
"""File of a folder of shards in which `uniot embed --engine ray` says what they are, and whether all are there."""
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
    """Return the embeddings of all shards, their labels and names. Shards without rows are left out.

    One shard at a time is in memory. Embeddings of more than a gigabyte go to a temporary file, in the folder that
    the environment variable TMPDIR names, which ends with the process.

    Raises:
        DataError: a shard cannot be read, has another width, type or columns than the first, or changes meanwhile; or
            the folder is the output of a command that has not finished.
    """
    counts = {path: _count_rows(path) for path in shard_files(folder)}
    n_rows = sum(counts.values())
    check_complete(folder, _manifest_text(folder), n_rows)
    files = [path for path, count in counts.items() if count] or list(counts)[:1]
    x, labels, names, start = None, [], [], 0
    first = read_parquet(files[0], with_x)
    for path in files:
        shard = first if path is files[0] else read_parquet(path, with_x)
        _check_alike(path, shard, files[0], first)
        if shard.x is not None:
            if len(shard.x) != counts[path]:
                raise DataError(f"{path} had {counts[path]} rows and has {len(shard.x)} now. Wait until it is written.")
            x = _allocate((n_rows, *shard.x.shape[1:]), shard.x.dtype) if x is None else x
            x[start : start + len(shard.x)] = shard.x
            start += len(shard.x)
        if shard.y is not None:
            labels.append(shard.y)
            _check_labels(path, n_rows, shard.y)
        names += shard.ids or []
    return FileContent(x, None if first.y is None else np.concatenate(labels), None if first.ids is None else names)


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
            f"{where} has {n_rows} rows; expected were {expected}. Run the command that wrote it again; it repairs it."
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
    if shard.columns != first.columns:
        raise DataError(
            f"{path} has its numbers in the columns {listed(shard.columns)} and {first_path} in "
            f"{listed(first.columns)}. Give the same columns in the same order."
        )


def _kind(content: FileContent) -> str:
    labels = "" if content.y is None else f" and {'text' if content.y.dtype.kind == 'U' else 'integers'} as labels"
    return labels if content.x is None else f"rows of {content.x.shape[1]} {content.x.dtype} numbers{labels}"


def _check_labels(path: Path, n_rows: int, labels: np.ndarray) -> None:
    """Raise DataError if one long label would make the array of all labels huge."""
    if labels.dtype.kind == "U":
        check_label_length(path, n_rows, [max(labels.tolist(), key=len)])


def _allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an array for embeddings: in memory, or in a file that has no name and ends with the array."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes <= MOST_BYTES_IN_MEMORY:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile() as file:
            # Otherwise a full disk would kill the process, without a message, when the mapping is written to.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            else:
                file.truncate(n_bytes)
            # The mapping keeps the file alive after its handle is closed.
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise DataError(
            f"{n_bytes / 1e9:.1f} GB of embeddings cannot be kept in {tempfile.gettempdir()} ({error.strerror}). Set "
            "the environment variable TMPDIR to a folder on a disk with that much space."
        ) from None
