"""The folder of an output in shards: `part-00000.parquet` and so on, and `_shards.json`, which says what they are of.

A shard without a readable image has no part. What could not be read stands in `_skipped.csv`, and in one such table per
shard, which is written before the part.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from uniot.distributed.locations import Location
from uniot.errors import DataError, RunFolderError
from uniot.images.embedding import Skipped, write_skipped
from uniot.io.csv_tables import CsvError, dict_reader
from uniot.io.files import MOST_SETTINGS_BYTES, MOST_TEXT_BYTES, parse_json, write_text
from uniot.io.shards import MANIFEST
from uniot.io.table_files import import_pyarrow

SKIPPED = "_skipped.csv"
FORMAT = "uniot-shards-1"
_PART = re.compile(r"part-(\d{5,9})\.parquet", re.ASCII)
_SKIPPED_OF = re.compile(r"_skipped-(\d{5,9})\.csv", re.ASCII)
_AT_A_TIME = 16
_TYPES = {"output": str, "input": dict, "settings": dict, "n_shards": int, "complete": bool, "format": str}


def part_name(number: int) -> str:
    """Return the name of the part of a shard."""
    return f"part-{number:05d}.parquet"


def skipped_name(number: int) -> str:
    """Return the name of the table of unreadable images of a shard."""
    return f"_skipped-{number:05d}.csv"


@dataclass(frozen=True)
class Manifest:
    """Content of `_shards.json`.

    Attributes:
        output: "embeddings" or "predictions".
        input: kind, place, number and digest of what is read.
        settings: everything else that the output depends on.
        n_shards: number of shards.
        complete: whether all shards are done.
        rows: rows of all parts together, when complete.
        skipped: images that could not be read, when complete.
        format: version of the layout.
    """

    output: str
    input: dict[str, Any]
    settings: dict[str, Any]
    n_shards: int
    complete: bool = False
    rows: int | None = None
    skipped: int | None = None
    format: str = FORMAT

    def difference(self, other: Manifest) -> str | None:
        """Return a phrase about what differs from another manifest; None if the two describe the same output."""
        if self.format != other.format:
            return f"the layout {other.format!r} instead of {self.format!r}"
        if self.output != other.output:
            return f"{other.output} instead of {self.output}"
        for what, mine, theirs in (("input", self.input, other.input), ("", self.settings, other.settings)):
            for name in sorted(mine.keys() | theirs.keys()):
                # The place may have another name now; its content counts.
                if name != "place" and mine.get(name) != theirs.get(name):
                    return f"another {what} ({name})" if what else f"another {name}"
        return None if self.n_shards == other.n_shards else "another size of the shards"


class ShardFolder:
    """An output in shards, for the process that divides the work.

    Args:
        location: the folder.
        manifest: what its parts are to be.
    """

    def __init__(self, location: Location, manifest: Manifest) -> None:
        self.location = location
        self.manifest = manifest

    def begin(self) -> None:
        """Write the manifest, or continue by the one that is there.

        Raises:
            DataError: the folder holds something else.
        """
        there = read_manifest(self.location)
        if there is None:
            others = [entry.name for entry in self.location.entries(below=False) if not entry.name.startswith(".")]
            if others:
                raise DataError(f"{self.location} is not empty: it holds {others[0]!r}. Give a new folder as --out.")
            self._write(self.manifest)
            return
        difference = self.manifest.difference(there)
        if difference is not None:
            raise DataError(
                f"{self.location} was begun with {difference}, so its shards cannot be continued. Give a new folder as "
                "--out, or delete this one."
            )
        self.manifest = there

    def done(self, counts: Sequence[int]) -> set[int]:
        """Return the numbers of the shards that are done.

        Args:
            counts: number of images or rows per shard, (n_shards,).
        """
        names = [entry.name for entry in self.location.entries(below=False)]
        parts = {int(found[1]) for name in names if (found := _PART.fullmatch(name))}
        tables = [int(found[1]) for name in names if (found := _SKIPPED_OF.fullmatch(name))]
        unreadable = {number for number in tables if number < len(counts) and number not in parts}
        return parts | {number for number in unreadable if len(self._skipped_of(number)) == counts[number]}

    def finish(self, counts: Sequence[int]) -> list[Skipped]:
        """Check that every row is there, write the table of unreadable images, and mark the output as complete.

        The tables of single shards stay: if a part is lost later, they say which rows are missing.

        Args:
            counts: number of images or rows per shard, (n_shards,).

        Returns:
            The images that could not be read.

        Raises:
            RunFolderError: a part is missing, damaged, or has another number of rows than its shard.
        """
        names = {entry.name for entry in self.location.entries(below=False)}
        skipped_by_shard = [
            self._skipped_of(number) if skipped_name(number) in names else [] for number in range(len(counts))
        ]
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            rows = list(threads.map(lambda number: self._n_rows(number, names), range(len(counts))))
        for number, (count, n_rows, skipped) in enumerate(zip(counts, rows, skipped_by_shard, strict=True)):
            if n_rows + len(skipped) != count:
                raise RunFolderError(
                    f"Expected {count - len(skipped)} rows in {self.location}/{part_name(number)}, got {n_rows}. "
                    "Delete it, and run the same command again."
                )
        all_skipped = [one for skipped in skipped_by_shard for one in skipped]
        write_skipped_to(self.location, SKIPPED, all_skipped)
        self.manifest = replace(self.manifest, complete=True, rows=sum(rows), skipped=len(all_skipped))
        self._write(self.manifest)
        return all_skipped

    def skipped(self) -> list[Skipped]:
        """Return the images that could not be read, of a complete output."""
        return _read_skipped(self.location, SKIPPED) if self.manifest.skipped else []

    def column(self, number: int, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return columns of a part by their names; empty ones if the shard has no part."""
        if not self.location.has(part_name(number)):
            return {name: [] for name in names}
        _, parquet = import_pyarrow()
        with self.location.open(part_name(number)) as file:
            table = parquet.read_table(file, columns=list(names))
        return {name: table.column(name).to_pylist() for name in names}

    def _n_rows(self, number: int, names: set[str]) -> int:
        if part_name(number) not in names:
            return 0
        pyarrow, parquet = import_pyarrow()
        try:
            with self.location.open(part_name(number)) as file, parquet.ParquetFile(file) as table:
                return int(table.metadata.num_rows)
        except (pyarrow.ArrowException, OSError) as error:
            raise RunFolderError(
                f"{self.location}/{part_name(number)} is damaged ({error}). Delete it, and run the same command again."
            ) from None

    def _skipped_of(self, number: int) -> list[Skipped]:
        return _read_skipped(self.location, skipped_name(number))

    def _write(self, manifest: Manifest) -> None:
        with self.location.writing(MANIFEST) as path:
            write_text(path, json.dumps(asdict(manifest), indent=1) + "\n")


