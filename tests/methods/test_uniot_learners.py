"""Target learners in place of L_PCD: each loss by hand, when labels change, and what a step is made of."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import (
    cluster_imbalance_loss,
    nearest_neighbours,
    neighbour_consistency_loss,
    partition_uncertainty_loss,
    pseudo_label_loss,
)
from uniot.methods.base import Batch
from uniot.methods.registry import method_info
from uniot.methods.uniot import UniOTMethod
from uniot.methods.uniot_learners import INFOS, balanced_labels

D, C, B, K, QUEUE = 7, 4, 8, 5, 24
NAMES = [info.name for info in INFOS]
# Softmax of the first row is (3/4, 1/4), of the second (1/4, 3/4), of the third (1/2, 1/2).
FIRST, SECOND, EVEN = [math.log(3), 0.0], [0.0, math.log(3)], [0.0, 0.0]


def build(name: str, steps: int = 20, **options) -> UniOTMethod:
    torch.manual_seed(0)
    info = method_info(name)
    settings = Settings.checked(queue_size=QUEUE, batch_size=B, feature_size=6, steps=steps)
    small = {"n_clusters": K, "hidden_size": 16, "detection_start": 3}
    method = info.build(D, C, settings, info.options.checked(**(small | options)), None)
    target = torch.randn(QUEUE, D, generator=torch.Generator().manual_seed(1))
    for start in range(0, QUEUE, B):
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


def private(method: UniOTMethod, batch: Batch) -> torch.Tensor:
    return method.private_class_loss(method.features(batch.target), batch, batch.target)


def test_both_views_predict_the_label():
    # -log 3/4 of the first view, -log 1/2 of the second: log(4/3 * 2) / 2 = 0.49041.
    found = pseudo_label_loss(torch.tensor([FIRST]), torch.tensor([EVEN]), torch.tensor([0]))
    assert float(found) == pytest.approx(0.49041, abs=1e-5)


def test_a_sample_of_a_large_cluster_counts_less():
    logits, labels = torch.tensor([FIRST, EVEN]), torch.tensor([0, 1])
    # Clusters of one and three samples: (log 4/3 + 1/3 log 2) / (1 + 1/3) = 0.75 * 0.28768 + 0.25 * 0.69315.
    found = pseudo_label_loss(logits, logits, labels, torch.tensor([1, 1 / 3]))
    assert float(found) == pytest.approx(0.38905, abs=1e-5)


def test_balanced_labels_move_the_samples_that_are_least_sure():
    """All four are nearest to the first cluster, by margins of 0.1, 0.2, 0.3 and 1.7; two have to go."""
    cosines = torch.tensor([[0.9, 0.8], [0.9, 0.7], [0.9, 0.6], [0.9, -0.8]])
    assert balanced_labels(cosines, 0.1, 25).tolist() == [1, 1, 0, 0]
    # At ε = 1, Σ σ(margin - t) = 2 is solved by t = 0.55, between the third margin and the fourth.
    assert balanced_labels(cosines, 0.1, 0.1).tolist() == [1, 1, 1, 0]


def test_a_small_temperature_is_no_error():
    assert balanced_labels(torch.eye(2), 0.001, 90).tolist() == [0, 1]


def test_imbalance_is_of_the_mean_assignment():
    # log 2 - H(3/4, 1/4) = 3/4 log 3 - log 2 = 0.13081; the second row makes the mean even.
    assert float(cluster_imbalance_loss(torch.tensor([FIRST]))) == pytest.approx(0.13081, abs=1e-5)
    assert float(cluster_imbalance_loss(torch.tensor([FIRST, SECOND]))) == pytest.approx(0, abs=1e-6)
    # Collapsed into one of three clusters: log 3.
    assert float(cluster_imbalance_loss(torch.tensor([[200.0, 0.0, 0.0]]))) == pytest.approx(math.log(3))


def test_partition_is_uncertain_as_far_as_clusters_hold_the_same_samples():
    logits, swapped = torch.tensor([FIRST, SECOND]), torch.tensor([SECOND, FIRST])
    # Columns (3, 1) and (1, 3), of norm √10: cosine 1 to itself, 6/10 to the other, so log(1 + e^-0.4) = 0.51302.
    assert float(partition_uncertainty_loss(logits, logits)) == pytest.approx(0.51302, abs=1e-5)
    # With views that disagree the diagonal has 6/10: log(1 + e^0.4) = 0.91302.
    assert float(partition_uncertainty_loss(logits, swapped)) == pytest.approx(0.91302, abs=1e-5)
    # Columns without a common sample: log(1 + e^-1) = 0.31326, the least that there is.
    assert float(partition_uncertainty_loss(100 * logits, 100 * logits)) == pytest.approx(0.31326, abs=1e-5)


def test_consistency_is_the_log_of_the_inner_product():
    # 3/4 · 1/4 + 1/4 · 3/4 = 3/8, and 9/16 + 1/16 = 5/8 for equal rows: (log 8/3 + log 8/5) / 2 = 0.72542.
    found = neighbour_consistency_loss(torch.tensor([FIRST, FIRST]), torch.tensor([SECOND, FIRST]))
    assert float(found) == pytest.approx(0.72542, abs=1e-5)
    assert float(neighbour_consistency_loss(torch.tensor([[200.0, 0.0]]), torch.tensor([[200.0, 0.0]]))) == 0


def test_gradients_of_all_losses():
    generator = torch.Generator().manual_seed(3)
    one, two = (torch.randn(4, 3, dtype=torch.float64, generator=generator, requires_grad=True) for _ in range(2))
    labels, weights = torch.tensor([0, 2, 1, 2]), torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, y: pseudo_label_loss(x, y, labels, weights), (one, two))
    assert torch.autograd.gradcheck(cluster_imbalance_loss, (one,))
    assert torch.autograd.gradcheck(partition_uncertainty_loss, (one, two))
    assert torch.autograd.gradcheck(neighbour_consistency_loss, (one, two))


def test_published_values_are_the_defaults():
    own = {
        "uniot-selflabel": {"label_updates": 100, "label_power": 25.0, "dropped": 0.2},
        "uniot-deepcluster": {"label_updates": 200, "dropped": 0.2},
        "uniot-pica": {"balance_weight": 2.0, "dropped": 0.2},
        "uniot-scan": {"entropy_weight": 5.0},
    }
    of_uniot = method_info("uniot").options().model_dump()
    assert {info.name: info.options().model_dump() for info in INFOS} == {
        name: of_uniot | values for name, values in own.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_learner_has_the_weight_of_l_pcd(name):
    losses = build(name).step(batch_at(10))
    expected = losses.parts["source"] + 0.1 * (losses.parts["common"] + losses.parts["private"])
    assert float(losses.total.detach()) == pytest.approx(float(expected.detach()))


@pytest.mark.parametrize("name", ["uniot-selflabel", "uniot-deepcluster", "uniot-pica"])
def test_views_need_the_whole_batch(name):
    batch = batch_at(0)
    part = Batch(**(vars(batch) | {"target": batch.target[:4]}))
    with pytest.raises(SettingsError, match="makes views in one process"):
        private(build(name), part)


@pytest.mark.parametrize(
    ("name", "steps", "updates", "expected"),
    [
        # At equal intervals.
        ("uniot-deepcluster", 64, 4, [0, 16, 32, 48]),
        # At (i / 4)² of the steps.
        ("uniot-selflabel", 64, 4, [0, 4, 16, 36]),
        ("uniot-deepcluster", 6, 1000, [0, 1, 2, 3, 4, 5]),
        ("uniot-selflabel", 6, 1000, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_labels_are_updated_on_schedule(name, steps, updates, expected, monkeypatch):
    method, done = build(name, steps=steps, label_updates=updates), []
    update = method.update_labels
    monkeypatch.setattr(method, "update_labels", lambda generator: (done.append(step), update(generator)))
    for step in range(steps):
        private(method, batch_at(step))
    assert done == expected


@pytest.mark.parametrize("name", ["uniot-selflabel", "uniot-deepcluster"])
def test_a_sample_has_the_label_of_its_newest_feature(name):
    method = build(name)
    # The oldest eight places are overwritten by samples 16 to 23, which are then in the queue twice.
    method.loss.queue.push(method.loss.queue.features[16:].flip(0), torch.arange(16, 24))
    method.update_labels(torch.Generator().manual_seed(0))
    of_place = method.labels[-8:].tolist()
    features = F.normalize(torch.randn(9, 6, generator=torch.Generator().manual_seed(1)), dim=1)
    found = method.labels_of(features, torch.tensor([*range(16, 24), 99])).tolist()
    assert method.labelled_ids.tolist() == [*range(8, 24), *range(16, 24)]
    assert found[:8] == of_place
    # The newest features of 16 to 23 are those of 23 to 16 before, and so are their clusters.
    assert of_place == method.labels[8:16].flip(0).tolist()
    # Sample 99 was not in the queue.
    assert found[8] == int((features[8] @ method.loss.clusters.weight.t()).argmax())


def test_labels_of_self_labelling_are_spread_over_all_clusters():
    method = build("uniot-selflabel")
    method.update_labels(torch.Generator())
    sizes = torch.bincount(method.labels, minlength=K)
    # 24 samples, 5 clusters; the plan has 4.8 each, and a row's largest entry may be half of it.
    assert int(sizes.min()) >= 3
    assert int(sizes.max()) <= 7
    nearest = torch.bincount(method.loss.clusters(method.loss.queue.features).argmax(dim=1), minlength=K)
    assert int(nearest.min()) < 3


def test_deepcluster_classifies_by_its_centres_and_does_not_train_them():
    method = build("uniot-deepcluster")
    private(method, batch_at(0)).backward()
    assert method.loss.clusters.weight.grad is None
    assert float(method.projection.hidden.weight.grad.abs().max()) > 0
    # A centre is the normalised mean of the features with its label.
    for cluster in range(K):
        mean = method.loss.queue.features[method.labels == cluster].mean(dim=0)
        torch.testing.assert_close(
            method.loss.clusters.weight[cluster].detach(), F.normalize(mean, dim=0), atol=1e-5, rtol=0
        )
    sizes = torch.bincount(method.labels, minlength=K)
    torch.testing.assert_close(method.cluster_weights(), 1 / sizes.float())


def test_deepcluster_has_at_most_a_centre_per_feature_of_the_queue():
    method = build("uniot-deepcluster", n_clusters=QUEUE + 3)
    before = method.loss.clusters.weight.detach().clone()
    assert math.isfinite(float(private(method, batch_at(0)).detach()))
    assert sorted(method.labels.tolist()) == list(range(QUEUE))
    assert torch.equal(method.loss.clusters.weight[QUEUE:], before[QUEUE:])


def test_self_labelling_trains_its_prototypes():
    method = build("uniot-selflabel")
    private(method, batch_at(0)).backward()
    assert float(method.loss.clusters.weight.grad.abs().max()) > 0


@pytest.mark.parametrize("name", ["uniot-selflabel", "uniot-deepcluster"])
def test_loss_of_a_step_is_that_of_views_and_stored_labels(name):
    method = build(name, dropped=0.0)
    private(method, batch_at(0))
    labels, batch = method.labels[:B].clone(), batch_at(0)
    # Without dropout both views are the sample; with one update out of 20 steps, step 1 keeps the labels.
    method.options = method.options.model_copy(update={"label_updates": 1})
    found = float(private(method, Batch(**(vars(batch) | {"step": 1}))).detach())
    logits = method.features(batch.target).detach() @ method.loss.clusters.weight.detach().t() / 0.1
    expected = F.cross_entropy(logits, labels, weight=method.cluster_weights())
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_pica_of_equal_views_compares_the_clusters_of_batch_and_queue():
    found = float(private(build("uniot-pica", dropped=0.0), batch_at(0)).detach())
    method, batch = build("uniot-pica", dropped=0.0), batch_at(0)
    drawn = torch.randint(QUEUE, (K,), generator=batch.generator)
    rows = torch.cat([method.features(batch.target), method.loss.queue.features[drawn]])
    logits = (rows @ method.loss.clusters.weight.t() / 0.1).detach()
    expected = partition_uncertainty_loss(logits, logits) + 2 * cluster_imbalance_loss(logits)
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_scan_pulls_anchor_and_neighbour_into_one_of_equally_large_clusters():
    found = float(private(build("uniot-scan"), batch_at(0)).detach())
    method, batch = build("uniot-scan"), batch_at(0)
    anchors = method.features(batch.target).detach()
    neighbours = nearest_neighbours(anchors, batch.target_ids, method.loss.queue)
    drawn = torch.randint(QUEUE, (K,), generator=batch.generator)
    weight = method.loss.clusters.weight.detach().t() / 0.1
    rows = torch.cat([anchors, method.loss.queue.features[drawn]])
    expected = neighbour_consistency_loss(anchors @ weight, neighbours @ weight) + 5 * cluster_imbalance_loss(
        rows @ weight
    )
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_pseudo_labels_are_state_and_are_forgotten_with_the_queue():
    method = build("uniot-selflabel")
    private(method, batch_at(0))
    state = method.state_dict()
    assert state["labels"].min() >= 0
    assert sorted(state["labelled_ids"].tolist()) == list(range(QUEUE))
    method.forget_samples()
    assert {*method.labels.tolist(), *method.labelled_ids.tolist(), *method.loss.queue.ids.tolist()} == {-1}
