"""Folders on this machine or in an object store: list, read and write their files by name.

`s3://`, `gs://`, `hdfs://` and `file://` are opened by pyarrow, other URLs by fsspec. A worker opens the URL again,
with the credentials of its own environment.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from uniot.errors import DataError, RunFolderError, import_optional
from uniot.images.decoding import UnreadableImage
from uniot.images.files import ImageFile
from uniot.io.files import MOST_IMAGE_BYTES, temporary_path

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# What is written there appears when it is complete, and not before. Elsewhere a temporary name is renamed.
_APPEAR_AT_ONCE = frozenset({"s3", "gs", "gcs"})
# Part of a URL that may be printed. A signed URL has its signature there.
_HARMLESS_QUERY = frozenset({"region", "endpoint_override", "scheme"})
_MOST_LETTERS = 4096
_MOST_NAMES = 100_000_000


def is_url(text: str) -> bool:
    """Return whether a text is a URL, such as `s3://bucket/photos`, and not a path."""
    return _URL.match(text) is not None


@dataclass(frozen=True)
class ListedFile:
    """A file of a folder: name below the folder, with /, size in bytes, and time of the last change in nanoseconds."""

    name: str
    size: int
    changed: int


@dataclass(frozen=True)
class Location:
    """A folder or a file, by its path or its URL. Use `Location.of`, which checks the text.

    Attributes:
        text: a URL, or an absolute path.
    """

    text: str

    @classmethod
    def of(cls, text: str | Path) -> Location:
        """Return the place of a path or a URL.

        Raises:
            DataError: the URL has a password, a key or a signature in it; the message does not repeat it.
        """
        text = str(text)
        if not is_url(text):
            return cls(str(Path(text).absolute()))
        parts = urlsplit(text)
        is_anonymous = parts.scheme == "gs" and parts.username == "anonymous" and parts.password is None
        others = sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} - _HARMLESS_QUERY)
        if ("@" in parts.netloc and not is_anonymous) or others or parts.fragment:
            raise DataError(
                f"a {parts.scheme}:// URL has credentials or options in it, which process lists and logs would show. "
                f"Give the place alone, with {', '.join(sorted(_HARMLESS_QUERY))} after ? if needed, and the "
                "credentials in the environment, such as AWS_ACCESS_KEY_ID or a role of the machine."
            )
        return cls(text.rstrip("/"))

    def __str__(self) -> str:
        return self.text

    @property
    def is_url(self) -> bool:
        """Return whether the place is given by a URL."""
        return is_url(self.text)

    @property
    def path(self) -> Path:
        """Return the path of a place that is not a URL."""
        assert not self.is_url
        return Path(self.text)

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """Return the filesystem of pyarrow, and the path in it."""
        fs = _pyarrow_fs()
        if not self.is_url:
            return fs.LocalFileSystem(), self.text
        try:
            found: tuple[Any, str] = fs.FileSystem.from_uri(_with_region(self.text))
        except (ValueError, NotImplementedError, OSError) as error:
            if "nrecognized filesystem" not in str(error) and "not built" not in str(error):
                raise self._unusable(error) from None
            found = self._opened_by_fsspec()
        return found[0], found[1].rstrip("/")

    @property
    def filesystem(self) -> Any:
        """Return the filesystem of pyarrow."""
        return self._opened[0]

    @property
    def inner(self) -> str:
        """Return the path in the filesystem."""
        return self._opened[1]

    def is_file(self) -> bool:
        """Return whether the place is a file; False for a folder and for nothing."""
        return bool(self._info("").type == _pyarrow_fs().FileType.File)

    def has(self, name: str) -> bool:
        """Return whether a file exists."""
        return bool(self._info(name).type == _pyarrow_fs().FileType.File)

    def entries(self, *, below: bool = True) -> list[ListedFile]:
        """Return the files of the folder, sorted by name; an empty list if the folder does not exist.

        Args:
            below: whether the files of its subfolders are among them.

        Raises:
            DataError: the folder cannot be listed, or a name leads out of it.
        """
        filesystem, base = self._opened
        try:
            found = filesystem.get_file_info(_pyarrow_fs().FileSelector(base, allow_not_found=True, recursive=below))
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None
        files = [one for one in found if one.is_file]
        if len(files) > _MOST_NAMES:
            raise DataError(f"{self} holds {len(files)} files; expected at most {_MOST_NAMES}. Give parts of it.")
        entries = [ListedFile(self._name(base, one.path), int(one.size or 0), int(one.mtime_ns or 0)) for one in files]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the bytes of a file.

        Raises:
            OSError: the file does not exist, is larger than `most_bytes`, or cannot be read.
        """
        with self.open(name) as file:
            if file.size() > most_bytes:
                raise OSError(f"larger than {most_bytes} bytes")
            return bytes(file.read())

    def open(self, name: str) -> Any:
        """Return a file for random access, a context manager of pyarrow; of the place itself without a name."""
        filesystem, base = self._opened
        return filesystem.open_input_file(f"{base}/{name}" if name else base)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path for a function that writes files atomically; the file appears at the place, as a whole.

        Raises:
            RunFolderError: the file cannot be written.
        """
        if not self.is_url:
            yield self.path / name
            return
        with tempfile.TemporaryDirectory(prefix="uniot-") as folder:
            path = Path(folder) / name
            yield path
            try:
                self._upload(path, name)
            except (OSError, ValueError) as error:
                raise RunFolderError(
                    f"{self}/{name} cannot be written ({error}). Check the place and your credentials; then run the "
                    "same command again."
                ) from None

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        filesystem, base = self._opened
        with suppress(FileNotFoundError):
            filesystem.delete_file(f"{base}/{name}")

    def _upload(self, file: Path, name: str) -> None:
        filesystem, base = self._opened
        at_once = urlsplit(self.text).scheme in _APPEAR_AT_ONCE
        target = f"{base}/{name}"
        written = target if at_once else f"{base}/{temporary_path(Path(name)).name}"
        if not at_once:
            filesystem.create_dir(base, recursive=True)
        with file.open("rb") as source, filesystem.open_output_stream(written) as stream:
            while block := source.read(1 << 24):
                stream.write(block)
        if not at_once:
            filesystem.move(written, target)

    def _info(self, name: str) -> Any:
        filesystem, base = self._opened
        try:
            return filesystem.get_file_info(f"{base}/{name}" if name else base)
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None

    def _name(self, base: str, path: str) -> str:
        """Return the name of a file below the folder; raise DataError if it is none."""
        name = path.removeprefix(f"{base}/")
        parts = name.split("/")
        if not path.startswith(f"{base}/") or len(name) > _MOST_LETTERS or {"", ".", ".."} & set(parts):
            raise DataError(
                f"{self} lists a file called {path[:80]!r}, whose name leads out of the folder or is longer than "
                f"{_MOST_LETTERS} letters. Rename it, or leave it out."
            )
        return name

    def _opened_by_fsspec(self) -> tuple[Any, str]:
        fs, scheme = _pyarrow_fs(), urlsplit(self.text).scheme
        try:
            fsspec = import_module("fsspec.core")
            filesystem, path = fsspec.url_to_fs(self.text)
        except (ImportError, ValueError) as error:
            raise DataError(
                f"{scheme}:// cannot be opened ({str(error).partition(chr(10))[0][:200]}). Give a folder, s3:// or "
                "gs://, or install the package that fsspec needs for it."
            ) from None
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), str(path)

    def _unusable(self, error: Exception) -> DataError:
        return DataError(
            f"{self} cannot be opened ({str(error).partition(chr(10))[0][:200]}). Check the place and your credentials."
        )


@dataclass(frozen=True, slots=True)
class StoredImage(ImageFile):
    """An image below a location that is given by a URL.

    Attributes:
        location: the collection; `name` is the name in it.
    """

    location: Location = field(default_factory=lambda: Location(""))

    def read(self) -> bytes:
        """Return the bytes of the image.

        Raises:
            UnreadableImage: the file no longer exists, or is larger than any image.
            DataError: the store does not answer; such an image is not skipped, because it may be intact.
        """
        try:
            return self.location.read(self.name, MOST_IMAGE_BYTES)
        except FileNotFoundError:
            raise UnreadableImage("no such file or directory") from None
        except OSError as error:
            if str(error).startswith("larger than"):
                raise UnreadableImage(str(error)) from None
            raise DataError(
                f"{self.location}/{self.name} cannot be read ({str(error)[:200]}). Run the same command again when the "
                "store answers; finished shards are kept."
            ) from None


def _with_region(url: str) -> str:
    """Return a URL for pyarrow: quoted, and with the region of the environment, which it would ask the store for."""
    parts = urlsplit(url)
    query, region = parts.query, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if parts.scheme == "s3" and region and "region=" not in query:
        query = f"{query}&region={quote(region)}" if query else f"region={quote(region)}"
    return parts._replace(path=quote(parts.path, safe="/%"), query=query).geturl()


def _pyarrow_fs() -> Any:
    return import_optional("pyarrow.fs", "images", "reading and writing Parquet files")
