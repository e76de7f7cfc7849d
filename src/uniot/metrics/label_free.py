"""Score a fitted model without labels, to choose hyper-parameters.

Each score is a function `(estimator, X, y=None, *, sample_domain=None) -> float` for `scoring=` of scikit-learn's
searches; higher is better.

    estimator: a fitted `UniOT`, `UniNCM` or `UniDAClassifier`, alone or as the last step of a pipeline.
    X: rows of the target or of both domains, (n_samples, n_features).
    y: ignored; searches pass it.
    sample_domain: negative for target rows, (n_samples,); only these are scored. If None, all rows are target rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from scipy.special import entr, softmax
from sklearn.metrics import silhouette_score
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from uniot.errors import DataError, UndefinedScoreWarning
from uniot.io.arrays import rows_of, target_rows
from uniot.io.predictions import Prediction

_DENSITY_TEMPERATURE = 0.05
_CHUNK_VALUES = 1 << 22

_Score = TypeVar("_Score", bound=Callable[..., float])


class Adapted(Protocol):
    """The methods of a fitted estimator that the scores call."""

    def transform(self, X: Any) -> np.ndarray:
        """Return the transformed features, (n_samples, n_features)."""
        ...

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the classes, then of unknown, (n_samples, n_classes + 1)."""
        ...

    def predict_full(self, X: Any) -> Prediction:
        """Return labels, confidences and groups of all samples."""
        ...


def _requests_domains(score: _Score) -> _Score:
    """Request `sample_domain` from a search by metadata routing."""
    request = MetadataRequest(owner=score.__name__)
    request.score.add_request(param="sample_domain", alias=True)
    # An attribute instead of a class, because a named function can be pickled for other processes.
    cast(Any, score).get_metadata_routing = lambda: request
    return score


@_requests_domains
def soft_neighbourhood_density(estimator: Any, X: Any, y: Any = None, *, sample_domain: Any = None) -> float:
    """Return the soft neighbourhood density of the predictions.

    It is the mean over the target rows i of -Σ_j P_ij log P_ij, where P_ij is the softmax over j ≠ i of
    cos(p_i, p_j) / 0.05 and p_i the row of `predict_proba`. The maximum is log(n - 1), so values for different numbers
    of rows cannot be compared.

    Weakness: a model that predicts the same for every row has the highest score.

    References:
        Saito, Kim, Teterwak, Sclaroff, Darrell and Saenko. Tune it the Right Way: Unsupervised Validation of Domain
        Adaptation via Soft Neighborhood Density. ICCV 2021, arXiv:2108.10860.
    """
    model, target = _target(estimator, X, y, sample_domain)
    return _neighbourhood_entropy(model.predict_proba(target), _DENSITY_TEMPERATURE)


@_requests_domains
def negative_entropy(estimator: Any, X: Any, y: Any = None, *, sample_domain: Any = None) -> float:
    """Return the mean over the target rows of Σ_k p_k log p_k, with p the row of `predict_proba`.

    Weakness: a model can be confident and wrong; one that predicts the same class with certainty for every row has the
    highest score. Methods differ in how confident they are, whatever their accuracy.

    References:
        Morerio, Cavazza and Murino. Minimal-Entropy Correlation Alignment for Unsupervised Deep Domain Adaptation. ICLR
        2018, arXiv:1711.10288.
    """
    model, target = _target(estimator, X, y, sample_domain)
    return -float(entr(model.predict_proba(target)).sum(axis=1).mean())


@_requests_domains
def target_silhouette(estimator: Any, X: Any, y: Any = None, *, sample_domain: Any = None) -> float:
    """Return the silhouette of the predictions in the space of the transformed target features.

    It is the mean over the target rows of (b - a) / max(a, b), with the mean distance a to the rows of the same
    prediction and b to those of the nearest other prediction. A prediction is a class, or the private group of an
    unknown row. The score is from -1 to 1; it is -1, with a warning, if all predictions are equal or all are different.

    Weakness: compact clusters need not be classes. Training that contracts the features raises the score.

    References:
        Rousseeuw. Silhouettes: A Graphical Aid to the Interpretation and Validation of Cluster Analysis. Journal of
        Computational and Applied Mathematics 20, 1987.
    """
    model, target = _target(estimator, X, y, sample_domain)
    answers = model.predict_full(target)
    answer = np.where(answers.known, answers.nearest, -2 - answers.group)
    n_answers = len(np.unique(answer))
    if not 1 < n_answers < len(answer):
        warnings.warn(
            f"{n_answers} groups of {len(answer)} rows have no silhouette; -1, the lowest value, is returned.",
            UndefinedScoreWarning,
            stacklevel=2,
        )
        return -1.0
    return float(silhouette_score(model.transform(target), answer))


def _target(estimator: Any, X: Any, y: Any, sample_domain: Any) -> tuple[Adapted, Any]:
    """Return the last step of a pipeline, and the target rows transformed by the steps before it."""
    if sample_domain is not None:
        X = rows_of(X, target_rows(sample_domain, len(X)))
    elif y is not None:
        # A search passes labels of both domains; without sample_domain, source rows would count as target rows.
        raise DataError(
            "y was given without sample_domain, so source rows cannot be separated from target rows. "
            "Call sklearn.set_config(enable_metadata_routing=True) and pass sample_domain to the search's fit; "
            "leave y out if every row is a target row."
        )
    if isinstance(estimator, Pipeline):
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    # skada wraps each step in a selector that stores the fitted step under this name.
    return getattr(estimator, "base_estimator_", estimator), X


def _neighbourhood_entropy(rows: np.ndarray, temperature: float) -> float:
    """Return the mean entropy of each row's softmax over its cosines with the other rows."""
    n_rows = len(rows)
    if n_rows < 2:
        raise DataError(f"{n_rows} target row has no neighbours. Give at least two.")
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    total = 0.0
    step = max(1, _CHUNK_VALUES // n_rows)
    for start in range(0, n_rows, step):
        similarity = unit[start : start + step] @ unit.T / temperature
        here = np.arange(len(similarity))
        similarity[here, start + here] = -np.inf
        total += float(entr(softmax(similarity, axis=1)).sum())
    return total / n_rows
