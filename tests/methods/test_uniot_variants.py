"""The ablations: each leaves out or replaces exactly one part."""

from __future__ import annotations

import pytest
import torch

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.methods.base import Batch
from uniot.methods.registry import method_info
from uniot.methods.uniot import UniOTMethod
from uniot.methods.uniot_variants import two_views
from uniot.transport.unbalanced import unbalanced_potential

D, C, B = 7, 4, 8
SETTINGS = Settings.checked(queue_size=24, batch_size=B, feature_size=6, steps=20)
OPTIONS = {"n_clusters": 5, "hidden_size": 16, "detection_start": 3}


def build(name: str, **options) -> UniOTMethod:
    torch.manual_seed(0)
    info = method_info(name)
    method = info.build(D, C, SETTINGS, info.options.checked(**(OPTIONS | options)), None)
    target = torch.randn(24, D, generator=torch.Generator().manual_seed(1))
    for start in range(0, 24, B):
        ids = torch.arange(start, start + B)
        method.prepare(target[ids], ids)
    return method


def batch_at(step: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    return Batch(
        source=torch.randn(B, D, generator=generator),
        source_labels=torch.arange(B) % C,
        target=torch.randn(B, D, generator=generator),
        target_ids=torch.arange(B),
        step=step,
        generator=torch.Generator().manual_seed(100),
    )


def private(name: str, **options) -> float:
    return float(build(name, **options).step(batch_at(10)).parts["private"].detach())


def test_global_and_local_parts_add_up_to_the_whole():
    assert private("uniot-without-global") + private("uniot-without-local") == pytest.approx(private("uniot"))


def test_without_discovery_the_sum_has_two_losses():
    losses = build("uniot-without-pcd").step(batch_at(10))
    assert float(losses.parts["private"]) == 0
    expected = losses.parts["source"] + 0.1 * losses.parts["common"]
    assert float(losses.total.detach()) == pytest.approx(float(expected.detach()))


def test_without_detection_the_sum_has_two_losses_and_class_mass_stays_even():
    method = build("uniot-without-ccd")
    losses = method.step(batch_at(10))
    assert losses.detected is None
    expected = losses.parts["source"] + 0.1 * losses.parts["private"]
    assert float(losses.total.detach()) == pytest.approx(float(expected.detach()))
    assert method.loss.common.class_mass.tolist() == [0.25] * 4


def test_without_filling_the_rows_are_transported_as_they_are_and_the_final_rule_is_filled():
    method, whole = build("uniot-without-filling"), build("uniot")
    cosines = method.loss.classes(method.loss.queue.features).detach()
    counts = torch.ones(len(cosines))
    found = method.loss.common.solve(
        cosines, method.loss.classes, torch.Generator().manual_seed(0), counts=counts, fills=method.loss.common.fills
    )
    plain = unbalanced_potential(cosines, method.loss.common.class_mass, row_counts=counts)
    assert found.n_rows == plain.n_rows == len(cosines)
    torch.testing.assert_close(found.class_potential, plain.class_potential, rtol=0, atol=1e-4)
    final, of_whole = (
        one.loss.common.solve(cosines, one.loss.classes, torch.Generator().manual_seed(0)) for one in (method, whole)
    )
    assert torch.equal(final.class_potential, of_whole.class_potential)


def test_views_that_are_equal_and_a_predictor_that_changes_nothing_give_minus_one():
    method = build("uniot-simsiam", dropped=0.0)
    method.predictor = torch.nn.Identity()
    assert float(method.step(batch_at(0)).parts["private"].detach()) == pytest.approx(-1, abs=1e-5)


def test_only_the_predicting_view_of_simsiam_carries_a_gradient():
    method = build("uniot-simsiam")
    method.predictor = torch.nn.Identity()
    batch = batch_at(0)
    loss = method.private_class_loss(method.features(batch.target), batch, batch.target)
    gradient = torch.autograd.grad(loss, method.projection.hidden.weight)[0]
    batch = batch_at(0)
    first, second = two_views(method.projection, batch, batch.target, method.options.dropped)
    # By hand: each view against the other one as a constant.
    both = ((first * second.detach()).sum(dim=1) + (second * first.detach()).sum(dim=1)).mean()
    expected = torch.autograd.grad(-both / 2, method.projection.hidden.weight)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_swav_of_equal_views_predicts_the_sample_itself():
    """With nothing dropped both views are the sample; swapping changes nothing, so both halves are code losses."""
    losses = private("uniot-swav", dropped=0.0), private("uniot-without-local")
    assert losses[0] > losses[1] > 0


def test_views_need_the_whole_batch():
    method, batch = build("uniot-swav"), batch_at(0)
    part = Batch(**(vars(batch) | {"target": batch.target[:4]}))
    with pytest.raises(SettingsError, match="makes views in one process"):
        two_views(method.projection, part, part.target, method.options.dropped)
