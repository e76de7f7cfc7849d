from __future__ import annotations

import ast
import inspect
import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uniot.metrics
from uniot.errors import DataError, SettingsError
from uniot.metrics.accuracy import (
    common_accuracy,
    h3_score,
    h_score,
    overall_accuracy,
    per_class_recall,
    unknown_precision,
    unknown_recall,
)
from uniot.metrics.evaluate import SCORE_MEANINGS, Evaluation, evaluate
from uniot.metrics.grouping import adjusted_rand, hungarian_accuracy, normalized_mutual_information, purity
from uniot.metrics.ranking import auroc, oscr

KNOWN_SCORE = [0.9, 0.8, 0.3, 0.7, 0.1, 0.2, 0.6, 0.1, 0.3, 0.5]
NEAREST = ["cat", "cat", "cat", "dog", "cow", "cat", "dog", "dog", "cow", "cow"]
# The five rows of the day that were called unknown, and their groups.
CALLED_TRUE, CALLED_GROUPS = ["cat", "owl", "owl", "elk", "elk"], [0, 0, 0, 1, 1]


@pytest.fixture
def full(day, groups_of_day, features_of_day):
    return day | {
        "groups": groups_of_day,
        "features": features_of_day,
        "known_score": KNOWN_SCORE,
        "nearest": NEAREST,
    }


def scores_of(result: Evaluation) -> dict[str, float | None]:
    return {name: getattr(result, name) for name in SCORE_MEANINGS}


@pytest.mark.parametrize("average", ["class", "instance"])
def test_every_score_is_that_of_its_own_function(full, day, groups_of_day, features_of_day, average):
    source = day["source_classes"]
    assert scores_of(evaluate(**full, average=average)) == pytest.approx(
        {
            "h_score": h_score(**day, average=average),
            "h3_score_honest": h3_score(**day, average=average, groups=groups_of_day),
            "h3_score_oracle": h3_score(**day, average=average, oracle=True, features=features_of_day),
            "nmi_honest": normalized_mutual_information(CALLED_TRUE, CALLED_GROUPS),
            "nmi_oracle": 1.0,
            "common_accuracy": common_accuracy(**day),
            "common_accuracy_instance": common_accuracy(**day, average="instance"),
            "overall_accuracy": overall_accuracy(**day),
            "unknown_recall": unknown_recall(**day),
            "unknown_precision": unknown_precision(**day),
            "auroc": auroc(np.isin(day["y_true"], source), KNOWN_SCORE),
            "oscr": oscr(day["y_true"], NEAREST, KNOWN_SCORE, source_classes=source),
            "hungarian_accuracy": hungarian_accuracy(CALLED_TRUE, CALLED_GROUPS),
            "purity": purity(CALLED_TRUE, CALLED_GROUPS),
            "adjusted_rand": adjusted_rand(CALLED_TRUE, CALLED_GROUPS),
        }
    )


def test_counts_and_recalls_of_the_day(full, day):
    result = evaluate(**full)
    assert result.counts == {"rows": 10, "common": 4, "private": 6, "called_unknown": 5}
    assert (result.n_private_true, result.n_groups, result.average) == (2, 2, "class")
    assert result.per_class_recall == per_class_recall(**day)
    assert result.notes == ()


def test_every_score_of_the_answer_has_a_meaning_in_one_sentence():
    assert list(SCORE_MEANINGS) == [field.name for field in fields(Evaluation)][: len(SCORE_MEANINGS)]
    assert all(meaning.endswith(".") and "\n" not in meaning for meaning in SCORE_MEANINGS.values())


def test_what_was_not_given_has_no_value_and_a_note(day):
    result = evaluate(**day)
    missing = {name for name, value in scores_of(result).items() if value is None}
    assert missing == {
        *("auroc", "oscr", "nmi_honest", "h3_score_honest", "nmi_oracle", "h3_score_oracle"),
        *("hungarian_accuracy", "purity", "adjusted_rand"),
    }
    assert result.notes == (
        "nmi_honest, h3_score_honest, hungarian_accuracy, purity, adjusted_rand have no value: no groups were given.",
        "nmi_oracle, h3_score_oracle have no value: no features were given.",
        "auroc, oscr have no value: no known score was given.",
    )
    assert result.n_groups is None


def test_known_score_without_nearest_gives_auroc_and_a_note_for_oscr(day):
    result = evaluate(**day, known_score=KNOWN_SCORE)
    assert result.auroc is not None
    assert "oscr has no value: no nearest class was given." in result.notes


