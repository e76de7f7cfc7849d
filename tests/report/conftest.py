from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from uniot.config import Settings
from uniot.discovery.class_count import Evidence, NumberOfClasses
from uniot.discovery.groups import LabelledFeatures, PrivateGroups, absence
from uniot.io.predictions import Prediction
from uniot.methods import resolved_settings
from uniot.methods.decision import Calibration
from uniot.runs.files import RunFiles
from uniot.runs.pictures import write_pixels
from uniot.runs.run import Run
from uniot.runs.saving import save_model
from uniot.training.fit import build_method
from uniot.training.history import History
from uniot.training.model import AdaptedModel
from uniot.transport.unbalanced import unbalanced_potential

pytest.register_assert_rewrite("report.controls", "report.looking")

from report.real_runs import RealReports  # noqa: E402  # isort: skip

METRICS = {
    "h_score": 0.75,
    "h3_score_honest": 0.7,
    "h3_score_oracle": 0.8,
    "nmi_honest": None,
    "nmi_oracle": 0.9,
    "per_class_recall": {"ant": 1.0, "unknown": 0.5},
    "confusion": {"ant": {"ant": 9, "unknown": 1}, "elk": {"unknown": 4, "bee": 3}},
    "notes": ["nmi_honest has no value: no groups were given."],
}


def made_model(
    classes: Sequence[str] = ("ant", "bee", "cow"),
    found: Sequence[int] = (9, 5, 0),
    groups: Sequence[int] = (7, 4),
    *,
    interval: tuple[int, int] | None = None,
    evidence: tuple[Evidence, ...] = (),
    oracle: bool = False,
    epsilon: float = 0.01,
) -> AdaptedModel:
    """A model that was never trained: so many samples of each class and of each group, around a direction each."""
    rng = np.random.default_rng(7)
    settings = Settings.checked(method="uniot", hidden_size=6, feature_size=16, queue_size=20, steps=12)
    settings = resolved_settings(settings, 100)
    directions = _unit(rng.normal(size=(len(classes) + len(groups), 16)))
    sizes = np.array([*found, *groups])
    kind = np.repeat(np.arange(len(sizes)), sizes)
    kind = rng.permutation(kind)
    features = _unit(directions[kind] + 0.1 * rng.normal(size=(len(kind), 16)))
    of_source = np.repeat(np.arange(len(classes)), 4)
    source = _unit(directions[of_source] + 0.1 * rng.normal(size=(len(of_source), 16)))
    method = build_method((5,), len(classes), settings)
    method.loss.classes.weight.data = torch.from_numpy(directions[: len(classes)])
    known = kind < len(classes)
    cosines = features.astype(np.float64) @ directions[: len(classes)].T
    method.solved.value = unbalanced_potential(torch.from_numpy(cosines), epsilon=epsilon)
    group = np.where(known, -1, kind - len(classes))
    sureness = rng.uniform(size=len(kind))
    answers = Prediction(
        nearest=cosines.argmax(axis=1) if len(kind) else np.zeros(0, np.int64),
        known=known,
        known_score=np.where(known, 0.5 + sureness / 2, 0.499 * sureness),
        confidence=np.where(known, 0.5 + sureness / 2, 1 - 0.499 * sureness),
        group=group,
        group_confidence=np.where(known, 0, rng.uniform(size=len(kind))),
    )
    answers.nearest[known] = kind[known]
    history = History()
    for step in range(1, 13):
        row = {"step": step, "learning_rate": 0.01, "loss": 3 / step, "loss_source": 2 / step, "detected": np.nan}
        if oracle:
            row |= {"oracle_recall": np.nan if step < 3 else 0.8, "oracle_specificity": 0.9}
        history.add(row)
        history.class_mass.append([step, *rng.dirichlet(np.ones(len(classes)))])
    number = NumberOfClasses(len(groups), interval or (len(groups), len(groups)), evidence)
    return AdaptedModel(
        method=method.eval(),
        groups=PrivateGroups(group[~known], directions[len(classes) :].astype(np.float32), number),
        absence=absence(answers, len(classes)),
        classes=np.array(classes),
        unknown="unknown",
        settings=settings,
        input_shape=(5,),
        target=answers,
        target_features=features,
        source=LabelledFeatures(source, of_source, np.arange(len(of_source))),
        history=history,
        fingerprint="made",
        target_odds=answers.known_score / (1 - answers.known_score),
        target_nearest=answers.nearest,
        target_class_probability=np.ones(len(kind)),
        calibration=Calibration(),
    )


def save_run(
    folder: Path,
    model: AdaptedModel | None = None,
    *,
    pictures: bool = False,
    metrics: dict | None = None,
    names: list[str] | None = None,
) -> Run:
    """A run of a model, with pictures and scores if they are wanted."""
    model = model or made_model()
    if names is None:
        names = [f"shelf/{row:03d}.jpg" for row in range(len(model.target))]
    save_model(model, folder, names)
    if pictures:
        write_pixels(folder, drawn_pixels(len(model.source.rows)) / 255, drawn_pixels(len(names)) / 255)
    if metrics is not None:
        RunFiles(folder).metrics.write_text(json.dumps(metrics))
    return Run.open(folder)


def without_target(model: AdaptedModel) -> AdaptedModel:
    return replace(
        model,
        target=Prediction.none(),
        target_features=model.target_features[:0],
        target_odds=model.target_odds[:0],
        target_nearest=model.target_nearest[:0],
        target_class_probability=model.target_class_probability[:0],
        source=model.source.none(),
    )


def drawn_pixels(count: int) -> np.ndarray:
    """Squares of different grey, 8 × 8."""
    shade = np.linspace(40, 220, max(count, 1)).astype(np.uint8)[:count]
    return np.broadcast_to(shade[:, None, None], (count, 8, 8)).copy()


def _unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(name="made_model", scope="session")
def made_model_fixture():
    return made_model


@pytest.fixture(scope="session")
def made_run(tmp_path_factory):
    """Saves a run in a folder of its own, or in one that is given, and opens it."""

    def made(model: AdaptedModel | None = None, folder: Path | None = None, **kept) -> Run:
        return save_run(folder or tmp_path_factory.mktemp("runs") / "run", model, **kept)

    return made


@pytest.fixture(name="without_target", scope="session")
def without_target_fixture():
    return without_target


@pytest.fixture(scope="session")
def real_reports(tmp_path_factory, uniot, shape_folders) -> RealReports:
    return RealReports(tmp_path_factory.mktemp("reports"), uniot, shape_folders)


@pytest.fixture(scope="session")
def metrics_of_run() -> dict:
    return dict(METRICS)


@pytest.fixture(scope="session")
def evidence_of_run() -> tuple[Evidence, ...]:
    return (
        Evidence("known classes", 2.0, (1.0, 3.0), True, "Groups that are mostly unknown."),
        Evidence("silhouette", 8.5, (6.0, 11.0), False, "Often too high."),
    )
