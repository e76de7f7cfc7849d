"""Class prototypes that the user gives, such as text embeddings of the class names, made here by made-up towers.

The tower of images maps a class to its direction, and the tower of texts to the same direction around another centre
and at another scale, as those of CLIP do.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from uniot import UniDAClassifier, UniNCM
from uniot.errors import DataError, SettingsError
from uniot.methods.fitted import GivenPrototypes

N_CLASSES, N_PRIVATE, D = 5, 2, 32
CLASSES = [f"class {number}" for number in range(N_CLASSES)]


@pytest.fixture(scope="module")
def towers():
    """Images of both domains, labels, true labels of the target, and a text embedding per class."""
    random = np.random.default_rng(0)
    directions = random.normal(size=(N_CLASSES + N_PRIVATE, D))
    centre, shift, gap = random.normal(size=(3, D)) * np.array([[2.0], [0.5], [4.0]])
    classes = np.repeat(np.arange(N_CLASSES), 30)
    in_target = np.repeat([0, 1, 2, 5, 6], 40)
    source = centre + directions[classes] + random.normal(size=(len(classes), D)) * 0.5
    target = centre + shift + directions[in_target] + random.normal(size=(len(in_target), D)) * 0.5
    truth = np.where(in_target < N_CLASSES, np.array([*CLASSES, "", ""])[in_target], "unknown")
    texts = gap + 0.2 * directions[:N_CLASSES]
    return source, np.array(CLASSES)[classes], target, truth, texts


def test_texts_in_place_of_class_means_label_as_the_class_means_do(towers):
    source, labels, target, truth, texts = towers
    by_means = UniNCM(random_state=0).fit(source, labels, target).labels_
    by_texts = UniNCM(random_state=0).fit(source, labels, target, prototypes=texts).labels_
    assert (by_means == truth).mean() > 0.95
    assert (by_texts == truth).mean() > 0.95


def test_prototypes_repair_wrong_labels_of_the_source(towers):
    source, labels, target, truth, texts = towers
    swapped = np.array(labels)
    swapped[labels == "class 0"], swapped[labels == "class 1"] = "class 1", "class 0"
    known = truth != "unknown"
    right = [
        (UniNCM(random_state=0).fit(source, swapped, target, **given).labels_ == truth)[known].mean()
        for given in ({}, {"prototypes": texts}, {"prototypes": texts, "prototype_weight": 0.0})
    ]
    assert right[0] < 0.5
    assert right[1] > 0.9
    # A weight of zero uses the class means alone.
    assert right[2] == right[0]


def test_mapping_by_name_is_the_array_in_the_order_of_the_classes(towers):
    source, labels, target, _, texts = towers
    by_name = dict(zip(reversed(CLASSES), texts[::-1] * 7, strict=True))
    models = [UniNCM(random_state=0).fit(source, labels, target, prototypes=one) for one in (texts, by_name)]
    np.testing.assert_allclose(models[0].predict_proba(target), models[1].predict_proba(target), atol=1e-5)


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_calibrated_classifier_compares_with_the_prototypes(towers, weight):
    source, labels, target, _, texts = towers
    model = UniDAClassifier("calibrated", n_private_classes=2, random_state=0)
    model.fit(source, labels, target, prototypes=texts, prototype_weight=weight)
    rows = source / np.linalg.norm(source, axis=1, keepdims=True)
    means = np.stack([rows[labels == name].mean(axis=0) for name in CLASSES])
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (texts, means)]
    expected = weight * unit[0] + (1 - weight) * unit[1]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.model_.method.class_prototypes().numpy(), expected, atol=1e-5)


def test_average_of_two_prototypes_worked_by_hand():
    # Centred texts are (±0.6, 0); class means (±1, 0) have 5/3 of their length. Scaled, they are equal.
    given = GivenPrototypes(torch.tensor([[0.6, 0.8], [-0.6, 0.8]]), weight=0.5)
    means = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    assert torch.allclose(given.blended(means, torch.eye(2)), torch.tensor([[0.5, 0.5], [-0.5, -0.5]]))


@pytest.mark.medium
def test_dance_starts_from_the_prototypes(towers):
    source, labels, target, _, texts = towers
    model = UniDAClassifier("dance", steps=1, learning_rate=1e-12, n_private_classes=2, random_state=0)
    model.fit(source, labels, target, prototypes=texts)
    expected = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    np.testing.assert_allclose(model.model_.method.class_prototypes().numpy(), expected, atol=1e-5)
    with pytest.raises(SettingsError, match="dance starts from the prototypes and has no class means"):
        model.fit(source, labels, target, prototypes=texts, prototype_weight=0.5)


def test_prototypes_are_part_of_what_identifies_a_run(towers, tmp_path):
    source, labels, target, _, texts = towers
    models = [UniNCM(random_state=0).fit(source, labels, target, prototypes=one) for one in (None, texts, -texts)]
    assert len({model.model_.fingerprint for model in models}) == 3


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"method": "source-only"}, SettingsError, "source-only does not compare embeddings with class prototypes"),
        ({"prototype_weight": 1.5}, SettingsError, "prototype_weight is 1.5. Give a number from 0 to 1."),
        ({"prototypes": np.ones((4, D))}, DataError, r"shape \(4, 32\); expected \(5, 32\): a row per class"),
        ({"prototypes": np.ones((5, D - 1))}, DataError, r"shape \(5, 31\); expected \(5, 32\)"),
        ({"prototypes": np.zeros((5, D))}, DataError, "a row of prototypes is zero and has no direction"),
        ({"prototypes": {"class 0": np.ones(D)}}, DataError, "and there is none of 'class 1'"),
        (
            {"prototypes": {name: np.ones(D) for name in [*CLASSES, "dog"]}},
            DataError,
            "'dog' is not a class of the source",
        ),
    ],
)
def test_wrong_prototypes_are_refused_in_words(towers, changed, error, words):
    source, labels, target, _, texts = towers
    given = {"prototypes": texts, "prototype_weight": 1.0, **changed}
    model = UniDAClassifier(given.pop("method", "unincm"), random_state=0)
    with pytest.raises(error, match=words):
        model.fit(source, labels, target, **given)
