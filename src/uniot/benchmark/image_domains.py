"""Embeddings of the domains of a benchmark, computed from images once and shared by all methods."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from uniot.benchmark.features import DomainFeatures, read_domain
from uniot.benchmark.protocol import TaskSet
from uniot.data.embedding_files import write_embeddings
from uniot.data.image_files import ImageFile, labelled_images
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import DataError
from uniot.images import Reading, read_collection
from uniot.run_folder import replacing


def image_domain_names(root: Path) -> list[str]:
    """The domains of a set of one's own: the folders below a root, each with a folder of images a class."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Give one with a folder a domain, and in it a folder a class.")
    return sorted(place.name for place in root.iterdir() if place.is_dir() and not place.name.startswith("."))


def embed_domains(
    tasks: TaskSet,
    root: Path,
    letters: Iterable[str],
    reader: ImageReader,
    folder: Path,
    *,
    reading: Reading,
    as_published: bool = True,
) -> Path:
    """Writes the embeddings of some domains to a folder of features, a file a domain; files that are right stay.

    Args:
        tasks: the set that the domains are of.
        root: where its images lie.
        letters: of the domains, as tasks call them.
        reader: the backbone.
        folder: for the features.
        reading: how images are read; with a store, an image that was seen before is not computed again.
        as_published: refuse a published set that is not complete.
    """
    for letter in letters:
        name = tasks.domains[letter]
        found = read_collection(_files(tasks, root, letter, as_published), reader, reading, collection=name)
        labels = np.array([str(file.label) for file in found.files])
        if not _holds(folder, name, DomainFeatures(found.values, labels, ())):
            names = [file.name for file in found.files]
            write_embeddings(folder / f"{name}.npz", found.values, labels, names, replacing=replacing)
    return folder


def _files(tasks: TaskSet, root: Path, letter: str, as_published: bool) -> list[ImageFile]:
    if tasks.published is not None:
        return tasks.published.domain_files(root, letter, as_published=as_published)
    return labelled_images(root / tasks.domains[letter])


def _holds(folder: Path, name: str, domain: DomainFeatures) -> bool:
    try:
        return read_domain(folder, name).digest == domain.digest
    except DataError:
        return False
