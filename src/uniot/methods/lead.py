"""Split features into a known and an unknown part by the classifier's weights, and reject by the unknown one (LEAD).

References:
    Qu et al., LEAD: Learning Decomposition for Source-free Universal Domain Adaptation, CVPR 2024, arXiv:2403.03421.
"""

from __future__ import annotations

import warnings
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uniot.config import Settings
from uniot.errors import SettingsError
from uniot.methods.base import MethodInfo
from uniot.methods.pseudo_labels import soft_labels
from uniot.methods.source_free import SourceFreeMethod, SourceFreeOptions, TargetBatch

# α of Student's t-distribution in the weights of pseudo-labels, as in the authors' code.
_ALPHA = 1e-4


def known_basis(weight: Tensor) -> Tensor:
    """Return an orthonormal basis of the space that a classifier's rows (c, d) span, (c, d); c < d."""
    basis: Tensor = torch.linalg.svd(weight, full_matrices=False).Vh
    return basis


def decomposition_norms(features: Tensor, basis: Tensor) -> Tensor:
    """Return the norm of the known part and of the unknown part of each feature, (n, 2).

    Args:
        features: unit rows, (n, d).
        basis: of the known space, orthonormal rows, (c, d).

    Paper: Qu et al., CVPR 2024, feature decomposition.
    """
    coordinates = features @ basis.t()
    return torch.stack([coordinates.norm(dim=1), (features - coordinates @ basis).norm(dim=1)], dim=1)


def common_scores(features: Tensor, prototypes: Tensor, anchors: Tensor) -> Tensor:
    """Return how well each sample fits each class, (n, c), from 0 to sqrt(1 - 1/e).

    sqrt((1 - exp(-cos(f, target prototype))) · exp(cos(f, source anchor) - 1)), with negative cosines set to zero.

    Args:
        features: unit rows, (n, d).
        prototypes: mean direction of the most probable target samples of each class, (c, d).
        anchors: direction of the classifier's row of each class, (c, d).

    Paper: Qu et al., CVPR 2024, common score.
    """
    to_target, to_source = ((features @ rows.t()).clamp_min(0) for rows in (prototypes, anchors))
    return ((1 - (-to_target).exp()) * (to_source - 1).exp()).sqrt()


def upper_mean(values: Tensor) -> float:
    """Return the larger mean of a mixture of two Gaussians that is fitted to values, (n,)."""
    # Imported here because the command line must start without waiting for scikit-learn.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    if len(values) < 2:
        return float(values.max())
    with warnings.catch_warnings():
        # Equal values, which need no second component.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(GaussianMixture(2, random_state=0).fit(values.double().cpu().numpy()[:, None]).means_.max())


def label_weights(norms: Tensor, thresholds: Tensor) -> Tensor:
    """Return how sure each pseudo-label is, (n,): 0 at the threshold, towards 1 far from it on either side.

    1 - (1 + (norm - threshold)² / α)^(-(1 + α) / 2) with α = 1e-4, from Student's t-distribution.

    Args:
        norms: of the unknown part, (n,).
        thresholds: (n,).
    """
    return 1 - (1 + (norms - thresholds).square() / _ALPHA) ** (-(1 + _ALPHA) / 2)


def decomposition_loss(norms: Tensor, is_unknown: Tensor, weights: Tensor) -> Tensor:
    """Compute the weighted mean cross-entropy of softmax(norm of the known part, norm of the unknown part).

    Args:
        norms: (n, 2).
        is_unknown: whether the pseudo-label is unknown, (n,).
        weights: (n,).

    Returns:
        The loss, a scalar.

    Paper: Qu et al., CVPR 2024, feature decomposition regulariser.
    """
    return (weights * F.cross_entropy(norms, is_unknown.long(), reduction="none")).mean()


