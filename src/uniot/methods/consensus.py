"""Clusters of the target that agree with classes of the source, and the number of clusters at which they agree best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.clustering import spherical_kmeans


@dataclass(frozen=True)
class LabelledRows:
    """Unit features of the source.

    Attributes:
        rows: (n, d).
        labels: (n,).
        n_classes: how many there are; some may have no row.
    """

    rows: Tensor
    labels: Tensor
    n_classes: int

    def centres(self) -> Tensor:
        """Mean direction of each class, (c, d); zero where a class has no row."""
        return mean_directions(self.rows, self.labels, self.rows.new_zeros(self.n_classes, self.rows.shape[1]))


@dataclass(frozen=True)
class Consensus:
    """Clusters of the target beside the classes of the source.

    Attributes:
        centres: unit rows, (k, d).
        classes: class that each cluster is matched with, -1 for none, (k,); no class has two clusters.
        score: mean agreement of the matched pairs, from 0 to 1; zero where there are none.
    """

    centres: Tensor
    classes: Tensor
    score: float


def consensus_of(source: LabelledRows, target: Tensor, centres: Tensor) -> Consensus:
    """Matches clusters and classes whose centres are each other's nearest, and measures how far samples agree.

    The agreement of a pair is the mean of two shares: of the samples of the class, those whose nearest cluster is this
    one; of the samples of the cluster, those whose nearest class is this one.

    Args:
        source: labelled features.
        target: unit features, (n, d).
        centres: of the target's clusters, unit rows, (k, d).

    Paper: Li et al., Domain Consensus Clustering, CVPR 2021, section 3.2.
    """
    class_centres = source.centres()
    # A class without a row has no centre, and is nobody's nearest.
    absent = class_centres.norm(dim=1) == 0
    similarity = (class_centres @ centres.t()).masked_fill(absent[:, None], -torch.inf)
    nearest_cluster, nearest_class = similarity.argmax(dim=1), similarity.argmax(dim=0)
    cluster = torch.arange(len(centres), device=target.device)
    is_matched = nearest_cluster[nearest_class] == cluster
    clusters_of_source = (source.rows @ centres.t()).argmax(dim=1)
    to_classes = (target @ class_centres.t()).masked_fill(absent, -torch.inf)
    own_cluster, classes_of_target = (target @ centres.t()).argmax(dim=1), to_classes.argmax(dim=1)
    agreement = []
    for j in cluster[is_matched].tolist():
        i = int(nearest_class[j])
        from_source = (clusters_of_source[source.labels == i] == j).float().mean()
        members = own_cluster == j
        # A cluster whose rows have all moved to others agrees with nothing.
        from_target = (classes_of_target[members] == i).float().mean() if bool(members.any()) else 0.0
        agreement.append(float(from_source + from_target) / 2)
    score = sum(agreement) / len(agreement) if agreement else 0.0
    return Consensus(centres, torch.where(is_matched, nearest_class, -1), score)


def search_consensus(
    source: LabelledRows, target: Tensor, numbers: Iterable[int], *, drops: int = 3, seed: int = 0
) -> Consensus:
    """Clusters of the target in the number at which classes and clusters agree best.

    Args:
        source: labelled features.
        target: unit features, (n, d).
        numbers: of clusters, ascending; those beyond the number of rows are left out, but for the first.
        drops: so many numbers in a row that bring no rise end the search, at the number before them.
        seed: of the clustering.
    """
    found: list[Consensus] = []
    for number in numbers:
        if found and number > len(target):
            break
        clusters = spherical_kmeans(target, min(number, len(target)), seed=seed, restarts=1)
        centres = torch.from_numpy(clusters.centres).to(target)
        found.append(consensus_of(source, target, centres))
        scores = [consensus.score for consensus in found[-drops - 1 :]]
        if len(scores) == drops + 1 and all(after <= before for before, after in pairwise(scores)):
            return found[-drops - 1]
    return max(found, key=lambda consensus: consensus.score)


def moved_centres(target: Tensor, centres: Tensor, iterations: int = 20) -> Tensor:
    """Spherical k-means from given centres, (k, d); a cluster without rows keeps its centre."""
    for _ in range(iterations):
        before = centres
        centres = mean_directions(target, (target @ centres.t()).argmax(dim=1), before)
        if torch.equal(before, centres):
            break
    return centres


def mean_directions(rows: Tensor, groups: Tensor, otherwise: Tensor) -> Tensor:
    """Unit mean of the rows (n, d) of each group, (k, d); the row of `otherwise` where a group has none."""
    sums = torch.zeros_like(otherwise).index_add_(0, groups, rows)
    present = torch.bincount(groups, minlength=len(otherwise)) > 0
    return torch.where(present[:, None], F.normalize(sums, dim=1), otherwise)
