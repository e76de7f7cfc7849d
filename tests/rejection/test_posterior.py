"""The line between known and unknown after a person's answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uniot.errors import DataError, RunFolderError
from uniot.io.tensor_files import StoredTensors
from uniot.rejection import CANNOT_TELL, UNKNOWN, Answers, RejectionPosterior, TargetScores, fit_posterior
from uniot.rejection.answers import answer_index
from uniot.rejection.local import LocalShift
from uniot.rejection.posterior import Hypotheses, ScoreScale
from uniot.rejection.questions import questions


def made_target(n: int = 400, private: float = 0.5, rejected: float | None = None, seed: int = 0):
    """Scores that rank known above private samples with some overlap, and the truth: a class, or UNKNOWN."""
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(n) < private * n, UNKNOWN, rng.integers(0, 4, n))
    log_odds = np.where(truth == UNKNOWN, -1.5, 1.5) + rng.normal(size=n)
    nearest = np.where(truth == UNKNOWN, rng.integers(0, 4, n), truth)
    # A cluster per class, and four private ones.
    clusters = np.where(truth == UNKNOWN, 4 + np.arange(n) % 4, truth)
    rows = np.eye(8, 32)[clusters] + 0.03 * rng.normal(size=(n, 32))
    features = torch.nn.functional.normalize(torch.from_numpy(rows).float(), dim=1)
    if rejected is not None:
        # The rule puts its line elsewhere.
        log_odds -= np.quantile(log_odds, rejected)
    odds = torch.from_numpy(np.exp(log_odds))
    return TargetScores(odds, torch.from_numpy(nearest), features, float((odds < 1).double().mean())), truth


def asked(target: TargetScores, truth: np.ndarray, n: int, wrong: tuple[int, ...] = ()) -> tuple[Answers, object]:
    answers, posterior = Answers(), fit_posterior(target, Answers())
    for place in range(n):
        row = int(questions(posterior, target, answers)[0])
        said = truth[row] if place not in wrong else (0 if truth[row] == UNKNOWN else UNKNOWN)
        answers = answers.told([row], [said])
        posterior = fit_posterior(target, answers)
    return answers, posterior


def called_known(posterior: RejectionPosterior, target: TargetScores) -> np.ndarray:
    known = posterior.known_probability(target.odds, target.nearest, target.features)
    return (known >= posterior.threshold).numpy()


@pytest.mark.parametrize("rejected", [0.02, 0.5, 0.98])
def test_ten_answers_find_the_line_wherever_the_rule_put_it(rejected):
    target, truth = made_target(rejected=rejected)
    _, posterior = asked(target, truth, 10)
    assert (called_known(posterior, target) == (truth != UNKNOWN)).mean() > 0.85


@pytest.mark.parametrize(("private", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_target_without_private_or_without_common_samples_is_recognised_by_ten_answers(private, expected):
    target, truth = made_target(private=private, rejected=0.5)
    _, posterior = asked(target, truth, 10)
    assert abs(called_known(posterior, target).mean() - expected) < 0.03


def test_one_wrong_answer_in_ten_does_not_ruin_the_line():
    target, truth = made_target()
    _, posterior = asked(target, truth, 10, wrong=(4,))
    assert (called_known(posterior, target) == (truth != UNKNOWN)).mean() > 0.8


def test_interval_contains_the_share_of_unknown_samples_and_narrows_with_the_answers():
    for seed in range(5):
        target, truth = made_target(private=0.4, seed=seed)
        before = fit_posterior(target, Answers()).share_interval()
        _, posterior = asked(target, truth, 12)
        low, high = posterior.share_interval()
        assert low - 0.03 <= 0.4 <= high + 0.03
        assert high - low < 0.5 * (before[1] - before[0])


def test_answer_about_one_private_cluster_moves_that_cluster_and_not_another():
    target, truth = made_target(n=800)
    clusters = target.features.argmax(dim=1)
    # The rule takes one private cluster for known.
    odds = target.odds.clone()
    odds[clusters == 5] = odds[clusters == 1].mean()
    target = TargetScores(odds, target.nearest, target.features, target.rejected)
    rows = [int(torch.nonzero(clusters == cluster)[k]) for cluster in (0, 1, 2, 5, 5, 6) for k in range(2)]
    before = fit_posterior(target, Answers())
    after = fit_posterior(target, Answers().told(rows, truth[rows]))
    assert called_known(before, target)[clusters == 5].mean() > 0.9
    assert called_known(after, target)[clusters == 5].mean() < 0.1
    assert called_known(after, target)[clusters == 1].mean() > 0.9


def test_cannot_tell_has_no_effect_on_the_line_but_is_not_asked_again():
    target, _ = made_target()
    row = int(questions(fit_posterior(target, Answers()), target, Answers())[0])
    answers = Answers().told([row], [CANNOT_TELL])
    before, after = fit_posterior(target, Answers()), fit_posterior(target, answers)
    assert torch.equal(before.hypotheses.log_weight, after.hypotheses.log_weight)
    assert after.threshold == before.threshold
    assert row not in questions(after, target, answers, 50).tolist()


def test_first_questions_are_about_the_lowest_and_the_highest_scores():
    target, _ = made_target()
    first, second = questions(fit_posterior(target, Answers()), target, Answers(), 2).tolist()
    rank = target.odds.argsort().argsort()
    assert rank[first] < 0.1 * len(rank)
    assert rank[second] >= 0.9 * len(rank)


def test_third_question_is_about_a_region_without_an_answer():
    target, truth = made_target()
    clusters = target.features.argmax(dim=1)
    answers, _ = asked(target, truth, 3)
    first, second, third = clusters[answers.rows].tolist()
    assert third not in (first, second)


def mirrored_target(n: int = 200):
    """Two clusters on opposite sides, a common and a private class, with the same scores."""
    rng = np.random.default_rng(0)
    truth = np.where(np.arange(n) < n // 2, 0, UNKNOWN)
    nearest = np.where(truth == UNKNOWN, 1, 0)
    rows = np.where(truth == UNKNOWN, -1, 1)[:, None] * np.eye(1, 16) + 0.03 * rng.normal(size=(n, 16))
    features = torch.nn.functional.normalize(torch.from_numpy(rows).float(), dim=1)
    odds = torch.from_numpy(np.exp(2 + rng.normal(size=n)))
    return TargetScores(odds, torch.from_numpy(nearest), features, 0.0), truth


def test_with_two_classes_a_question_contradicts_the_score():
    target, truth = mirrored_target()
    # The private class is asked about at its low end and the common one at its high end, as if the score were right.
    low = int(target.z.masked_fill(torch.from_numpy(truth != UNKNOWN), torch.inf).argmin())
    high = int(target.z.masked_fill(torch.from_numpy(truth == UNKNOWN), -torch.inf).argmax())
    answers = Answers().told([low, high], truth[[low, high]])
    row = int(questions(fit_posterior(target, answers), target, answers)[0])
    rank = target.z.argsort().argsort()[row] / len(truth)
    assert rank > 0.8 if truth[row] == UNKNOWN else rank < 0.2


def test_private_class_that_mirrors_the_common_one_is_found_by_eight_answers():
    target, truth = mirrored_target()
    _, posterior = asked(target, truth, 8)
    assert (called_known(posterior, target) == (truth != UNKNOWN)).mean() > 0.9


def test_questions_at_once_are_different_samples_and_as_many_as_there_are():
    target, _ = made_target(n=30)
    found = questions(fit_posterior(target, Answers()), target, Answers(), 100)
    assert sorted(found.tolist()) == list(range(30))


def test_questions_are_about_regions_without_an_answer():
    rows = torch.eye(2, 4)[torch.arange(100) % 2]
    target = TargetScores(torch.ones(100, dtype=torch.float64), torch.zeros(100, dtype=torch.long), rows, 0.5)
    for answered in (0, 1):
        answers = Answers().told([answered], [0])
        assert int(questions(fit_posterior(target, answers), target, answers)[0]) % 2 != answered


def test_questions_are_the_same_each_time():
    target, truth = made_target()
    assert asked(target, truth, 6)[0].rows.tolist() == asked(target, truth, 6)[0].rows.tolist()


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=600))
def test_score_is_the_rank_whatever_the_scale_of_the_odds(values):
    odds = torch.tensor(values, dtype=torch.float64)
    score = ScoreScale.of(odds)(odds)
    assert torch.isfinite(score).all()
    order = odds.argsort()
    assert (score[order].diff() >= -1e-9).all()


def test_score_of_new_odds_stays_within_those_of_the_target():
    odds = torch.linspace(0.1, 10, 50, dtype=torch.float64)
    scale = ScoreScale.of(odds)
    new = scale(torch.tensor([0.0, 1e9], dtype=torch.float64))
    assert new.tolist() == [float(scale.values[0]), float(scale.values[-1])]


def test_threshold_of_a_hypothesis_makes_its_share_unknown():
    z = ScoreScale.of(made_target()[0].odds)(made_target()[0].odds)
    prior = Hypotheses.prior(z, 0.5)
    known = prior.known_probability(z, torch.ones_like(z))
    assert torch.allclose(1 - known[:, :-3].mean(dim=0), prior.share[:-3], atol=5e-3)
    assert float(prior.weight.sum()) == pytest.approx(1)


def test_nothing_private_is_the_more_probable_the_more_the_rule_calls_known():
    z = torch.linspace(-3, 3, 100, dtype=torch.float64)
    rejected = (0.0, 0.1, 0.5, 0.9, 1.0)
    masses = torch.stack([Hypotheses.prior(z, share).weight[-2:] for share in rejected])
    assert (masses[:, 0].diff() <= 0).all()
    assert (masses[:, 1].diff() >= 0).all()
    assert (masses > 0).all(), "answers must be able to support what the rule denies"
    few = torch.stack([Hypotheses.prior(z, share, has_few_classes=True).weight[-2:] for share in rejected])
    assert torch.allclose(few, masses[2].expand(5, 2))


def test_interval_without_answers_tells_something_only_if_the_rule_is_clear_and_there_are_many_classes():
    target, _ = made_target()
    many = torch.arange(len(target.odds)) % 9

    def interval(nearest: torch.Tensor, rejected: float) -> tuple[float, float]:
        scores = TargetScores(target.odds, nearest, target.features, rejected)
        return fit_posterior(scores, Answers()).share_interval()

    assert interval(many, 0.5) == (0, 1)
    assert interval(many, 0.01)[0] == 0
    assert interval(many, 0.01)[1] < 0.5
    assert interval(many % 4, 0.01) == (0, 1)


def test_local_shift_follows_its_answers():
    rows = torch.eye(3, 8)
    known = torch.tensor([True, False, True])
    shift, _ = LocalShift.fit(
        rows, torch.tensor([0, 1, 2]), torch.zeros(3, dtype=torch.float64), known, torch.tensor(0.1)
    )
    moved = shift(rows, torch.tensor([0, 1, 2]))
    assert (torch.sign(moved) == torch.tensor([1.0, -1.0, 1.0])).all()


def test_posterior_is_read_back_as_it_was_stored_and_damage_is_refused():
    target, truth = made_target()
    _, posterior = asked(target, truth, 5)
    tensors = posterior.tensors()
    again = RejectionPosterior.read(StoredTensors("run", tensors), target.features.shape[1], 4)
    assert np.array_equal(called_known(again, target), called_known(posterior, target))
    damaged = {**tensors, "scale.knots": tensors["scale.knots"].flip(0)}
    with pytest.raises(RunFolderError, match="line is damaged"):
        RejectionPosterior.read(StoredTensors("run", damaged), target.features.shape[1], 4)


def test_last_answer_about_a_sample_counts():
    answers = Answers().told([3, 5], [0, 1]).told([3], [UNKNOWN])
    assert answers.rows.tolist() == [5, 3]
    assert answers.classes.tolist() == [1, UNKNOWN]


@pytest.mark.parametrize(
    ("answer", "expected"), [("cat", 0), ("unknown", UNKNOWN), (None, CANNOT_TELL), (np.str_("dog"), 1)]
)
def test_answers_are_classes_unknown_or_none(answer, expected):
    assert answer_index(answer, np.array(["cat", "dog"]), "unknown") == expected


def test_class_that_does_not_exist_is_refused_with_the_most_similar_name():
    with pytest.raises(DataError, match="there is no class 'calculater'. Did you mean 'calculator'"):
        answer_index("calculater", np.array(["calculator", "mug"]), "unknown")
    with pytest.raises(DataError, match="there is no class 'True'"):
        answer_index(True, np.array([0, 1]), -1)


def test_answers_about_rows_that_do_not_exist_are_refused():
    with pytest.raises(DataError, match="about rows 2 to 9, and the target has rows 0 to 4"):
        Answers().told([2, 9], [0, 0]).check(5, 3)
    with pytest.raises(DataError, match="name classes 0 to 7, and there are 3"):
        Answers().told([2, 3], [0, 7]).check(5, 3)


def test_answers_that_agree_with_a_rule_that_rejects_nothing_do_not_make_it_reject():
    target, truth = made_target(private=0.0, rejected=0.0)
    for n_answers in (3, 5, 10):
        _, posterior = asked(target, truth, n_answers)
        assert called_known(posterior, target).mean() > 0.97


def test_regions_that_explain_the_answers_speak_against_nothing_private_and_nothing_common():
    target, _ = made_target()
    prior = target.prior
    gained = prior.explained(3.0)
    assert float(gained.weight.sum()) == pytest.approx(1)
    ratio = gained.weight / prior.weight
    # Those two lose by the same factor, and all others gain against them by e to the gain.
    assert torch.allclose(ratio[-2], ratio[-1])
    assert torch.allclose(ratio[:-2] / ratio[-1], torch.full_like(ratio[:-2], np.exp(3.0)))


def test_later_questions_are_also_about_samples_of_uncertain_class():
    target, truth = made_target(n=400, private=0.0)
    # Half of the samples of each class are as near to the next class.
    uncertain = torch.arange(400) % 2 == 0
    log_odds = torch.full((400, 4), -8.0, dtype=torch.float64)
    log_odds.scatter_(1, target.nearest[:, None], 0.0)
    log_odds[uncertain] = log_odds[uncertain].scatter(1, ((target.nearest[uncertain] + 1) % 4)[:, None], -0.01)
    with_classes = replace(target, class_log_odds=log_odds)
    answers, _ = asked(with_classes, truth, 12)
    about_classes = answers.rows[[4, 6, 8, 10]]
    assert uncertain[about_classes].all()
    assert not uncertain[asked(target, truth, 12)[0].rows[[4, 6, 8, 10]]].all()


@pytest.mark.parametrize("size", [1, 70, 399, 400])
def test_large_targets_are_decided_in_blocks_as_small_ones_are_at_once(size, monkeypatch):
    whole, truth = made_target()
    answers, expected = asked(whole, truth, 6)
    monkeypatch.setattr("uniot.rejection.posterior._ROWS_AT_ONCE", size)
    target, _ = made_target()
    posterior = fit_posterior(target, answers)
    assert posterior.threshold == pytest.approx(expected.threshold, rel=1e-9)
    of = (target.odds, target.nearest, target.features)
    torch.testing.assert_close(posterior.known_probability(*of), expected.known_probability(*of), rtol=1e-9, atol=0)
