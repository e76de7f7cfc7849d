"""Losses of universal domain adaptation as functions and modules of torch, with the memories and prototypes they use.

Nothing here knows a trainer or a run folder: every loss takes tensors and returns a scalar.
"""

from uniot.losses.adversarial import domain_loss, reversal_strength, reversed_gradient, unknown_boundary_loss
from uniot.losses.anchored_transport import anchored_joint_cost, anchored_transport_loss, fitting_pairs
from uniot.losses.clustering import (
    cluster_imbalance_loss,
    neighbour_consistency_loss,
    partition_uncertainty_loss,
    pseudo_label_loss,
)
from uniot.losses.constrained import false_rejection_losses, rejection_lagrangian, rejection_rates
from uniot.losses.discrepancy import (
    contrastive_domain_discrepancy,
    fused_distances,
    gaussian_kernels,
    maximum_mean_discrepancy,
)
from uniot.losses.distillation import distillation_loss
from uniot.losses.entropies import entropy, entropy_separation_loss, normalised_entropy, weighted_entropy
from uniot.losses.evidential import evidence, evidential_loss, evidential_uncertainty, uncertainty_boundary_loss
from uniot.losses.joint_transport import joint_cost
from uniot.losses.memory import FeatureQueue, SampleBank, nearest_neighbours
from uniot.losses.neighbourhood import (
    IndexedFeatures,
    contrastive_affinity_loss,
    jaccard,
    mutual_neighbours,
    neighbour_contrastive_loss,
    neighbour_sets,
    neighbourhood_clustering_loss,
    neighbourhood_invariance_loss,
)
from uniot.losses.one_vs_all import (
    mixup_rejection_loss,
    one_vs_all_consistency_loss,
    one_vs_all_entropy,
    one_vs_all_loss,
    one_vs_all_probabilities,
)
from uniot.losses.prototypes import Prototypes
from uniot.losses.uniot import (
    CommonClassDetectionLoss,
    PrivateClassDiscoveryLoss,
    UniOTLoss,
    UniOTLosses,
    UniOTRule,
    code_loss,
    common_class_detection_loss,
    private_class_discovery_loss,
    swapped_code_loss,
)

__all__ = [
    "CommonClassDetectionLoss",
    "FeatureQueue",
    "IndexedFeatures",
    "PrivateClassDiscoveryLoss",
    "Prototypes",
    "SampleBank",
    "UniOTLoss",
    "UniOTLosses",
    "UniOTRule",
    "anchored_joint_cost",
    "anchored_transport_loss",
    "cluster_imbalance_loss",
    "code_loss",
    "common_class_detection_loss",
    "contrastive_affinity_loss",
    "contrastive_domain_discrepancy",
    "distillation_loss",
    "domain_loss",
    "entropy",
    "entropy_separation_loss",
    "evidence",
    "evidential_loss",
    "evidential_uncertainty",
    "false_rejection_losses",
    "fitting_pairs",
    "fused_distances",
    "gaussian_kernels",
    "jaccard",
    "joint_cost",
    "maximum_mean_discrepancy",
    "mixup_rejection_loss",
    "mutual_neighbours",
    "nearest_neighbours",
    "neighbour_consistency_loss",
    "neighbour_contrastive_loss",
    "neighbour_sets",
    "neighbourhood_clustering_loss",
    "neighbourhood_invariance_loss",
    "normalised_entropy",
    "one_vs_all_consistency_loss",
    "one_vs_all_entropy",
    "one_vs_all_loss",
    "one_vs_all_probabilities",
    "partition_uncertainty_loss",
    "private_class_discovery_loss",
    "pseudo_label_loss",
    "rejection_lagrangian",
    "rejection_rates",
    "reversal_strength",
    "reversed_gradient",
    "swapped_code_loss",
    "uncertainty_boundary_loss",
    "unknown_boundary_loss",
    "weighted_entropy",
]
