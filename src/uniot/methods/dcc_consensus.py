"""Match target clusters with source classes and search the number of clusters at which they agree best.

References:
    Li et al., Domain Consensus Clustering for Universal Domain Adaptation, CVPR 2021.
    Kang et al., Contrastive Adaptation Network for Unsupervised Domain Adaptation, CVPR 2019, arXiv:1901.00976.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.discovery.kmeans import spherical_kmeans


@dataclass(frozen=True)
class LabelledRows:
    """Unit features of the source with their classes.

    Attributes:
        rows: (n, d).
        labels: class per row, (n,).
        n_classes: number of classes; some may have no row.
    """

    rows: Tensor
    labels: Tensor
    n_classes: int

    def centres(self) -> Tensor:
        """Return the mean direction of each class, (c, d); zero for a class without rows."""
        return mean_directions(self.rows, self.labels, self.rows.new_zeros(self.n_classes, self.rows.shape[1]))


@dataclass(frozen=True)
class Consensus:
    """Target clusters and the source classes that they are matched with.

    Attributes:
        centres: unit rows, (k, d).
        classes: class that each cluster is matched with, -1 for none, (k,); no class has two clusters.
        score: mean agreement of the matched pairs, from 0 to 1; zero if there are none.
    """

    centres: Tensor
    classes: Tensor
    score: float


def consensus_of(source: LabelledRows, target: Tensor, centres: Tensor) -> Consensus:
    """Match clusters and classes whose centres are mutual nearest neighbours, and score their agreement.

    The agreement of a pair is the mean of two fractions: samples of the class whose nearest cluster is this one, and
    samples of the cluster whose nearest class is this one.

    Args:
        source: labelled features.
        target: unit features, (n, d).
        centres: unit centres of the target's clusters, (k, d).

    Returns:
        The matched clusters and the consensus score.

    Paper: Li et al., Domain Consensus Clustering, CVPR 2021, section 3.2.
    """
    class_centres = source.centres()
    # A class without rows has a zero centre, whose cosines would be larger than negative ones.
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
        # A mean over a cluster without rows would be NaN.
        from_target = (classes_of_target[members] == i).float().mean() if bool(members.any()) else 0.0
        agreement.append(float(from_source + from_target) / 2)
    score = sum(agreement) / len(agreement) if agreement else 0.0
    return Consensus(centres, torch.where(is_matched, nearest_class, -1), score)


def search_consensus(
    source: LabelledRows, target: Tensor, numbers: Iterable[int], *, drops: int = 3, seed: int = 0
) -> Consensus:
    """Cluster the target with the number of clusters that has the largest consensus score.

    Args:
        source: labelled features.
        target: unit features, (n, d).
        numbers: candidate numbers of clusters, ascending; those above the number of rows are skipped, except the first.
        drops: number of successive candidates without a larger score that ends the search; the candidate before them
            is chosen.
        seed: random seed of the clustering.

    Returns:
        The best clustering.
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
    """Run spherical k-means from given centres; a cluster without rows keeps its centre.

    Args:
        target: unit features, (n, d).
        centres: unit rows, (k, d).
        iterations: largest number of updates.

    Returns:
        Unit centres, (k, d).
    """
    for _ in range(iterations):
        before = centres
        centres = mean_directions(target, (target @ centres.t()).argmax(dim=1), before)
        if torch.equal(before, centres):
            break
    return centres


def mean_directions(rows: Tensor, groups: Tensor, otherwise: Tensor) -> Tensor:
    """Return the unit mean of the rows of each group, (k, d).

    Args:
        rows: (n, d).
        groups: group per row, from 0 to k - 1, (n,).
        otherwise: result for a group without rows, (k, d).
    """
    sums = torch.zeros_like(otherwise).index_add_(0, groups, rows)
    present = torch.bincount(groups, minlength=len(otherwise)) > 0
    return torch.where(present[:, None], F.normalize(sums, dim=1), otherwise)
