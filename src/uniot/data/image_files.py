"""Which images a collection has: those of a folder, with a folder per class where it is labelled, or of a list file.

List files:
    .csv, .tsv: the first line names the columns; path (or image, file, filename), and label (or class, category).
    .txt, .lst: `path label` a line, or the path alone; both may have spaces, as long as the path ends like an image.
        Empty lines and lines that begin with # are left out.
Paths in a list are relative to its folder, or absolute. The text is UTF-8.

No image is opened or looked up here, so that a million of them take seconds. One that is not there, or not what its
name says, is found out when it is decoded.
"""

from __future__ import annotations

import csv
import io
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from uniot.errors import DataError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
LIST_SUFFIXES = (".txt", ".lst", ".csv", ".tsv")

_PATH_COLUMNS = ("path", "image", "file", "filename")
_LABEL_COLUMNS = ("label", "class", "category")
_PATH_AND_LABEL = re.compile(rf"(.*(?:{'|'.join(map(re.escape, IMAGE_SUFFIXES))}))(?:\s+(\S.*))?", re.IGNORECASE)
_A_LIST = f"a list file ({' '.join(LIST_SUFFIXES)})"


_ENTRIES_AT_ONCE = 4096


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
        found = _images_below(where)
        _check_class_folders(where, [name for name, _ in found])
        return [ImageFile(Path(path), name, name.partition("/")[0]) for name, path in found]
    if kind == "list":
        return _listed_images(where, with_labels=True)
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
        return [ImageFile(Path(path), name) for name, path in _images_below(where)]
    if kind == "list":
        return _listed_images(where, with_labels=False)
    if kind == "image":
        return [ImageFile(where, _as_text(where.name))]
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
    found = (ImageFile(Path(path), _as_text(name)) for name, path in _walk(str(where)))
    first = next(found, None)
    if first is None:
        raise _no_image(where)
    yield first
    yield from found


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
    listed = _listed_images(where, with_labels=True)
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


def is_list(where: Path) -> bool:
    """Whether this is a list file, by its suffix."""
    return where.suffix.lower() in LIST_SUFFIXES


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


def _images_below(folder: Path) -> list[tuple[str, str]]:
    """Name and path of every image, sorted by code points: alike on every system and in every language."""
    found = sorted((_as_text(name), path) for name, path in _walk(str(folder)))
    if not found:
        raise _no_image(folder)
    return found


def _no_image(folder: Path) -> DataError:
    return DataError(
        f"{folder} holds no image. Files with these suffixes are looked for, in all its folders: "
        f"{' '.join(IMAGE_SUFFIXES)}."
    )


def _walk(top: str) -> Iterator[tuple[str, str]]:
    """Name below `top` and path of every image that is not hidden, in bounded memory.

    The images of a folder come before those of the folders in it, by name; in a very large folder in blocks, each by
    name. Links are followed, but not back into a folder that the way there leads through.
    """
    waiting: list[tuple[str, str, tuple[tuple[int, int], ...]]] = [(top, "", ())]
    while waiting:
        folder, prefix, way = waiting.pop()
        try:
            status = Path(folder).stat()
            here = (status.st_dev, status.st_ino)
            if here in way:
                continue
            below = []
            with os.scandir(folder) as scanned:
                entries = iter(scanned)
                while block := sorted(islice(entries, _ENTRIES_AT_ONCE), key=lambda entry: entry.name):
                    for entry in block:
                        if entry.name.startswith(".") or entry.name == "__MACOSX":
                            continue
                        if _is_folder(entry):
                            below.append((entry.path, f"{prefix}{entry.name}/", (*way, here)))
                        elif entry.name.lower().endswith(IMAGE_SUFFIXES) and _is_for_decoding(entry):
                            yield prefix + entry.name, entry.path
            waiting += sorted(below, reverse=True)
        except OSError as error:
            raise DataError(
                f"the folder {folder} cannot be read ({error.strerror}). Make it readable, or take it out of {top}."
            ) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to where nobody may look
        return False


