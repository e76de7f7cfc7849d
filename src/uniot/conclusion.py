"""The end of a training: the rule is fixed on the whole target, and what it leaves unknown is grouped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from uniot.calibration import fit_calibration
from uniot.data.batches import generator_for
from uniot.data.samples import Samples
from uniot.discovery import (
    LabelledFeatures,
    NumberOfClasses,
    SeenTarget,
    absence,
    number_of_private_classes,
    private_groups,
)
from uniot.embeddings.image_reader import ImageReader
from uniot.methods import Method
from uniot.model import AdaptedModel
from uniot.network_features import embeddings_of_samples, features_of_samples, unit_rows
from uniot.prediction import Prediction
from uniot.processes import Processes
from uniot.settings import Settings
from uniot.threshold import threshold_for
from uniot.training import History
from uniot.universal import ClassSums, assess, data_warnings

# Labelled samples that a run keeps, and that show how classes scatter; class means are those of all samples.
_MOST_SOURCE_ROWS = 5000
# Rows whose features are in memory at a time while class means are computed.
_SUMMED_ROWS = 4096
# So many target samples are enough to count the private classes by, and to calibrate the probabilities on.
_MOST_COUNTED_ROWS = 3000
# A private group is at least so large beside the median known one, where classes are compact enough to tell.
_LEAST_PART = 0.5
# Purposes of generators; 100 decides the weights that a method begins with.
_RULE, _SOURCE_ROWS, _COUNTED_ROWS, _SPACE = 101, 102, 103, 104


def conclude(
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
) -> AdaptedModel:
    """Fixes the rule on the whole target and groups what it leaves unknown.

    Where there are several processes, each looks at its own part of the target, and all end with the same answer.

    Args:
        method: trained; the rule is fixed in place, and its networks end on the CPU.
        source: labelled samples.
        source_classes: (n,), class index of each.
        target: the samples that were adapted to.
        classes: source classes, text or integers, (c,).
        unknown: what an unknown sample is called.
        settings: resolved settings.
        history: numbers step by step.
        fingerprint: of data and settings.
        in_target: whether each labelled sample is one of the target's that somebody labelled, (n,); none is if None.
        reader: what makes inputs from images, where the samples come from images.
        processes: who shares the work.
        warnings: about the settings; the model keeps them with those about the data.
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
    cast(nn.Module, method).cpu()
    if class_sums is not None:
        method.learn_space(
            labelled,
            source_classes[seen],
            in_target[seen],
            lambda: processes.gather_parts(trained, len(target)),
            generator_for(settings.seed, _SPACE),
            class_sums,
        )
    own = method.adapted(trained)
    method.conclude(own, generator_for(settings.seed, _RULE), processes if processes.count > 1 else None)
    decision = method.decide(own)
    target_shares = processes.gather_parts(decision.shares.max(dim=1).values, len(target)).numpy()
    rule_known = processes.gather_parts(decision.known.byte(), len(target)).bool()
    adapted = processes.gather_parts(own, len(target))
    features = unit_rows(adapted)
    # Before smoothing, which makes samples of one neighbourhood equal.
    given = unit_rows(processes.gather_parts(trained, len(target))[counted])
    sizes = torch.bincount(source_classes, minlength=len(classes)).tolist()
    # The estimate of the accuracy is of the rule: a preference is no sign that the target merely looks different.
    reliability = assess(
        method.statistics,
        n_target=len(target),
        known_share=float(rule_known.double().mean()),
        classes=classes.tolist(),
        others=(
            *data_warnings(given, rule_known.numpy(), len(target), classes.tolist(), sizes),
            *warnings,
        ),
    )
    of_some = method.decide(adapted[counted])
    calibration = fit_calibration(
        of_some.shares, of_some.known, reliability.known_accuracy, reliability.unknown_accuracy
    )
    class_probability = calibration.class_probabilities(decision.shares).max(dim=1).values
    threshold = threshold_for(target_shares, settings.private_prior, settings.prefer)
    decision = decision.by_threshold(threshold)
    nearest = processes.gather_parts(decision.nearest, len(target)).numpy()
    known = processes.gather_parts(decision.known.byte(), len(target)).bool().numpy()
    known_score = processes.gather_parts(decision.known_score, len(target)).numpy()
    confidence = processes.gather_parts(decision.confidence(calibration), len(target)).numpy()
    number: int | NumberOfClasses | None = settings.n_private_classes
    if number is None:
        rows = counted.numpy()
        # A space of the method's own has one scale for all classes; trained features do not.
        space, least_part = (features[rows], _LEAST_PART) if embeddings is None else (embeddings, 0.0)
        clusters = _nearest_clusters(method, features[rows])
        seen_target = SeenTarget(space, clusters, known[rows], nearest[rows], least_part)
        number = number_of_private_classes(seen_target, seed=settings.seed)
    groups = private_groups(features[~known], number, seed=settings.seed)
    group = np.full(len(known), -1, dtype=np.int64)
    group[~known] = groups.group
    answers = Prediction(nearest, known, known_score, confidence, group, groups.confidence(features, group))
    if not settings.store_target:
        method.forget_samples()
    return AdaptedModel(
        method=method,
        groups=groups,
        absence=absence(answers, len(classes)),
        classes=classes,
        unknown=unknown,
        settings=settings,
        input_shape=shape,
        target=answers,
        target_features=features,
        source=LabelledFeatures(
            _adapted_source(method, labelled, in_target[seen]), source_classes[seen].numpy(), seen.numpy()
        ),
        history=history,
        fingerprint=fingerprint,
        reader=reader,
        threshold=threshold,
        target_shares=target_shares,
        target_class_probability=processes.gather_parts(class_probability, len(target)).numpy(),
        calibration=calibration,
        reliability=reliability,
    )


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
    # Every process holds the rows that were seen; one of them adds them.
    held = [(labelled, classes[seen], in_target[seen])] if processes.rank == 0 else []
    read = ((features_of_samples(method, source, ids)[0], classes[ids], in_target[ids]) for ids in blocks)
    return ClassSums.of(chain(held, read), n_classes, labelled.shape[1]).over_processes(processes.add)


