"""What people named becomes labelled, what they discarded is left out, everything else stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from uniot.errors import DataError
from uniot.images.files import ImageFile
from uniot.labelling import Names, named_embeddings, named_images, named_rows, read_names, write_names


def names(**decided: tuple[str, str]) -> Names:
    labels, decisions = zip(*decided.values(), strict=True) if decided else ((), ())
    return Names(list(decided), np.array(labels, dtype=str), np.array(decisions, dtype=str))


DECIDED = names(b=("teapot", "named"), d=("", "discarded"), a=("cup", "class"))


def test_named_samples_get_labels_and_stay_in_the_target_and_discarded_ones_go():
    found = named_rows(["a", "b", "c", "d"], DECIDED)
    assert dict(zip(found.labelled.tolist(), found.labels.tolist(), strict=True)) == {1: "teapot", 0: "cup"}
    assert found.kept.tolist() == [True, True, True, False]


def test_images_of_the_next_run():
    source = [ImageFile(Path("s.jpg"), "s", "cup")]
    target = [ImageFile(Path(f"{name}.jpg"), name) for name in "abcd"]
    labelled, remaining, kept = named_images(source, target, DECIDED)
    assert [(file.name, file.label) for file in labelled] == [("s", "cup"), ("b", "teapot"), ("a", "cup")]
    assert [(file.name, file.label) for file in remaining] == [("a", None), ("b", None), ("c", None)]
    assert kept.tolist() == [True, True, True, False]


def test_embeddings_of_the_next_run_have_text_as_labels():
    x, y, target, kept = named_embeddings(
        np.array([[9.0]]), np.array([7]), np.arange(4.0)[:, None], ["a", "b", "c", "d"], DECIDED
    )
    assert x.ravel().tolist() == [9, 1, 0]
    assert y.tolist() == ["7", "teapot", "cup"]
    assert target.ravel().tolist() == [0, 1, 2]
    assert kept.sum() == 3


def test_names_of_another_target_are_refused():
    with pytest.raises(DataError, match="1 of 3 labelled samples are not in the target, for example 'b'"):
        named_rows(["a", "d"], DECIDED)


def test_discarding_alone_leaves_out_and_names_nothing():
    found = named_rows(["c", "d"], names(d=("", "discarded")))
    assert found.labelled.tolist() == []
    assert found.kept.tolist() == [True, False]


def test_nothing_decided_is_told():
    with pytest.raises(DataError, match="nothing has a name yet"):
        named_rows(["d"], names())


def test_later_decisions_join_earlier_ones_and_count_more(tmp_path):
    both = names(a=("cup", "named"), b=("pen", "named")).followed_by(names(b=("", "discarded"), c=("tin", "class")))
    write_names(tmp_path / "names.csv", both.lines())
    for found in (both, read_names(tmp_path / "names.csv")):
        assert found.names == ["a", "b", "c"]
        assert found.labels.tolist() == ["cup", "", "tin"]
        assert found.decisions.tolist() == ["named", "discarded", "class"]
