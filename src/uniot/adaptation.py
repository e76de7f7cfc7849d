"""From a labelled and an unlabelled collection to an adapted model: what every way in ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from uniot.data.samples import Samples
from uniot.embeddings.image_reader import ImageReader
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.model import AdaptedModel, build_method
from uniot.processes import Processes
from uniot.settings import Settings
from uniot.training import Watch, train

OnStep = Callable[[int, int, Mapping[str, float]], None]


def adapt(
    source: Samples,
    labels: np.ndarray,
    target: Samples,
    settings: Settings,
    *,
    unknown: str | int | None = None,
    fingerprint: Callable[[Settings], str],
    reader: ImageReader | None = None,
    run: Path | None = None,
    processes: Processes | None = None,
    watch: Watch | None = None,
    on_step: OnStep | None = None,
) -> AdaptedModel:
    """Trains on both collections and answers for the target.

    Args:
        source: labelled samples.
        labels: their classes, text or integers, (n,).
        target: unlabelled samples; there is no argument for their labels.
        settings: as given; what the data decide is decided here.
        unknown: what unknown samples are called; "unknown" or -1 if None.
        fingerprint: a digest of the data and of the resolved settings.
        reader: what made the samples from images, where they come from images.
        run: folder for checkpoints; a run that was interrupted goes on from there, a finished one is read back.
        processes: who shares the work.
        watch: adds columns to the history.
        on_step: called with step, number of steps and numbers of the step.
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
    settings = settings.resolved(len(target))
    steps = settings.steps or 0
    digest = fingerprint(settings)
    finished = None if run is None else _finished_run(run, digest)
    if finished is not None:
        return finished
    shape = target.batch(torch.zeros(1, dtype=torch.long)).shape[1:]
    method = build_method(shape, len(classes), settings, reader)
    history = train(
        method,
        source,
        torch.from_numpy(class_index.astype(np.int64)),
        target,
        settings,
        folder=run,
        fingerprint=digest,
        processes=processes,
        watch=watch,
        on_step=None if on_step is None else lambda step, row: on_step(step, steps, row),
    )
    return AdaptedModel.conclude(
        method,
        target,
        classes=classes,
        unknown=unknown,
        settings=settings,
        history=history,
        fingerprint=digest,
        reader=reader,
        processes=processes,
    )


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
    if not AdaptedModel.is_saved(folder):
        return None
    model = AdaptedModel.load(folder)
    if model.fingerprint != digest:
        raise RunFolderError(
            f"{folder} holds a finished run of other data or other settings. Give another folder, or ask for it to be "
            "replaced (--overwrite on the command line)."
        )
    return model
