"""Calibrated source: the loss of a temperature, held-out halves, the margins of the target, and given prototypes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from uniot import UniDAClassifier
from uniot.config import Settings
from uniot.datasets import make_toy_domains
from uniot.errors import SettingsError
from uniot.methods.base import Batch, FinalFeatures
from uniot.methods.calibrated import (
    Calibrated,
    CalibratedOptions,
    calibration_loss,
    draw_half,
    expected_margin,
    fit_temperature,
    margins,
)
from uniot.methods.fitted import ClassSums, GivenPrototypes


def build(n_features: int, n_classes: int, backbone: torch.nn.Module | None = None, **options) -> Calibrated:
    return Calibrated(n_features, n_classes, Settings.checked(), CalibratedOptions(**options), backbone)


def final_features(source: torch.Tensor, classes: list[int], target: torch.Tensor) -> FinalFeatures:
    labels, in_target = torch.tensor(classes), torch.zeros(len(classes), dtype=torch.bool)
    return replace(
        FinalFeatures.of_target(target, torch.Generator().manual_seed(0)),
        source=source,
        classes=labels,
        in_target=in_target,
        class_sums=ClassSums.of([(source, labels, in_target)], max(classes) + 1, source.shape[1]),
    )


def rows_at(*degrees: float) -> torch.Tensor:
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1).float()


# With T = 1/2, a difference of ln(3) / 2 between two cosines gives the probabilities 3/4 and 1/4.
APART = math.log(3) / 2
COSINES = torch.tensor([[APART, 0.9, 0.0], [APART, 0.3, 0.0], [0.0, 1.0, APART]], dtype=torch.float64)
CLASSES, KEPT = torch.tensor([0, 2, 1]), torch.tensor([2, 0])
HALF = torch.tensor(0.5, dtype=torch.float64)


def test_loss_worked_by_hand():
    # Classes 2 and 0 are kept. The sample of class 0 has p_y = 3/4, that of class 2 has p_y = 1/4: one of two is right,
    # with a confidence of 3/4 each. The sample of class 1 is unknown and has a confidence of 3/4 as well.
    likelihood = (math.log(4 / 3) + math.log(4)) / 2
    gap, unknown = 3 / 4 - 1 / 2, 3 / 4 - 1 / 2
    assert float(calibration_loss(COSINES, CLASSES, KEPT, HALF)) == pytest.approx(likelihood + gap + unknown)


def test_loss_has_no_unknown_part_if_every_class_is_kept():
    # Two equal samples of two classes: one is right with 3/4, the other wrong with 3/4.
    found = calibration_loss(COSINES[:2][:, [0, 2]], torch.tensor([0, 1]), torch.tensor([0, 1]), HALF)
    assert float(found) == pytest.approx((math.log(4 / 3) + math.log(4)) / 2 + 1 / 4)


def test_gradients_of_the_loss_are_right():
    def loss(cosines: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        return calibration_loss(cosines, CLASSES, KEPT, temperature)

    assert torch.autograd.gradcheck(loss, (COSINES.clone().requires_grad_(), HALF.clone().requires_grad_()))


@pytest.mark.parametrize(("n_classes", "n_kept"), [(2, 2), (3, 2), (4, 2), (5, 3), (31, 16)])
def test_half_of_the_classes_is_kept_but_never_one_alone(n_classes, n_kept):
    kept = draw_half(n_classes, torch.Generator().manual_seed(0))
    assert len(kept.unique()) == len(kept) == n_kept
    assert int(kept.max()) < n_classes


def test_temperature_makes_the_confidence_the_accuracy():
    # Four samples of two classes, all with a difference of 0.2 for class 0, three of them rightly. Likelihood and gap
    # are both best if 1 / (1 + exp(-0.2 / T)) = 3/4, that is T = 0.2 / ln 3.
    cosines = torch.tensor([[0.5, 0.3]], dtype=torch.float64).expand(4, 2)
    found = fit_temperature(cosines, torch.tensor([0, 0, 0, 1]), [torch.tensor([0, 1])])
    assert found == pytest.approx(0.2 / math.log(3), rel=1e-3)


def test_held_out_samples_raise_the_temperature():
    cosines = torch.tensor([[0.8, 0.3, 0.3], [0.3, 0.8, 0.3], [0.5, 0.3, 0.8]], dtype=torch.float64)
    classes, kept = torch.arange(3), torch.tensor([0, 1])
    alone = fit_temperature(cosines[:2], classes[:2], [kept])
    assert fit_temperature(cosines, classes, [kept]) > 1.5 * alone


def test_margins_worked_by_hand():
    cosines = torch.tensor([[0.9, 0.3, 0.0], [0.2, 0.8, 0.2]])
    # 0.9 - 0.4 and 0.8 - 0.4.
    assert margins(cosines).tolist() == pytest.approx([0.5, 0.4])
    # Without the own class: 0.3 - 0.15 and 0.2 - 0.2. The mean of 0.45 and 0.075.
    assert float(expected_margin(cosines, torch.tensor([0, 1]))) == pytest.approx(0.2625)


def test_sample_is_compared_with_the_others_of_its_class():
    # Class 0 at 0° and 20°, class 1 at 80° and 90°, with means at 10° and 85°. Own cosines are those to the other
    # sample, 20° and 10° away.
    source, classes = rows_at(0, 20, 80, 90), [0, 0, 1, 1]
    method = build(2, 2, follows_target=False)
    method.finalize(final_features(source, classes, source))
    assert method.prototypes.numpy() == pytest.approx(rows_at(10, 85).numpy(), abs=1e-6)
    apart = torch.tensor([[20, 85], [20, 65], [70, 10], [80, 10]], dtype=torch.float64)
    expected = fit_temperature(apart.deg2rad().cos(), torch.tensor(classes), [torch.tensor([0, 1])])
    assert float(method.temperature) == pytest.approx(expected, rel=1e-4)


def test_class_with_one_sample_is_that_sample():
    method = build(2, 3)
    method.finalize(final_features(rows_at(0, 45, 90), [0, 1, 2], rows_at(3, 47)))
    assert method.prototypes.numpy() == pytest.approx(rows_at(0, 45, 90).numpy(), abs=1e-6)
    assert method.is_finalized()
    assert method.decide(rows_at(1, 44, 88)).nearest.tolist() == [0, 1, 2]


def test_only_sample_of_a_class_is_compared_with_itself():
    # Class 0 at 0°; class 1 at 80° and 90°, with its mean at 85°, and 10° between its two samples.
    classes = [0, 1, 1]
    method = build(2, 2, follows_target=False)
    method.finalize(final_features(rows_at(0, 80, 90), classes, rows_at(0, 80, 90)))
    apart = torch.tensor([[0, 85], [80, 10], [90, 10]], dtype=torch.float64)
    expected = fit_temperature(apart.deg2rad().cos(), torch.tensor(classes), [torch.tensor([0, 1])])
    assert float(method.temperature) == pytest.approx(expected, rel=1e-4)


def test_temperature_falls_with_the_margins_of_the_target():
    # Prototypes at 0° and 90°. A labelled sample has the margin 1 - 1/2, and 0 without its own class: 1/4 is expected.
    # A target at the angle a has (cos a - sin a) / 2: 1/8 is half of that, at cos a - sin a = 1/4.
    angle = math.degrees(math.acos(1 / (4 * math.sqrt(2)))) - 45
    source = rows_at(0, 0, 90, 90)
    found = {}
    for follows in (False, True):
        method = build(2, 2, follows_target=follows)
        method.finalize(final_features(source, [0, 0, 1, 1], rows_at(angle, angle)))
        found[follows] = float(method.temperature)
    assert found[True] == pytest.approx(found[False] / 2, rel=1e-4)


def test_temperature_never_rises_with_the_margins_of_the_target():
    source = rows_at(0, 0, 90, 90)
    methods = [build(2, 2, follows_target=follows) for follows in (False, True)]
    for method in methods:
        method.finalize(final_features(source, [0, 0, 1, 1], source))
    assert methods[0].temperature == methods[1].temperature


def test_unknown_is_an_entropy_above_half_of_its_maximum():
    method = build(4, 4)
    method.prototypes.copy_(torch.eye(4))
    method.temperature.fill_(0.05)
    # Half of log 4 is log 2. The cosines 0.743 and 0.669 give 0.816 and 0.184, an entropy of 0.48; three equal
    # classes have log 3.
    decision = method.decide(torch.tensor([[1.0, 0.9, 0, 0], [1, 1.0001, 1, 0], [0, 0, 0, 5]]))
    assert decision.known.tolist() == [True, False, True]
    assert decision.nearest.tolist() == [0, 1, 3]
    assert decision.known_score[0].item() == pytest.approx(1 - 0.4774 / math.log(4), abs=1e-3)


def test_given_prototypes_are_kept():
    given, source = F.normalize(torch.tensor([[1.0, 0.2], [-0.3, 1.0]]), dim=1), rows_at(0, 20, 80, 90)
    method = build(2, 2, follows_target=False)
    method.use_prototypes(GivenPrototypes(given))
    method.finalize(final_features(source, [0, 0, 1, 1], source))
    assert torch.allclose(method.prototypes, given)
    # A sample has no part in prototypes that were given, so nothing is left out.
    expected = fit_temperature((source @ given.t()).double(), torch.tensor([0, 0, 1, 1]), [torch.tensor([0, 1])])
    assert float(method.temperature) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_sample_has_no_part_in_its_own_half_of_an_average(weight):
    given, source = rows_at(30, 60), rows_at(0, 20, 80, 90)
    method, classes = build(2, 2, follows_target=False), torch.tensor([0, 0, 1, 1])
    method.use_prototypes(GivenPrototypes(given, weight=weight))
    method.finalize(final_features(source, classes.tolist(), source))
    # The other sample of the class, and half way from it to the prototype that was given.
    own = rows_at(20, 0, 90, 80) if weight == 0 else rows_at(25, 15, 75, 70)
    cosines = (source @ method.prototypes.t()).scatter(1, classes[:, None], (source * own).sum(dim=1, keepdim=True))
    expected = fit_temperature(cosines.double(), classes, [torch.tensor([0, 1])])
    assert float(method.temperature) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_few_classes_are_enough(n_classes):
    toy = make_toy_domains(n_common=n_classes, n_source_private=0, n_target_private=2, samples_per_class=20)
    model = UniDAClassifier("calibrated", random_state=0, n_private_classes=2)
    model.fit(toy.x_source, toy.y_source, toy.x_target)
    known = model.labels_ != "unknown"
    is_common = [name in model.classes_ for name in toy.oracle_y_target]
    assert known[is_common].mean() > 0.8
    assert (model.labels_ == toy.oracle_y_target)[known & is_common].mean() > 0.9


def test_nothing_is_trained_on_embeddings_and_the_source_alone_trains_a_backbone():
    source, target = torch.randn(4, 3), torch.randn(4, 3, requires_grad=True)
    batch = Batch(source, torch.tensor([0, 1, 0, 1]), target, torch.arange(4), 0, torch.Generator())
    with pytest.raises(SettingsError, match="nothing to train: the embeddings are given"):
        build(3, 2).step(batch)
    method = build(3, 2, backbone=torch.nn.Linear(3, 3))
    loss = method.step(batch).total
    logits = method.classifier(method.backbone(source))
    assert torch.equal(loss, F.cross_entropy(logits, batch.source_labels))
    loss.backward()
    assert target.grad is None
    assert method.backbone.weight.grad.abs().sum() > 0
    assert (build(3, 2).trained_part(), method.trained_part()) == (None, method)
