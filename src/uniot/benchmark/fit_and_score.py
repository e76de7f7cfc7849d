"""Fit the method of a job to its task, and score the model with the target labels.

This is the only module of the benchmark that fits.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from uniot import __version__
from uniot.benchmark.features import TaskData, draw_target, read_domain, task_data
from uniot.benchmark.image_lists import read_list
from uniot.benchmark.jobs import Job
from uniot.benchmark.oracle_answers import AnswerScore, oracle_answers
from uniot.benchmark.results import Result
from uniot.errors import DataError
from uniot.images.backbones import ImageReader
from uniot.images.embedding import ImageEmbeddings, ReadOptions
from uniot.images.store import EmbeddingStore
from uniot.methods.registry import resolved_settings
from uniot.metrics.accuracy import common_accuracy
from uniot.metrics.evaluate import Evaluation, evaluate
from uniot.metrics.ranking import best_threshold_h_score
from uniot.runs.files import RunFiles
from uniot.runs.saving import CheckpointFile
from uniot.training.domains import ImagePair, domains_from_arrays, domains_of_images, read_images
from uniot.training.fit import FitContext
from uniot.training.fit import fit as fit_domains
from uniot.training.processes import start_processes

if TYPE_CHECKING:
    from uniot.images.files import ImageFile
    from uniot.training.domains import Domains
    from uniot.training.model import AdaptedModel


@dataclass(frozen=True)
class ScoredJob:
    """The row of a job in the tables, every score with its notes, and the scores after simulated answers."""

    result: Result
    evaluation: Evaluation
    answers: tuple[AnswerScore, ...] = ()


def run_job(job: Job, folder: Path | None = None) -> ScoredJob:
    """Fit and score a job.

    Args:
        job: the job.
        folder: the job's folder, for the state that an interrupted training of a network continues from; none if None.

    Returns:
        The result and all scores; with the same number of threads, everything but the duration is reproducible.
    """
    task = _load_task(job)
    with threadpool_limits(job.threads):
        threads = torch.get_num_threads()
        torch.set_num_threads(job.threads)
        try:
            began, began_cpu = time.perf_counter(), time.process_time()
            oracle = OracleSelection(job.oracle_selection, task.oracle_target_labels) if job.oracle_selection else None
            model = _fit(job, task.domains, oracle, folder)
            seconds = time.perf_counter() - began - (0 if oracle is None else oracle.seconds)
            cpu_seconds = time.process_time() - began_cpu - (0 if oracle is None else oracle.cpu_seconds)
            scored = score_model(job, model, task.oracle_target_labels, (seconds, cpu_seconds))
            if job.oracle_answers:
                scored = replace(scored, answers=tuple(oracle_answers(model, task.oracle_target_labels, job.seed)))
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


@dataclass(frozen=True)
class _Task:
    """The domains of a task, and the true labels of the target, which are used for scores only."""

    domains: Domains
    oracle_target_labels: np.ndarray


def _load_task(job: Job) -> _Task:
    settings, images = job.full_settings(), job.image_settings()
    if images is None:
        data = load_data(job)
        domains = domains_from_arrays(data.source, data.source_labels, data.target, settings)
        return _Task(domains, data.oracle_target_labels)
    where = Path(job.features)
    source, target = read_list(where, job.source), read_list(where, job.target)
    if (source.digest, target.digest) != (job.source_digest, job.target_digest):
        raise DataError(f"{where} has changed since the benchmark was planned. Run `uniot benchmark` again.")
    source, target = source.of_classes(job.split.source), target.of_classes(job.split.target)
    reader = ImageReader.open(images)
    # The class of a target image goes to the scores and nowhere else.
    unlabelled = [replace(file, label=None) for file in target.files]
    if images.fine_tune == "all":
        pair = ImagePair(_unread(source.files, source.contents), _unread(unlabelled, target.contents))
        domains = domains_of_images(pair, reader, settings)
    else:
        options = ReadOptions(EmbeddingStore(Path(job.store) if job.store else None))
        domains = read_images(source.files, unlabelled, reader, settings, options)
    if len(domains.target) != len(target.files):
        raise DataError(f"images below {where} could be read before and no longer can be. Bring them back.")
    return _Task(domains, np.array(target.labels))


def _unread(files: Sequence[ImageFile], contents: Sequence[str]) -> ImageEmbeddings:
    """Return images that are decoded when they are used: of a network that is trained as a whole, nothing is stored."""
    nothing = np.empty((len(files), 0), np.float16)
    return ImageEmbeddings(nothing, list(files), np.arange(len(files)), [], list(contents), 0, 0.0)


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
    return _fit(job, domains_from_arrays(source, source_labels, target, job.full_settings()), oracle, None)


def _fit(job: Job, domains: Domains, oracle: OracleSelection | None, folder: Path | None) -> AdaptedModel:
    """Return the model, as `fit` does.

    Args:
        job: the job.
        domains: labelled source and unlabelled target.
        oracle: scores the models of earlier steps; it changes nothing.
        folder: for the state of an interrupted training of a network.
    """
    # Methods have their own generators; for one that uses the global ones, earlier jobs of the process must not matter.
    random.seed(job.seed)
    np.random.seed(job.seed)  # noqa: NPY002 (the global generator is meant)
    torch.manual_seed(job.seed)
    settings, images = job.full_settings(), job.image_settings()
    context = FitContext()
    if images is not None:
        state = None if folder is None else CheckpointFile(RunFiles(folder))
        processes = start_processes(1, precision=images.precision)
        context = FitContext(checkpoints=state, processes=processes, on_step=_Progress(settings.checkpoint_every))
    if oracle is not None:
        steps = resolved_settings(settings, len(domains.target)).steps or 0
        context = replace(context, inspect=oracle.watch(steps))
    return fit_domains(domains, settings, context)


class _Progress:
    """Print a line now and then, for the log of a job that takes hours.

    Args:
        every: number of steps between two lines.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._began: tuple[int, float] | None = None

    def __call__(self, step: int, steps: int, row: Mapping[str, float]) -> None:
        now = time.monotonic()
        first, began = self._began = self._began or (step, now)
        if step % self._every == 0 and step > first:
            pace = (now - began) / (step - first)
            sys.stdout.write(f"step {step} of {steps}, loss {row['loss']:.4f}, {pace:.2f} s per step\n")
            sys.stdout.flush()


def score_model(job: Job, model: AdaptedModel, truth: np.ndarray, seconds: tuple[float, float]) -> ScoredJob:
    """Score a fitted model.

    Args:
        job: what it was fitted for.
        model: the model.
        truth: true labels of the target, (n_target,).
        seconds: duration and processor time of the fit.
    """
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
