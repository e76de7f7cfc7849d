"""The protocol between a method and the training loop; the loop knows no method by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from uniot.methods.decision import Decision
from uniot.settings import CheckedSettings, Settings
from uniot.transport import Shards
from uniot.universal import ClassSums, TargetStatistics


def unchanged(rows: Tensor) -> Tensor:
    """What one process gathers."""
    return rows


@dataclass(frozen=True)
class Batch:
    """What one step sees; there is no place for target labels.

    Where several processes share a step, each has the inputs of its own part; labels, ids and everything behind
    `gather` are those of the whole batch, in every process the same.

    Attributes:
        source: inputs of this process, (b / processes, ...).
        source_labels: class index of each of the whole batch, (b,).
        target: inputs of this process, (b' / processes, ...).
        target_ids: which target sample each row of the whole batch is, (b',).
        step: number of the step, from zero.
        generator: source of all randomness in the step, on the CPU.
        gather: from rows of this process to those of all, with gradients.
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
    """What a step yields.

    Attributes:
        total: what the optimiser lowers.
        parts: each loss before its weight, for the history.
        detected: class that each target row of the batch was detected as, -1 for none; None where the method
            detects nothing in this step.
        notes: further numbers for the history.
        class_mass: mass that each source class has after the step, (c,); None where the method has no such thing.
    """

    total: Tensor
    parts: Mapping[str, Tensor]
    detected: Tensor | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    class_mass: Tensor | None = None


class Method(Protocol):
    """A method: weights, a loss, what happens before and after a step, and a rule that decides in the end.

    A method is a `torch.nn.Module` as well.

    Attributes:
        has_own_space: whether it decides in a space that `learn_space` finds. Private classes are counted there.
        statistics: of the target, from which the accuracy is estimated; None if the method has none.
    """

    has_own_space: bool
    statistics: TargetStatistics | None

    @property
    def backbone(self) -> nn.Module:
        """From inputs to embeddings."""
        ...

    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Sees one batch of the target before the first step; called until `is_prepared`. Parts as in `Batch`."""
        ...

    def is_prepared(self) -> bool:
        """Whether the first step may begin."""
        ...

    def step(self, batch: Batch) -> Losses:
        """The losses of one step."""
        ...

    def after_step(self) -> None:
        """Called after the optimiser has moved the weights."""
        ...

    def features(self, inputs: Tensor) -> Tensor:
        """Inputs to features, (n, d)."""
        ...

    def learn_space(
        self,
        source: Tensor,
        classes: Tensor,
        in_target: Tensor,
        target: Callable[[], Tensor],
        generator: torch.Generator,
        class_sums: ClassSums,
    ) -> None:
        """Sees features of both domains after the last step; called if `has_own_space`.

        Args:
            source: features of a sample of the labelled samples, drawn evenly from the classes, (m, d).
            classes: class index of each, (m,).
            in_target: whether each is a sample of the target that somebody labelled, (m,).
            target: gives the features of the whole target, (n, d), in every process.
            generator: source of all randomness.
            class_sums: sums by class of the unit features of all labelled samples, in every process.
        """
        ...

    def adapted(self, features: Tensor, *, labelled: bool = False) -> Tensor:
        """Features in the space that `learn_space` found; everything that decides is computed from them.

        Args:
            features: (n, d).
            labelled: whether they are of the source.
        """
        ...

    def conclude(self, features: Tensor, generator: torch.Generator, shards: Shards | None = None) -> None:
        """Sees the adapted features of the whole target after the last step, and fixes the rule.

        Args:
            features: (n, d), on the CPU, as are the weights by then.
            generator: source of all randomness.
            shards: where several processes hold a part of the features each.
        """
        ...

    def decide(self, features: Tensor) -> Decision:
        """What the rule says of samples, each on its own, old or new; after `conclude`."""
        ...

    def rule_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What `conclude` found out, as tensors and as what JSON can hold."""
        ...

    def load_rule_state(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Takes back what `rule_state` gave."""
        ...

    def forget_samples(self) -> None:
        """Removes every feature of a single sample that the method keeps; the rule is the same, or one without them."""
        ...

    def class_prototypes(self) -> Tensor | None:
        """(c, d): where the classes are among the features; None where the method has no such thing."""
        ...

    def cluster_prototypes(self) -> Tensor | None:
        """(k, d): where clusters of the target are; None where the method has no such thing."""
        ...


class FeaturesAsTheyAre:
    """Of a method that decides by the features that it trains."""

    has_own_space = False
    statistics: TargetStatistics | None = None

    def learn_space(
        self,
        source: Tensor,
        classes: Tensor,
        in_target: Tensor,
        target: Callable[[], Tensor],
        generator: torch.Generator,
        class_sums: ClassSums,
    ) -> None:
        """There is no other space."""

    def adapted(self, features: Tensor, *, labelled: bool = False) -> Tensor:
        """The features themselves."""
        return features


class MethodOptions(CheckedSettings):
    """Hyper-parameters of a method that other methods do not have, with the published values as defaults."""


Build = Callable[[int, int, Settings, Any, "nn.Module | None"], Method]


@dataclass(frozen=True)
class MethodInfo:
    """A method as people choose it.

    Attributes:
        name: as on the command line.
        title: as in a table.
        source: who proposed it, and where.
        rule: in a sentence, when it calls a sample unknown.
        build: from the width of an embedding, the number of classes, the resolved settings, the options and a backbone
            to the method.
        options: its own hyper-parameters.
        learning_rate: published, for new layers; the backbone has a tenth of it.
        is_closed_form: whether nothing is trained where the embeddings are given.
        variant_of: name of the method that it changes one part of, to see what that part does; None for a method of its
            own.
        is_reconstruction: whether it was rebuilt from a paper's words alone, for want of public code.
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


def parameter_groups(method: nn.Module, backbone: nn.Module, settings: Settings) -> list[dict[str, object]]:
    """The backbone at its own learning rate, everything else at the full one."""
    of_backbone = {id(parameter) for parameter in backbone.parameters()}
    groups: list[dict[str, object]] = [
        {
            "params": [p for p in method.parameters() if id(p) not in of_backbone],
            "lr": settings.learning_rate,
        }
    ]
    if of_backbone:
        groups.append({"params": list(backbone.parameters()), "lr": settings.backbone_learning_rate})
    return groups
