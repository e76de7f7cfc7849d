"""The contract between a method and everything else: training, run folders, export and reports import only this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from uniot.config import CheckedSettings, Settings
from uniot.errors import SettingsError
from uniot.io.arrays import in_blocks
from uniot.methods.decision import Decision
from uniot.methods.fitted import ClassSums, GivenPrototypes, StoredTarget
from uniot.reliability import TargetStatistics
from uniot.transport.rows import Shards

_BLOCK = 128  # a fixed batch size makes the result of `transform` independent of the batch composition


def unchanged(rows: Tensor) -> Tensor:
    """Return the rows of this process, which are all rows if there is one process."""
    return rows


@dataclass(frozen=True)
class Batch:
    """Input of one training step; it has no field for target labels.

    If processes share a step, each has the inputs of its own part; labels, ids and the result of `gather` are those of
    the whole batch, the same in every process.

    Attributes:
        source: inputs of this process, (b / processes, ...).
        source_labels: class index per sample of the whole batch, (b,).
        target: inputs of this process, (b' / processes, ...).
        target_ids: index of the target sample per row of the whole batch, (b',).
        step: number of the step, from zero.
        generator: source of all randomness in the step, on the CPU.
        gather: maps the rows of this process to those of all processes, with gradients.
    """

    source: Tensor
    source_labels: Tensor
    target: Tensor
    target_ids: Tensor
    step: int
    generator: torch.Generator
    gather: Callable[[Tensor], Tensor] = unchanged


@dataclass(frozen=True)
class Losses:
    """Result of one training step.

    Attributes:
        total: the loss that the optimiser minimises.
        parts: each loss before its weight, for the history.
        detected: class that each target row of the batch was detected as, -1 for none; None if the method detects
            nothing in this step.
        notes: further numbers for the history.
        class_mass: mass of each source class after the step, (n_classes,); None if the method has none.
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    detected: Tensor | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    class_mass: Tensor | None = None


@dataclass(frozen=True)
class FinalFeatures:
    """Features of both domains after the last step, on the CPU: input of `Method.finalize`.

    Attributes:
        source: features of a sample of the labelled samples, drawn evenly from the classes, (m, n_features).
        classes: class index per labelled sample, (m,).
        in_target: whether each labelled sample is one of the target's that somebody labelled, (m,).
        target: features of this process's part of the target, (n / processes, n_features).
        whole_target: returns the features of the whole target, (n, n_features), the same in every process.
        generator: source of all randomness.
        class_sums: sums by class over all labelled samples; None unless the method has a space of its own.
        shards: adds tensors over the processes; None if there is one process.
    """

    source: Tensor
    classes: Tensor
    in_target: Tensor
    target: Tensor
    whole_target: Callable[[], Tensor]
    generator: torch.Generator
    class_sums: ClassSums | None = None
    shards: Shards | None = None

    @classmethod
    def of_target(
        cls, target: Tensor, generator: torch.Generator | None = None, shards: Shards | None = None
    ) -> FinalFeatures:
        """Return features of a target alone, (n, n_features), for a method that does not use labelled samples."""
        return cls(
            source=target[:0],
            classes=torch.zeros(0, dtype=torch.long),
            in_target=torch.zeros(0, dtype=torch.bool),
            target=target,
            whole_target=lambda: target,
            generator=torch.Generator() if generator is None else generator,
            shards=shards,
        )


class Method(nn.Module):
    """Base class of all methods. A method implements `step`, `features` and `decide`, and `finalize` if it fits a rule.

    Everything that `step` and `finalize` change is a parameter, a buffer or a `FittedState`, so that the state_dict
    holds the whole method. The other members have defaults.

    Attributes:
        backbone: maps inputs to embeddings.
        settings: resolved settings of the run.
        has_own_space: whether it decides in a space that `finalize` fits, in which private classes are counted as well.
        has_transport: whether the odds of its decisions are masses of a transport plan.
        most_fitted_rows: of a target with more samples, `finalize` sees a random part of this size; None for no limit.
        statistics: of the target, from which its accuracy is estimated; None if the method computes none.
    """

    backbone: nn.Module
    settings: Settings
    has_own_space: bool = False
    has_transport: bool = False
    most_fitted_rows: int | None = None
    statistics: TargetStatistics | None = None

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one training step."""
        raise NotImplementedError

    def features(self, inputs: Tensor) -> Tensor:
        """Return the features of inputs, (n_samples, n_features)."""
        raise NotImplementedError

    def batch_embeddings(self, batch: Batch) -> Tensor:
        """Return the backbone's output for the source and then the target of this process, (b + b', ...).

        Each domain is forwarded separately: batch normalisation that is trained must not mix their statistics.
        """
        return torch.cat([self.backbone(batch.source), self.backbone(batch.target)])

    def decide(self, features: Tensor) -> Decision:
        """Decide about each sample independently, fitted or new; called after `finalize`.

        Args:
            features: output of `transform`, (n_samples, n_features).
        """
        raise NotImplementedError

    def finalize(self, final: FinalFeatures) -> Tensor | None:
        """Fit the rule that decides, after the last step; by default there is nothing to fit.

        Returns:
            The whole target by `transform`, (n_samples, width), if it was computed, so that it need not be again.
        """
        return None

    def transform_rows(self, rows: Tensor, *, labelled: bool = False) -> Tensor:
        """Map features to the space that `finalize` fitted, (n_samples, width); by default they stay as they are.

        Args:
            rows: features, (n_samples, n_features).
            labelled: whether they are of the source.
        """
        return rows

    @torch.no_grad()
    def transform(self, features: Tensor, *, labelled: bool = False) -> Tensor:
        """Apply `transform_rows` in batches of a fixed size; all decisions are made from the result.

        Args:
            features: (n_samples, n_features).
            labelled: whether they are of the source.

        Returns:
            Transformed features, (n_samples, width).
        """
        if not self.has_own_space:
            return features
        return in_blocks(partial(self.transform_rows, labelled=labelled), features, _BLOCK)

    @property
    def has_unit_rows(self) -> bool:
        """Whether transformed rows have unit length; may be true only for a method with a space of its own."""
        return False

    def is_far(self, features: Tensor) -> Tensor | None:
        """Return which samples are farther from the target than its own samples are, (n_samples,); None if not known.

        Args:
            features: as for `transform`, (n_samples, n_features).
        """
        return None

    def is_finalized(self) -> bool:
        """Whether everything that `decide` needs is there."""
        return True

    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Use a batch of the target before the first step; called until `is_prepared`. Arguments as in `Batch`."""

    def is_prepared(self) -> bool:
        """Whether the first step may begin."""
        return True

    def after_step(self) -> None:
        """Update the method after the optimiser has changed the weights."""

    def class_prototypes(self) -> Tensor | None:
        """Return the position of each class among the features, (n_classes, n_features), if the method has any."""
        return None

    def cluster_prototypes(self) -> Tensor | None:
        """Return the positions of clusters of the target, (n_clusters, n_features), if the method has any."""
        return None

    def forget_samples(self) -> None:
        """Remove every feature of a single sample; the rule is the same afterwards, or one that needs none."""

    def stored_target(self) -> StoredTarget:
        """Describe what the fitted method stores of the target besides its weights."""
        return StoredTarget()

    def use_prototypes(self, given: GivenPrototypes) -> None:
        """Use class prototypes that the user gives; called before `prepare` and the first step.

        Raises:
            SettingsError: the method does not compare embeddings with class prototypes.
        """
        raise SettingsError(
            f"{self.settings.method} does not compare embeddings with class prototypes, so that prototypes would do "
            "nothing. Leave them out, or use a method that does, such as unincm, calibrated or clip-distill."
        )

    def trained_part(self) -> Method | None:
        """Return the part that training changed, from which another run may continue; None if nothing was trained."""
        return self

    def warm_start(self, before: Method, old_classes: Sequence[int], class_features: Callable[[int], Tensor]) -> None:
        """Take over the weights of a finished run.

        Args:
            before: the method of that run.
            old_classes: index that each class of this run had there, -1 for a new class, (n_classes,).
            class_features: returns the features of the labelled samples of a class, computed with the new weights.

        Raises:
            SettingsError: the weights are of a method that this one cannot continue from.
        """
        raise SettingsError(
            f"{self.settings.method} cannot continue from the weights of another run; only UniOT and UniNCM can. "
            "Start from random weights: with --names on the command line, without `start` in Python."
        )


class MethodOptions(CheckedSettings):
    """Hyper-parameters of a method that other methods do not have, with the published values as defaults."""

    def resolved(self, n_target: int) -> Self:
        """Return the same options with every value decided that depends on the number of target samples."""
        return self

    def acting(self, *, trains: bool) -> set[str]:
        """Return the names of the options that have an effect.

        Args:
            trains: whether a network is trained; a method that is closed-form on embeddings may train one on images.
        """
        return set(type(self).model_fields)

    def step_warnings(self, steps: int) -> tuple[str, ...]:
        """Return warnings about a number of training steps that is too small for these options."""
        return ()


Build = Callable[[int, int, Settings, Any, "nn.Module | None"], Method]


@dataclass(frozen=True)
class MethodInfo:
    """Entry of the method registry.

    Attributes:
        name: as on the command line.
        title: as in a table.
        source: authors, title and venue.
        rule: condition under which a sample is unknown, in one sentence.
        build: builds the method from the width of an embedding, the number of classes, the resolved settings, the
            options and a backbone.
        options: class of its hyper-parameters.
        learning_rate: published, for new layers; the backbone has a tenth of it.
        is_closed_form: whether nothing is trained if the embeddings are given.
        variant_of: name of the method of which it changes one part, for an ablation; None for a method of its own.
        is_reconstruction: whether it was rebuilt from the text of a paper alone because there is no public code.
        is_source_free: whether it adapts a classifier that was trained on the source, without the source itself.
        can_continue: whether it can start from the weights of a finished run.
        idle: settings and options that do not act for this method.
    """

    name: str
    title: str
    source: str
    rule: str
    build: Build
    options: type[MethodOptions] = MethodOptions
    learning_rate: float = 0.01
    is_closed_form: bool = False
    variant_of: str | None = None
    is_reconstruction: bool = False
    is_source_free: bool = False
    can_continue: bool = False
    idle: frozenset[str] = frozenset({"queue_size", "store_target"})
