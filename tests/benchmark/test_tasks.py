"""Tasks of published data sets and of one's own, and splits from files and lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from uniot.benchmark.splits import custom_split, read_split
from uniot.benchmark.tasks import TaskSet
from uniot.datasets.catalogue import BENCHMARK_SETS, ClassSplit
from uniot.errors import DataError

OWN = TaskSet.of_domains("toys", ("photo", "sketch"))


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
