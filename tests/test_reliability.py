from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot import UniDAClassifier, UniNCM, reliability
from uniot.datasets import make_toy_domains
from uniot.errors import UniotWarning
from uniot.methods.unincm.rejection import fit_rejection
from uniot.reliability import (
    DOUBTED,
    NOTHING_KNOWN,
    NOTHING_UNKNOWN,
    TargetStatistics,
    agreement_of_halves,
    assess,
    target_statistics,
)

GOOD = TargetStatistics(agreement=0.95, absence=0.2, stability=0.95)


def assessed(known_fraction: float = 0.7, others: tuple[str, ...] = (), **changed: float):
    return assess(replace(GOOD, **changed), known_fraction=known_fraction, others=others)


def fit_rule(rows: torch.Tensor, prototypes: torch.Tensor):
    return fit_rejection(rows, prototypes, n_neighbours=6)


def test_a_clear_target_is_not_warned_of():
    found = assessed()
    assert found.accuracy > 0.75
    assert found.known_accuracy > 0.9
    assert found.warnings == ()


@pytest.mark.parametrize("changed", [{"stability": 0.6}, {"agreement": 0.6}, {"absence": 0.9}])
def test_accuracy_falls_with_each_statistic(changed):
    assert assessed(**changed).accuracy < assessed().accuracy


def test_stability_says_nothing_about_samples_called_unknown():
    assert assessed(stability=0.3).unknown_accuracy == assessed().unknown_accuracy
    assert assessed(agreement=0.3).unknown_accuracy < assessed().unknown_accuracy


def test_accuracy_is_the_mean_over_known_and_unknown_samples():
    known, unknown = assessed(known_fraction=1.0), assessed(known_fraction=0.0)
    assert known.accuracy == known.known_accuracy
    assert known.unknown_accuracy is None
    assert unknown.known_accuracy is None
    assert assessed(known_fraction=0.25).accuracy == pytest.approx(0.25 * known.accuracy + 0.75 * unknown.accuracy)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"stability": 0.4, "agreement": 0.4, "absence": 0.9}, "one class, that labels cannot be trusted: an esti"),
        ({"stability": 0.6, "agreement": 0.7}, "many labels are probably wrong: an estimated"),
    ],
)
def test_low_estimate_is_the_one_doubt_that_is_told(changed, words):
    found = assessed(**changed)
    (warning,) = found.warnings
    assert words in warning
    assert warning.endswith(f"{100 * found.accuracy:.0f} % are right.")
    assert found.of_decision == found.warnings


def test_labels_are_doubted_exactly_below_the_limit():
    estimates = [assessed(stability=stability) for stability in np.linspace(0.2, 0.9, 60)]
    assert {bool(one.warnings) for one in estimates} == {True, False}
    assert all(bool(one.warnings) == (one.accuracy < DOUBTED) for one in estimates)


def test_target_without_unknown_samples_is_told_and_belongs_to_the_decision():
    found = assessed(known_fraction=1.0, others=("few.",))
    assert found.warnings == (NOTHING_UNKNOWN, "few.")
    assert found.for_other_decision().warnings == ("few.",)
    assert assessed(known_fraction=0.999).warnings == ()


def test_target_without_known_samples_belongs_to_the_decision():
    found = assessed(known_fraction=0.0, agreement=1.0, absence=0.0, others=(NOTHING_KNOWN, "few."))
    assert found.for_other_decision().warnings == ("few.",)


def test_without_statistics_only_other_warnings_are_left():
    found = assess(None, known_fraction=1.0, others=["few."])
    assert (found.accuracy, found.known_accuracy, found.unknown_accuracy) == (None, None, None)
    assert (found.warnings, found.sentence) == (("few.",), "")


class _NearestClass:
    """A rule that rejects nothing."""

    def __init__(self, rows: torch.Tensor, prototypes: torch.Tensor) -> None:
        self._prototypes = prototypes

    def odds(self, rows: torch.Tensor) -> torch.Tensor:
        return 2 + rows @ self._prototypes.t()


def test_halves_agree_on_separate_classes_and_by_chance_on_noise():
    generator = torch.Generator().manual_seed(0)
    prototypes = F.normalize(torch.randn(5, 64, generator=generator), dim=1)
    clear = prototypes.repeat(40, 1)
    noise = F.normalize(torch.randn(1000, 64, generator=generator), dim=1)
    assert agreement_of_halves(clear, prototypes, fit_rule, generator) == pytest.approx(1)
    assert agreement_of_halves(noise, prototypes, _NearestClass, generator) == pytest.approx(1 / 5, abs=0.1)


def test_agreement_counts_equal_labels_of_the_two_halves(monkeypatch):
    monkeypatch.setattr(reliability, "_HALVINGS", 1)
    prototypes = F.normalize(torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    rows = F.normalize(torch.randn(400, 6, generator=torch.Generator().manual_seed(1)) + 1, dim=1)
    found = agreement_of_halves(rows, prototypes, fit_rule, torch.Generator().manual_seed(2))
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(2))).Q
    labels = []
    for half in rotation.split(3, 1):
        own = F.normalize(rows @ half, dim=1)
        odds = fit_rule(own, F.normalize(prototypes @ half, dim=1)).odds(own)
        labels.append(np.where(odds.max(dim=1).values >= 1, odds.argmax(dim=1), -1))
    assert found == pytest.approx((labels[0] == labels[1]).mean())
    assert 0 < found < 1


def test_single_direction_has_no_halves_to_disagree():
    rows = torch.tensor([[1.0], [-1.0], [1.0]])
    assert agreement_of_halves(rows, rows[:2], fit_rule, torch.Generator()) == 1


def test_absent_classes_are_those_that_no_sample_is_labelled_with():
    prototypes = torch.eye(4)
    # The last sample is nearest to the third class, and unknown.
    odds = torch.tensor([[2.0, 0.1, 0, 0], [0.1, 3.0, 0, 0], [0, 0, 0.9, 0]], dtype=torch.float64)
    found = target_statistics(
        prototypes[:3], prototypes[:3], odds, prototypes, fit_rule=fit_rule, generator=torch.Generator()
    )
    assert found.absence == 0.5
    assert found.stability == 1
    moved = prototypes[[0, 2, 2]]
    again = target_statistics(moved, prototypes[:3], odds, prototypes, fit_rule=fit_rule, generator=torch.Generator())
    assert again.stability == pytest.approx(2 / 3)


def test_fit_warns_and_keeps_the_estimate(tmp_path):
    toy = make_toy_domains()
    with pytest.warns(UniotWarning, match="only 30 target samples"):
        model = UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target[::5])
    assert 0 < model.reliability_.accuracy < 1
    model.save(tmp_path / "run")
    assert UniDAClassifier.load(tmp_path / "run").reliability_ == model.reliability_


def test_a_target_of_noise_is_warned_of():
    toy, rng = make_toy_domains(), np.random.default_rng(0)
    noise = rng.normal(size=(200, toy.x_target.shape[1]))
    with pytest.warns(UniotWarning):
        UniNCM(random_state=0).fit(toy.x_source, toy.y_source, noise)


def test_a_loaded_run_decides_as_before(tmp_path):
    toy = make_toy_domains()
    model = UniNCM(random_state=0).fit(toy.x_source, toy.y_source, toy.x_target)
    model.save(tmp_path / "run")
    assert (UniDAClassifier.load(tmp_path / "run").predict(toy.x_target) == model.labels_).all()
