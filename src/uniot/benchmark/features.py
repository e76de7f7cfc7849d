"""Embeddings of the domains of a benchmark: from one file of all domains, or from a folder with a file a domain."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from uniot.data.arrays import as_inputs, as_labels
from uniot.data.embedding_files import read_embeddings
from uniot.data.unpacked_set import plain
from uniot.errors import DataError
from uniot.words import listed

_EXPECTED = (
    "Give an .npz with the arrays DOMAIN_x and DOMAIN_y of each domain and `classes`, or a folder with a DOMAIN.npz "
    "of each, as `uniot embed DOMAIN/ --labelled --out DOMAIN.npz` writes it."
)


@dataclass(frozen=True)
class DomainFacts:
    """What there is to know of a domain without its samples.

    Attributes:
        name: what the features call it.
        width: numbers in an embedding.
        classes: every class that the data know.
        class_sizes: number of samples of each class that has any.
        digest: of embeddings and labels.
    """

    name: str
    width: int
    classes: tuple[str, ...]
    class_sizes: Mapping[str, int]
    digest: str


@dataclass(frozen=True, eq=False)
class DomainFeatures:
    """All samples of a domain.

    Attributes:
        x: embeddings, (n, d), of any numeric type.
        labels: class names, (n,).
        classes: every class that the data know, even one of which the domain has no sample.
    """

    x: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """Tells apart domains whose numbers or labels differ."""
        digest = hashlib.sha256(f"{self.x.dtype} {self.x.shape}\0".encode())
        digest.update(np.ascontiguousarray(self.x).data)
        digest.update("\0".join(self.labels.tolist()).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def domain_names(where: Path) -> list[str]:
    """The domains that a file or a folder of features holds."""
    if where.is_dir():
        names = sorted(file.stem for file in where.glob("*.npz"))
    else:
        with _arrays(where) as arrays:
            names = [name.removesuffix("_x") for name in arrays.files if name.endswith("_x")]
    if not names:
        raise DataError(f"{where} holds no domain. {_EXPECTED}")
    return names


def find_domain(where: Path, *names: str) -> str:
    """What a file or a folder calls a domain that is known by any of `names`; case and punctuation do not count."""
    found = domain_names(where)
    for name in names:
        for candidate in found:
            if plain(candidate) == plain(name):
                return candidate
    raise DataError(f"{where} has no domain called {' or '.join(names)}. It has {listed(found)}.")


def read_domain(where: Path, name: str) -> DomainFeatures:
    """One domain of a file or of a folder, called as `domain_names` calls it."""
    if where.is_dir():
        file = read_embeddings(where / f"{name}.npz")
        if file.y is None:
            raise DataError(f"{where / f'{name}.npz'} holds no labels. {_EXPECTED}")
        x, labels, classes = file.x, as_labels(file.y, f"y of {name}"), None
    else:
        with _arrays(where) as arrays:
            if not {f"{name}_x", f"{name}_y"} <= set(arrays.files):
                raise DataError(f"{where} holds {listed(arrays.files)}, not {name}_x and {name}_y. {_EXPECTED}")
            x, labels = arrays[f"{name}_x"], as_labels(arrays[f"{name}_y"], f"{name}_y")
            classes = as_labels(arrays["classes"], "classes").astype(str) if "classes" in arrays.files else None
    x = as_inputs(x, f"{name}_x")
    if len(labels) != len(x):
        raise DataError(f"{where} has {len(labels)} labels for {len(x)} rows of {name}. Give one per row.")
    if labels.dtype.kind != "U":
        labels = _named(labels, classes, f"{name}_y of {where}")
    return DomainFeatures(x, labels, tuple((np.unique(labels) if classes is None else classes).tolist()))


def read_facts(where: Path, names: Iterable[str]) -> list[DomainFacts]:
    """Return the facts of some domains of a file or of a folder; raise an error if their embeddings differ in width."""
    found = []
    for name in names:
        domain = read_domain(where, name)
        sizes = dict(zip(*(part.tolist() for part in np.unique(domain.labels, return_counts=True)), strict=True))
        found.append(DomainFacts(name, domain.x.shape[1], domain.classes, sizes, domain.digest))
    if len({facts.width for facts in found}) > 1:
        told = ", ".join(f"{facts.name} {facts.width}" for facts in found)
        raise DataError(f"embeddings differ in width ({told}). Give embeddings of one and the same network.")
    return found


def features_backbone(where: Path) -> str:
    """What made the features: what the file says under `backbone`, or else what it is called."""
    if where.is_file():
        with _arrays(where) as arrays:
            if "backbone" in arrays.files:
                return str(arrays["backbone"])
    return where.stem


def _named(labels: np.ndarray, classes: np.ndarray | None, what: str) -> np.ndarray:
    if classes is None:
        return labels.astype(str)
    if len(labels) and not (labels.min() >= 0 and labels.max() < len(classes)):
        raise DataError(
            f"{what} goes from {labels.min()} to {labels.max()}, and there are {len(classes)} `classes`. "
            "Give the index of each class, from 0."
        )
    return np.asarray(classes[labels])


@contextmanager
def _arrays(where: Path) -> Iterator[Any]:
    if not zipfile.is_zipfile(where):
        raise DataError(f"{where} {'is no .npz file' if where.exists() else 'does not exist'}. {_EXPECTED}")
    try:
        with where.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except DataError:
        raise
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise DataError(f"{where} cannot be read as an .npz file ({error}). {_EXPECTED}") from None
