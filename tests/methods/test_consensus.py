"""Consensus of clusters and classes, on a circle where similarity is the cosine of an angle."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from uniot.methods import dcc_consensus as module
from uniot.methods.dcc_consensus import Consensus, LabelledRows, consensus_of, moved_centres, search_consensus


def at(*degrees: float) -> torch.Tensor:
    angles = torch.tensor(degrees) * math.pi / 180
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_agreement_worked_by_hand():
    # Class 0 has its centre at 30°, class 1 at 90°, class 2 has no sample. The cluster at 180° is nearest to class 1,
    # which is nearer to the cluster at 95°.
    source = LabelledRows(at(0, 60, 90, 90), torch.tensor([0, 0, 1, 1]), 3)
    found = consensus_of(source, at(0, 10, 50, 95, 180), at(5, 95, 180))
    assert found.classes.tolist() == [0, 1, -1]
    # Pair of class 0: one of two samples is nearest to its cluster (60° is nearer to 95°), and all samples of the
    # cluster (0°, 10°, 50°) are nearest to class 0. Pair of class 1: everything agrees.
    assert found.score == pytest.approx(((1 / 2 + 3 / 3) / 2 + 1) / 2)


def test_class_without_samples_is_matched_with_nothing():
    source = LabelledRows(at(0, 0), torch.tensor([1, 1]), 3)
    assert consensus_of(source, at(0, 180), at(0, 180)).classes.tolist() == [1, -1]


def test_cluster_that_no_sample_is_nearest_to_agrees_by_half_at_most():
    source = LabelledRows(at(0), torch.tensor([0]), 1)
    # All target rows are nearer to the other centre.
    found = consensus_of(source, at(170, 180), at(5, 175))
    assert found.classes.tolist() == [0, -1]
    assert found.score == pytest.approx(0.5)


def blobs(*, n_source: int, n_target: int, first: int) -> tuple[LabelledRows, torch.Tensor]:
    """Classes along axes of a space: the source has the first ones, the target begins at `first`."""
    generator = torch.Generator().manual_seed(0)
    axes = torch.eye(first + n_target)
    labels = torch.arange(n_source).repeat_interleave(8)
    clusters = torch.arange(first, first + n_target).repeat_interleave(8)
    rows = [
        F.normalize(axes[i] + 0.1 * torch.randn(len(i), len(axes), generator=generator), dim=1)
        for i in (labels, clusters)
    ]
    return LabelledRows(rows[0], labels, n_source), rows[1]


def test_search_finds_the_number_of_clusters_and_which_are_common():
    # Classes 0 … 3 and clusters 1 … 5: three in common, two clusters private.
    source, target = blobs(n_source=4, n_target=5, first=1)
    found = search_consensus(source, target, range(2, 10))
    assert len(found.centres) == 5
    assert sorted(found.classes.tolist()) == [-1, -1, 1, 2, 3]
    assert found.score == pytest.approx(1)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5, 0.9, 0.8, 0.8, 0.7, 1.0], 1),  # three without a rise end the search before the best one is seen
        ([0.5, 0.9, 0.8, 0.85, 0.8, 0.95], 5),  # a rise in between lets it go on
        ([0.5, 0.6], 1),
    ],
)
def test_search_ends_after_so_many_numbers_without_a_rise(monkeypatch, scores, expected):
    answers = [Consensus(torch.zeros(1, 2), torch.zeros(1), score) for score in scores]
    coming = iter(answers)
    monkeypatch.setattr(module, "consensus_of", lambda *args: next(coming))
    source, target = blobs(n_source=2, n_target=2, first=0)
    assert search_consensus(source, target, range(1, len(scores) + 1)) is answers[expected]


def test_more_clusters_than_samples_are_not_tried():
    source, target = blobs(n_source=2, n_target=2, first=0)
    assert len(search_consensus(source, target[:3], [2, 3, 50]).centres) <= 3
    assert len(search_consensus(source, target[:3], [50]).centres) == 3


def test_centres_move_to_the_means_and_one_without_samples_stays():
    moved = moved_centres(at(0, 20, 90), at(1, 80, 200))
    assert moved.numpy() == pytest.approx(at(10, 90, 200).numpy(), abs=1e-6)
