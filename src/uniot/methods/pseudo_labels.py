"""Estimate the number of target classes, and turn pseudo-labels into class probabilities, for source-free methods.

References:
    Qu et al., Upcycling Models under Domain and Category Shift, CVPR 2023, arXiv:2303.07110.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_limits
from torch import Tensor

# More rows hardly change centres and silhouettes but make them slow.
MOST_ROWS = 2000
_MOST_EMBEDDED_ROWS = 1000
_LEAST_EMBEDDED_ROWS = 10


def soft_labels(labels: Tensor, n_classes: int) -> Tensor:
    """Return one row of class probabilities per pseudo-label, (n, c): one-hot, or uniform if it is unknown.

    Args:
        labels: class index per sample, `n_classes` for unknown, (n,).
        n_classes: c.
    """
    one_hot = F.one_hot(labels, n_classes + 1)[:, :n_classes].float()
    return torch.where((labels == n_classes)[:, None], 1 / n_classes, one_hot)


def evenly_spaced(rows: Tensor, most: int = MOST_ROWS) -> Tensor:
    """Return at most `most` rows, evenly spaced, (m, d)."""
    return rows if len(rows) <= most else rows[torch.arange(most, device=rows.device) * len(rows) // most]


def estimate_clusters(features: Tensor, n_classes: int, multiples: Iterable[float]) -> int:
    """Estimate the number of target classes: the number of k-means clusters with the largest mean silhouette.

    As published, the rows are clustered after a t-SNE to two dimensions, with the defaults of the authors' version of
    scikit-learn (1.0: learning rate 200, ten starts of k-means). At most 1000 rows are used, because the time of t-SNE
    grows faster than their number.

    Args:
        features: unit rows, (n, d).
        n_classes: number of source classes.
        multiples: of `n_classes`, candidates for the number.

    Returns:
        The number of clusters, at least 2.

    Paper: Qu et al., CVPR 2023, estimate of the number of target classes.
    """
    # Imported here because the command line must start without waiting for scikit-learn.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_score

    numbers = sorted({max(2, int(n_classes * multiple)) for multiple in multiples})
    rows = evenly_spaced(features, _MOST_EMBEDDED_ROWS).cpu().numpy()
    # A silhouette needs a cluster with two rows, and t-SNE a few neighbours that differ.
    candidates = [number for number in numbers if number < len(rows)]
    if len(candidates) < 2 or len(rows) < _LEAST_EMBEDDED_ROWS or rows.shape[1] < 2 or (rows == rows[0]).all():
        return numbers[0]
    scores = []
    # With several threads the order of a sum may vary, and t-SNE magnifies the difference.
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer distinct rows than clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        perplexity = min(30.0, (len(rows) - 1) / 3)
        embedded = TSNE(init="pca", random_state=0, learning_rate=200.0, perplexity=perplexity).fit_transform(rows)
        for number in candidates:
            clusters = KMeans(number, n_init=10, random_state=0).fit(embedded).labels_
            scores.append(silhouette_score(embedded, clusters) if len(set(clusters)) > 1 else -1.0)
    return candidates[max(range(len(scores)), key=scores.__getitem__)]
