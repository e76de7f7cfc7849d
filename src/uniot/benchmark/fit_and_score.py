"""Fit the method of a job to its task, and score the model with the target labels.

This is the only module of the benchmark that fits.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from uniot import __version__
from uniot.benchmark.features import TaskData, draw_target, read_domain, task_data
from uniot.benchmark.jobs import Job
from uniot.benchmark.oracle_answers import AnswerScore, oracle_answers
from uniot.benchmark.results import Result
from uniot.errors import DataError
from uniot.methods.registry import resolved_settings
from uniot.metrics.accuracy import common_accuracy
from uniot.metrics.evaluate import Evaluation, evaluate
from uniot.metrics.ranking import best_threshold_h_score
from uniot.training.domains import domains_from_arrays
from uniot.training.fit import FitContext
from uniot.training.fit import fit as fit_domains

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel


@dataclass(frozen=True)
class ScoredJob:
    """The row of a job in the tables, every score with its notes, and the scores after simulated answers."""

    result: Result
    evaluation: Evaluation
    answers: tuple[AnswerScore, ...] = ()


def run_job(job: Job) -> ScoredJob:
    """Fit and score a job.

    Returns:
        The result and all scores; with the same number of threads, everything but the duration is reproducible.
    """
    data = load_data(job)
    with threadpool_limits(job.threads):
        threads = torch.get_num_threads()
        torch.set_num_threads(job.threads)
        try:
            began, began_cpu = time.perf_counter(), time.process_time()
            oracle = OracleSelection(job.oracle_selection, data.oracle_target_labels) if job.oracle_selection else None
            model = fit(job, data.source, data.source_labels, data.target, oracle)
            seconds = time.perf_counter() - began - (0 if oracle is None else oracle.seconds)
            cpu_seconds = time.process_time() - began_cpu - (0 if oracle is None else oracle.cpu_seconds)
            scored = _scored(job, model, data.oracle_target_labels, (seconds, cpu_seconds))
            if job.oracle_answers:
                scored = replace(scored, answers=tuple(oracle_answers(model, data.oracle_target_labels, job.seed)))
            if oracle is None:
                return scored
            best = max(oracle.best, scored.result.h or 0.0)
            return replace(scored, result=replace(scored.result, h_oracle_selection=best))
        finally:
            torch.set_num_threads(threads)


def load_data(job: Job) -> TaskData:
    """Return the samples of the job's task; raise DataError if the features have changed since it was planned."""
    where = Path(job.features)
    source, target = read_domain(where, job.source), read_domain(where, job.target)
    if (source.digest, target.digest) != (job.source_digest, job.target_digest):
        raise DataError(f"{where} has changed since the benchmark was planned. Run `uniot benchmark` again.")
    data = task_data(source, target, job.split)
    return data if job.draw is None else draw_target(data, job.draw)


class OracleSelection:
    """Scores of the model at several steps, by target labels: what choosing the step by them would gain.

    Args:
        times: number of steps at which the model is scored.
        truth: true labels of the target, (n_target,).

    Attributes:
        best: largest H-score so far.
        seconds: time that scoring took.
        cpu_seconds: processor time that it took.
    """

    def __init__(self, times: int, truth: np.ndarray) -> None:
        self._times, self._truth = times, truth
        self.best, self.seconds, self.cpu_seconds = 0.0, 0.0, 0.0

    def watch(self, steps: int) -> Callable[[int, Callable[[], AdaptedModel]], None]:
        """Return what a fit of that many steps calls after each step."""

        def inspect(step: int, as_if_ended: Callable[[], AdaptedModel]) -> None:
            if step % max(1, steps // self._times) == 0 and step != steps:
                began, began_cpu = time.perf_counter(), time.process_time()
                model = as_if_ended()
                labels = model.labels(model.target)
                self.best = max(self.best, evaluate(self._truth, labels, source_classes=model.classes).h_score)
                self.seconds += time.perf_counter() - began
                self.cpu_seconds += time.process_time() - began_cpu

        return inspect


def fit(
    job: Job,
    source: np.ndarray,
    source_labels: np.ndarray,
    target: np.ndarray,
    oracle: OracleSelection | None = None,
) -> AdaptedModel:
    """Return the model of the job's method after its last step, fitted without labels of the target.

    Args:
        job: the job.
        source: labelled embeddings, (n_source, n_features).
        source_labels: (n_source,).
        target: embeddings, (n_target, n_features).
        oracle: scores the models of earlier steps; it changes nothing.
    """
    # Methods have their own generators; for one that uses the global ones, earlier jobs of the process must not matter.
    random.seed(job.seed)
    np.random.seed(job.seed)  # noqa: NPY002 (the global generator is meant)
    torch.manual_seed(job.seed)
    settings = job.full_settings()
    domains = domains_from_arrays(source, source_labels, target, settings)
    if oracle is None:
        return fit_domains(domains, settings)
    steps = resolved_settings(settings, len(target)).steps or 0
    return fit_domains(domains, settings, FitContext(inspect=oracle.watch(steps)))


def _scored(job: Job, model: AdaptedModel, truth: np.ndarray, seconds: tuple[float, float]) -> ScoredJob:
    predictions = model.target
    nearest = model.classes[predictions.nearest]
    scores = evaluate(
        truth,
        model.labels(predictions),
        source_classes=model.classes,
        known_score=model.target_odds,
        nearest=nearest,
        features=model.target_features,
        groups=predictions.group,
    )
    result = Result(
        setting=job.setting,
        backbone=job.backbone,
        method=job.method,
        task=job.task,
        seed=job.seed,
        steps=model.settings.steps or 0,
        seconds=seconds[0],
        cpu_seconds=seconds[1],
        version=__version__,
        h=scores.h_score,
        h3_oracle=scores.h3_score_oracle,
        h3_honest=scores.h3_score_honest,
        nmi_oracle=scores.nmi_oracle,
        common_accuracy=scores.common_accuracy,
        unknown_recall=scores.unknown_recall,
        auroc=scores.auroc,
        oscr=scores.oscr,
        n_groups=scores.n_groups,
        n_private_true=scores.n_private_true,
        # Rounding may put a decision of the method on the other side of every candidate threshold.
        h_oracle=max(
            scores.h_score,
            best_threshold_h_score(truth, nearest, model.target_odds, source_classes=model.classes),
        ),
        nothing_rejected=None
        if scores.common_accuracy is None
        else common_accuracy(truth, nearest, source_classes=model.classes),
        true_accuracy=scores.overall_accuracy,
        estimated_accuracy=model.reliability.accuracy,
        # A method without an estimate of its accuracy warns only of small targets.
        warned=None if model.reliability.accuracy is None else bool(model.reliability.warnings),
        dataset=job.dataset,
    )
    return ScoredJob(result, scores)
