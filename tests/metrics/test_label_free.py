"""Choosing settings without a target label: what the scores are, what they may see, and how searches use them."""

from __future__ import annotations

import importlib.util
import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import silhouette_score
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uniot import UniDAClassifier, UniNCM, UniOT
from uniot.datasets import ToyDomains, make_toy_domains
from uniot.errors import DataError, UndefinedScoreWarning
from uniot.io.arrays import target_rows
from uniot.io.predictions import Prediction
from uniot.metrics import label_free as validation
from uniot.metrics.label_free import negative_entropy, soft_neighbourhood_density, target_silhouette

SMALL = {"steps": 8, "hidden_size": 32, "feature_size": 16, "detection_start": 3, "n_private_classes": 2}
SCORES = (soft_neighbourhood_density, negative_entropy, target_silhouette)
EXAMPLE = Path(__file__).parents[2] / "examples" / "choose_settings.py"


@dataclass
class Mixed:
    """The rows of both domains in one array, in no order."""

    x: np.ndarray
    y: np.ndarray
    sample_domain: np.ndarray
    toy: ToyDomains

    @property
    def target(self) -> np.ndarray:
        return self.sample_domain < 0

    def relabelled(self, labels: Any) -> np.ndarray:
        """The labels, with others for the target."""
        y = self.y.copy()
        y[self.target] = labels
        return y


@pytest.fixture(scope="module")
def mixed() -> Mixed:
    toy = make_toy_domains(seed=1, samples_per_class=12)
    order = np.random.default_rng(0).permutation(len(toy.x_source) + len(toy.x_target))
    x = np.concatenate([toy.x_source, toy.x_target])[order]
    y = np.concatenate([toy.y_source, toy.oracle_y_target]).astype(object)[order]
    return Mixed(x, y, np.repeat([1, -2], [len(toy.x_source), len(toy.x_target)])[order], toy)


@pytest.fixture(scope="module")
def fitted(mixed: Mixed) -> UniDAClassifier:
    return UniOT(random_state=0, **SMALL).fit(mixed.x, mixed.y, sample_domain=mixed.sample_domain)


@pytest.fixture
def _routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@dataclass
class Stub:
    """A model that says what it was made to say."""

    probabilities: np.ndarray | None = None
    features: np.ndarray | None = None
    answers: Prediction | None = None

    def predict_proba(self, _: object) -> np.ndarray | None:
        return self.probabilities

    def transform(self, _: object) -> np.ndarray | None:
        return self.features

    def predict_full(self, _: object) -> Prediction | None:
        return self.answers


def answers(nearest: list[int], group: list[int], known: list[bool]) -> Prediction:
    return Prediction(
        np.array(nearest),
        np.array(known),
        np.full(len(known), 0.5),
        np.full(len(known), 0.5),
        np.array(group),
        np.zeros(len(known)),
    )


class TestSoftNeighbourhoodDensity:
    def test_three_rows_by_hand(self) -> None:
        # The first two are alike, the third is at a right angle to both.
        model = Stub(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        near = 1 / (1 + math.exp(-20))
        pair = -near * math.log(near) - (1 - near) * math.log(1 - near)
        assert soft_neighbourhood_density(model, [0, 0, 0]) == pytest.approx((2 * pair + math.log(2)) / 3)

    @given(hnp.arrays(np.float64, st.tuples(st.integers(2, 12), st.integers(2, 4)), elements=st.floats(0.01, 1)))
    def test_nothing_is_denser_than_the_same_answer_for_every_row(self, rows: np.ndarray) -> None:
        density = soft_neighbourhood_density(Stub(rows / rows.sum(axis=1, keepdims=True)), rows)
        collapsed = soft_neighbourhood_density(Stub(np.tile([0.9, 0.1], (len(rows), 1))), rows)
        assert collapsed == pytest.approx(math.log(len(rows) - 1))
        assert density <= collapsed + 1e-9

    def test_a_large_target_is_read_in_parts_to_the_same_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = Stub(np.random.default_rng(0).dirichlet(np.ones(4), size=23))
        whole = soft_neighbourhood_density(model, [0] * 23)
        monkeypatch.setattr(validation, "_CHUNK_VALUES", 23 * 5)
        assert soft_neighbourhood_density(model, [0] * 23) == pytest.approx(whole)

    def test_a_single_row_has_no_neighbours(self) -> None:
        with pytest.raises(DataError, match="1 target row has no neighbours. Give at least two."):
            soft_neighbourhood_density(Stub(np.ones((1, 2))), [0])


def test_entropy_is_that_of_the_mean_row() -> None:
    # One row sure of its class, one torn between four.
    model = Stub(np.array([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]]))
    assert negative_entropy(model, [0, 0]) == pytest.approx(-math.log(4) / 2)


