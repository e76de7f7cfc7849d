"""DCC: clusters of the target that agree with source classes are common; the others are private."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from uniot.losses.contrastive_domain import contrastive_domain_discrepancy
from uniot.methods.consensus import (
    Consensus,
    LabelledRows,
    consensus_of,
    mean_directions,
    moved_centres,
    search_consensus,
)
from uniot.methods.head_method import HeadMethod
from uniot.methods.method import Batch, Losses, MethodInfo, MethodOptions
from uniot.networks.sample_bank import SampleBank
from uniot.settings import Settings
from uniot.transport import Shards
from uniot.transport.shards import before_and_all

# More rows than these do not move the centres, and clustering them many times takes long.
_MOST_ROWS = 1000
_MOST_FINAL_ROWS = 5000
# A search tries at most so many numbers of clusters.
_MOST_NUMBERS = 30
# The published ramp reaches this share of its length by the end of the published run: 3000 of 5000 steps.
_RAMP_SHARE = 0.6


class DCCOptions(MethodOptions):
    """Published values of DCC, those for Office-31."""

    rounds: int = Field(15, ge=1, le=10_000, description="Times in a run that the target is clustered.")
    interval: int = Field(2, ge=1, le=1000, description="Between two numbers of clusters that are tried.")
    most_clusters: float = Field(3.0, ge=1, le=100, description="Largest number of clusters, in source classes.")
    drops: int = Field(3, ge=1, le=1000, description="Numbers in a row without a rise that end a search.")
    alignment_weight: float = Field(0.1, ge=0, le=1e3, description="Of the contrastive domain discrepancy.")
    prototype_temperature: float = Field(0.1, ge=1e-3, le=100, description="Cosines to the centres are divided by it.")
    ramp: float = Field(3.0, ge=0, le=100, description="γ; the prototype loss weighs exp(-γ (1 - 0.6 step/steps)).")
    drawn_classes: int = Field(10, ge=1, le=10_000, description="Common classes that a step aligns.")
    drawn_samples: int = Field(3, ge=1, le=10_000, description="Samples of each of them, in each domain.")


class DCC(HeadMethod):
    """Domain Consensus Clustering. Paper: Li et al., CVPR 2021.

    Fifteen times in a run the target is clustered, with the number of clusters at which clusters and source classes
    agree best (`search_consensus`); once a number has been found twice in a row it stays. Clusters that are matched
    with a class, and have more than three samples, are common (paper: sections 3.2, 3.3).

    The features are a linear layer and batch normalisation, as in the authors' code. Statistics in training are those
    of a domain's whole batch, in the end the running ones of both domains.

    What differs from the authors' code: it reads the whole collections again for each clustering and for class-wise
    batches; here both come from banks of the latest `queue_size` embeddings of each domain. Their features are
    computed anew, so with embeddings it is the same thing; a backbone that is trained learns from the batch alone, not
    from what is drawn from the banks. The first round is source classification alone, as in the published run on
    Office-Home. Rounds and ramp, published in steps (every 200 of 3000), are shares of the run. A clustering sees at
    most 1000 samples (5000 in the end) and tries at most 30 numbers. The prototype loss is of the batch, which the
    authors draw cluster by cluster.
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
        self.norm = nn.BatchNorm1d(settings.feature_size)
        self.source_bank = SampleBank(self.queue_size, in_features)
        self.target_bank = SampleBank(self.queue_size, in_features)
        self.round_length = max(1, self.steps // options.rounds)
        self.most_clusters = max(2, int(n_classes * options.most_clusters))
        # Room for as many clusters as there may be; those in use come first.
        self.register_buffer("centres", torch.zeros(self.most_clusters, settings.feature_size))
        self.register_buffer("classes", torch.full((self.most_clusters,), -1))
        # The number in use, and the one of the round before; zero before the first round.
        self.register_buffer("n_clusters", torch.zeros(2, dtype=torch.long))

    def project(self, embeddings: Tensor, *, learning: bool) -> Tensor:
        """Embeddings (n, d) to features, with the statistics of these rows where it learns, else the running ones."""
        norm = self.norm
        return F.batch_norm(
            self.bottleneck(embeddings).float(),
            norm.running_mean,
            norm.running_var,
            norm.weight,
            norm.bias,
            # A single row has no statistics.
            training=learning and len(embeddings) > 1,
        )

    def features(self, inputs: Tensor) -> Tensor:
        """Inputs to features, (n, d)."""
        return self.project(self.backbone(inputs), learning=False)

    def step(self, batch: Batch) -> Losses:
        """The losses of one step.

        L = CE(y, p_s) + CE(y, p of drawn source samples) + 0.1 CDD(drawn samples of both domains)
          + exp(-γ (1 - 0.6 step/steps)) CE(cluster, cos(f_t, centres) / 0.1)

        Drawn are three samples of up to ten common classes from each domain; a target sample's class is its cluster's.
        """
        own = self.backbone(torch.cat([batch.source, batch.target])).float()
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
        """Cross-entropy and contrastive domain discrepancy of samples drawn class by class from the banks."""
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
        # A class whose samples have left a bank cannot be drawn.
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
        """From 0 to 1, above one half where the nearest centre is that of a common cluster.

        The sigmoid of the cosine to the nearest common centre less that to the nearest private one, over 0.1.
        """
        centres, classes = self._in_use()
        cosines = F.normalize(features, dim=1) @ centres.t()
        common = cosines.masked_fill(classes < 0, -torch.inf).max(dim=1).values
        private = cosines.masked_fill(classes >= 0, -torch.inf).max(dim=1).values
        return ((common - private) / self.options.prototype_temperature).sigmoid()

    @torch.no_grad()
    def conclude(self, features: Tensor, generator: torch.Generator, shards: Shards | None = None) -> None:
        """Clusters the target a last time; the published run ends with a clustering as well."""
        rows = F.normalize(_some_of_all(features, shards), dim=1)
        self._take(self._consensus(rows), rows)

    def forget_samples(self) -> None:
        """Empties the banks."""
        self.source_bank.clear()
        self.target_bank.clear()

    def cluster_prototypes(self) -> Tensor:
        """Unit centres of the target's clusters, (k, d)."""
        return self._in_use()[0]

    def _in_use(self) -> tuple[Tensor, Tensor]:
        n_clusters = int(self.n_clusters[0])
        return self.centres[:n_clusters], self.classes[:n_clusters]

    def _remember_source(self, source: Tensor, batch: Batch) -> None:
        # The batch does not tell which source samples it holds: each counts as a new one.
        ids = batch.step * len(source) + torch.arange(len(source), device=source.device)
        self.source_bank.put(source, ids, batch.source_labels)

    @torch.no_grad()
    def _cluster(self) -> None:
        """A round: clusters the bank, and gives each of its samples its cluster."""
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
        """Makes a consensus the one in use; clusters of too few rows are not common."""
        n_clusters = len(consensus.centres)
        sizes = torch.bincount((rows @ consensus.centres.t()).argmax(dim=1), minlength=n_clusters)
        classes = torch.where(sizes > self.options.drawn_samples, consensus.classes, -1)
        self.centres.zero_()[:n_clusters] = consensus.centres
        self.classes.fill_(-1)[:n_clusters] = classes
        self.n_clusters.copy_(torch.tensor([n_clusters, int(self.n_clusters[0])]))

    def _clusters_of(self, places: Tensor, features: Tensor) -> Tensor:
        """Cluster of each row of the batch: that of the last round, or the nearest where it was not there."""
        nearest = (features @ self._in_use()[0].t()).argmax(dim=1)
        given = self.target_bank.labels[places]
        return torch.where(given >= 0, given, nearest)

    @torch.no_grad()
    def _move_centres(self, features: Tensor, clusters: Tensor) -> None:
        """Moves the centres towards the batch, the less so the closer they are to it already."""
        centres, _ = self._in_use()
        here = mean_directions(features, clusters, centres)
        kept = (centres * here).sum(dim=1, keepdim=True).clamp(0, 1)
        centres.copy_(F.normalize(kept * centres + (1 - kept) * here, dim=1))


def _draw(places: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Some of the places, with replacement."""
    return places[torch.randint(len(places), (number,), generator=generator).to(places.device)]


def _evenly(rows: Tensor, most: int) -> Tensor:
    """At most so many of the rows, evenly spread over their order."""
    return rows if len(rows) <= most else rows[torch.arange(most, device=rows.device) * len(rows) // most]


def _some_of_all(rows: Tensor, shards: Shards | None) -> Tensor:
    """The rows of all processes, or some of them, evenly spread, in every process the same."""
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
