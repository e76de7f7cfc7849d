"""Jobs of a plan, their digests, and the options of methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uniot.benchmark.jobs import Options, plan_jobs
from uniot.benchmark.splits import custom_split
from uniot.benchmark.tasks import TaskSet
from uniot.errors import DataError, SettingsError

CLASSES = ("cup", "pen", "tin", "bag", "key", "hat", "jar")
SPLIT = custom_split(("cup", "pen", "tin"), ("bag", "key"), ("hat", "jar"))
OWN = TaskSet.of_domains("toys", ("photo", "sketch"))


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
