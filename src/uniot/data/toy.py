"""A toy problem with every kind of class, for tests, docs and first steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ToyDomains:
    """A labelled source, an unlabelled target, and what the target's labels would be."""

    x_source: np.ndarray
    y_source: np.ndarray
    x_target: np.ndarray
    oracle_y_target: np.ndarray


def make_toy_domains(
    n_common: int = 3,
    n_source_private: int = 2,
    n_target_private: int = 2,
    *,
    samples_per_class: int = 30,
    dimensions: int = 32,
    spread: float = 0.5,
    shift: float = 0.5,
    seed: int = 0,
) -> ToyDomains:
    """Round clusters on a sphere, one per class; the target's are moved by one common shift.

    Args:
        n_common: classes of both domains, called common-0, common-1, …
        n_source_private: classes of the source alone, called source-0, …
        n_target_private: classes of the target alone, called target-0, …
        samples_per_class: in each domain.
        dimensions: of an embedding.
        spread: standard deviation within a class, as a share of the distance from the origin.
        shift: length of the shift between the domains, in the same unit.
        seed: decides everything.
    """
    random = np.random.default_rng(seed)
    names = [f"common-{i}" for i in range(n_common)]
    source = names + [f"source-{i}" for i in range(n_source_private)]
    target = names + [f"target-{i}" for i in range(n_target_private)]
    every = list(dict.fromkeys(source + target))
    centre = dict(zip(every, _unit(random.normal(size=(len(every), dimensions))), strict=True))
    moved = shift * _unit(random.normal(size=(1, dimensions)))

    def draw(classes: list[str], offset: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.array(classes), samples_per_class)
        noise = random.normal(size=(len(labels), dimensions)) * spread / np.sqrt(dimensions)
        return np.stack([centre[label] for label in labels]) + noise + offset, labels

    x_source, y_source = draw(source, 0.0)
    x_target, y_target = draw(target, moved)
    return ToyDomains(x_source, y_source, x_target, y_target)


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
