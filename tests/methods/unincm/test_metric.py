"""The metric: what it divides by, and what it does not depend on."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from uniot.linear_algebra import leading_directions
from uniot.methods.unincm.space import ClassSums, Metric, fit_metric


def draw(seed: int = 0, d: int = 12, n: int = 400) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four classes; within them the first direction varies five times as much as the others."""
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(4, d, generator=generator)
    spread = torch.ones(d)
    spread[0] = 5
    classes = torch.arange(n) % 4
    source = centres[classes] + spread * torch.randn(n, d, generator=generator)
    target = centres[classes] + spread * torch.randn(n, d, generator=generator)
    return source, classes, target


def fit(source: torch.Tensor, classes: torch.Tensor, target: torch.Tensor, **changes) -> Metric:
    none = torch.zeros(len(source), dtype=torch.bool)
    values = {"in_target": none, "n_classes": 4, "n_neighbours": 8, "width": 256, "shrinkage": 0.3}
    return fit_metric(source, classes, target, **(values | changes), generator=torch.Generator().manual_seed(0))


def cosines(metric: Metric, target: torch.Tensor) -> torch.Tensor:
    return metric.target_rows(target) @ metric.prototypes.t()


def test_prototypes_are_the_directions_of_class_means_from_their_middle():
    source, classes, target = draw()
    metric = fit(source, classes, target, whitens=False)
    unit = F.normalize(source, dim=1)
    means = torch.stack([unit[classes == label].mean(dim=0) for label in range(4)])
    assert torch.allclose(metric.prototypes, F.normalize(means - means.mean(dim=0), dim=1), atol=1e-5)


