"""Load the model of a run folder, with every part of it checked before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uniot.config import Settings
from uniot.discovery.groups import LabelledFeatures, NearestGroups, PrivateGroups, absence
from uniot.errors import RunFolderError, UniotError
from uniot.images.backbones import ImageReader
from uniot.io import tensor_files
from uniot.io.predictions import Prediction
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors, check_sizes
from uniot.io.text import command
from uniot.methods.base import Method
from uniot.methods.decision import Calibration
from uniot.methods.fitted import has_replaced_rule, upgraded_tensors
from uniot.methods.registry import METHODS
from uniot.rejection.answers import Answers
from uniot.rejection.posterior import RejectionPosterior
from uniot.runs.description import RunDescription, describe_run
from uniot.runs.files import RunFiles
from uniot.training.history import History

if TYPE_CHECKING:
    from uniot.methods.base import Method
    from uniot.training.model import AdaptedModel

_LARGEST_ROW = 2**53
_describe = partial(tensor_files.describe_tensors, accept_former=True)
_read = partial(tensor_files.read_tensors, accept_former=True)


def load_model(folder: Path) -> AdaptedModel:
    """Return the model of a finished run, which may come from anybody.

    Nothing in the files is executed. Sizes are compared with those of the files before anything is allocated; shapes,
    types, ranges and finiteness before anything is used.

    Raises:
        RunFolderError: the folder has no finished run, or one that is damaged or inconsistent.
        SettingsError: the run has settings that this version does not have.
    """
    run = describe_run(folder)[0]
    try:
        return _loaded(RunFiles(folder), run)
    except UniotError:
        raise
    except (KeyError, MemoryError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{folder} cannot be read by this version of uniot ({type(error).__name__}: "
            f"{str(error).partition(chr(10))[0][:200]}). Use the version that wrote it, or make the run again."
        ) from error


def _loaded(files: RunFiles, run: RunDescription) -> AdaptedModel:
    from uniot.training.fit import build_method

    path, settings = files.model, run.checked_settings
    outline = _describe(path)[0]
    _check_rule_exists(files, settings, run, outline)
    if run.from_images and not files.backbone.is_file():
        raise RunFolderError(f"{files.backbone} is missing: the run was made from images. Make the run again.")
    reader = ImageReader.outlined(files.backbone, accept_former=run.is_former) if run.from_images else None
    width = _checked_width(path, upgraded_tensors(outline, run.rule), run, settings, reader)
    tensors = StoredTensors(str(path), upgraded_tensors(_read(path)[0], run.rule))
    stored_features, about = _read(files.features)
    if about.get("fingerprint") != run.fingerprint:
        names = f"{path.name} and {files.features.name}"
        raise RunFolderError(f"{files.folder} mixes files of two runs ({names} disagree). Make the run again.")
    features = StoredTensors(str(files.features), stored_features)
    # A step may lack one of its numbers, which is NaN then.
    tensors.check_finite(leave_out=("history", "history.class_mass"))
    reader = None if reader is None else reader.filled(files.backbone, accept_former=run.is_former)
    method = build_method(tuple(run.input_shape), len(run.classes), settings, reader)
    method.load_state_dict(tensors.below("method.").tensors)
    method.eval()
    if not method.is_finalized():
        raise RunFolderError(f"{path} has no rule that decides about samples. {MAKE_AGAIN}")
    prototypes = method.class_prototypes()
    if method.has_own_space and prototypes is not None:
        width = prototypes.shape[1]
    features.take("target", (None, width), torch.float16)
    if run.is_former:
        tensors = _with_scores(tensors, features, method)
    return _restored(run, tensors, features, method, reader)


def _checked_width(
    path: Path, outline: Mapping[str, Tensor], run: RunDescription, settings: Settings, reader: ImageReader | None
) -> int:
    """Check that the weights of the file are those that the settings require; return the width of a feature."""
    from uniot.training.fit import build_method

    weights = StoredTensors(str(path), outline).below("method.").tensors
    with torch.device("meta"), torch.no_grad():
        method = build_method(run.input_shape, len(run.classes), settings, reader)
        check_sizes(str(path), method.eval(), weights)
        return int(method.features(torch.zeros(1, *run.input_shape)).shape[1])


def _restored(
    run: RunDescription, tensors: StoredTensors, features: StoredTensors, method: Method, reader: ImageReader | None
) -> AdaptedModel:
    """Return the model made of a description, checked tensors, and a method that has its state."""
    from uniot.training.model import AdaptedModel

    n_classes, width = len(run.classes), features.tensors["target"].shape[1]
    centres = tensors.take("groups.centres", (None, width), torch.float32).numpy()
    target = _predictions(tensors.below("target."), n_classes, len(centres))
    rows, nearest_groups = _feature_rows(features, len(target)), None
    if rows is not None:
        nearest_groups = NearestGroups(
            tensors.take("groups.nearest", (len(target),), torch.int64, low=-1, high=len(centres) - 1).numpy(),
            tensors.take("groups.nearest_confidence", (len(target),), torch.float64, low=0, high=1).numpy(),
        )
    # A run that was shared has neither predictions nor features of its target.
    n_features = len(target) if rows is None else len(rows)
    target_features = features.take("target", (n_features, width), torch.float16)
    source = features.take("source", (None, width), torch.float16)
    stored_absence = tensors.take("absence", (n_classes,), torch.float64, low=0, high=1)
    shape = (len(target),)
    return AdaptedModel(
        method=method,
        groups=PrivateGroups(target.group[~target.known], centres, run.number),
        # Earlier versions stored another score; a run that was shared has nothing to compute it from.
        absence=absence(target, n_classes) if len(target) else stored_absence.numpy(),
        classes=np.array(run.classes),
        unknown=run.unknown,
        settings=run.checked_settings,
        input_shape=tuple(run.input_shape),
        target=target,
        target_features=target_features.float().numpy(),
        source=LabelledFeatures(
            source.float().numpy(),
            features.take("source.classes", (len(source),), torch.int64, low=0, high=n_classes - 1).numpy(),
            features.take("source.rows", (len(source),), torch.int64, low=-1, high=_LARGEST_ROW).numpy(),
        ),
        history=_history(run, tensors),
        fingerprint=run.fingerprint,
        reader=reader,
        threshold=run.threshold,
        target_odds=tensors.take("target.shares", shape, torch.float64, low=0).numpy(),
        target_class_probability=tensors.take("target.class_probability", shape, torch.float64, low=0, high=1).numpy(),
        target_class_log_odds=_class_log_odds(tensors, len(target), n_classes),
        calibration=run.calibration,
        reliability=run.reliability,
        feature_rows=rows,
        nearest_groups=nearest_groups,
        **_answers(tensors, target, n_classes, width),
    )


def _class_log_odds(tensors: StoredTensors, n_target: int, n_classes: int) -> np.ndarray:
    """Return the log odds of the classes by the rule, (n_target, n_classes); no rows if the run does not have them."""
    stored = tensors.tensors.get("target.class_log_odds")
    if stored is None or not len(stored):
        return np.zeros((0, n_classes), dtype=np.float16)
    return np.asarray(tensors.take("target.class_log_odds", (n_target, n_classes), torch.float16, high=0).numpy())


def _answers(tensors: StoredTensors, target: Prediction, n_classes: int, width: int) -> dict[str, Any]:
    """Return the answers of a person, the line that follows from them, and the nearest classes by the rule alone."""
    own, posterior = tensors.below("answers."), tensors.below("posterior.")
    if not own.tensors:
        return {"target_nearest": target.nearest}
    rows = own.take("rows", (None,), torch.int64, low=0).numpy()
    classes = own.take("classes", (len(rows),), torch.int64).numpy()
    answers = Answers(rows, classes)
    # Earlier versions stored no marks.
    if "inferred" in own.tensors:
        marks = (own.take(name, (len(rows),), torch.bool).numpy() for name in ("inferred", "moves_line"))
        answers = Answers(rows, classes, *marks)
    if len(np.unique(rows)) != len(rows):
        raise RunFolderError(f"{tensors.where} has two answers about one sample. {MAKE_AGAIN}")
    answers.check(len(target), n_classes)
    nearest = tensors.take("target.rule_nearest", (len(target),), torch.int64, low=0, high=n_classes - 1)
    line = RejectionPosterior.read(posterior, width, n_classes) if posterior.tensors else None
    return {"target_nearest": nearest.numpy(), "answers": answers, "posterior": line}


def _feature_rows(features: StoredTensors, n_target: int) -> np.ndarray | None:
    """Return the rows of a large target whose features are stored; None if all are."""
    if "target.rows" not in features.tensors:
        return None
    rows = features.take("target.rows", (None,), torch.int64, low=0, high=n_target - 1).numpy()
    if (np.diff(rows) <= 0).any():
        raise RunFolderError(f"{features.where} has features of samples that are not in order. {MAKE_AGAIN}")
    return rows


def _predictions(tensors: StoredTensors, n_classes: int, n_groups: int) -> Prediction:
    nearest = tensors.take("nearest", (None,), torch.int64, low=0, high=n_classes - 1)
    shape = (len(nearest),)
    known = tensors.take("known", shape, torch.bool).numpy()
    group = tensors.take("group", shape, torch.int64, low=-1, high=n_groups - 1).numpy()
    if (group[known] >= 0).any():
        raise RunFolderError(f"{tensors.where} has known samples in groups of unknown ones. {MAKE_AGAIN}")
    return Prediction(
        nearest=nearest.numpy(),
        known=known,
        known_score=tensors.take("known_score", shape, torch.float64, low=0, high=1).numpy(),
        confidence=tensors.take("confidence", shape, torch.float64, low=0, high=1).numpy(),
        group=group,
        group_confidence=tensors.take("group_confidence", shape, torch.float64, low=0, high=1).numpy(),
    )


def _history(run: RunDescription, tensors: StoredTensors) -> History:
    for name, n_columns in (("history", len(run.columns)), ("history.class_mass", 1 + len(run.classes))):
        rows = tensors.tensors.get(name)
        if rows is None or rows.dtype != torch.float64 or (rows.numel() and rows.shape[1:] != (n_columns,)):
            raise RunFolderError(f"{tensors.where} has no {name} of {n_columns} columns. {MAKE_AGAIN}")
    return History.of(run.columns, tensors.tensors)


def _check_rule_exists(files: RunFiles, settings: Settings, run: RunDescription, names: Iterable[str]) -> None:
    """Raise RunFolderError for a run whose decision rule has changed since: in the former format all but UniOT."""
    info = METHODS.get(settings.method)
    is_uniot = info is not None and "uniot" in (info.name, info.variant_of)
    if has_replaced_rule(names) or (run.is_former and not is_uniot):
        raise RunFolderError(
            f"{files.folder} was made by an earlier version of uniot, with a rule of {settings.method} that no longer "
            "exists: it has no model. Its predictions and settings can still be read, as Run.open(folder).predictions "
            "and .settings. For a model, adapt again: "
            + command("adapt", "labelled/", "unlabelled/", "--settings", files.settings, "--out", "new/")
        )


def _with_scores(tensors: StoredTensors, features: StoredTensors, method: Method) -> StoredTensors:
    """Add what a run of UniOT in the former format lacks: scores of being known, class probabilities and confidence.

    The former confidence was the score of being known. Class probabilities are computed from the stored features.
    """
    nearest = tensors.take("target.nearest", (None,), torch.int64, low=0)
    known = tensors.take("target.known", (len(nearest),), torch.bool)
    score = tensors.take("target.confidence", (len(nearest),), torch.float64, low=0, high=1)
    odds = score / (1 - score).clamp_min(1e-16)
    target = features.take("target", (len(nearest), None), torch.float16).float()
    calibration = Calibration()
    of_classes = calibration.class_probabilities(method.decide(target).odds)
    of_class = of_classes.gather(1, nearest.clamp_max(of_classes.shape[1] - 1)[:, None])[:, 0]
    added = {
        "target.known_score": score,
        "target.shares": tensors.tensors.get("target_shares", odds),
        "target.class_probability": of_class,
        "target.confidence": calibration.confidence(odds, of_class, known),
    }
    return StoredTensors(tensors.where, {**tensors.tensors, **added})
