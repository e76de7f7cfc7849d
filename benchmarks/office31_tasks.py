"""The six open-partial tasks of Office-31 on frozen features: 10 common, 10 source-private, 11 target-private."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from problems import Problem

TASKS = ("A2D", "A2W", "D2A", "D2W", "W2A", "W2D")
_DOMAINS = {"A": "amazon", "D": "dslr", "W": "webcam"}
# The ten classes shared with Caltech; the rest, in alphabetical order, is ten of the source and eleven of the target.
_COMMON = (
    "back_pack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop_computer",
    "monitor",
    "mouse",
    "mug",
    "projector",
)
_SOURCE_PRIVATE = (
    "bike_helmet",
    "bookcase",
    "bottle",
    "desk_chair",
    "desk_lamp",
    "desktop_computer",
    "file_cabinet",
    "letter_tray",
    "mobile_phone",
    "paper_notebook",
)


@dataclass(frozen=True)
class Task:
    """Features and class names of both domains, already reduced to their classes."""

    name: str
    source: np.ndarray
    source_labels: np.ndarray
    target: np.ndarray
    target_labels: np.ndarray

    def transport_problem(self) -> Problem:
        """Unit features of the target against the class means of the source, uniform β."""
        source = F.normalize(torch.from_numpy(self.source), dim=1)
        means = [source[torch.from_numpy(self.source_labels == name)].mean(dim=0) for name in self.classes]
        mass = torch.full((len(means),), 1 / len(means), dtype=torch.float64)
        return Problem(F.normalize(torch.from_numpy(self.target), dim=1), F.normalize(torch.stack(means), dim=1), mass)

    @property
    def classes(self) -> np.ndarray:
        return np.unique(self.source_labels)


def features_file() -> Path:
    """Where the features are looked for: under UNIOT_DATA, or beside the project."""
    folder = Path(os.environ.get("UNIOT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    return folder / "office31" / "resnet50_features.npz"


def missing_data() -> str | None:
    """A sentence where the features are absent."""
    path = features_file()
    if path.is_file():
        return None
    return (
        f"Office-31 is left out: {path} is absent. It is an .npz of pooled ResNet-50 features, with the keys "
        "{amazon,dslr,webcam}_{x,y,files} and classes; benchmarks/README.md says how to make it. Set UNIOT_DATA to the "
        "folder that holds office31/."
    )


def load_tasks(
    names: tuple[str, ...] = TASKS,
    random_split: int | None = None,
    *,
    partial: bool = False,
    features: Path | None = None,
) -> list[Task]:
    """The tasks with the published split of the classes, or with one of the same sizes drawn at random.

    Args:
        names: of the tasks.
        random_split: seed of the split; the published one if None.
        partial: the target has the common classes alone and the source all 31, so that nothing is private.
        features: file of another backbone; that of `features_file` if None.
    """
    with np.load(features or features_file(), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if not name.endswith("_files")}
    common, source_private = _COMMON, _SOURCE_PRIVATE
    if random_split is not None:
        drawn = np.random.default_rng(random_split).permutation(arrays["classes"].astype(str))
        common, source_private = tuple(drawn[:10]), tuple(drawn[10:20])
    classes = arrays["classes"].astype(str)
    of_source = classes.tolist() if partial else [*common, *source_private]
    of_target = list(common) if partial else [label for label in classes if label not in source_private]
    return [_task(name, arrays, of_source, of_target) for name in names]


def _task(name: str, arrays: dict[str, np.ndarray], of_source: list[str], of_target: list[str]) -> Task:
    classes = arrays["classes"].astype(str)
    first, second = name.split("2")
    return Task(name, *_part(arrays, first, classes, of_source), *_part(arrays, second, classes, of_target))


def _part(
    arrays: dict[str, np.ndarray], letter: str, classes: np.ndarray, kept: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    labels = classes[arrays[f"{_DOMAINS[letter]}_y"]]
    rows = np.isin(labels, kept)
    return arrays[f"{_DOMAINS[letter]}_x"][rows].astype(np.float32), labels[rows]
