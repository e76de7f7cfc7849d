"""Find the images of a collection: a folder (with one folder per class if it is labelled), a list file, or an image.

No image is opened here, so that a million of them take seconds. A missing or damaged image is reported when it is
decoded.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from uniot.errors import DataError
from uniot.images.decoding import IMAGE_SUFFIXES, memory_for_encoded, read_image
from uniot.images.lists import LIST_SUFFIXES, embedding_columns, listed_images
from uniot.io.columns import Columns
from uniot.io.shards import is_shard_folder
from uniot.io.text import as_utf8

_A_LIST = f"a list file ({' '.join(LIST_SUFFIXES)})"
_ENTRIES_AT_ONCE = 4096
_USUAL = Columns()


@dataclass(frozen=True, slots=True)
class ImageFile:
    r"""An image of a collection.

    Attributes:
        path: path of the file.
        name: name in predictions: the path below the given folder, with /, or as the list file writes it. It can
            always be encoded as UTF-8: undecodable bytes of a file name appear as \udc80 to \udcff.
        label: class; None if unlabelled.
    """

    path: Path
    name: str
    label: str | None = None

    def read(self) -> bytes:
        """Return the bytes of the image; raise UnreadableImage if they cannot be read."""
        return read_image(self.path)

    @contextmanager
    def opened(self) -> Iterator[bytes]:
        """Yield the bytes of the image when they fit in the memory that threads share; raise as `read` does."""
        with memory_for_encoded(self.path):
            yield self.read()


def labelled_images(where: Path, columns: Columns = _USUAL) -> list[ImageFile]:
    """Return the images of a labelled collection with their labels.

    Args:
        where: a folder with one folder per class, below which the images may lie at any depth; or a list file with
            labels. A class folder without images is ignored.
        columns: columns of a list file, if they are not called path and label.

    Returns:
        The images; those of a folder sorted by name, those of a list in its order.

    Raises:
        DataError: there is no image, or an image has no label.
    """
    kind = _kind(where)
    if kind == "folder":
        found = _images_below(where)
        loose = [name for name, _ in found if "/" not in name]
        if loose:
            raise DataError(
                f"{len(loose)} of {len(found)} images lie directly in {where} and have no class, the first is "
                f"{loose[0]!r}. Put each into a folder named by its class, or give {_A_LIST} with labels."
            )
        return [ImageFile(Path(path), name, name.partition("/")[0]) for name, path in found]
    if kind == "list":
        return _listed(where, columns, with_labels=True)
    raise DataError(
        f"{where} {_DESCRIPTION[kind]}. Give a folder that has a folder of images per class, or {_A_LIST} with a path "
        "and a label per line."
    )


def classes_one_folder_below(where: Path, files: Sequence[ImageFile]) -> Path | None:
    """Return the only class folder of a labelled folder if its own subfolders look like classes; None otherwise.

    Args:
        where: labelled collection.
        files: its images.
    """
    if _kind(where) != "folder" or len({file.label for file in files}) != 1:
        return None
    parts = [file.name.split("/") for file in files]
    # Each image is in a subfolder, and there are at least two of these.
    is_nested = min(map(len, parts)) > 2 and len({part[1] for part in parts}) > 1
    return where / parts[0][0] if is_nested else None


def unlabelled_images(where: Path, columns: Columns = _USUAL) -> list[ImageFile]:
    """Return the images of a collection without labels, even if its folders or its list provide some.

    Args:
        where: a folder, nested or flat; a list file; or a single image.
        columns: columns of a list file, if they are not called path and label.

    Returns:
        The images; those of a folder sorted by name, those of a list in its order.

    Raises:
        DataError: there is no image.
    """
    kind = _kind(where)
    if kind == "folder":
        return [ImageFile(Path(path), name) for name, path in _images_below(where)]
    if kind == "list":
        return _listed(where, columns, with_labels=False)
    if kind == "image":
        return [ImageFile(where, as_utf8(where.name))]
    raise DataError(
        f"{where} {_DESCRIPTION[kind]}. Give a folder of images, {_A_LIST} with one path per line, or an image "
        f"({' '.join(IMAGE_SUFFIXES)})."
    )


def stream_images(where: Path, columns: Columns = _USUAL) -> Iterator[ImageFile]:
    """Yield the images of `unlabelled_images` in bounded memory.

    Only the order within a folder differs: its own images come before those of its subfolders. A list file is read
    into memory as a whole.
    """
    if _kind(where) != "folder":
        yield from unlabelled_images(where, columns)
        return
    found = (ImageFile(Path(path), as_utf8(name)) for name, path in files_below(str(where)))
    first = next(found, None)
    if first is None:
        raise _no_image(where)
    yield first
    yield from found


def check_list(where: Path, columns: Columns = _USUAL) -> None:
    """Raise DataError if a path is a list file that lists no image, such as a note; other paths pass."""
    if _kind(where) != "list":
        return
    names = [file.name for file in unlabelled_images(where, columns)]
    # A missing image is reported when it is decoded; here it is enough that one entry may be an image.
    if not any(name.lower().endswith(IMAGE_SUFFIXES) or os.access(where.parent / name, os.F_OK) for name in names):
        raise DataError(
            f"{where} is read as a list of images, and none of its lines is the path of one; the first is "
            f"{names[0][:80]!r}. Write one path per line, absolute or relative to the folder of the list."
        )


def given_images(paths: Sequence[Path]) -> list[ImageFile]:
    """Return images that are given one by one, each named by the given path."""
    for path in paths:
        if not is_image(path):
            raise DataError(
                f"{path} {_DESCRIPTION[_kind(path)]}. Several samples at a time must all be images "
                f"({' '.join(IMAGE_SUFFIXES)}); give a folder, {_A_LIST} or a file of embeddings alone."
            )
    return [ImageFile(path, as_utf8(path.as_posix())) for path in paths]


def labels_from_folders(files: Sequence[ImageFile]) -> list[str]:
    """Return the first folder of each name as its label, (n_files,)."""
    parts = [posixpath.normpath(file.name).split("/") for file in files]
    # A list file may contain absolute paths, or paths above its own folder.
    loose = [file.name for file, at in zip(files, parts, strict=True) if len(at) == 1 or at[0] in ("", "..")]
    if loose:
        raise DataError(
            f"{len(loose)} of {len(files)} images lie in no folder that could be their label, the first is "
            f"{loose[0]!r}. Put each into a folder named by its class, or give the labels in {_A_LIST}."
        )
    return [at[0] for at in parts]


def labels_from_list(where: Path, files: Sequence[ImageFile], columns: Columns = _USUAL) -> list[str]:
    """Return the labels that a list file gives to images, (n_files,), matched by name or else by path."""
    kind = _kind(where)
    if kind != "list":
        raise DataError(f"{where} {_DESCRIPTION[kind]}. Give {_A_LIST} with a path and a label per line.")
    listed = _listed(where, columns, with_labels=True)
    by_name = {posixpath.normpath(file.name): file.label for file in listed}
    by_path = {_absolute(file.path): file.label for file in listed}
    labels, missing = [], []
    for file in files:
        label = by_name.get(posixpath.normpath(file.name)) or by_path.get(_absolute(file.path))
        if label is None:
            missing.append(file.name)
        else:
            labels.append(label)
    if missing:
        raise DataError(
            f"{where} has no label for {len(missing)} of {len(files)} images, the first is {missing[0]!r}. "
            "Name the images as in predictions.csv, or give their paths."
        )
    return labels


def holds_images(where: Path, columns: Columns = _USUAL) -> bool:
    """Return whether a path is a folder, a list file or an image by its suffix.

    A folder of Parquet files is none, nor is a table of embeddings, nor one of which a column of texts was chosen.
    """
    suffix = where.suffix.lower()
    if suffix in LIST_SUFFIXES and not where.is_dir():
        return columns.text is None and not embedding_columns(where, columns)
    if suffix in IMAGE_SUFFIXES + LIST_SUFFIXES:
        return True
    return _kind(where) == "folder" and not is_shard_folder(where)


def is_image(where: Path) -> bool:
    """Return whether a path is an existing file with the suffix of an image."""
    return _kind(where) == "image"


_Kind = Literal["folder", "list", "image", "other", "nothing"]
_DESCRIPTION: dict[_Kind, str] = {
    "folder": "is a folder",
    "list": "is a list file",
    "image": "is a single image",
    "other": "is a file of another kind",
    "nothing": "does not exist",
}


def _kind(where: Path) -> _Kind:
    try:
        if where.is_dir():
            return "folder"
        if not where.exists():
            return "nothing"
    except OSError as error:
        raise DataError(f"{where} cannot be read ({error.strerror}). Give one that you may read.") from None
    suffix = where.suffix.lower()
    return "list" if suffix in LIST_SUFFIXES else "image" if suffix in IMAGE_SUFFIXES else "other"


def _listed(where: Path, columns: Columns, *, with_labels: bool) -> list[ImageFile]:
    found = listed_images(where, with_labels=with_labels, columns=columns)
    return [ImageFile(where.parent / name, name, label) for name, label in found]


def _absolute(path: Path) -> str:
    return os.path.normpath(path.absolute())


def _images_below(folder: Path) -> list[tuple[str, str]]:
    """Return name and path of every image, sorted by code points: the same order on every system."""
    found = sorted((as_utf8(name), path) for name, path in files_below(str(folder)))
    if not found:
        raise _no_image(folder)
    return found


def _no_image(folder: Path) -> DataError:
    return DataError(
        f"{folder} holds no image. Put images with these suffixes into it or its subfolders: "
        f"{' '.join(IMAGE_SUFFIXES)}."
    )


def files_below(top: str, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> Iterator[tuple[str, str]]:
    """Yield name below `top` and path of every file with one of the suffixes that is not hidden, in bounded memory.

    The files of a folder come before those of its subfolders, sorted by name; in a very large folder only within
    blocks. Links are followed, except into a folder above the link.
    """
    waiting: list[tuple[str, str, tuple[tuple[int, int], ...]]] = [(top, "", ())]
    while waiting:
        folder, prefix, parents = waiting.pop()
        try:
            status = Path(folder).stat()
            here = (status.st_dev, status.st_ino)
            if here in parents:
                continue
            below = []
            with os.scandir(folder) as scanned:
                entries = iter(scanned)
                while block := sorted(islice(entries, _ENTRIES_AT_ONCE), key=lambda entry: entry.name):
                    for entry in block:
                        if entry.name.startswith(".") or entry.name == "__MACOSX":
                            continue
                        if _is_folder(entry):
                            below.append((entry.path, f"{prefix}{entry.name}/", (*parents, here)))
                        elif entry.name.lower().endswith(suffixes) and _is_for_decoding(entry):
                            yield prefix + entry.name, entry.path
            waiting += sorted(below, reverse=True)
        except OSError as error:
            raise DataError(
                f"the folder {folder} cannot be read ({error.strerror}). Make it readable, or move it out of {top}."
            ) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder without permission
        return False


def _is_for_decoding(entry: os.DirEntry[str]) -> bool:
    """Return whether to decode an entry: files, and broken links, which are reported then; pipes would block."""
    try:
        return entry.is_file() or not Path(entry.path).exists()
    except OSError:
        return True
