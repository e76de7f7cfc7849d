"""The study of answers: what it simulates, how it is scored, and the command as it is typed."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uniot.benchmark.answers import SCENARIOS, AnswerRow, answer_rows, plan_answers, summarise_answers
from uniot.benchmark.features import DataSet
from uniot.benchmark.fit_and_score import fit, load_data, run_job
from uniot.benchmark.job_files import read_oracle_answers
from uniot.benchmark.jobs import Job
from uniot.benchmark.oracle_answers import COUNTS, WRONG_SHARES, AnswerScore, oracle_answers, scores_after_questions
from uniot.benchmark.runner import Ended, Event, Started
from uniot.benchmark.universality import plan_universality
from uniot.benchmark.worker import perform
from uniot.errors import DataError
from uniot.metrics.evaluate import evaluate


class Here:
    """Runs jobs in this process in place of workers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, folders: Sequence[Path]) -> Generator[Event, None, None]:
        for folder in folders:
            yield Started(folder)
            perform(folder)
            yield Ended(folder)


def plan(features: Path, **changes) -> list[Job]:
    values = {"methods": ["unincm"], "n_splits": 1, "task_names": ["photo2sketch"]} | changes
    return plan_answers([DataSet.read("toys", features)], **values)


@pytest.fixture(scope="module")
def simulated(features: Path) -> tuple[Job, list[AnswerScore]]:
    (job,) = plan(features, scenarios=["open-partial"])
    return job, list(run_job(job).answers)


def test_jobs_are_those_of_the_universality_study_with_a_simulated_person(features: Path) -> None:
    jobs = plan(features)
    others = plan_universality([DataSet.read("toys", features)], n_splits=1, task_names=["photo2sketch"])
    same = [replace(job, oracle_answers=True) for job in others if job.setting in SCENARIOS]
    assert jobs == same
    assert {job.setting for job in jobs} <= set(SCENARIOS)
    assert {"open-partial", "closed", "closed-classes=2", "private-prior=1"} <= {job.setting for job in jobs}
    assert not {job.digest for job in jobs} & {job.digest for job in others}


def test_every_kind_of_answers_is_scored_by_its_number(simulated) -> None:
    _, scores = simulated
    found = [(one.order, one.wrong, one.n_answers) for one in scores]
    # 60 samples: half of them can be asked about.
    counts = [count for count in COUNTS if 0 < count <= 30]
    kinds = [("asked", wrong) for wrong in WRONG_SHARES]
    kinds += [("random", 0.0), ("quantiles", 0.0), ("propagation", 0.0)]
    assert found == [("asked", 0.0, 0), *((*kind, count) for kind in kinds for count in counts)]
    for one in scores:
        assert 0 <= one.score <= 1
        assert 0 <= one.oracle <= 1
        assert 0 <= one.low <= one.high <= 1
        assert one.private == scores[0].private


def test_samples_with_an_answer_do_not_count(simulated) -> None:
    job, scores = simulated
    data = load_data(job)
    model = fit(job, data.source, data.source_labels, data.target)
    truth = data.oracle_target_labels
    kept = np.ones(len(truth), dtype=bool)
    for _ in range(5):
        (row,) = model.ask()
        known = truth[row] in model.classes.tolist()
        model = model.with_answers(
            model.answers.told([row], [model.classes.tolist().index(truth[row]) if known else -1])
        )
        kept[row] = False
    expected = evaluate(truth[kept], model.labels(model.target)[kept], source_classes=model.classes).h_score
    (found,) = [one for one in scores if (one.order, one.wrong, one.n_answers) == ("asked", 0.0, 5)]
    assert found.score == pytest.approx(expected)
    assert (found.low, found.high) == model.private_share_interval


