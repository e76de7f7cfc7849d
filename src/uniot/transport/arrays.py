"""Arrays at the door: whatever holds numbers becomes a tensor."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError

Array = Tensor | np.ndarray


def as_tensor(values: Array, name: str) -> Tensor:
    """A tensor as it is; an array as a tensor on the same memory, or on a copy where torch cannot share it.

    Args:
        values: a tensor, an array, or what NumPy makes one of.
        name: what the message calls it.
    """
    if isinstance(values, Tensor):
        return values
    try:
        # torch shares neither read-only memory nor negative strides.
        return torch.from_numpy(np.require(values, requirements=("C", "W")))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read as numbers ({error}). Give a tensor or an array of floats.") from None
