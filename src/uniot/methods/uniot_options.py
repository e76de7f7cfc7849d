"""Hyper-parameters of UniOT and of its variants."""

from __future__ import annotations

from pydantic import Field

from uniot.methods.base import MethodOptions

# Largest number of target samples for which a number of cluster prototypes is used.
_CLUSTERS = ((3500, 50), (10_000, 150), (100_000, 500))


class UniOTOptions(MethodOptions):
    """Hyper-parameters of UniOT, with the paper's values as defaults."""

    n_clusters: int | None = Field(
        None, ge=1, le=100_000, description="Number K of cluster prototypes; None derives it from the target's size."
    )
    hidden_size: int = Field(2048, ge=1, le=1_000_000, description="Width of the projection's hidden layer.")
    temperature: float = Field(0.1, ge=1e-3, le=100, description="τ; cosines are divided by it.")
    adaptation_weight: float = Field(0.1, ge=0, le=1e3, description="λ, weight of both target losses.")
    similarity_threshold: float = Field(
        0.7,
        ge=-1,
        le=1,
        description="γ, approximate threshold between positive and negative rows in adaptive filling.",
    )
    class_mass_momentum: float = Field(0.7, ge=0, le=1, description="μ, memory of the class mass β.")
    epsilon: float = Field(0.01, ge=1e-3, le=10, description="ε, entropy of the unbalanced transport.")
    marginal_penalty: float = Field(0.5, ge=0.05, le=1e3, description="κ, penalty on its marginals.")
    balanced_epsilon: float = Field(0.05, ge=1e-3, le=10, description="ε of the balanced transport.")
    balanced_iterations: int = Field(3, ge=1, le=10_000, description="Scaling steps of the balanced transport.")
    detection_start: int = Field(
        100, ge=0, le=10_000_000, description="Step after which common-class detection trains."
    )

    def resolved(self, n_target: int) -> UniOTOptions:
        """Return the same options with the number of clusters decided.

        It follows the paper: 50 up to 3 k samples (Office), 150 for 4 k (Office-Home), 500 for tens of thousands
        (VisDA), 1000 beyond; never more than a quarter of the samples.
        """
        clusters = next((k for limit, k in _CLUSTERS if n_target <= limit), 1000)
        return self.model_copy(update={"n_clusters": self.n_clusters or min(clusters, max(2, n_target // 4))})

    def step_warnings(self, steps: int) -> tuple[str, ...]:
        """Return a warning if common-class detection would never train."""
        first = self.detection_start + 2  # steps are counted from zero, and detection trains after that step
        if steps >= first:
            return ()
        return (
            f"common-class detection trains from step {first} on (detection_start = {self.detection_start}), and "
            f"this run ends with step {steps}, so it never does. Give more steps.",
        )


class ViewOptions(UniOTOptions):
    """Hold the options of a second view of an embedding; for images the published methods crop and jitter colours."""

    dropped: float = Field(0.2, ge=0, lt=1, description="Share of an embedding's numbers that a view leaves out.")


class SelfLabelOptions(ViewOptions):
    """Hold the options of Self-labelling, with the published values as defaults."""

    label_updates: int = Field(100, ge=1, le=1_000_000, description="Number of label updates, most of them early.")
    label_power: float = Field(25.0, ge=0.1, le=90, description="Power of the cluster probabilities in an update.")


class DeepClusterOptions(ViewOptions):
    """Hold the options of DeepCluster, with the published values as defaults."""

    label_updates: int = Field(200, ge=1, le=1_000_000, description="Number of runs of k-means, at equal intervals.")


class PICAOptions(ViewOptions):
    """Hold the options of PICA, with the published value as default."""

    balance_weight: float = Field(2.0, ge=0, le=1e3, description="Weight of equally large clusters.")


class SCANOptions(UniOTOptions):
    """Hold the options of SCAN, with the published value as default."""

    entropy_weight: float = Field(5.0, ge=0, le=1e3, description="Weight of the entropy of the mean assignment.")
