"""UniOT with a part left out or replaced: the paper's ablations (Tables 4 and S3).

All variants decide in the end as UniOT does, by the filled transport of the whole target, so that a table shows what
the training owes to each part.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.errors import SettingsError
from uniot.losses.private_class import code_loss, swapped_code_loss
from uniot.methods.method import Batch, MethodInfo, MethodOptions
from uniot.methods.uniot import INFO, UniOTMethod
from uniot.settings import Settings
from uniot.transport import Shards, UnbalancedPotential, balanced_plan, unbalanced_potential


class WithoutCommon(UniOTMethod):
    """Without L_CCD: nothing is detected while training, and β stays even."""

    def common_class_loss(self, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Nothing."""
        return target.new_zeros(()), None


class WithoutFilling(UniOTMethod):
    """L_CCD without adaptive filling, the paper's L_CCD†."""

    @torch.no_grad()
    def transport(
        self,
        cosines: Tensor,
        counts: Tensor | None,
        generator: torch.Generator,
        tolerance: float = 1e-6,
        shards: Shards | None = None,
    ) -> UnbalancedPotential:
        """The unfilled problem while training, the filled one in the end."""
        if counts is None:
            return super().transport(cosines, counts, generator, tolerance, shards)
        settings = self.settings
        return unbalanced_potential(
            cosines,
            self.class_mass,
            settings.epsilon,
            settings.marginal_penalty,
            tolerance,
            row_counts=counts,
            start=self.potential,
        )


class WithoutPrivate(UniOTMethod):
    """Without L_PCD: the target is not clustered."""

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Nothing."""
        return target.new_zeros(())


class WithoutGlobal(UniOTMethod):
    """L_PCD without L_global; L_local keeps its weight of one half."""

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """L_local / 2."""
        return swapped_code_loss(*self.coded_pairs(target, batch)) / 2


class WithoutLocal(UniOTMethod):
    """L_PCD without L_local; L_global keeps its weight of one half."""

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """L_global / 2."""
        logits, _, codes, _ = self.coded_pairs(target, batch)
        return code_loss(logits, codes) / 2


class ViewOptions(MethodOptions):
    """How a second view of an embedding is made; for images the published methods crop and colour instead."""

    dropped: float = Field(0.2, ge=0, lt=1, description="Share of an embedding's numbers that a view leaves out.")


class _WithViews(UniOTMethod):
    """Variants that compare two views of a sample."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: ViewOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, backbone)
        self._dropped = options.dropped

    def views(self, batch: Batch, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Features of two views of each target sample: other numbers of its embedding are left out of each."""
        if len(batch.target) != len(batch.target_ids):
            raise SettingsError("this variant of UniOT makes views in one process. Set --devices to 1.")
        kept = torch.rand(2, *embeddings.shape, generator=batch.generator).to(embeddings.device) >= self._dropped
        first, second = (self.projection(embeddings * mask / (1 - self._dropped)).float() for mask in kept)
        return first, second


class SwAV(_WithViews):
    """L_local replaced by SwAV: two views of a sample predict each other's balanced codes (Caron et al., 2020).

    L = [L_global + (CE(q₂, p₁) + CE(q₁, p₂)) / 2] / 2. The views are of the embedding, not of the image.
    """

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Half L_global and half L_SwAV."""
        logits, _, codes, _ = self.coded_pairs(target, batch)
        cosines = self.clusters(torch.cat(self.views(batch, embeddings)))
        with torch.no_grad():
            rows = torch.cat([cosines, self.clusters(self.queue.features)])
            plan = balanced_plan(rows, self.settings.balanced_epsilon, self.settings.balanced_iterations)
            first, second = (plan * len(rows))[: len(cosines)].chunk(2)
        of_first, of_second = (cosines / self.settings.temperature).chunk(2)
        return (code_loss(logits, codes) + swapped_code_loss(of_first, of_second, first, second)) / 2


class SimSiam(_WithViews):
    """L_PCD replaced by SimSiam: a view predicts the other, which carries no gradient (Chen and He, 2021).

    L = −[cos(h(z₁), z₂) + cos(h(z₂), z₁)] / 2, with a predictor h of two layers and a bottleneck.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: ViewOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        size, narrow = settings.feature_size, max(1, settings.feature_size // 4)
        self.predictor = nn.Sequential(nn.Linear(size, narrow), nn.ReLU(), nn.Linear(narrow, size))

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """From −1, where the views agree, to 1."""
        first, second = self.views(batch, embeddings)
        ahead = F.cosine_similarity(self.predictor(first), second.detach())
        back = F.cosine_similarity(self.predictor(second), first.detach())
        return -(ahead + back).mean() / 2


def _info(name: str, title: str, what: str, kind: type[UniOTMethod]) -> MethodInfo:
    def build(
        in_features: int, n_classes: int, settings: Settings, options: MethodOptions, backbone: nn.Module | None
    ) -> UniOTMethod:
        if issubclass(kind, _WithViews):
            assert isinstance(options, ViewOptions)
            return kind(in_features, n_classes, settings, options, backbone)
        return kind(in_features, n_classes, settings, backbone)

    return MethodInfo(
        name=name,
        title=title,
        source=f"Chang et al., NeurIPS 2022, ablation: {what}",
        rule="as UniOT",
        variant_of=INFO.name,
        build=build,
        options=ViewOptions if issubclass(kind, _WithViews) else MethodOptions,
    )


INFOS = (
    _info("uniot-without-ccd", "UniOT without L_CCD", "no common-class detection", WithoutCommon),
    _info("uniot-without-filling", "UniOT without filling", "detection without adaptive filling", WithoutFilling),
    _info("uniot-without-pcd", "UniOT without L_PCD", "no private-class discovery", WithoutPrivate),
    _info("uniot-without-global", "UniOT without L_global", "neighbours alone", WithoutGlobal),
    _info("uniot-without-local", "UniOT without L_local", "clusters alone", WithoutLocal),
    _info("uniot-swav", "UniOT with SwAV", "SwAV in place of L_local", SwAV),
    _info("uniot-simsiam", "UniOT with SimSiam", "SimSiam in place of L_PCD", SimSiam),
)
