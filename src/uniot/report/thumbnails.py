"""Small pictures for a page that may not grow without bounds."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from uniot.errors import DataError
from uniot.pictures import Collection, Pictures
from uniot.report.packages import needed

Picture = tuple[Collection, int]
"""Which one: its collection and its row there."""

# Pillow decodes outside of Python's lock, and files may lie on a slow disk.
_THREADS = 4
_AT_ONCE = 64
# So many pictures say how large the others are.
_TRIED = 24
SHEET_COLUMNS = 16


def read_thumbnails(
    pictures: Pictures | None, wanted: Iterable[Picture], side: int, most_bytes: int
) -> dict[Picture, bytes]:
    """Pictures as JPEG, as many as there is room for, the first first; files that are gone are left out.

    Args:
        pictures: of the run; none are read if None.
        wanted: which ones; one that comes twice is read once.
        side: longest side in pixels.
        most_bytes: of all of them.
    """
    if pictures is None:
        return {}
    found: dict[Picture, bytes] = {}
    room = most_bytes
    queue = iter(dict.fromkeys(wanted))
    with ThreadPoolExecutor(_THREADS) as threads:
        while block := list(islice(queue, _AT_ONCE)):
            for picture, jpeg in zip(block, threads.map(lambda one: _read(pictures, one, side), block), strict=True):
                if jpeg is None:
                    continue
                room -= len(jpeg)
                if room < 0:
                    return found
                found[picture] = jpeg
    return found


def fitting_side(pictures: Pictures | None, wanted: Sequence[Picture], sides: Sequence[int], most_bytes: int) -> int:
    """Return the first of `sides` at which all pictures are likely to fit into `most_bytes`, or else the last."""
    step = max(1, len(wanted) // _TRIED)
    for side in sides[:-1]:
        tried = read_thumbnails(pictures, wanted[::step], side, most_bytes).values()
        if len(wanted) * sum(map(len, tried)) <= most_bytes * len(tried):
            return side
    return sides[-1]


def data_uri(jpeg: bytes) -> str:
    """A picture that needs no file."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


def sheets(thumbnails: Sequence[bytes], side: int, most_bytes: int) -> list[bytes]:
    """Squares in rows of 16, 256 to a sheet, in half the bytes that single pictures take; as many as there is room for.

    Args:
        thumbnails: pictures as JPEG.
        side: of a square, in pixels.
        most_bytes: of all sheets.
    """
    image = needed("PIL.Image")
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
    """The whole picture in the middle of a white square."""
    picture = needed("PIL.Image").open(io.BytesIO(jpeg)).convert("RGB")
    return needed("PIL.ImageOps").pad(picture, (side, side), color="white")


def _read(pictures: Pictures, picture: Picture, side: int) -> bytes | None:
    try:
        return pictures.thumbnail(*picture, side)
    except DataError:
        return None
