"""Decode the bytes of an image file to an upright RGB image, or give the reason why they cannot be decoded.

Pillow decodes; it comes with `uniot[images]` and is imported on first use. `FORMATS` lists the supported formats; a new
one is one more entry there.

An image may be made to fill the memory. What its decoding takes is known from its header; the threads of a process
share `MAX_DECODING_BYTES` for it and `MOST_IMAGE_BYTES` for encoded images, together one gigabyte.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    """A file format that can be decoded.

    Attributes:
        name: name of the format.
        plugin: its plugin in Pillow: "Jpeg" stands for `PIL.JpegImagePlugin.JpegImageFile`.
        suffixes: suffixes of its files, in small letters.
        signature: regular expression that its files begin with.
        bytes_per_pixel: memory that decoding takes: an image in four bytes per pixel, and its copy in RGB.
    """

    name: str
    plugin: str
    suffixes: tuple[str, ...]
    signature: bytes
    bytes_per_pixel: int = 8


FORMATS = (
    ImageFormat("JPEG", "Jpeg", (".jpg", ".jpeg", ".jfif"), rb"\xff\xd8\xff"),
    ImageFormat("PNG", "Png", (".png",), rb"\x89PNG\r\n\x1a\n"),
    # Its decoder has two frames and a copy of one.
    ImageFormat("WebP", "WebP", (".webp",), rb"RIFF.{4}WEBP", bytes_per_pixel=16),
    ImageFormat("GIF", "Gif", (".gif",), rb"GIF8[79]a"),
    # With a plus, its offsets have 64 bits.
    ImageFormat("TIFF", "Tiff", (".tif", ".tiff"), rb"II[*+]\0|MM\0[*+]"),
    ImageFormat("BMP", "Bmp", (".bmp",), rb"BM"),
)
IMAGE_SUFFIXES = tuple(suffix for one in FORMATS for suffix in one.suffixes)
"""Suffixes by which images are found in folders and list files; the content decides how a file is decoded."""

MAX_PIXELS = 16384 * 12288
"""Maximum number of pixels of an image: 201 megapixels, as the largest phone cameras take."""
MAX_SIDE = 65535
"""Maximum width and height of an image, as of a JPEG. Pillow has a pointer per row, and resizes all rows at a time."""
MAX_DECODING_BYTES = 800_000_000
"""Memory for decoding, of one image and of all threads: 100 megapixels of most formats.

A JPEG may have more pixels, because it is decoded at a reduced size.
"""

_ORIENTATION_TAG = 0x0112
# Tags of a TIFF, and the compressions for which libtiff needs no more than the unpacked strip.
_BITS, _COMPRESSION, _SAMPLES, _ROWS_PER_STRIP, _TILE_WIDTH, _TILE_LENGTH = 258, 259, 277, 278, 322, 323
_UNCOMPRESSED, _SIMPLE_COMPRESSIONS = 1, (2, 3, 4, 5, 8, 32773, 32946)
# A decoder visits all pixels in each scan of a JPEG, however short; writers make about ten.
_SCAN, _MAX_SCANS = b"\xff\xda", 100
# Images with transparency or more than 8 bits are converted in bands of rows, without a third copy of all pixels.
_BAND_PIXELS = 1 << 20
# Bytes of images after which freed memory is returned to the system: rarely for small images, at once for large ones.
_MAX_RETAINED_BYTES = 1 << 26


class _Encoded(BytesIO):
    """The bytes of an image, which can be read a bounded number of times.

    Pillow parses headers in Python, a few bytes at a time: a JPEG of 180 MB of zeros, or a PNG of as many empty chunks,
    would take minutes. A header has a few hundred parts; of pixels, run lengths in a BMP take two reads each.

    Attributes:
        n_reads_left: number of reads that are left.
    """

    n_reads_left = 1_000_000

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes."""
        self.n_reads_left -= 1
        if self.n_reads_left < 0:
            raise UnreadableImage("too many parts: its header or its pixels do not end")
        return super().read(size)