def test_wrong_answers_are_wrong(features: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If every answer is wrong, the model learns the opposite of the truth."""
    monkeypatch.setattr("uniot.benchmark.oracle_answers.WRONG_SHARES", (0.0, 1.0))
    (job,) = plan(features, scenarios=["open-partial"])
    data = load_data(job)
    model = fit(job, data.source, data.source_labels, data.target)
    scores = oracle_answers(model, data.oracle_target_labels, seed=0)
    right, wrong = (
        next(one for one in scores if (one.order, one.wrong, one.n_answers) == ("asked", share, 20))
        for share in (0.0, 1.0)
    )
    assert wrong.score < right.score


def test_scores_after_questions_are_those_of_right_answers(features: Path) -> None:
    (job,) = plan(features, scenarios=["open-partial"])
    data = load_data(job)
    model, truth = fit(job, data.source, data.source_labels, data.target), data.oracle_target_labels
    none, two = scores_after_questions(model, truth, [0, 2])
    assert (none.n_answers, two.n_answers) == (0, 2)
    assert none.score == evaluate(truth, model.labels(model.target), source_classes=model.classes).h_score
    classes, kept = model.classes.tolist(), np.ones(len(truth), dtype=bool)
    for _ in range(2):
        (row,) = model.ask()
        answer = classes.index(truth[row]) if truth[row] in classes else -1
        model = model.with_answers(model.answers.told([row], [answer]))
        kept[row] = False
    expected = evaluate(truth[kept], model.labels(model.target)[kept], source_classes=model.classes).h_score
    assert two.score == pytest.approx(expected)


def row(dataset: str, scenario: str, n_answers: int, score: float, **changes) -> AnswerRow:
    values = {"order": "asked", "wrong": 0.0, "n_answers": n_answers, "score": score, "oracle": 0.9}
    values |= {"rejected": 0.5, "private": 0.4, "low": 0.3, "high": 0.6} | changes
    return AnswerRow(dataset, "a2b", scenario, 300, "unincm", AnswerScore(**values))


def test_data_sets_have_the_same_weight() -> None:
    rows = [row("large", "open", 5, 0.8) for _ in range(9)] + [row("small", "open", 5, 0.6)]
    (found,) = summarise_answers(rows)
    assert found.regret[5] == pytest.approx(20)
    assert found.worst[5] == pytest.approx(30)


def test_intervals_and_what_is_rejected_where_nothing_is_common() -> None:
    rows = [
        row("a", "private-prior=1", 5, 1.0, rejected=0.9, private=1.0, low=0.8, high=1.0),
        row("a", "open", 5, 0.8, rejected=0.1, private=0.7, low=0.2, high=0.6),
    ]
    (found,) = summarise_answers(rows)
    assert found.rejected == {5: pytest.approx(0.9)}
    assert found.covered == {5: pytest.approx(0.5)}
    assert found.width == {5: pytest.approx(0.3)}


def test_scores_without_answers_belong_to_every_kind() -> None:
    rows = [row("a", "open", 0, 0.5), row("a", "open", 5, 0.8), row("a", "open", 5, 0.7, order="random")]
    asked, random = summarise_answers(rows)
    assert asked.regret == {0: pytest.approx(40), 5: pytest.approx(10)}
    assert random.regret == {0: pytest.approx(40), 5: pytest.approx(20)}


def test_the_study_as_it_is_typed(uniot: Callable, features: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("uniot.benchmark.local_workers.LocalWorkers", Here)
    out = tmp_path / "out"
    more = ("--tasks", "photo2sketch", "--settings", "private-prior=1", "--seeds", 1, "--out", out)
    answer = uniot("benchmark", "toys", "--study", "answers", "--features", features, *more)
    assert answer.code == 0, answer.stderr
    assert re.search(r"^method +samples chosen +wrong +what +0 +3 +5 +10 +20 +50$", answer.stdout, re.MULTILINE)
    assert re.search(r"^UniNCM +asked +10 % +regret +-?\d+\.\d ", answer.stdout, re.MULTILINE)
    assert re.search(r"^ +nothing common: % unknown +\d+ ", answer.stdout, re.MULTILINE)
    assert "answers.csv, answers.md, figures/ beside it." in answer.stdout
    with (out / "answers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    jobs = plan(features, scenarios=["private-prior=1"])
    stored = answer_rows(jobs, [read_oracle_answers(job.folder(out)) for job in jobs])
    assert [(one["scenario"], one["order"], int(one["n_answers"])) for one in rows] == [
        (one.scenario, one.scores.order, one.scores.n_answers) for one in stored
    ]
    assert (out / "figures/answers.svg").is_file()
    text = (out / "answers.md").read_text(encoding="utf-8")
    assert text.startswith("Splits: choice (300). Regret:")


def test_a_file_may_list_the_pairs_that_are_meant(features: Path, tmp_path: Path) -> None:
    with np.load(features) as file:
        arrays = dict(file)
    np.savez(tmp_path / "some.npz", pairs=np.array([("sketch", "photo")]), **arrays)
    assert list(DataSet.read("toys", tmp_path / "some.npz").pairs()) == ["sketch2photo"]
    np.savez(tmp_path / "wrong.npz", pairs=np.array([("sketch", "film")]), **arrays)
    with pytest.raises(DataError, match=r"not rows of two domains\. Give source and target per row, of "):
        DataSet.read("toys", tmp_path / "wrong.npz")
