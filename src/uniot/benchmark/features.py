"""Read the embeddings of the domains of a data set, and select the samples of a task."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniot.benchmark.tasks import folder_name
from uniot.datasets.digits import load_digit_archives
from uniot.datasets.unpacked import plain
from uniot.errors import DataError
from uniot.io.arrays import as_inputs
from uniot.io.embedding_files import read_embeddings
from uniot.io.files import replacing
from uniot.io.labels import as_labels
from uniot.io.text import listed

if TYPE_CHECKING:
    from uniot.benchmark.scenarios import TargetDraw
    from uniot.datasets.catalogue import ClassSplit

_EXPECTED = (
    "Give an .npz with the arrays DOMAIN_x and DOMAIN_y of each domain and `classes`, or a folder with a DOMAIN.npz "
    "of each, as `uniot embed DOMAIN/ --labelled --out DOMAIN.npz` writes it."
)


@dataclass(frozen=True)
class DomainFacts:
    """Classes and sizes of a domain, without the embeddings.

    Attributes:
        name: what the features call it.
        width: length of an embedding.
        classes: class names, with those that the domain has no sample of.
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
    """Embeddings and labels of a domain.

    Attributes:
        x: embeddings, (n_samples, n_features), of any numeric type.
        labels: class names, (n_samples,).
        classes: class names, with those that the domain has no sample of.
    """

    x: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """Return a SHA-256 digest of embeddings and labels."""
        digest = hashlib.sha256(f"{self.x.dtype} {self.x.shape}\0".encode())
        digest.update(np.ascontiguousarray(self.x).data)
        digest.update("\0".join(self.labels.tolist()).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def domain_names(where: Path) -> list[str]:
    """Return the names of the domains in a file or a folder of features."""
    if where.is_dir():
        names = sorted(file.stem for file in where.glob("*.npz"))
    else:
        with _arrays(where) as arrays:
            names = [name.removesuffix("_x") for name in arrays.files if name.endswith("_x")]
    if not names:
        raise DataError(f"{where} holds no domain. {_EXPECTED}")
    return names


def find_domain(where: Path, *names: str) -> str:
    """Return the name of the domain that is called any of `names`, ignoring case and punctuation."""
    found = domain_names(where)
    for name in names:
        for candidate in found:
            if plain(candidate) == plain(name):
                return candidate
    raise DataError(f"{where} has no domain called {' or '.join(names)}. It has {listed(found)}.")


def read_domain(where: Path, name: str) -> DomainFeatures:
    """Return a domain of a file or a folder, by the name that `domain_names` returns."""
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
        widths = ", ".join(f"{facts.name} {facts.width}" for facts in found)
        raise DataError(f"embeddings differ in width ({widths}). Give embeddings of one and the same network.")
    return found


def features_backbone(where: Path) -> str:
    """Return the name of the network that made the features: the entry `backbone`, or else the name of the file."""
    if where.is_file():
        with _arrays(where) as arrays:
            if "backbone" in arrays.files:
                return str(arrays["backbone"])
    return where.stem


@dataclass(frozen=True)
class DataSet:
    """A data set with embeddings of several domains.

    Attributes:
        name: name in tables.
        features: file or folder with the embeddings of its domains.
        domains: facts about each domain.
        tasks: source and target of the pairs of domains that are meant; empty for all pairs.
    """

    name: str
    features: Path
    domains: tuple[DomainFacts, ...]
    tasks: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, name: str, features: Path) -> DataSet:
        """Return a data set with the facts of all domains of a file or a folder."""
        facts = read_facts(features, domain_names(features))
        return cls(folder_name(name, "the name of a data set"), features, tuple(facts), _listed_pairs(features))

    def pairs(self) -> dict[str, tuple[DomainFacts, DomainFacts]]:
        """Return source and target of every ordered pair of domains that share two classes or more, by task."""
        found = {
            f"{source.name}2{target.name}": (source, target)
            for source, target in permutations(self.domains, 2)
            if not self.tasks or (source.name, target.name) in self.tasks
        }
        return {task: pair for task, pair in found.items() if len(shared_class_sizes(*pair)) >= 2}


