"""Labels spread to what looks alike, and the queue of samples worth labelling."""

from __future__ import annotations

import numpy as np
import pytest

from uniot.discovery import label_order as label_spreading
from uniot.discovery.label_order import RUN_WEIGHT, Neighbourhoods, label_queue, spread_labels, uncertainty

SIZES = (40, 30, 20)


def clusters(sizes=SIZES, noise=0.15, seed=0) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around directions of their own, and which direction each is around."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(sizes)), sizes)
    features = np.eye(len(sizes), 16)[of] + noise * rng.normal(size=(len(of), 16))
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32), of


def no_votes(n_samples: int, n_labels: int) -> np.ndarray:
    return np.zeros((n_samples, n_labels))


def test_a_label_reaches_its_cluster_and_no_other():
    features, of = clusters()
    graph = Neighbourhoods.of(features)
    labelled = np.array([0, 45, 80])
    scores = spread_labels(graph, no_votes(len(of), 3), labelled, of[labelled])
    assert (scores.argmax(axis=1) == of).all()


def test_a_person_outweighs_the_run_and_the_run_decides_where_nobody_labelled():
    features, of = clusters()
    votes = no_votes(len(of), 4)
    votes[np.arange(len(of)), of] = RUN_WEIGHT
    labelled = np.array([0])
    scores = spread_labels(Neighbourhoods.of(features), votes, labelled, np.array([3]))
    found = scores.argmax(axis=1)
    assert found[0] == 3
    assert (found[of == 0] == 3).mean() > 0.9
    assert (found[of > 0] == of[of > 0]).all()


def test_what_a_person_labelled_keeps_its_label_among_others():
    features, of = clusters()
    labelled = np.flatnonzero(of == 0)
    labels = np.zeros(len(labelled), dtype=int)
    labels[5] = 1
    scores = spread_labels(Neighbourhoods.of(features), no_votes(len(of), 2), labelled, labels)
    assert scores[labelled[5]].tolist() == [0, 1]


def test_a_sample_between_two_labels_or_without_a_name_is_uncertain():
    scores = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.8, 0.2, 0.0]])
    found = uncertainty(scores, np.array([True, True, False]))
    assert found == pytest.approx([0, 1, 1, 0.25])
    assert uncertainty(np.ones((2, 1)), np.array([False])).tolist() == [1, 1]


def test_the_queue_asks_for_one_of_each_cluster_the_largest_first():
    features, of = clusters()
    graph = Neighbourhoods.of(features)
    queue = label_queue(graph, np.ones(len(of)), np.zeros(0, dtype=int), 3)
    assert [of[one.row] for one in queue] == [0, 1, 2]
    gains = [one.settles for one in queue]
    assert gains == sorted(gains, reverse=True)
    assert 10 < gains[0] < SIZES[0]


def test_what_is_certain_or_labelled_or_skipped_is_not_asked_for():
    features, of = clusters()
    graph = Neighbourhoods.of(features)
    certain = np.where(of == 0, 0.0, 1.0)
    nobody = np.zeros(0, dtype=int)
    assert of[label_queue(graph, certain, nobody, 1)[0].row] == 1
    first = label_queue(graph, np.ones(len(of)), nobody, 1)[0].row
    after = label_queue(graph, np.ones(len(of)), np.array([first]), len(of))
    assert of[after[0].row] == 1  # the neighbourhood of the first is covered
    assert len(after) == len(of) - 1
    assert first not in [one.row for one in after]
    skipped = label_queue(graph, np.ones(len(of)), nobody, 1, np.array([first]))[0].row
    assert skipped != first
    assert of[skipped] == 0  # skipping covers nothing


def test_the_order_does_not_depend_on_the_order_of_the_samples():
    features, of = clusters()
    shuffled = np.random.default_rng(1).permutation(len(of))
    plain = label_queue(Neighbourhoods.of(features), np.ones(len(of)), np.zeros(0, dtype=int), 5)
    other = label_queue(Neighbourhoods.of(features[shuffled]), np.ones(len(of)), np.zeros(0, dtype=int), 5)
    assert [one.row for one in plain] == [int(shuffled[one.row]) for one in other]


def test_of_too_many_samples_some_stand_for_the_others(monkeypatch):
    monkeypatch.setattr(label_spreading, "_MAX_SAMPLES", 30)
    features, of = clusters()
    graph = Neighbourhoods.of(features, include=[89])
    assert len(graph.rows) in (30, 31)
    assert graph.index_of(89) is not None
    assert (of[graph.rows[graph.representative]] == of).all()
    assert (graph.representative[graph.rows] == np.arange(len(graph.rows))).all()
    gain = label_queue(graph, np.ones(len(graph.rows)), np.zeros(0, dtype=int), 1)[0].settles
    assert 10 < gain < len(of)


@pytest.mark.parametrize("n_samples", [1, 2])
def test_a_handful_of_samples_is_enough(n_samples):
    graph = Neighbourhoods.of(np.eye(n_samples, 4, dtype=np.float32))
    scores = spread_labels(graph, no_votes(n_samples, 2), np.array([0]), np.array([1]))
    assert scores[0].tolist() == [0, 1]
    assert len(label_queue(graph, np.ones(n_samples), np.array([0]), 9)) == n_samples - 1


def test_the_queue_is_that_of_the_plain_greedy_rule():
    features, of = clusters(noise=0.3)
    graph = Neighbourhoods.of(features)
    uncertain = np.random.default_rng(3).uniform(size=len(of)).astype(np.float32)
    done = np.array([7])
    covered, expected = graph.coverage[7], []
    for _ in range(20):
        gains = np.maximum(graph.coverage - covered, 0) @ uncertain
        gains[[7, *expected]] = -1
        expected.append(int(gains.argmax()))
        covered = np.maximum(covered, graph.coverage[expected[-1]])
    assert [one.row for one in label_queue(graph, uncertain, done, 20)] == expected
