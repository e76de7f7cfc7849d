"""Compare a published data set on disk with its description. No image is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.errors import DataError
from uniot.images.files import ImageFile, labelled_images
from uniot.io.text import counted, listed

if TYPE_CHECKING:
    from uniot.datasets.catalogue import BenchmarkSet, Domain

_SHOWN_NAMES = 5
# An archive often adds a folder, and all sets may lie in a common folder.
_LEVELS = 3


@dataclass(frozen=True)
class DomainReport:
    """Reports the result of the check of a domain.

    Attributes:
        domain: description of the domain.
        n_expected_classes: number of classes that it should have.
        folder: folder with its class folders; None if not found.
        files: its images, each labelled with the published name of its class.
        missing_classes: classes without a folder.
        empty_classes: classes with a folder but without images of the domain.
        extra_folders: folders that are not a class; their content is ignored.
        list_is_missing: whether the domain's image list is missing, so that `files` are all images found.
        absent_files: images that are in the list but not on disk.
        unread: reason why the folder or the list could not be read; None if they could.
    """

    domain: Domain
    n_expected_classes: int
    folder: Path | None = None
    files: tuple[ImageFile, ...] = field(default=(), repr=False)
    missing_classes: tuple[str, ...] = ()
    empty_classes: tuple[str, ...] = ()
    extra_folders: tuple[str, ...] = ()
    list_is_missing: bool = False
    absent_files: tuple[str, ...] = field(default=(), repr=False)
    unread: str | None = None

    @property
    def n_classes(self) -> int:
        """Return the number of classes with an image."""
        return len({file.label for file in self.files})

    @property
    def faults(self) -> tuple[str, ...]:
        """Return descriptions of all differences that change the samples of a task."""
        if self.folder is None:
            return (f"no folder {self.domain.folder}/ with class folders in it",)
        if self.unread is not None:
            return (self.unread,)
        found = []
        if self.list_is_missing:
            found.append(f"no {self.domain.image_list}, which lists the images of the protocol")
        elif len(self.files) != self.domain.n_images:
            found.append(f"{len(self.files)} images instead of {self.domain.n_images}")
        if self.missing_classes:
            found.append(f"no folder for {_counted(self.missing_classes, 'class', 'classes')}")
        if self.empty_classes:
            found.append(f"no image of {_counted(self.empty_classes, 'class', 'classes')}")
        if self.absent_files:
            found.append(f"not on disk: {_counted(self.absent_files, 'listed image', 'listed images')}")
        return tuple(found)


@dataclass(frozen=True)
class SetReport:
    """Reports the result of the check of a data set.

    Attributes:
        benchmark: description of the set.
        root: folder that was checked.
        domains: result per domain.
    """

    benchmark: BenchmarkSet
    root: Path
    domains: tuple[DomainReport, ...]

    @property
    def as_published(self) -> bool:
        """Return whether all domains are as published."""
        return not any(report.faults for report in self.domains)

    def advice(self) -> str:
        """Return a message with what was found, what was expected, and where to get the set."""
        held = [path.name for path in _folders(self.root)]
        found = listed(held, _SHOWN_NAMES) if held else "no folder"
        return (
            f"{self.root} holds {found}. {self.benchmark.title} should have "
            f"{self.benchmark.layout}. Get it from {self.benchmark.home} and unpack it again."
        )


def find_home(root: Path, benchmark: BenchmarkSet) -> Path | None:
    """Find the folder that contains the domains' folders.

    Args:
        root: folder to search, up to two levels deep.
        benchmark: the data set.

    Returns:
        The folder with the most class folders on the first level that has any; None if there is none.

    Raises:
        DataError: `root` is not a folder.
    """
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise DataError(
            f"{root} {what}. Give the folder into which {benchmark.title} was unpacked; get it from {benchmark.home}."
        )

    def n_found(home: Path) -> int:
        folders = [_domain_folder(home, domain, benchmark) for domain in benchmark.domains]
        return sum(_n_class_folders(folder, benchmark) for folder in folders if folder)

    level = [root]
    for _ in range(_LEVELS):
        counts = {home: n_found(home) for home in level}
        if any(counts.values()):
            return max(level, key=counts.__getitem__)
        level = [below for folder in level for below in _folders(folder)]
    return None


def inspect_domain(benchmark: BenchmarkSet, home: Path | None, domain: Domain) -> DomainReport:
    """Compare a domain on disk with its description.

    Args:
        benchmark: the data set.
        home: folder from `find_home`.
        domain: description of the domain.

    Returns:
        The images that were found and all differences.
    """
    expected = [name for name in benchmark.classes if name not in domain.absent_classes]
    empty = DomainReport(domain, len(expected))
    folder = _domain_folder(home, domain, benchmark) if home else None
    if home is None or folder is None:
        return empty
    published = {plain(name): name for name in benchmark.classes}
    names = [path.name for path in _folders(folder)]
    with_folder = {published[plain(name)] for name in names if plain(name) in published}
    absent: list[str] = []
    list_file = _list_file(home, domain)
    try:
        files = _of_published_classes(labelled_images(folder), published)
        if list_file is not None:
            files, absent = _only_listed(files, list_file, published)
    except DataError as error:
        # The other domains are still checked.
        return replace(empty, folder=folder, unread=str(error).rstrip("."))
    with_image = {file.label for file in files}
    return replace(
        empty,
        folder=folder,
        files=tuple(files),
        missing_classes=tuple(name for name in expected if name not in with_folder),
        empty_classes=tuple(name for name in expected if name in with_folder and name not in with_image),
        extra_folders=tuple(name for name in names if plain(name) not in published),
        list_is_missing=domain.image_list is not None and list_file is None,
        absent_files=tuple(absent),
    )


def _domain_folder(home: Path, domain: Domain, benchmark: BenchmarkSet) -> Path | None:
    """Return the folder with the domain's class folders: its own, or one in it, such as Office-31's images/."""
    for outer in _folders(home):
        if plain(outer.name) == plain(domain.folder):
            for place in (outer, *_folders(outer)):
                if _n_class_folders(place, benchmark):
                    return place
    return None


def _n_class_folders(folder: Path, benchmark: BenchmarkSet) -> int:
    published = {plain(name) for name in benchmark.classes}
    return sum(plain(path.name) in published for path in _folders(folder))


def _list_file(home: Path, domain: Domain) -> Path | None:
    if domain.image_list is None:
        return None
    places = [folder / domain.image_list for folder in (home, *_folders(home))]
    return next((place for place in places if place.is_file()), None)


def _of_published_classes(files: Sequence[ImageFile], published: Mapping[str, str]) -> list[ImageFile]:
    names = {label: published.get(plain(label or "")) for label in {file.label for file in files}}
    return [ImageFile(file.path, file.name, names[file.label]) for file in files if names[file.label]]


def _only_listed(
    files: Iterable[ImageFile], list_file: Path, published: Mapping[str, str]
) -> tuple[list[ImageFile], list[str]]:
    """Return the files that a list contains, and the listed names without a file.

    A line is `painting/zebra/painting_344_000001.jpg 343`. The folder is the class; the number is not used.
    """
    there = {(file.label, file.path.name): file for file in files}
    listed, absent = [], []
    for line in labelled_images(list_file):
        folder, name = ("", *line.name.split("/"))[-2:]
        if plain(folder) not in published:
            raise DataError(
                f"{list_file} contains {line.name!r}, which is not in the folder of a class. Expected "
                "`domain/class/file number` in each line; download the list again."
            )
        file = there.get((published[plain(folder)], name))
        if file is None:
            absent.append(line.name)
        else:
            listed.append(file)
    return listed, absent


def _folders(folder: Path) -> list[Path]:
    try:
        # Unlike iterdir, scandir recognises folders without a disk access for each of a thousand images.
        with os.scandir(folder) as entries:
            return sorted(Path(entry) for entry in entries if entry.is_dir() and not _is_left_out(entry.name))
    except OSError:
        # Unrelated folders may be unreadable; an unreadable folder of the set is reported as missing.
        return []


def _is_left_out(name: str) -> bool:
    """Return whether a folder is not part of the archive: hidden, or added by macOS."""
    return name.startswith(".") or name == "__MACOSX"


@cache
def plain(name: str) -> str:
    """Return a name without case and punctuation: the same for Real World, RealWorld and real_world."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _counted(names: Sequence[str], one: str, many: str) -> str:
    return f"{counted(len(names), one, many)} ({listed(names, _SHOWN_NAMES)})"