class LEAD(SourceFreeMethod):
    """Adapt by thresholds per sample on the part of a feature that the classifier does not read.

    The rows of the frozen classifier span the known space. A mixture of two Gaussians is fitted to the norms of the
    unknown parts of the target, of which μ is the larger mean. The threshold of a sample for its class of the best
    common score s is p + s · max(μ - p, 0), with p the mean norm of the most probable samples of the class; a sample at
    or above it is unknown.

    L = λ mean(w CE(pseudo-label, C(f))) + mean(w CE(unknown, softmax of the two norms)) + CE(mean prediction of the 4
    nearest stored samples, C(f)), with w from `label_weights`.

    Attributes:
        basis: of the known space, (c, d).
        prototypes: mean direction of the most probable target samples of each class, (c, d).
        norm_priors: mean unknown norm of these samples, (c,).
        upper: μ, a scalar.
    """

    basis: Tensor
    prototypes: Tensor
    norm_priors: Tensor
    upper: Tensor
    multiples: ClassVar[tuple[float, ...]] = (0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3)
    recount_every: ClassVar[int | None] = 10

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        settings: Settings,
        options: SourceFreeOptions,
        backbone: nn.Module | None = None,
    ) -> None:
        size = settings.feature_size
        if size <= n_classes:
            raise SettingsError(
                f"lead needs more features than source classes, but feature_size is {size} and there are {n_classes} "
                f"classes. Set feature_size to at least {n_classes + 1}."
            )
        super().__init__(in_features, n_classes, settings, options, backbone)
        self.register_buffer("basis", torch.zeros(n_classes, size))
        self.register_buffer("prototypes", torch.zeros(n_classes, size))
        self.register_buffer("norm_priors", torch.zeros(n_classes))
        self.register_buffer("upper", torch.zeros(()))

    def loss_weights(self) -> dict[str, float]:
        """Return the weight of each loss of stage 2 by its name."""
        return super().loss_weights() | {"decomposition": 1.0}

    def target_losses(self, target: TargetBatch) -> dict[str, Tensor]:
        """Return the losses of stage 2 by their names, scalars."""
        norms, thresholds, _ = self.boundaries(F.normalize(target.rows, dim=1))
        weights = label_weights(norms, thresholds)
        wanted = soft_labels(target.labels, self.n_classes)
        pseudo = (weights * F.cross_entropy(target.logits, wanted, reduction="none")).mean()
        now = decomposition_norms(F.normalize(target.features, dim=1), self.basis)
        decomposition = decomposition_loss(now, target.labels == self.n_classes, weights)
        return super().target_losses(target) | {"pseudo": pseudo, "decomposition": decomposition}

    def boundaries(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the unknown norm, the threshold and the class of the best common score per sample, each (n,).

        Args:
            features: unit rows, (n, d).
        """
        anchors = F.normalize(self.classifier.weight.detach(), dim=1)
        scores, classes = common_scores(features, self.prototypes, anchors).max(dim=1)
        priors = self.norm_priors[classes]
        thresholds = priors + scores * (self.upper - priors).clamp_min(0)
        return decomposition_norms(features, self.basis)[:, 1], thresholds, classes

    def pseudo_labels(self, features: Tensor, probabilities: Tensor) -> Tensor:
        """Fit the thresholds; return a pseudo-label per stored sample, `n_classes` for unknown, (n,).

        Args:
            features: unit rows, (n, d).
            probabilities: predictions of the classifier, (n, c).
        """
        self.basis.copy_(known_basis(self.classifier.weight.detach()))
        norms = decomposition_norms(features, self.basis)[:, 1]
        self.upper.fill_(upper_mean(norms))
        top = probabilities.topk(max(1, len(features) // int(self.n_clusters)), dim=0).indices
        self.prototypes.copy_(F.normalize(torch.stack([features[rows].mean(dim=0) for rows in top.t()]), dim=1))
        self.norm_priors.copy_(norms[top].mean(dim=0))
        norms, thresholds, classes = self.boundaries(features)
        return torch.where(norms >= thresholds, self.n_classes, classes)


INFO = MethodInfo(
    name="lead",
    title="LEAD",
    source="Qu et al., LEAD: Learning Decomposition for Source-free Universal Domain Adaptation, CVPR 2024",
    rule="unknown if the entropy of the prediction exceeds 0.55 log C",
    build=LEAD,
    options=SourceFreeOptions,
    is_source_free=True,
    idle=frozenset({"store_target"}),
)
