from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, precision_score, recall_score

from uniot.errors import DataError, SettingsError, UndefinedScoreWarning
from uniot.metrics.accuracy import (
    common_accuracy,
    confusion,
    h_score,
    overall_accuracy,
    per_class_recall,
    unknown_precision,
    unknown_recall,
)


def test_the_day_worked_by_hand(day):
    assert overall_accuracy(**day) == pytest.approx(7 / 10)
    assert common_accuracy(**day) == pytest.approx(5 / 6)
    assert common_accuracy(**day, average="instance") == pytest.approx(3 / 4)
    assert unknown_recall(**day) == pytest.approx(4 / 6)
    assert unknown_precision(**day) == pytest.approx(4 / 5)
    assert per_class_recall(**day) == pytest.approx({"cat": 2 / 3, "dog": 1.0, "unknown": 2 / 3})


def test_the_confusion_of_the_day_counts_every_row_once(day):
    counts = confusion(**day)
    assert sum(sum(given.values()) for given in counts.values()) == len(day["y_true"])
    assert list(counts)[:2] == ["cat", "dog"]  # common classes before private ones
    assert counts["cat"]["cat"] / sum(counts["cat"].values()) == pytest.approx(2 / 3)
    private = [given for name, given in counts.items() if name not in day["source_classes"]]
    assert sum(given.get("unknown", 0) for given in private) == 4
    assert all(count > 0 for given in counts.values() for count in given.values())


def test_private_rows_may_be_named_or_only_called_unknown(day):
    unnamed = ["unknown" if name in ("owl", "elk") else name for name in day["y_true"]]
    assert per_class_recall(unnamed, day["y_pred"]) == per_class_recall(**day)


def test_a_source_class_without_a_row_is_left_out_of_the_mean(day):
    assert "cow" not in per_class_recall(**day)
    more = day | {"source_classes": [*day["source_classes"], "hen", "pig"]}
    assert common_accuracy(**more) == common_accuracy(**day)


def test_integer_labels_use_minus_one_for_unknown():
    assert per_class_recall([0, 0, 1, 7, 8], [0, 1, 1, -1, 0], source_classes=[0, 1]) == {
        0: 0.5,
        1: 1.0,
        -1: 0.5,
    }


def test_another_word_for_unknown_can_be_given():
    assert unknown_recall(["a", "?", "?"], ["a", "?", "a"], unknown="?") == 0.5
    assert unknown_recall([3, 99, 99], [3, 99, 3], unknown=99) == 0.5


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.array,
        torch.tensor,
        lambda v: np.array(v, dtype=np.uint8),
        lambda v: np.array(v, object),
    ],
)
def test_lists_arrays_and_tensors_give_the_same(kind):
    y_true, y_pred, source = [0, 1, 2, 2], [0, 0, 9, 1], [0, 1]
    assert overall_accuracy(kind(y_true), kind(y_pred), source_classes=kind(source), unknown=9) == 0.5


def test_source_classes_may_be_a_set_or_every_source_label(day):
    expected = h_score(**day)
    assert h_score(**day | {"source_classes": {"cat", "dog", "cow"}}) == expected
    assert h_score(**day | {"source_classes": ["cat", "dog", "cat", "cow", "cow"]}) == expected


names = st.sampled_from(["a", "b", "c", "unknown"])


