"""The rule for classes that people named in the target: a sample is of one of them if it is near enough to its samples.

An average over neighbours makes a sample look like them, whatever it is. This rule therefore uses the centred embedding
of the sample itself, neither averaged nor whitened: a metric that is fitted to the classes of the target removes the
directions in which other classes differ. The threshold comes from the target alone, as the higher of two bounds: most
samples of other classes, known and new, are below the first, and few samples of the named classes, each compared with
the others of its class, are below the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.errors import RunFolderError
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors
from uniot.methods.unincm.space import quantile
from uniot.neighbours import similar_groups

# Part of the samples of other classes that stays below the threshold, and part of the own ones that may.
_OTHERS_BELOW, _OWN_BELOW = 0.9, 0.15
# Odds of the median sample of a named class, as a logarithm; and the least distance from the threshold to it.
_MEDIAN_LOG_ODDS, _LEAST_DISTANCE = 2.0, 0.02
_MOST_LOG_ODDS = 6.0


@dataclass(frozen=True)
class NamedClasses:
    """The fitted rule for the classes that people named in the target.

    Attributes:
        means: mean direction of each small group of similar samples of a class, (m, n_features), unit rows.
        threshold: cosine to the nearest of them from which on a sample is of one of these classes; a float64 scalar.
        scale: difference of cosines by which the odds change by e; a float64 scalar.
    """

    means: Tensor
    threshold: Tensor
    scale: Tensor

    @classmethod
    def read(cls, stored: StoredTensors, in_features: int) -> NamedClasses:
        """Return the stored rule; raise RunFolderError if it is damaged."""
        means = stored.take("means", (None, in_features), torch.float32)
        if not len(means):
            raise RunFolderError(f"{stored.where} has named classes without samples. {MAKE_AGAIN}")
        return cls(
            means=means,
            threshold=stored.take("threshold", (), torch.float64, low=-1, high=1),
            scale=stored.take("scale", (), torch.float64, low=1e-6, high=2),
        )

    def odds(self, rows: Tensor) -> Tensor:
        """Return the odds of being of a named class, 1 at the threshold, (n_samples, 1), float32.

        Args:
            rows: centred embeddings, (n_samples, n_features), unit rows.
        """
        nearest = (rows @ self.means.t()).max(dim=1, keepdim=True).values.double()
        return ((nearest - self.threshold) / self.scale).clamp(-_MOST_LOG_ODDS, _MOST_LOG_ODDS).exp().float()


def fit_named_classes(rows: Tensor, classes: Tensor, is_named: Tensor) -> NamedClasses:
    """Fit the rule to samples of the target whose class is known.

    Args:
        rows: centred embeddings, (n_samples, n_features), unit rows.
        classes: class index of each; people labelled those of named classes, the rule predicted the others.
        is_named: whether each class was named in the target, (n_classes,).

    Returns:
        The fitted rule.
    """
    own, others, means = [], torch.full((len(rows),), -1.0), []
    for index in classes.unique().tolist():
        members = torch.nonzero(classes == index).flatten()
        groups = similar_groups(rows[members])
        sums = rows.new_zeros(int(groups.max()) + 1, rows.shape[1]).index_add_(0, groups, rows[members])
        cosines = rows @ F.normalize(sums, dim=1).t()
        outside = classes != index
        others[outside] = others[outside].maximum(cosines[outside].max(dim=1).values)
        if not is_named[index]:
            continue
        means.append(F.normalize(sums, dim=1))
        if len(members) > 1:
            # Each sample is compared with the means without itself; a group of one has no mean then.
            inside = cosines[members]
            alone = F.normalize(sums[groups] - rows[members], dim=1)
            inside.scatter_(1, groups[:, None], (rows[members] * alone).sum(dim=1, keepdim=True))
            own.append(inside.max(dim=1).values)
    bounds = [quantile(others, _OTHERS_BELOW)]
    reached = torch.cat(own) if own else others
    if own:
        bounds.append(quantile(reached, _OWN_BELOW))
    threshold = max(bounds)
    distance = max(quantile(reached, 0.5) - threshold, _LEAST_DISTANCE)
    scalars = (min(max(threshold, -1.0), 1.0), distance / _MEDIAN_LOG_ODDS)
    return NamedClasses(torch.cat(means), *(torch.tensor(value, dtype=torch.float64) for value in scalars))
