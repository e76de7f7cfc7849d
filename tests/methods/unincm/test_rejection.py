"""The rejection rule: it follows the shift, and private samples are rejected for either of two reasons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from uniot.methods.unincm.rejection import (
    _BELOW_ONE,
    _DEVIATION,
    _SOFTNESS,
    _SPREAD_OF_FEW,
    _THRESHOLD,
    Rejection,
    _expected_maximum,
    _membership_ratio,
    _private_prior,
    _Seen,
    _similarity_ratio,
    fit_rejection,
)
from uniot.methods.unincm.space import chance_similarity, quantile

WIDTH = 64


def directions(n: int, seed: int = 0) -> Tensor:
    """Orthonormal rows: classes that have nothing to do with each other."""
    return torch.linalg.qr(torch.randn(WIDTH, n, generator=torch.Generator().manual_seed(seed))).Q.t()


def clusters(means: Tensor, size: int, *, noise: float, seed: int = 0) -> Tensor:
    """Unit rows around each mean, `size` of each, in order."""
    generator = torch.Generator().manual_seed(seed)
    rows = means.repeat_interleave(size, dim=0)
    return F.normalize(rows + noise * torch.randn(rows.shape, generator=generator), dim=1)


def known(rule: Rejection, rows: Tensor) -> Tensor:
    return rule.odds(rows).max(dim=1).values >= 1


@pytest.mark.parametrize("kept", [1.0, 0.5, 0.2])
def test_common_clusters_are_known_and_private_ones_are_not_however_far_the_target_moved(kept):
    basis = directions(30)
    prototypes, private, shift = basis[:5], basis[5:9], basis[9:18]
    # Every cluster of the target moves in a direction of its own; of its old direction a part is kept.
    moved = F.normalize(kept * torch.cat([prototypes[:4], private]) + math.sqrt(1 - kept**2) * shift[:8], dim=1)
    rows = clusters(moved, 40, noise=0.03)
    rule = fit_rejection(rows, prototypes, n_neighbours=6)
    is_known = known(rule, rows).view(8, 40)
    assert is_known[:4].float().mean() > 0.95
    assert is_known[4:].float().mean() < 0.05
    assert rule.odds(rows).argmax(dim=1).view(8, 40)[:4].eq(torch.arange(4)[:, None]).all()
    assert rule.presence[:4].min() > 0.8


def test_private_clusters_that_similarity_calls_common_are_rejected_by_membership():
    basis = directions(40)
    prototypes = basis[:10]
    common = F.normalize(0.5 * prototypes + 0.87 * basis[10:20], dim=1)
    private = F.normalize(0.34 * prototypes + 0.94 * basis[20:30], dim=1)
    rows = clusters(torch.cat([common, private]), 50, noise=0.03)
    rule = fit_rejection(rows, prototypes, n_neighbours=6)
    zero, one = torch.tensor([0.0, 1.0], dtype=torch.float64)
    by_membership, _ = replace(rule, similarity_weight=zero).known_probability(rows)
    by_similarity, _ = replace(rule, similarity_weight=one).known_probability(rows)
    assert by_similarity[500:].mean() > 0.6
    assert by_membership[500:].mean() < 0.5
    assert by_membership[:500].mean() > 0.95
    assert known(rule, rows)[:500].float().mean() > 0.95


def test_private_samples_are_expected_where_mirrored_class_means_reach():
    # Common and private classes vary along the same twelve axes.
    means = F.normalize(torch.randn(20, 12, generator=torch.Generator().manual_seed(0)) @ directions(12), dim=1)
    prototypes, private = means[:10], clusters(means[10:], 60, noise=0.05)
    rows = torch.cat([clusters(prototypes, 60, noise=0.05), private])
    rule = fit_rejection(rows, prototypes, n_neighbours=6)
    expected = float(rule.private_mean * rule.level)
    assert expected == pytest.approx(chance_similarity(rows, prototypes))
    # Between what private samples reach and what common ones do.
    assert (private @ prototypes.t()).max(dim=1).values.median() < expected < 0.7 * float(rule.level)


def test_where_every_cluster_has_its_class_nothing_is_rejected():
    prototypes = directions(6)
    rows = clusters(prototypes, 40, noise=0.08)
    assert known(fit_rejection(rows, prototypes, n_neighbours=6), rows).all()


def test_share_of_at_least_one_is_a_probability_of_at_least_the_threshold():
    prototypes = directions(5)
    rows = clusters(directions(9), 30, noise=0.1)
    rule = fit_rejection(rows, prototypes, n_neighbours=4)
    probability, cosines = rule.known_probability(rows)
    assert ((probability >= 0) & (probability <= 1)).all()
    shares = rule.odds(rows)
    assert torch.equal(shares.max(dim=1).values >= 1, probability >= _THRESHOLD)
    assert torch.equal(shares.argmax(dim=1), cosines.argmax(dim=1))


@given(n_rows=st.integers(2, 40), n_classes=st.integers(2, 60), seed=st.integers(0, 100))
def test_any_target_gives_finite_answers(n_rows, n_classes, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = F.normalize(torch.randn(n_rows, 8, generator=generator), dim=1)
    prototypes = F.normalize(torch.randn(n_classes, 8, generator=generator), dim=1)
    rule = fit_rejection(rows, prototypes, n_neighbours=3)
    assert all(torch.isfinite(value).all() for value in vars(rule).values())
    assert torch.isfinite(rule.odds(rows)).all()


def test_samples_that_are_all_alike_give_finite_answers():
    prototypes = directions(4)
    rows = prototypes[:1].repeat(20, 1)
    assert torch.isfinite(fit_rejection(rows, prototypes, n_neighbours=3).odds(rows)).all()


@pytest.mark.parametrize(("n", "expected"), [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi))])
def test_expected_maximum_of_normal_variables(n, expected):
    assert _expected_maximum(n) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("private", [0, 100, 500, 1000])
def test_prior_is_estimated_from_log_ratios(private):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1000, generator=generator, dtype=torch.float64)
    # Two normal components, five standard deviations apart: log N(x; 2.5, 1) - log N(x; -2.5, 1) = 5 x.
    values[:private] -= 2.5
    values[private:] += 2.5
    assert _private_prior(5 * values) == pytest.approx(private / 1000, abs=0.02)


@pytest.mark.parametrize(("n", "expected"), [(2, 1 / 4), (8, 1 / 10)])
def test_prior_of_certain_samples_is_smoothed_by_one_of_each_kind(n, expected):
    certain = torch.full((n,), 25.0, dtype=torch.float64)
    assert _private_prior(certain) == pytest.approx(expected)
    assert _private_prior(-certain) == pytest.approx(1 - expected)


def test_sample_without_weight_does_not_count_for_the_prior():
    log_ratio = torch.tensor([25.0] * 8 + [-25.0] * 8, dtype=torch.float64)
    assert _private_prior(log_ratio) == pytest.approx(0.5)
    assert _private_prior(log_ratio, torch.tensor([1.0] * 8 + [0.0] * 8, dtype=torch.float64)) == pytest.approx(0.1)
    # Two halves are one sample.
    assert _private_prior(log_ratio[:2], torch.full((2,), 0.5, dtype=torch.float64)) == pytest.approx(1 / 3)


def test_samples_whose_nearest_class_is_absent_do_not_count_for_the_prior_of_membership(monkeypatch):
    present = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    monkeypatch.setattr(_Seen, "presence", lambda _: present)
    prototypes = directions(4)
    members = clusters(prototypes[:2], 40, noise=0.03)
    # Each in a direction of its own, and a little nearer to one of the absent classes.
    others = F.normalize(
        0.3 * prototypes[2:].repeat_interleave(40, dim=0) + clusters(directions(44)[4:], 2, noise=0), dim=1
    )
    rule = fit_rejection(torch.cat([members, others]), prototypes, n_neighbours=6)
    # All that count are members: by Laplace smoothing, 1 of 82 is private.
    assert float(rule.membership_prior) == pytest.approx(1 / 82, abs=0.01)
    assert float(rule.similarity_prior) > 0.4


def test_prior_is_a_fixed_point_of_em():
    log_ratio = torch.tensor([2.5] * 30 + [-2.0] * 10, dtype=torch.float64)
    prior = _private_prior(log_ratio)
    common = sum(times / (1 + prior / (1 - prior) * math.exp(-value)) for times, value in ((30, 2.5), (10, -2.0)))
    assert prior == pytest.approx(1 - (common + 1) / 42, abs=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 30])
def test_membership_ratio_is_that_of_two_normal_densities_between_their_means(n_classes):
    lower = _SPREAD_OF_FEW / n_classes
    private = torch.distributions.Normal(torch.tensor(-lower).double(), _DEVIATION)
    common = torch.distributions.Normal(torch.tensor(1 - _BELOW_ONE * _DEVIATION - lower).double(), _DEVIATION)
    values = torch.linspace(float(private.mean), float(common.mean), 7, dtype=torch.float64)
    expected = common.log_prob(values) - private.log_prob(values)
    torch.testing.assert_close(_membership_ratio(values, n_classes), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("level", "room"), [(0.99, 0.05), (0.8, 0.1), (0.5, 0.2), (0.2, 0.2)])
def test_similarity_ratio_leaves_common_samples_half_of_what_is_left_between_the_level_and_one(level, room):
    private = torch.distributions.Normal(torch.tensor(0.4).double(), _DEVIATION)
    common = torch.distributions.Normal(torch.tensor(1 - _BELOW_ONE * room).double(), room)
    values = torch.linspace(0.7, float(common.mean), 7, dtype=torch.float64)
    expected = (common.log_prob(values) - private.log_prob(values)).clamp(-25, 25)
    found = _similarity_ratio(level * values, *torch.tensor([level, 0.4], dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_odds_between_classes_are_those_of_their_cosines_in_units_of_the_level():
    prototypes = directions(3)
    scalars = torch.tensor([0.25, 0.5, 0.5, 0.5, 0.4], dtype=torch.float64).unbind()
    rule = Rejection(prototypes, prototypes, torch.ones(3, dtype=torch.float64), *scalars)
    row = F.normalize(0.30 * prototypes[0] + 0.28 * prototypes[1] + 0.1 * directions(4)[3], dim=0)[None]
    shares, cosines = rule.odds(row)[0], rule.known_probability(row)[1][0]
    expected = float(cosines[0] - cosines[1]) / (_SOFTNESS * 0.25)
    assert math.log(shares[0] / shares[1]) == pytest.approx(expected)


def test_members_of_a_class_that_is_absent_are_unknown_by_membership():
    prototypes = directions(3)
    scalars = torch.tensor([1.0, 0.5, 0.5, 0.0, 0.4], dtype=torch.float64).unbind()
    rule = Rejection(prototypes, prototypes, torch.tensor([1.0, 0.25, 0.0], dtype=torch.float64), *scalars)
    known, _ = rule.known_probability(prototypes)
    assert known[1] == pytest.approx(float(known[0]) / 4)
    assert known[2] == 0
    assert known[0] > 0.9


def test_separation_is_measured_on_samples_that_are_nearest_to_another_class():
    prototypes = torch.eye(2, 3)
    # Ten samples of each class; those of the second reach 0 or 0.6 of the first, and so the other way round.
    rows = torch.tensor([[1.0, 0, 0], [0.8, 0.6, 0]] * 5 + [[0, 1.0, 0], [0.6, 0.8, 0]] * 5)
    seen = _Seen.of(rows, prototypes)
    torch.testing.assert_close(seen.mean, torch.full((2,), 0.3, dtype=torch.float64))
    deviation = math.sqrt(10 * 0.3**2 / 9)
    torch.testing.assert_close(seen.deviation, torch.full((2,), deviation, dtype=torch.float64))
    expected = torch.tensor([0.7, 0.5] * 10, dtype=torch.float64) / deviation - 1 / math.sqrt(math.pi)
    torch.testing.assert_close(seen.separation(), expected, rtol=0, atol=1e-6)


def test_deviation_of_the_separation_is_the_root_of_the_mean_variance_of_the_classes():
    mean, deviation = torch.tensor([[0.1, 0.2], [0.1, 0.7]], dtype=torch.float64)
    seen = _Seen(torch.tensor([0.6, 0.7], dtype=torch.float64), torch.arange(2), mean, deviation)
    torch.testing.assert_close(seen.separation() + _expected_maximum(2), torch.ones(2, dtype=torch.float64))


def test_presence_of_a_class_is_a_logistic_curve_of_its_mean_separation():
    nearest = torch.arange(2).repeat_interleave(5)
    nothing, one = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    by_chance = _expected_maximum(2)
    similarity = torch.tensor([0.8 + by_chance] * 5 + [2.4 + by_chance] * 5, dtype=torch.float64)
    found = _Seen(similarity, nearest, nothing, one).presence()
    torch.testing.assert_close(found, torch.sigmoid(torch.tensor([0.0, 2.0], dtype=torch.float64)))


def test_exemplars_are_the_most_similar_samples_of_a_class():
    prototypes = torch.eye(2, 3)
    cosines = torch.tensor([0.6, 0.9, 0.7, 0.8, 0.95])
    rows = torch.stack([cosines, torch.zeros(5), (1 - cosines**2).sqrt()], dim=1)
    exemplars = _Seen.of(rows, prototypes).exemplars(rows, 2)
    torch.testing.assert_close(exemplars[0], F.normalize(rows[1] + rows[4], dim=0))
    assert exemplars[1].eq(0).all()


def test_quantile_of_many_values():
    values = torch.arange(1 << 24 | 1, dtype=torch.float32)
    assert quantile(values, 0.75) == 0.75 * (1 << 24)
