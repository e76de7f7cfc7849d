"""From a labelled and an unlabelled collection to an adapted model: what every way in ends with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uniot.conclusion import conclude
from uniot.data.arrays import as_labels
from uniot.data.samples import Samples
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.evaluation import common_recall, specificity
from uniot.experiment_loggers import ExperimentLogger, ended_on_failure, log_numbers, logging_step
from uniot.method_building import build_method, carry_over
from uniot.methods import Losses, method_info
from uniot.model import AdaptedModel
from uniot.model_files import is_saved, load_model
from uniot.processes import Processes
from uniot.settings import Settings
from uniot.training import Watch, train
from uniot.transport.threads import one_thread

# Up to so many values the end of a run is a matter of seconds on one thread. On busy cores, where threads wait for each
# other, two of them took twice as long.
_SMALL_VALUES = 1 << 24

OnStep = Callable[[int, int, Mapping[str, float]], None]


def adapt(
    source: Samples,
    labels: np.ndarray,
    target: Samples,
    settings: Settings,
    *,
    unknown: str | int | None = None,
    fingerprint: Callable[[Settings], str],
    in_target: np.ndarray | None = None,
    reader: ImageReader | None = None,
    start: AdaptedModel | None = None,
    run: Path | None = None,
    processes: Processes | None = None,
    watch: Watch | None = None,
    on_step: OnStep | None = None,
    logger: ExperimentLogger | None = None,
) -> AdaptedModel:
    """Trains on both collections and answers for the target.

    Args:
        source: labelled samples.
        labels: their classes, text or integers, (n,).
        target: unlabelled samples; there is no argument for their labels.
        settings: as given; what the data decide is decided here.
        unknown: what unknown samples are called; "unknown" or -1 if None.
        fingerprint: a digest of the data and of the resolved settings.
        in_target: whether each labelled sample is one of the target's that somebody labelled, (n,); none is if None.
        reader: what made the samples from images, where they come from images.
        start: what another run ended with, to go on from; from random weights if None.
        run: folder for checkpoints; a run that was interrupted goes on from there, a finished one is read back.
        processes: who shares the work.
        watch: adds columns to the history.
        on_step: called with step, number of steps and numbers of the step.
        logger: for settings and losses, if something is trained; ended here only if the training fails.
    """
    classes, class_index = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"the source has a single class, {classes.tolist()[0]!r}. Give at least two classes to tell apart."
        )
    if len(target) < 2:
        raise DataError(
            "the target has a single sample, and the rule compares target samples with each other. Fit on a "
            "collection, then use `predict` for single samples."
        )
    unknown = _unknown_label(unknown, classes)
    info = method_info(settings.method)
    trains = not info.is_closed_form or settings.network != "none" or (reader is not None and reader.fine_tunes)
    warnings = _step_warnings(settings, trains=trains)
    settings = settings.resolved(len(target), info.learning_rate)
    if not trains:
        settings = settings.model_copy(update={"steps": 0})
    steps = settings.steps or 0
    digest = fingerprint(settings)
    if start is not None:
        digest = hashlib.sha256(f"{digest} {start.fingerprint}".encode()).hexdigest()
    finished = None if run is None else _finished_run(run, digest)
    if finished is not None:
        return finished
    shape = target.batch(torch.zeros(1, dtype=torch.long)).shape[1:]
    method = build_method(shape, len(classes), settings, reader)
    source_classes = torch.from_numpy(class_index.astype(np.int64))
    if start is not None:
        carry_over(method, start, classes, source, source_classes)
    processes = processes or Processes()
    if logger is not None and steps and processes.rank == 0:
        logger.log_hyperparams(settings.model_dump())
        on_step = logging_step(logger, on_step)
    with ended_on_failure(logger):
        history = train(
            method,
            source,
            source_classes,
            target,
            settings,
            folder=run,
            fingerprint=digest,
            processes=processes,
            watch=watch,
            on_step=None if on_step is None else lambda step, row: on_step(step, steps, row),
        )
    n_values = (len(source) + len(target)) * math.prod(shape)
    with one_thread() if n_values <= _SMALL_VALUES else nullcontext():
        return conclude(
            method,
            source,
            source_classes,
            target,
            classes=classes,
            unknown=unknown,
            settings=settings,
            history=history,
            fingerprint=digest,
            in_target=None if in_target is None else torch.from_numpy(in_target),
            reader=reader,
            processes=processes,
            warnings=warnings,
        )


def _step_warnings(settings: Settings, *, trains: bool) -> tuple[str, ...]:
    """Return a warning of steps that are too few, or that are not taken."""
    if settings.steps and not trains:
        return (
            f"{settings.method} trains nothing but a network, if there is one to train, so that {settings.steps} steps "
            "have no effect. UniOT as published trains on embeddings too: method uniot.",
        )
    first = settings.detection_start + 2  # the method counts from zero, and begins after that step
    if settings.method == "uniot" and settings.steps is not None and settings.steps < first:
        return (
            f"common-class detection trains from step {first} on (detection_start = {settings.detection_start}), and "
            f"this run ends with step {settings.steps}, so it never does. Give more steps.",
        )
    return ()


def log_end(logger: ExperimentLogger, model: AdaptedModel, scores: Mapping[str, Any] | None = None) -> None:
    """Log what a training came to, and end the logged run.

    Args:
        logger: the one that `adapt` was given.
        model: what the training ended with; if nothing was trained, nothing is logged.
        scores: against true labels, if they are known.
    """
    if model.settings.steps:
        found = {"private_prior": model.private_prior, "n_private_classes": model.groups.n_groups}
        if model.reliability is not None and model.reliability.accuracy is not None:
            found["estimated_accuracy"] = model.reliability.accuracy
        log_numbers(
            logger, found | {f"score_{name}": value for name, value in (scores or {}).items()}, model.settings.steps
        )
    logger.finalize("success")


def labels_as_classes(labels: Any, classes: np.ndarray, name: str) -> np.ndarray:
    """True labels as text or integers, whichever the classes are: a text file cannot tell them apart."""
    true = as_labels(labels, name)
    return np.asarray(true.astype(str) if classes.dtype.kind == "U" else true.astype(np.int64))


def oracle_watch(y_target: Any, classes: np.ndarray, n_target: int) -> Watch:
    """Recall and specificity of the detection in each step, for people who hold the truth. Paper: Fig. S1(a)."""
    truth = labels_as_classes(y_target, classes, "oracle_y_target")
    if len(truth) != n_target:
        raise DataError(f"oracle_y_target has {len(truth)} labels for {n_target} target rows. Give one per row.")

    def watch(target_ids: Tensor, losses: Losses) -> Mapping[str, float]:
        if losses.detected is None:
            return {"oracle_recall": float("nan"), "oracle_specificity": float("nan")}
        detected = losses.detected.cpu().numpy()
        true = truth[target_ids.cpu().numpy()]
        is_common = np.isin(true, classes)
        assigned = classes[np.maximum(detected, 0)]
        found = detected >= 0
        recall = specific = float("nan")
        if is_common.any():
            recall = common_recall(true, found, assigned, source_classes=classes)
        if not is_common.all():
            specific = specificity(true, found, source_classes=classes)
        return {"oracle_recall": recall, "oracle_specificity": specific}

    return watch


def _unknown_label(given: str | int | None, classes: np.ndarray) -> str | int:
    is_text = classes.dtype.kind == "U"
    unknown = ("unknown" if is_text else -1) if given is None else given
    if isinstance(unknown, str) != is_text:
        kind = "text" if is_text else "integers"
        raise SettingsError(f"unknown_label is {unknown!r} and the classes are {kind}. Give a label of the same kind.")
    if unknown in classes.tolist():
        raise DataError(
            f"a source class is called {unknown!r}, which is also what unknown samples are called. "
            "Set unknown_label to something else."
        )
    return unknown


def _finished_run(folder: Path, digest: str) -> AdaptedModel | None:
    """The run that the folder already holds, if it is this one."""
    if not is_saved(folder):
        return None
    model = load_model(folder)
    if model.fingerprint != digest:
        raise RunFolderError(
            f"{folder} holds a finished run of other data or other settings. Give another folder, or ask for it to be "
            "replaced (--overwrite on the command line)."
        )
    return model
