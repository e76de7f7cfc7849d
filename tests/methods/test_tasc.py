"""TASC, first stage: its measure, its score and its mixture against the authors' code, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot import UniDAClassifier
from uniot.datasets import make_toy_domains
from uniot.losses import normalised_entropy
from uniot.methods.tasc import TwoNormals, information, match_entropy, matching_score, means_of_nearest, search_classes

# `shot_im_loss` and TASC.get_unknown_scores of Sapphire-356/TASC (train_sapphire_TASC.py, commit 1f9ea78),
# `get_entropy` and `get_prototypes` (train_sapphire_TASCBase.py), on the arrays of `arrays` with a temperature of 0.1;
# and CustomGaussianMixture (sapphire/utils/mixture.py, with scikit-learn's new argument `xp` added to its `_m_step`) as
# `gmm_threshold` calls it, but to a tolerance of 10⁻¹² instead of 10⁻³, on the scores of `arrays`.
OFFICIAL = {
    "information": 0.21824657917022705,
    "entropy": [0.4499768018722534, 0.1028738021850586, 0.48165276646614075, 0.18647880852222443],
    "means": [-0.10693344473838806, 0.09391981363296509, 0.13173872232437134, 1.4511537551879883],
    "more_means": [-1.5409529209136963, -0.0895034670829773, 1.3100905418395996],
    "score": [-0.19633710384368896, 0.49313652515411377, 0.2510581612586975, 0.05085103213787079, 0.3268080949783325],
    "mixture": [0.68753029, 0.30704757, 0.01504817, 0.00998207],
    "threshold": 0.4848059024891136,
}


def arrays():
    random = np.random.default_rng(3)

    def unit(*shape: int) -> torch.Tensor:
        return F.normalize(torch.from_numpy(random.normal(size=shape)).float(), dim=-1)

    rows, classes, found = unit(30, 6), unit(4, 6), unit(7, 6)
    scores = np.concatenate([random.normal(0.7, 0.1, 120), random.normal(0.3, 0.12, 60)])
    return rows, classes, found, torch.from_numpy(np.clip(scores, 0, 1))


def test_information_is_that_of_the_authors_code():
    rows, _, found, _ = arrays()
    value = information(rows @ found.t() / 0.1, 0.6)
    assert value.item() == pytest.approx(OFFICIAL["information"], abs=1e-5)


def test_matches_are_those_of_the_authors_code():
    rows, classes, found, _ = arrays()
    assert match_entropy(classes, found, 0.1).tolist() == pytest.approx(OFFICIAL["entropy"], abs=1e-5)
    assert means_of_nearest(rows, found).sum(dim=1).tolist() == pytest.approx(
        [*OFFICIAL["means"], *OFFICIAL["more_means"]], abs=1e-5
    )


def test_score_is_that_of_the_authors_code():
    rows, classes, found, _ = arrays()
    cosines = classes @ found.t() / 0.1
    entropies = normalised_entropy(cosines), normalised_entropy(cosines.t())
    score = matching_score(rows @ classes.t(), rows @ found.t(), *entropies)
    assert score[:5].tolist() == pytest.approx(OFFICIAL["score"], abs=1e-5)


def test_mixture_is_that_of_the_authors_code():
    mixture = TwoNormals.fit(arrays()[3], 0.8)
    assert [*mixture.means.tolist(), *mixture.variances.tolist()] == pytest.approx(OFFICIAL["mixture"], abs=1e-4)
    # The authors' grid has steps of 0.001.
    assert mixture.threshold() == pytest.approx(OFFICIAL["threshold"], abs=1.5e-3)


def test_threshold_lies_between_equal_parts_whatever_their_shares_were():
    # Equal variances: the boundary of equal weights is the middle.
    mixture = TwoNormals(torch.tensor([0.8, 0.2]).double(), torch.tensor([0.01, 0.01]).double())
    assert mixture.threshold() == pytest.approx(0.5, abs=1e-3)
    wide = TwoNormals(torch.tensor([0.8, 0.2]).double(), torch.tensor([0.04, 0.01]).double())
    # (x - 0.8)² / 0.04 + log 0.04 = (x - 0.2)² / 0.01 + log 0.01, so 3 x² = 0.48 + 0.04 log 4.
    assert wide.threshold() == pytest.approx(math.sqrt((0.48 + 0.04 * math.log(4)) / 3), abs=1e-3)


def test_score_worked_by_hand():
    # The class has cosine 0.9 and matches surely; the found one has 0.5 and matches nothing.
    score = matching_score(torch.tensor([[0.9]]), torch.tensor([[0.5]]), torch.tensor([0.0]), torch.tensor([1.0]))
    assert score.item() == pytest.approx(0.4)
    # A class without a counterpart says nothing.
    none = matching_score(torch.tensor([[0.9]]), torch.tensor([[0.5]]), torch.tensor([1.0]), torch.tensor([1.0]))
    assert none.item() == pytest.approx(-0.5)


def test_information_of_sure_and_even_predictions_is_the_weight_of_the_diversity():
    assert information(torch.eye(3) * 100, 0.6).item() == pytest.approx(0.6, abs=1e-3)
    # Everything in one class: sure, but not diverse.
    assert information(torch.tensor([[100.0, 0.0]] * 3), 0.6).item() == pytest.approx(0, abs=1e-3)


def test_information_has_a_gradient_towards_sure_predictions():
    logits = torch.tensor([[0.1, 0.0], [0.0, 0.1]], requires_grad=True)
    information(logits).backward()
    assert logits.grad[0, 0] > 0 > logits.grad[0, 1]


def test_search_discards_what_the_target_does_not_have():
    axes = torch.eye(6)
    rows = F.normalize(
        axes[[0, 0, 0, 1, 1, 1, 4, 4, 4]] + 0.05 * torch.randn(9, 6, generator=torch.Generator().manual_seed(0)), dim=1
    )
    # Source classes 0, 1 and 3; clusters of the target near 0, 1 and 4, twice.
    candidates = axes[[0, 1, 3, 4, 4]]
    kept = search_classes(rows, candidates, 3)
    assert kept[:2].all()
    assert int(kept[3:].sum()) == 1
    # At least two classes stay, so that there is something to choose from.
    assert int(search_classes(rows[:3], axes[[0, 1]], 2).sum()) == 2


TOY = make_toy_domains(n_common=4, n_source_private=2, n_target_private=2, samples_per_class=20, seed=1)


def fit(toy=TOY, **given) -> UniDAClassifier:
    model = UniDAClassifier("tasc", n_private_classes=2, random_state=0)
    return model.fit(toy.x_source, toy.y_source, toy.x_target, **given)


@pytest.mark.medium
def test_texts_are_placed_around_the_class_means():
    random = np.random.default_rng(0)
    unit = TOY.x_source / np.linalg.norm(TOY.x_source, axis=1, keepdims=True)
    means = np.stack([unit[TOY.y_source == name].mean(axis=0) for name in np.unique(TOY.y_source)])
    texts = random.normal(size=means.shape[1]) * 2 + 0.3 * (means - means.mean(axis=0))
    right = [(fit(**given).labels_ == TOY.oracle_y_target).mean() for given in ({}, {"prototypes": texts})]
    assert right[1] == pytest.approx(right[0], abs=0.1)
    assert fit(prototypes=texts, prototype_weight=0.0).labels_.tolist() == fit().labels_.tolist()


@pytest.mark.medium
def test_a_target_without_private_classes_keeps_its_order():
    toy = make_toy_domains(n_common=4, n_source_private=2, n_target_private=0, samples_per_class=20, seed=1)
    model = fit(toy)
    assert (model.classes_[model.model_.target.nearest] == toy.oracle_y_target).mean() > 0.8
