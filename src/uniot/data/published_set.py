"""A data set as it was published: its classes, domains, tasks and splits; and its images, where they are on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from uniot.data.image_files import ImageFile
from uniot.data.unpacked_set import SetReport, find_home, inspect_domain
from uniot.errors import DataError

Setting = Literal["open-partial", "open", "partial", "closed"]


@dataclass(frozen=True)
class ClassSplit:
    """Which classes both domains have, which only the source, which only the target."""

    common: tuple[str, ...]
    source_private: tuple[str, ...]
    target_private: tuple[str, ...]

    @property
    def source(self) -> tuple[str, ...]:
        """Every class of the source."""
        return self.common + self.source_private

    @property
    def target(self) -> tuple[str, ...]:
        """Every class of the target."""
        return self.common + self.target_private


@dataclass(frozen=True)
class Domain:
    """A domain as it was published.

    Attributes:
        letter: what tasks call it, such as the A of A2W.
        folder: its folder in the archive.
        n_images: images that the protocol uses.
        image_list: file that names those images, where the protocol does not use the whole folder.
        absent_classes: classes of the set of which the domain has no image.
    """

    letter: str
    folder: str
    n_images: int
    image_list: str | None = None
    absent_classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BenchmarkSet:
    """A data set of the benchmark.

    Attributes:
        name: what commands call it.
        title: what papers call it.
        classes: names as published, in the protocol's order, which the splits count by.
        domains: those that the tasks use.
        tasks: source and target letters, such as A2W, in the order of the published tables.
        splits: for each setting the number of common, source-private and target-private classes.
        layout: how the folders lie, in words.
        home: page that gives it.
        citation: who made it, and where it was published.
        licence: what its authors say about use.
    """

    name: str
    title: str
    classes: tuple[str, ...] = field(repr=False)
    domains: tuple[Domain, ...]
    tasks: tuple[str, ...]
    splits: Mapping[Setting, tuple[int, int, int]]
    layout: str
    home: str
    citation: str
    licence: str

    def split(self, setting: Setting) -> ClassSplit:
        """The classes of a setting: the first ones are common, the next of the source, the last of the target."""
        if setting not in self.splits:
            raise DataError(
                f"{self.title} has no published split called {setting!r}. Take one of: {', '.join(self.splits)}."
            )
        common, source_private, target_private = self.splits[setting]
        return ClassSplit(
            common=self.classes[:common],
            source_private=self.classes[common : common + source_private],
            target_private=self.classes[len(self.classes) - target_private :],
        )

    def domain(self, letter: str) -> Domain:
        """A domain by its letter."""
        for domain in self.domains:
            if domain.letter == letter:
                return domain
        known = ", ".join(f"{domain.letter} ({domain.folder})" for domain in self.domains)
        raise DataError(f"{self.title} has no domain {letter!r}. Take one of: {known}.")

    def task(self, name: str) -> tuple[Domain, Domain]:
        """Source and target of a task."""
        if name not in self.tasks:
            raise DataError(f"{self.title} has no task {name!r}. Take one of: {', '.join(self.tasks)}.")
        source, target = name.split("2")
        return self.domain(source), self.domain(target)

    def domain_files(self, root: Path, letter: str, *, as_published: bool = True) -> list[ImageFile]:
        """The images of a domain, each with the published name of its class.

        Args:
            root: the unpacked set, or a folder up to two levels above it.
            letter: of the domain.
            as_published: refuse a domain that differs from the published one, because scores on it compare with no
                table; else take what is there.
        """
        domain = self.domain(letter)
        report = inspect_domain(self, find_home(root, self), domain)
        if not report.files or (as_published and report.faults):
            faults = "; ".join(report.faults)
            advice = SetReport(self, root, (report,)).advice()
            raise DataError(f"{self.title} is not complete in {domain.folder}: {faults}. {advice}")
        return list(report.files)

    def check(self, root: Path) -> SetReport:
        """Compares what is under a root with what was published; opens no image."""
        home = find_home(root, self)
        return SetReport(self, root, tuple(inspect_domain(self, home, domain) for domain in self.domains))