def write_skipped_to(location: Location, name: str, skipped: Sequence[Skipped]) -> None:
    """Write path and reason of unreadable images as a CSV table; if there are none, delete an earlier one."""
    if not skipped:
        if location.has(name):
            location.delete(name)
        return
    with location.writing(name) as path:
        write_skipped(path, skipped)


def read_manifest(location: Location) -> Manifest | None:
    """Return the manifest of a folder; None if it has none.

    Raises:
        RunFolderError: the manifest is damaged.
    """
    try:
        content = parse_json(location.read(MANIFEST, MOST_SETTINGS_BYTES))
        if not all(isinstance(content[name], kind) for name, kind in _TYPES.items()):
            raise TypeError("a part of it has another type")
        found = Manifest(**content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(
            f"{location}/{MANIFEST} cannot be read ({str(error)[:200]}). Give a new folder as --out, or delete this "
            "one."
        ) from None
    return found


def _read_skipped(location: Location, name: str) -> list[Skipped]:
    try:
        text = location.read(name, MOST_TEXT_BYTES).decode("utf-8")
        return [Skipped(str(row["path"]), str(row["reason"])) for row in dict_reader(io.StringIO(text, newline=""))]
    except (OSError, ValueError, KeyError, CsvError) as error:
        raise RunFolderError(
            f"{location}/{name} cannot be read ({error}). Delete it, and run the command again."
        ) from None