@given(st.lists(st.tuples(names, names), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_equal_to_scikit_learn_and_blind_to_the_order_of_rows(rows, random):
    y_true, y_pred = (list(column) for column in zip(*rows, strict=True))
    assert overall_accuracy(y_true, y_pred) == pytest.approx(np.mean(np.array(y_true) == np.array(y_pred)))
    if "unknown" in y_true and "unknown" in y_pred:
        truth, called = [name == "unknown" for name in y_true], [name == "unknown" for name in y_pred]
        assert unknown_recall(y_true, y_pred) == pytest.approx(recall_score(truth, called))
        assert unknown_precision(y_true, y_pred) == pytest.approx(precision_score(truth, called))
    common = [(t, p) for t, p in rows if t != "unknown"]
    if common:
        classes = sorted({t for t, _ in common})
        by_class = recall_score(*zip(*common, strict=True), labels=classes, average="macro", zero_division=0)
        assert common_accuracy(y_true, y_pred) == pytest.approx(by_class)
    shuffled = random.sample(rows, len(rows))
    again = per_class_recall(*(list(column) for column in zip(*shuffled, strict=True)))
    assert again == per_class_recall(y_true, y_pred)


def test_common_accuracy_without_private_rows_is_balanced_accuracy():
    y_true, y_pred = ["a", "a", "a", "b"], ["a", "a", "b", "b"]
    assert common_accuracy(y_true, y_pred) == pytest.approx(balanced_accuracy_score(y_true, y_pred))


def test_scores_without_rows_are_zero_with_a_warning():
    with pytest.warns(UndefinedScoreWarning, match="unknown recall is undefined; 0 is returned: no row of y_true is"):
        assert unknown_recall(["a"], ["a"]) == 0.0
    with pytest.warns(UndefinedScoreWarning, match="unknown precision is undefined.*no row is predicted as unk"):
        assert unknown_precision(["a"], ["a"]) == 0.0
    with pytest.warns(UndefinedScoreWarning, match="common accuracy is undefined.*compare the spelling"):
        assert common_accuracy(["Cat"], ["unknown"], source_classes=["cat"]) == 0.0


def test_the_warning_points_at_the_caller():
    with pytest.warns(UndefinedScoreWarning) as caught:
        unknown_recall(["a"], ["a"])
    assert caught[0].filename == __file__


def test_per_class_recall_leaves_unknown_out_where_no_row_is_private():
    assert per_class_recall(["a", "b"], ["a", "unknown"]) == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (([], []), "y_true is empty. Give at least one row"),
        ((["a", "b"], ["a"]), "y_true has 2 rows, y_pred has 1. Give both for the same target rows"),
        ((["a", 1], ["a", "b"]), "y_true mixes int, str. Give all labels as text"),
        (([0, "unknown"], [0, 0]), "y_true mixes int, str. Give all labels as text"),
        ((["a", None], ["a", "a"]), r"y_true has no label in 1 of 2 rows, the first is row 1 \(None\)"),
        (([0.5, 1.0], [0, 1]), "y_true holds 0.5 in row 0. Give text or whole numbers"),
        ((np.array([0.5, np.nan]), [0, 1]), r"y_true has no label in 1 of 2 rows, the first is row 1 \(nan\)"),
        (([True, 2], [0, 1]), "y_true mixes bool, int. Give all labels as text"),
        (
            (["a"], [0]),
            "y_true holds text, y_pred holds integers. Give both as class names or both as integers",
        ),
        (
            ([[1, 0], [0, 1]], [0, 1]),
            r"y_true has shape \(2, 2\). Give one value per row",
        ),
        (("cat", ["cat"]), r"y_true has shape \(\)"),
        ((np.array([2**64 - 1], dtype=np.uint64), [0]), "y_true holds an integer beyond 64 bits"),
    ],
)
def test_labels_that_cannot_be_read_are_told_why(given, words):
    with pytest.raises(DataError, match=words):
        overall_accuracy(*given)


def test_a_predicted_name_that_is_no_source_class_is_refused():
    with pytest.raises(
        DataError, match=r"y_pred holds 'ca', neither a source class nor 'unknown'. Source classes are 'c"
    ):
        h_score(["cat", "owl"], ["ca", "unknown"], source_classes=["cat", "dog"])


def test_many_strange_names_are_cut_short():
    with pytest.raises(DataError, match=r"y_pred holds 10, 11, 12, 13, 14 \.\.\., neither"):
        h_score([0] * 9, list(range(10, 19)), source_classes=[0])


def test_the_word_for_unknown_cannot_be_a_source_class():
    with pytest.raises(DataError, match="source_classes holds 'unknown', which is the label of unknown rows"):
        overall_accuracy(["a"], ["a"], source_classes=["a", "unknown"])
    with pytest.raises(DataError, match="source_classes holds -1"):
        overall_accuracy([0], [0], source_classes=[0, -1])


def test_source_classes_of_another_kind_or_empty_are_refused():
    with pytest.raises(DataError, match="y_true holds text, source_classes holds integers"):
        overall_accuracy(["a"], ["a"], source_classes=[0])
    with pytest.raises(DataError, match="source_classes is empty"):
        overall_accuracy(["a"], ["a"], source_classes=[])


@pytest.mark.parametrize(("labels", "unknown"), [(["a"], -1), ([0], "private")])
def test_a_word_for_unknown_of_another_kind_is_refused(labels, unknown):
    with pytest.raises(DataError, match=r"unknown is .* but the labels are .* by default 'unknown' for text and -1"):
        overall_accuracy(labels, labels, unknown=unknown)


def test_an_average_that_does_not_exist_is_refused():
    with pytest.raises(SettingsError, match="average must be 'class' or 'instance', but is 'micro'"):
        common_accuracy(["a"], ["a"], average="micro")