class UnreadableImage(DataError):
    """A file is not an image that can be decoded.

    Attributes:
        reason: a short phrase, as in skipped.csv: "empty file", "truncated", "too large: 60000 × 60000 pixels".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)  # the only argument, so that a worker process can pickle the error
        self.reason = reason

    def __str__(self) -> str:
        return f"the image cannot be read ({self.reason}). Replace the file, or leave it out."


class MemoryBudget:
    """Bytes that the threads of a process may use together.

    Args:
        n_bytes: the bytes.
    """

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = self._free = n_bytes
        self._n_returned = 0
        self._released = threading.Condition()

    @contextmanager
    def reserved(self, n_bytes: int) -> Iterator[None]:
        """Wait until this number of bytes is free, or all of them are, and reserve them for the block."""
        n_bytes = min(n_bytes, self._n_bytes)
        with self._released:
            self._released.wait_for(lambda: self._free >= n_bytes)
            self._free -= n_bytes
        try:
            yield
        finally:
            with self._released:
                self._n_returned += n_bytes
                if self._n_returned > _MAX_RETAINED_BYTES:
                    _return_freed_memory()
                    self._n_returned = 0
                self._free += n_bytes
                self._released.notify_all()


def _return_freed_memory() -> None:
    """Make glibc return freed memory to the system; other allocators do it by themselves.

    Glibc keeps the blocks of images for the thread that freed them, so that sixteen threads would keep sixteen images.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


# A thread reserves the encoded image first, and waits for no encoded one while it decodes: no thread waits forever.
_for_encoded = MemoryBudget(MOST_IMAGE_BYTES)
_for_decoding = MemoryBudget(MAX_DECODING_BYTES)


def read_image(path: Path) -> bytes:
    """Return the bytes of an image file, for `decoded`.

    Raises:
        UnreadableImage: the file is missing, unreadable, not a regular file (a pipe would never end), or larger than
            any image.
    """
    try:
        return read_bounded(path, MOST_IMAGE_BYTES)
    except OSError as error:
        raise UnreadableImage((error.strerror or str(error)).lower()) from None


@contextmanager
def memory_for_encoded(path: Path) -> Iterator[None]:
    """Wait until the bytes of an image file fit in the memory for encoded images, and reserve it for the block."""
    size = 0
    with suppress(OSError, ValueError):  # reported when the file is read
        size = path.stat().st_size
    with _for_encoded.reserved(size):
        yield


@contextmanager
def decoded(data: bytes, *, shortest_side: int | None = None) -> Iterator[Image]:
    """Decode the first frame of an image, rotated by its EXIF orientation, with transparency on white.

    The format is recognised by the content, not by the suffix. 16-bit grey images keep their upper 8 bits; 32-bit and
    floating-point grey images, which have no agreed white, are scaled from their minimum (black) to their maximum
    (white). Colour profiles are ignored. The function is thread-safe, and waits while other threads use the memory.

    Args:
        data: the whole file, in one of `FORMATS`.
        shortest_side: sufficient length of the shorter side in pixels. A JPEG at least twice as large is decoded at
            1/2, 1/4 or 1/8 of its size, which is faster, and never below this length. If the image is resized to this
            length afterwards, photographs differ by about two grey levels of 255 from those decoded in full; if to
            half of it, by about half a level.

    Yields:
        The image in RGB; its pixels are freed at the end of the block.

    Raises:
        UnreadableImage: `data` cannot be decoded; no other error is raised, whatever the content.
    """
    if not data:
        raise UnreadableImage("empty file")
    kind = _format_of(data)
    parse = _parser(kind.plugin)
    with ExitStack() as memory:
        with _pillow_warnings_ignored:
            try:
                stream = _Encoded(data)
                image = parse(stream)
                size = _checked_size(*image.size)
                # Of a JPEG, Pillow has read the header of the first scan.
                stream.n_reads_left += 2 * math.prod(size)
                is_stored = kind.name == "JPEG" and _has_several_scans(image, data, stream.tell())
                if is_stored and (n_scans := data.count(_SCAN)) > _MAX_SCANS:
                    raise UnreadableImage(f"too many scans: {n_scans}; at most {_MAX_SCANS}")
                if shortest_side:
                    image.draft(None, (shortest_side, shortest_side))
                n_bytes = _decoding_bytes(kind, image, size, is_stored)
                memory.enter_context(_for_decoding.reserved(n_bytes))
                image.load()
                orientation = _orientation(image)
                upright = _as_rgb(image)
                image.close()  # before the copy that is turned
                upright = _turned(upright, orientation)
            except UnreadableImage:
                raise
            except Exception as error:  # parsers raise errors of every type on malformed bytes
                raise UnreadableImage(_reason(error, data)) from error
        # A caller that reads the orientation again would rotate the image twice.
        upright.info = {}
        try:
            yield upright
        finally:
            upright.close()  # frees the pixels, whoever still refers to the image


