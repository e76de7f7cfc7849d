"""The target of a finished run as the labelling page needs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uniot.annotations.annotations import class_named, composed
from uniot.annotations.file import run_digest, start_places
from uniot.answers import read_answers
from uniot.data.text import as_utf8
from uniot.discovery import LabelledFeatures
from uniot.errors import RunFolderError
from uniot.model import AdaptedModel
from uniot.model_files import load_model
from uniot.words import counted

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Target:
    """What there is to label.

    Attributes:
        run: the folder that it came from.
        names: of the samples, as in predictions.csv.
        classes: names of the source classes, text.
        unknown: what the run calls samples of no class.
        start: the place that the run gave each sample, (n,).
        nearest: index of the nearest source class, (n,).
        confidence: probability of the answer of the run, of a class or of being unknown, (n,).
        features: (n, d), unit rows.
        prototypes: of the classes, (c, d), unit rows.
        class_faces: a typical source sample of each class, -1 where there is none, (c,).
        n_groups: private groups that the run found.
        digest: of everything that a label refers to; another run has another.
        stamp: of the model's file when it was read.
    """

    run: Path
    names: list[str]
    classes: list[str]
    unknown: str
    start: NDArray[np.int64]
    nearest: NDArray[np.int64]
    confidence: np.ndarray
    features: NDArray[np.float32]
    prototypes: NDArray[np.float32]
    class_faces: NDArray[np.int64]
    n_groups: int
    digest: str
    stamp: Stamp | None

    @classmethod
    def open(cls, run: Path) -> Target:
        """Reads it from a run folder."""
        stamp = _stamp(run)
        model = load_model(run)
        if not len(model.target):
            raise RunFolderError(f"{run} has no target of its own, so there is nothing to label. Adapt to one first.")
        return cls.of(model, run, _sample_names(run, len(model.target)), stamp)

    @classmethod
    def of(cls, model: AdaptedModel, run: Path, names: list[str], stamp: Stamp | None) -> Target:
        """Makes it from what a run ended with."""
        prototypes = model.class_centres
        classes = [as_utf8(str(name)) for name in model.classes.tolist()]
        start = start_places(model.target, model.groups.n_groups)
        return cls(
            run=run,
            names=names,
            classes=classes,
            unknown=as_utf8(str(model.unknown)),
            start=start,
            nearest=model.target.nearest,
            confidence=model.target.confidence,
            features=model.target_features,
            prototypes=prototypes,
            class_faces=_class_faces(model.source, prototypes),
            n_groups=model.groups.n_groups,
            digest=run_digest(model.fingerprint, names, classes, start),
            stamp=stamp,
        )

    def check_in_place(self) -> None:
        """An error where the run was made again since it was read: labels would get to the wrong samples."""
        if _stamp(self.run) != self.stamp:
            raise RunFolderError(
                f"{self.run} was made again or moved while this page was open. What you asked for was not done. End "
                "`uniot label` and start it again."
            )

    def class_named(self, name: str) -> int | None:
        """Index of the source class that a name means, however its letters are composed; None where it means none."""
        return class_named(name, self.classes)

    def is_unknown(self, name: str) -> bool:
        """Whether a name is what the run calls samples of no class."""
        return name == composed(self.unknown)


def _stamp(run: Path) -> Stamp | None:
    """Tells one writing of a run from another."""
    try:
        file = (run / "model.safetensors").stat()
    except OSError:
        return None
    return file.st_ino, file.st_mtime_ns, file.st_size


def _sample_names(run: Path, n_samples: int) -> list[str]:
    path = run / "predictions.csv"
    names = read_answers(path).names
    if len(names) != n_samples:
        raise RunFolderError(
            f"{path} has {len(names)} lines and the model answers for {counted(n_samples, 'sample')}. Make the run "
            "again."
        )
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise RunFolderError(
            f"{path} calls two samples {twice!r}, and labels are kept by name. Give each sample a name of its own, "
            "and make the run again."
        )
    return names


def _class_faces(source: LabelledFeatures, prototypes: np.ndarray) -> NDArray[np.int64]:
    nearness = (source.features * prototypes[source.classes]).sum(axis=1)
    faces = np.full(len(prototypes), -1, dtype=np.int64)
    farthest_first = np.argsort(nearness, kind="stable")
    faces[source.classes[farthest_first]] = source.rows[farthest_first]
    return faces
