"""Two arrays in, an adapted model out; and new rows judged by it. Imports no scikit-learn, which takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uniot.adaptation import OnStep, adapt, oracle_watch
from uniot.data.arrays import as_inputs, as_labels, is_row_of, scaled_rows
from uniot.data.augmentation import rewrite
from uniot.data.samples import TensorSamples
from uniot.errors import DataError
from uniot.experiment_loggers import ExperimentLogger
from uniot.model import AdaptedModel
from uniot.processes import Processes
from uniot.settings import Settings
from uniot.training import fingerprint


def adapt_arrays(
    X: Any,
    y: Any,
    X_target: Any,
    settings: Settings,
    *,
    unknown: str | int | None = None,
    start: AdaptedModel | None = None,
    run: Path | None = None,
    processes: Processes | None = None,
    oracle_y_target: Any = None,
    on_step: OnStep | None = None,
    logger: ExperimentLogger | None = None,
) -> AdaptedModel:
    """Adapt from a labelled array to an unlabelled one.

    Args:
        X: source embeddings, (n_source, n_features), or small grey images, (n_source, height, width).
        y: source labels, (n_source,), text or whole numbers.
        X_target: target embeddings or images, (n_target, ...).
        settings: as given.
        unknown: label of unknown samples; "unknown" or -1 if None.
        start: model to continue from; random weights if None.
        run: folder for checkpoints; an interrupted run continues from there, a finished one is read back.
        processes: who shares the work; every process has all the data.
        oracle_y_target: true target labels, (n_target,), which add columns to the history and nothing else.
        on_step: called with step, number of steps and numbers of the step.
        logger: for settings and losses, if something is trained.
    """
    source, labels, target = _checked(X, y, X_target, settings)
    # Only the labelled images are varied: it widens what a class may look like, the target is what it is.
    augment = rewrite if settings.network != "none" else None
    classes, class_index = np.unique(labels, return_inverse=True)
    return adapt(
        TensorSamples(source, augment),
        labels,
        TensorSamples(target),
        settings,
        unknown=unknown,
        fingerprint=lambda resolved: fingerprint(resolved, [source, _tensor_of(class_index), target]),
        in_target=is_row_of(source, target),
        start=start,
        run=run,
        processes=processes,
        watch=None if oracle_y_target is None else oracle_watch(oracle_y_target, classes, len(target)),
        on_step=on_step,
        logger=logger,
    )


def inputs_of(X: Any, model: AdaptedModel) -> Tensor:
    """Check new rows and bring them to the form that the model was fitted on, (n, ...)."""
    inputs = _as_tensor(X, "X", model.settings)
    if tuple(inputs.shape[1:]) != model.input_shape:
        raise DataError(
            f"X has samples of shape {tuple(inputs.shape[1:])} and the model was fitted on {model.input_shape}. "
            "Give embeddings of the model that made the source's and the target's."
        )
    return inputs


def _checked(X: Any, y: Any, X_target: Any, settings: Settings) -> tuple[Tensor, np.ndarray, Tensor]:
    """Source, labels and target, or an error that says what is wrong with them."""
    source, target = _as_tensor(X, "X_source", settings), _as_tensor(X_target, "X_target", settings)
    labels = as_labels(y, "y_source")
    if len(labels) != len(source):
        raise DataError(f"y_source has {len(labels)} labels for {len(source)} rows of X_source. Give one per row.")
    if source.shape[1:] != target.shape[1:]:
        raise DataError(
            f"X_source has samples of shape {tuple(source.shape[1:])} and X_target of {tuple(target.shape[1:])}. "
            "Give embeddings of one and the same model for both."
        )
    return source, labels, target


def _as_tensor(values: Any, name: str, settings: Settings) -> Tensor:
    if settings.network == "none":
        return scaled_rows(as_inputs(values, name), settings.input_norm)
    images = as_inputs(values, name, n_dims=3).astype(np.float32)
    if images.min() < 0 or images.max() > 1:
        raise DataError(
            f"{name} has values from {images.min():g} to {images.max():g}. Give grey images with values from 0 to 1."
        )
    return torch.from_numpy(images)


def _tensor_of(class_index: np.ndarray) -> Tensor:
    return torch.from_numpy(class_index.astype(np.int64))
