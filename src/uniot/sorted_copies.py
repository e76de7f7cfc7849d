"""Images sorted into folders by what a run says of them."""

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

import numpy as np

from uniot.data.image_folders import real_folders
from uniot.errors import DataError, RunFolderError
from uniot.prediction import Prediction
from uniot.run_folder import replacing
from uniot.untrusted import open_regular

_UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f\ud800-\udfff]')
_OF_UNKNOWN = re.compile(r"unknown(-group-\d+)?", re.IGNORECASE)
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE)
# File systems hold 255 bytes, and a temporary name is longer than the final one.
_STEM_BYTES, _SUFFIX_BYTES = 180, 20


class SortedCopies:
    """Copies images, a few at a time, into `out/<class>/`, `out/unknown-group-03/` or, without a group, `out/unknown/`.

    A group that has a name gets a folder of that name.

    Copies are called like the files, without their folders; where two would be called the same, the second gets a
    number. No file in `out` is ever changed: an identical copy is left, another file of the name keeps it. So the
    same again copies only what is missing.

    Args:
        out: made when the first image is copied.
        classes: source classes, text or integers, (c,).
        collections: folders whose images are all taken as samples; `out` must lie apart from them.
        group_names: what people call groups.

    Attributes:
        had_files: whether `out` held something before.
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
        # The number that the next file of this name tries first; a name that is not here is free.
        self._next: dict[Path, int] = {}

    def write(self, files: Iterable[tuple[Path, str]], prediction: Prediction) -> int:
        """Copies some images, each before the next is asked for.

        Args:
            files: path and name of each image.
            prediction: in the order of `files`.

        Returns:
            How many of the images are in `out` now, copied by this call or an earlier one.
        """
        n_files = 0
        for n_files, (path, name) in enumerate(files, start=1):
            if n_files > len(prediction):
                break
            self._place(path, name, self._out / self._folder_name(prediction, n_files - 1))
        if n_files != len(prediction):
            more = "or more " * (n_files > len(prediction))
            raise DataError(
                f"there are {n_files} {more}files for {len(prediction)} answers. Give one answer per file, in order."
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
            for left_by_a_killed_process in folder.glob(".*.partial"):
                with suppress(OSError):
                    left_by_a_killed_process.unlink()
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
    """A folder name for each class, the same for all runs with these classes and for no two the same."""
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
    """A name for a file or folder that no system refuses, and that leads nowhere else."""
    safe = _UNSAFE.sub("_", name)
    if len(safe.encode("utf-8")) > _STEM_BYTES + _SUFFIX_BYTES:
        safe = _cut(PurePath(safe).stem, _STEM_BYTES) + _cut(PurePath(safe).suffix, _SUFFIX_BYTES)
    safe = safe.strip(" .") or "_"
    return f"_{safe}" if _RESERVED.match(safe) else safe


def _cut(text: str, n_bytes: int) -> str:
    return text.encode("utf-8")[:n_bytes].decode("utf-8", "ignore")


def _same_name(name: str) -> str:
    """Equal for names that some file systems take for the same."""
    return unicodedata.normalize("NFC", name).casefold()


def check_destination(out: Path, collections: Sequence[Path]) -> dict[Path, Path]:
    """Refuse a destination whose copies would be taken for samples of a collection.

    Args:
        out: the destination, which need not exist.
        collections: folders, or files, which are left out.

    Returns:
        Every real folder that a collection reads, links followed, and the collection that it belongs to.

    Raises:
        RunFolderError: the destination is such a folder, lies in one, or contains one.
    """
    taken = {folder: place for place in reversed(collections) if not place.is_file() for folder in real_folders(place)}
    _refuse_overlap(out, taken)
    return taken


def _refuse_overlap(out: Path, taken: Mapping[Path, Path]) -> None:
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
            f"{out} {how} {collection}, so that copies would be taken for samples. Give a folder apart from it."
        )


def _check_class_folder(folder: Path, out: Path, taken: Mapping[Path, Path]) -> None:
    _refuse_overlap(folder, taken)
    if not folder.resolve().is_relative_to(out.resolve()):
        raise RunFolderError(f"{folder} is a link that leads out of {out}. Remove it, or give another folder.")


def _is_at(path: Path, copy: Path) -> bool:
    """Whether `copy` holds what `path` does, after copying it if the place is free."""
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
