"""Cluster the target one class against all others, and agree with nearest neighbours, without the source (GLC).

References:
    Qu et al., Upcycling Models under Domain and Category Shift, CVPR 2023, arXiv:2303.07110.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from uniot.methods.base import MethodInfo
from uniot.methods.glc_clustering import one_vs_all_labels
from uniot.methods.source_free import SourceFreeMethod, SourceFreeOptions


class GLCOptions(SourceFreeOptions):
    """Hyper-parameters of GLC, with the values published for Office-31 as defaults."""

    prior: float = Field(
        0.75, ge=0, le=1, description="ρ, least factor of the cosine to a class; 1 trusts every class alike."
    )


class GLC(SourceFreeMethod):
    """Adapt by one-vs-all global clustering and local agreement with neighbours. Paper: Qu et al., CVPR 2023.

    L = λ CE(pseudo-label, C(f)) + CE(mean prediction of the 4 nearest stored samples, C(f)); the pseudo-label of an
    unknown sample is the uniform distribution.
    """

    options: GLCOptions

    def pseudo_labels(self, features: Tensor, probabilities: Tensor) -> Tensor:
        """Return a pseudo-label per stored sample, `n_classes` for unknown, (n,).

        Args:
            features: unit rows, (n, d).
            probabilities: predictions of the classifier, (n, c).
        """
        return one_vs_all_labels(features, probabilities, int(self.n_clusters), self.options.prior)


INFO = MethodInfo(
    name="glc",
    title="GLC",
    source="Qu et al., Upcycling Models under Domain and Category Shift, CVPR 2023",
    rule="unknown if the entropy of the prediction exceeds 0.55 log C",
    build=GLC,
    options=GLCOptions,
    is_source_free=True,
    idle=frozenset({"store_target"}),
)
