"""Colours for any number of categories."""

from __future__ import annotations

import math

import numpy as np

_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
# Light enough for a dark page and dark enough for a light one.
_LIGHTNESS, _CHROMA = (0.64, 0.72, 0.56), 0.14

# Björn Ottosson's Oklab, in which equal steps look equally large.
_TO_CONES = np.array(
    [[1.0, 0.3963377774, 0.2158037573], [1.0, -0.1055613458, -0.0638541728], [1.0, -0.0894841775, -1.2914855480]]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def distinct_colours(count: int) -> list[str]:
    """As many colours as asked for, such as #1a2b3c; neighbours in the list differ most."""
    return [_hex(_LIGHTNESS[i % len(_LIGHTNESS)], _CHROMA, 0.5 + i * _GOLDEN_ANGLE) for i in range(count)]


def _hex(lightness: float, chroma: float, hue: float) -> str:
    lab = np.array([lightness, chroma * math.cos(hue), chroma * math.sin(hue)])
    linear = np.clip(_TO_RGB @ (_TO_CONES @ lab) ** 3, 0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * float(value)):02x}" for value in encoded)
