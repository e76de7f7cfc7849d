"""The images below a folder, by their suffixes; none is opened, and none looked up on its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from uniot.data.text import as_utf8
from uniot.errors import DataError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")

_ENTRIES_AT_ONCE = 4096


def images_below(folder: Path) -> list[tuple[str, str]]:
    """Name and path of every image, sorted by code points: alike on every system and in every language."""
    found = sorted((as_utf8(name), path) for name, path in walk(str(folder)))
    if not found:
        raise no_image(folder)
    return found


def no_image(folder: Path) -> DataError:
    """The error for a folder in which nothing was found."""
    return DataError(
        f"{folder} holds no image. Files with these suffixes are looked for, in all its folders: "
        f"{' '.join(IMAGE_SUFFIXES)}."
    )


def walk(top: str) -> Iterator[tuple[str, str]]:
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


def real_folders(top: Path) -> set[Path]:
    """Return where the images of a folder lie: the folder itself and those that links in it lead to, resolved."""
    found: set[Path] = set()
    waiting = [top]
    while waiting:
        here = waiting.pop().resolve()
        if here not in found:
            found.add(here)
            parents = ((Path(parent), names) for parent, names, _ in os.walk(here))
            waiting += [parent / name for parent, names in parents for name in names if (parent / name).is_symlink()]
    return found


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
