"""Toy domains: Gaussian clusters for common, source-private and target-private classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ToyDomains:
    """A labelled source, an unlabelled target, and the true labels of the target.

    Attributes:
        x_source: embeddings, (n_source, n_features).
        y_source: class names, (n_source,).
        x_target: embeddings, (n_target, n_features).
        oracle_y_target: true class names, for evaluation only, (n_target,).
    """

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
    """Draw a Gaussian cluster per class, with a random unit vector as its mean; the whole target is shifted.

    Args:
        n_common: number of classes of both domains, called common-0, common-1, …
        n_source_private: number of classes of the source only, called source-0, …
        n_target_private: number of classes of the target only, called target-0, …
        samples_per_class: number of samples of each class in each domain.
        dimensions: number of features.
        spread: standard deviation within a class, relative to the norm of the class means.
        shift: length of the shift between the domains, in the same unit.
        seed: random seed.

    Returns:
        Source and target, with the samples of a class in consecutive rows.
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
