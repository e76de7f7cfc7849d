"""Which target samples to ask about."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uniot.rejection.answers import UNKNOWN, Answers
from uniot.rejection.local import nearness
from uniot.rejection.posterior import RejectionPosterior, TargetScores

# Samples that are compared: these parts of the target, of lowest or highest score or contradicting most, of the least
# certain label, and nearest to the line.
_PART_AT_ENDS, _PART_UNCERTAIN, _PART_AT_LINE = 0.1, 0.1, 0.05
# Questions at the ends of the score, and questions that are spread over regions after them, with few classes two.
_AT_ENDS, _SPREAD, _SPREAD_OF_FEW = 2, 1, 2
# With so few nearest classes, a whole class is often private although its scores are high.
_FEW_CLASSES = 2


def questions(
    posterior: RejectionPosterior, target: TargetScores, answers: Answers, n: int = 1, known: Tensor | None = None
) -> Tensor:
    """Return the rows of the target whose answers say most, (n,), the most important first.

    The first question is about the samples of lowest score and the second about those of highest score, which tell
    whether anything is private and whether anything is common. The third is about the largest region without an answer.
    The others alternate between the least certain label, a class or unknown, and the present threshold. Among the
    candidates, one in a dense region without an answer is taken.

    If the target has two nearest classes, one of them may be private as a whole, whatever its scores: there, the third
    and the fourth question are about samples whose score contradicts the answer about their class most, as soon as
    there are answers of both kinds.

    Args:
        posterior: after the answers so far.
        target: scores, nearest classes and features of the target.
        answers: which samples need no question; those that move the line were questions before.
        n: number of rows; fewer if fewer are left.
        known: probability of being known by the posterior, (n_samples,); computed if None.
    """
    if known is None:
        known = posterior.known_probability(target.odds, target.nearest, target.features)
    free = torch.ones(len(known), dtype=torch.bool)
    free[torch.from_numpy(answers.rows)] = False
    chosen = answers.rows.tolist()
    n_asked = int(answers.moves_line.sum())
    certainty = _label_certainty(posterior, target, known)
    for place in range(n_asked, n_asked + min(n, int(free.sum()))):
        candidates = _candidates(place, known, certainty, posterior.threshold, target, answers, free)
        value = nearness(target.features[candidates], target.representatives, target.region).mean(dim=1)
        if chosen:
            nearest = nearness(target.features[candidates], target.features[chosen], target.region).amax(dim=1)
            value = value * (1 - nearest)
        best = int(candidates[int(value.argmax())])
        free[best] = False
        chosen.append(best)
    return torch.tensor(chosen[len(answers) :], dtype=torch.long)


def _label_certainty(posterior: RejectionPosterior, target: TargetScores, known: Tensor) -> Tensor:
    """Return the probability of the present label of each sample, a class or unknown, (n_samples,), float64."""
    of_class = torch.ones_like(known)
    if target.class_log_odds is not None:
        log_odds, shift = target.class_log_odds.double(), posterior.class_shift
        moved = log_odds if shift is None else shift(log_odds, target.features)
        of_class = moved.softmax(dim=1).max(dim=1).values
    return torch.where(known >= posterior.threshold, known * of_class, 1 - known)


def _candidates(
    place: int,
    known: Tensor,
    certainty: Tensor,
    threshold: float,
    target: TargetScores,
    answers: Answers,
    free: Tensor,
) -> Tensor:
    """Return the free rows that the question at a place may be about, (n_candidates,)."""
    rows, part = torch.nonzero(free).flatten(), _PART_AT_LINE
    has_few_classes = len(torch.unique(target.nearest)) <= _FEW_CLASSES
    if place < _AT_ENDS:
        distance, part = target.odds[rows] * (1 if place == 0 else -1), _PART_AT_ENDS
    elif place < _AT_ENDS + (_SPREAD_OF_FEW if has_few_classes else _SPREAD):
        said = answers.evidence
        if not has_few_classes or len(np.unique(said.classes == UNKNOWN)) < 2:
            return rows
        distance, part = -_contradiction(rows, target, said), _PART_AT_ENDS
    elif place % 2 == 0:
        distance, part = certainty[rows], _PART_UNCERTAIN
    else:
        rank = torch.argsort(torch.argsort(known, stable=True), stable=True)
        distance = (rank[rows] - int((known < threshold).sum())).abs().double()
    most = max(1, -(-int(part * 100) * len(known) // 100))
    return rows[torch.argsort(distance, stable=True)[:most]]


def _contradiction(rows: Tensor, target: TargetScores, said: Answers) -> Tensor:
    """Return how much the score of rows speaks against an answer about their nearest class, (n_rows,), float64.

    High scores speak against "unknown", low ones against a class.
    """
    found = torch.full((len(rows),), -torch.inf, dtype=torch.float64)
    for row, answer in zip(said.rows.tolist(), said.classes.tolist(), strict=True):
        score = target.z[rows] if answer == UNKNOWN else -target.z[rows]
        found = torch.where(target.nearest[rows] == target.nearest[row], torch.maximum(found, score), found)
    return found
