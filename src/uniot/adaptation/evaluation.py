"""Scores of a run against true labels, with and without the samples that people labelled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from uniot.errors import DataError
from uniot.io.predictions import read_predictions
from uniot.io.text import counted
from uniot.labelling import read_names
from uniot.metrics.accuracy import confusion
from uniot.runs import Run, RunFiles
from uniot.runs.run import decisions_digest, evaluate_model
from uniot.training.true_labels import labels_as_classes

if TYPE_CHECKING:
    from uniot.metrics.evaluate import Evaluation
    from uniot.training.model import AdaptedModel


@dataclass(frozen=True)
class RunScores:
    """Scores of the target of a run.

    Attributes:
        all_samples: scores of all samples, except those that people labelled since the run.
        n_labelled: number of samples that people labelled before the run, which was trained on them.
        others: scores of the other samples; None if all or none were labelled.
        n_answered: number of samples that people labelled since, which are left out.
    """

    all_samples: Evaluation
    n_labelled: int = 0
    others: Evaluation | None = None
    n_answered: int = 0


def score_run(
    model: AdaptedModel, truth: object, run: Path, average: Literal["class", "instance"] = "class"
) -> RunScores:
    """Score the predictions of a run and write the scores to its folder.

    Args:
        model: the model of the run.
        truth: true target labels, (n_samples,).
        run: the run folder.
        average: unit that the accuracy within the H-score is averaged over.

    Returns:
        The scores, with and without the samples that people labelled before the run.

    Raises:
        DataError: people labelled all samples since the run.
    """
    before = _labelled_before(run, len(model.target))
    scored = before | ~model.labelled_by_people
    if not scored.any():
        raise DataError(
            f"people labelled all {counted(len(model.target), 'sample')} of {run}, so that there is no prediction to "
            "score."
        )
    labelled = before[scored]
    rows = None if scored.all() else scored
    scores = RunScores(evaluate_model(model, truth, average, rows), int(labelled.sum()))
    if labelled.any() and not labelled.all():
        others = np.flatnonzero(scored)[~labelled]
        scores = replace(scores, others=evaluate_model(model, truth, average, others))
    scores = replace(scores, n_answered=int((~scored).sum()))
    true_of_all = labels_as_classes(truth, model.classes, "labels")
    true = true_of_all[scored]
    labels = model.target.rows(scored).labels(model.classes, model.unknown)
    counts = confusion(true, labels, source_classes=model.classes, unknown=model.unknown)
    written = scores.all_samples.to_dict() | {"confusion": counts, "decisions": decisions_digest(model)}
    if scores.n_answered:
        written["n_left_out"] = scores.n_answered
    if scores.n_labelled:
        written["n_labelled_by_people"] = scores.n_labelled
        written["without_labelled_by_people"] = None if scores.others is None else scores.others.to_dict()
    with Run.writer(run, wait=True) as writer:
        writer.write_metrics(written)
        writer.write_true_labels(read_predictions(writer.files.predictions).names, true_of_all.tolist())
    return scores


def _labelled_before(run: Path, n_target: int) -> np.ndarray:
    """Return whether each target sample had a label by a person when the run began, (n_samples,)."""
    files = RunFiles(run)
    if not files.names.is_file():
        return np.zeros(n_target, dtype=bool)
    names = read_names(files.names)
    by_people = np.isin(names.decisions, ["named", "class"])
    given = {name for name, is_given in zip(names.names, by_people.tolist(), strict=True) if is_given}
    return np.array([name in given for name in read_predictions(files.predictions).names], dtype=bool)