def _is_for_decoding(entry: os.DirEntry[str]) -> bool:
    """Files, and broken links, which decoding reports; no pipes, at which it would wait for ever."""
    try:
        return entry.is_file() or not Path(entry.path).exists()
    except OSError:
        return True


def _check_class_folders(folder: Path, names: Sequence[str]) -> None:
    loose = [name for name in names if "/" not in name]
    if loose:
        raise DataError(
            f"{len(loose)} of {len(names)} images lie directly in {folder} and have no class, {loose[0]!r} first. "
            f"Put each into a folder named by its class, or give {_A_LIST} with labels."
        )


def _listed_images(where: Path, *, with_labels: bool) -> list[ImageFile]:
    """The images of a list, each once, where it is named first."""
    rows = _table_rows(where) if where.suffix.lower() in (".csv", ".tsv") else _text_rows(where)
    folder = where.parent
    found: dict[str, tuple[int, ImageFile]] = {}
    for line, name, label in rows:
        if with_labels and not label:
            raise DataError(
                f"line {line} of {where} has no label for {name!r}. Write a path that ends in .jpg, .png or the like, "
                "a space and the label; or a .csv with the columns path and label."
            )
        file = ImageFile(folder / name, name, label if with_labels else None)
        first_line, first = found.setdefault(os.path.normpath(file.path), (line, file))
        if first.label != file.label:
            raise DataError(
                f"{where} gives {name!r} two labels: {first.label!r} in line {first_line} and {label!r} in line "
                f"{line}. Keep one of them."
            )
    if not found:
        raise DataError(f"{where} lists no image. Write the path of one a line.")
    return [file for _, file in found.values()]


def _text_rows(where: Path) -> Iterator[tuple[int, str, str | None]]:
    for number, line in enumerate(_text(where).split("\n"), start=1):
        line = line.strip()
        if line and not line.startswith("#"):
            # As much as ends like an image is the path; a file may be called `a.jpg copy.jpg`.
            found = _PATH_AND_LABEL.fullmatch(line)
            yield (number, found[1], found[2]) if found else (number, line, None)


def _table_rows(where: Path) -> Iterator[tuple[int, str, str | None]]:
    delimiter, called = ("\t", "tabs") if where.suffix.lower() == ".tsv" else (",", "commas")
    rows = csv.reader(io.StringIO(_text(where), newline=""), delimiter=delimiter)
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        path_at, label_at = _column(header, _PATH_COLUMNS), _column(header, _LABEL_COLUMNS)
        if path_at is None:
            raise DataError(
                f"line 1 of {where} has {', '.join(map(repr, header)) or 'nothing'} where names of columns are needed: "
                f"path, and label if there are any. Write them, separated by {called}."
            )
        for row in rows:
            path, label = _field(row, path_at), _field(row, label_at)
            if path:
                yield rows.line_num, path, label
            elif any(row):
                raise DataError(f"line {rows.line_num} of {where} has no path. Write one, or take the line out.")
    except csv.Error as error:
        raise DataError(
            f"line {rows.line_num} of {where} cannot be read ({error}). Check its quotation marks."
        ) from None


def _column(header: Sequence[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _field(row: Sequence[str], at: int | None) -> str | None:
    return row[at].strip() or None if at is not None and at < len(row) else None


def _text(where: Path) -> str:
    try:
        data = where.read_bytes()
    except OSError as error:
        raise DataError(f"{where} cannot be read ({error.strerror}). Give one that is yours to read.") from None
    try:
        text = data.decode("utf-8-sig")
        wrong_at = data.find(b"\0")  # UTF-16 often passes for UTF-8 but for these
    except UnicodeDecodeError as error:
        text, wrong_at = "", error.start
    if wrong_at >= 0:
        line = data.count(b"\n", 0, wrong_at) + 1
        raise DataError(f"line {line} of {where} is not UTF-8 text. Save the list as UTF-8.")
    return text


def _as_text(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _absolute(path: Path) -> str:
    return os.path.normpath(path.absolute())