class TestTargetSilhouette:
    features = np.array([[0.0, 0], [0, 1], [9, 0], [9, 1], [0, 9], [1, 9]])

    def test_private_groups_count_as_answers_of_their_own(self) -> None:
        model = Stub(
            features=self.features, answers=answers([0, 0, 1, 1, 1, 1], [-1, -1, 0, 0, 1, 1], [True] * 2 + [False] * 4)
        )
        assert target_silhouette(model, self.features) == pytest.approx(
            silhouette_score(self.features, [0, 0, 1, 1, 2, 2])
        )

    def test_unknown_rows_without_a_group_are_no_part_of_the_first_class(self) -> None:
        model = Stub(features=self.features, answers=answers([0] * 6, [-1] * 6, [True] * 2 + [False] * 4))
        assert target_silhouette(model, self.features) == pytest.approx(
            silhouette_score(self.features, [0, 0, 1, 1, 1, 1])
        )

    @pytest.mark.parametrize("nearest", [[0] * 6, [0, 1, 2, 3, 4, 5]])
    def test_one_answer_for_all_and_one_for_each_are_worst(self, nearest: list[int]) -> None:
        model = Stub(features=self.features, answers=answers(nearest, [-1] * 6, [True] * 6))
        with pytest.warns(UndefinedScoreWarning, match="groups of 6 rows have no silhouette; -1, the lowest value"):
            assert target_silhouette(model, self.features) == -1


