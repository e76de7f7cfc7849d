"""What people named becomes labelled, what they discarded is left out, everything else stays."""

from __future__ import annotations

import numpy as np
import pytest

from uniot.errors import DataError
from uniot.labelling.names import Names, read_names, write_names
from uniot.labelling.next_run import named_rows


def names(**decided: tuple[str, str]) -> Names:
    labels, decisions = zip(*decided.values(), strict=True) if decided else ((), ())
    return Names(list(decided), np.array(labels, dtype=str), np.array(decisions, dtype=str))


DECIDED = names(b=("teapot", "named"), d=("", "discarded"), a=("cup", "class"))


def test_named_samples_get_labels_and_stay_in_the_target_and_discarded_ones_go():
    found = named_rows(["a", "b", "c", "d"], DECIDED)
    assert dict(zip(found.labelled.tolist(), found.labels.tolist(), strict=True)) == {1: "teapot", 0: "cup"}
    assert found.kept.tolist() == [True, True, True, False]


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
