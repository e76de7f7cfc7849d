"""Which target samples to ask about."""

from __future__ import annotations

import torch
from torch import Tensor

from uniot.rejection.answers import Answers
from uniot.rejection.local import nearness
from uniot.rejection.posterior import RejectionPosterior, TargetScores

# Samples that are compared: this part of the target, nearest to what is asked about.
_PART = 0.05


def questions(
    posterior: RejectionPosterior, target: TargetScores, answers: Answers, n: int = 1, known: Tensor | None = None
) -> Tensor:
    """Return the rows of the target whose answers say most, (n,), the most important first.

    The first question is about the samples of lowest score and the second about those of highest score, which tell
    whether anything is private and whether anything is common; the others alternate between the probability of one
    half and the present threshold. Among the candidates, one in a dense region without an answer is taken.

    Args:
        posterior: after the answers so far.
        target: scores, nearest classes and features of the target.
        answers: which samples need no question; those that move the line were questions before.
        n: number of rows; fewer if fewer are left.
        known: probability of being known by the posterior, (n_samples,); computed if None.
    """
    if known is None:
        known = posterior.known_probability(target.odds, target.nearest, target.features)
    n_samples = len(known)
    free = torch.ones(n_samples, dtype=torch.bool)
    free[torch.from_numpy(answers.rows)] = False
    chosen = answers.rows.tolist()
    n_asked = int(answers.moves_line.sum())
    for place in range(n_asked, n_asked + min(n, int(free.sum()))):
        candidates = _candidates(place, known, posterior.threshold, target.odds, free)
        value = nearness(target.features[candidates], target.representatives, target.region).mean(dim=1)
        if chosen:
            nearest = nearness(target.features[candidates], target.features[chosen], target.region).amax(dim=1)
            value = value * (1 - nearest)
        best = int(candidates[int(value.argmax())])
        free[best] = False
        chosen.append(best)
    return torch.tensor(chosen[len(answers) :], dtype=torch.long)


def _candidates(place: int, known: Tensor, threshold: float, odds: Tensor, free: Tensor) -> Tensor:
    rows = torch.nonzero(free).flatten()
    most = max(1, -(-int(_PART * 100) * len(known) // 100))
    if place == 0:
        distance = odds[rows]
    elif place == 1:
        distance = -odds[rows]
    elif place % 2 == 0:
        distance = (known[rows] - 0.5).abs()
    else:
        rank = torch.argsort(torch.argsort(known, stable=True), stable=True)
        distance = (rank[rows] - int((known < threshold).sum())).abs().double()
    return rows[torch.argsort(distance, stable=True)[:most]]
