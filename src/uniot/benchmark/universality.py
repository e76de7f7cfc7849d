"""Plan the study `universality`: how robust a method is to the classes and the target, on several data sets.

Defaults are chosen on one list of seeds and checked on another, on which nothing is ever chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uniot.benchmark.features import DataSet, DomainFacts, features_backbone, shared_class_sizes
from uniot.benchmark.jobs import Job, Options, check_methods
from uniot.benchmark.scenarios import check_scenarios, family_of, make_scenarios
from uniot.errors import DataError, SettingsError
from uniot.io.text import listed

if TYPE_CHECKING:
    from uniot.benchmark.results import Result

UNIVERSALITY = "universality"
"""Name of the study on the command line and of its files."""
PURPOSES: Mapping[str, tuple[int, ...]] = {
    "choice": (300, 301, 302, 303, 304, 305),
    "check": (900, 901, 902, 903, 904, 905),
}
"""Seeds of the splits: defaults may be chosen by results on the first, and are reported on the second."""
DEFAULT_METHODS = ("unincm",)
"""Methods that the study runs unless others are named."""
ALL = "all"
"""Family of a row over all scenarios, and data set of a row over all data sets."""


def plan_universality(
    data_sets: Sequence[DataSet],
    *,
    methods: Sequence[str] = DEFAULT_METHODS,
    purpose: str = "choice",
    n_splits: int = 3,
    task_names: Sequence[str] = (),
    scenarios: Sequence[str] = (),
    options: Options | None = None,
    threads: int = 1,
    quick: bool = False,
) -> list[Job]:
    """Return a job for every split, data set, pair of domains, scenario and method.

    Splits come first: a study that is stopped early has the same number of splits of all data sets.

    Args:
        data_sets: the data sets.
        methods: names as `uniot methods` lists them.
        purpose: one of `PURPOSES`: which seeds.
        n_splits: number of seeds, from the first on.
        task_names: which pairs, such as `amazon2webcam`; all if none is named.
        scenarios: names of the scenarios, such as `open-partial` or `private-prior=0.9`; all if none is named.
        options: settings that differ from their defaults.
        threads: number of threads of a job.
        quick: use one split and two pairs of each data set.

    Returns:
        The jobs, in the order in which they are run.
    """
    check_scenarios(scenarios)
    if purpose not in PURPOSES:
        raise SettingsError(f"there is no purpose called {purpose!r}. Take one of: {', '.join(PURPOSES)}.")
    if not 1 <= n_splits <= len(PURPOSES[purpose]):
        raise SettingsError(f"the number of splits is {n_splits}. Give 1 to {len(PURPOSES[purpose])}.")
    chosen = check_methods(methods, options or Options())
    seeds = PURPOSES[purpose][: 1 if quick else n_splits]
    pairs = {one.name: _chosen_pairs(one, task_names, quick=quick) for one in data_sets}
    if not any(pairs.values()):
        known = [task for one in data_sets for task in one.pairs()]
        raise DataError(
            f"no data set has a task called {listed(task_names)}. Take some of: {listed(known)}."
            if task_names and known
            else "no two domains have two classes in common. Give domains with the same classes."
        )
    return [
        Job(
            method=method,
            setting=scenario.name,
            task=task,
            seed=seed,
            split=scenario.split,
            source=source.name,
            target=target.name,
            source_digest=source.digest,
            target_digest=target.digest,
            features=str(data_set.features.absolute()),
            backbone=features_backbone(data_set.features),
            settings=settings,
            options=own,
            threads=threads,
            draw=scenario.draw,
            dataset=data_set.name,
        )
        for seed in seeds
        for data_set in data_sets
        for task, (source, target) in pairs[data_set.name].items()
        for scenario in make_scenarios(
            source.name, target.name, source.class_sizes.keys(), shared_class_sizes(source, target), seed
        )
        if not scenarios or scenario.name in scenarios
        for method, (settings, own) in chosen.items()
    ]


def _chosen_pairs(
    data_set: DataSet, task_names: Sequence[str], *, quick: bool
) -> dict[str, tuple[DomainFacts, DomainFacts]]:
    pairs = {task: pair for task, pair in data_set.pairs().items() if not task_names or task in task_names}
    if not quick or not pairs:
        return pairs
    first = next(iter(pairs.values()))
    # Another source and another target than those of the first pair.
    others = {task: pair for task, pair in pairs.items() if all(a is not b for a, b in zip(pair, first, strict=True))}
    return dict(list(pairs.items())[:1] + list(others.items())[-1:])


@dataclass(frozen=True)
class ScenarioScore:
    """Holds the scores of one job in per cent; None if the job failed or the score is undefined.

    Attributes:
        dataset: name of the data set.
        task: source and target.
        family: family of the scenario.
        scenario: name of the scenario.
        split: seed of the split, of the samples and of the method.
        method: name of the method.
        n_source_classes: number of source classes.
        n_target: number of target samples.
        score: H-score; accuracy on common classes if nothing is private; recall of unknown if nothing is common.
        oracle: score of the best threshold on the same confidence, with the same nearest classes.
        nothing_rejected: accuracy on common classes if no sample is rejected.
        regret: oracle − score.
        n_private_found: number of groups of the rejected samples.
        n_private_true: number of private classes with a target sample.
        estimated_accuracy: estimate of `true_accuracy` by the model, without labels.
        true_accuracy: accuracy over target samples; "unknown" is correct for private ones.
        warned: whether the model warned that its predictions are unreliable.
        seconds: duration of the fit.
        failure: reason of the failure; empty otherwise.
    """

    dataset: str
    task: str
    family: str
    scenario: str
    split: int
    method: str
    n_source_classes: int
    n_target: int
    score: float | None
    oracle: float | None
    nothing_rejected: float | None
    regret: float | None
    n_private_found: int | None
    n_private_true: int | None
    estimated_accuracy: float | None
    true_accuracy: float | None
    warned: bool | None
    seconds: float
    failure: str


def scenario_scores(jobs: Sequence[Job], results: Sequence[Result]) -> list[ScenarioScore]:
    """Return the scores of each job, in the order of jobs and results."""
    return [_scenario_score(job, result) for job, result in zip(jobs, results, strict=True)]


def _scenario_score(job: Job, result: Result) -> ScenarioScore:
    score, oracle = _per_cent(result.h), _per_cent(result.h_oracle)
    return ScenarioScore(
        dataset=job.dataset,
        task=job.task,
        family=family_of(job.setting),
        scenario=job.setting,
        split=job.seed,
        method=job.method,
        n_source_classes=len(job.split.source),
        n_target=0 if job.draw is None else job.draw.n_samples,
        score=score,
        oracle=oracle,
        nothing_rejected=_per_cent(result.nothing_rejected),
        regret=None if score is None or oracle is None else oracle - score,
        n_private_found=result.n_groups,
        n_private_true=result.n_private_true,
        estimated_accuracy=_per_cent(result.estimated_accuracy),
        true_accuracy=_per_cent(result.true_accuracy),
        warned=result.warned,
        seconds=result.seconds,
        failure=result.failure,
    )


def _per_cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


@dataclass(frozen=True)
class FamilySummary:
    """Averages the scores of one method over one family of scenarios of one data set.

    Attributes:
        method: name of the method.
        dataset: name of the data set, or `ALL`.
        family: family of the scenarios, or `ALL`.
        n_jobs: number of jobs with a score.
        n_failed: number of failed jobs.
        score: mean score over the jobs in per cent; None if all failed.
        oracle: mean oracle score in per cent.
        regret: mean regret in points.
        worst_regret: largest regret of a job in points.
        worst: scenario and task with the largest regret.
        n_below_half: number of jobs whose score is less than half of the oracle.
    """

    method: str
    dataset: str
    family: str
    n_jobs: int
    n_failed: int
    score: float | None
    oracle: float | None
    regret: float | None
    worst_regret: float | None
    worst: str
    n_below_half: int


def summarise(scores: Sequence[ScenarioScore]) -> list[FamilySummary]:
    """Return a summary per method, data set and family, then per data set, and last over all data sets."""
    found = []
    for method in distinct(scores, lambda one: one.method):
        of_method = [one for one in scores if one.method == method]
        of_sets = []
        for dataset in distinct(of_method, lambda one: one.dataset):
            of_set = [one for one in of_method if one.dataset == dataset]
            found += [
                _summary(method, dataset, family, [one for one in of_set if one.family == family])
                for family in distinct(of_set, lambda one: one.family)
            ]
            of_sets.append(_summary(method, dataset, ALL, of_set))
            found.append(of_sets[-1])
        if len(of_sets) > 1:
            found.append(_over_sets(method, of_sets))
    return found


def _summary(method: str, dataset: str, family: str, scores: Sequence[ScenarioScore]) -> FamilySummary:
    known = [
        (one, one.score, one.oracle, one.regret)
        for one in scores
        if one.score is not None and one.oracle is not None and one.regret is not None
    ]
    worst = max(known, key=lambda row: row[3], default=None)
    return FamilySummary(
        method=method,
        dataset=dataset,
        family=family,
        n_jobs=len(known),
        n_failed=len(scores) - len(known),
        score=_mean(score for _, score, _, _ in known),
        oracle=_mean(oracle for _, _, oracle, _ in known),
        regret=_mean(regret for _, _, _, regret in known),
        worst_regret=None if worst is None else worst[3],
        worst="" if worst is None else f"{worst[0].scenario}, {worst[0].task}",
        n_below_half=sum(score < oracle / 2 for _, score, oracle, _ in known),
    )


def _over_sets(method: str, of_sets: Sequence[FamilySummary]) -> FamilySummary:
    """Return the mean over data sets, each with the same weight."""
    worst = max(of_sets, key=lambda one: -1.0 if one.worst_regret is None else one.worst_regret)
    return FamilySummary(
        method=method,
        dataset=ALL,
        family=ALL,
        n_jobs=sum(one.n_jobs for one in of_sets),
        n_failed=sum(one.n_failed for one in of_sets),
        score=_mean(one.score for one in of_sets),
        oracle=_mean(one.oracle for one in of_sets),
        regret=_mean(one.regret for one in of_sets),
        worst_regret=worst.worst_regret,
        worst=f"{worst.dataset}, {worst.worst}" if worst.worst else "",
        n_below_half=sum(one.n_below_half for one in of_sets),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def distinct(scores: Sequence[ScenarioScore], of: Callable[[ScenarioScore], str]) -> list[str]:
    """Return each value of `of` once, in the order of the scores."""
    return list(dict.fromkeys(of(one) for one in scores))
