"""The end of a run: fit the rule to the whole target, group unknown samples, and estimate the reliability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from uniot.config import Settings
from uniot.discovery.class_count import NumberOfClasses, SeenTarget, number_of_private_classes
from uniot.discovery.groups import LabelledFeatures, PrivateGroups, absence, private_groups
from uniot.images.backbones import ImageReader
from uniot.io.arrays import unit_rows
from uniot.io.predictions import Prediction
from uniot.methods.base import FinalFeatures, Method
from uniot.methods.decision import fit_calibration, threshold_for
from uniot.methods.fitted import ClassSums
from uniot.methods.unincm.reliability import assess, data_warnings
from uniot.rejection.answers import Answers
from uniot.rejection.local import class_log_odds
from uniot.training.features import decide_in_blocks, embeddings_of_samples, features_of_samples
from uniot.training.history import History
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
# Purposes of random generators; 100 is that of the initial weights.
_RULE, _SOURCE_ROWS, _COUNTED_ROWS, _SPACE = 101, 102, 103, 104


def finalize(
    method: Method,
    source: Samples,
    source_classes: Tensor,
    target: Samples,
    *,
    classes: np.ndarray,
    unknown: str | int,
    settings: Settings,
    history: History,
    fingerprint: str,
    in_target: Tensor | None = None,
    reader: ImageReader | None = None,
    processes: Processes | None = None,
    warnings: Sequence[str] = (),
    class_sizes: np.ndarray | None = None,
    rule_target: Samples | None = None,
    answers: Answers | None = None,
) -> AdaptedModel:
    """Fit the rule to the target and group the unknown samples.

    If there are several processes, each computes its own part of the target, and all return the same model.

    Args:
        method: trained; changed in place and moved to the CPU.
        source: labelled samples.
        source_classes: class index per labelled sample, (n_samples,).
        target: the unlabelled samples of the training.
        classes: source classes, text or integers, (c,).
        unknown: label of unknown samples.
        settings: resolved settings.
        history: numbers step by step.
        fingerprint: of data and settings.
        in_target: whether each labelled sample is one of the target's, (n_samples,); none is if None.
        reader: of images; None if the samples are arrays.
        processes: that share the work; one if None.
        warnings: about the settings; the model keeps them with those about the data.
        class_sizes: number of labelled samples per class, (n_classes,), if `source` has other rows in their place.
        rule_target: samples that the rule is fitted to, if `target` is only a part of them; `target` if None.
        answers: labels of people for samples of the target; none if None.

    Returns:
        The adapted model.
    """
    processes = processes or Processes()
    in_target = torch.zeros(len(source_classes), dtype=torch.bool) if in_target is None else in_target
    trained, shape = features_of_samples(method, target, _own_part(torch.arange(len(target)), processes))
    seen = _even_rows(source_classes, _MOST_SOURCE_ROWS, generator_for(settings.seed, _SOURCE_ROWS))
    own_source, _ = features_of_samples(method, source, _own_part(seen, processes))
    labelled = processes.gather_parts(own_source, len(seen))
    counted = _some_rows(len(target), _MOST_COUNTED_ROWS, generator_for(settings.seed, _COUNTED_ROWS))
    class_sums, embeddings = None, None
    if method.has_own_space:
        class_sums = _class_sums(method, source, source_classes, in_target, seen, labelled, len(classes), processes)
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
            classes=source_classes[seen],
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
    target_odds = processes.gather_parts(decision.odds.max(dim=1).values, len(target)).numpy()
    rule_known = processes.gather_parts(decision.known.byte(), len(target)).bool()
    transformed = processes.gather_parts(own, len(target))
    features = unit_rows(transformed)
    # Before smoothing, which makes the samples of a neighbourhood equal.
    given = unit_rows(processes.gather_parts(trained, len(target))[counted])
    sizes = torch.bincount(source_classes, minlength=len(classes)) if class_sizes is None else class_sizes
    # The accuracy is estimated for the rule without a preference, which says nothing about the target.
    reliability = assess(
        method.statistics,
        known_fraction=float(rule_known.double().mean()),
        others=(
            *data_warnings(given, rule_known.numpy(), len(target), classes.tolist(), sizes.tolist()),
            *warnings,
        ),
    )
    of_some = decide_in_blocks(method.decide, transformed[counted])
    calibration = fit_calibration(of_some.odds, of_some.known, reliability.known_accuracy, reliability.unknown_accuracy)
    class_probability = calibration.class_probabilities(decision.odds).max(dim=1).values
    of_classes = processes.gather_parts(class_log_odds(decision.odds).half(), len(target)).numpy()
    threshold = threshold_for(target_odds, settings.private_prior, settings.prefer)
    decision = decision.by_threshold(threshold)
    nearest = processes.gather_parts(decision.nearest, len(target)).numpy()
    known = processes.gather_parts(decision.known.byte(), len(target)).bool().numpy()
    known_score = processes.gather_parts(decision.known_score, len(target)).numpy()
    confidence = processes.gather_parts(decision.confidence(calibration), len(target)).numpy()
    width, alone = features.shape[1], np.full(len(known), -1, dtype=np.int64)
    no_groups = PrivateGroups(alone[~known], np.zeros((0, width), np.float32), NumberOfClasses(0, (0, 0)))
    predicted = Prediction(nearest, known, known_score, confidence, alone, np.zeros(len(known)))
    model = AdaptedModel(
        method=method,
        groups=no_groups,
        absence=absence(predicted, len(classes)),
        classes=classes,
        unknown=unknown,
        settings=settings,
        input_shape=shape,
        target=predicted,
        target_features=features,
        source=LabelledFeatures(
            _source_features(method, labelled, in_target[seen]),
            source_classes[seen].numpy(),
            seen.numpy() if class_sizes is None else np.full(len(seen), -1),
        ),
        history=history,
        fingerprint=fingerprint,
        reader=reader,
        threshold=threshold,
        target_odds=target_odds,
        target_nearest=nearest,
        target_class_probability=processes.gather_parts(class_probability, len(target)).numpy(),
        target_class_log_odds=of_classes,
        calibration=calibration,
        reliability=reliability,
    )
    if answers is not None and len(answers):
        model = model.with_answers(answers)
    return _with_groups(model, counted.numpy(), embeddings)


def regrouped(model: AdaptedModel) -> AdaptedModel:
    """Return the model with its private classes counted and grouped again, as its present decision has them.

    After answers other samples are unknown than before. A method without a space of its own is counted in its features,
    because the embeddings before them are not stored.

    Args:
        model: with the features of its whole target, and without names that people gave to its groups.
    """
    model.require_all_features("its samples cannot be grouped again")
    n_target = len(model.target)
    counted = _some_rows(n_target, _MOST_COUNTED_ROWS, generator_for(model.settings.seed, _COUNTED_ROWS)).numpy()
    embeddings = None if model.method.has_own_space else model.target_features[counted]
    return _with_groups(model, counted, embeddings)


def _with_groups(model: AdaptedModel, counted: np.ndarray, embeddings: np.ndarray | None) -> AdaptedModel:
    """Return the model with its unknown samples grouped.

    Args:
        model: without groups.
        counted: rows of the target from which private classes are counted, (n_rows,).
        embeddings: of these rows; None if they are counted in the space of the method.
    """
    known, nearest, features, settings = model.target.known, model.target.nearest, model.target_features, model.settings
    number: int | NumberOfClasses | None = settings.n_private_classes
    if number is None:
        # The space of a method has one scale for all classes; trained features do not.
        space, least_part = (features[counted], _LEAST_PART) if embeddings is None else (embeddings, 0.0)
        clusters = _nearest_clusters(model.method, features[counted])
        seen_target = SeenTarget(space, clusters, known[counted], nearest[counted], least_part)
        number = number_of_private_classes(seen_target, seed=settings.seed)
    groups = private_groups(features[~known], number, seed=settings.seed)
    group = np.full(len(known), -1, dtype=np.int64)
    group[~known] = groups.group
    target = replace(model.target, group=group, group_confidence=groups.confidence(features, group))
    return replace(model, groups=groups, target=target)


def _class_sums(
    method: Method,
    source: Samples,
    classes: Tensor,
    in_target: Tensor,
    seen: Tensor,
    labelled: Tensor,
    n_classes: int,
    processes: Processes,
) -> ClassSums:
    """Add up the features of all labelled samples by class; those of the rows `seen` are given as `labelled`."""
    is_seen = torch.zeros(len(classes), dtype=torch.bool)
    is_seen[seen] = True
    others = _own_part(torch.nonzero(~is_seen).flatten(), processes)
    blocks = [block for block in others.split(_SUMMED_ROWS) if len(block)]
    # Every process has these rows; only one of them adds them.
    held = [(labelled, classes[seen], in_target[seen])] if processes.rank == 0 else []
    read = ((features_of_samples(method, source, ids)[0], classes[ids], in_target[ids]) for ids in blocks)
    return ClassSums.of(chain(held, read), n_classes, labelled.shape[1]).over_processes(processes.add)


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
