"""Divide images or Parquet embeddings into shards, the same for every listing of the same files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from uniot.distributed.locations import ListedFile, Location, StoredImage
from uniot.errors import DataError, SettingsError, UniotError
from uniot.images.decoding import IMAGE_SUFFIXES
from uniot.images.files import (
    ImageFile,
    files_below,
    holds_images,
    labelled_images,
    labels_from_folders,
    unlabelled_images,
)
from uniot.io.array_files import not_enough_memory
from uniot.io.files import MOST_SETTINGS_BYTES, parse_json
from uniot.io.shards import MANIFEST, check_complete
from uniot.io.table_files import ParquetTable, import_pyarrow, unreadable_parquet
from uniot.io.text import as_utf8, listed

IMAGES_PER_SHARD = 1024
ROWS_PER_SHARD = 1 << 16
_AT_A_TIME = 16
_STORE_BUFFER_BYTES = 1 << 23

Kind = Literal["images", "embeddings"]


@dataclass(frozen=True)
class RowGroups:
    """Some row groups of a Parquet file.

    Attributes:
        name: name of the file in its folder; empty if the place is the file.
        groups: numbers of the row groups.
        first_row: number of the first of these rows among all rows of the input.
    """

    name: str
    groups: tuple[int, ...]
    first_row: int


@dataclass(frozen=True)
class Shard:
    """A part of the input that becomes one file of the output.

    Attributes:
        number: number among all shards.
        count: number of images or rows.
        content: images, or the rows of a Parquet file.
    """

    number: int
    count: int
    content: tuple[ImageFile, ...] | RowGroups

    def to_json(self) -> str:
        """Return the shard as ASCII text, in which undecodable bytes of a file name are escaped."""
        if isinstance(self.content, RowGroups):
            content: Any = [self.content.name, self.content.groups, self.content.first_row]
        else:
            content = [(str(file.path), file.name, file.label) for file in self.content]
        return json.dumps([self.number, self.count, content])

    @classmethod
    def from_json(cls, text: str, kind: Kind, location: Location) -> Shard:
        """Return the shard that `to_json` wrote; `place` is the input."""
        number, count, content = parse_json(text)
        if kind == "embeddings":
            return cls(number, count, RowGroups(content[0], tuple(content[1]), content[2]))
        if location.is_url:
            return cls(
                number, count, tuple(StoredImage(Path(name), name, label, location) for _, name, label in content)
            )
        return cls(number, count, tuple(ImageFile(Path(path), name, label) for path, name, label in content))


@dataclass(frozen=True)
class ShardedInput:
    """An input in shards.

    Attributes:
        location: where it is.
        kind: "images" or "embeddings".
        shards: its shards, in order.
        digest: SHA-256 of the listing: names, labels, sizes and times of the last change.
    """

    location: Location
    kind: Kind
    shards: tuple[Shard, ...]
    digest: str

    @property
    def count(self) -> int:
        """Return the number of images or rows."""
        return sum(shard.count for shard in self.shards)


def sharded_images(location: Location, *, labelled: bool = False, per_shard: int | None = None) -> ShardedInput:
    """List the images of a collection, sorted by name, and divide them into shards.

    Args:
        location: a folder, a URL of one, a list file or an image.
        labelled: whether the first folder of a name, or the list file, is the label.
        per_shard: images per shard; `IMAGES_PER_SHARD` if None.

    Raises:
        DataError: there is no image, or an image has no label.
    """
    size = IMAGES_PER_SHARD if per_shard is None else per_shard
    if not 1 <= size <= IMAGES_PER_SHARD:
        raise SettingsError(f"per_shard is {size}. Give a number from 1 to {IMAGES_PER_SHARD}.")
    if location.is_url:
        return _of_images(location, *_stored_images(location, location.entries(), labelled=labelled), size)
    if not holds_images(location.path):
        raise DataError(f"{location} is not a folder of images, a list file or an image. Give one of these.")
    files = labelled_images(location.path) if labelled else unlabelled_images(location.path)
    # Workers may have another working folder.
    files = [replace(file, path=file.path.absolute()) for file in files]
    return _of_images(location, files, (_size_and_time(file.path) for file in files), size)


def sharded_input(location: Location, *, per_shard: int | None = None) -> ShardedInput:
    """Divide images, or the row groups of Parquet files, into shards, whichever the place holds.

    Raises:
        DataError: the place holds neither of them, or both.
    """
    if location.text.lower().endswith(".parquet") and location.is_file():
        about = location.filesystem.get_file_info(location.inner)
        return _of_tables(location, [ListedFile("", int(about.size or 0), int(about.mtime_ns or 0))])
    if not location.is_url and not location.path.is_dir():
        if not location.path.exists():
            raise DataError(f"{location} does not exist. Give a folder of images or of Parquet files of embeddings.")
        if not holds_images(location.path):
            raise DataError(
                f"{location} is neither images nor a Parquet file, and --engine ray reads no other embeddings. Give a "
                "folder of images or of .parquet files, or leave out --engine."
            )
        return sharded_images(location, per_shard=per_shard)
    if location.is_url:
        entries = location.entries()
        tables = [entry for entry in entries if entry.name.lower().endswith(".parquet")]
        images = [entry.name for entry in entries if _is_image(entry.name)]
    else:
        tables = _tables_below(location.path)
        images = [name for name, _ in islice(files_below(location.text), 1)]
    tables = [entry for entry in tables if not _is_hidden(entry.name, "_")]
    if not tables:
        return sharded_images(location, per_shard=per_shard)
    if images:
        raise DataError(
            f"{location} holds Parquet files, such as {tables[0].name!r}, and images, such as {images[0]!r}. Give a "
            "folder with one of the two."
        )
    return _of_tables(location, tables)


def _tables_below(folder: Path) -> list[ListedFile]:
    """Return the Parquet files of a folder of this machine, sorted by name."""
    entries = []
    for name, path in files_below(str(folder), (".parquet",)):
        if as_utf8(name) != name:
            raise DataError(f"{as_utf8(name)} in {folder} has a name that is not UTF-8. Rename it.")
        entries.append(ListedFile(name, *_size_and_time(Path(path))))
    return sorted(entries, key=lambda entry: entry.name)


def _of_images(
    location: Location, files: Sequence[ImageFile], status: Iterable[tuple[int, int]], size: int
) -> ShardedInput:
    digest = hashlib.sha256()
    for file, (n_bytes, changed) in zip(files, status, strict=True):
        digest.update(f"{as_utf8(file.name)}\0{n_bytes}\0{changed}\0{as_utf8(file.label or '')}\n".encode())
    parts = [tuple(files[start : start + size]) for start in range(0, len(files), size)]
    shards = tuple(Shard(number, len(part), part) for number, part in enumerate(parts))
    return ShardedInput(location, "images", shards, digest.hexdigest())


def _stored_images(
    location: Location, entries: Sequence[ListedFile], *, labelled: bool
) -> tuple[list[ImageFile], list[tuple[int, int]]]:
    """Return the images among the entries of a folder, and size and time of each."""
    found = [entry for entry in entries if _is_image(entry.name)]
    if not found:
        raise DataError(f"{location} holds no image and no Parquet file. Give a place with {' '.join(IMAGE_SUFFIXES)}.")
    files: list[ImageFile] = [StoredImage(Path(entry.name), entry.name, None, location) for entry in found]
    if labelled:
        labels = labels_from_folders(files)
        files = [replace(file, label=label) for file, label in zip(files, labels, strict=True)]
    return files, [(entry.size, entry.changed) for entry in found]


def _of_tables(location: Location, tables: Sequence[ListedFile]) -> ShardedInput:
    digest = hashlib.sha256()
    for table in tables:
        digest.update(f"{as_utf8(table.name)}\0{table.size}\0{table.changed}\n".encode())
    # Of a store, each footer takes as long as a request.
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        found = list(threads.map(partial(_layout, location), [table.name for table in tables]))
    shards: list[Shard] = []
    first_row = 0
    for table, (groups, columns) in zip(tables, found, strict=True):
        if columns != found[0][1]:
            raise DataError(
                f"{location}/{table.name} has its numbers in the columns {listed(columns)} and {tables[0].name} in "
                f"{listed(found[0][1])}. Give the same columns in the same order."
            )
        for numbers in _together(groups):
            count = sum(groups[number] for number in numbers)
            shards.append(Shard(len(shards), count, RowGroups(table.name, numbers, first_row)))
            first_row += count
    if not first_row:
        raise DataError(f"{location} holds Parquet files without rows. Give at least one embedding.")
    check_complete(location, _manifest_of(location), first_row)
    return ShardedInput(location, "embeddings", tuple(shards), digest.hexdigest())


def _manifest_of(location: Location) -> bytes | None:
    """Return what the folder says of itself if it is the output of a command in shards; None otherwise."""
    try:
        return location.read(MANIFEST, MOST_SETTINGS_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(
            f"{location}/{MANIFEST} cannot be read ({error}). Check the place and your credentials."
        ) from None


@contextmanager
def opened_table(location: Location, name: str) -> Iterator[ParquetTable]:
    """Open a Parquet file of a place for the block, in which everything that is wrong with it is a DataError."""
    pyarrow, _ = import_pyarrow()
    where = f"{location}/{name}" if name else str(location)
    try:
        with ExitStack() as files:
            file = files.enter_context(location.open(name))
            if not location.is_url:
                yield ParquetTable(file, where)
                return
            # Each read of a store takes as long as a request, so that much is read at a time.
            headers = BufferedReader(files.enter_context(location.open(name)), _STORE_BUFFER_BYTES)
            yield ParquetTable(file, where, cast("BinaryIO", headers), _STORE_BUFFER_BYTES)
    except UniotError:
        raise
    except MemoryError as error:
        raise DataError(not_enough_memory(where, error)) from None
    except (pyarrow.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError(unreadable_parquet(where, error)) from None


def _layout(location: Location, name: str) -> tuple[list[int], list[str]]:
    """Return the numbers of rows of the row groups of a Parquet file, and the columns of its embeddings."""
    with opened_table(location, name) as table:
        columns, _ = table.vector_columns
        table.check_announced()
        return table.group_rows, columns


def _together(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield numbers of consecutive row groups with at most `ROWS_PER_SHARD` rows together, or one larger group."""
    waiting: list[int] = []
    for number, size in enumerate(sizes):
        if waiting and sum(sizes[one] for one in waiting) + size > ROWS_PER_SHARD:
            yield tuple(waiting)
            waiting = []
        if size:
            waiting.append(number)
    if waiting:
        yield tuple(waiting)


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES) and not _is_hidden(name)


def _is_hidden(name: str, *others: str) -> bool:
    return any(part.startswith((".", *others)) or part == "__MACOSX" for part in name.split("/"))


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # a broken link, which is reported when it is read
        return -1, -1
    return status.st_size, status.st_mtime_ns
