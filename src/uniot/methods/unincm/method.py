"""UniNCM: universal nearest class mean, closed-form on embeddings.

embeddings ─► centre each domain ─► whiten within classes ─► average the neighbourhood ─► cosine to the class means
                                 cosines of the whole target ─► similarity, membership, presence ─► known or unknown
If a network is trained as well, UniOT's losses train it (Eq. 15), and its embeddings are the input of all this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.methods.base import Batch, FinalFeatures, Losses, Method, MethodInfo, unchanged
from uniot.methods.decision import Decision
from uniot.methods.fitted import ClassSums, FittedState, GivenPrototypes, StoredTarget
from uniot.methods.unincm.fit import UniNCMFit
from uniot.methods.unincm.named import NamedClasses, fit_named_classes
from uniot.methods.unincm.options import (
    UniNCMOptions,
    WithoutCentres,
    WithoutNeighbours,
    WithoutPrior,
    WithoutWhitening,
)
from uniot.methods.unincm.rejection import Rejection, fit_rejection
from uniot.methods.unincm.space import fit_metric
from uniot.methods.uniot import UniOTMethod
from uniot.neighbours import Neighbours, fit_landmarks
from uniot.reliability import TargetStatistics, target_statistics

# Target samples from which the scatter is estimated, at most.
_MOST_ROWS = 20_000
# Size of a neighbourhood: one that is larger than a class blurs it, and a small one is noisy. A hundredth of the target
# is a fifth of a class if there are twenty; it is kept within bounds, and at most a twentieth of a small target.
_FEWEST, _MOST, _PART_OF_TARGET, _MOST_OF_TARGET = 6, 20, 100, 20
# Target samples that the rule for named classes is fitted to, besides labelled ones; and the cosine of equal samples.
_MOST_COMPARED, _SAME_SAMPLE = 3000, 1 - 1e-6


class UniNCMMethod(Method):
    """A metric, the neighbourhoods of the target and a rejection rule, fitted after the training, if there is one.

    Attributes:
        trainer: trains the backbone; None if the embeddings are given.
        fitted: metric, rejection rule, neighbours and landmarks.
        statistics: of the fitted target; None without smoothing.
    """

    has_own_space = True
    most_fitted_rows = 50_000

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniNCMOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        """Build the method.

        Args:
            in_features: width of an embedding, or of the backbone's output.
            n_classes: number of source classes.
            settings: resolved settings.
            options: hyper-parameters of this method.
            backbone: maps inputs to embeddings, and is trained; None if the inputs are embeddings.
        """
        super().__init__()
        self.n_classes, self.settings, self.options = n_classes, settings, options
        self.trainer = None if backbone is None else UniOTMethod(in_features, n_classes, settings, options, backbone)
        self.fitted = FittedState(
            UniNCMFit.tensors, partial(UniNCMFit.read, in_features=in_features, n_classes=n_classes)
        )
        self._identity = nn.Identity()
        self._given: GivenPrototypes | None = None

    @property
    def backbone(self) -> nn.Module:  # type: ignore[override]
        """Return the network that maps inputs to embeddings."""
        return self._identity if self.trainer is None else self.trainer.backbone

    def prepare(self, target: Tensor, target_ids: Tensor, gather: Callable[[Tensor], Tensor] = unchanged) -> None:
        """Prepare UniOT if a network is trained."""
        if self.trainer is not None:
            self.trainer.prepare(target, target_ids, gather)

    def is_prepared(self) -> bool:
        """Whether UniOT is prepared, if a network is trained."""
        return self.trainer is None or self.trainer.is_prepared()

    def step(self, batch: Batch) -> Losses:
        """Return UniOT's losses, which train the network."""
        if self.trainer is None:
            raise SettingsError("there is nothing to train: the embeddings are given. Take no step.")
        return self.trainer.step(batch)

    def after_step(self) -> None:
        """Normalise UniOT's prototypes."""
        if self.trainer is not None:
            self.trainer.after_step()

    def use_prototypes(self, given: GivenPrototypes) -> None:
        """Decide by these prototypes, in place of the class means or averaged with them."""
        self._given = given

    def features(self, inputs: Tensor) -> Tensor:
        """Return the embeddings, (n_samples, in_features)."""
        embeddings: Tensor = self.backbone(inputs).flatten(1)
        return embeddings

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> Tensor:
        """Fit the metric, store the target in it, summarise it by landmarks, and fit the rejection rule.

        Returns:
            The transformed target, (n_samples, width).
        """
        embeddings, options, generator = final.whole_target(), self.options, final.generator
        n_neighbours = self.n_neighbours(len(embeddings))
        some = torch.randperm(len(embeddings), generator=generator)[:_MOST_ROWS].sort().values
        class_sums, used = final.class_sums, torch.ones_like(final.in_target)
        if class_sums is None:
            class_sums = ClassSums.of(
                [(final.source, final.classes, final.in_target)], self.n_classes, embeddings.shape[1]
            )
        if class_sums.in_source.any() and not class_sums.in_source.all():
            # With new classes, the rule of the source classes stays that of a run without labels of the target.
            used, class_sums = ~final.in_target, class_sums.without_target_of_source()
        metric = fit_metric(
            final.source[used],
            final.classes[used],
            embeddings[some],
            in_target=final.in_target[used],
            n_classes=self.n_classes,
            n_neighbours=n_neighbours,
            width=options.width,
            shrinkage=options.shrinkage,
            generator=generator,
            own_centres=options.own_centres,
            whitens=options.whitens,
            class_sums=class_sums,
            given=self._given,
        )
        self.fitted.value = UniNCMFit(metric)
        rows = alone = self.transform(embeddings)
        if options.n_neighbours != 0:
            # In half precision, as they are read back from a file.
            neighbours = Neighbours(alone.half().float(), n_neighbours)
            self.fitted.value = UniNCMFit(metric, neighbours=neighbours)
            rows = self.transform(embeddings)
            self.fitted.value = replace(self.fitted.get(), landmarks=fit_landmarks(alone, rows, generator))
        self.fitted.value = replace(self.fitted.get(), rejection=self._fit_rejection(rows))
        directions = rows
        if metric.from_target.any():
            named = self._fit_named(embeddings, rows, final.source[final.in_target], final.classes[final.in_target])
            self.fitted.value = replace(self.fitted.get(), named=named)
            rows = self.transform(embeddings)
        # Without smoothing, the nearest class of a sample is always that of its neighbourhood.
        odds = self.fitted.get().decide(rows).odds
        self.statistics = None if options.n_neighbours == 0 else self._statistics(alone, directions, odds, generator)
        return rows

    def is_finalized(self) -> bool:
        """Whether the rule is fitted."""
        return self.fitted.value is not None

    def _statistics(self, alone: Tensor, rows: Tensor, odds: Tensor, generator: torch.Generator) -> TargetStatistics:
        fit = self.fitted.get()
        rule = partial(
            fit_rejection, n_neighbours=self.n_neighbours(len(rows)), estimates_prior=self.options.estimates_prior
        )
        return target_statistics(alone, rows, odds, fit.metric.prototypes, fit_rule=rule, generator=generator)

    def n_neighbours(self, n_target: int) -> int:
        """Return the size of a neighbourhood; the metric needs one even if the target is not smoothed."""
        by_size = min(max(_FEWEST, round(n_target / _PART_OF_TARGET)), _MOST)
        return min(self.options.n_neighbours or by_size, max(1, n_target // _MOST_OF_TARGET))

    def _fit_rejection(self, rows: Tensor) -> Rejection | None:
        """Fit the rule for the classes of the source to the target, (n_samples, width); None if there are none.

        Target samples that were confirmed as a source class move its prototype. The rule is fitted to the prototypes of
        the source alone, because a confirmed class would otherwise set a level that others cannot reach.
        """
        metric = self.fitted.get().metric
        in_source = ~metric.from_target
        if not in_source.any():
            return None
        fitted = fit_rejection(
            rows,
            metric.prototypes_in_source[in_source],
            n_neighbours=self.n_neighbours(len(rows)),
            estimates_prior=self.options.estimates_prior,
        )
        return replace(fitted, prototypes=metric.prototypes[in_source])

    def _fit_named(self, embeddings: Tensor, rows: Tensor, labelled: Tensor, classes: Tensor) -> NamedClasses:
        """Fit the rule for the classes that people named in the target.

        Args:
            embeddings: the target, (n_samples, in_features).
            rows: the same by `transform`, (n_samples, width).
            labelled: embeddings of target samples that people labelled, (m, in_features).
            classes: class index of each, (m,).
        """
        fit = self.fitted.get()
        from_target, own = fit.metric.from_target, fit.metric.centred(labelled)
        if fit.rejection is None:
            return fit_named_classes(own, classes, from_target)
        some = torch.arange(0, len(rows), -(-len(rows) // _MOST_COMPARED))
        largest, nearest = fit.rejection.odds(rows[some]).max(dim=1)
        others = fit.metric.centred(embeddings[some])
        # What a person labelled has that class, whatever the rule says.
        known = (largest >= 1) & ((others @ own.t()).max(dim=1).values < _SAME_SAMPLE)
        of_rule = torch.nonzero(~from_target).flatten()[nearest[known]]
        return fit_named_classes(torch.cat([own, others[known]]), torch.cat([classes, of_rule]), from_target)

    def transform_rows(self, rows: Tensor, *, labelled: bool = False) -> Tensor:
        """Return directions in the metric's space; for target samples those of their neighbourhood.

        The rows have unit length. If people named classes in the target, their length is the odds of a named class.
        """
        fit = self.fitted.get()
        if labelled:
            return fit.metric.source_rows(rows)
        directions, summary = fit.metric.target_rows(rows), fit.neighbours or fit.landmarks
        directions = directions if summary is None else summary.transform(directions)
        return directions if fit.named is None else directions * fit.named.odds(fit.metric.centred(rows))

    @torch.no_grad()
    def is_far(self, features: Tensor) -> Tensor | None:
        """Return which samples are farther from the stored target than its own samples are, if there are neighbours."""
        fit = self.fitted.get()
        return None if fit.neighbours is None else fit.neighbours.is_far(fit.metric.target_rows(features))

    @property
    def has_unit_rows(self) -> bool:
        """Whether transformed rows have unit length: true unless people named classes in the target."""
        return self.fitted.get().named is None

    def decide(self, features: Tensor) -> Decision:
        """Decide by similarity, membership and presence."""
        return self.fitted.get().decide(features)

    def forget_samples(self) -> None:
        """Remove the target; from then on samples are compared with the landmarks, and the rule stays."""
        self.fitted.value = replace(self.fitted.get(), neighbours=None)
        if self.trainer is not None:
            self.trainer.forget_samples()

    def stored_target(self) -> StoredTarget:
        """Describe the stored target and the landmarks."""
        return self.fitted.get().stored_target()

    def class_prototypes(self) -> Tensor:
        """Return unit rows, (n_classes, width)."""
        return self.fitted.get().metric.prototypes

    def trained_part(self) -> Method | None:
        """Return UniOT's part; None if the embeddings were given."""
        return self.trainer

    def warm_start(self, before: Method, old_classes: Sequence[int], class_features: Callable[[int], Tensor]) -> None:
        """Take over the weights of UniOT's part; without training there is nothing to take over."""
        if self.trainer is not None:
            self.trainer.warm_start(before, old_classes, class_features)


INFO = MethodInfo(
    name="unincm",
    title="UniNCM",
    source="this project",
    rule="unknown if it resembles no class, or only a class that probably does not occur in the target",
    build=UniNCMMethod,
    options=UniNCMOptions,
    is_closed_form=True,
    can_continue=True,
    idle=frozenset(),
)


def _without(part: str, what: str, options: type[UniNCMOptions]) -> MethodInfo:
    return replace(
        INFO,
        name=f"{INFO.name}-without-{part}",
        title=f"{INFO.title} without {what}",
        rule="as UniNCM",
        variant_of=INFO.name,
        options=options,
        # Without neighbours no target sample is kept; without whitening there is no covariance to shrink.
        idle=frozenset({WithoutNeighbours: ["store_target"], WithoutWhitening: ["shrinkage"]}.get(options, [])),
    )


INFOS = (
    _without("neighbours", "neighbours", WithoutNeighbours),
    _without("whitening", "whitening", WithoutWhitening),
    _without("centres", "centres of its own", WithoutCentres),
    _without("prior", "an estimated prior", WithoutPrior),
)
