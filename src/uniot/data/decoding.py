"""The bytes of a file to an upright RGB image. A damaged file is an answer with a reason here, never an accident.

Pillow does the work; it comes with `uniot[images]` and is imported on first use.
"""

from __future__ import annotations

import threading
import warnings
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uniot.errors import DataError
from uniot.untrusted import MOST_IMAGE_BYTES, read_bounded

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 16384 * 12288
"""Most pixels of an image: 200 megapixels, the largest photograph that a telephone takes.

Pillow holds a pixel in four bytes, and decoding needs about three such copies at a time: less than 3 GB.
"""

_ORIENTATION_TAG = 0x0112


class UnreadableImage(DataError):
    """The bytes are no image that can be used.

    Attributes:
        reason: a short phrase, as in skipped.csv: "empty file", "truncated", "too large: 60000 × 60000 pixels".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)  # the only argument, so that the error travels from a worker process
        self.reason = reason

    def __str__(self) -> str:
        return f"the image cannot be read ({self.reason}). Replace the file, or leave it out."


def read_image(path: Path) -> bytes:
    """Return the bytes of an image file, for `decode`.

    Raises:
        UnreadableImage: it is missing, not yours to read, not a regular file (a pipe would never end), or larger than
            any image is.
    """
    try:
        return read_bounded(path, MOST_IMAGE_BYTES)
    except OSError as error:
        raise UnreadableImage((error.strerror or str(error)).lower()) from None


def decode(data: bytes, *, shortest_side: int | None = None) -> Image:
    """The first frame as RGB, turned as its EXIF orientation says, with transparency on white.

    The content decides what a file is, whatever its name. 16-bit grey keeps its upper 8 bits; 32-bit and floating
    point grey, for which no white is agreed, goes from the image's smallest value, black, to its largest, white.
    Colour profiles are not applied. Any number of threads may decode at once.

    Args:
        data: the whole file: JPEG, PNG, WebP, GIF, TIFF or BMP.
        shortest_side: pixels that are enough along the shorter side. A JPEG at least twice as large is decoded at
            1/2, 1/4 or 1/8 of its size, which is faster, and never below this. If this is the side to which it is
            resized afterwards, photographs differ by about two grey levels of 255 from those decoded in full; if it
            is twice that side, by about half a level.

    Raises:
        UnreadableImage: nothing can be made of `data`; no other error comes from it, whatever it is.
    """
    if not data:
        raise UnreadableImage("empty file")
    parse = _parser_of(data)
    with _pillow_warnings_ignored:
        try:
            image = parse(BytesIO(data))
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise UnreadableImage(f"too large: {width} × {height} pixels")
            if shortest_side:
                image.draft(None, (shortest_side, shortest_side))
            image.load()
            upright = _turned(_as_rgb(image), _orientation(image))
        except UnreadableImage:
            raise
        except Exception as error:  # there is no end to what parsers raise on bytes that nobody foresaw
            raise UnreadableImage(_reason(error, data)) from error
    # Whoever reads the orientation again would turn the image twice.
    upright.info = {}
    return upright


@cache
def _parsers() -> tuple[tuple[bytes, type[ImageFile]], ...]:
    """First bytes and who reads what follows. No other parser of Pillow's can be reached: one starts Ghostscript.

    `Image.open` is passed by because it measures images against a global limit, which belongs to the application,
    and does not tell the size that it refuses.
    """
    try:
        from PIL.BmpImagePlugin import BmpImageFile
        from PIL.GifImagePlugin import GifImageFile
        from PIL.JpegImagePlugin import JpegImageFile
        from PIL.PngImagePlugin import PngImageFile
        from PIL.TiffImagePlugin import TiffImageFile
        from PIL.WebPImagePlugin import WebPImageFile
    except ImportError as error:
        raise DataError(
            f"images are read with Pillow, which cannot be imported ({error}). Run `pip install 'uniot[images]'`."
        ) from None
    return (
        (b"\xff\xd8\xff", JpegImageFile),
        (b"\x89PNG\r\n\x1a\n", PngImageFile),
        (b"RIFF", WebPImageFile),
        (b"GIF87a", GifImageFile),
        (b"GIF89a", GifImageFile),
        (b"II*\0", TiffImageFile),
        (b"MM\0*", TiffImageFile),
        (b"II+\0", TiffImageFile),  # with 64-bit offsets
        (b"MM\0+", TiffImageFile),
        (b"BM", BmpImageFile),
    )


def _parser_of(data: bytes) -> type[ImageFile]:
    for first_bytes, parser in _parsers():
        if data.startswith(first_bytes) and (first_bytes != b"RIFF" or data[8:12] == b"WEBP"):
            return parser
    raise UnreadableImage("not an image: none of JPEG, PNG, WebP, GIF, TIFF, BMP")


def _orientation(image: Image) -> object:
    try:
        return image.getexif().get(_ORIENTATION_TAG)
    except Exception:  # the pixels are sound even where what was written about them is not
        return None


def _turned(image: Image, orientation: object) -> Image:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return image.transpose(turns[orientation]) if isinstance(orientation, int) and orientation in turns else image


def _as_rgb(image: Image) -> Image:
    from PIL.Image import new

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = _in_8_bits(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    canvas = new("RGB", image.size, "white")
    canvas.paste(layer, mask=layer)
    return canvas


def _in_8_bits(image: Image) -> Image:
    from PIL.Image import fromarray

    if image.mode.startswith("I;16"):
        return fromarray((np.asarray(image) >> 8).astype(np.uint8))
    values = np.array(image, dtype=np.float32)
    finite = np.isfinite(values)
    low = float(values.min(where=finite, initial=np.inf))
    high = float(values.max(where=finite, initial=-np.inf))
    # In place: of the largest image each copy takes 0.8 GB.
    with np.errstate(all="ignore"):  # infinities are black or white, and what is no number is black
        values -= low
        values *= 255 / (high - low) if high > low else 0
        np.nan_to_num(values, copy=False, nan=0, posinf=255, neginf=0)
        np.rint(values, out=values)
    return fromarray(values.clip(0, 255, out=values).astype(np.uint8))


def _reason(error: Exception, data: bytes) -> str:
    """A phrase of one line for what Pillow says."""
    from PIL.Image import MAX_IMAGE_PIXELS, DecompressionBombError

    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, DecompressionBombError):  # WebP and GIF ask Pillow's own limit before they tell their size
        return f"too large: more than {2 * (MAX_IMAGE_PIXELS or 0)} pixels"
    said = str(error).partition("\n")[0][:100]
    ended_early = isinstance(error.__cause__ or error, EOFError) or "truncated" in said.lower()
    # Of a WebP that is cut off Pillow says only that there is no decoder; but the file states its length.
    if ended_early or (data.startswith(b"RIFF") and len(data) < 8 + int.from_bytes(data[4:8], "little")):
        return "truncated"
    return f"cannot be decoded: {said or type(error).__name__}"


class _WarningsIgnored:
    """Ignores what Pillow warns of, as long as any thread is inside.

    With `catch_warnings` alone, the last of two threads that overlap would put the other's filters back, for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._filters_before = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._threads == 0:
                self._filters_before = warnings.catch_warnings()
                self._filters_before.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self._filters_before.__exit__(None, None, None)


_pillow_warnings_ignored = _WarningsIgnored()
