"""Labels that look wrong: flipped ones are found, those of small classes are left alone, and no label backs itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import uniot
from uniot.data_quality.suspect_labels import _Ridge, _vote
from uniot.datasets.digits import load_digit_archives
from uniot.errors import DataError
from uniot.neighbours import Neighbours


def clusters(sizes: list[int], spread: float = 0.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    return 3 * np.eye(len(sizes), 20)[y] + spread * rng.normal(size=(len(y), 20)), y


def test_flipped_labels_come_first_with_their_own_class_suggested():
    x, y = clusters([40, 40, 40])
    given = y.copy()
    given[[3, 50, 90]] = [1, 2, 0]
    found = uniot.suspect_labels(x, np.array(["ant", "bee", "cow"])[given])
    assert set(found.rows.tolist()) == {3, 50, 90}
    assert found.n_clear == 3
    assert found.suggested[[3, 50, 90]].tolist() == ["ant", "bee", "cow"]
    assert (np.diff(found.score[found.rows]) <= 0).all()
    assert ((found.score >= 0) & (found.score <= 1)).all()


@pytest.mark.medium
def test_precision_on_real_digits_with_flips():
    x, y, _, _ = load_digit_archives()
    x, y = x[:800].reshape(800, -1), y[:800]
    rng = np.random.default_rng(0)
    flipped = rng.choice(len(y), 40, replace=False)
    given = y.copy()
    given[flipped] = (y[flipped] + rng.integers(1, 10, 40)) % 10
    order = np.argsort(-uniot.suspect_labels(x, given).score)
    assert np.isin(order[:40], flipped).mean() > 0.9


def test_small_classes_are_not_flooded():
    x, y = clusters([200, 60, 2, 1])
    assert not len(uniot.suspect_labels(x, y).rows)


def test_class_of_one_sample_is_never_suspected_even_amid_another_class():
    x, y = clusters([50, 50])
    y[0] = 2
    assert uniot.suspect_labels(x, y).score[0] < 0.1


def test_regression_without_the_own_label_is_that_of_a_fit_without_the_sample():
    x, y = clusters([9, 7, 5])
    rows, classes = torch.from_numpy(x).float(), torch.from_numpy(y)
    left_out = 4
    answer = _Ridge(rows, classes, torch.bincount(classes)).without_own_label(torch.tensor([left_out]))
    # The targets stay centred by the shares of all samples; the intercept is refitted.
    others = torch.arange(len(x)) != left_out
    design = torch.cat([rows[others], torch.ones(int(others.sum()), 1)], dim=1).double()
    targets = torch.nn.functional.one_hot(classes)[others].double() - torch.bincount(classes) / len(x)
    penalty = 0.3 * torch.eye(21, dtype=torch.float64)
    penalty[20, 20] = 0
    weights = torch.linalg.solve(design.t() @ design + penalty, design.t() @ targets)
    expected = torch.cat([rows[left_out], torch.ones(1)]).double() @ weights
    assert torch.allclose(answer[0].double(), expected, atol=1e-4)


def test_sample_has_no_vote_on_itself():
    rows = torch.nn.functional.normalize(torch.from_numpy(clusters([6, 6])[0]).float(), dim=1)
    classes = torch.tensor([0] * 6 + [1] * 6)
    own = torch.tensor([2])
    near = Neighbours(rows, 3).of_stored
    relabelled = classes.clone()
    relabelled[2] = 1
    sizes = torch.tensor([6, 6])
    assert torch.equal(_vote(rows, classes, sizes, near, own), _vote(rows, relabelled, sizes, near, own))


def test_scale_of_embeddings_does_not_matter():
    x, y = clusters([20, 20])
    y[0] = 1
    scores = [uniot.suspect_labels(factor * x, y).score for factor in (1, 1e-20, 1e15)]
    assert np.allclose(scores[0], scores[1], atol=1e-3)
    assert np.allclose(scores[0], scores[2], atol=1e-3)


def test_one_class_has_nothing_to_suspect():
    assert not len(uniot.suspect_labels(np.eye(4), ["a"] * 4).rows)


def test_labels_of_another_length_are_refused():
    with pytest.raises(DataError, match="y has 3 labels for 4 rows of X"):
        uniot.suspect_labels(np.eye(4), [0, 1, 2])
