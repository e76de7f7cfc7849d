"""The space in which classes are compared: each domain centred, directions whitened within classes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.io.tensor_files import StoredTensors
from uniot.linear_algebra import leading_directions
from uniot.methods.fitted import ClassSums, GivenPrototypes
from uniot.neighbours import Neighbours, mean_over

_REFLECTIONS, _MOST_ROWS_FOR_CHANCE = 12, 2000


@dataclass(frozen=True)
class Metric:
    """A fitted linear map of embeddings, one centre per domain, and the class prototypes in its space.

    Attributes:
        source_centre: mean of the source's class means of unit embeddings, (n_features,).
        target_centre: mean of the target's unit embeddings, (n_features,).
        basis: maps centred embeddings to the space, (n_features, width).
        prototypes: class means, (n_classes, width), unit rows.
        prototypes_in_source: class means of the source's samples alone, (n_classes, width), unit rows.
        from_target: whether a class has no sample in the source, (n_classes,); somebody named it in the target.
    """

    source_centre: Tensor
    target_centre: Tensor
    basis: Tensor
    prototypes: Tensor
    prototypes_in_source: Tensor
    from_target: Tensor

    @classmethod
    def read(cls, stored: StoredTensors, in_features: int, n_classes: int) -> Metric:
        """Return the stored metric of `n_classes` classes; raises RunFolderError if it is damaged."""
        basis = stored.take("basis", (in_features, None), torch.float32)
        prototypes = (n_classes, basis.shape[1])
        return cls(
            source_centre=stored.take("source_centre", (in_features,), torch.float32),
            target_centre=stored.take("target_centre", (in_features,), torch.float32),
            basis=basis,
            prototypes=stored.take("prototypes", prototypes, torch.float32),
            prototypes_in_source=stored.take("prototypes_in_source", prototypes, torch.float32),
            from_target=stored.take("from_target", (n_classes,), torch.bool),
        )

    def source_rows(self, embeddings: Tensor) -> Tensor:
        """Return the directions of source embeddings, (n_samples, width), unit rows."""
        return F.normalize((F.normalize(embeddings, dim=1) - self.source_centre) @ self.basis, dim=1)

    def target_rows(self, embeddings: Tensor) -> Tensor:
        """Return the directions of target embeddings, (n_samples, width), unit rows."""
        return F.normalize((F.normalize(embeddings, dim=1) - self.target_centre) @ self.basis, dim=1)

    def centred(self, embeddings: Tensor) -> Tensor:
        """Return the directions of target embeddings from the target's centre, (n_samples, n_features), unit rows."""
        return F.normalize(F.normalize(embeddings.float(), dim=1) - self.target_centre, dim=1)


