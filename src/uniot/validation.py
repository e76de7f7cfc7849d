"""Scores of an adapted model that no label enters, for choosing settings.

Each score is a function `(estimator, X, y=None, *, sample_domain=None) -> float`, larger is better, for `scoring=` of
scikit-learn's searches:

    estimator: a fitted `UniOT`, alone or at the end of a pipeline.
    X: rows of the target, or of both domains.
    y: never looked at; searches pass it.
    sample_domain: negative for the rows of the target, which alone are scored; all rows of X if None.
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

from uniot.data.domains import rows_of, target_rows
from uniot.errors import DataError, UndefinedScoreWarning
from uniot.prediction import Prediction

_DENSITY_TEMPERATURE = 0.05
_CHUNK_VALUES = 1 << 22

_Score = TypeVar("_Score", bound=Callable[..., float])


class Adapted(Protocol):
    """What a score asks of a fitted estimator."""

    def transform(self, X: Any) -> np.ndarray: ...

    def predict_proba(self, X: Any) -> np.ndarray: ...

    def predict_full(self, X: Any) -> Prediction: ...


def _asks_for_domains(score: _Score) -> _Score:
    """Lets a search hand over the part of `sample_domain` that belongs to the rows it scores."""
    request = MetadataRequest(owner=score.__name__)
    request.score.add_request(param="sample_domain", alias=True)
    # An attribute and no class around it: a function with a name can be sent to other processes.
    cast(Any, score).get_metadata_routing = lambda: request
    return score


@_asks_for_domains
def soft_neighbourhood_density(estimator: Any, X: Any, y: Any = None, *, sample_domain: Any = None) -> float:
    """How many like answers each target row has around it.

    Mean over the target rows i of -Σ_j P_ij log P_ij, where P_ij is the softmax over j ≠ i of cos(p_i, p_j) / 0.05 and
    p_i the row of `predict_proba`. At most log(n - 1): values for different numbers of rows cannot be compared.

    Weakness: answers are densest where they are all the same. A model that has collapsed, or that is sure of nothing
    and so says the same of every row, scores best of all.

    Paper: Saito et al., Tune it the Right Way, ICCV 2021.
    """
    model, target = _target(estimator, X, y, sample_domain)
    return _neighbourhood_entropy(model.predict_proba(target), _DENSITY_TEMPERATURE)


@_asks_for_domains
def negative_entropy(estimator: Any, X: Any, y: Any = None, *, sample_domain: Any = None) -> float:
    """How sure the answers are: the mean over the target rows of Σ_k p_k log p_k, with p the row of `predict_proba`.

    Weakness: a model can be sure and wrong; one that puts every row into the same class with certainty scores best of
    all. How far probabilities are spread differs from method to method, whatever they are worth.

    Paper: Morerio et al., Minimal-Entropy Correlation Alignment, ICLR 2018, where it chooses hyper-parameters.
    """
    model, target = _target(estimator, X, y, sample_domain)
    return -float(entr(model.predict_proba(target)).sum(axis=1).mean())


@_asks_for_domains
def target_silhouette(estimator: Any, X: Any, y: Any = None, *, sample_domain: Any = None) -> float:
    """How well the answers agree with the clusters that the adapted target features form.

    Mean over the target rows of (b - a) / max(a, b): a is the mean distance to the rows with the same answer, b to
    those with the nearest other answer. An answer is a class, or a private group where the row is unknown. From -1 to
    1; -1 stands in, with a warning, where all answers are the same or all are different.

    Weakness: compact clusters need not be classes. Training that pulls features together raises it, whatever they are
    then called.

    Paper: Rousseeuw, Silhouettes, J. Comput. Appl. Math. 20, 1987.
    """
    model, target = _target(estimator, X, y, sample_domain)
    answers = model.predict_full(target)
    answer = np.where(answers.known, answers.nearest, -2 - answers.group)
    n_answers = len(np.unique(answer))
    if not 1 < n_answers < len(answer):
        warnings.warn(
            f"{n_answers} answers for {len(answer)} rows have no silhouette; -1, the worst, stands in.",
            UndefinedScoreWarning,
            stacklevel=2,
        )
        return -1.0
    return float(silhouette_score(model.transform(target), answer))


def _target(estimator: Any, X: Any, y: Any, sample_domain: Any) -> tuple[Adapted, Any]:
    """The estimator without the pipeline before it, and the target rows as that pipeline hands them on."""
    if sample_domain is not None:
        X = rows_of(X, target_rows(sample_domain, len(X)))
    elif y is not None:
        # A search hands over labels of both domains; without the domains, source rows would count as target.
        raise DataError(
            "labels came without sample_domain, so that rows of the source cannot be told from those of the target. "
            "Call sklearn.set_config(enable_metadata_routing=True) and give sample_domain to the search's fit; "
            "leave y out where every row is of the target."
        )
    if isinstance(estimator, Pipeline):
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    # In skada's pipelines each step sits in a selector, which keeps what it fitted under this name.
    return getattr(estimator, "base_estimator_", estimator), X


def _neighbourhood_entropy(rows: np.ndarray, temperature: float) -> float:
    """Mean entropy of each row's softmax over its cosines with the others."""
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
