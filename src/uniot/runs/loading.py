"""Load the model of a run folder, with every part of it checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uniot.config import Settings
from uniot.discovery.groups import LabelledFeatures, NearestGroups, PrivateGroups
from uniot.errors import RunFolderError, UniotError
from uniot.images.backbones import ImageReader
from uniot.io.predictions import Prediction
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors, check_sizes, describe_tensors, read_tensors
from uniot.methods.base import Method
from uniot.methods.registry import method_info
from uniot.rejection.answers import Answers
from uniot.rejection.posterior import RejectionPosterior
from uniot.runs.description import RunDescription, describe_run
from uniot.runs.files import RunFiles
from uniot.training.history import History

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel

_LARGEST_ROW = 2**53


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
    method_info(settings.method, run.method_package)
    if run.from_images and not files.backbone.is_file():
        raise RunFolderError(f"{files.backbone} is missing: the run was made from images. Make the run again.")
    reader = ImageReader.outlined(files.backbone) if run.from_images else None
    width = _checked_width(path, describe_tensors(path)[0], run, settings, reader)
    tensors = StoredTensors(str(path), read_tensors(path)[0])
    stored_features, about = read_tensors(files.features)
    if about.get("fingerprint") != run.fingerprint:
        names = f"{path.name} and {files.features.name}"
        raise RunFolderError(f"{files.folder} mixes files of two runs ({names} disagree). Make the run again.")
    features = StoredTensors(str(files.features), stored_features)
    # A step may lack one of its numbers, which is NaN then.
    tensors.check_finite(leave_out=("history", "history.class_mass"))
    reader = None if reader is None else reader.filled(files.backbone)
    method = build_method(tuple(run.input_shape), len(run.classes), settings, reader)
    method.load_state_dict(tensors.below("method.").tensors)
    method.eval()
    if not method.is_finalized():
        raise RunFolderError(f"{path} has no rule that decides about samples. {MAKE_AGAIN}")
    prototypes = method.class_prototypes()
    if method.has_own_space and prototypes is not None:
        width = prototypes.shape[1]
    features.take("target", (None, width), torch.float16)
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
    shape = (len(target),)
    return AdaptedModel(
        method=method,
        groups=PrivateGroups(target.group[~target.known], centres, run.number),
        absence=tensors.take("absence", (n_classes,), torch.float64, low=0, high=1).numpy(),
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
        feature_names=None if run.feature_names is None else tuple(run.feature_names),
        **_answers(tensors, target, n_classes, width),
    )


def _class_log_odds(tensors: StoredTensors, n_target: int, n_classes: int) -> np.ndarray:
    """Return the log odds of the classes by the rule, (n_target, n_classes); no rows if the run does not have them."""
    stored = tensors.tensors.get("target.class_log_odds")
    if stored is not None and not len(stored):
        return np.zeros((0, n_classes), dtype=np.float16)
    return np.asarray(tensors.take("target.class_log_odds", (n_target, n_classes), torch.float16, high=0).numpy())


def _answers(tensors: StoredTensors, target: Prediction, n_classes: int, width: int) -> dict[str, Any]:
    """Return the answers of a person, the line that follows from them, and the nearest classes by the rule alone."""
    own, posterior = tensors.below("answers."), tensors.below("posterior.")
    if not own.tensors:
        return {"target_nearest": target.nearest}
    rows = own.take("rows", (None,), torch.int64, low=0).numpy()
    classes = own.take("classes", (len(rows),), torch.int64).numpy()
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