class TestRowsOfBothDomains:
    def test_fit_is_that_of_the_two_parts(self, mixed: Mixed, fitted: UniDAClassifier) -> None:
        apart = UniOT(random_state=0, **SMALL)
        apart.fit(mixed.x[~mixed.target], mixed.y[~mixed.target], mixed.x[mixed.target])
        np.testing.assert_array_equal(apart.predict_proba(mixed.x), fitted.predict_proba(mixed.x))
        np.testing.assert_array_equal(apart.labels_, fitted.labels_)

    @pytest.mark.parametrize("label", ["common-0", "source-1", "unknown", -1, np.nan, None, 7.5])
    def test_labels_of_the_target_reach_nothing(self, mixed: Mixed, fitted: UniDAClassifier, label: object) -> None:
        again = UniOT(random_state=0, **SMALL)
        again.fit(mixed.x, mixed.relabelled(label), sample_domain=mixed.sample_domain)
        np.testing.assert_array_equal(again.predict_proba(mixed.x), fitted.predict_proba(mixed.x))
        assert again.classes_.tolist() == fitted.classes_.tolist()

    @pytest.mark.parametrize("kind", ["frame", "tensor", "list"])
    def test_rows_of_any_kind_are_parted(self, mixed: Mixed, fitted: UniDAClassifier, kind: str) -> None:
        convert = {"frame": pd.DataFrame, "tensor": torch.from_numpy, "list": np.ndarray.tolist}[kind]
        labels = {"frame": pd.Series, "tensor": np.asarray, "list": list}[kind]
        model = UniOT(random_state=0, **SMALL)
        model.fit(convert(mixed.x), labels(mixed.y), sample_domain=mixed.sample_domain.tolist())
        np.testing.assert_array_equal(model.labels_, fitted.labels_)
        for score in SCORES:
            found = score(model, convert(mixed.x), sample_domain=mixed.sample_domain)
            assert found == score(fitted, mixed.x[mixed.target])

    def test_numbers_stay_numbers_beside_text_in_a_list(self, mixed: Mixed) -> None:
        numbers = np.unique(mixed.y.astype(str), return_inverse=True)[1].tolist()
        labels = ["?" if target else number for number, target in zip(numbers, mixed.target, strict=True)]
        model = UniOT(random_state=0, **SMALL).fit(mixed.x, labels, sample_domain=mixed.sample_domain)
        assert model.classes_.tolist() == [0, 1, 2, 3, 4]

    def test_zero_is_a_source_as_in_skada(self) -> None:
        assert target_rows([0, 3, -1, -7], 4).tolist() == [False, False, True, True]

    def test_target_given_twice(self, mixed: Mixed) -> None:
        with pytest.raises(DataError, match="X_target and sample_domain were both given"):
            UniNCM().fit(mixed.x, mixed.y, mixed.x, sample_domain=mixed.sample_domain)

    def test_target_not_given(self, mixed: Mixed) -> None:
        with pytest.raises(
            DataError, match=r"X_target is missing.*fit\(X, y, sample_domain=…\), negative for the target"
        ):
            UniNCM().fit(mixed.x, mixed.y)

    @pytest.mark.parametrize(
        ("sample_domain", "message"),
        [
            ([1, -1], r"shape \(2,\) and dtype int64 for 120 rows of X.*one number per row: negative for the target"),
            (["source"] * 120, "dtype <U6 for 120 rows"),
            ([np.nan] * 120, "dtype float64 for 120 rows"),
            ([1] * 120, "marks no row as target"),
            ([-1] * 120, "marks every row as target"),
        ],
    )
    def test_domains_that_say_nothing(self, mixed: Mixed, sample_domain: list[object], message: str) -> None:
        with pytest.raises(DataError, match=message):
            UniNCM().fit(mixed.x, mixed.y, sample_domain=sample_domain)

    @pytest.mark.parametrize(("labels", "message"), [(None, "y has no labels"), (["a"], "y has 1 labels")])
    def test_labels_for_other_rows(self, mixed: Mixed, labels: list[str] | None, message: str) -> None:
        with pytest.raises(DataError, match=f"{message} for 120 rows of X.*may be anything"):
            UniNCM().fit(mixed.x, labels, sample_domain=mixed.sample_domain)


@pytest.mark.parametrize("score", SCORES)
class TestEveryScore:
    def test_looks_at_the_rows_of_the_target_alone(self, mixed: Mixed, fitted: UniDAClassifier, score: Any) -> None:
        of_both = score(fitted, mixed.x, mixed.y, sample_domain=mixed.sample_domain)
        assert of_both == score(fitted, mixed.x[mixed.target])
        assert of_both != score(fitted, mixed.x)

    def test_looks_through_a_pipeline(self, mixed: Mixed, score: Any) -> None:
        scaler = StandardScaler().fit(mixed.x)
        model = UniOT(random_state=0, **SMALL)
        model.fit(scaler.transform(mixed.x), mixed.y, sample_domain=mixed.sample_domain)
        expected = score(model, scaler.transform(mixed.x[mixed.target]))
        assert score(make_pipeline(scaler, model), mixed.x[mixed.target]) == expected
        assert score(make_pipeline(model), scaler.transform(mixed.x[mixed.target])) == expected

    def test_refuses_labels_without_domains(self, mixed: Mixed, fitted: UniDAClassifier, score: Any) -> None:
        with pytest.raises(DataError, match=r"y was given without sample_domain.*enable_metadata_routing=True"):
            score(fitted, mixed.x, mixed.y)

    def test_can_be_sent_to_another_process(self, score: Any) -> None:
        assert pickle.loads(pickle.dumps(score)) is score


