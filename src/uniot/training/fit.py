"""Fit a method to a labelled and an unlabelled collection: the one path that embeddings and images share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uniot.errors import SettingsError
from uniot.methods.networks import FineTuned, SmallCNN
from uniot.methods.registry import check_start, create_method, method_info, resolved_settings
from uniot.methods.source_free import as_source_free
from uniot.rejection.answers import Answers
from uniot.training.domains import unknown_label
from uniot.training.features import features_of_samples
from uniot.training.finalize import class_index, finalize
from uniot.training.history import Checkpoints, ExperimentLogger, History, ended_on_failure, log_numbers, logging_step
from uniot.training.large_targets import PartOfTarget, with_whole_target
from uniot.training.loop import Watch, train
from uniot.training.processes import Processes
from uniot.training.samples import SomeSamples, generator_for
from uniot.transport.threads import one_thread

if TYPE_CHECKING:
    from uniot.config import Settings
    from uniot.images.backbones import ImageReader
    from uniot.methods.base import Method
    from uniot.training.domains import Domains
    from uniot.training.model import AdaptedModel
    from uniot.training.samples import Samples

# Up to this many values finalizing takes seconds on one thread; on busy cores two threads took twice as long.
_SMALL_VALUES = 1 << 24

# The paper's number, for a network that is trained as a whole.
_STEPS_OF_A_WHOLE_BACKBONE = 10_000

# Purpose of a random generator; batches use the small numbers, the end of a run those after this one.
_WEIGHTS = 100

OnStep = Callable[[int, int, Mapping[str, float]], None]


@dataclass(frozen=True)
class FitContext:
    """Options of a fit besides data and settings: where it starts, where it is stored, who watches it.

    Attributes:
        unknown: label of rejected samples; "unknown" for text classes and -1 for integers if None.
        source_weights: networks of a source model that a source-free method adapts; None to train it on the source.
        answers: labels of people for samples of the target, which the model keeps; none if None.
        start: model whose weights and class prototypes training starts from; random weights if None.
        checkpoints: storage for the state of an interrupted run; none if None.
        finished: from a fingerprint to the finished run that is stored already; None if there is none.
        processes: processes that share the work.
        watch: adds columns to the history.
        on_step: called with step, number of steps and the numbers of the step.
        inspect: called after each step with its number and a function that returns the model as it would be if training
            ended here; training goes on as if nobody had looked. Only for one process.
        logger: for settings and losses, if something is trained; finalized here only if training fails.
        warn: called with each warning about the data before anything is fitted; the model has them as well.
    """

    unknown: str | int | None = None
    source_weights: Mapping[str, Tensor] | None = None
    answers: Answers | None = None
    start: AdaptedModel | None = None
    checkpoints: Checkpoints | None = None
    finished: Callable[[str], AdaptedModel | None] | None = None
    processes: Processes = field(default_factory=Processes)
    watch: Watch | None = None
    on_step: OnStep | None = None
    inspect: Callable[[int, Callable[[], AdaptedModel]], None] | None = None
    logger: ExperimentLogger | None = None
    warn: Callable[[str], None] | None = None


def fit(domains: Domains, settings: Settings, context: FitContext | None = None) -> AdaptedModel:
    """Train the method if it trains, fit its rejection rule to the target, and group what it rejects.

    Args:
        domains: the data.
        settings: as given; what depends on the data is decided here.
        context: checkpoints, processes, progress and the like.

    Returns:
        The fitted model, with the predictions for the target.
    """
    context = context or FitContext()
    domains.check()
    unknown = unknown_label(context.unknown, domains.classes)
    reader = domains.reader
    info = method_info(settings.method)
    trains = not info.is_closed_form or _trains_network(domains, settings)
    if context.start is not None:
        check_start(info.name, context.start.method, trains=trains)
    if reader is not None and reader.settings.batch_norm == "trained" and context.processes.count > 1:
        raise SettingsError(
            f"batch_norm is 'trained', and {context.processes.count} processes share each batch: the statistics of its "
            "parts are not those of the batch. Train in one process, or set batch_norm to 'frozen'."
        )
    if reader is not None and reader.settings.fine_tune == "all" and settings.steps is None:
        settings = settings.model_copy(update={"steps": _STEPS_OF_A_WHOLE_BACKBONE})
    warnings = _step_warnings(settings, trains=trains)
    settings = resolved_settings(settings, len(domains.target), trains=trains)
    digest = fingerprint(settings, domains.digest, context.start, context.answers)
    finished = None if context.finished is None else context.finished(digest)
    if finished is not None:
        return finished
    of_data = domains.warnings(unknown)
    if context.warn is not None:
        for words in of_data:
            context.warn(words)
    method = _untrained_method(domains, settings, context)

    def as_if_ended() -> AdaptedModel:
        # Counting private classes takes seconds and changes no decision.
        quick = settings.model_copy(update={"n_private_classes": 1})
        return _finalized(deepcopy(method).eval(), domains, quick, context, unknown, warnings)

    history = _trained(method, domains, settings, context, digest, as_if_ended)
    n_values = (len(domains.source) + len(domains.target)) * math.prod(_shape(domains))
    with one_thread() if n_values <= _SMALL_VALUES else nullcontext():
        model = _finalized(method, domains, settings, context, unknown, warnings)
    # Warnings about the data come first, because they may be the cause of the others.
    reliability = model.reliability.with_warnings(before=of_data)
    return replace(model, history=history, fingerprint=digest, reliability=reliability)


def _trains_network(domains: Domains, settings: Settings) -> bool:
    return settings.network != "none" or (domains.reader is not None and domains.reader.fine_tunes)


def _shape(domains: Domains) -> tuple[int, ...]:
    """Return the shape of one sample."""
    return tuple(domains.target.batch(torch.zeros(1, dtype=torch.long)).shape[1:])


def _untrained_method(domains: Domains, settings: Settings, context: FitContext) -> Method:
    """Build the method of a fit, with given prototypes, and with the weights that it starts from."""
    method = build_method(_shape(domains), len(domains.classes), settings, domains.reader)
    if domains.prototypes is not None:
        if _trains_network(domains, settings):
            raise SettingsError(
                "prototypes belong to the space of given embeddings, and this run trains a network that changes it. "
                "Leave out the prototypes or the training of the network."
            )
        method.use_prototypes(domains.prototypes)
    if context.source_weights is not None:
        as_source_free(method).load_source(context.source_weights)
    if context.start is not None:
        warm_start(method, context.start, domains.classes, domains.source, class_index(domains))
    return method


def _trained(
    method: Method,
    domains: Domains,
    settings: Settings,
    context: FitContext,
    digest: str,
    as_if_ended: Callable[[], AdaptedModel],
) -> History:
    """Train the method in place, and return the history; empty if there is nothing to train."""
    steps, on_step, inspect = settings.steps or 0, context.on_step, context.inspect
    if context.logger is not None and steps and context.processes.rank == 0:
        context.logger.log_hyperparams(settings.model_dump())
        on_step = logging_step(context.logger, on_step)
    with ended_on_failure(context.logger):
        return train(
            method,
            domains.source,
            class_index(domains),
            domains.target,
            settings,
            checkpoints=context.checkpoints,
            fingerprint=digest,
            processes=context.processes,
            watch=context.watch,
            on_step=None if on_step is None else lambda step, row: on_step(step, steps, row),
            on_weights=None if inspect is None else lambda step: inspect(step, as_if_ended),
        )


def _finalized(
    method: Method,
    domains: Domains,
    settings: Settings,
    context: FitContext,
    unknown: str | int,
    warnings: Sequence[str],
) -> AdaptedModel:
    """Finalize the method; a target that is too large is finalized on a random part, and then decided as a whole."""
    target, answers = domains.target, Answers() if context.answers is None else context.answers
    if len(np.unique(domains.labels[~domains.in_target])) < len(domains.classes):
        # Some classes are new. The answers that said most about the threshold were about samples of these; nearly all
        # that are left say "known", which would move the threshold too far. They fix their own samples only.
        answers = answers.without_evidence()
    part = PartOfTarget.of(method, target, settings.seed)
    model = finalize(
        method,
        domains if part is None else replace(domains, target=SomeSamples(target, part.rows)),
        settings,
        unknown=unknown,
        processes=context.processes,
        rule_target=None if part is None or part.fits_rule else target,
        answers=answers if part is None else None,
    )
    model = replace(model, reliability=model.reliability.with_warnings(after=warnings))
    if part is not None:
        model = with_whole_target(model, target, part.rows, context.processes)
        if len(answers):
            model = model.with_answers(answers.without_evidence())
    if not settings.store_target:
        model.method.forget_samples()
    return model


def build_method(
    input_shape: Sequence[int], n_classes: int, settings: Settings, reader: ImageReader | None = None
) -> Method:
    """Build a method whose weights depend on the random seed alone; torch's global random state is not changed.

    Args:
        input_shape: of one sample.
        n_classes: number of source classes.
        settings: resolved settings.
        reader: of images; None if the samples are arrays.

    Returns:
        The method with random weights, or with those of the reader's backbone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(int(generator_for(settings.seed, _WEIGHTS).initial_seed()))
        if settings.network == "small-cnn":
            backbone = SmallCNN()
            return create_method(settings, backbone.out_features, n_classes, backbone)
        if reader is not None and reader.fine_tunes:
            images = reader.settings
            tail = FineTuned(
                reader.tail,
                settings.input_norm if images.scaled else None,
                images.accumulate,
                trains_statistics=images.batch_norm == "trained",
            )
            return create_method(settings, reader.width, n_classes, tail)
        return create_method(settings, int(np.prod(input_shape)), n_classes)