def _checked_size(width: int, height: int) -> tuple[int, int]:
    """Return width and height of an image; raise UnreadableImage if it is too large in any format."""
    if width * height > MAX_PIXELS:
        raise UnreadableImage(f"too large: {width} × {height} pixels; at most {MAX_PIXELS / 1e6:.3g} megapixels")
    if max(width, height) > MAX_SIDE:
        raise UnreadableImage(f"too large: {width} × {height} pixels; at most {MAX_SIDE} per side")
    return width, height


def _decoding_bytes(kind: ImageFormat, image: Image, size: tuple[int, int], is_stored: bool) -> int:
    """Return the memory that decoding an image takes.

    Args:
        kind: its format.
        image: the image, before its pixels are loaded; a JPEG may be reduced.
        size: width and height in the file.
        is_stored: whether the decoder of a JPEG keeps the coefficients of all pixels until it has read all scans.

    Raises:
        UnreadableImage: it takes more than `MAX_DECODING_BYTES`.
    """
    n_pixels = math.prod(image.size)
    n_bytes = kind.bytes_per_pixel * n_pixels
    if is_stored:
        n_bytes = max(n_bytes, 4 * n_pixels + 2 * len(image.getbands()) * math.prod(size))
    if kind.name == "TIFF":
        n_bytes = max(n_bytes, 4 * n_pixels + _strip_bytes(image))
    if n_bytes > MAX_DECODING_BYTES:
        raise UnreadableImage(
            f"too large: {size[0]} × {size[1]} pixels of {kind.name} take {n_bytes / 1e9:.3g} GB to decode; at most "
            f"{MAX_DECODING_BYTES / 1e9:.3g} GB"
        )
    return n_bytes


def _has_several_scans(image: Image, data: bytes, header_bytes: int) -> bool:
    """Return whether a decoder keeps a JPEG until it has read several scans; the header ends with that of the first."""
    n_bands = len(image.getbands())
    of_all_bands = struct.pack(">HB", 6 + 2 * n_bands, n_bands)
    return "progressive" in image.info or not data.startswith(of_all_bands, max(0, header_bytes - 6 - 2 * n_bands))


