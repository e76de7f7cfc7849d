"""UniOT beyond the paper: universal in fact, without training where the embeddings are given.

embeddings ─► each domain's own centre ─► within-class whitening ─► mean of the neighbourhood ─► cosine to the classes
                                    cosines of the whole target ─► similarity, membership, presence ─► known or unknown

Where a network is trained as well, UniOT's losses train it (Eq. 15), and its embeddings are what this begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from uniot.errors import DataError, SettingsError
from uniot.methods.decision import Decision
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions, unchanged
from uniot.methods.uniot import UniOTMethod
from uniot.settings import Settings
from uniot.stored_tensors import StoredTensors
from uniot.transport import Shards
from uniot.universal import (
    ClassSums,
    Landmarks,
    Metric,
    Neighbours,
    Rejection,
    TargetStatistics,
    fit_landmarks,
    fit_metric,
    fit_rejection,
    stored_landmarks,
    stored_metric,
    stored_neighbours,
    stored_rejection,
    target_statistics,
)

# So many target samples are enough to see how classes vary.
_MOST_ROWS = 20_000
# A neighbourhood that reaches beyond a class blurs it, one that is small is noisy: a hundredth of the target is a fifth
# of a class where there are twenty; within bounds, and never more than a twentieth of a small target.
_FEWEST, _MOST, _PART_OF_TARGET, _MOST_OF_TARGET = 6, 20, 100, 20
# Names of the rules for both kinds of classes in a run folder.
_OF_SOURCE, _OF_TARGET = "source", "target"
# Samples are adapted in blocks of one size, so that an answer does not depend on its company.
_BLOCK = 128


class UniversalOptions(MethodOptions):
    """Every part can be switched off; the defaults were chosen on random class splits."""

    n_neighbours: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="That a sample is averaged with, 0 for none; from the target's size if left out.",
    )
    width: int = Field(256, ge=2, le=100_000, description="Directions of the embeddings that are kept at most.")
    shrinkage: float = Field(0.3, gt=0, le=1e3, description="Of the scatter within classes, towards a sphere.")
    own_centres: bool = Field(True, description="Whether each domain is centred on its own middle.")
    whitens: bool = Field(True, description="Whether directions that vary within classes count less.")
    estimates_share: bool = Field(True, description="Whether the private share is estimated; otherwise one half.")


class UniversalMethod(nn.Module):
    """A metric, the neighbourhoods of the target and a rejection rule, fitted after the training, if there is one."""

    has_own_space = True
    metric: Metric | None = None
    """Where the classes are; None before the end of the training."""
    neighbours: Neighbours | None = None
    """The target in that space; None where it is not kept."""
    landmarks: Landmarks | None = None
    """Means of several target samples, which stand in for a target that is not kept."""
    statistics: TargetStatistics | None = None
    """Of the target that was fitted; None if it is not smoothed."""
    rejections: dict[str, Rejection]
    """The rule for classes of the source, and that for classes that were named in the target."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniversalOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        """Builds the method.

        Args:
            in_features: width of an embedding, or of the backbone's output.
            n_classes: source classes.
            settings: resolved settings.
            options: of this method.
            backbone: from inputs to embeddings, which is trained; nothing for embeddings.
        """
        super().__init__()
        self.in_features, self.n_classes = in_features, n_classes
        self.settings, self.options = settings, options
        self.trainer = None if backbone is None else UniOTMethod(in_features, n_classes, settings, backbone)
        self._given = nn.Identity()

    @property
    def backbone(self) -> nn.Module:
        """From inputs to embeddings."""
        return self._given if self.trainer is None else self.trainer.backbone

    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """As UniOT does, where a network is trained."""
        if self.trainer is not None:
            self.trainer.prepare(target, target_ids, gather)

    def is_prepared(self) -> bool:
        """As UniOT is, where a network is trained."""
        return self.trainer is None or self.trainer.is_prepared()

    def step(self, batch: Batch) -> Losses:
        """UniOT's losses, which train the network."""
        if self.trainer is None:
            raise SettingsError("there is nothing to train: the embeddings are given. Take no step.")
        return self.trainer.step(batch)

    def after_step(self) -> None:
        """As UniOT does."""
        if self.trainer is not None:
            self.trainer.after_step()

    def features(self, inputs: Tensor) -> Tensor:
        """The embeddings, (n, d)."""
        embeddings: Tensor = self.backbone(inputs).flatten(1)
        return embeddings

    @torch.no_grad()
    def learn_space(
        self,
        source: Tensor,
        classes: Tensor,
        in_target: Tensor,
        target: Callable[[], Tensor],
        generator: torch.Generator,
        class_sums: ClassSums,
    ) -> None:
        """Finds the metric, keeps the target in it and summarises it by landmarks; then fits the rejection rule."""
        embeddings, options = target(), self.options
        n_neighbours = self._n_neighbours(len(embeddings))
        some = torch.randperm(len(embeddings), generator=generator)[:_MOST_ROWS].sort().values
        self.metric = fit_metric(
            source,
            classes,
            embeddings[some],
            in_target=in_target,
            n_classes=self.n_classes,
            n_neighbours=n_neighbours,
            width=options.width,
            shrinkage=options.shrinkage,
            generator=generator,
            own_centres=options.own_centres,
            whitens=options.whitens,
            class_sums=class_sums,
        )
        self.neighbours, self.landmarks = None, None
        adapted = alone = self.adapted(embeddings)
        if options.n_neighbours != 0:
            # As they will be read back from a file.
            self.neighbours = Neighbours(alone.half().float(), n_neighbours)
            adapted = self.adapted(embeddings)
            self.landmarks = fit_landmarks(alone, adapted, generator)
        self.rejections = self._fit_rejections(adapted, source[in_target], classes[in_target])
        # Without smoothing, a sample always has the nearest class of its neighbourhood.
        self.statistics = None if self.neighbours is None else self._statistics(alone, adapted, generator)

    def _statistics(self, alone: Tensor, adapted: Tensor, generator: torch.Generator) -> TargetStatistics:
        metric = self.learnt()
        presence, common = torch.ones(self.n_classes, dtype=torch.float64), 1.0
        if _OF_SOURCE in self.rejections:
            rule = self.rejections[_OF_SOURCE]
            presence[~metric.from_target], common = rule.presence, float(rule.scalars[3])
        return target_statistics(
            alone,
            adapted,
            self.decide(adapted).shares,
            metric.prototypes,
            presence=presence,
            # Classes that were named in the target are common in any case.
            common=1.0 if metric.from_target.any() else common,
            generator=generator,
        )

    def _n_neighbours(self, n_target: int) -> int:
        """As many as asked for; a target that is not averaged is whitened by neighbourhoods all the same."""
        by_size = min(max(_FEWEST, round(n_target / _PART_OF_TARGET)), _MOST)
        return min(self.options.n_neighbours or by_size, max(1, n_target // _MOST_OF_TARGET))

    def _fit_rejections(self, adapted: Tensor, named: Tensor, classes: Tensor) -> dict[str, Rejection]:
        """Fit the rule for the classes of the source, and that for classes that were named in the target.

        Samples of the target that were confirmed as one of the source's classes move its prototype. The rule is fitted
        to the prototypes of the source alone, for otherwise a confirmed class would set a level that others cannot
        reach. There is no shift between the target and classes that were named in it; the level of their named samples
        is known.

        Args:
            adapted: the target, (n, p).
            named: features of its samples that have a label, (m, d).
            classes: class index of each, (m,).
        """
        metric, found = self.learnt(), {}
        from_target, estimates = metric.from_target, self.options.estimates_share
        if not from_target.all():
            n_neighbours = self._n_neighbours(len(adapted))
            prototypes = metric.prototypes_in_source[~from_target]
            fitted = fit_rejection(adapted, prototypes, n_neighbours=n_neighbours, estimates_prior=estimates)
            found[_OF_SOURCE] = replace(fitted, prototypes=metric.prototypes[~from_target])
        if from_target.any():
            own = (self.adapted(named).double() @ metric.prototypes.double().t()).gather(1, classes[:, None])
            level, prototypes = float(own[from_target[classes]].median()), metric.prototypes[from_target]
            fitted = fit_rejection(adapted, prototypes, n_neighbours=1, level=level, estimates_prior=estimates)
            found[_OF_TARGET] = fitted
        return found

    @torch.no_grad()
    def adapted(self, features: Tensor, *, labelled: bool = False) -> Tensor:
        """Directions in the metric's space, (n, p), unit rows; of a target sample those of its neighbourhood."""
        blocks = [self._adapted_block(block, labelled=labelled) for block in features.split(_BLOCK)]
        return torch.cat(blocks) if blocks else features.new_zeros(0, self.learnt().basis.shape[1])

    def _adapted_block(self, block: Tensor, *, labelled: bool) -> Tensor:
        padded = torch.cat([block, block.new_zeros(_BLOCK - len(block), block.shape[1])])
        rows = self.learnt().source_rows(padded) if labelled else self.learnt().target_rows(padded)
        if self.neighbours is not None and not labelled:
            rows = self.neighbours.twice_averaged(rows)
        elif self.landmarks is not None and not labelled:
            rows = self.landmarks.transform(rows)
        return rows[: len(block)]

    def conclude(self, features: Tensor, generator: torch.Generator, shards: Shards | None = None) -> None:
        """Do nothing: the rejection rule is fitted with the space."""

    def decide(self, features: Tensor) -> Decision:
        """Known if similarity, membership and presence together reach the threshold."""
        from_target = self.learnt().from_target
        columns = [torch.nonzero(from_target == (kind == _OF_TARGET)).flatten() for kind in self.rejections]
        shares = torch.cat([rejection.shares(features) for rejection in self.rejections.values()], dim=1)
        shares = shares[:, torch.cat(columns).argsort()]
        return Decision(shares, shares.max(dim=1).values >= 1)

    def rule_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The metric, the rejection rule, the target in the metric's space and the landmarks that summarise it."""
        tensors = {part.name: getattr(self.learnt(), part.name) for part in fields(Metric)}
        for kind, rejection in self.rejections.items():
            tensors |= {f"rejection_{kind}_{name}": value for name, value in vars(rejection).items()}
        if self.neighbours is not None:
            tensors |= {
                "target": self.neighbours.rows.half(),
                "neighbourhoods": self.neighbours.of_stored.to(torch.int32),
            }
        if self.landmarks is not None:
            tensors |= {f"landmark_{part.name}": getattr(self.landmarks, part.name) for part in fields(Landmarks)}
        return tensors, {}

    def load_rule_state(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Takes back metric, rejection rule, target and landmarks."""
        scalars = [value for name, value in tensors.items() if name.endswith("_scalars")]
        if "borders" in tensors or any(len(value) != Rejection.N_SCALARS for value in scalars):
            raise DataError(
                "this run was made by an earlier version of uniot, whose rule for unknown samples has been replaced. "
                "Run `uniot adapt` again on the same data."
            )
        stored = StoredTensors("the rule of the run", tensors)
        self.metric = stored_metric(stored, self.in_features, self.n_classes)
        self.rejections = {}
        width, n_from_target = self.metric.basis.shape[1], int(self.metric.from_target.sum())
        for kind, n_classes in ((_OF_SOURCE, self.n_classes - n_from_target), (_OF_TARGET, n_from_target)):
            if n_classes:
                self.rejections[kind] = stored_rejection(stored.below(f"rejection_{kind}_"), n_classes, width)
        self.neighbours = stored_neighbours(stored, width) if "target" in tensors else None
        self.landmarks = stored_landmarks(stored.below("landmark_"), width) if "landmark_keys" in tensors else None

    def forget_samples(self) -> None:
        """Removes the target. From then on a sample is compared with the landmarks, and the rule stays."""
        self.neighbours = None
        if self.trainer is not None:
            self.trainer.forget_samples()

    def class_prototypes(self) -> Tensor:
        """Unit rows, (c, p)."""
        return self.learnt().prototypes

    def cluster_prototypes(self) -> Tensor | None:
        """There are none."""
        return None

    def learnt(self) -> Metric:
        """The metric, once there is one."""
        if self.metric is None:
            raise SettingsError("this method has not been trained to its end. Train it first.")
        return self.metric


INFO = MethodInfo(
    name="uniot-universal",
    title="UniOT universal",
    source="this project: docs/beyond-the-paper.md",
    rule="unknown if its similarity to a class, its membership in it and the presence of that class are too improbable",
    build=UniversalMethod,
    options=UniversalOptions,
    is_closed_form=True,
)
