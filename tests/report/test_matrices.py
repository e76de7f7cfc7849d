from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from uniot.report.categories import Categories
from uniot.report.curves import class_mass, detection, losses
from uniot.report.matrices import Matrices, make_matrices
from uniot.report.values import confidence_counts


def matrices_of(model) -> Matrices:
    return make_matrices(model, Categories.of(model))


def test_the_transport_tells_what_is_known(made_model):
    model = made_model()
    features = model.target_features.astype(np.float64)
    cosines = features @ model.method.loss.classes.weight.detach().double().numpy().T
    plan = np.exp(cosines / model.method.solved.get().epsilon + model.method.solved.get().class_potential.numpy())
    matrices = matrices_of(model)
    largest = np.argmax(plan[matrices.rows], axis=1)
    assert np.array_equal(matrices.classes[matrices.mass.argmax(axis=1)], largest)
    # The mean over all rows of a row's whole mass is the unit.
    assert matrices.mass.sum(axis=1).mean() == pytest.approx(1)
    assert matrices.similarity == pytest.approx(cosines[matrices.rows][:, matrices.classes], abs=1e-6)


def test_rows_come_by_category_and_confidence_and_found_classes_first(made_model):
    model = made_model(found=(2, 5, 0), groups=(4, 3))
    matrices = matrices_of(model)
    assert [(band.name, band.stop - band.start) for band in matrices.bands] == [
        ("bee", 5),
        ("ant", 2),
        ("Group 0", 4),
        ("Group 1", 3),
    ]
    assert matrices.classes.tolist() == [1, 0, 2]
    first = model.target.confidence[matrices.rows[:5]]
    assert (np.diff(first) <= 0).all()


def test_large_matrices_are_thinned_and_say_so(made_model):
    names = [f"class {number}" for number in range(130)]
    matrices = matrices_of(made_model(names, [6] * 130))
    assert matrices.mass.shape == matrices.similarity.shape == (600, 100)
    assert matrices.rows_left_out == 130 * 6 + 11 - 600
    assert matrices.classes_left_out == 30
    assert sum(band.stop - band.start for band in matrices.bands) == 600


def test_every_sample_is_in_the_histogram_on_its_side_of_one_half(made_model):
    model = made_model()
    on_the_border = replace(model.target, known_score=np.where(model.target.known, 0.5 - 1e-12, 0.5 - 1e-9))
    for target in (model.target, on_the_border):
        counts = confidence_counts(target)
        right = counts.edges[:-1] >= 0.5
        assert (counts.known[right].sum(), counts.unknown[~right].sum()) == (14, 11)
        assert counts.known.sum() + counts.unknown.sum() == 25


def test_losses_are_means_over_steps_and_gaps_stay_gaps(made_model):
    model = made_model(oracle=True)
    model.history.rows *= 50
    whole = next(curve for curve in losses(model.history) if curve.name == "total loss")
    assert len(whole.values) == 300
    assert whole.values[:2] == pytest.approx([(3 + 1.5) / 2, (1 + 0.75) / 2])
    recall, specificity = detection(model.history)
    assert np.isnan(recall.values[0])
    assert recall.values[1] == pytest.approx(0.8)
    assert specificity.values == pytest.approx(0.9)


def test_recall_is_told_only_where_the_truth_was_given(made_model):
    assert detection(made_model().history) == []


def test_class_mass_shows_the_largest_classes_and_which_of_them_were_found(made_model):
    names = [f"class {number}" for number in range(50)]
    model = made_model(names, [1] + [0] * 49)
    mass = class_mass(model, Categories.of(model).class_sizes)
    assert len(mass.curves) == 40
    assert mass.left_out == 10
    assert mass.even == 1 / 50
    last = [curve.values[-1] for curve in mass.curves]
    assert last == sorted(last, reverse=True)
    assert [curve.name for curve, found in zip(mass.curves, mass.found, strict=True) if found] in (["class 0"], [])
    model.history.class_mass.clear()
    assert class_mass(model, Categories.of(model).class_sizes) is None
