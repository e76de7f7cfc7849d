"""UniOT universal with one part switched off, for an ablation."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from uniot.methods.method import MethodInfo
from uniot.methods.uniot_universal import INFO, UniversalOptions


class _WithoutNeighbours(UniversalOptions):
    n_neighbours: int | None = Field(0, ge=0, le=1000, description="That a sample is averaged with.")


class _WithoutWhitening(UniversalOptions):
    whitens: bool = Field(False, description="Whether directions that vary within classes count less.")


class _WithoutCentres(UniversalOptions):
    own_centres: bool = Field(False, description="Whether each domain is centred on its own middle.")


class _WithoutShare(UniversalOptions):
    estimates_share: bool = Field(False, description="Whether the private share is estimated; otherwise one half.")


def _without(part: str, what: str, options: type[UniversalOptions]) -> MethodInfo:
    return replace(
        INFO,
        name=f"{INFO.name}-without-{part}",
        title=f"{INFO.title} without {what}",
        rule="as UniOT universal",
        variant_of=INFO.name,
        options=options,
    )


INFOS = (
    _without("neighbours", "neighbours", _WithoutNeighbours),
    _without("whitening", "whitening", _WithoutWhitening),
    _without("centres", "centres of its own", _WithoutCentres),
    _without("share", "an estimated share", _WithoutShare),
)
