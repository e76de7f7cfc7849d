"""Labels that users give: what stays, what becomes another form, and what is refused in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot.errors import DataError
from uniot.io import labels
from uniot.io.labels import as_labels

pandas = pytest.importorskip("pandas")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["cat", "dog"], ["cat", "dog"]),
        (np.array(["cat", "dog"], dtype=object), ["cat", "dog"]),
        ([np.str_("cat"), "dog"], ["cat", "dog"]),
        (np.array(["café".encode(), b"dog"]), ["café", "dog"]),
        (["café".encode(), b"dog"], ["café", "dog"]),
        ([" cat", "cat"], [" cat", "cat"]),
        ([3, 1], [3, 1]),
        ([3.0, 1], [3, 1]),
        (np.array([3.0, -1.0], dtype=np.float16), [3, -1]),
        (np.array([3, 1], dtype=np.uint64), [3, 1]),
        (np.array([2**63 - 1, -(2**63)]), [2**63 - 1, -(2**63)]),
        ([True, False], [1, 0]),
        (np.array([True, False]), [1, 0]),
        (torch.tensor([3, 1]), [3, 1]),
        (torch.tensor([3.0, 1.0], dtype=torch.bfloat16), [3, 1]),
        ([torch.tensor(3), torch.tensor(1)], [3, 1]),
        (pandas.Series(["cat", "dog"]), ["cat", "dog"]),
        (pandas.Series(["cat", "dog"], dtype="category"), ["cat", "dog"]),
        (pandas.Series([3, 1], dtype="category"), [3, 1]),
        (pandas.Series([3, 1], dtype="Int64"), [3, 1]),
        (np.ma.array(["cat", "dog"], mask=False), ["cat", "dog"]),
        ([], []),
    ],
)
def test_labels_keep_their_values(given, expected):
    found = as_labels(given, "y")
    assert found.tolist() == expected
    assert found.dtype.kind in "Ui"
    assert found.dtype.kind == "U" or found.dtype == np.int64


@pytest.mark.parametrize(
    ("missing", "shown"),
    [
        (["cat", None], "None"),
        (["cat", float("nan")], "nan"),
        (["cat", np.float32("nan")], "nan"),
        (["cat", pandas.NA], "<NA>"),
        ([1, pandas.NaT], "NaT"),
        (["cat", ""], "''"),
        (["cat", "   "], "'   '"),
        (np.array(["cat", "nan"]), "'nan'"),
        (np.array(["cat", "NaN"]), "'NaN'"),
        (np.array(["cat", "<NA>"]), "'<NA>'"),
        (np.array([b"cat", b""]), "''"),
        (np.array([1.0, np.nan]), "nan"),
        ([1, np.nan], "nan"),
        (pandas.Series(["cat", None], dtype="string"), "<NA>"),
        (pandas.Series(["cat", None], dtype="category"), "nan"),
        (np.ma.array(["cat", "dog"], mask=[False, True]), "masked"),
        (np.ma.array([1, 2], mask=[False, True]), "masked"),
    ],
)
def test_missing_label_is_no_class(missing, shown):
    with pytest.raises(DataError) as refused:
        as_labels(missing, "y_source")
    assert str(refused.value) == (
        f"y_source has no label in 1 of 2 rows, the first is row 1 ({shown}). Leave out samples without a label, or "
        "label them."
    )


def test_missing_number_of_pandas_is_no_class():
    with pytest.raises(DataError, match="y_source has no label in 1 of 2 rows, the first is row 1"):
        as_labels(pandas.Series([1, None], dtype="Int64"), "y_source")


def test_blank_names_of_groups_are_names():
    assert as_labels(["", "nan", "first"], "groups", allow_blank=True).tolist() == ["", "nan", "first"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([1e19, 2e19]), r"y holds 1e\+19 in row 0, and float64 .* only up to 9007199254740992"),
        ([1e19, 2e19], r"y holds 1e\+19 in row 0, and float64 .* Give labels as text or as integers"),
        (np.array([0, 4096], dtype=np.float16), "y holds 4096 in row 1, and float16 .* only up to 2048"),
        (np.array([1, 2**64 - 1], dtype=np.uint64), "y holds an integer beyond 64 bits in row 1, 18446744073709551615"),
        ([1, 2**64], "y holds an integer beyond 64 bits in row 1, 18446744073709551616. Give labels as text"),
        ([1, 10**400], "y holds an integer beyond 64 bits in row 1, 1329 bits"),
        ([0.5, 1], "y holds 0.5 in row 0. Give text or whole numbers, not continuous values"),
        ([1.0, np.inf], "y holds inf in row 1"),
        (np.array([b"cat", b"caf\xe9"]), r"y holds bytes in row 1 that are not UTF-8 \(b'caf\\xe9', .*latin-1"),
        (["cat", b"dog"], "y mixes bytes, str. Give all labels as text"),
        (["cat", 1], "y mixes int, str. Give all labels as text"),
        ([True, 2], "y mixes bool, int"),
        ([1 + 2j], "y holds objects of the type complex"),
        (np.array([1 + 2j]), "y has dtype complex128. Give text or whole numbers"),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), "y has dtype datetime64"),
        (["cat", "cat\0"], "y holds a NUL character in row 1"),
        ([["cat"], ["dog"]], r"y has shape \(2, 1\). Give one label per sample"),
        ([["cat"], ["dog", "cow"]], "y holds objects of the type list"),
        ("cat", r"y has shape \(\)"),
    ],
)
def test_labels_that_would_be_merged_or_changed_are_refused(given, words):
    with pytest.raises(DataError, match=words):
        as_labels(given, "y")


def test_a_long_label_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(labels, "_MOST_LETTERS", 100)
    assert as_labels(["a" * 50, "b"], "y").tolist() == ["a" * 50, "b"]
    with pytest.raises(DataError, match="y has a label of 51 letters, and each of its 2 rows would take that much"):
        as_labels(["a" * 51, "b"], "y")
