"""Which images a collection has: those of a folder, with a folder per class where it is labelled, or of a list file.

No image is opened or looked up here, so that a million of them take seconds. One that is not there, or not what its
name says, is found out when it is decoded.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from uniot.data.image_folders import IMAGE_SUFFIXES, images_below, no_image, walk
from uniot.data.list_files import LIST_SUFFIXES, listed_images
from uniot.data.text import as_utf8
from uniot.errors import DataError

_A_LIST = f"a list file ({' '.join(LIST_SUFFIXES)})"


@dataclass(frozen=True, slots=True)
class ImageFile:
    r"""One image of a collection.

    Attributes:
        path: where to read it.
        name: how answers call it: its path below the folder given, with /, or as the list file writes it. It can
            always be written as UTF-8: bytes of a file's name that are no text appear as \udc80 to \udcff.
        label: its class; None where there is none.
    """

    path: Path
    name: str
    label: str | None = None


def labelled_images(where: Path) -> list[ImageFile]:
    """Every image of a labelled collection, each with its label.

    Args:
        where: a folder with a folder per class, in whatever folders the images lie below it; they come in the order
            of their names. Or a list file with labels; they come in its order. A class folder without images is no
            class.
    """
    kind = _kind(where)
    if kind == "folder":
        found = images_below(where)
        _check_class_folders(where, [name for name, _ in found])
        return [ImageFile(Path(path), name, name.partition("/")[0]) for name, path in found]
    if kind == "list":
        return _listed(where, with_labels=True)
    raise DataError(
        f"{where} {_CAME[kind]}. Give a folder that has a folder of images per class, or {_A_LIST} with a path and a "
        "label a line."
    )


def unlabelled_images(where: Path) -> list[ImageFile]:
    """Every image of a collection, without labels even where its folders or its list have some.

    Args:
        where: a folder, nested or flat; a list file; or a single image. The order is as of `labelled_images`.
    """
    kind = _kind(where)
    if kind == "folder":
        return [ImageFile(Path(path), name) for name, path in images_below(where)]
    if kind == "list":
        return _listed(where, with_labels=False)
    if kind == "image":
        return [ImageFile(where, as_utf8(where.name))]
    raise DataError(
        f"{where} {_CAME[kind]}. Give a folder of images, {_A_LIST} with a path a line, or an image "
        f"({' '.join(IMAGE_SUFFIXES)})."
    )


def stream_images(where: Path) -> Iterator[ImageFile]:
    """The images that `unlabelled_images` finds, one after another, in memory that does not grow with their number.

    Only a folder's order differs: its own images come before those of the folders in it. A list file is held whole.
    """
    if _kind(where) != "folder":
        yield from unlabelled_images(where)
        return
    found = (ImageFile(Path(path), as_utf8(name)) for name, path in walk(str(where)))
    first = next(found, None)
    if first is None:
        raise no_image(where)
    yield first
    yield from found


def given_images(paths: Sequence[Path]) -> list[ImageFile]:
    """Images that are given one by one, each called as it was given."""
    for path in paths:
        if not is_image(path):
            raise DataError(
                f"{path} {_CAME[_kind(path)]}. Several samples at a time must all be images "
                f"({' '.join(IMAGE_SUFFIXES)}); give a folder, {_A_LIST} or a file of embeddings alone."
            )
    return [ImageFile(path, as_utf8(path.as_posix())) for path in paths]


def labels_from_folders(files: Sequence[ImageFile]) -> list[str]:
    """The first folder of each name: its class, where folders are classes."""
    parts = [posixpath.normpath(file.name).split("/") for file in files]
    # A list file may name images by absolute paths, or above its own folder.
    loose = [file.name for file, at in zip(files, parts, strict=True) if len(at) == 1 or at[0] in ("", "..")]
    if loose:
        raise DataError(
            f"{len(loose)} of {len(files)} images lie in no folder that could be their label, {loose[0]!r} first. "
            f"Put each into a folder named by its class, or give the labels in {_A_LIST}."
        )
    return [at[0] for at in parts]


def labels_from_list(where: Path, files: Sequence[ImageFile]) -> list[str]:
    """The label that a list file gives to each of `files`, found by name, or else by path."""
    kind = _kind(where)
    if kind != "list":
        raise DataError(f"{where} {_CAME[kind]}. Give {_A_LIST} with a path and a label a line.")
    listed = _listed(where, with_labels=True)
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
            f"{where} has no label for {len(missing)} of {len(files)} images, {missing[0]!r} first. "
            "Name the images as predictions.csv does, or by their paths."
        )
    return labels


def holds_images(where: Path) -> bool:
    """Whether this is a folder, or by its suffix a list file or an image, there or not; not so embeddings."""
    return where.suffix.lower() in IMAGE_SUFFIXES + LIST_SUFFIXES or _kind(where) == "folder"


def is_image(where: Path) -> bool:
    """Whether this is a single image, by its suffix."""
    return _kind(where) == "image"


_Kind = Literal["folder", "list", "image", "other", "nothing"]
_CAME: dict[_Kind, str] = {
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
        raise DataError(f"{where} cannot be read ({error.strerror}). Give one that is yours to read.") from None
    suffix = where.suffix.lower()
    return "list" if suffix in LIST_SUFFIXES else "image" if suffix in IMAGE_SUFFIXES else "other"


def _check_class_folders(folder: Path, names: Sequence[str]) -> None:
    loose = [name for name in names if "/" not in name]
    if loose:
        raise DataError(
            f"{len(loose)} of {len(names)} images lie directly in {folder} and have no class, {loose[0]!r} first. "
            f"Put each into a folder named by its class, or give {_A_LIST} with labels."
        )


def _listed(where: Path, *, with_labels: bool) -> list[ImageFile]:
    return [
        ImageFile(where.parent / name, name, label) for name, label in listed_images(where, with_labels=with_labels)
    ]


def _absolute(path: Path) -> str:
    return os.path.normpath(path.absolute())