def _strip_bytes(image: Image) -> int:
    """Return the memory that libtiff needs for the largest strip or tile of a TIFF."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    compression = tags.get(_COMPRESSION, _UNCOMPRESSED)
    if compression == _UNCOMPRESSED:
        return 0
    width, height = image.size
    n_pixels = width * min(height, tags.get(_ROWS_PER_STRIP, height))
    if _TILE_WIDTH in tags and _TILE_LENGTH in tags:
        n_pixels = tags[_TILE_WIDTH] * tags[_TILE_LENGTH]
    n_bits = max(tags.get(_BITS, (1,))) * tags.get(_SAMPLES, 1)
    # Other decoders have an image of their own.
    return int(n_pixels * (max(32, n_bits) // 8 + (0 if compression in _SIMPLE_COMPRESSIONS else 8)))


@cache
def _parser(plugin: str) -> type[ImageFile]:
    module = import_optional(f"PIL.{plugin}ImagePlugin", "images", "decoding images")
    parser: type[ImageFile] = getattr(module, f"{plugin}ImageFile")
    return parser


def _format_of(data: bytes) -> ImageFormat:
    """Return the format of a file.

    `Image.open` is not used: it would try all of Pillow's parsers, one of which starts Ghostscript, and it applies a
    global size limit, which belongs to the application.
    """
    for one in FORMATS:
        if re.match(one.signature, data, re.DOTALL):
            return one
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

    has_more_bits = image.mode in ("I", "F") or image.mode.startswith("I;16")
    if not has_more_bits and not image.has_transparency_data:
        return image.convert("RGB")
    limits = _limits(image) if image.mode in ("I", "F") else (0.0, 0.0)
    canvas = new("RGB", image.size, "white")
    for box in _bands(image):
        band = image.crop(box)
        if has_more_bits:
            canvas.paste(_in_8_bits(band, *limits), box)
        else:
            layer = band.convert("RGBA")
            canvas.paste(layer, box, mask=layer)
    return canvas


def _bands(image: Image) -> Iterator[tuple[int, int, int, int]]:
    """Yield boxes of rows that cover an image."""
    n_rows = max(1, _BAND_PIXELS // image.width)
    for top in range(0, image.height, n_rows):
        yield 0, top, image.width, min(image.height, top + n_rows)


def _limits(image: Image) -> tuple[float, float]:
    """Return the smallest and the largest finite value of a grey image."""
    low, high = np.inf, -np.inf
    for box in _bands(image):
        values = np.array(image.crop(box), dtype=np.float32)
        finite = np.isfinite(values)
        low = min(low, float(values.min(where=finite, initial=np.inf)))
        high = max(high, float(values.max(where=finite, initial=-np.inf)))
    return low, high


def _in_8_bits(image: Image, low: float, high: float) -> Image:
    """Return a grey image of more bits with 8 bits, scaled from `low` to `high` if it has 32."""
    from PIL.Image import fromarray

    if image.mode.startswith("I;16"):
        return fromarray((np.asarray(image) >> 8).astype(np.uint8))
    values = np.array(image, dtype=np.float32)
    with np.errstate(all="ignore"):  # infinities become black or white, NaN black
        values -= low
        values *= 255 / (high - low) if high > low else 0
        np.nan_to_num(values, copy=False, nan=0, posinf=255, neginf=0)
        np.rint(values, out=values)
    return fromarray(values.clip(0, 255, out=values).astype(np.uint8))


def _reason(error: Exception, data: bytes) -> str:
    """Return a phrase of one line for an error of Pillow."""
    from PIL.Image import DecompressionBombError

    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, DecompressionBombError):  # some parsers check Pillow's own limit first
        kind = _format_of(data)
        most = MAX_DECODING_BYTES / kind.bytes_per_pixel / 1e6
        n_pixels = re.search(r"\d+", str(error))
        return (
            f"too large: {n_pixels[0] if n_pixels else 'too many'} pixels; at most {most:.3g} megapixels of {kind.name}"
        )
    message = str(error).partition("\n")[0][:100]
    ended_early = isinstance(error.__cause__ or error, EOFError) or "truncated" in message.lower()
    # Pillow reports a truncated WebP as one without a decoder; but the file contains its length.
    if ended_early or (data.startswith(b"RIFF") and len(data) < 8 + int.from_bytes(data[4:8], "little")):
        return "truncated"
    return f"cannot be decoded: {message or type(error).__name__}"


class _WarningsIgnored:
    """A context in which Pillow's warnings are ignored, as long as any thread is in it.

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
