"""Targets larger than memory: private classes are counted and grouped on a random part, and all rows decided in blocks.

    target ─► random part ─► fit, count, group ─► model ─► the rows of the target in blocks ─► one prediction each

A method with `most_fitted_rows` is fitted to the part as well, any other to the whole target. Memory grows by a few
numbers per sample instead of its features: if those of all samples are too many, only those of the part are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from uniot.discovery.groups import NearestGroups, absence
from uniot.io.arrays import unit_rows
from uniot.io.predictions import Prediction
from uniot.methods.base import Method
from uniot.methods.decision import Decision
from uniot.rejection.local import class_log_odds
from uniot.reliability import Reliability
from uniot.training.features import features_of_samples
from uniot.training.model import AdaptedModel
from uniot.training.processes import Processes
from uniot.training.samples import Samples, generator_for

# Values of all features of a target that are kept in memory and in the run folder: one gigabyte as float32.
MOST_FEATURE_VALUES = 1 << 28
# Samples that stand for a larger target, for a rule that is fitted to all of it.
_MOST_DRAWN = 50_000
# Samples that are decided at a time.
_BLOCK = 4096
# Purpose of the random generator, after those of the end of a run.
_DRAWN_ROWS = 105


@dataclass(frozen=True)
class PartOfTarget:
    """The samples of a large target on which private classes are counted and grouped.

    Attributes:
        rows: sorted rows of the target, (n_rows,).
        fits_rule: whether the rule is fitted to them as well; otherwise to the whole target.
    """

    rows: Tensor
    fits_rule: bool

    @classmethod
    def of(cls, method: Method, target: Samples, seed: int) -> PartOfTarget | None:
        """Draw a part of a target; None if it is small enough to be used as a whole."""
        n_target, most = len(target), method.most_fitted_rows
        fits_rule = most is not None and n_target > most
        if not fits_rule:
            width = features_of_samples(method, target, torch.zeros(1, dtype=torch.long))[0].shape[1]
            if n_target * width <= MOST_FEATURE_VALUES:
                return None
        drawn = torch.randperm(n_target, generator=generator_for(seed, _DRAWN_ROWS))
        return cls(drawn[: most or _MOST_DRAWN].sort().values, fits_rule)


def with_whole_target(model: AdaptedModel, target: Samples, rows: Tensor, processes: Processes) -> AdaptedModel:
    """Return a model of a part of a target with the predictions for all of it.

    A preference is measured on the whole target. If there are several processes, each decides about its own part.

    Args:
        model: of the samples at `rows`, without annotations.
        target: all samples.
        rows: sorted rows of the part, (n_rows,).
        processes: that share the work.

    Returns:
        The model; its features are those of the part alone if those of all would fill the memory.
    """
    n_target, width = len(target), model.target_features.shape[1]
    keeps_all = n_target * width <= MOST_FEATURE_VALUES
    own = torch.arange(n_target)[processes.part(n_target)]
    odds, of_class = torch.empty(len(own), dtype=torch.float64), torch.empty(len(own), dtype=torch.float64)
    nearest, known = torch.empty(len(own), dtype=torch.int64), torch.empty(len(own), dtype=torch.bool)
    group, group_confidence = torch.empty(len(own), dtype=torch.int64), torch.empty(len(own), dtype=torch.float64)
    features = torch.empty(len(own) if keeps_all else 0, width)
    of_classes = torch.empty(len(features), len(model.classes), dtype=torch.float16)
    for start in range(0, len(own), _BLOCK):
        block = slice(start, start + _BLOCK)
        transformed = _transformed(model, target, rows, own[block])
        decision = replace(model, threshold=None).decide(transformed)
        odds[block], nearest[block] = decision.odds.max(dim=1).values, decision.nearest
        known[block] = decision.known
        of_class[block] = model.calibration.class_probabilities(decision.odds).max(dim=1).values
        unit = unit_rows(transformed)
        found = NearestGroups.of(model.groups, unit)
        group[block], group_confidence[block] = torch.from_numpy(found.group), torch.from_numpy(found.confidence)
        if keeps_all:
            features[block], of_classes[block] = torch.from_numpy(unit), class_log_odds(decision.odds).half()

    def whole(values: Tensor) -> Tensor:
        return processes.gather_parts(values, n_target)

    odds, of_class = whole(odds), whole(of_class)
    decision = Decision(odds[:, None], whole(known.byte()).bool())
    groups = NearestGroups(whole(group).numpy(), whole(group_confidence).numpy())
    predicted = groups.applied_to(
        Prediction(
            nearest=whole(nearest).numpy(),
            known=decision.known.numpy(),
            known_score=decision.known_score.numpy(),
            confidence=model.calibration.confidence(odds, of_class, decision.known).numpy(),
            group=groups.group,
            group_confidence=groups.confidence,
        )
    )
    by_rule = replace(
        model,
        groups=replace(model.groups, group=predicted.group[~predicted.known]),
        absence=absence(predicted, len(model.classes)),
        target=predicted,
        target_features=whole(features).numpy() if keeps_all else model.target_features,
        feature_rows=None if keeps_all else rows.numpy(),
        nearest_groups=None if keeps_all else groups,
        threshold=None,
        target_odds=odds.numpy(),
        target_nearest=predicted.nearest,
        target_class_probability=of_class.numpy(),
        target_class_log_odds=whole(of_classes).numpy() if keeps_all else model.target_class_log_odds[:0],
        reliability=_with_note(model, len(rows), n_target),
    )
    return by_rule.with_preference(model.settings.private_prior, model.settings.prefer)


def _with_note(model: AdaptedModel, n_fitted: int, n_target: int) -> Reliability:
    """Return the reliability with a warning about rare classes, if the rule was fitted to a part of the target."""
    most = model.method.most_fitted_rows
    if most is None or n_target <= most:
        return model.reliability
    note = (
        f"The rule was fitted to {n_fitted} of the {n_target} target samples, drawn at random. A class with fewer than "
        "about 20 samples among these may be called unknown; if rare classes matter, adapt to a part in which they are "
        "not rare."
    )
    return model.reliability.with_warnings(after=[note])


def _transformed(model: AdaptedModel, target: Samples, rows: Tensor, ids: Tensor) -> Tensor:
    """Return the transformed features of samples, (n_samples, width); those of fitted samples are known already."""
    place = torch.searchsorted(rows, ids).clamp_max(len(rows) - 1)
    # The model has the features of the fitted samples as unit rows. If the method's own rows have unit length, they are
    # the same and need not be computed again.
    fitted = (rows[place] == ids) & model.method.has_unit_rows
    transformed = torch.empty(len(ids), model.target_features.shape[1])
    transformed[fitted] = torch.from_numpy(model.target_features[place[fitted].numpy()])
    if not fitted.all():
        features, _ = features_of_samples(model.method, target, ids[~fitted])
        transformed[~fitted] = model.method.transform(features)
    return transformed
