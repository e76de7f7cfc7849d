"""An adapted model from what was read of a run folder; every part is compared with the others."""

from __future__ import annotations

import torch

from uniot.discovery import LabelledFeatures, PrivateGroups
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import RunFolderError
from uniot.methods import Method
from uniot.model import AdaptedModel
from uniot.prediction import Prediction
from uniot.run_description import RunDescription
from uniot.settings import Settings
from uniot.stored_tensors import MAKE_AGAIN, StoredTensors
from uniot.training import History

_LARGEST_ROW = 2**53


def restored(
    run: RunDescription,
    settings: Settings,
    tensors: StoredTensors,
    features: StoredTensors,
    method: Method,
    reader: ImageReader | None,
    width: int,
) -> AdaptedModel:
    """Return the model.

    Args:
        run: its description.
        settings: of the run.
        tensors: of model.safetensors.
        features: of features.safetensors.
        method: with its weights and its rule.
        reader: of images; None for a run made from arrays.
        width: of a feature.

    Raises:
        RunFolderError: a tensor is missing, or has another shape, type or range than the rest of the run asks for.
    """
    n_classes = len(run.classes)
    centres = tensors.take("groups.centres", (None, width), torch.float32).numpy()
    target = _answers(tensors.below("target."), n_classes, len(centres))
    # A run that was shared has neither answers nor features.
    target_features = features.take("target", (len(target), width), torch.float16)
    source = features.take("source", (None, width), torch.float16)
    shape = (len(target),)
    return AdaptedModel(
        method=method,
        groups=PrivateGroups(target.group[~target.known], centres, run.number),
        absence=tensors.take("absence", (n_classes,), torch.float64, low=0, high=1).numpy(),
        classes=run.class_array,
        unknown=run.unknown,
        settings=settings,
        input_shape=tuple(run.input_shape),
        target=target,
        target_features=target_features.float().numpy(),
        source=LabelledFeatures(
            source.float().numpy(),
            features.take("source.classes", (len(source),), torch.int64, low=0, high=n_classes - 1).numpy(),
            features.take("source.rows", (len(source),), torch.int64, low=0, high=_LARGEST_ROW).numpy(),
        ),
        history=_history(run, tensors),
        fingerprint=run.fingerprint,
        reader=reader,
        threshold=run.threshold,
        target_shares=tensors.take("target.shares", shape, torch.float64, low=0).numpy(),
        target_class_probability=tensors.take("target.class_probability", shape, torch.float64, low=0, high=1).numpy(),
        calibration=run.calibration,
        reliability=run.reliability,
    )


def _answers(tensors: StoredTensors, n_classes: int, n_groups: int) -> Prediction:
    nearest = tensors.take("nearest", (None,), torch.int64, low=0, high=n_classes - 1)
    shape = (len(nearest),)
    known = tensors.take("known", shape, torch.bool).numpy()
    group = tensors.take("group", shape, torch.int64, low=-1, high=n_groups - 1).numpy()
    if (group[known] >= 0).any():
        raise RunFolderError(f"{tensors.where} puts known samples into groups of unknown ones. {MAKE_AGAIN}")
    return Prediction(
        nearest=nearest.numpy(),
        known=known,
        known_score=tensors.take("known_score", shape, torch.float64, low=0, high=1).numpy(),
        confidence=tensors.take("confidence", shape, torch.float64, low=0, high=1).numpy(),
        group=group,
        group_confidence=tensors.take("group_confidence", shape, torch.float64, low=0, high=1).numpy(),
    )


def _history(run: RunDescription, tensors: StoredTensors) -> History:
    """The history; a step may lack one of its numbers, so that these may be NaN."""
    for name, n_columns in (("history", len(run.columns)), ("history.class_mass", 1 + len(run.classes))):
        rows = tensors.tensors.get(name)
        if rows is None or rows.dtype != torch.float64 or (rows.numel() and rows.shape[1:] != (n_columns,)):
            raise RunFolderError(f"{tensors.where} has no {name} of {n_columns} columns. {MAKE_AGAIN}")
    return History.of(run.columns, tensors.tensors)
