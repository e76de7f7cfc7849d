"""Warnings that the data themselves give, whatever the method: in words, for `fit`, the command line and the report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uniot.words import counted, listed, plural

# Trials with parts of Office-31: from about this size on, unknown samples are found reliably.
FEW_SAMPLES = 100
# A class mean of fewer labelled samples is mostly the noise of these.
_FEW_LABELLED = 3
# Below this share of distinct samples, neighbours are copies rather than evidence.
_FEW_DISTINCT = 0.5
_MOST_NAMES = 5
# Features that differ by less are those of copies; their last digits depend on the batch.
_DIGITS = 4


def data_warnings(
    features: np.ndarray, known: np.ndarray, n_target: int, classes: Sequence[object], class_sizes: Sequence[int]
) -> tuple[str, ...]:
    """Return what the data give reason to doubt, as sentences.

    Args:
        features: of some target samples, unit rows, (n_samples, n_features).
        known: whether the rule calls each target sample known, (n_target,).
        n_target: target samples in all.
        classes: names of the classes, (c,).
        class_sizes: labelled samples of each, (c,).
    """
    return (
        *_few_samples(n_target),
        *_nothing_known(known),
        *_identical(features),
        *_few_labelled(classes, class_sizes),
    )


def _few_samples(n_target: int) -> tuple[str, ...]:
    if n_target >= FEW_SAMPLES:
        return ()
    return (f"only {counted(n_target, 'target sample')}; results are unreliable below {FEW_SAMPLES}.",)


def _nothing_known(known: np.ndarray) -> tuple[str, ...]:
    if known.any():
        return ()
    return ("no target sample is known: every one is called unknown. Look at some before you rely on that.",)


def _identical(features: np.ndarray) -> tuple[str, ...]:
    n_distinct = len(np.unique(np.round(features, _DIGITS), axis=0))
    if n_distinct >= _FEW_DISTINCT * len(features):
        return ()
    few = f"only {counted(n_distinct, 'distinct one')} among {counted(len(features), 'target sample')}"
    return (f"many target samples are identical, {few}: copies add no evidence. Leave them out.",)


def _few_labelled(classes: Sequence[object], sizes: Sequence[int]) -> tuple[str, ...]:
    few = [str(name) for name, size in zip(classes, sizes, strict=True) if size < _FEW_LABELLED]
    if not few:
        return ()
    having = f"{counted(len(few), 'class', 'classes')} {plural(len(few), 'has', 'have')}"
    return (
        f"{having} fewer than {_FEW_LABELLED} labelled samples, so that {plural(len(few), 'its', 'their')} labels are "
        f"unreliable: {listed(few, _MOST_NAMES)}.",
    )