def uneven() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Classes of 100, 40, 15 and 5 samples, a larger target with classes elsewhere, and every third label from it."""
    source, _, _ = draw(n=160)
    _, _, target = draw(seed=1, n=600)
    classes = torch.repeat_interleave(torch.arange(4), torch.tensor([100, 40, 15, 5]))
    in_target = torch.arange(160) % 3 == 0
    source[in_target] = target[: int(in_target.sum())]
    return source, classes, target, in_target


def test_every_class_has_the_same_weight_in_the_centre_of_the_source():
    source, classes, target, in_target = uneven()
    metric = fit(source, classes, target, in_target=in_target)
    unit = F.normalize(source, dim=1)
    means = torch.stack([unit[(classes == label) & ~in_target].mean(dim=0) for label in range(4)])
    assert torch.allclose(metric.source_centre, means.mean(dim=0), atol=1e-6)
    assert torch.allclose(metric.target_centre, F.normalize(target, dim=1).mean(dim=0), atol=1e-6)


def test_basis_is_the_inverse_root_of_the_mean_scatter_of_both_domains():
    source, classes, target, in_target = uneven()
    metric = fit(source, classes, target, in_target=in_target, shrinkage=0.2)
    of_source, of_target = (F.normalize(rows, dim=1).double() for rows in (source, target))
    centres = torch.where(in_target[:, None], metric.target_centre, metric.source_centre).double()
    rows = of_source - centres
    within = rows - torch.stack([rows[classes == label].mean(dim=0) for label in range(4)])[classes]
    of_target = of_target - metric.target_centre.double()
    unit = F.normalize(of_target, dim=1)
    around = of_target[(unit @ unit.t()).topk(9, dim=1).indices].mean(dim=1)
    # Each domain has half of the weight, however many samples it has.
    scatter = (within.t() @ within / len(within) + (of_target - around).t() @ (of_target - around) / len(around)) / 2
    shrunk = scatter + 0.2 * scatter.trace() / len(scatter) * torch.eye(len(scatter))
    basis = metric.basis.double()
    torch.testing.assert_close(basis.t() @ shrunk @ basis, torch.eye(12, dtype=torch.float64), rtol=0, atol=1e-4)


@pytest.mark.parametrize("repeats", [(1, 20), (20, 1)])
def test_directions_that_are_kept_do_not_depend_on_the_size_of_a_domain(repeats):
    source, classes, target, _ = uneven()

    def kept(in_source: int, in_target: int) -> torch.Tensor:
        rows, labels = source.repeat(in_source, 1), classes.repeat(in_source)
        basis = fit(rows, labels, target.repeat(in_target, 1), width=3, whitens=False).basis
        return basis @ basis.t()

    assert torch.allclose(kept(*repeats), kept(1, 1), atol=1e-3)


def test_what_varies_within_classes_counts_little():
    source, classes, target = draw()
    plain, whitened = (fit(source, classes, target, whitens=whitens) for whitens in (False, True))

    def wrong(metric: Metric) -> float:
        return float((cosines(metric, target).argmax(dim=1) != classes).float().mean())

    assert wrong(whitened) < 0.7 * wrong(plain)


def test_scatter_of_the_source_becomes_a_sphere_where_neighbourhoods_have_none():
    source, classes, _ = draw(n=2000)
    # Every target sample twice, with one neighbour: nothing varies within a neighbourhood.
    target = source[:50].repeat(2, 1)
    metric = fit(source, classes, target, n_neighbours=1, shrinkage=1e-4)
    rows = (F.normalize(source, dim=1) - metric.source_centre) @ metric.basis
    within = rows - torch.stack([rows[classes == label].mean(dim=0) for label in range(4)])[classes]
    # Half of the scatter is the target's, which is none here: what is left is twice the identity.
    values = torch.linalg.eigvalsh((within.t() @ within / len(rows)).double())
    assert torch.allclose(values, torch.full_like(values, 2.0), rtol=0.02)


def test_scale_of_embeddings_does_not_matter():
    source, classes, target = draw()
    lengths = torch.rand(len(target), 1, generator=torch.Generator().manual_seed(1)) + 0.5
    one, two = fit(source, classes, target), fit(source * 100, classes, target * lengths)
    assert torch.allclose(cosines(one, target), cosines(two, target), atol=1e-4)


def test_rotation_of_all_embeddings_does_not_matter():
    source, classes, target = draw()
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(2))).Q
    one, two = fit(source, classes, target), fit(source @ turn, classes, target @ turn)
    assert torch.allclose(cosines(one, target), cosines(two, target @ turn), atol=1e-4)


def test_common_shift_of_the_target_matters_only_where_domains_share_a_centre():
    source, classes, target = draw()
    unit = F.normalize(target, dim=1)
    shift = torch.randn(12, generator=torch.Generator().manual_seed(4))

    def right(own_centres: bool) -> float:
        moved = unit + shift
        metric = fit(source, classes, moved, own_centres=own_centres)
        return float((cosines(metric, moved).argmax(dim=1) == classes).float().mean())

    assert right(own_centres=True) > right(own_centres=False) + 0.2


@pytest.mark.parametrize("width", [3, 12, 30])
def test_leading_directions_are_those_of_the_full_decomposition(width):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(200, 60, generator=generator) * torch.linspace(3, 0.1, 60)
    found = leading_directions(rows, width, generator)
    assert torch.allclose(found.t() @ found, torch.eye(width), atol=1e-4)
    expected = torch.linalg.svdvals(rows.double()).square()
    kept = (rows.double() @ found.double()).square().sum()
    assert float(kept) == pytest.approx(float(expected[:width].sum()), rel=5e-3)


def test_narrow_embeddings_keep_every_direction():
    source, classes, target = draw(d=5)
    assert fit(source, classes, target).basis.shape == (5, 5)


def test_class_sums_of_blocks_are_those_of_all_rows_at_once():
    source, classes, _ = draw()
    in_target = torch.rand(len(source), generator=torch.Generator().manual_seed(5)) < 0.3
    rows = torch.arange(len(source)).split(37)
    sums = ClassSums.of(((7 * source[ids], classes[ids], in_target[ids]) for ids in rows), 5, source.shape[1])
    unit = F.normalize(source, dim=1)
    for label in range(4):
        own = (classes == label) & ~in_target
        assert torch.allclose(sums.source_means()[label], unit[own].mean(dim=0), atol=1e-6)
    assert sums.in_source.tolist() == [True] * 4 + [False]
    assert sums.counts.sum() == len(source)
    one, two = torch.randn(2, source.shape[1], generator=torch.Generator().manual_seed(6))
    centred = unit - torch.where(in_target[:, None], two, one)
    expected = torch.stack([centred[classes == label].mean(dim=0) for label in range(4)])
    assert torch.allclose(sums.centred_means(one, two)[:4], expected, atol=1e-6)
    assert (sums.centred_means(one, two)[4] == 0).all()


def test_prototypes_are_those_of_all_rows_where_only_some_show_the_scatter():
    source, classes, target = draw(n=4000)
    none = torch.zeros(len(source), dtype=torch.bool)
    sums = ClassSums.of([(source, classes, none)], 4, source.shape[1])
    whole = fit(source, classes, target)
    # The fourth class has no row among those that are given.
    few = torch.nonzero(classes < 3).flatten()[:600]
    sampled = fit(source[few], classes[few], target, in_target=none[few], class_sums=sums)
    assert torch.equal(sampled.source_centre, whole.source_centre)
    assert not sampled.from_target.any()
    assert (sampled.prototypes * whole.prototypes).sum(dim=1).min() > 0.98
    means = F.normalize((sums.source_means() - sampled.source_centre) @ sampled.basis, dim=1)
    assert torch.allclose(sampled.prototypes, means, atol=1e-5)
