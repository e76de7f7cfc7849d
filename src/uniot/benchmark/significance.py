"""Test whether two methods differ: a paired permutation test, with Holm's correction for several methods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MIN_PAIRS = 6
"""Smallest number of pairs of a test: with five, every p-value exceeds 0.05."""
# 2^20 sums are a million numbers.
_MOST_EXACT_PAIRS = 20
_N_DRAWS = 100_000
_BLOCK_DRAWS = 10_000


def sign_flip_p_value(differences: Sequence[float], *, seed: int = 0) -> float | None:
    """Return the two-sided p-value of a paired permutation test of the mean difference.

    If two methods are equal, each difference could have had the other sign. The p-value is the fraction of all choices
    of signs whose mean is at least as far from zero as the observed one; with more than 20 pairs, of 100 000 random
    choices and the observed one.

    Pairs are taken as independent: over tasks and seeds, the test is about these tasks with other seeds. A method that
    ignores the seed repeats its scores, so give one pair per task of two such methods.

    Args:
        differences: difference of the scores per pair.
        seed: random seed of the choices.

    Returns:
        The p-value, or None for fewer than `MIN_PAIRS` pairs.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < MIN_PAIRS:
        return None
    # The observed signs occur again in another order of summation, which changes the sum by rounding.
    threshold = abs(values.sum()) - 1e-12 * np.abs(values).sum()
    if len(values) <= _MOST_EXACT_PAIRS:
        return float(np.mean(np.abs(_all_sums(values)) >= threshold))
    generator = np.random.default_rng(seed)
    reached = 0
    for _ in range(_N_DRAWS // _BLOCK_DRAWS):
        signs = generator.integers(0, 2, (_BLOCK_DRAWS, len(values)), dtype=np.int8) * 2 - 1
        reached += int(np.sum(np.abs(signs @ values) >= threshold))
    return (1 + reached) / (1 + _N_DRAWS)


def _all_sums(values: np.ndarray) -> np.ndarray:
    """Return the sum of the values for every choice of signs, (2^n,)."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate((sums + value, sums - value))
    return sums


def holm_corrected(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p-values with Holm's correction for their number; None stays None and is not counted.

    Corrected values that are at most α name a set of differences that holds a false one with a chance of at most α.
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        corrected[place] = largest
    return corrected