GRID = [
    {"method": ["uniot"], "adaptation_weight": [0.1, 1.0], **{name: [value] for name, value in SMALL.items()}},
    {"method": ["source-only"], "steps": [8]},
]


def searched(mixed: Mixed, y: np.ndarray, search: type = GridSearchCV, **options: Any) -> Any:
    cv = KFold(2, shuffle=True, random_state=0)
    found = search(UniDAClassifier(random_state=0), GRID, cv=cv, error_score="raise", **options)
    return found.fit(mixed.x, y, sample_domain=mixed.sample_domain)


@pytest.mark.usefixtures("_routing")
class TestSearches:
    def test_a_grid_search_takes_the_best_score_and_no_label_of_the_target_matters(self, mixed: Mixed) -> None:
        found = searched(mixed, mixed.y, scoring=target_silhouette)
        scores = found.cv_results_["mean_test_score"]
        assert len(set(scores)) >= 3  # one per setting
        assert found.best_params_ == found.cv_results_["params"][int(scores.argmax())]
        assert found.best_estimator_.get_params()["method"] == found.best_params_["method"]

        shuffled = np.random.default_rng(1).permutation(mixed.y[mixed.target])
        for labels in (shuffled, -1):
            other = searched(mixed, mixed.relabelled(labels), scoring=target_silhouette)
            np.testing.assert_array_equal(other.cv_results_["mean_test_score"], scores)
            assert other.best_params_ == found.best_params_
            np.testing.assert_array_equal(other.predict(mixed.x), found.predict(mixed.x))

    def test_a_fold_is_scored_on_its_own_target_rows(self, mixed: Mixed) -> None:
        results = cross_validate(
            UniOT(random_state=0, **SMALL),
            mixed.x,
            mixed.y,
            cv=KFold(2, shuffle=True, random_state=0),
            scoring={score.__name__: score for score in SCORES},
            params={"sample_domain": mixed.sample_domain},
            return_estimator=True,
            return_indices=True,
        )
        for fold, model in enumerate(results["estimator"]):
            rows = results["indices"]["test"][fold]
            rows = rows[mixed.target[rows]]
            for score in SCORES:
                assert results[f"test_{score.__name__}"][fold] == score(model, mixed.x[rows])

    def test_a_random_search_runs_through_too(self, mixed: Mixed) -> None:
        found = searched(mixed, mixed.y, RandomizedSearchCV, scoring=negative_entropy, n_iter=2, random_state=0)
        assert found.best_params_ in found.cv_results_["params"]
        assert np.isfinite(found.cv_results_["mean_test_score"]).all()

    def test_a_pipeline_hands_the_domains_on(self, mixed: Mixed) -> None:
        pipeline = make_pipeline(StandardScaler(), UniOT(random_state=0, **SMALL))
        pipeline.fit(mixed.x, mixed.y, sample_domain=mixed.sample_domain)
        assert len(pipeline[-1].labels_) == mixed.target.sum()


def test_a_search_that_does_not_hand_the_domains_on_is_told_so(mixed: Mixed) -> None:
    with (
        sklearn.config_context(enable_metadata_routing=False),
        pytest.raises(DataError, match="y was given without sample_domain"),
    ):
        searched(mixed, mixed.y, scoring=target_silhouette)


@pytest.mark.filterwarnings("ignore::scipy.stats.ConstantInputWarning")  # of so few settings, two may be alike
@pytest.mark.medium
def test_the_example_tells_what_each_score_was_worth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("choose_settings", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "GRID", {"method": ["uniot"], "adaptation_weight": [0.0, 1.0], "steps": [60]})
    monkeypatch.setattr(example, "UniDAClassifier", partial(UniDAClassifier, n_private_classes=2))
    with sklearn.config_context():
        example.main(1)
    printed = capsys.readouterr().out
    assert "target_silhouette chose {'adaptation_weight'" in printed
    assert printed.count("rank correlation with H") == 3 * len(SCORES)
