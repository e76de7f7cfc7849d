"""A linear space for two domains in which what varies within classes counts little."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from uniot.universal.class_sums import ClassSums
from uniot.universal.neighbours import Neighbours, mean_over

_POWER_ITERATIONS = 4


@dataclass(frozen=True)
class Metric:
    """Where the classes are, for embeddings of either domain.

    Attributes:
        source_centre: middle of the source's classes among its unit embeddings, (d,).
        target_centre: middle of the target's unit embeddings, (d,).
        basis: from centred embeddings to the space, (d, p).
        prototypes: directions of the classes in the space, (c, p), unit rows.
        prototypes_in_source: the same by samples of the source alone.
        from_target: which classes the source has no sample of, (c,); somebody named them in the target.
    """

    source_centre: Tensor
    target_centre: Tensor
    basis: Tensor
    prototypes: Tensor
    prototypes_in_source: Tensor
    from_target: Tensor

    def source_rows(self, embeddings: Tensor) -> Tensor:
        """Directions of the source's samples, (n, p), unit rows."""
        return F.normalize((F.normalize(embeddings, dim=1) - self.source_centre) @ self.basis, dim=1)

    def target_rows(self, embeddings: Tensor) -> Tensor:
        """Directions of the target's samples, (n, p), unit rows."""
        return F.normalize((F.normalize(embeddings, dim=1) - self.target_centre) @ self.basis, dim=1)


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
) -> Metric:
    """Centres each domain, keeps the leading directions of both, and divides by how much classes vary in them.

    W = ½ (scatter of the source around its class means + scatter of the target around its neighbourhoods), shrunk
    towards its mean eigenvalue; the space is that of W^(-1/2). A neighbourhood takes the place of the class that the
    target does not tell.

    Args:
        source: embeddings, (n, d), of any scale; a sample of them is enough if `class_sums` has all.
        classes: class index of each, (n,).
        target: embeddings, (m, d).
        in_target: whether each labelled sample is one of the target's, (n,); such a one has the target's centre.
        n_classes: source classes c.
        n_neighbours: that make a neighbourhood.
        width: directions p that are kept at most.
        shrinkage: how much of the mean eigenvalue is added to all.
        generator: for the directions that the search for the leading ones begins with.
        own_centres: whether each domain has a centre of its own; otherwise both have that of all samples.
        whitens: whether directions are divided at all.
        class_sums: of all labelled samples, from which class means and centre come; of the given ones if None.
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
    return Metric(
        source_centre,
        target_centre,
        basis,
        F.normalize(class_means - middle, dim=1),
        F.normalize(source_means - middle, dim=1),
        ~in_source,
    )


def _scatter_within(residuals: Tensor, target: Tensor, n_neighbours: int) -> Tensor:
    """Mean scatter of the source around its class means and of the target around its neighbourhoods, (p, p)."""
    within_source = residuals.double()
    neighbours = Neighbours(F.normalize(target, dim=1), n_neighbours)
    within_target = (target - mean_over(neighbours.of_stored, target)).double()
    return (within_source.t() @ within_source / len(residuals) + within_target.t() @ within_target / len(target)) / 2


def _inverse_root(scatter: Tensor, shrinkage: float) -> Tensor:
    values, vectors = torch.linalg.eigh(scatter)
    mean = values.mean().clamp_min(1e-12)
    root: Tensor = (vectors / (values.clamp_min(0) + shrinkage * mean).sqrt()) @ vectors.t()
    return root.float()


def leading_directions(rows: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Orthonormal columns, (d, width), by subspace iteration: a full decomposition of wide embeddings takes long."""
    if width >= rows.shape[1]:
        return torch.eye(rows.shape[1])
    start = torch.randn(rows.shape[1], min(width + 20, rows.shape[1]), generator=generator)
    found = torch.linalg.qr(start).Q
    for _ in range(_POWER_ITERATIONS):
        found = torch.linalg.qr(rows.t() @ (rows @ found)).Q
    within = (rows @ found).double()
    vectors = torch.linalg.eigh(within.t() @ within).eigenvectors.flip(1)
    leading: Tensor = found @ vectors[:, :width].float()
    return leading