def fit_metric(
    source: Tensor,
    classes: Tensor,
    target: Tensor,
    *,
    in_target: Tensor,
    n_classes: int,
    n_neighbours: int,
    width: int,
    shrinkage: float,
    generator: torch.Generator,
    own_centres: bool = True,
    whitens: bool = True,
    class_sums: ClassSums | None = None,
    given: GivenPrototypes | None = None,
) -> Metric:
    """Centre each domain, keep the leading directions of both, and whiten them by the scatter within classes.

    W = ½ (scatter of the source around its class means + scatter of the target around its neighbourhoods), shrunk
    towards its mean eigenvalue; the embeddings are mapped by W^(-1/2). The target has no labels, so a neighbourhood
    replaces the class there.

    Args:
        source: labelled embeddings of any scale, (n, n_features); a sample of them if `class_sums` has all.
        classes: class index per labelled embedding, (n,).
        target: embeddings, (m, n_features).
        in_target: whether each labelled sample is one of the target's, (n,), and is centred as such.
        n_classes: number of classes.
        n_neighbours: size of a neighbourhood.
        width: largest number of directions that are kept.
        shrinkage: part of the mean eigenvalue that is added to all eigenvalues.
        generator: for the start of the subspace iteration.
        own_centres: whether each domain has a centre of its own; otherwise both have their mean.
        whitens: whether the directions are whitened.
        class_sums: sums over all labelled samples, for class means and centre; those of `source` if None.
        given: prototypes in place of the class means of the source, or averaged with them.

    Returns:
        The fitted metric.
    """
    if class_sums is None:
        class_sums = ClassSums.of([(source, classes, in_target)], n_classes, source.shape[1])
    source, target = F.normalize(source.float(), dim=1), F.normalize(target.float(), dim=1)
    target_centre = target.mean(dim=0)
    in_source, source_means = class_sums.in_source, class_sums.source_means()
    source_centre = source_means[in_source].mean(dim=0) if in_source.any() else target_centre.clone()
    if not own_centres:
        source_centre = (source_centre + target_centre) / 2
        target_centre = source_centre.clone()
    source, target = source - torch.where(in_target[:, None], target_centre, source_centre), target - target_centre
    basis = leading_directions(
        torch.cat([source / len(source) ** 0.5, target / len(target) ** 0.5]), min(width, source.shape[1]), generator
    )
    class_means = class_sums.centred_means(source_centre, target_centre) @ basis
    source_means = torch.where(in_source[:, None], source_means - source_centre, 0) @ basis
    if whitens:
        scatter = _scatter_within(source @ basis - class_means[classes], target @ basis, n_neighbours)
        scale = _inverse_root(scatter, shrinkage)
        basis, class_means, source_means = basis @ scale, class_means @ scale, source_means @ scale
    middle = source_means[in_source].mean(dim=0) if in_source.any() else torch.zeros_like(source_means[0])
    class_means, source_means = class_means - middle, source_means - middle
    if given is not None and in_source.any():
        source_means[in_source] = replace(given, rows=given.rows[in_source]).blended(source_means[in_source], basis)
        # Samples of the target that somebody labelled are better evidence of their class than the given prototype.
        class_means = torch.where((in_source & ~class_sums.in_target)[:, None], source_means, class_means)
    return Metric(
        source_centre,
        target_centre,
        basis,
        F.normalize(class_means, dim=1),
        F.normalize(source_means, dim=1),
        ~in_source,
    )


def _scatter_within(residuals: Tensor, target: Tensor, n_neighbours: int) -> Tensor:
    """Return the mean of the scatter around class means and that around neighbourhoods, (width, width)."""
    within_source = residuals.double()
    neighbours = Neighbours(F.normalize(target, dim=1), n_neighbours)
    within_target = (target - mean_over(neighbours.of_stored, target)).double()
    return (within_source.t() @ within_source / len(residuals) + within_target.t() @ within_target / len(target)) / 2


def _inverse_root(scatter: Tensor, shrinkage: float) -> Tensor:
    values, vectors = torch.linalg.eigh(scatter)
    mean = values.mean().clamp_min(1e-12)
    root: Tensor = (vectors / (values.clamp_min(0) + shrinkage * mean).sqrt()) @ vectors.t()
    return root.float()


def chance_similarity(rows: Tensor, prototypes: Tensor) -> float:
    """Return the median cosine of samples to the nearest of class means that are unrelated to them.

    All samples are unrelated to class means that are mirrored at random along the principal axes of the target, which
    keeps their lengths along each axis and their angles to each other.

    Args:
        rows: target samples, (n_samples, width), unit rows.
        prototypes: class means, (n_classes, width), unit rows.
    """
    some = rows[:: -(-len(rows) // _MOST_ROWS_FOR_CHANCE)].double()
    axes = torch.linalg.eigh((some - some.mean(dim=0)).t() @ (some - some.mean(dim=0))).eigenvectors
    along, means = some @ axes, prototypes.double() @ axes
    signs = torch.randint(0, 2, (_REFLECTIONS, len(axes)), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    return quantile(torch.cat([(along @ (means * sign).t()).max(dim=1).values for sign in signs]), 0.5)


def quantile(values: Tensor, level: float) -> float:
    """Return a quantile of values (n,) without the size limit of `torch.quantile`."""
    return float(values.kthvalue(1 + round(level * (len(values) - 1))).values)
