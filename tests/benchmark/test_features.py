"""Features of domains, and the samples that a split gives to a task."""

from __future__ import annotations

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
from uniot.benchmark.splits import check_split, custom_split
from uniot.errors import DataError

CLASSES = ("cup", "pen", "tin", "bag", "key", "hat", "jar")
SPLIT = custom_split(("cup", "pen", "tin"), ("bag", "key"), ("hat", "jar"))


def domain(labels: list[str], classes: tuple[str, ...] = ()) -> DomainFeatures:
    """Samples whose only number is their place."""
    known = classes or tuple(dict.fromkeys(labels))
    return DomainFeatures(np.arange(len(labels), dtype=float)[:, None], np.array(labels, dtype=str), known)


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
