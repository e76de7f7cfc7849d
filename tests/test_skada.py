"""UniOT at the end of skada's pipelines, under its splitters and scorers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.preprocessing import StandardScaler

from uniot import UniOT
from uniot.datasets import make_toy_domains
from uniot.errors import DataError
from uniot.metrics.label_free import soft_neighbourhood_density, target_silhouette

# Importing skada turns metadata routing on for the whole process; other tests shall not notice.
with sklearn.config_context():
    pytest.importorskip("skada", reason="needs `pip install skada`")
    from skada import CORALAdapter, make_da_pipeline
    from skada.metrics import (
        CircularValidation,
        DeepEmbeddedValidation,
        ImportanceWeightedScorer,
        MaNoScorer,
        MixValScorer,
        PredictionEntropyScorer,
        SoftNeighborhoodDensity,
        SupervisedScorer,
    )
    from skada.model_selection import SourceTargetShuffleSplit

PAPER = {
    "steps": 8,
    "hidden_size": 32,
    "feature_size": 16,
    "detection_start": 3,
    "n_private_classes": 2,
}
FIRST_PRIVATE = 5


@dataclass(frozen=True)
class Packed:
    """Data as skada packs them: 0 to 2 are common classes, 3 and 4 of the source alone, 5 and 6 of the target alone."""

    x: np.ndarray
    y: np.ndarray
    sample_domain: np.ndarray

    @property
    def target(self) -> np.ndarray:
        return self.sample_domain < 0

    @property
    def masked(self) -> np.ndarray:
        """Labels with -1 for the target; a new array, because skada writes its mask into what it is given."""
        return np.where(self.target, -1, self.y)

    @property
    def truth(self) -> np.ndarray:
        """What should be said of each row: a class, or -1 for what is private to the target."""
        return np.where(self.y >= FIRST_PRIVATE, -1, self.y)


@pytest.fixture(scope="module")
def packed() -> Packed:
    toy = make_toy_domains(seed=1, samples_per_class=12)
    names = np.concatenate([toy.y_source, toy.oracle_y_target])
    sample_domain = np.repeat([1, -2], [len(toy.x_source), len(toy.x_target)])
    return Packed(np.concatenate([toy.x_source, toy.x_target]), np.unique(names, return_inverse=True)[1], sample_domain)


@pytest.fixture(autouse=True)
def _routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def pipeline(**options: Any) -> Any:
    # Only one of skada's scorers weighs the rows, and only that one needs the request.
    return make_da_pipeline(
        StandardScaler(), UniOT(random_state=0, **PAPER).set_score_request(sample_weight=True), **options
    )


@pytest.fixture(scope="module")
def fitted(packed: Packed) -> Any:
    with sklearn.config_context(enable_metadata_routing=True):
        return pipeline().fit(packed.x, packed.masked, sample_domain=packed.sample_domain)


def test_a_pipeline_answers_as_the_estimator_behind_the_same_scaler(packed: Packed, fitted: Any) -> None:
    scaled = StandardScaler().fit_transform(packed.x)
    alone = UniOT(random_state=0, **PAPER)
    alone.fit(scaled[~packed.target], packed.y[~packed.target], scaled[packed.target])
    x_target = packed.x[packed.target]
    np.testing.assert_array_equal(fitted.predict(x_target), alone.labels_)
    np.testing.assert_array_equal(
        fitted.predict(x_target, sample_domain=packed.sample_domain[packed.target]), alone.labels_
    )
    np.testing.assert_array_equal(fitted.predict_proba(x_target), alone.predict_proba(scaled[packed.target]))


@pytest.mark.parametrize("mask", [True, False])
def test_labels_of_the_target_reach_nothing_masked_or_not(packed: Packed, fitted: Any, mask: bool) -> None:
    for labels in (packed.y, np.where(packed.target, 3, packed.y)):
        other = pipeline(mask_target_labels=mask).fit(packed.x, labels.copy(), sample_domain=packed.sample_domain)
        np.testing.assert_array_equal(other.predict_proba(packed.x), fitted.predict_proba(packed.x))


class TestMinusOne:
    """In skada it masks the label of a target row; of UniOT it is the answer for what is unknown."""

    def test_the_mask_is_no_class_and_the_answer_is(self, packed: Packed, fitted: Any) -> None:
        assert fitted[-1].base_estimator_.classes_.tolist() == [0, 1, 2, 3, 4]
        assert set(fitted.predict(packed.x[packed.target])) <= {-1, 0, 1, 2, 3, 4}
        assert -1 in fitted.predict(packed.x[packed.target])

    def test_rows_whose_truth_is_unknown_are_scored_and_not_taken_for_masked(self, packed: Packed, fitted: Any) -> None:
        x, truth = packed.x[packed.target], packed.truth[packed.target]
        assert fitted.score(x, truth) == pytest.approx(np.mean(fitted.predict(x) == truth))
        assert (truth == -1).sum() == 24

    def test_a_source_class_of_that_name_is_refused(self, packed: Packed) -> None:
        labels = np.where(packed.y == 0, -1, packed.y)
        with pytest.raises(DataError, match="a source class is called -1.*set unknown_label"):
            pipeline().fit(packed.x, labels, sample_domain=packed.sample_domain)


def validated(packed: Packed, scoring: Any, **params: Any) -> Any:
    return cross_validate(
        pipeline(),
        packed.x,
        packed.masked,
        cv=SourceTargetShuffleSplit(n_splits=2, test_size=0.3, random_state=0),
        scoring=scoring,
        params={"sample_domain": packed.sample_domain, **params},
        error_score="raise",
        return_estimator=True,
        return_indices=True,
    )


@pytest.mark.parametrize(
    "of_skada",
    [
        PredictionEntropyScorer,
        SoftNeighborhoodDensity,
        DeepEmbeddedValidation,
        ImportanceWeightedScorer,
        MixValScorer,
        MaNoScorer,
    ],
)
def test_cross_validation_with_scorers_of_skada(packed: Packed, of_skada: type) -> None:
    scores = validated(packed, of_skada())["test_score"]
    assert np.isfinite(scores).all()
    assert scores[0] != scores[1]


def test_cross_validation_with_scores_of_uniot(packed: Packed) -> None:
    results = validated(packed, target_silhouette)
    for fold, model in enumerate(results["estimator"]):
        rows = results["indices"]["test"][fold]
        assert results["test_score"][fold] == target_silhouette(model, packed.x[rows[packed.target[rows]]])


def test_soft_neighbourhood_density_is_the_one_of_skada(packed: Packed, fitted: Any) -> None:
    # skada keeps a row among its own neighbours, with similarity -1.
    theirs = SoftNeighborhoodDensity()(fitted, packed.x, packed.masked, sample_domain=packed.sample_domain)
    ours = soft_neighbourhood_density(fitted, packed.x, packed.masked, sample_domain=packed.sample_domain)
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_the_supervised_scorer_is_an_oracle_that_knows_unknown_as_minus_one(packed: Packed) -> None:
    results = validated(packed, SupervisedScorer(), target_labels=packed.truth)
    for fold, model in enumerate(results["estimator"]):
        rows = results["indices"]["test"][fold]
        rows = rows[packed.target[rows]]
        assert results["test_score"][fold] == pytest.approx(
            np.mean(model.predict(packed.x[rows]) == packed.truth[rows])
        )


def test_circular_validation_cannot_be_had(packed: Packed) -> None:
    with pytest.raises(ValueError, match="previously unseen labels"):
        validated(packed, CircularValidation())


def test_a_grid_search_over_a_pipeline(packed: Packed) -> None:
    found = GridSearchCV(
        pipeline(),
        {"uniot__adaptation_weight": [0.1, 1.0]},
        cv=SourceTargetShuffleSplit(n_splits=1, test_size=0.3, random_state=0),
        scoring=target_silhouette,
        error_score="raise",
    ).fit(packed.x, packed.masked, sample_domain=packed.sample_domain)
    scores = found.cv_results_["mean_test_score"]
    assert scores[0] != scores[1]
    assert found.best_params_ == {"uniot__adaptation_weight": [0.1, 1.0][int(scores.argmax())]}


def test_an_adapter_may_come_before(packed: Packed) -> None:
    model = make_da_pipeline(CORALAdapter(), UniOT(random_state=0, **PAPER))
    model.fit(packed.x, packed.masked, sample_domain=packed.sample_domain)
    assert len(model[-1].base_estimator_.labels_) == packed.target.sum()
    assert np.isfinite(target_silhouette(model, packed.x[packed.target]))


def test_text_classes_need_skada_not_to_mask(packed: Packed) -> None:
    names = np.array(["a", "b", "c", "d", "e", "f", "g"])[packed.y]
    with pytest.raises(TypeError, match="isnan"):
        pipeline().fit(packed.x, names, sample_domain=packed.sample_domain)
    model = pipeline(mask_target_labels=False).fit(packed.x, names, sample_domain=packed.sample_domain)
    assert set(model.predict(packed.x[packed.target])) <= {"a", "b", "c", "d", "e", "unknown"}
