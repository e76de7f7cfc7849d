"""One job of a benchmark: a method, fitted once to one task with one seed, and scored after its last step.

A job is a folder: `job.json` says all that decides it, `result.json` what came of it, or `error.txt` why nothing did.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from uniot import __version__
from uniot.benchmark.features import read_domain
from uniot.benchmark.protocol import TargetDraw, TaskData, draw_target, task_data
from uniot.benchmark.results import Result
from uniot.data.published_set import ClassSplit
from uniot.errors import DataError, UniotError, UniotWarning
from uniot.estimator import UniOT
from uniot.evaluation import Evaluation, best_threshold_h_score, common_accuracy, evaluate
from uniot.methods import method_info
from uniot.model import AdaptedModel
from uniot.run_folder import write_text
from uniot.settings import Settings

LOG = "log.txt"
"""What the process of a job printed, in the job's folder."""
_RESULT, _ERROR = "result.json", "error.txt"

# Part of every digest: results that were made under other rules are made again.
_PROTOCOL = "uniot-benchmark-1"
# What a result does not depend on: names for the tables, where the features lie, and, but for rounding, the threads.
_LEFT_OUT = frozenset({"backbone", "dataset", "features", "threads"})

Value = bool | int | float | str


@dataclass(frozen=True)
class Job:
    """Everything that decides a result.

    Attributes:
        method: as `uniot methods` lists it.
        setting: name of the split.
        task: such as A2W.
        seed: decides every random choice; 0, 1, ….
        split: which classes are common, which private.
        source: what the features call the domain.
        target: what the features call the domain.
        source_digest: of its embeddings and labels.
        target_digest: of its embeddings and labels.
        features: file or folder that holds both; it may be moved without changing the result.
        backbone: what made them, for the tables.
        settings: that differ from their defaults; the same for all methods but for hyper-parameters of one.
        options: hyper-parameters of the method alone.
        threads: that torch and NumPy may use.
        draw: how many target samples of each class are drawn; None for all samples of the target's classes.
        dataset: name of the data set in a benchmark of several; empty otherwise.
    """

    method: str
    setting: str
    task: str
    seed: int
    split: ClassSplit
    source: str
    target: str
    source_digest: str
    target_digest: str
    features: str
    backbone: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    options: Mapping[str, Value] = field(default_factory=dict)
    threads: int = 1
    draw: TargetDraw | None = None
    dataset: str = ""

    def __str__(self) -> str:
        of_set = f"{self.dataset}, " if self.dataset else ""
        return f"{of_set}{self.method}, {self.setting}, {self.task}, seed {self.seed}"

    def folder(self, out: Path) -> Path:
        """Where it lies below the folder of a benchmark."""
        return out / "jobs" / self.dataset / self.method / self.setting / self.task / str(self.seed)

    def full_settings(self) -> Settings:
        """Every setting with its value; what is wrong with one is an error."""
        return Settings.checked(**self.settings, method=self.method, method_options=self.options, seed=self.seed)

    @property
    def digest(self) -> str:
        """Changes with everything that decides the result, defaults of settings and of options included."""
        values = {name: value for name, value in asdict(self).items() if name not in _LEFT_OUT}
        settings = self.full_settings()
        values["settings"] = settings.model_dump(exclude=settings.outside_fingerprint)
        values["options"] = method_info(self.method).options.checked(**self.options).model_dump()
        if self.draw is None:
            # Results that were made before targets could be drawn stay valid.
            del values["draw"]
        return hashlib.sha256(f"{_PROTOCOL} {json.dumps(values, sort_keys=True)}".encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Writes job.json."""
        write_text(folder / "job.json", json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Job:
        """What `write` wrote."""
        try:
            values = json.loads((folder / "job.json").read_text(encoding="utf-8"))
            split = ClassSplit(**{name: tuple(part) for name, part in values.pop("split").items()})
            draw = values.pop("draw", None)
            if draw is not None:
                draw = TargetDraw(tuple((name, count) for name, count in draw["counts"]), draw["seed"])
            return cls(split=split, draw=draw, **values)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{folder / 'job.json'} is no job ({error}). Run `uniot benchmark` again, which writes it."
            ) from None


@dataclass(frozen=True)
class Outcome:
    """What came of a job: the row of the tables, and every score with its notes."""

    result: Result
    evaluation: Evaluation


def run_job(job: Job) -> Outcome:
    """Fits and scores. After the same job, on the same number of threads, every number is the same but the time."""
    data = load_data(job)
    with threadpool_limits(job.threads):
        threads = torch.get_num_threads()
        torch.set_num_threads(job.threads)
        try:
            began = time.perf_counter()
            model = fit(job, data.source, data.source_labels, data.target)
            seconds = time.perf_counter() - began
            return _scored(job, model, data.oracle_target_labels, seconds)
        finally:
            torch.set_num_threads(threads)


def load_data(job: Job) -> TaskData:
    """The samples of the job's task; an error where they are not those that the job was made for."""
    where = Path(job.features)
    source, target = read_domain(where, job.source), read_domain(where, job.target)
    if (source.digest, target.digest) != (job.source_digest, job.target_digest):
        raise DataError(f"{where} has changed since the benchmark was begun. Run `uniot benchmark` again.")
    data = task_data(source, target, job.split)
    return data if job.draw is None else draw_target(data, job.draw)


def fit(job: Job, source: np.ndarray, source_labels: np.ndarray, target: np.ndarray) -> AdaptedModel:
    """Trains the job's method to its last step. Labels of the target have no way in."""
    # A method draws from its own generators. One that does not would depend on what the process did before.
    random.seed(job.seed)
    np.random.seed(job.seed)  # noqa: NPY002 (what others draw from is this one)
    torch.manual_seed(job.seed)
    settings: dict[str, Any] = dict(job.settings)
    estimator = UniOT(**settings, method=job.method, method_options=job.options, random_state=job.seed)
    with warnings.catch_warnings():
        # The result has a column for them.
        warnings.simplefilter("ignore", UniotWarning)
        return estimator.fit(source, source_labels, target).model_


def _scored(job: Job, model: AdaptedModel, truth: np.ndarray, seconds: float) -> Outcome:
    answers = model.target
    nearest = model.classes[answers.nearest]
    scores = evaluate(
        truth,
        model.labels(answers),
        source_classes=model.classes,
        known_score=model.target_shares,
        nearest=nearest,
        features=model.target_features,
        groups=answers.group,
    )
    result = Result(
        setting=job.setting,
        backbone=job.backbone,
        method=job.method,
        task=job.task,
        seed=job.seed,
        steps=model.settings.steps or 0,
        seconds=seconds,
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
        # The method's own decisions are one of the candidates: rounding may leave one on the wrong side of a threshold.
        h_oracle=max(
            scores.h_score,
            best_threshold_h_score(truth, nearest, model.target_shares, source_classes=model.classes),
        ),
        nothing_rejected=None
        if scores.common_accuracy is None
        else common_accuracy(truth, nearest, source_classes=model.classes),
        true_accuracy=scores.overall_accuracy,
        estimated_accuracy=None if model.reliability is None else model.reliability.accuracy,
        # A method without an estimate warns of few samples alone.
        warned=None
        if model.reliability is None or model.reliability.accuracy is None
        else bool(model.reliability.warnings),
        dataset=job.dataset,
    )
    return Outcome(result, scores)


def perform(folder: Path) -> bool:
    """Runs the job of a folder and writes what came of it there; says whether it succeeded.

    What goes wrong is written to error.txt, its first line a sentence for people, so that other jobs go on.
    """
    for outdated in (_RESULT, _ERROR):
        (folder / outdated).unlink(missing_ok=True)
    try:
        job = Job.read(folder)
        outcome = run_job(job)
        about = {
            "protocol": _PROTOCOL,
            "digest": job.digest,
            "version": __version__,
            "threads": job.threads,
            "result": asdict(outcome.result),
            "evaluation": outcome.evaluation.to_dict(),
        }
        write_text(folder / _RESULT, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    except Exception as error:
        sentence = str(error) if isinstance(error, UniotError) else f"{type(error).__name__}: {error}"
        write_failure(folder, sentence, traceback.format_exc())
        return False
    return True


def told(folder: Path) -> bool:
    """Whether the folder says what came of its job, good or bad."""
    return any((folder / name).exists() for name in (_RESULT, _ERROR))


def clear(folder: Path) -> None:
    """Removes what an earlier try of the job left."""
    for name in (_RESULT, _ERROR, LOG):
        (folder / name).unlink(missing_ok=True)


def finished(job: Job, folder: Path) -> Result | None:
    """What the job came to, where its folder holds just that."""
    try:
        about = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        if about["digest"] != job.digest:
            return None
        # A result that was written before it had this score has it among all scores.
        values = {"nmi_oracle": about["evaluation"]["nmi_oracle"], **about["result"]}
        return replace(Result(**values), backbone=job.backbone, dataset=job.dataset)
    except (OSError, ValueError, KeyError, TypeError):
        # Absent, damaged, or of another version: the job is run again.
        return None


def write_failure(folder: Path, sentence: str, details: str = "") -> None:
    """Writes error.txt."""
    one_line = " ".join(sentence.split()) or "it failed without a word"
    write_text(folder / _ERROR, f"{one_line}\n\n{details}".rstrip() + "\n")


def read_failure(folder: Path) -> str | None:
    """The sentence of error.txt; None where there is none."""
    try:
        return (folder / _ERROR).read_text(encoding="utf-8").partition("\n")[0]
    except FileNotFoundError:
        return None
