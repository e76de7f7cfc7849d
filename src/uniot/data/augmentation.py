"""Small grey images as another hand might have written them: bent, shifted, thicker or thinner."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_SOFTNESS = 0.3  # grey values between paper and ink, after blurring: about MNIST's share of grey pixels


def rewrite(
    images: Tensor,
    generator: torch.Generator,
    *,
    rotation: float = 15.0,
    scale: tuple[float, float] = (0.8, 1.15),
    stretch: float = 0.25,
    shear: float = 0.2,
    shift: float = 2.0,
    threshold: tuple[float, float] = (0.1, 0.45),
) -> Tensor:
    """Each image moved by an affine map of its own and written with a pen of its own width.

    Args:
        images: (n, h, w) or (n, 1, h, w), in [0, 1], ink is 1.
        generator: source of every draw.
        rotation: degrees to either side.
        scale: least and largest size, as a factor.
        stretch: width changes by up to e^±stretch against the height.
        shear: horizontal shift per row, in rows, to either side.
        shift: pixels to every side.
        threshold: after blurring, what counts as ink; a low one thickens strokes, a high one thins them.

    Returns:
        Images of the same shape, in [0, 1].
    """
    n, height, width = len(images), *images.shape[-2:]

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, generator=generator).to(images)

    angle = between(-rotation, rotation) * (math.pi / 180)
    tall = between(*scale)
    wide = tall * between(-stretch, stretch).exp()
    slant = between(-shear, shear)
    right, down = between(-shift, shift) * (2 / width), between(-shift, shift) * (2 / height)
    cos, sin = angle.cos(), angle.sin()
    # From a place in the new image to the place in the old one where its value is read.
    rows = [cos / wide, (slant * cos - sin) / wide, right, sin / tall, (slant * sin + cos) / tall, down]
    moved = read_through(images, torch.stack(rows, dim=1).view(n, 2, 3))
    blurred = F.avg_pool2d(moved.view(n, 1, height, width), 3, stride=1, padding=1)
    ink = between(*threshold).view(n, 1, 1, 1)
    return ((blurred - ink) / _SOFTNESS).clamp(0, 1).view_as(images)


def read_through(images: Tensor, maps: Tensor) -> Tensor:
    """New images whose values are read from the old ones through affine maps, bilinearly; zero outside.

    Args:
        images: (n, h, w) or (n, 1, h, w).
        maps: (n, 2, 3), from new (x, y, 1) to old (x, y); both run from -1 to 1 between the outer edges.

    Returns:
        Images of the same shape.
    """
    n, height, width = len(images), *images.shape[-2:]
    grid = F.affine_grid(maps, [n, 1, height, width], align_corners=False)
    return F.grid_sample(images.reshape(n, 1, height, width), grid, align_corners=False).view_as(images)