def _listed_pairs(where: Path) -> tuple[tuple[str, str], ...]:
    """Return the entry `pairs` of a file of features; empty without one."""
    if not where.is_file():
        return ()
    with _arrays(where) as arrays:
        if "pairs" not in arrays.files:
            return ()
        pairs, names = arrays["pairs"], {name.removesuffix("_x") for name in arrays.files if name.endswith("_x")}
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not set(pairs.ravel().tolist()) <= names:
        raise DataError(
            f"pairs of {where} are not rows of two domains. Give source and target per row, of {listed(names)}."
        )
    return tuple((source, target) for source, target in pairs.tolist())


def shared_class_sizes(source: DomainFacts, target: DomainFacts) -> dict[str, int]:
    """Return the number of target samples of each class that the source has too, by the source's class name.

    Case and punctuation are ignored, as in `task_data`.
    """
    names = {plain(name): name for name in source.class_sizes} | {name: name for name in source.class_sizes}
    sizes: dict[str, int] = {}
    for name, size in target.class_sizes.items():
        known = names.get(name, names.get(plain(name)))
        if known is not None:
            sizes[known] = sizes.get(known, 0) + size
    return sizes


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


@dataclass(frozen=True, eq=False)
class TaskData:
    """Samples of a task, restricted to the classes of its split; labels are the class names of the split.

    Attributes:
        source: embeddings, (n_source, n_features).
        source_labels: class names, (n_source,).
        target: embeddings, (n_target, n_features).
        oracle_target_labels: class names, (n_target,); used for scores only, never for fitting.
    """

    source: np.ndarray
    source_labels: np.ndarray
    target: np.ndarray
    oracle_target_labels: np.ndarray


def task_data(source: DomainFeatures, target: DomainFeatures, split: ClassSplit) -> TaskData:
    """Return the samples of both domains that belong to the classes of the split.

    Case and punctuation of class names are ignored, unless classes of the split differ only in them.
    """
    of_source = _of_classes(source, split.source)
    of_target = _of_classes(target, split.target)
    for name, found in (("source", of_source), ("target", of_target)):
        if not len(found[0]):
            raise DataError(f"the {name} has no sample of its classes in the split. Compare the class names.")
    return TaskData(*of_source, *of_target)


def draw_target(data: TaskData, draw: TargetDraw) -> TaskData:
    """Return the task with the numbers of target samples per class that the draw has, in the order of the domain.

    The first `count` samples of a random permutation of each class are taken, so that draws with the same seed and
    classes are nested.
    """
    rng = np.random.default_rng(draw.seed)
    chosen = []
    for name, count in draw.counts:
        rows = np.flatnonzero(data.oracle_target_labels == name)
        if len(rows) < count:
            raise DataError(
                f"the target has {len(rows)} samples of class {name!r}, and {count} are to be drawn. Give the features "
                "that the scenario was made for."
            )
        chosen.append(rng.permutation(rows)[:count])
    kept = np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.intp)
    return TaskData(data.source, data.source_labels, data.target[kept], data.oracle_target_labels[kept])


def _of_classes(domain: DomainFeatures, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    published = {plain(name): name for name in names} | {name: name for name in names}
    classes, index = np.unique(domain.labels, return_inverse=True)
    called = [published.get(name, published.get(plain(name), "")) for name in classes.tolist()]
    labels = np.array(called, dtype=str)[index]
    chosen = labels != ""
    return domain.x[chosen], labels[chosen]


DIGITS = "digits"
"""Name of the data set that comes with the install."""


def write_digits(folder: Path) -> Path:
    """Write the digits that come with the install as features, with pixels as embeddings.

    Args:
        folder: folder of the file.

    Returns:
        The file `digits.npz`, with the domains `sklearn` (8 × 8 pixels, enlarged) and `mnist`.
    """
    path = folder / f"{DIGITS}.npz"
    small, small_labels, large, large_labels = load_digit_archives()
    domains = {"sklearn": (small, small_labels), "mnist": (large, large_labels)}
    arrays = {"backbone": np.array("pixels")}
    for name, (images, labels) in domains.items():
        arrays |= {f"{name}_x": images.reshape(len(images), -1), f"{name}_y": labels.astype(str)}
    if not all(holds_domain(path, name, arrays[f"{name}_x"], arrays[f"{name}_y"]) for name in domains):
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    return path


def holds_domain(where: Path, name: str, x: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether a file or a folder of features has a domain with exactly these embeddings and labels."""
    try:
        return read_domain(where, name).digest == DomainFeatures(x, labels, ()).digest
    except DataError:
        return False
