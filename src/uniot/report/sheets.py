"""Pictures inside the HTML file: data URIs, and sheets of many small pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from uniot.errors import import_optional

SHEET_COLUMNS = 16


def data_uri(jpeg: bytes) -> str:
    """Return a picture as a data URI."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


def _pillow(module: str) -> Any:
    return import_optional(f"PIL.{module}", "report", "showing pictures in the report")


def sheets(thumbnails: Sequence[bytes], side: int, most_bytes: int) -> list[bytes]:
    """Return sheets of 16 × 16 squares as JPEG, in half the bytes of single pictures, until the limit of bytes.

    Args:
        thumbnails: pictures as JPEG.
        side: side of a square in pixels.
        most_bytes: limit of the size of all sheets.
    """
    image = _pillow("Image")
    made: list[bytes] = []
    for start in range(0, len(thumbnails), SHEET_COLUMNS**2):
        block = thumbnails[start : start + SHEET_COLUMNS**2]
        sheet = image.new("RGB", (SHEET_COLUMNS * side, -(-len(block) // SHEET_COLUMNS) * side), "white")
        for number, jpeg in enumerate(block):
            sheet.paste(square(jpeg, side), (number % SHEET_COLUMNS * side, number // SHEET_COLUMNS * side))
        stream = io.BytesIO()
        sheet.save(stream, "JPEG", quality=75)
        most_bytes -= len(stream.getvalue())
        if most_bytes < 0:
            break
        made.append(stream.getvalue())
    return made


def square(jpeg: bytes, side: int) -> Any:
    """Return the whole picture in the middle of a white square."""
    picture = _pillow("Image").open(io.BytesIO(jpeg)).convert("RGB")
    return _pillow("ImageOps").pad(picture, (side, side), color="white")
