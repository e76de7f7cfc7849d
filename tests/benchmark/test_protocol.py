"""Splits, tasks, features and the jobs that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.benchmark.features import (
    DomainFeatures,
    domain_names,
    features_backbone,
    find_domain,
    read_domain,
    task_data,
)
from uniot.benchmark.jobs import Options, plan_jobs
from uniot.benchmark.protocol import TaskSet, check_split, custom_split, read_split
from uniot.datasets.catalogue import BENCHMARK_SETS, ClassSplit
from uniot.errors import DataError, SettingsError

CLASSES = ("cup", "pen", "tin", "bag", "key", "hat", "jar")
SPLIT = custom_split(("cup", "pen", "tin"), ("bag", "key"), ("hat", "jar"))
OWN = TaskSet.of_domains("toys", ("photo", "sketch"))


def domain(labels: list[str], classes: tuple[str, ...] = ()) -> DomainFeatures:
    """Samples whose only number is their place."""
    known = classes or tuple(dict.fromkeys(labels))
    return DomainFeatures(np.arange(len(labels), dtype=float)[:, None], np.array(labels, dtype=str), known)


@pytest.mark.parametrize("known", BENCHMARK_SETS, ids=lambda known: known.name)
def test_every_published_task_and_split_is_there(known) -> None:
    tasks = TaskSet.of_published(known.name)
    assert [tasks.pair(task) for task in tasks.tasks] == [tuple(task.split("2")) for task in known.tasks]
    assert list(tasks.splits([])) == list(known.splits)
    assert tasks.splits(["open-partial"])["open-partial"] == known.split("open-partial")


def test_an_unknown_task_is_answered_with_the_known_ones() -> None:
    with pytest.raises(DataError, match="Office-31 has no task 'A2X'. Take one of: A2D, A2W"):
        TaskSet.of_published("office31").pair("A2X")


def test_an_unknown_setting_is_answered_with_the_known_ones() -> None:
    with pytest.raises(DataError, match="no setting called 'opn'. Take one of: open-partial, open, partial, closed"):
        TaskSet.of_published("office31").splits(["opn"])
    with pytest.raises(DataError, match="DomainNet has no published split called 'open'"):
        TaskSet.of_published("domainnet").splits(["open"])


def test_a_domain_of_ones_own_may_have_a_2_in_its_name() -> None:
    tasks = TaskSet.of_domains("mine", ("a", "2b", "a2"))
    assert tasks.pair("a2a2") == ("a", "a2")
    assert len(tasks.tasks) == 6


def test_a_set_of_ones_own_needs_two_domains_and_a_split() -> None:
    with pytest.raises(DataError, match="mine has 1 domains .a., and a task needs a source and a target"):
        TaskSet.of_domains("mine", ("a",))
    with pytest.raises(DataError, match="has no published split. Give one with --split"):
        OWN.splits(["open-partial"])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((("cup",), ("cup",), ()), "class 'cup' is in the split twice"),
        ((("cup",), (), ("hat",)), "the source 1 classes. Give it at least two"),
        (((), ("cup", "pen"), ()), "the target no class"),
    ],
)
def test_a_split_that_cannot_be_used_is_refused(parts, words) -> None:
    with pytest.raises(DataError, match=words):
        custom_split(*parts)


def test_a_split_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('common = ["cup", "pen"]\ntarget_private = ["hat"]\n', encoding="utf-8")
    assert read_split(path) == ("mine", ClassSplit(("cup", "pen"), (), ("hat",)))
    path.write_text('name = "harder"\ncommon = ["cup"]\nsource_private = ["pen"]\n', encoding="utf-8")
    assert read_split(path) == ("harder", ClassSplit(("cup",), ("pen",), ()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("common = [", "is not valid TOML"),
        ('shared = ["cup"]', "has the unexpected keys shared. Write three lists of class names"),
        ('common = "cup"', "common in .* is 'cup'. Write three lists"),
        (
            'name = "a/b"\ncommon = ["cup", "pen"]',
            "the name of the split is 'a/b', which cannot be the name of a folder",
        ),
    ],
)
def test_a_file_that_is_no_split_is_told(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "split.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        read_split(path)


@given(st.lists(st.sampled_from(CLASSES), min_size=20), st.lists(st.sampled_from(CLASSES), min_size=20))
def test_a_task_has_exactly_the_samples_that_its_split_gives_to_each_domain(first, second) -> None:
    source, target = domain([*first, "cup"], CLASSES), domain([*second, "cup"], CLASSES)
    data = task_data(source, target, SPLIT)
    for x, labels, whole, names in (
        (data.source, data.source_labels, source, SPLIT.source),
        (data.target, data.oracle_target_labels, target, SPLIT.target),
    ):
        places = [place for place, label in enumerate(whole.labels) if label in names]
        assert x[:, 0].tolist() == places
        assert labels.tolist() == whole.labels[places].tolist()


def test_case_and_punctuation_of_class_names_do_not_count() -> None:
    split = custom_split(("Desk_Lamp", "mug"), (), ("pen",))
    data = task_data(domain(["desk lamp", "Mug"]), domain(["DeskLamp", "PEN"], ("PEN", "mug", "desk lamp")), split)
    assert data.source_labels.tolist() == ["Desk_Lamp", "mug"]
    assert data.oracle_target_labels.tolist() == ["Desk_Lamp", "pen"]


def test_classes_that_differ_in_case_alone_are_told_apart_by_their_exact_names() -> None:
    data = task_data(domain(["Pen", "pen", "cup"]), domain(["pen"]), custom_split(("pen",), ("Pen", "cup"), ()))
    assert data.source_labels.tolist() == ["Pen", "pen", "cup"]


def test_a_class_that_no_domain_has_is_a_slip_and_one_that_a_single_domain_lacks_is_not() -> None:
    with pytest.raises(DataError, match="classes that neither domain has: hut. The domains have cup, hat, pen"):
        check_split(custom_split(("cup", "pen"), (), ("hut",)), {"pen", "hat", "cup"})
    check_split(custom_split(("cup", "pen"), (), ("hat",)), {"pen", "hat", "cup"})
    data = task_data(domain(["cup", "pen", "hat"]), domain(["cup"]), custom_split(("cup", "pen"), (), ("hat",)))
    assert data.oracle_target_labels.tolist() == ["cup"]


def test_a_task_without_a_target_sample_is_refused() -> None:
    with pytest.raises(DataError, match="the target has no sample of its classes in the split"):
        task_data(domain(["cup", "pen", "hat"]), domain(["cup"]), custom_split(("pen",), ("cup",), ("hat",)))


def test_features_are_read_by_domain_with_the_names_of_the_classes(features: Path) -> None:
    assert domain_names(features) == ["photo", "sketch", "one"]
    sketch = read_domain(features, find_domain(features, "Sketch", "S"))
    assert sketch.x.shape == (84, 16)
    assert sketch.labels[:13].tolist() == ["cup"] * 12 + ["pen"]
    assert sketch.classes == CLASSES


def test_a_folder_with_a_file_a_domain_is_the_same_as_one_file_of_all(features: Path, tmp_path: Path) -> None:
    for name in ("photo", "sketch"):
        whole = read_domain(features, name)
        np.savez(tmp_path / f"{name}.npz", x=whole.x, y=whole.labels)
    assert domain_names(tmp_path) == ["photo", "sketch"]
    assert read_domain(tmp_path, "sketch").digest == read_domain(features, "sketch").digest


def test_what_made_the_features_is_in_the_file_or_in_its_name(features: Path, tmp_path: Path) -> None:
    assert features_backbone(features) == "toy"
    np.savez(tmp_path / "x.npz", backbone="resnet50", a_x=np.zeros((1, 2)), a_y=["cup"])
    assert features_backbone(tmp_path / "x.npz") == "resnet50"


def test_whole_numbers_without_class_names_are_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a_x=np.zeros((3, 2)), a_y=[7, 3, 7])
    assert read_domain(tmp_path / "x.npz", "a").labels.tolist() == ["7", "3", "7"]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((2, 2))}, "holds no domain. Give an .npz with the arrays DOMAIN_x and DOMAIN_y"),
        ({"a_x": np.zeros((2, 2))}, "holds a_x, not a_x and a_y"),
        ({"a_x": np.zeros((2, 2)), "a_y": [0]}, "has 1 labels for 2 rows of a"),
        ({"a_x": np.zeros((2, 2)), "a_y": [0, 3], "classes": ["cup"]}, "goes from 0 to 3, and there are 1 `classes`"),
        ({"a_x": np.full((2, 2), np.nan), "a_y": ["cup", "pen"]}, "a_x holds nan in row 0"),
    ],
)
def test_features_that_cannot_be_used_are_told(tmp_path: Path, arrays, words: str) -> None:
    path = tmp_path / "features.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=words):
        read_domain(path, domain_names(path)[0])


def test_a_missing_file_and_one_of_another_kind_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist. Give an .npz"):
        domain_names(tmp_path / "none.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="one.npy is no .npz file"):
        domain_names(tmp_path / "one.npy")
    np.savez(tmp_path / "features.npz", photo_x=np.zeros((1, 1)), photo_y=["cup"])
    with pytest.raises(DataError, match="has no domain called amazon or A. It has photo"):
        find_domain(tmp_path / "features.npz", "amazon", "A")


def test_the_digest_tells_apart_any_number_and_any_label() -> None:
    first = domain(["cup", "pen"])
    moved = DomainFeatures(first.x + np.array([[0.0], [1e-12]]), first.labels, first.classes)
    assert first.digest == domain(["cup", "pen"], ("more",)).digest
    assert len({first.digest, moved.digest, domain(["pen", "cup"]).digest}) == 3


def plan(features: Path, **changes):
    return plan_jobs(
        OWN, features, {"mine": SPLIT}, **{"methods": ["uniot", "source-only"], "backbone": "toy", **changes}
    )


def test_there_is_a_job_for_every_seed_task_and_method_and_seeds_come_first(features: Path) -> None:
    jobs = plan(features, n_seeds=2)
    assert [str(job) for job in jobs[:4]] == [
        "uniot, mine, photo2sketch, seed 0",
        "source-only, mine, photo2sketch, seed 0",
        "uniot, mine, sketch2photo, seed 0",
        "source-only, mine, sketch2photo, seed 0",
    ]
    assert [job.seed for job in jobs] == [0] * 4 + [1] * 4
    assert len({job.digest for job in jobs}) == len({job.folder(Path()) for job in jobs}) == 8


def test_the_digest_of_a_job_changes_with_what_decides_its_result_and_with_nothing_else(
    features: Path, tmp_path: Path, write_features: Callable[..., Path]
) -> None:
    first = plan(features)[0].digest
    copy = tmp_path / "copy.npz"
    copy.write_bytes(features.read_bytes())
    for same in ({"backbone": "other"}, {"threads": 2}, {"options": Options({"batch_size": 36})}):
        assert plan(copy, **same)[0].digest == first
    others = [
        plan(features, options=Options({"steps": 7}))[0],
        plan(features, options=Options({}, {"uniot": {"epsilon": 0.02}}))[0],
        plan(write_features(tmp_path / "others.npz", seed=1))[0],
        plan_jobs(OWN, features, {"mine": custom_split(CLASSES[:3], (), ("jar",))}, methods=["uniot"], backbone="")[0],
    ]
    assert len({first, *(job.digest for job in others)}) == 5


def test_a_job_comes_back_from_its_file(features: Path, tmp_path: Path) -> None:
    job = plan(features, options=Options({"steps": 7}))[3]
    job.write(tmp_path)
    again = type(job).read(tmp_path)
    assert again == job
    assert again.digest == job.digest


def test_options_are_for_all_methods_or_for_one(features: Path, tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text("steps = 9\n[uniot]\nepsilon = 0.02\n", encoding="utf-8")
    uniot, source_only = plan(features, options=Options.read(path))[:2]
    assert uniot.settings == source_only.settings == {"steps": 9}
    assert uniot.options == uniot.full_settings().method_options == {"epsilon": 0.02}
    assert source_only.options == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps = [", "is not valid TOML"),
        ("[nonsense]\nx = 1", r"has a table \[nonsense\], which is not the name of a method. Methods are uniot"),
        ("stepz = 9", "there is no setting called 'stepz'"),
        ("[uniot]\nstepz = 9", "there is no setting called 'stepz'"),
        ("[uniot]\nsteps = 9", "steps cannot be chosen here: it is the same for all methods"),
        ("seed = 9", "seed cannot be chosen here: the protocol sets it"),
        ("[uniot]\nn_private_classes = 2", "n_private_classes cannot be chosen here: the protocol sets it"),
    ],
)
def test_options_that_cannot_be_used_are_told_before_any_job_runs(
    features: Path, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=words):
        plan(features, options=Options.read(path))


def test_what_is_wrong_with_a_plan_is_told_before_any_job_runs(features: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no method called 'unoit'"):
        plan(features, methods=["unoit"])
    slip = {"mine": custom_split(("cup", "pen"), (), ("hut",))}
    with pytest.raises(DataError, match="classes that neither domain has: hut"):
        plan_jobs(OWN, features, slip, methods=["uniot"], backbone="toy")
    assert plan_jobs(OWN, features, slip, methods=["uniot"], backbone="toy", incomplete=True)
    with pytest.raises(SettingsError, match="no method is named"):
        plan(features, methods=[])
    with pytest.raises(SettingsError, match="the number of seeds is 0"):
        plan(features, n_seeds=0)
    np.savez(tmp_path / "x.npz", photo_x=np.ones((2, 3)), photo_y=["cup"] * 2, sketch_x=[[1.0]], sketch_y=["pen"])
    with pytest.raises(DataError, match="embeddings differ in width .photo 3, sketch 1."):
        plan(tmp_path / "x.npz")
