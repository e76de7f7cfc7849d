"""UniOT with another target learner in place of L_PCD: Self-labelling, DeepCluster, PICA and SCAN.

All of them learn the target's clusters with UniOT's K prototypes and weight λ, and decide as UniOT does. A view of a
sample is its embedding after dropout, as in the variants with SwAV and SimSiam; a neighbour is UniOT's nearest one.

References:
    Asano et al., Self-labelling via Simultaneous Clustering and Representation Learning, ICLR 2020, arXiv:1911.05371.
    Caron et al., Deep Clustering for Unsupervised Learning of Visual Features, ECCV 2018, arXiv:1807.05520
    (DeepCluster).
    Huang et al., Deep Semantic Clustering by Partition Confidence Maximisation, CVPR 2020 (PICA).
    Van Gansbeke et al., SCAN: Learning to Classify Images without Labels, ECCV 2020, arXiv:2005.12320.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.discovery.kmeans import spherical_kmeans
from uniot.losses import (
    cluster_imbalance_loss,
    nearest_neighbours,
    neighbour_consistency_loss,
    partition_uncertainty_loss,
    pseudo_label_loss,
)
from uniot.methods.base import Batch, MethodInfo
from uniot.methods.uniot import INFO, UniOTMethod, UniOTOptions
from uniot.methods.uniot_variants import ViewOptions, two_views
from uniot.transport.balanced import balanced_plan

# The authors' code stops when the scalings settle. Here clusters of 40 samples on average then have 36 to 48.
_LABEL_ITERATIONS = 100


class SelfLabelOptions(ViewOptions):
    """Hyper-parameters of Self-labelling, with the published values as defaults."""

    label_updates: int = Field(100, ge=1, le=1_000_000, description="Number of label updates, most of them early.")
    label_power: float = Field(25.0, ge=0.1, le=90, description="Power of the cluster probabilities in an update.")


class DeepClusterOptions(ViewOptions):
    """Hyper-parameters of DeepCluster, with the published values as defaults."""

    label_updates: int = Field(200, ge=1, le=1_000_000, description="Number of runs of k-means, at equal intervals.")


class PICAOptions(ViewOptions):
    """Hyper-parameters of PICA, with the published value as default."""

    balance_weight: float = Field(2.0, ge=0, le=1e3, description="Weight of equally large clusters.")


class SCANOptions(UniOTOptions):
    """Hyper-parameters of SCAN, with the published value as default."""

    entropy_weight: float = Field(5.0, ge=0, le=1e3, description="Weight of the entropy of the mean assignment.")


def balanced_labels(cosines: Tensor, temperature: float, power: float) -> Tensor:
    """Return the cluster per sample, (n,), by which all clusters are about equally large.

    Args:
        cosines: of samples to cluster prototypes, (n, k).
        temperature: τ; p = softmax(cosines / τ).
        power: λ of Self-labelling; the labels are the row maxima of the balanced plan diag(u) p^λ diag(v).
    """
    # The row scalings absorb the denominators of the softmax, so that p^power is a kernel of the cosines.
    return balanced_plan(cosines, max(temperature / power, 1e-3), _LABEL_ITERATIONS).mass.argmax(dim=1)


class _WithLabels(UniOTMethod):
    """Train both views of a sample on its pseudo-label, which is updated from time to time.

    Attributes:
        labelled_ids: sample per place of the queue at the last update, the newest last, (queue_size,).
        labels: their clusters, (queue_size,).
    """

    options: SelfLabelOptions | DeepClusterOptions
    labelled_ids: Tensor
    labels: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: SelfLabelOptions | DeepClusterOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.register_buffer("labelled_ids", torch.full((len(self.loss.queue),), -1, dtype=torch.long))
        self.register_buffer("labels", torch.full((len(self.loss.queue),), -1, dtype=torch.long))

    def updates_until(self, step: int) -> int:
        """Return how many updates are due after the first step, up to this one."""
        return step * self.options.label_updates // (self.settings.steps or 1)

    def queue_labels(self, generator: torch.Generator) -> Tensor:
        """Return the new cluster of each feature of the queue, (queue_size,)."""
        raise NotImplementedError

    def logits(self, features: Tensor) -> Tensor:
        """Return the cosines of features to the cluster prototypes divided by the temperature, (n, K)."""
        cosines: Tensor = self.loss.clusters(features)
        return cosines / self.options.temperature

    def cluster_weights(self) -> Tensor | None:
        """Return the weight of the samples of each cluster, (K,); None for equal weights."""
        return None

    @torch.no_grad()
    def update_labels(self, generator: torch.Generator) -> None:
        """Label the whole queue anew."""
        oldest_first = (torch.arange(len(self.loss.queue), device=self.labels.device) + self.loss.queue.cursor) % len(
            self.loss.queue
        )
        self.labels.copy_(self.queue_labels(generator)[oldest_first])
        self.labelled_ids.copy_(self.loss.queue.ids[oldest_first])

    @torch.no_grad()
    def labels_of(self, target: Tensor, ids: Tensor) -> Tensor:
        """Return the pseudo-label per sample, (b',): of the last update, or the nearest prototype if it had none.

        Args:
            target: features, (b', feature_size).
            ids: sample ids, (b',).
        """
        is_same = ids[:, None] == self.labelled_ids
        newest = len(self.labels) - 1 - is_same.flip(1).int().argmax(dim=1)
        return torch.where(is_same.any(dim=1), self.labels[newest], self.loss.clusters(target).argmax(dim=1))

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return the cross-entropy of the pseudo-labels, a scalar."""
        first, second = two_views(self.projection, batch, embeddings, self.options.dropped)
        if batch.step == 0 or self.updates_until(batch.step) > self.updates_until(batch.step - 1):
            self.update_labels(batch.generator)
        labels = self.labels_of(target, batch.target_ids)
        return pseudo_label_loss(self.logits(first), self.logits(second), labels, self.cluster_weights())

    def forget_samples(self) -> None:
        """Empty the queue, and forget the pseudo-labels."""
        super().forget_samples()
        self.labelled_ids.fill_(-1)
        self.labels.fill_(-1)


class SelfLabelling(_WithLabels):
    """Replace L_PCD by Self-labelling: pseudo-labels from a balanced transport of the queue (Asano et al., 2020)."""

    options: SelfLabelOptions

    def updates_until(self, step: int) -> int:
        """Return how many updates are due after the first step; update i is due at (i / updates)² of the training."""
        return math.isqrt(step * self.options.label_updates**2 // (self.settings.steps or 1))

    def queue_labels(self, generator: torch.Generator) -> Tensor:
        """Return labels of equally large clusters, (queue_size,)."""
        return balanced_labels(
            self.loss.clusters(self.loss.queue.features), self.options.temperature, self.options.label_power
        )


class DeepCluster(_WithLabels):
    """Replace L_PCD by DeepCluster: pseudo-labels from k-means on the queue (Caron et al., 2018).

    Clusters have equal weights whatever their size. The centres are the classifier, which is not trained.
    """

    def queue_labels(self, generator: torch.Generator) -> Tensor:
        """Return the clusters of k-means, (queue_size,), and make its centres the cluster prototypes."""
        seed = int(torch.randint(2**31, (), generator=generator))
        n_centres = min(len(self.loss.clusters.weight), len(self.loss.queue))
        found = spherical_kmeans(self.loss.queue.features.cpu().numpy(), n_centres, seed=seed, restarts=1)
        self.loss.clusters.weight[:n_centres] = torch.from_numpy(found.centres).to(self.loss.clusters.weight)
        return torch.from_numpy(found.groups).to(self.labels)

    def logits(self, features: Tensor) -> Tensor:
        """Return the cosines of features to the centres divided by the temperature, (n, K)."""
        return features @ self.loss.clusters.weight.detach().t() / self.options.temperature

    def cluster_weights(self) -> Tensor:
        """Return the inverse number of samples per cluster, (K,)."""
        return 1 / torch.bincount(self.labels, minlength=len(self.loss.clusters.weight)).clamp_min(1).float()


class PICA(UniOTMethod):
    """Replace L_PCD by PICA: clusters hold the same samples in both views, and different ones (Huang et al., 2020)."""

    options: PICAOptions

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return the partition uncertainty and the weighted imbalance of two views and queue features, a scalar."""
        queued, tau = _queue_logits(self, batch), self.options.temperature
        views = two_views(self.projection, batch, embeddings, self.options.dropped)
        first, second = (torch.cat([self.loss.clusters(view) / tau, queued]) for view in views)
        return partition_uncertainty_loss(first, second) + self.options.balance_weight * cluster_imbalance_loss(first)


class SCAN(UniOTMethod):
    """Replace L_PCD by SCAN: a sample and its neighbour are in the same cluster (Van Gansbeke et al., 2020)."""

    options: SCANOptions

    def private_class_loss(self, target: Tensor, batch: Batch, embeddings: Tensor) -> Tensor:
        """Return the consistency of anchors and neighbours plus the weighted imbalance, a scalar."""
        neighbours = nearest_neighbours(target, batch.target_ids, self.loss.queue)
        anchors, others = (self.loss.clusters(rows) / self.options.temperature for rows in (target, neighbours))
        imbalance = cluster_imbalance_loss(torch.cat([anchors, _queue_logits(self, batch)]))
        return neighbour_consistency_loss(anchors, others) + self.options.entropy_weight * imbalance


def _queue_logits(method: UniOTMethod, batch: Batch) -> Tensor:
    """Return the logits of K random queue features, (K, K): a batch alone may have fewer rows than clusters."""
    picked = torch.randint(len(method.loss.queue), (len(method.loss.clusters.weight),), generator=batch.generator)
    logits: Tensor = method.loss.clusters(method.loss.queue.features[picked.to(batch.target.device)])
    return logits / method.options.temperature


def _info(name: str, learner: str, source: str, kind: type[UniOTMethod], options: type[UniOTOptions]) -> MethodInfo:
    return MethodInfo(
        name=name,
        title=f"UniOT with {learner}",
        source=f"{source}, in place of L_PCD of Chang et al., NeurIPS 2022",
        rule="as UniOT",
        variant_of=INFO.name,
        build=kind,
        can_continue=True,
        options=options,
        idle=INFO.idle.union(("balanced_epsilon", "balanced_iterations")),
    )


INFOS = (
    _info("uniot-selflabel", "Self-labelling", "Asano et al., ICLR 2020", SelfLabelling, SelfLabelOptions),
    _info("uniot-deepcluster", "DeepCluster", "Caron et al., ECCV 2018", DeepCluster, DeepClusterOptions),
    _info("uniot-pica", "PICA", "Huang et al., CVPR 2020", PICA, PICAOptions),
    _info("uniot-scan", "SCAN", "Van Gansbeke et al., ECCV 2020", SCAN, SCANOptions),
)
