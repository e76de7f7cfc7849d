"""Cluster the target; clusters that agree with a source class are common, the others private (DCC).

References:
    Li et al., Domain Consensus Clustering for Universal Domain Adaptation, CVPR 2021.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.config import Settings
from uniot.losses import SampleBank, contrastive_domain_discrepancy
from uniot.methods.base import Batch, FinalFeatures, Losses, MethodInfo, MethodOptions
from uniot.methods.dcc_consensus import (
    Consensus,
    LabelledRows,
    consensus_of,
    mean_directions,
    moved_centres,
    search_consensus,
)
from uniot.methods.head import NormalisedHeadMethod
from uniot.transport.rows import Shards, before_and_all

# More rows hardly change the centres but make the repeated clustering slow.
_MOST_ROWS = 1000
_MOST_FINAL_ROWS = 5000
# Largest number of candidates in one search, which bounds its cost for many classes.
_MOST_NUMBERS = 30
# The published run ends at this fraction of the published ramp: 3000 of 5000 steps.
_RAMP_SHARE = 0.6


class DCCOptions(MethodOptions):
    """Hyper-parameters of DCC, with the values published for Office-31 as defaults."""

    rounds: int = Field(15, ge=1, le=10_000, description="Times in a run that the target is clustered.")
    interval: int = Field(2, ge=1, le=1000, description="Between two numbers of clusters that are tried.")
    most_clusters: float = Field(3.0, ge=1, le=100, description="Largest number of clusters, in source classes.")
    drops: int = Field(3, ge=1, le=1000, description="Numbers in a row without a rise that end a search.")
    alignment_weight: float = Field(0.1, ge=0, le=1e3, description="Of the contrastive domain discrepancy.")
    prototype_temperature: float = Field(0.1, ge=1e-3, le=100, description="Cosines to the centres are divided by it.")
    ramp: float = Field(3.0, ge=0, le=100, description="γ; the prototype loss weighs exp(-γ (1 - 0.6 step/steps)).")
    drawn_classes: int = Field(10, ge=1, le=10_000, description="Common classes that a step aligns.")
    drawn_samples: int = Field(3, ge=1, le=10_000, description="Samples of each of them, in each domain.")


class DCC(NormalisedHeadMethod):
    """Adapt by Domain Consensus Clustering. Paper: Li et al., CVPR 2021.

    Fifteen times per run the target is clustered, with the number of clusters at which clusters and source classes
    agree best (`search_consensus`); a number that is found twice in a row is kept. Clusters that are matched with a
    class and have more than three samples are common (paper: sections 3.2, 3.3).

    The features are a linear layer and batch normalisation, as in the authors' code. Training uses the statistics of a
    domain's whole batch, prediction the running statistics of both domains.

    Differences from the authors' code: it reads both data sets again for each clustering and for class-wise batches;
    here both come from banks of the latest `queue_size` embeddings of each domain. Their features are recomputed, so on
    embeddings the result is the same; a backbone that is trained gets gradients from the batch alone, not from samples
    drawn from the banks. The first round is source classification alone, as in the published run on Office-Home. Rounds
    and ramp, published in steps (every 200 of 3000), are fractions of the run. A clustering uses at most 1000 samples
    (5000 after the last step) and tries at most 30 numbers. The prototype loss is computed on the batch, which the
    authors draw cluster by cluster.

    Attributes:
        centres: unit centres of the clusters, (most_clusters, d); those in use come first.
        classes: class matched with each cluster, -1 for none, (most_clusters,).
        n_clusters: number of clusters in use and in the round before, (2,).
    """

    options: DCCOptions

    centres: Tensor
    classes: Tensor
    n_clusters: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: DCCOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.source_bank = SampleBank(self.queue_size, in_features)
        self.target_bank = SampleBank(self.queue_size, in_features)
        self.round_length = max(1, self.steps // options.rounds)
        self.most_clusters = max(2, int(n_classes * options.most_clusters))
        # Buffers have a fixed size, so that a checkpoint can be loaded whatever the number of clusters.
        self.register_buffer("centres", torch.zeros(self.most_clusters, settings.feature_size))
        self.register_buffer("classes", torch.full((self.most_clusters,), -1))
        # Zero before the first round.
        self.register_buffer("n_clusters", torch.zeros(2, dtype=torch.long))

    def step(self, batch: Batch) -> Losses:
        """Return the losses of one step.

        L = CE(y, p_s) + CE(y, p of drawn source samples) + 0.1 CDD(drawn samples of both domains)
          + exp(-γ (1 - 0.6 step/steps)) CE(cluster, cos(f_t, centres) / 0.1)

        Three samples of up to ten common classes are drawn per domain; the class of a target sample is its cluster's.
        """
        own = self.batch_embeddings(batch).float()
        source, target = map(batch.gather, own.split([len(batch.source), len(batch.target)]))
        classification = F.cross_entropy(self.classifier(self.project(source, learning=True)), batch.source_labels)
        self._remember_source(source.detach(), batch)
        places = self.target_bank.put(target.detach(), batch.target_ids)
        if batch.step > 0 and batch.step % self.round_length == 0:
            self._cluster()
        features = F.normalize(self.project(target, learning=True), dim=1)
        drawn = prototype = classification.new_zeros(())
        discrepancy, detected = drawn, None
        if int(self.n_clusters[0]):
            clusters = self._clusters_of(places, features.detach())
            self._move_centres(features.detach(), clusters)
            drawn, discrepancy = self.alignment_losses(batch.generator)
            centres, classes = self._in_use()
            prototype = F.cross_entropy(features @ centres.t() / self.options.prototype_temperature, clusters)
            detected = classes[clusters]
        ramp = math.exp(-self.options.ramp * (1 - _RAMP_SHARE * batch.step / self.steps))
        return Losses(
            total=classification + drawn + self.options.alignment_weight * discrepancy + ramp * prototype,
            parts={"source": classification, "drawn": drawn, "discrepancy": discrepancy, "prototype": prototype},
            detected=detected,
            notes={"clusters": float(self.n_clusters[0]), "common_clusters": float((self.classes >= 0).sum())},
        )

    def alignment_losses(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return cross-entropy and contrastive domain discrepancy, scalars, of samples drawn by class."""
        _, classes = self._in_use()
        common = torch.nonzero(classes >= 0).flatten().cpu()
        order = torch.randperm(len(common), generator=generator)[: self.options.drawn_classes]
        pairs = [(int(classes[cluster]), int(cluster)) for cluster in common[order]]
        places = [
            (
                torch.nonzero(self.source_bank.labels == i).flatten(),
                torch.nonzero(self.target_bank.labels == j).flatten(),
            )
            for i, j in pairs
        ]
        # A class may have no samples left in a bank.
        kept = [(i, both) for (i, _), both in zip(pairs, places, strict=True) if all(len(part) for part in both)]
        if not kept:
            zero = self.norm.weight.sum() * 0
            return zero, zero
        n, size = self.options.drawn_samples, self.norm.num_features
        labels = torch.tensor([i for i, _ in kept], device=classes.device).repeat_interleave(n)
        source, target = (
            self.project(bank.rows[torch.cat([_draw(both[domain], n, generator) for _, both in kept])], learning=True)
            for domain, bank in enumerate((self.source_bank, self.target_bank))
        )
        drawn = F.cross_entropy(self.classifier(source), labels)
        return drawn, contrastive_domain_discrepancy(source.view(-1, n, size), target.view(-1, n, size))

    def score(self, features: Tensor) -> Tensor:
        """Return a score per sample, (n,), from 0 to 1; above one half if the nearest cluster is common.

        It is sigmoid((cosine to the nearest common centre - cosine to the nearest private centre) / 0.1).
        """
        centres, classes = self._in_use()
        cosines = F.normalize(features, dim=1) @ centres.t()
        common = cosines.masked_fill(classes < 0, -torch.inf).max(dim=1).values
        private = cosines.masked_fill(classes >= 0, -torch.inf).max(dim=1).values
        return ((common - private) / self.options.prototype_temperature).sigmoid()

    @torch.no_grad()
    def finalize(self, final: FinalFeatures) -> None:
        """Cluster the target a last time; the published run ends with a clustering as well."""
        rows = F.normalize(_some_of_all(final.target, final.shards), dim=1)
        self._take(self._consensus(rows), rows)

    def forget_samples(self) -> None:
        """Clear the banks."""
        self.source_bank.clear()
        self.target_bank.clear()

    def cluster_prototypes(self) -> Tensor:
        """Return the unit centres of the target's clusters, (k, d)."""
        return self._in_use()[0]

    def _in_use(self) -> tuple[Tensor, Tensor]:
        n_clusters = int(self.n_clusters[0])
        return self.centres[:n_clusters], self.classes[:n_clusters]

    def _remember_source(self, source: Tensor, batch: Batch) -> None:
        # A batch has no source ids, so each sample is stored as a new one.
        ids = batch.step * len(source) + torch.arange(len(source), device=source.device)
        self.source_bank.put(source, ids, batch.source_labels)

    @torch.no_grad()
    def _cluster(self) -> None:
        """Cluster the target bank and label each of its samples with its cluster."""
        places = self.target_bank.filled()
        rows = F.normalize(self.project(self.target_bank.rows[places], learning=False), dim=1)
        self._take(self._consensus(_evenly(rows, _MOST_ROWS)), rows)
        self.target_bank.labels[places] = (rows @ self._in_use()[0].t()).argmax(dim=1)

    def _consensus(self, target: Tensor) -> Consensus:
        places = self.source_bank.filled()
        rows = F.normalize(self.project(self.source_bank.rows[places], learning=False), dim=1)
        source = LabelledRows(rows, self.source_bank.labels[places], self.n_classes)
        now, before = self.n_clusters.tolist()
        if now and now == before:
            return consensus_of(source, target, moved_centres(target, self._in_use()[0]))
        interval = max(self.options.interval, math.ceil(self.most_clusters / _MOST_NUMBERS))
        # As published: the first search begins at the number of classes, later ones at the bottom.
        first = max(2, interval if now else min(self.n_classes, self.most_clusters))
        numbers = range(first, self.most_clusters + 1, interval)
        return search_consensus(source, target, numbers, drops=self.options.drops)

    def _take(self, consensus: Consensus, rows: Tensor) -> None:
        """Replace the clusters in use by those of a consensus; clusters with too few rows are not common."""
        n_clusters = len(consensus.centres)
        sizes = torch.bincount((rows @ consensus.centres.t()).argmax(dim=1), minlength=n_clusters)
        classes = torch.where(sizes > self.options.drawn_samples, consensus.classes, -1)
        self.centres.zero_()[:n_clusters] = consensus.centres
        self.classes.fill_(-1)[:n_clusters] = classes
        self.n_clusters.copy_(torch.tensor([n_clusters, int(self.n_clusters[0])]))

    def _clusters_of(self, places: Tensor, features: Tensor) -> Tensor:
        """Return the cluster per row of the batch: that of the last round, or the nearest for a new sample."""
        nearest = (features @ self._in_use()[0].t()).argmax(dim=1)
        given = self.target_bank.labels[places]
        return torch.where(given >= 0, given, nearest)

    @torch.no_grad()
    def _move_centres(self, features: Tensor, clusters: Tensor) -> None:
        """Move the centres towards the batch means, by less if the cosine between the two is larger."""
        centres, _ = self._in_use()
        here = mean_directions(features, clusters, centres)
        kept = (centres * here).sum(dim=1, keepdim=True).clamp(0, 1)
        centres.copy_(F.normalize(kept * centres + (1 - kept) * here, dim=1))


def _draw(places: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Return some of the places, drawn with replacement."""
    return places[torch.randint(len(places), (number,), generator=generator).to(places.device)]


def _evenly(rows: Tensor, most: int) -> Tensor:
    """Return at most `most` rows, evenly spaced."""
    return rows if len(rows) <= most else rows[torch.arange(most, device=rows.device) * len(rows) // most]


def _some_of_all(rows: Tensor, shards: Shards | None) -> Tensor:
    """Return evenly spaced rows of all processes, the same in every process."""
    if shards is None:
        return _evenly(rows, _MOST_FINAL_ROWS)
    own = _evenly(rows, _MOST_FINAL_ROWS // shards.count)
    before, total = before_and_all(shards, len(own))
    everything = own.new_zeros(int(total), own.shape[1])
    everything[int(before) : int(before) + len(own)] = own
    return shards.add(everything)


INFO = MethodInfo(
    name="dcc",
    title="DCC",
    source="Li et al., Domain Consensus Clustering for Universal Domain Adaptation, CVPR 2021",
    rule="unknown where the nearest centre is that of a target cluster that agrees with no source class",
    build=DCC,
    options=DCCOptions,
    learning_rate=0.001,
)