def test_unnamed_private_rows_leave_h3_out_with_a_note_and_keep_h(full, day):
    unnamed = ["unknown" if name in ("owl", "elk") else name for name in day["y_true"]]
    result = evaluate(**full | {"y_true": unnamed})
    assert result.h_score == h_score(**day)
    assert (result.h3_score_honest, result.h3_score_oracle, result.nmi_honest) == (None, None, None)
    assert (result.n_private_true, result.n_groups) == (None, 2)
    assert any("h3_score_honest," in note and "no value: 6 of 6 private rows" in note for note in result.notes)


def test_without_private_rows_the_common_accuracy_stands_in_with_a_note_not_a_warning():
    result = evaluate(
        ["a", "b", "b"],
        ["a", "b", "unknown"],
        groups=[-1, -1, 0],
        features=np.eye(3),
        known_score=[1, 1, 0],
        nearest=["a"] * 3,
    )
    assert result.h_score == result.h3_score_honest == result.h3_score_oracle == result.common_accuracy == 0.75
    assert (result.unknown_recall, result.nmi_honest, result.nmi_oracle, result.auroc, result.oscr) == (None,) * 5
    assert result.unknown_precision == 0.0
    assert any(n.startswith("h3_score_honest, h3_score_oracle, h_score: the accuracy on common") for n in result.notes)
    assert result.n_private_true == 0


def test_a_reason_is_given_once_and_only_who_left_the_classes_out_is_told_to_give_them(full):
    everything = [*full["source_classes"], "owl", "elk"]
    named = evaluate(**full | {"source_classes": everything})
    assert len(named.notes) == len({note.partition(": ")[2] for note in named.notes})
    assert sum("no row is private" in note for note in named.notes) == 2
    assert not any("source_classes" in note for note in named.notes)
    without = evaluate(["a", "b"], ["a", "b"])
    assert any("give source_classes" in note for note in without.notes)


def test_without_common_rows_the_scores_of_private_rows_are_used_with_a_note():
    result = evaluate(["owl", "elk"], ["unknown", "a"], source_classes=["a"], groups=[0, -1])
    assert (result.h_score, result.unknown_recall, result.common_accuracy) == (0.5, 0.5, None)
    assert result.h3_score_honest == pytest.approx(2 / 3)
    assert result.per_class_recall == {"unknown": 0.5}
    assert any(note.startswith("h3_score_honest, h_score: the scores of the private rows") for note in result.notes)


def test_nothing_called_unknown_has_no_precision_and_an_honest_h3_of_zero(full):
    result = evaluate(**full | {"y_pred": ["cat"] * 10, "groups": [-1] * 10})
    assert (result.nmi_honest, result.h3_score_honest, result.n_groups) == (0.0, 0.0, 0)
    assert (result.unknown_precision, result.hungarian_accuracy, result.adjusted_rand) == (None, None, None)
    assert (
        "unknown_precision, hungarian_accuracy, purity, adjusted_rand have no value: no row is predicted as unknown."
        in result.notes
    )
    assert any(note.startswith("nmi_honest is 0, and h3_score_honest with it") for note in result.notes)


def test_to_dict_survives_json_with_integer_classes():
    result = evaluate(
        np.array([0, 1, 5, 6]),
        np.array([0, -1, -1, -1]),
        source_classes=np.array([0, 1]),
        groups=np.array([-1, 0, 0, 1]),
        features=np.eye(4, dtype=np.float32),
        known_score=np.array([0.9, 0.2, 0.1, 0.3], dtype=np.float32),
    )
    stored = result.to_dict()
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert stored["per_class_recall"] == {"0": 1.0, "1": 0.0, "-1": 1.0}
    assert set(stored) == {field.name for field in fields(Evaluation)}


def test_the_answer_is_frozen_and_can_be_sent_to_another_process(full):
    result = evaluate(**full)
    with pytest.raises(FrozenInstanceError):
        result.h_score = 1.0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(result)).to_dict() == result.to_dict()


