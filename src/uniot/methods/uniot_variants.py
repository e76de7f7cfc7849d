"""Define UniOT with a part left out or replaced: the paper's ablations (Tables 4 and S3).

All variants decide as UniOT does, by the filled transport of the whole target, so that a table shows the effect of each
part on the training.

References:
    Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS 2022, arXiv:2210.17067.
    Caron et al., Unsupervised Learning of Visual Features by Contrasting Cluster Assignments, NeurIPS 2020,
    arXiv:2006.09882 (SwAV).
    Chen and He, Exploring Simple Siamese Representation Learning, CVPR 2021, arXiv:2011.10566 (SimSiam).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.config import Settings
from uniot.methods.base import Batch, MethodInfo
from uniot.methods.uniot import INFO, UniOTMethod, code_loss, swapped_code_loss
from uniot.methods.uniot_options import UniOTOptions, ViewOptions
from uniot.methods.uniot_views import two_views
from uniot.transport.plan import UnbalancedPotential, balanced_plan
from uniot.transport.rows import Shards
from uniot.transport.unbalanced import unbalanced_potential


class WithoutCommon(UniOTMethod):
    """Train without L_CCD: no common class is detected in training, and β stays uniform."""

    def common_class_loss(self, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return a zero loss and no detected classes."""
        return target.new_zeros(()), None


class WithoutFilling(UniOTMethod):
    """Train with L_CCD without adaptive filling, the paper's L_CCD†."""

    @torch.no_grad()
    def transport(
        self,
        cosines: Tensor,
        counts: Tensor | None,
        generator: torch.Generator,
        tolerance: float = 1e-6,
        shards: Shards | None = None,
    ) -> UnbalancedPotential:
        """Return the potential of the unfilled problem in training, of the filled one after it (`counts` is None)."""
        if counts is None:
            return super().transport(cosines, counts, generator, tolerance, shards)
        options = self.options
        return unbalanced_potential(
            cosines,
            self.class_mass,
            options.epsilon,
            options.marginal_penalty,
            tolerance,
            row_counts=counts,
            start=self.potential,
        )


class WithoutPrivate(UniOTMethod):
    """Train without L_PCD: the target is not clustered."""

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return a zero loss."""
        return target.new_zeros(())


class WithoutGlobal(UniOTMethod):
    """Train with L_PCD without L_global; L_local keeps its weight of one half."""

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return L_local / 2, a scalar."""
        return swapped_code_loss(*self.coded_pairs(target, batch)) / 2


class WithoutLocal(UniOTMethod):
    """Train with L_PCD without L_local; L_global keeps its weight of one half."""

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return L_global / 2, a scalar."""
        logits, _, codes, _ = self.coded_pairs(target, batch)
        return code_loss(logits, codes) / 2


class _WithViews(UniOTMethod):
    """Make two views per sample, for the variants that compare views."""

    options: ViewOptions

    def views(self, batch: Batch, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of two views of each target sample, (b', feature_size) each; see `two_views`."""
        return two_views(self.projection, batch, embeddings, self.options.dropped)


class SwAV(_WithViews):
    """Replace L_local by SwAV: two views of a sample predict each other's balanced codes (Caron et al., 2020).

    L = [L_global + (CE(q₂, p₁) + CE(q₁, p₂)) / 2] / 2. The views are of the embedding, not of the image.
    """

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return (L_global + L_SwAV) / 2, a scalar."""
        logits, _, codes, _ = self.coded_pairs(target, batch)
        cosines = self.clusters(torch.cat(self.views(batch, embeddings)))
        with torch.no_grad():
            rows = torch.cat([cosines, self.clusters(self.queue.features)])
            plan = balanced_plan(rows, self.options.balanced_epsilon, self.options.balanced_iterations)
            first, second = (plan * len(rows))[: len(cosines)].chunk(2)
        of_first, of_second = (cosines / self.options.temperature).chunk(2)
        return (code_loss(logits, codes) + swapped_code_loss(of_first, of_second, first, second)) / 2


class SimSiam(_WithViews):
    """Replace L_PCD by SimSiam: a view predicts the other, which carries no gradient (Chen and He, 2021).

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
        """Return L, a scalar from −1, if the views agree, to 1."""
        first, second = self.views(batch, embeddings)
        ahead = F.cosine_similarity(self.predictor(first), second.detach())
        back = F.cosine_similarity(self.predictor(second), first.detach())
        return -(ahead + back).mean() / 2


# A variant without a part must not offer the hyper-parameters of that part.
_OF_DETECTION = ("class_mass_momentum", "detection_start")
_OF_CLUSTERING = ("n_clusters", "balanced_epsilon", "balanced_iterations")


def _info(name: str, title: str, what: str, kind: type[UniOTMethod], idle: tuple[str, ...] = ()) -> MethodInfo:
    return MethodInfo(
        name=name,
        title=title,
        source=f"Chang et al., NeurIPS 2022, ablation: {what}",
        rule="as UniOT",
        variant_of=INFO.name,
        build=kind,
        can_continue=True,
        options=ViewOptions if issubclass(kind, _WithViews) else UniOTOptions,
        idle=INFO.idle.union(idle),
    )


INFOS = (
    _info("uniot-without-ccd", "UniOT without L_CCD", "no common-class detection", WithoutCommon, _OF_DETECTION),
    _info("uniot-without-filling", "UniOT without filling", "detection without adaptive filling", WithoutFilling),
    _info("uniot-without-pcd", "UniOT without L_PCD", "no private-class discovery", WithoutPrivate, _OF_CLUSTERING),
    _info("uniot-without-global", "UniOT without L_global", "neighbours alone", WithoutGlobal),
    _info("uniot-without-local", "UniOT without L_local", "clusters alone", WithoutLocal),
    _info("uniot-swav", "UniOT with SwAV", "SwAV in place of L_local", SwAV),
    _info("uniot-simsiam", "UniOT with SimSiam", "SimSiam in place of L_PCD", SimSiam, _OF_CLUSTERING),
)
