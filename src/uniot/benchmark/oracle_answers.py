"""Simulate a person who answers a model's questions with the true labels of the target, and score what follows.

Nothing else sees these labels. Samples that were asked about do not count in the scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.discovery.label_order import RUN_WEIGHT, Neighbourhoods, spread_labels
from uniot.metrics.evaluate import evaluate
from uniot.metrics.ranking import best_threshold_h_score
from uniot.rejection.answers import UNKNOWN, Answers

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel

COUNTS = (0, 3, 5, 10, 20, 50)
"""Numbers of answers after which the model is scored."""
ASKED, RANDOM, QUANTILES, PROPAGATION = "asked", "random", "quantiles", "propagation"
ORDERS = (ASKED, RANDOM, QUANTILES, PROPAGATION)
"""Ways to choose samples: by `ask`, at random, evenly by score; at random with label propagation instead of `tell`."""
WRONG_SHARES = (0.0, 0.05, 0.1)
"""Fractions of wrong answers; the other orders than that of `ask` have none."""


@dataclass(frozen=True)
class AnswerScore:
    """Scores of a model after some simulated answers, as fractions.

    Attributes:
        order: one of `ORDERS`.
        wrong: fraction of wrong answers.
        n_answers: number of answers.
        score: H-score on the samples without an answer; accuracy on common classes if nothing is private, recall of
            unknown if nothing is common.
        oracle: score of the best threshold on the odds of the rule, on the same samples.
        rejected: fraction of all samples that are labelled unknown.
        private: true fraction of unknown samples.
        low: lower end of the interval for that fraction.
        high: upper end of the interval.
    """

    order: str
    wrong: float
    n_answers: int
    score: float
    oracle: float
    rejected: float
    private: float
    low: float
    high: float


def oracle_answers(model: AdaptedModel, truth: np.ndarray, seed: int) -> list[AnswerScore]:
    """Score a model after simulated answers, in every order and with every fraction of wrong answers.

    Args:
        model: fitted, without answers.
        truth: true labels of the target, (n_target,).
        seed: of random orders and of wrong answers.
    """
    person = _person(model, truth, seed)
    rows = [person.score(ASKED, 0.0, model, Answers())]
    for wrong in WRONG_SHARES:
        rows += person.asked(wrong)
    rows += person.in_order(RANDOM)
    rows += person.in_order(QUANTILES)
    rows += person.propagated()
    return rows


def scores_after_questions(model: AdaptedModel, truth: np.ndarray, counts: Sequence[int]) -> list[AnswerScore]:
    """Score a model after true answers to its own questions.

    Args:
        model: fitted, without answers.
        truth: true labels of the target, (n_target,).
        counts: numbers of answers, ascending; 0 is the model as it is.

    Returns:
        A row per number, without those that would leave less than half of the target to score.
    """
    return list(_person(model, truth, seed=0).asked(0.0, counts))


def _person(model: AdaptedModel, truth: np.ndarray, seed: int) -> _Person:
    index = {label: place for place, label in enumerate(model.classes.tolist())}
    return _Person(model, np.array([index.get(label, UNKNOWN) for label in truth.tolist()]), truth, seed)


class _Person:
    """A simulated person, who answers questions about the target of a model.

    Args:
        model: without answers.
        classes: true class of each target sample, or `UNKNOWN`, (n_target,).
        truth: true labels, (n_target,).
        seed: of random orders and of wrong answers.
    """

    def __init__(self, model: AdaptedModel, classes: np.ndarray, truth: np.ndarray, seed: int) -> None:
        self._model, self._classes, self._truth = model, classes, truth
        rng = np.random.default_rng([seed, 1])
        self._errs = rng.random(len(classes))
        self._shuffled = rng.permutation(len(classes))

    def answer(self, row: int, wrong: float) -> int:
        """Return the answer about a row; a wrong one calls a common sample unknown, or names the nearest class."""
        true = int(self._classes[row])
        if self._errs[row] >= wrong:
            return true
        return int(self._model.target_nearest[row]) if true == UNKNOWN else UNKNOWN

    def asked(self, wrong: float, counts: Sequence[int] = COUNTS[1:]) -> Iterator[AnswerScore]:
        """Yield the scores while the model chooses the samples."""
        model = self._model
        if 0 in counts:
            yield self.score(ASKED, wrong, model, model.answers)
        for count in range(1, self._most(counts[-1]) + 1):
            row = int(model.ask()[0])
            model = model.with_answers(model.answers.told([row], [self.answer(row, wrong)]))
            if count in counts:
                yield self.score(ASKED, wrong, model, model.answers)

    def in_order(self, order: str) -> Iterator[AnswerScore]:
        """Yield the scores if samples are taken at random or evenly by score."""
        for answers in self._given(order):
            yield self.score(order, 0.0, self._model.with_answers(answers), answers)

    def propagated(self) -> Iterator[AnswerScore]:
        """Yield the scores if labels of random samples are propagated over nearest neighbours."""
        model = self._model
        graph = Neighbourhoods.of(model.target_features, self._shuffled[: COUNTS[-1]].tolist())
        n_classes = len(model.classes)
        believed = np.where(model.target.known, model.target.nearest, n_classes)[graph.rows]
        votes = np.zeros((len(believed), n_classes + 1))
        votes[np.arange(len(believed)), believed] = RUN_WEIGHT * np.maximum(model.target.confidence[graph.rows], 1e-6)
        for answers in self._given(RANDOM):
            labelled = np.searchsorted(graph.rows, answers.rows)
            found = spread_labels(graph, votes, labelled, np.where(answers.classes < 0, n_classes, answers.classes))
            best = found.argmax(axis=1)[graph.representative]
            labels = np.array([*model.classes.tolist(), model.unknown])[best]
            yield self._scored(PROPAGATION, 0.0, labels, answers, (0.0, 1.0))

    def score(self, order: str, wrong: float, model: AdaptedModel, answers: Answers) -> AnswerScore:
        """Return the scores of a model after answers."""
        return self._scored(order, wrong, model.labels(model.target), answers, model.private_share_interval)

    def _scored(
        self, order: str, wrong: float, labels: np.ndarray, answers: Answers, interval: tuple[float, float]
    ) -> AnswerScore:
        model = self._model
        kept = np.ones(len(labels), dtype=bool)
        kept[answers.rows] = False
        truth = self._truth[kept]
        found = evaluate(truth, labels[kept].tolist(), source_classes=model.classes, unknown=model.unknown)
        oracle = best_threshold_h_score(
            truth,
            model.classes[model.target_nearest[kept]],
            model.target_odds[kept],
            source_classes=model.classes,
            unknown=model.unknown,
        )
        return AnswerScore(
            order,
            wrong,
            len(answers),
            found.h_score,
            oracle,
            float((labels == model.unknown).mean()),
            float((self._classes == UNKNOWN).mean()),
            *interval,
        )

    def _given(self, order: str) -> Iterator[Answers]:
        by_score = np.argsort(self._model.target_odds, kind="stable")
        for count in COUNTS[1:]:
            if count > self._most(count):
                return
            rows = self._shuffled[:count]
            if order == QUANTILES:
                rows = by_score[((np.arange(count) + 0.5) / count * len(by_score)).astype(np.int64)]
            yield Answers(rows, self._classes[rows])

    def _most(self, count: int) -> int:
        """Return how many samples can be asked about, so that some are left to score."""
        return min(count, len(self._classes) // 2)
