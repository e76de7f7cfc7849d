"""Decode the bytes of an image file to an upright RGB image, or give the reason why they cannot be decoded.

Pillow decodes; it comes with `uniot[images]` and is imported on first use. `FORMATS` lists the supported formats; a new
one is one more entry there.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uniot.errors import DataError, import_optional
from uniot.io.files import MOST_IMAGE_BYTES, read_bounded

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile


@dataclass(frozen=True)
class ImageFormat:
    """Describes a file format that can be decoded.

    Attributes:
        name: name of the format.
        plugin: its plugin in Pillow: "Jpeg" stands for `PIL.JpegImagePlugin.JpegImageFile`.
        suffixes: suffixes of its files, in small letters.
        signatures: first bytes of its files.
    """

    name: str
    plugin: str
    suffixes: tuple[str, ...]
    signatures: tuple[bytes, ...]


FORMATS = (
    ImageFormat("JPEG", "Jpeg", (".jpg", ".jpeg", ".jfif"), (b"\xff\xd8\xff",)),
    ImageFormat("PNG", "Png", (".png",), (b"\x89PNG\r\n\x1a\n",)),
    ImageFormat("WebP", "WebP", (".webp",), (b"RIFF",)),
    ImageFormat("GIF", "Gif", (".gif",), (b"GIF87a", b"GIF89a")),
    # The last two have 64-bit offsets.
    ImageFormat("TIFF", "Tiff", (".tif", ".tiff"), (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    ImageFormat("BMP", "Bmp", (".bmp",), (b"BM",)),
)
IMAGE_SUFFIXES = tuple(suffix for one in FORMATS for suffix in one.suffixes)
"""Suffixes by which images are found in folders and list files; the content decides how a file is decoded."""

MAX_PIXELS = 16384 * 12288
"""Maximum number of pixels of an image: 201 megapixels, as the largest phone cameras take.

Pillow holds a pixel in four bytes, and decoding needs about three copies at a time: less than 3 GB.
"""

_ORIENTATION_TAG = 0x0112


class UnreadableImage(DataError):
    """Reports that a file is not an image that can be decoded.

    Attributes:
        reason: a short phrase, as in skipped.csv: "empty file", "truncated", "too large: 60000 × 60000 pixels".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)  # the only argument, so that a worker process can pickle the error
        self.reason = reason

    def __str__(self) -> str:
        return f"the image cannot be read ({self.reason}). Replace the file, or leave it out."


def read_image(path: Path) -> bytes:
    """Return the bytes of an image file, for `decode`.

    Raises:
        UnreadableImage: the file is missing, unreadable, not a regular file (a pipe would never end), or larger than
            any image.
    """
    try:
        return read_bounded(path, MOST_IMAGE_BYTES)
    except OSError as error:
        raise UnreadableImage((error.strerror or str(error)).lower()) from None


def decode(data: bytes, *, shortest_side: int | None = None) -> Image:
    """Decode the first frame of an image, rotated by its EXIF orientation, with transparency on white.

    The format is recognised by the content, not by the suffix. 16-bit grey images keep their upper 8 bits; 32-bit and
    floating-point grey images, which have no agreed white, are scaled from their minimum (black) to their maximum
    (white). Colour profiles are ignored. The function is thread-safe.

    Args:
        data: the whole file, in one of `FORMATS`.
        shortest_side: sufficient length of the shorter side in pixels. A JPEG at least twice as large is decoded at
            1/2, 1/4 or 1/8 of its size, which is faster, and never below this length. If the image is resized to this
            length afterwards, photographs differ by about two grey levels of 255 from those decoded in full; if to
            half of it, by about half a level.

    Returns:
        The image in RGB.

    Raises:
        UnreadableImage: `data` cannot be decoded; no other error is raised, whatever the content.
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
        except Exception as error:  # parsers raise errors of every type on malformed bytes
            raise UnreadableImage(_reason(error, data)) from error
    # A caller that reads the orientation again would rotate the image twice.
    upright.info = {}
    return upright


@cache
def _parser(plugin: str) -> type[ImageFile]:
    module = import_optional(f"PIL.{plugin}ImagePlugin", "images", "decoding images")
    parser: type[ImageFile] = getattr(module, f"{plugin}ImageFile")
    return parser


def _parser_of(data: bytes) -> type[ImageFile]:
    """Return Pillow's parser for a file.

    `Image.open` is not used: it would try all of Pillow's parsers, one of which starts Ghostscript, and it applies a
    global size limit, which belongs to the application.
    """
    for one in FORMATS:
        if data.startswith(one.signatures) and (one.name != "WebP" or data[8:12] == b"WEBP"):
            return _parser(one.plugin)
    raise UnreadableImage(f"not an image: none of {', '.join(one.name for one in FORMATS)}")


def _orientation(image: Image) -> object:
    try:
        return image.getexif().get(_ORIENTATION_TAG)
    except Exception:  # damaged metadata does not make the pixels unusable
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
    # In place, because a copy of the largest image takes 0.8 GB.
    with np.errstate(all="ignore"):  # infinities become black or white, NaN black
        values -= low
        values *= 255 / (high - low) if high > low else 0
        np.nan_to_num(values, copy=False, nan=0, posinf=255, neginf=0)
        np.rint(values, out=values)
    return fromarray(values.clip(0, 255, out=values).astype(np.uint8))


def _reason(error: Exception, data: bytes) -> str:
    """Return a phrase of one line for an error of Pillow."""
    from PIL.Image import MAX_IMAGE_PIXELS, DecompressionBombError

    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, DecompressionBombError):  # the WebP and GIF parsers check Pillow's own limit first
        return f"too large: more than {2 * (MAX_IMAGE_PIXELS or 0)} pixels"
    message = str(error).partition("\n")[0][:100]
    ended_early = isinstance(error.__cause__ or error, EOFError) or "truncated" in message.lower()
    # Pillow reports a truncated WebP as one without a decoder; but the file contains its length.
    if ended_early or (data.startswith(b"RIFF") and len(data) < 8 + int.from_bytes(data[4:8], "little")):
        return "truncated"
    return f"cannot be decoded: {message or type(error).__name__}"


class _WarningsIgnored:
    """Ignores Pillow's warnings while any thread is in the context.

    `catch_warnings` alone is not thread-safe: the last of two overlapping threads would restore the other's filters.
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
