"""Hyper-parameters of UniNCM, and of its variants for ablations, each without one of its parts."""

from __future__ import annotations

from pydantic import Field

from uniot.methods.uniot import UniOTOptions


class UniNCMOptions(UniOTOptions):
    """Hyper-parameters of UniNCM, and those of UniOT, which trains the network if there is one.

    Every part can be disabled; the defaults were chosen on random class splits.
    """

    n_neighbours: int | None = Field(
        None, ge=0, le=1000, description="Number of averaged neighbours; 0: none, None: from the target's size."
    )
    width: int = Field(256, ge=2, le=100_000, description="Largest number of directions of the embeddings to keep.")
    shrinkage: float = Field(
        0.3, gt=0, le=1e3, description="Shrinkage of the scatter within classes towards its mean eigenvalue."
    )
    own_centres: bool = Field(True, description="Whether each domain is centred on its own mean.")
    whitens: bool = Field(True, description="Whether directions are whitened by the scatter within classes.")
    estimates_prior: bool = Field(
        True, description="Whether the private-class prior is estimated; otherwise it is one half."
    )

    def acting(self, *, trains: bool) -> set[str]:
        """Return the names of the options that have an effect: those of UniOT only if a network is trained."""
        names = set(type(self).model_fields)
        return names if trains else names - set(UniOTOptions.model_fields)

    def step_warnings(self, steps: int) -> tuple[str, ...]:
        """Return no warning: detection that never trains does not change the rule of UniNCM."""
        return ()


class WithoutNeighbours(UniNCMOptions):
    """Default to no smoothing."""

    n_neighbours: int | None = Field(0, ge=0, le=1000, description="Number of neighbours that are averaged.")


class WithoutWhitening(UniNCMOptions):
    """Default to no whitening."""

    whitens: bool = Field(False, description="Whether directions are whitened.")


class WithoutCentres(UniNCMOptions):
    """Default to one centre for both domains."""

    own_centres: bool = Field(False, description="Whether each domain is centred on its own mean.")


class WithoutPrior(UniNCMOptions):
    """Default to a private-class prior of one half."""

    estimates_prior: bool = Field(False, description="Whether the private-class prior is estimated.")
