"""Make two views of an embedding, for variants of UniOT whose published methods augment images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from uniot.errors import SettingsError
from uniot.methods.base import Batch


def two_views(
    project: Callable[[Tensor], Tensor], batch: Batch, embeddings: Tensor, dropped: float
) -> tuple[Tensor, Tensor]:
    """Return the features of two views per target sample, (b', feature_size) each.

    A view is the embedding after dropout, with another mask per view.

    Args:
        project: maps embeddings to features.
        batch: has the random generator.
        embeddings: of the target batch, (b', in_features).
        dropped: share of an embedding's numbers that a view leaves out.

    Raises:
        SettingsError: several processes share the batch.
    """
    if len(batch.target) != len(batch.target_ids):
        raise SettingsError("this variant of UniOT makes views in one process. Set --devices to 1.")
    kept = torch.rand(2, *embeddings.shape, generator=batch.generator).to(embeddings.device) >= dropped
    first, second = (project(embeddings * mask / (1 - dropped)).float() for mask in kept)
    return first, second
