"""The end of a fit, in three steps: fit the rule to the whole target, calibrate its odds, group the unknown samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from uniot.config import Settings
from uniot.discovery.class_count import NumberOfClasses, SeenTarget, number_of_private_classes
from uniot.discovery.groups import LabelledFeatures, PrivateGroups, absence, private_groups
from uniot.io.arrays import unit_rows
from uniot.io.predictions import Prediction
from uniot.methods.base import FinalFeatures, Method
from uniot.methods.decision import Calibration, Decision, fit_calibration, threshold_for
from uniot.methods.fitted import ClassSums
from uniot.rejection.answers import Answers
from uniot.rejection.local import class_log_odds
from uniot.reliability import Reliability, assess, data_warnings
from uniot.training.domains import Domains
from uniot.training.features import decide_in_blocks, embeddings_of_samples, features_of_samples
from uniot.training.model import AdaptedModel
from uniot.training.processes import Processes
from uniot.training.samples import Samples, generator_for

# Labelled samples that a run stores, and from which the scatter is estimated; class means use all samples.
_MOST_SOURCE_ROWS = 5000
# Rows whose features are in memory at a time when class means are computed.
_SUMMED_ROWS = 4096
# Target samples from which private classes are counted and probabilities calibrated.
_MOST_COUNTED_ROWS = 3000
# Least size of a private group relative to the median known one, if the method has a space of its own.
_LEAST_PART = 0.5
# One number per purpose for `generator_for`, so that each has a random stream of its own; 100 is the initial weights'.
_RULE, _SOURCE_ROWS, _COUNTED_ROWS, _SPACE = 101, 102, 103, 104


def finalize(
    method: Method,
    domains: Domains,
    settings: Settings,
    *,
    unknown: str | int,
    processes: Processes | None = None,
    rule_target: Samples | None = None,
    answers: Answers | None = None,
) -> AdaptedModel:
    """Return the fitted model of a trained method.

    If there are several processes, each computes its own part of the target, and all return the same model.

    Args:
        method: trained; changed in place and moved to the CPU.
        domains: source and target of the training.
        settings: resolved settings.
        unknown: label of unknown samples.
        processes: that share the work; one if None.
        rule_target: samples that the rule is fitted to, if the target of `domains` is only a part of them.
        answers: labels of people for samples of the target; none if None.

    Returns:
        The fitted model, without history and fingerprint.
    """
    processes = processes or Processes()
    target = fit_rule(method, domains, settings, processes, rule_target)
    reliability, calibration = calibrate(method, target, domains)
    model = _decided(method, target, calibration, domains, settings, unknown, processes)
    model = replace(model, reliability=reliability)
    if answers is not None and len(answers):
        model = model.with_answers(answers)
    return with_groups(model, target.counted.numpy(), target.embeddings)


@dataclass(frozen=True)
class TargetByRule:
    """The target as the fitted rule sees it.

    Attributes:
        decision: decisions of the rule, without a preference, for this process's part of the target only. All other
            attributes are the same in every process.
        known: whether each target sample is known, (n_target,).
        transformed: target features by the method's `transform`, (n_target, width).
        source: transformed features of labelled samples.
        input_shape: shape of one sample.
        counted: sorted target rows, from which private classes are counted and the odds calibrated, (n_rows,).
        features: features of the counted rows before `transform`, unit rows, (n_rows, n_features).
        embeddings: embeddings of the counted rows, if private classes are counted from embeddings; None if they are
            counted from transformed features.
    """

    decision: Decision
    known: Tensor
    transformed: Tensor
    source: LabelledFeatures
    input_shape: tuple[int, ...]
    counted: Tensor
    features: np.ndarray
    embeddings: np.ndarray | None


def fit_rule(
    method: Method, domains: Domains, settings: Settings, processes: Processes, rule_target: Samples | None = None
) -> TargetByRule:
    """Fit the rule of a trained method, and decide about the target by it. Arguments as in `finalize`."""
    source, target, classes = domains.source, domains.target, class_index(domains)
    in_target = torch.from_numpy(domains.in_target)
    trained, shape = features_of_samples(method, target, _own_part(torch.arange(len(target)), processes))
    seen = _even_rows(classes, _MOST_SOURCE_ROWS, generator_for(settings.seed, _SOURCE_ROWS))
    own_source, _ = features_of_samples(method, source, _own_part(seen, processes))
    labelled = processes.gather_parts(own_source, len(seen))
    counted = _some_rows(len(target), _MOST_COUNTED_ROWS, generator_for(settings.seed, _COUNTED_ROWS))
    class_sums, embeddings = None, None
    if method.has_own_space:
        class_sums = _class_sums(method, domains, seen, labelled, processes)
    elif settings.n_private_classes is None:
        own_embeddings = embeddings_of_samples(method, target, _own_part(counted, processes))
        embeddings = processes.gather_parts(own_embeddings, len(counted)).numpy()
    of_rule, n_rule = trained, len(target)
    if rule_target is not None:
        n_rule = len(rule_target)
        of_rule, _ = features_of_samples(method, rule_target, _own_part(torch.arange(n_rule), processes))
    method.cpu()
    whole = method.finalize(
        FinalFeatures(
            source=labelled,
            classes=classes[seen],
            in_target=in_target[seen],
            target=of_rule,
            whole_target=lambda: processes.gather_parts(of_rule, n_rule),
            generator=generator_for(settings.seed, _SPACE if method.has_own_space else _RULE),
            class_sums=class_sums,
            shards=processes if processes.count > 1 else None,
        )
    )
    own = method.transform(trained) if whole is None or rule_target else whole[processes.part(len(target))]
    decision = decide_in_blocks(method.decide, own)
    return TargetByRule(
        decision,
        known=processes.gather_parts(decision.known.byte(), len(target)).bool(),
        transformed=processes.gather_parts(own, len(target)),
        source=LabelledFeatures(
            _source_features(method, labelled, in_target[seen]),
            classes[seen].numpy(),
            # A source model has class means in place of samples.
            seen.numpy() if domains.class_sizes is None else np.full(len(seen), -1),
        ),
        input_shape=shape,
        counted=counted,
        # Before smoothing, which makes the samples of a neighbourhood equal.
        features=unit_rows(processes.gather_parts(trained, len(target))[counted]),
        embeddings=embeddings,
    )


def calibrate(method: Method, target: TargetByRule, domains: Domains) -> tuple[Reliability, Calibration]:
    """Estimate the accuracy on the target without labels, and calibrate the odds of the rule to it.

    The estimate is for the method's own rule: a preference carries no information about the target, and is ignored.

    Args:
        method: with its rule fitted.
        target: from `fit_rule`.
        domains: source and target.
    """
    sizes = domains.class_sizes
    if sizes is None:
        sizes = np.unique(domains.labels, return_counts=True)[1]
    reliability = assess(
        method.statistics,
        known_fraction=float(target.known.double().mean()),
        others=data_warnings(
            target.features, target.known.numpy(), len(domains.target), domains.classes.tolist(), sizes.tolist()
        ),
    )
    some = decide_in_blocks(method.decide, target.transformed[target.counted])
    calibration = fit_calibration(some.odds, some.known, reliability.known_accuracy, reliability.unknown_accuracy)
    return reliability, calibration


def _decided(
    method: Method,
    target: TargetByRule,
    calibration: Calibration,
    domains: Domains,
    settings: Settings,
    unknown: str | int,
    processes: Processes,
) -> AdaptedModel:
    """Return the model with its decisions about the target by rule and preference, and without groups."""
    n_target = len(domains.target)
    by_rule = target.decision
    odds = processes.gather_parts(by_rule.odds.max(dim=1).values, n_target).numpy()
    class_probability = calibration.class_probabilities(by_rule.odds).max(dim=1).values
    of_classes = processes.gather_parts(class_log_odds(by_rule.odds).half(), n_target).numpy()
    threshold = threshold_for(odds, settings.private_prior, settings.prefer)
    decision = by_rule.by_threshold(threshold)
    nearest = processes.gather_parts(decision.nearest, n_target).numpy()
    known = processes.gather_parts(decision.known.byte(), n_target).bool().numpy()
    predicted = Prediction(
        nearest=nearest,
        known=known,
        known_score=processes.gather_parts(decision.known_score, n_target).numpy(),
        confidence=processes.gather_parts(decision.confidence(calibration), n_target).numpy(),
        group=np.full(n_target, -1, dtype=np.int64),
        group_confidence=np.zeros(n_target),
    )
    features = unit_rows(target.transformed)
    no_centres = np.zeros((0, features.shape[1]), np.float32)
    return AdaptedModel(
        method=method,
        groups=PrivateGroups(predicted.group[~known], no_centres, NumberOfClasses(0, (0, 0))),
        absence=absence(predicted, len(domains.classes)),
        classes=domains.classes,
        unknown=unknown,
        settings=settings,
        input_shape=target.input_shape,
        target=predicted,
        target_features=features,
        source=target.source,
        reader=domains.reader,
        threshold=threshold,
        target_odds=odds,
        target_nearest=nearest,
        target_class_probability=processes.gather_parts(class_probability, n_target).numpy(),
        target_class_log_odds=of_classes,
        calibration=calibration,
        feature_names=domains.feature_names,
    )


def regrouped(model: AdaptedModel) -> AdaptedModel:
    """Return the model with its private classes counted and grouped again, as its present decision has them.

    Answers change which samples are unknown. If the method has no space of its own, private classes are counted in its
    features, because the embeddings are not stored.

    Args:
        model: with the features of its whole target, and without names that people gave to its groups.
    """
    model.require_all_features("its samples cannot be grouped again")
    n_target = len(model.target)
    counted = _some_rows(n_target, _MOST_COUNTED_ROWS, generator_for(model.settings.seed, _COUNTED_ROWS)).numpy()
    embeddings = None if model.method.has_own_space else model.target_features[counted]
    return with_groups(model, counted, embeddings)


def with_groups(model: AdaptedModel, counted: np.ndarray, embeddings: np.ndarray | None) -> AdaptedModel:
    """Return the model with its unknown samples grouped.

    Args:
        model: without groups.
        counted: rows of the target from which private classes are counted, (n_rows,).
        embeddings: of these rows; None if they are counted in the space of the method.
    """
    known, nearest, features, settings = model.target.known, model.target.nearest, model.target_features, model.settings
    number: int | NumberOfClasses | None = settings.n_private_classes
    if number is None:
        # In a method's own space all classes have the same scale, so the known ones tell how large a group must be.
        space, least_part = (features[counted], _LEAST_PART) if embeddings is None else (embeddings, 0.0)
        clusters = _nearest_clusters(model.method, features[counted])
        seen_target = SeenTarget(space, clusters, known[counted], nearest[counted], least_part)
        number = number_of_private_classes(seen_target, seed=settings.seed)
    groups = private_groups(features[~known], number, seed=settings.seed)
    group = np.full(len(known), -1, dtype=np.int64)
    group[~known] = groups.group
    target = replace(model.target, group=group, group_confidence=groups.confidence(features, group))
    return replace(model, groups=groups, target=target)


def _class_sums(method: Method, domains: Domains, seen: Tensor, labelled: Tensor, processes: Processes) -> ClassSums:
    """Add up the features of all labelled samples by class; those of the rows `seen` are given as `labelled`."""
    classes, in_target = class_index(domains), torch.from_numpy(domains.in_target)
    is_seen = torch.zeros(len(classes), dtype=torch.bool)
    is_seen[seen] = True
    others = _own_part(torch.nonzero(~is_seen).flatten(), processes)
    blocks = [block for block in others.split(_SUMMED_ROWS) if len(block)]
    # Every process has these rows; only one of them adds them.
    held = [(labelled, classes[seen], in_target[seen])] if processes.rank == 0 else []
    read = ((features_of_samples(method, domains.source, ids)[0], classes[ids], in_target[ids]) for ids in blocks)
    return ClassSums.of(chain(held, read), len(domains.classes), labelled.shape[1]).over_processes(processes.add)


def class_index(domains: Domains) -> Tensor:
    """Return the class index of each labelled sample, (n_source,)."""
    return torch.from_numpy(np.searchsorted(domains.classes, domains.labels))


def _source_features(method: Method, labelled: Tensor, in_target: Tensor) -> np.ndarray:
    """Return the transformed features of labelled samples as unit rows."""
    features = method.transform(labelled, labelled=True)
    if in_target.any():
        features[in_target] = method.transform(labelled[in_target])
    return unit_rows(features)


def _nearest_clusters(method: Method, features: np.ndarray) -> np.ndarray | None:
    """Return the nearest cluster prototype per feature, (n,); None if the method has none."""
    clusters = method.cluster_prototypes()
    return None if clusters is None else np.asarray((features @ clusters.numpy().T).argmax(axis=1))


def _own_part(ids: Tensor, processes: Processes) -> Tensor:
    """Return the part of the ids that this process computes."""
    return ids[processes.part(len(ids))]


def _even_rows(classes: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Return sorted row indices: all of at most `most` rows, else a sample that is balanced over the classes."""
    if len(classes) <= most:
        return torch.arange(len(classes))
    drawn = torch.randperm(len(classes), generator=generator)
    # Rank of each drawn row within its class; the smallest ranks are the most balanced choice.
    by_class = torch.argsort(classes[drawn], stable=True)
    sizes = torch.bincount(classes)
    place = torch.arange(len(classes)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    return drawn[by_class[torch.argsort(place, stable=True)[:most]]].sort().values


def _some_rows(n_rows: int, most: int, generator: torch.Generator) -> Tensor:
    """Return the sorted indices of at most `most` random rows."""
    return torch.randperm(n_rows, generator=generator)[:most].sort().values
