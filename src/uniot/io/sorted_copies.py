"""Copy images into folders by predicted class and group."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import numpy as np

from uniot.errors import DataError, RunFolderError
from uniot.io.files import open_regular, replacing
from uniot.io.visible import HIDDEN

if TYPE_CHECKING:
    from uniot.io.predictions import Prediction

_UNSAFE = re.compile(rf'[<>:"/\\|?*{HIDDEN}]')
_OF_UNKNOWN = re.compile(r"unknown(-group-\d+)?", re.IGNORECASE)
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE)
# File systems allow 255 bytes, and a temporary name is longer than the final one.
_STEM_BYTES, _SUFFIX_BYTES = 180, 20


class SortedCopies:
    """Copies of images in `out/<class>/`, `out/unknown-group-03/` (or the group's name) and `out/unknown/` (no group).

    Copies have the file names of the images, without their folders; a number is added to a name that is taken. Files
    in `out` are never changed, and an identical copy is not made again, so that a second call copies only what is
    missing.

    Args:
        out: destination; created when the first image is copied.
        classes: source classes, text or integers, (n_classes,).
        collections: folders of which all images are samples; `out` must not overlap them.
        group_names: names of groups, by group number.

    Attributes:
        had_files: whether `out` contained files before.
    """

    def __init__(
        self,
        out: Path,
        classes: np.ndarray,
        *,
        collections: Sequence[Path] = (),
        group_names: Mapping[int, str] | None = None,
    ) -> None:
        self._taken = check_destination(out, collections)
        self.had_files = out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir())
        self._out = out
        groups = group_names or {}
        names = _folder_names([*map(str, classes.tolist()), *groups.values()])
        self._class_folders = names[: len(classes)]
        self._group_folders = dict(zip(groups, names[len(classes) :], strict=True))
        self._checked: set[Path] = set()
        # The number to try first for the next file of this name; a name that is not a key is free.
        self._next: dict[Path, int] = {}

    def write(self, files: Iterable[tuple[Path, str]], prediction: Prediction) -> int:
        """Copy images one by one.

        Args:
            files: path and name of each image.
            prediction: predictions in the order of `files`.

        Returns:
            Number of these images that are in `out` now, copied by this call or an earlier one.
        """
        n_files = 0
        for n_files, (path, name) in enumerate(files, start=1):
            if n_files > len(prediction):
                break
            self._place(path, name, self._out / self._folder_name(prediction, n_files - 1))
        if n_files != len(prediction):
            more = "or more " * (n_files > len(prediction))
            raise DataError(
                f"there are {n_files} {more}files for {len(prediction)} predictions. Give one prediction per file, in "
                "order."
            )
        return n_files

    def _folder_name(self, prediction: Prediction, row: int) -> str:
        if prediction.known[row]:
            return self._class_folders[int(prediction.nearest[row])]
        group = int(prediction.group[row])
        return self._group_folders.get(group, f"unknown-group-{group:02d}" if group >= 0 else "unknown")

    def _place(self, path: Path, name: str, folder: Path) -> None:
        if folder not in self._checked:
            _check_class_folder(folder, self._out, self._taken)
            for partial in folder.glob(".*.partial"):
                with suppress(OSError):
                    partial.unlink()  # left by a killed process
            self._checked.add(folder)
        safe = PurePath(_safe_name(PurePath(name).name))
        wanted = folder / _same_name(safe.name)
        for number in count(self._next.get(wanted, 1)):
            copy = folder / (safe if number == 1 else f"{safe.stem}-{number}{safe.suffix}")
            key = folder / _same_name(copy.name)
            if key in self._next and number > 1:
                continue
            if _is_at(path, copy):
                self._next[key] = 2
                self._next[wanted] = number + 1
                return


def _folder_names(classes: list[str]) -> list[str]:
    """Return a distinct folder name for each class, the same for all runs with these classes."""
    taken: set[str] = set()
    names = []
    for label in classes:
        safe = _safe_name(label)
        numbered = (safe if number == 1 else f"{safe}-{number}" for number in count(1))
        free = (name for name in numbered if _same_name(name) not in taken and not _OF_UNKNOWN.fullmatch(name))
        names.append(next(free))
        taken.add(_same_name(names[-1]))
    return names


def _safe_name(name: str) -> str:
    """Return a file or folder name that is valid on every system and cannot lead to another folder."""
    safe = _UNSAFE.sub("_", name)
    if len(safe.encode("utf-8")) > _STEM_BYTES + _SUFFIX_BYTES:
        safe = _cut(PurePath(safe).stem, _STEM_BYTES) + _cut(PurePath(safe).suffix, _SUFFIX_BYTES)
    safe = safe.strip(" .") or "_"
    return f"_{safe}" if _RESERVED.match(safe) else safe


def _cut(text: str, n_bytes: int) -> str:
    return text.encode("utf-8")[:n_bytes].decode("utf-8", "ignore")


def _same_name(name: str) -> str:
    """Return a key that is equal for names that some file systems do not distinguish."""
    return unicodedata.normalize("NFC", name).casefold()


def check_destination(out: Path, collections: Sequence[Path]) -> dict[Path, Path]:
    """Check that copies in a destination would not become samples of a collection.

    Args:
        out: the destination, which need not exist.
        collections: folders of images; files among them are ignored.

    Returns:
        Every folder that a collection reads, links resolved, with the collection that it belongs to.

    Raises:
        RunFolderError: the destination is such a folder, lies in one, or contains one.
    """
    taken = {folder: place for place in reversed(collections) if not place.is_file() for folder in _real_folders(place)}
    _check_apart(out, taken)
    return taken


def _real_folders(top: Path) -> set[Path]:
    """Return a folder and all folders that links below it lead to, resolved."""
    found: set[Path] = set()
    waiting = [top]
    while waiting:
        here = waiting.pop().resolve()
        if here not in found:
            found.add(here)
            parents = ((Path(parent), names) for parent, names, _ in os.walk(here))
            waiting += [parent / name for parent, names in parents for name in names if (parent / name).is_symlink()]
    return found


def _check_apart(out: Path, taken: Mapping[Path, Path]) -> None:
    here = out.resolve()
    for folder, collection in taken.items():
        if here == folder:
            how = "is the collection" if here == collection.resolve() else "is read as a part of"
        elif here.is_relative_to(folder):
            how = "lies in"
        elif folder.is_relative_to(here):
            how = "contains"
        else:
            continue
        raise RunFolderError(
            f"{out} {how} {collection}, so that copies would become samples. Give a folder apart from it."
        )


def _check_class_folder(folder: Path, out: Path, taken: Mapping[Path, Path]) -> None:
    _check_apart(folder, taken)
    if not folder.resolve().is_relative_to(out.resolve()):
        raise RunFolderError(f"{folder} is a link to a folder outside {out}. Remove it, or give another folder.")


def _is_at(path: Path, copy: Path) -> bool:
    """Copy `path` if `copy` does not exist; return whether both files are identical."""
    try:
        file = open_regular(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}). Bring it back, or run the command again without it."
        ) from None
    with file:
        if os.path.lexists(copy):
            return copy.is_file() and not copy.is_symlink() and filecmp.cmp(path, copy, shallow=False)
        with replacing(copy) as partial, partial.open("wb") as written:
            shutil.copyfileobj(file, written)
    return True
