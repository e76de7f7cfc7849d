from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uniot.datasets import make_toy_domains

COMMON, SOURCE_PRIVATE, TARGET_PRIVATE = ("cup", "pen", "tin"), ("bag", "key"), ("hat", "jar")
CLASSES = (*COMMON, *SOURCE_PRIVATE, *TARGET_PRIVATE)


def toy_features(path: Path, *, each: int = 12, seed: int = 0) -> Path:
    """Features of the domains photo and sketch, which have seven classes; of the domain one there is one sample."""
    toy = make_toy_domains(len(CLASSES), 0, 0, samples_per_class=each, dimensions=16, spread=0.3, shift=0.2, seed=seed)
    index = {f"common-{number}": number for number in range(len(CLASSES))}
    labels = [np.array([index[name] for name in y]) for y in (toy.y_source, toy.oracle_y_target)]
    np.savez(
        path,
        photo_x=toy.x_source,
        photo_y=labels[0],
        sketch_x=toy.x_target.astype(np.float16),
        sketch_y=labels[1],
        one_x=toy.x_target[:1],
        one_y=labels[1][:1],
        classes=CLASSES,
    )
    return path


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_features(tmp_path_factory.mktemp("features") / "toy.npz")


@pytest.fixture(scope="session")
def write_features() -> Callable[..., Path]:
    return toy_features
