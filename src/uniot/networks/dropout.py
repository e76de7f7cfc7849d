"""Dropout whose masks come from a generator of the caller's, so that a step can be repeated to the last bit."""

from __future__ import annotations

import torch
from torch import Tensor


def dropped(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Sets each value to zero with probability `rate` and divides the others by 1 - rate.

    Args:
        x: of any shape, on any device.
        rate: from 0 to below 1.
        generator: on the CPU; None outside training, where nothing is dropped.
    """
    if generator is None or rate == 0:
        return x
    # Drawn on the CPU, so that the masks are the same on every device.
    mask = torch.rand(x.shape, generator=generator).ge_(rate).div_(1 - rate)
    return x * mask.to(x)