def warm_start(
    method: Method, start: AdaptedModel, classes: np.ndarray, source: Samples, source_classes: Tensor
) -> None:
    """Start a method from the weights of a finished run.

    Args:
        method: changed in place.
        start: the finished run.
        classes: of the new run, sorted, (n_classes,).
        source: labelled samples of the new run.
        source_classes: class index per labelled sample, (n_samples,).

    Raises:
        SettingsError: the method cannot continue from the weights of that run.
    """
    old_index = {str(name): index for index, name in enumerate(start.classes.tolist())}

    def class_features(index: int) -> Tensor:
        return features_of_samples(method, source, torch.nonzero(source_classes == index).flatten())[0]

    method.warm_start(start.method, [old_index.get(str(name), -1) for name in classes.tolist()], class_features)


def fingerprint(
    settings: Settings, digest: str, start: AdaptedModel | None = None, answers: Answers | None = None
) -> str:
    """Return a digest of everything that decides the result of a fit.

    Args:
        settings: resolved settings.
        digest: of the data.
        start: model that training starts from.
        answers: labels of people for samples of the target.
    """
    given = settings.model_dump_json(exclude=settings.outside_fingerprint)
    whole = hashlib.sha256(f"{given} {digest} {'' if start is None else start.fingerprint}".encode())
    if answers is not None and len(answers):
        for values in vars(answers).values():
            whole.update(np.ascontiguousarray(values).data)
    return whole.hexdigest()


def _step_warnings(settings: Settings, *, trains: bool) -> tuple[str, ...]:
    """Return a warning if there are too few steps, or steps that are not taken."""
    if settings.steps and not trains:
        return (
            f"{settings.method} trains nothing but a network, if there is one to train, so that {settings.steps} steps "
            "have no effect. UniOT as published trains on embeddings too: method uniot.",
        )
    if settings.steps is None:
        return ()
    return method_info(settings.method).options.checked(**settings.method_options).step_warnings(settings.steps)


def log_end(logger: ExperimentLogger, model: AdaptedModel, scores: Mapping[str, Any] | None = None) -> None:
    """Log the estimates and scores of a finished training, and end the logged run.

    Args:
        logger: the logger of the fit.
        model: the fitted model; if nothing was trained, nothing is logged.
        scores: scores against true labels, if they are known.
    """
    if model.settings.steps:
        found = {"private_prior": model.private_prior, "n_private_classes": model.groups.n_groups}
        if model.reliability.accuracy is not None:
            found["estimated_accuracy"] = model.reliability.accuracy
        log_numbers(
            logger, found | {f"score_{name}": value for name, value in (scores or {}).items()}, model.settings.steps
        )
    logger.finalize("success")
