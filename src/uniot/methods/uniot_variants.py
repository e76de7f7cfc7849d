"""UniOT with a part left out or replaced: the paper's ablations (Tables 4 and S3).

All variants decide as UniOT does, by the filled transport of the whole target, so that a table shows the effect of each
part on the training.

References:
    Chang et al., Unified Optimal Transport Framework for Universal Domain Adaptation, NeurIPS 2022, arXiv:2210.17067.
    Caron et al., Unsupervised Learning of Visual Features by Contrasting Cluster Assignments, NeurIPS 2020,
    arXiv:2006.09882 (SwAV).
    Chen and He, Exploring Simple Siamese Representation Learning, CVPR 2021, arXiv:2011.10566 (SimSiam).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.losses import code_loss, swapped_code_loss
from uniot.methods.base import Batch, MethodInfo
from uniot.methods.uniot import INFO, UniOTMethod, UniOTOptions


class ViewOptions(UniOTOptions):
    """Hyper-parameters of two views of an embedding; the published methods crop images and jitter their colours."""

    dropped: float = Field(0.2, ge=0, lt=1, description="Share of an embedding's numbers that a view leaves out.")


def two_views(
    project: Callable[[Tensor], Tensor], batch: Batch, embeddings: Tensor, dropped: float
) -> tuple[Tensor, Tensor]:
    """Return the features of two views per target sample, (b', feature_size) each.

    A view is the embedding after dropout, with another mask per view.

    Args:
        project: maps embeddings to features.
        batch: has the random generator.
        embeddings: of the target batch, (b', in_features).
        dropped: share of an embedding's numbers that a view leaves out.

    Raises:
        SettingsError: several processes share the batch.
    """
    if len(batch.target) != len(batch.target_ids):
        raise SettingsError("this variant of UniOT makes views in one process. Set --devices to 1.")
    kept = torch.rand(2, *embeddings.shape, generator=batch.generator).to(embeddings.device) >= dropped
    first, second = (project(embeddings * mask / (1 - dropped)).float() for mask in kept)
    return first, second


class WithoutCommon(UniOTMethod):
    """UniOT without L_CCD: no common class is detected in training, and β stays uniform."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniOTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.loss.detection_start = math.inf


class WithoutFilling(UniOTMethod):
    """UniOT with L_CCD without adaptive filling in training, the paper's L_CCD†."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniOTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.loss.common.fills = False


class WithoutPrivate(UniOTMethod):
    """UniOT without L_PCD: the target is not clustered."""

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return a zero loss."""
        return target.new_zeros(())


class WithoutGlobal(UniOTMethod):
    """UniOT with L_PCD without L_global; L_local keeps its weight of one half."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniOTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.loss.private.global_weight = 0.0


class WithoutLocal(UniOTMethod):
    """UniOT with L_PCD without L_local; L_global keeps its weight of one half."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: UniOTOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.loss.private.local_weight = 0.0


class SwAV(UniOTMethod):
    """Replace L_local by SwAV: two views of a sample predict each other's balanced codes (Caron et al., 2020).

    L = [L_global + (CE(q₂, p₁) + CE(q₁, p₂)) / 2] / 2. The views are of the embedding, not of the image.
    """

    options: ViewOptions

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return (L_global + L_SwAV) / 2, a scalar."""
        loss, l_pcd = self.loss, self.loss.private
        logits, _, codes, _ = l_pcd.coded_pairs(target, batch.target_ids, loss.clusters, loss.queue, batch.generator)
        views = two_views(self.projection, batch, embeddings, self.options.dropped)
        cosines = loss.clusters(torch.cat(views))
        first, second = l_pcd.codes(cosines, loss.clusters(loss.queue.features)).chunk(2)
        of_first, of_second = (cosines / self.options.temperature).chunk(2)
        return (code_loss(logits, codes) + swapped_code_loss(of_first, of_second, first, second)) / 2


class SimSiam(UniOTMethod):
    """Replace L_PCD by SimSiam: a view predicts the other, which carries no gradient (Chen and He, 2021).

    L = −[cos(h(z₁), z₂) + cos(h(z₂), z₁)] / 2, with a predictor h of two layers and a bottleneck.
    """

    options: ViewOptions

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
        first, second = two_views(self.projection, batch, embeddings, self.options.dropped)
        ahead = F.cosine_similarity(self.predictor(first), second.detach())
        back = F.cosine_similarity(self.predictor(second), first.detach())
        return -(ahead + back).mean() / 2


# A variant without a part must not offer the hyper-parameters of that part.
_OF_DETECTION = ("class_mass_momentum", "detection_start")
_OF_CLUSTERING = ("n_clusters", "balanced_epsilon", "balanced_iterations")


def _info(
    name: str,
    title: str,
    what: str,
    kind: type[UniOTMethod],
    idle: tuple[str, ...] = (),
    options: type[UniOTOptions] = UniOTOptions,
) -> MethodInfo:
    return MethodInfo(
        name=name,
        title=title,
        source=f"Chang et al., NeurIPS 2022, ablation: {what}",
        rule="as UniOT",
        variant_of=INFO.name,
        build=kind,
        can_continue=True,
        options=options,
        idle=INFO.idle.union(idle),
    )


INFOS = (
    _info("uniot-without-ccd", "UniOT without L_CCD", "no common-class detection", WithoutCommon, _OF_DETECTION),
    _info("uniot-without-filling", "UniOT without filling", "detection without adaptive filling", WithoutFilling),
    _info("uniot-without-pcd", "UniOT without L_PCD", "no private-class discovery", WithoutPrivate, _OF_CLUSTERING),
    _info("uniot-without-global", "UniOT without L_global", "neighbours alone", WithoutGlobal),
    _info("uniot-without-local", "UniOT without L_local", "clusters alone", WithoutLocal),
    _info("uniot-swav", "UniOT with SwAV", "SwAV in place of L_local", SwAV, options=ViewOptions),
    _info("uniot-simsiam", "UniOT with SimSiam", "SimSiam in place of L_PCD", SimSiam, _OF_CLUSTERING, ViewOptions),
)
