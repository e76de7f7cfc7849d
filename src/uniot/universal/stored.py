"""The parts of a fitted universal rule, as they come back from a file: shapes, types and ranges are checked."""

from __future__ import annotations

import torch

from uniot.errors import RunFolderError
from uniot.stored_tensors import MAKE_AGAIN, StoredTensors
from uniot.universal.landmarks import Landmarks
from uniot.universal.metric import Metric
from uniot.universal.neighbours import Neighbours
from uniot.universal.rejection import Rejection

# A cosine may exceed one by rounding.
_ONE = 1 + 1e-6


def stored_metric(stored: StoredTensors, in_features: int, n_classes: int) -> Metric:
    """Return the metric for embeddings of `in_features` numbers and `n_classes` classes."""
    basis = stored.take("basis", (in_features, None), torch.float32)
    prototypes = (n_classes, basis.shape[1])
    return Metric(
        source_centre=stored.take("source_centre", (in_features,), torch.float32),
        target_centre=stored.take("target_centre", (in_features,), torch.float32),
        basis=basis,
        prototypes=stored.take("prototypes", prototypes, torch.float32),
        prototypes_in_source=stored.take("prototypes_in_source", prototypes, torch.float32),
        from_target=stored.take("from_target", (n_classes,), torch.bool),
    )


def stored_rejection(stored: StoredTensors, n_classes: int, width: int) -> Rejection:
    """Return the rejection rule of `n_classes` classes in a space of `width` dimensions."""
    scalars = stored.take("scalars", (Rejection.N_SCALARS,), torch.float64, low=0, high=_ONE)
    if float(scalars[0]) <= 0:
        raise RunFolderError(f"{stored.where} has a level of 0; expected was a positive cosine. {MAKE_AGAIN}")
    return Rejection(
        prototypes=stored.take("prototypes", (n_classes, width), torch.float32),
        exemplars=stored.take("exemplars", (n_classes, width), torch.float32),
        presence=stored.take("presence", (n_classes,), torch.float64, low=0, high=_ONE),
        scalars=scalars,
    )


def stored_neighbours(stored: StoredTensors, width: int) -> Neighbours:
    """Return the target in a space of `width` dimensions, with the neighbours of each of its samples."""
    rows = stored.take("target", (None, width), torch.float16)
    nearest = stored.take("neighbourhoods", (len(rows), None), torch.int32, low=0, high=len(rows) - 1)
    if not nearest.numel():
        raise RunFolderError(f"{stored.where} has a target without neighbours. {MAKE_AGAIN}")
    return Neighbours(rows.float(), nearest.shape[1] - 1, nearest.long())


def stored_landmarks(stored: StoredTensors, width: int) -> Landmarks:
    """Return the landmarks in a space of `width` dimensions."""
    keys = stored.take("keys", (None, width), torch.float16)
    return Landmarks(
        keys=keys,
        values=stored.take("values", (len(keys), width), torch.float16),
        linear=stored.take("linear", (width, width), torch.float16),
    )