@st.composite
def targets(draw):
    n = draw(st.integers(1, 15))
    column = lambda values: draw(st.lists(values, min_size=n, max_size=n))  # noqa: E731
    optional = lambda values: column(values) if draw(st.booleans()) else None  # noqa: E731
    return {
        "y_true": column(st.sampled_from(["a", "b", "owl", "elk", *draw(st.sampled_from([[], ["unknown"]]))])),
        "y_pred": column(st.sampled_from(["a", "b", "c", "unknown"])),
        "source_classes": draw(st.sampled_from([["a", "b", "c"], ["c", "b", "a", "d"]])),
        "known_score": optional(st.integers(-3, 3)),
        "nearest": optional(st.sampled_from(["a", "b", "c"])),
        "groups": optional(st.integers(0, 3)),
        "features": optional(st.tuples(st.integers(1, 2), st.integers(-2, 2))),
        "average": draw(st.sampled_from(["class", "instance"])),
    }


@given(targets())
def test_no_input_gives_nan_a_warning_or_a_missing_score_without_a_note(target):
    result = evaluate(**target)
    json.dumps(result.to_dict(), allow_nan=False)
    for name, value in scores_of(result).items():
        if value is None:
            assert any(name in note.partition(" ha")[0].split(", ") and " no value: " in note for note in result.notes)
        else:
            assert type(value) is float
            assert (-0.5 if name == "adjusted_rand" else 0.0) - 1e-12 <= value <= 1.0 + 1e-12
    assert all(note.endswith(".") and ".." not in note for note in result.notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y_pred": ["cat"]}, "y_true has 10 rows, y_pred has 1"),
        ({"known_score": [np.nan] * 10}, "10 of 10 values of known_score are NaN"),
        ({"known_score": [0.5]}, "y_true has 10 rows, known_score has 1"),
        ({"nearest": ["cat"] * 9 + ["elk"]}, "nearest holds 'elk', neither a source class"),
        ({"features": np.zeros((10, 2))}, "rows of features are all zero"),
        ({"source_classes": ["cat", "dog"]}, "y_pred holds 'cow', neither a source class nor 'unknown'"),
    ],
)
def test_unusable_data_is_an_error_and_not_a_note(full, change, words):
    with pytest.raises(DataError, match=words):
        evaluate(**full | change)


def test_an_average_that_does_not_exist_is_refused(day):
    with pytest.raises(SettingsError, match="average must be 'class' or 'instance'"):
        evaluate(**day, average="macro")


def test_every_public_name_exists_and_has_a_docstring():
    for name in uniot.metrics.__all__:
        assert inspect.getdoc(getattr(uniot.metrics, name))


SOURCES = sorted(Path(uniot.metrics.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_evaluation_imports_only_what_it_may_and_nothing_heavy_at_the_top(path):
    allowed = {f"uniot.{name}" for name in ("errors", "io", "discovery", "metrics")}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert all(".".join(name.split(".")[:2]) in allowed for name in modules if name.startswith("uniot"))
    at_the_top = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    at_the_top += [name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names]
    # Label-free scores serve scikit-learn's searches, and nothing at start-up imports them.
    if path.stem != "label_free":
        assert not {name.split(".")[0] for name in at_the_top} & {"torch", "scipy", "sklearn"}


def test_scores_are_imported_without_torch_scipy_and_scikit_learn():
    program = (
        "import sys, uniot.metrics\nprint([name for name in ('torch', 'scipy', 'sklearn') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_no_group_is_a_possible_answer_and_counts_as_an_error_of_the_number(full, day):
    result = evaluate(**(full | {"groups": [-1] * 10}))
    assert result.n_groups == 0
    assert result.n_groups_error == -result.n_private_true
    assert result.h3_score_honest == h3_score(**day, groups=[-1] * 10) == 0


def test_without_a_group_the_scores_of_groups_are_undefined_and_h3_counts_one_group():
    rows = {"y_true": ["a", "owl", "owl"], "y_pred": ["a", "unknown", "a"], "source_classes": ["a"], "groups": [-1] * 3}
    result = evaluate(**rows)
    assert (result.nmi_honest, result.hungarian_accuracy, result.purity, result.adjusted_rand) == (None,) * 4
    assert result.h3_score_honest == h3_score(**rows) == evaluate(**rows | {"groups": [-1, 0, -1]}).h3_score_honest
    assert (
        "nmi_honest, hungarian_accuracy, purity, adjusted_rand have no value: no group was found among the rows "
        "predicted as unknown. For h3_score_honest they are one group." in result.notes
    )


def test_error_of_the_number_is_groups_less_classes(full):
    result = evaluate(**full)
    assert result.n_groups_error == result.n_groups - result.n_private_true
    assert evaluate(**(full | {"groups": None})).n_groups_error is None