def _adapted_source(method: Method, labelled: Tensor, in_target: Tensor) -> np.ndarray:
    """Features of labelled samples, unit rows, in the space that the method decides in."""
    adapted = method.adapted(labelled, labelled=True)
    if in_target.any():
        adapted[in_target] = method.adapted(labelled[in_target])
    return unit_rows(adapted)


def _nearest_clusters(method: Method, features: np.ndarray) -> np.ndarray | None:
    """Cluster prototype nearest to each feature, (n,); None where the method learns none."""
    clusters = method.cluster_prototypes()
    return None if clusters is None else np.asarray((features @ clusters.numpy().T).argmax(axis=1))


def _own_part(ids: Tensor, processes: Processes) -> Tensor:
    """The part of the ids that this process looks at."""
    return ids[processes.part(len(ids))]


def _even_rows(classes: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Rows in order, all of them where they are few; otherwise drawn, as many of each class as there are."""
    if len(classes) <= most:
        return torch.arange(len(classes))
    drawn = torch.randperm(len(classes), generator=generator)
    # The place of each drawn row among the drawn ones of its class; the smallest places are the evenest choice.
    by_class = torch.argsort(classes[drawn], stable=True)
    sizes = torch.bincount(classes)
    place = torch.arange(len(classes)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    return drawn[by_class[torch.argsort(place, stable=True)[:most]]].sort().values


def _some_rows(n_rows: int, most: int, generator: torch.Generator) -> Tensor:
    """Rows in order, all of them or as many as `most`, drawn."""
    return torch.randperm(n_rows, generator=generator)[:most].sort().values
