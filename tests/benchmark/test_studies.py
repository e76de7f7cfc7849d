"""Studies: one thing varies at a time, points that two axes share are run once, and every number reaches the files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from uniot.benchmark.jobs import Options
from uniot.benchmark.reported_scores import paper_tables
from uniot.benchmark.results import Result
from uniot.benchmark.studies import STUDIES, Study, make_study, plan_study, study_findings, write_study
from uniot.benchmark.tasks import TaskSet
from uniot.datasets.catalogue import ClassSplit, benchmark_set
from uniot.errors import SettingsError
from uniot.methods.registry import METHODS

OFFICE31 = TaskSet.of_published("office31")
SPLIT = OFFICE31.splits(["open-partial"])["open-partial"]


def study(name: str) -> Study:
    return make_study(name, OFFICE31, "open-partial", SPLIT)


def results(of: Study, scores: dict[tuple[str, str], list[float]]) -> list[Result]:
    """A result of task A2W for each setting, method and seed."""
    return [
        Result(
            method=method,
            task="A2W",
            seed=seed,
            setting=setting,
            backbone="b",
            steps=1,
            seconds=1,
            h=h,
            h3_oracle=h / 2,
        )
        for (setting, method), values in scores.items()
        for seed, h in enumerate(values)
    ]


def test_every_method_of_a_study_exists():
    assert all(method in METHODS for name in STUDIES for method in study(name).methods)


def test_the_ablation_is_of_the_papers_variants_on_the_split_as_it_is():
    found = study("ablation")
    assert found.methods[0] == "uniot"
    assert len(found.methods) == 8
    assert set(found.methods) <= set(paper_tables().labels)
    assert {setting: point.split for setting, point in found.points.items()} == {"open-partial": SPLIT}


def test_target_learners_stand_between_uniot_and_nothing_in_place_of_l_pcd(features: Path):
    found = study("target-learners")
    learners = ("swav", "simsiam", "selflabel", "deepcluster", "pica", "scan")
    assert found.methods == ("uniot", "uniot-without-pcd", *(f"uniot-{learner}" for learner in learners))
    assert (found.tasks, found.axes) == ((), ())
    assert {setting: point.split for setting, point in found.points.items()} == {"open-partial": SPLIT}
    tasks = TaskSet.of_domains("toys", ("photo", "sketch"))
    mine = make_study(
        "target-learners", tasks, "mine", ClassSplit(("cup", "pen", "tin"), ("bag", "key"), ("hat", "jar"))
    )
    more = {"task_names": tasks.tasks, "n_seeds": 2, "backbone": "none"}
    jobs = plan_study(mine, tasks, features, methods=mine.methods, **more)
    assert {(job.method, job.task, job.seed) for job in jobs} == {
        (method, task, seed) for method in mine.methods for task in ("photo2sketch", "sketch2photo") for seed in (0, 1)
    }
    # The methods differ in nothing else.
    assert all((job.settings, job.options, job.setting) == ({}, {}, "mine") for job in jobs)


def test_the_figure_of_the_target_learners_has_both_scores(tmp_path: Path):
    found = study("target-learners")
    scores = {("open-partial", method): [0.8, 0.9] for method in found.methods}
    findings = study_findings(found, results(found, scores), benchmark_set("office31"))
    table, _, drawn = write_study(tmp_path, found, findings)
    assert table.name == "target-learners.csv"
    assert {(row.method, row.score) for row in findings} >= {
        (method, score) for method in found.methods for score in ("h", "h3_oracle")
    }
    for word in ("UniOT without L_PCD", "UniOT with Self-labelling", "UniOT with SCAN", "H³-score (oracle), %"):
        assert word in drawn.read_text(encoding="utf-8")


def test_what_goes_beyond_the_paper_is_compared_in_all_published_settings():
    found = study("beyond")
    expected = OFFICE31.splits(["open-partial", "open", "partial", "closed"])
    assert {setting: point.split for setting, point in found.points.items()} == expected
    own = make_study("beyond", OFFICE31, "mine", SPLIT)
    assert {setting: point.split for setting, point in own.points.items()} == {"mine": SPLIT}


def test_findings_of_several_settings_are_told_apart_and_drawn(tmp_path):
    found = study("beyond")
    scores = {(setting, method): [0.8, 0.9] for setting in found.points for method in ("uniot", "unincm")}
    scores["closed", "uniot"] = [0.4]
    rows = study_findings(found, results(found, scores), OFFICE31.published)
    means = {(row.setting, row.method): row.mean for row in rows if row.score == "h"}
    assert means["closed", "uniot"] == pytest.approx(40)
    assert means["open", "uniot"] == pytest.approx(85)
    assert {row.setting for row in rows if row.paper is not None} == {"open-partial"}
    names = {path.name for path in write_study(tmp_path, found, rows)}
    assert names == {"beyond.csv", "beyond.pdf", "beyond.svg"}
    drawn = (tmp_path / "figures" / "beyond.svg").read_text(encoding="utf-8")
    assert all(f"{setting}, %" in drawn for setting in found.points)


def test_robustness_takes_away_private_classes_of_one_side_and_leaves_the_rest():
    source, target = study("robustness").axes
    assert [point.value for point in source.points] == [0, 2, 4, 6, 8, 10]
    assert [point.value for point in target.points] == [1, 3, 5, 7, 9, 11]
    for point in source.points:
        assert point.split == ClassSplit(SPLIT.common, SPLIT.source_private[: int(point.value)], SPLIT.target_private)
    for point in target.points:
        assert point.split == ClassSplit(SPLIT.common, SPLIT.source_private, SPLIT.target_private[: int(point.value)])


def test_robustness_needs_private_classes_on_both_sides():
    with pytest.raises(SettingsError, match="open has 0 of the source and 11 of the target"):
        make_study("robustness", OFFICE31, "open", OFFICE31.splits(["open"])["open"])


def test_the_usual_values_of_the_sensitivity_are_the_defaults_and_every_value_is_allowed():
    defaults = METHODS["uniot"].options.checked().model_dump()
    for axis in study("sensitivity").axes:
        assert axis.usual == defaults[axis.name]
        for point in axis.points:
            changed = dict(point.changed)
            assert changed == ({} if point.value == axis.usual else {axis.name: point.value})
            METHODS["uniot"].options.checked(**changed)


@pytest.mark.parametrize("name", ["robustness", "sensitivity"])
def test_where_axes_meet_there_is_one_point(name):
    found = study(name)
    shared = [point for axis in found.axes for point in axis.points if point.setting == "open-partial"]
    assert len(shared) > 1
    assert len(found.points) == sum(len(axis.points) for axis in found.axes) - len(shared) + 1


def test_jobs_differ_in_what_is_varied_alone(features: Path):
    tasks = TaskSet.of_domains("toys", ("photo", "sketch"))
    classes = ClassSplit(("cup", "pen", "tin"), ("bag", "key"), ("hat", "jar"))
    found = make_study("sensitivity", tasks, "mine", classes)
    jobs = plan_study(
        found,
        tasks,
        features,
        methods=["uniot"],
        task_names=["photo2sketch"],
        n_seeds=2,
        backbone="none",
        options=Options({"steps": 5}),
    )
    assert len(jobs) == 2 * len(found.points)
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)
    for job in jobs:
        assert job.settings == {"steps": 5}
        assert job.options == dict(found.points[job.setting].changed)
    assert len({job.digest for job in jobs}) == len(jobs)


def test_there_is_no_other_study():
    with pytest.raises(SettingsError, match="Take one of: ablation, robustness, sensitivity"):
        study("everything")


def test_findings_are_means_over_seeds_in_per_cent():
    found = study("sensitivity")
    rows = study_findings(found, results(found, {("n_clusters=25", "uniot"): [0.8, 0.9]}))
    (h,) = [row for row in rows if row.score == "h"]
    assert (h.axis, h.value, h.method, h.n_seeds, h.paper) == ("n_clusters", 25, "uniot", 2, None)
    assert (h.mean, h.deviation) == (pytest.approx(85), pytest.approx(7.0710678))


def test_a_shared_point_is_found_on_every_axis():
    found = study("sensitivity")
    rows = study_findings(found, results(found, {("open-partial", "uniot"): [0.8]}))
    assert [row.axis for row in rows if row.score == "h"] == [
        "similarity_threshold",
        "class_mass_momentum",
        "adaptation_weight",
    ]


def test_the_ablation_has_the_papers_numbers_beside_it():
    found = study("ablation")
    rows = study_findings(
        found, results(found, {("open-partial", "uniot-without-ccd"): [0.7]}), benchmark_set("office31")
    )
    assert {row.score: row.paper for row in rows if row.paper is not None} == {"h": 74.18, "h3_oracle": 75.38}


def test_files_hold_every_finding_and_a_figure_of_each_axis(tmp_path: Path):
    found = study("robustness")
    scores = {(setting, method): [0.5, 0.7] for setting in found.points for method in ("uniot", "dance")}
    findings = study_findings(found, results(found, scores))
    written = write_study(tmp_path, found, findings)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "robustness.csv",
        "figures/source-private.pdf",
        "figures/source-private.svg",
        "figures/target-private.pdf",
        "figures/target-private.svg",
    ]
    with written[0].open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(findings)
    assert {line["mean"] for line in lines if line["score"] == "h"} == {"60.00"}
    drawn = written[2].read_text(encoding="utf-8")
    for word in ("private classes of the source", "UniOT", "DANCE", "H³-score (oracle), %"):
        assert word in drawn


def test_the_figure_of_the_ablation_has_a_row_for_each_method_and_the_papers_mark(tmp_path: Path):
    found = study("ablation")
    scores = {("open-partial", method): [0.8, 0.9] for method in found.methods}
    findings = study_findings(found, results(found, scores), benchmark_set("office31"))
    drawn = write_study(tmp_path, found, findings)[2].read_text(encoding="utf-8")
    for word in ("UniOT without L_CCD", "UniOT with SimSiam", "paper (fine-tuned)"):
        assert word in drawn


def test_a_point_whose_jobs_failed_is_left_out_of_the_line(tmp_path: Path):
    found = study("robustness")
    failed = Result(
        method="uniot", task="A2W", seed=0, setting="source-private=2", backbone="b", steps=1, seconds=1, failure="no"
    )
    findings = study_findings(found, [*results(found, {("open-partial", "uniot"): [0.5]}), failed])
    (at_two,) = [one for one in findings if (one.value, one.score) == (2, "h")]
    assert (at_two.mean, at_two.n_failed) == (None, 1)
    assert all(path.stat().st_size for path in write_study(tmp_path, found, findings))
