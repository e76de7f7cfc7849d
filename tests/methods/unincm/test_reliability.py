from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from uniot import UniDAClassifier, UniNCM
from uniot.datasets.digits import make_toy_domains
from uniot.errors import UniotWarning
from uniot.methods.decision import answer_probability
from uniot.methods.unincm import reliability
from uniot.methods.unincm.reliability import TargetStatistics, agreement_of_halves, assess

GOOD = TargetStatistics(
    stability=0.95,
    certainty=0.95,
    imbalance=0.06,
    agreement=0.9,
    presence=torch.tensor([0.99, 0.98, 0.5, 0.01]),
)
CLASSES = ["bike", "mug", "pen", "tape"]


def assessed(n_target: int = 500, known_fraction: float = 0.7, **changed: float):
    return assess(replace(GOOD, **changed), n_target=n_target, known_fraction=known_fraction, classes=CLASSES)


def test_a_clear_target_is_not_warned_of():
    found = assessed()
    assert found.accuracy > 0.8
    assert found.known_accuracy > 0.9
    assert found.warnings == ()


@pytest.mark.parametrize("changed", [{"stability": 0.6}, {"certainty": 0.7}])
def test_accuracy_falls_with_each_statistic(changed):
    assert assessed(**changed).accuracy < assessed().accuracy


def test_accuracy_is_the_mean_over_known_and_unknown_samples():
    known, unknown = assessed(known_fraction=1.0), assessed(known_fraction=0.0)
    assert known.accuracy == known.known_accuracy
    assert unknown.known_accuracy is None
    assert assessed(known_fraction=0.25).accuracy == pytest.approx(0.25 * known.accuracy + 0.75 * unknown.accuracy)


def test_size_counts_no_further_than_it_was_fitted():
    assert assessed(n_target=1500) == assessed(n_target=10**6)
    assert assessed(n_target=2).accuracy == assessed(n_target=26).accuracy < assessed(n_target=100).accuracy


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"stability": 0.5, "certainty": 0.7}, "labels cannot be trusted: an estimated 31 % are right."),
        ({"stability": 0.65, "certainty": 0.78}, "many labels are probably wrong: an estimated 54 % are right."),
    ],
)
def test_each_reason_is_given_in_words(changed, words):
    (warning,) = assessed(**changed).warnings
    assert words in warning


def test_few_wrong_labels_among_many_unknown_samples_are_doubted_on_their_own():
    poor = {"stability": 0.6, "certainty": 0.6, "imbalance": 0.3, "presence": torch.tensor([0.9, 0.9, 0.1, 0.1])}
    found = assessed(known_fraction=0.05, **poor)
    assert found.accuracy > 0.6
    right = f"an estimated {100 * found.known_accuracy:.0f} % are right."
    assert found.warnings[0] == f"the samples called known are probably labelled wrong: {right}"
    assert found.known_accuracy < 0.6
    assert not any("called known" in words for words in assessed(known_fraction=0.0, **poor).warnings)
    # If most answers are doubted anyway, that is said once.
    assert ["called known" in words for words in assessed(known_fraction=0.9, **poor).warnings] == [False]


# An estimate between 0.6 and 0.7, which is not warned of by itself.
FAIR = {"stability": 0.7, "certainty": 0.82}


def test_one_single_class_is_warned_of_unless_the_estimate_is_high():
    assert 0.6 < assessed(**FAIR).accuracy < 0.7
    assert assessed(**FAIR).warnings == ()
    (warning,) = assessed(agreement=0.49, **FAIR).warnings
    assert "either most samples are of one single class" in warning
    assert assessed(agreement=0.49).warnings == ()


def test_only_classes_that_are_neither_found_nor_excluded_might_be_present():
    unclear = {"stability": 0.8, "certainty": 0.85, "imbalance": 0.06}
    (warning,) = assessed(known_fraction=0.22, **unclear).warnings
    assert warning.startswith("78 % unknown: perhaps the target merely looks different;")
    assert warning.endswith("might be present: pen.")
    sure = torch.tensor([0.99, 0.98, 0.01, 0.01])
    assert assessed(known_fraction=0.22, presence=sure, **unclear).warnings == ()
    assert assessed(known_fraction=0.22).warnings == ()


def test_without_statistics_only_other_warnings_are_left():
    found = assess(None, n_target=50, known_fraction=0.5, classes=CLASSES, others=["few."])
    assert (found.accuracy, found.known_accuracy, found.unknown_accuracy) == (None, None, None)
    assert (found.warnings, found.sentence) == (("few.",), "")


def test_accuracies_of_known_and_unknown_make_up_the_whole():
    found = assessed(known_fraction=0.75)
    assert found.accuracy == pytest.approx(0.75 * found.known_accuracy + 0.25 * found.unknown_accuracy)
    assert assessed(known_fraction=0).known_accuracy is None
    assert assessed(known_fraction=1).unknown_accuracy is None


def test_answer_probability_is_that_of_the_answer_given():
    # Known at a probability of one half: a share of one. Two equal classes halve that of the class.
    found = answer_probability(torch.tensor([[1.0, 0.0], [1.0, 1.0], [1e-9, 0.0]], dtype=torch.float64))
    assert found.tolist() == pytest.approx([0.5, 0.25, 1.0])


def test_halves_agree_on_separate_classes_and_by_chance_on_noise():
    generator = torch.Generator().manual_seed(0)
    prototypes = F.normalize(torch.randn(5, 64, generator=generator), dim=1)
    clear = prototypes.repeat(40, 1)
    noise = F.normalize(torch.randn(1000, 64, generator=generator), dim=1)
    assert agreement_of_halves(clear, prototypes, generator) == pytest.approx(1)
    assert abs(agreement_of_halves(noise, prototypes, generator)) < 0.1


def test_agreement_is_cohens_kappa_of_the_two_halves(monkeypatch):
    from sklearn.metrics import cohen_kappa_score

    monkeypatch.setattr(reliability, "_HALVINGS", 1)
    prototypes = F.normalize(torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    # Most rows lean to one side, so that each half has another favourite among the classes.
    rows = F.normalize(torch.randn(400, 6, generator=torch.Generator().manual_seed(1)) + 1, dim=1)
    found = agreement_of_halves(rows, prototypes, torch.Generator().manual_seed(2))
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(2))).Q
    one, other = (
        (rows @ half @ F.normalize(prototypes @ half, dim=1).t()).argmax(dim=1) for half in rotation.split(3, 1)
    )
    assert found == pytest.approx(cohen_kappa_score(one, other), abs=1e-3)


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
