from __future__ import annotations

import io
import pickle
import re
import struct
import subprocess
import sys
import threading
import warnings
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from uniot.errors import DataError
from uniot.images import decoding
from uniot.images.decoding import MAX_PIXELS, UnreadableImage, decoded

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
FILES = [
    ("JPEG", {"quality": 95, "subsampling": 0}),
    ("JPEG", {"quality": 95, "subsampling": 0, "progressive": True}),
    ("PNG", {}),
    ("WEBP", {"quality": 95}),
    ("WEBP", {"lossless": True}),
    ("GIF", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("TIFF", {"compression": "jpeg", "quality": 95}),
    ("TIFF", {"compression": "tiff_adobe_deflate"}),
    ("TIFF", {"big_tiff": True}),
    ("BMP", {}),
]
ORIENTATION = 0x0112


def decode(data: bytes, shortest_side: int | None = None) -> Image.Image:
    with decoded(data, shortest_side=shortest_side) as image:
        return image.copy()


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def quarters(side: int = 32) -> Image.Image:
    """Red, green / blue, white: every turn and mirroring shows."""
    image = Image.new("RGB", (2 * side, side), WHITE)
    half = side // 2
    for place, colour in (((0, 0), RED), ((side, 0), GREEN), ((0, half), BLUE)):
        image.paste(colour, (*place, place[0] + side, place[1] + half))
    return image


def noise(side: int = 64) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))


def oriented(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


def assert_alike(seen: Image.Image, expected: Image.Image, within: float = 8) -> None:
    assert seen.size == expected.size
    difference = np.abs(np.asarray(seen, dtype=float) - np.asarray(expected.convert("RGB"), dtype=float))
    assert difference.mean() <= within


def reason(data: bytes) -> str:
    with pytest.raises(UnreadableImage) as caught:
        decode(data)
    return caught.value.reason


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_that_claims(width: int, height: int) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = png_chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + png_chunk(b"IEND", b"")


# --- every kind of file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "options"), FILES)
def test_every_kind_of_file_gives_its_picture(kind, options):
    image = decode(encoded(quarters(), kind, **options))
    assert type(image) is Image.Image
    assert image.mode == "RGB"
    assert_alike(image, quarters())


def test_lossless_kinds_keep_every_pixel():
    for kind, options in [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True})]:
        assert np.array_equal(np.asarray(decode(encoded(noise(), kind, **options))), np.asarray(noise())), kind


def test_tiff_with_64_bit_offsets_is_among_them():
    assert encoded(quarters(), "TIFF", big_tiff=True).startswith(b"II+\0")


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("L", kind) for kind in ("JPEG", "PNG", "GIF", "TIFF", "BMP")]
    + [("1", kind) for kind in ("PNG", "GIF", "TIFF", "BMP")]
    + [("LA", "PNG"), ("P", "TIFF")],
)
def test_greyscale_gives_three_equal_channels(mode, kind):
    ramp = Image.fromarray(np.tile(np.arange(0, 256, 4, dtype=np.uint8), (16, 1)))
    seen = np.asarray(decode(encoded(ramp.convert(mode), kind)))
    assert seen.shape == (16, 64, 3)
    assert (seen == seen[:, :, :1]).all()
    assert np.abs(seen[:, :, 0].astype(float) - np.asarray(ramp.convert(mode).convert("L"))).mean() < 2
    assert seen.max() - seen.min() > 240


@pytest.mark.parametrize(
    ("mode", "kind", "options"),
    [
        ("P", "PNG", {}),
        ("P", "GIF", {}),
        ("P", "BMP", {}),
        ("P", "TIFF", {}),
        ("CMYK", "JPEG", {"quality": 95}),
        ("CMYK", "TIFF", {}),
        ("YCbCr", "TIFF", {}),
        ("YCbCr", "JPEG", {"quality": 95}),
        ("RGBX", "TIFF", {}),
        ("RGBA", "PNG", {}),
        ("RGBA", "WEBP", {"lossless": True}),
        ("RGBA", "TIFF", {}),
        ("RGBA", "BMP", {}),
    ],
)
def test_every_colour_space_gives_the_colours(mode, kind, options):
    palette = {"palette": Image.Palette.ADAPTIVE} if mode == "P" else {}
    assert_alike(decode(encoded(quarters().convert(mode, **palette), kind, **options)), quarters(), within=9)


def test_lab_gives_the_colours():
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    lab = ImageCms.applyTransform(quarters(), ImageCms.buildTransform(*profiles, "RGB", "LAB"))
    assert lab is not None
    assert_alike(decode(encoded(lab, "TIFF")), quarters())


# --- transparency -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True, "exact": True}), ("TIFF", {})])
def test_transparency_lies_on_white(kind, options):
    image = Image.new("RGBA", (3, 1))
    for column, alpha in enumerate((0, 128, 255)):
        image.putpixel((column, 0), (200, 0, 0, alpha))
    seen = np.asarray(decode(encoded(image, kind, **options)))[0]
    assert seen.tolist() == [[255, 255, 255], pytest.approx([227, 127, 127], abs=1), [200, 0, 0]]


def test_transparent_grey_lies_on_white():
    image = Image.new("LA", (2, 1), (40, 0))
    image.putpixel((1, 0), (40, 255))
    assert np.asarray(decode(encoded(image, "PNG")))[0].tolist() == [[255] * 3, [40] * 3]


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_transparent_palette_entry_lies_on_white(kind):
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putpixel((1, 0), 1)
    assert np.asarray(decode(encoded(image, kind, transparency=0)))[0].tolist() == [list(WHITE), list(GREEN)]


def test_palette_with_an_alpha_per_entry_lies_on_white():
    image = Image.new("P", (3, 1))
    image.putpalette([*RED, *GREEN, *BLUE])
    for column in range(3):
        image.putpixel((column, 0), column)
    seen = np.asarray(decode(encoded(image, "PNG", transparency=bytes([0, 255, 128]))))[0]
    assert seen.tolist() == [list(WHITE), list(GREEN), pytest.approx([127, 127, 255], abs=1)]


def test_colour_that_stands_for_transparent_lies_on_white():
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((1, 0), BLUE)
    assert np.asarray(decode(encoded(image, "PNG", transparency=RED)))[0].tolist() == [list(WHITE), list(BLUE)]


# --- more than 8 bits -------------------------------------------------------------------------------------


def stored(values: np.ndarray, kind: str = "TIFF") -> list[int]:
    """Grey levels that come back for an array written as an image."""
    seen = np.asarray(decode(encoded(Image.fromarray(values), kind)))
    assert (seen == seen[:, :, :1]).all()
    return seen[0, :, 0].tolist()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bits_keep_the_upper_8(kind):
    assert stored(np.array([[0, 255, 256, 0x8000, 0xFFFF]], dtype=np.uint16), kind) == [0, 0, 1, 128, 255]


def test_16_bits_of_a_motorola_tiff_are_read_in_its_order():
    entries = {256: 2, 257: 1, 258: 16, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 4}
    directory = struct.pack(">H", len(entries))
    for tag, value in entries.items():
        directory += struct.pack(">HHIHH", tag, 3, 1, value, 0)
    data = b"MM\0*" + struct.pack(">I", 12) + struct.pack(">HH", 0x1234, 0xFE01) + directory + bytes(4)
    assert np.asarray(decode(data))[0, :, 0].tolist() == [0x12, 0xFE]


def test_32_bits_go_from_their_smallest_value_to_their_largest():
    assert stored(np.array([[-1000, 0, 1000]], dtype=np.int32)) == [0, 128, 255]
    assert stored(np.array([[0, 1, 2**31 - 1]], dtype=np.int32)) == [0, 0, 255]


def test_floats_go_from_their_smallest_value_to_their_largest():
    assert stored(np.array([[0.5, 0.6, 0.7]], dtype=np.float32)) == [0, 128, 255]
    assert stored(np.array([[-3e38, 0, 3e38]], dtype=np.float32)) == [0, 128, 255]


def test_what_is_no_number_is_black_and_infinity_is_the_end_of_its_side():
    values = np.array([[np.nan, -np.inf, 1, 2, np.inf]], dtype=np.float32)
    assert stored(values) == [0, 0, 0, 255, 255]
    assert stored(np.full((1, 2), np.nan, dtype=np.float32)) == [0, 0]


def test_one_value_everywhere_is_black():
    assert stored(np.full((1, 3), 7.5, dtype=np.float32)) == [0, 0, 0]


def test_colours_of_16_bits_keep_the_upper_8():
    rows = b"\0" + struct.pack(">3H", 0x1234, 0x8000, 0xFFFF)
    data = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    data += png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    assert decode(data).getpixel((0, 0)) == (0x12, 0x80, 0xFF)


# --- upright, and the first of several ---------------------------------------------------------------------

# How a camera held that way would have stored the upright picture.
STORED_AS = {
    1: [],
    2: [Image.Transpose.FLIP_LEFT_RIGHT],
    3: [Image.Transpose.ROTATE_180],
    4: [Image.Transpose.FLIP_TOP_BOTTOM],
    5: [Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_90],
    6: [Image.Transpose.ROTATE_90],
    7: [Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_270],
    8: [Image.Transpose.ROTATE_270],
}


@pytest.mark.parametrize("orientation", STORED_AS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {}), ("PNG", {}), ("WEBP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"})],
)
def test_image_stands_upright_whichever_way_the_camera_was_held(kind, options, orientation):
    image = quarters()
    for turn in STORED_AS[orientation]:
        image = image.transpose(turn)
    assert_alike(decode(encoded(image, kind, exif=oriented(orientation), **options)), quarters())


def test_image_cannot_be_turned_a_second_time():
    image = decode(encoded(quarters(), "JPEG", exif=oriented(6)))
    assert image.size == (32, 64)
    assert ORIENTATION not in image.getexif()
    assert image.info == {}


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_orientation_that_does_not_exist_turns_nothing(orientation):
    assert_alike(decode(encoded(quarters(), "JPEG", exif=oriented(orientation))), quarters())


@pytest.mark.parametrize("exif", [b"", b"II", b"Exif\0\0II*\0\xff\xff\xff\x7f", b"Exif\0\0" + bytes(40), b"\xff" * 30])
def test_damaged_exif_leaves_the_pixels_usable(exif):
    assert_alike(decode(encoded(quarters(), "JPEG", exif=exif)), quarters())
    assert_alike(decode(encoded(quarters(), "WEBP", exif=exif)), quarters())


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
def test_first_of_several_frames_is_taken(kind):
    others = [Image.new("RGB", (64, 32), colour) for colour in (BLUE, GREEN)]
    assert_alike(decode(encoded(quarters(), kind, save_all=True, append_images=others)), quarters())


# --- what cannot be read -----------------------------------------------------------------------------------


def zip_file() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("image.jpg", encoded(quarters(), "JPEG"))
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"just text",
        b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        zip_file(),
        b"\0" * 1000,
        b"B",
        b"RIFF\x24\0\0\0WAVEfmt ",
        b"\0\0\0\x18ftypheic\0\0\0\0",
        b"%PDF-1.7\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    ],
)
def test_what_is_no_image_is_said_to_be_none(data):
    assert reason(data) == "not an image: none of JPEG, PNG, WebP, GIF, TIFF, BMP"


def test_empty_file_is_said_to_be_empty():
    assert reason(b"") == "empty file"


@pytest.mark.parametrize("kind", ["PPM", "TGA", "PCX", "ICO", "JPEG2000", "EPS"])
def test_other_formats_of_pillow_are_out_of_reach(kind, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert reason(encoded(quarters(), kind)).startswith("not an image")


@pytest.mark.parametrize(("kind", "options"), [file for file in FILES if "compression" not in file[1]])
def test_file_that_is_cut_in_half_is_truncated(kind, options):
    data = encoded(noise(), kind, **options)
    assert reason(data[: len(data) // 2]) == "truncated"


@pytest.mark.parametrize(("kind", "options"), FILES)
def test_file_is_unreadable_or_whole_wherever_it_is_cut(kind, options):
    data = encoded(quarters(8), kind, **options)
    for length in range(len(data)):
        try:
            image = decode(data[:length])
        except UnreadableImage:
            continue
        assert_alike(image, quarters(8), within=12)


@pytest.mark.parametrize("chunk", [b"IHDR", b"IDAT"])
def test_damaged_chunk_of_a_png_is_named(chunk):
    data = bytearray(encoded(noise(), "PNG"))
    data[data.index(chunk) + 6] ^= 0xFF
    assert reason(bytes(data)).startswith(("cannot be decoded: broken PNG file", "cannot be decoded: broken data"))


def test_reason_is_one_short_line(monkeypatch):
    def fail(*_):
        raise OSError("a long story\n" * 100)

    monkeypatch.setattr(JpegImageFile, "load", fail)
    assert reason(encoded(quarters(), "JPEG")) == "cannot be decoded: a long story"


@pytest.mark.parametrize("error", [OSError, SyntaxError, ValueError, struct.error, zlib.error, OverflowError, KeyError])
def test_whatever_a_parser_raises_the_file_is_unreadable(error, monkeypatch):
    def fail(*_):
        raise error("gone wrong")

    monkeypatch.setattr(JpegImageFile, "load", fail)
    assert reason(encoded(quarters(), "JPEG")).replace("'", "") == "cannot be decoded: gone wrong"


def test_error_without_words_is_told_by_its_name(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(JpegImageFile, "load", fail)
    assert reason(encoded(quarters(), "JPEG")) == "cannot be decoded: AssertionError"


def test_lack_of_memory_is_said(monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(JpegImageFile, "load", fail)
    assert reason(encoded(quarters(), "JPEG")) == "not enough memory"


def test_interruption_is_no_damage(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(JpegImageFile, "load", interrupt)
    with pytest.raises(KeyboardInterrupt):
        decode(encoded(quarters(), "JPEG"))


def test_error_says_what_to_do_and_travels_between_processes():
    error = pickle.loads(pickle.dumps(UnreadableImage("truncated")))
    assert isinstance(error, DataError)
    assert error.reason == "truncated"
    assert str(error) == "the image cannot be read (truncated). Replace the file, or leave it out."


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    decoding._parser.cache_clear()
    monkeypatch.setitem(sys.modules, "PIL.JpegImagePlugin", None)
    with pytest.raises(DataError, match=r"pip install 'uniot\[images\]'") as caught:
        decode(b"\xff\xd8\xff")
    assert not isinstance(caught.value, UnreadableImage)


def test_importing_the_module_does_not_import_pillow():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, uniot.images.decoding; print('PIL' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"


# --- too large ---------------------------------------------------------------------------------------------


def bmp_that_claims(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 1000, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 1, 1, 0, 0)


def jpeg_that_claims(width: int, height: int) -> bytes:
    data = bytearray(encoded(quarters(), "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.mark.parametrize("bomb", [png_that_claims, bmp_that_claims, jpeg_that_claims])
def test_gigantic_image_is_refused_by_its_header(bomb, monkeypatch):
    def refuse(*_):
        raise AssertionError("pixels were decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", refuse)
    assert reason(bomb(60000, 60000)) == "too large: 60000 × 60000 pixels; at most 201 megapixels"


def tiff_that_claims(width: int, height: int, **tags: int) -> bytes:
    """One strip, or one tile if tags say its width and length; `tags` by number, with an underscore in front."""
    entries = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 277: 1} | {int(tag[1:]): of for tag, of in tags.items()}
    entries |= {324: 8, 325: 100} if 322 in entries else {273: 8, 278: height, 279: 100}
    directory = struct.pack("<H", len(entries))
    directory += b"".join(struct.pack("<HHII", tag, 4, 1, of) for tag, of in sorted(entries.items()))
    return b"II*\0" + struct.pack("<I", 108) + bytes(100) + directory + bytes(4)


def progressive_jpeg_that_claims(width: int, height: int) -> bytes:
    data = bytearray(encoded(quarters(), "JPEG", progressive=True))
    frame = data.index(b"\xff\xc2")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


class Decoded(Exception):
    """Raised in place of decoding pixels."""


@pytest.fixture
def undecodable(monkeypatch):
    def refuse(*_):
        raise Decoded("pixels are decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", refuse)
    monkeypatch.setattr("PIL.TiffImagePlugin.TiffImageFile.load", refuse)


@pytest.mark.usefixtures("undecodable")
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (png_that_claims(1, 201_326_592), "1 × 201326592 pixels; at most 65535 per side"),
        (png_that_claims(201_326_592, 1), "201326592 × 1 pixels; at most 65535 per side"),
        (png_that_claims(12_000, 12_000), "12000 × 12000 pixels of PNG take 1.15 GB to decode; at most 0.8 GB"),
        (bmp_that_claims(12_000, 12_000), "12000 × 12000 pixels of BMP take 1.15 GB to decode; at most 0.8 GB"),
        (tiff_that_claims(12_000, 12_000), "12000 × 12000 pixels of TIFF take 1.15 GB to decode; at most 0.8 GB"),
        (tiff_that_claims(10, 10, _322=32_000, _323=32_000), "10 × 10 pixels of TIFF take 4.1 GB to decode"),
        (jpeg_that_claims(12_000, 12_000), "12000 × 12000 pixels of JPEG take 1.15 GB to decode; at most 0.8 GB"),
    ],
    ids=["tall", "flat", "PNG", "BMP", "TIFF", "TIFF tile", "JPEG"],
)
def test_image_that_takes_too_much_memory_is_refused_by_its_header(data, words):
    assert reason(data) == f"too large: {words}" or reason(data).startswith(f"too large: {words};")


@pytest.mark.usefixtures("undecodable")
@pytest.mark.parametrize(
    "data",
    [
        png_that_claims(10_000, 10_000),
        bmp_that_claims(10_000, 10_000),
        tiff_that_claims(10_000, 10_000),
        jpeg_that_claims(10_000, 10_000),
    ],
    ids=["PNG", "BMP", "TIFF", "JPEG"],
)
def test_image_of_100_megapixels_is_decoded(data):
    assert reason(data) == "cannot be decoded: pixels are decoded"


# --- too many parts ----------------------------------------------------------------------------------------

PNG_HEADER = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
JPEG_BEGIN = encoded(quarters(), "JPEG")[:20]
GIF_HEADER = b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0)


@pytest.mark.parametrize(
    "data",
    [
        JPEG_BEGIN + bytes(110_000),
        JPEG_BEGIN + b"\xff" * 110_000,
        JPEG_BEGIN + b"\xff\xfe\0\2" * 40_000,
        PNG_HEADER + png_chunk(b"tESt", b"") * 60_000,
        PNG_HEADER + png_chunk(b"IDAT", b"") * 60_000,
        GIF_HEADER + bytes(110_000),
        GIF_HEADER + b"!\xfe\1a\0" * 40_000,
    ],
    ids=["JPEG zeros", "JPEG padding", "JPEG comments", "PNG chunks", "PNG data", "GIF zeros", "GIF comments"],
)
def test_image_that_would_be_read_for_minutes_is_refused(data, monkeypatch):
    assert decoding._Encoded.n_reads_left == 1_000_000, "about half a second"
    monkeypatch.setattr(decoding._Encoded, "n_reads_left", 100_000)
    assert reason(data) == "too many parts: its header or its pixels do not end"


@pytest.mark.parametrize(
    "data",
    [
        lambda jpeg, _: jpeg[:20] + bytes(100_000) + jpeg[20:],
        lambda jpeg, _: jpeg[:20] + b"\xff\xfe\0\2" * 1000 + jpeg[20:],
        lambda _, png: png.replace(png[33:], png_chunk(b"tESt", b"") * 10_000 + png[33:]),
    ],
    ids=["JPEG zeros", "JPEG comments", "PNG chunks"],
)
def test_image_with_much_in_its_header_is_read(data):
    jpeg, png = encoded(quarters(), "JPEG"), encoded(quarters(), "PNG")
    assert decode(data(jpeg, png)).size == quarters().size


def test_run_lengths_of_a_large_bmp_are_all_read():
    """Each pixel takes two reads, so that there are more of them than a header may take."""
    side = 800
    colours = bytes(value for grey in range(256) for value in (grey, grey, grey, 0))
    rows = b"".join(b"".join(bytes([1, (x + y) % 256]) for x in range(side)) + b"\0\0" for y in range(side))
    sizes = struct.pack(
        "<IHHIIiiHHIIiiII", 1078 + len(rows), 0, 0, 1078, 40, side, side, 1, 8, 1, len(rows), 1, 1, 0, 0
    )
    image = decode(b"BM" + sizes + colours + rows + b"\0\1")
    assert (np.asarray(image)[side - 1, :300, 0] == np.arange(300) % 256).all()


def test_jpeg_of_many_scans_is_refused_before_they_are_decoded(undecodable):
    data = encoded(quarters(), "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    assert 1 < (written := data.count(b"\xff\xda")) < 20
    assert reason(data[:-2] + (100 - written) * last + data[-2:]) == "cannot be decoded: pixels are decoded"
    assert reason(data[:-2] + (101 - written) * last + data[-2:]) == "too many scans: 101; at most 100"


# --- memory of threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "bytes_per_pixel"), [("PNG", 8), ("GIF", 8), ("WEBP", 16)])
def test_webp_takes_twice_the_memory_of_other_formats(kind, bytes_per_pixel, monkeypatch):
    data = encoded(quarters(), kind)
    monkeypatch.setattr(decoding, "MAX_DECODING_BYTES", bytes_per_pixel * 64 * 32)
    assert decode(data).size == (64, 32)
    monkeypatch.setattr(decoding, "MAX_DECODING_BYTES", bytes_per_pixel * 64 * 32 - 1)
    assert reason(data).startswith("too large: 64 × 32 pixels of ")


@pytest.mark.usefixtures("undecodable")
def test_photograph_of_200_megapixels_is_decoded_at_a_reduced_size_unless_it_is_progressive():
    def reason_if_reduced(data):
        with pytest.raises(UnreadableImage) as caught:
            decode(data, shortest_side=500)
        return caught.value.reason

    assert reason_if_reduced(jpeg_that_claims(16_384, 12_288)) == "cannot be decoded: pixels are decoded"
    assert reason_if_reduced(progressive_jpeg_that_claims(11_000, 11_000)) == "cannot be decoded: pixels are decoded"
    words = "too large: 16384 × 12288 pixels of JPEG take 1.22 GB to decode; at most 0.8 GB"
    assert reason_if_reduced(progressive_jpeg_that_claims(16_384, 12_288)) == words


def in_threads(work, count: int) -> None:
    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(work, number) for number in range(count)]:
            done.result(timeout=60)


def test_threads_together_take_no_more_than_the_memory_for_decoding(monkeypatch):
    needed = 8 * 64 * 32
    monkeypatch.setattr(decoding, "_for_decoding", decoding.MemoryBudget(2 * needed + 1))
    data, lock, inside, most = encoded(quarters(), "PNG"), threading.Lock(), 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        for _ in range(20):
            with decoded(data) as image:
                with lock:
                    inside += 1
                    most = max(most, inside)
                assert image.size == (64, 32)
                with lock:
                    inside -= 1

    in_threads(work, 8)
    assert 1 <= most <= 2


def test_memory_for_decoding_is_free_again_after_an_error(monkeypatch):
    budget = decoding.MemoryBudget(8 * 64 * 32)
    monkeypatch.setattr(decoding, "_for_decoding", budget)
    whole = encoded(quarters(), "PNG")
    for data in (whole[:-30], whole[:60], png_that_claims(60000, 60000)):
        reason(data)
    with pytest.raises(KeyError), decoded(whole):
        raise KeyError
    in_threads(lambda _: decode(whole), 2)
    assert budget._free == 8 * 64 * 32


def test_freed_memory_is_returned_before_another_thread_gets_it(monkeypatch):
    returned = []
    monkeypatch.setattr(decoding, "_MAX_RETAINED_BYTES", 100)
    monkeypatch.setattr(decoding, "_return_freed_memory", lambda: returned.append(budget._free))
    budget = decoding.MemoryBudget(1000)
    for n_bytes in (60, 60, 1000, 20):
        with budget.reserved(n_bytes):
            pass
    assert returned == [940, 0]


def test_pixels_are_freed_at_the_end_of_the_block():
    with decoded(encoded(quarters(), "PNG")) as image:
        assert image.getpixel((0, 0)) is not None
    with pytest.raises(ValueError, match="closed"):
        image.getpixel((0, 0))


def test_more_memory_than_there_is_waits_for_all_of_it():
    budget, order = decoding.MemoryBudget(10), []

    def work(number: int) -> None:
        with budget.reserved(100 if number % 2 else 4):
            order.append(budget._free)

    in_threads(work, 16)
    assert len(order) == 16
    assert all(free >= 0 for free in order)
    assert order.count(0) >= 8
    assert budget._free == 10


def test_encoded_images_of_all_threads_are_bounded(tmp_path, monkeypatch):
    budget = decoding.MemoryBudget(1000)
    monkeypatch.setattr(decoding, "_for_encoded", budget)
    (tmp_path / "a.png").write_bytes(bytes(600))
    free = []

    def work(_: int) -> None:
        with decoding.memory_for_encoded(tmp_path / "a.png"):
            free.append(budget._free)

    in_threads(work, 8)
    assert free == [400] * 8
    with decoding.memory_for_encoded(tmp_path / "missing.png"):
        assert budget._free == 1000


def test_gigantic_canvas_of_a_webp_is_refused():
    data = encoded(quarters().convert("RGBA"), "WEBP", exif=oriented(1))
    assert data[12:16] == b"VP8X"
    side = (16383).to_bytes(3, "little")
    words = "too large: 268435456 pixels; at most 50 megapixels of WebP"
    assert reason(data[:24] + side + side + data[30:]) == words


def test_limit_itself_is_allowed_and_one_column_more_is_not(monkeypatch):
    data = encoded(quarters(), "PNG")
    monkeypatch.setattr(decoding, "MAX_PIXELS", 64 * 32)
    assert decode(data).size == (64, 32)
    monkeypatch.setattr(decoding, "MAX_PIXELS", 64 * 32 - 1)
    assert reason(data) == "too large: 64 × 32 pixels; at most 0.00205 megapixels"


def test_photographs_of_200_megapixels_are_within_the_limit():
    assert MAX_PIXELS >= 16320 * 12240
    assert MAX_PIXELS >= 16384 * 12288


@pytest.mark.parametrize("limit", [1, None])
def test_limit_of_the_application_is_neither_used_nor_changed(limit, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert_alike(decode(encoded(quarters(), "JPEG")), quarters())
    assert reason(png_that_claims(60000, 60000)) == "too large: 60000 × 60000 pixels; at most 201 megapixels"
    assert limit == Image.MAX_IMAGE_PIXELS


# --- warnings ----------------------------------------------------------------------------------------------


def jpeg_that_makes_pillow_warn() -> bytes:
    """Its EXIF promises 200 letters at a place where there are none."""
    entry = struct.pack("<HHII", 0x010F, 2, 200, 30)
    return encoded(quarters(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0" + entry + bytes(4))


def test_pillow_warns_of_damaged_exif_and_decoding_does_not(recwarn):
    data = jpeg_that_makes_pillow_warn()
    with pytest.warns(UserWarning, match="Skipping tag"):
        Image.open(io.BytesIO(data)).getexif()
    warnings.simplefilter("always")
    recwarn.clear()
    assert_alike(decode(data), quarters())
    assert list(recwarn) == []


def test_warnings_as_errors_do_not_make_an_image_unreadable():
    still = encoded(quarters(), "PNG")
    of_no_frames = still[:33] + png_chunk(b"acTL", bytes(8)) + still[33:]
    with pytest.raises(UserWarning, match="Invalid APNG"):
        Image.open(io.BytesIO(of_no_frames))
    assert_alike(decode(of_no_frames), quarters())


def test_filters_are_as_before_when_many_threads_have_decoded():
    data = jpeg_that_makes_pillow_warn()
    before = list(warnings.filters)
    failures = []
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        try:
            for _ in range(50):
                decode(data)
                with pytest.raises(UnreadableImage):
                    decode(data[:200])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(warnings.filters) == before


def test_warnings_of_others_are_still_heard_while_decoding():
    with pytest.warns(UserWarning, match="heard"), decoding._pillow_warnings_ignored:
        warnings.warn("heard", UserWarning, stacklevel=1)


# --- large photographs at a reduced scale -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "size"), [(None, (800, 600)), (600, (800, 600)), (301, (800, 600)), (300, (400, 300)), (75, (100, 75))]
)
def test_large_jpeg_is_decoded_at_the_scale_that_suffices(side, size):
    assert decode(encoded(Image.new("RGB", (800, 600)), "JPEG"), shortest_side=side).size == size


@given(width=st.integers(1, 300), height=st.integers(1, 300), side=st.integers(1, 400), turned=st.booleans())
@settings(max_examples=60)
def test_shorter_side_never_falls_below_what_is_needed(width, height, side, turned):
    data = encoded(Image.new("L", (width, height)), "JPEG", exif=oriented(6 if turned else 1))
    assert min(decode(data, shortest_side=side).size) >= min(side, width, height)


def test_reduced_scale_shows_the_same_picture_upright():
    image = decode(
        encoded(quarters(512).transpose(Image.Transpose.ROTATE_90), "JPEG", exif=oriented(6)), shortest_side=64
    )
    assert_alike(image, quarters(64))


def test_other_kinds_of_file_come_in_full_size():
    assert decode(encoded(quarters(256), "PNG"), shortest_side=16).size == (512, 256)


# --- whatever the bytes ------------------------------------------------------------------------------------

SIGNATURES = st.one_of(
    *(st.from_regex(re.compile(one.signature, re.DOTALL), fullmatch=True) for one in decoding.FORMATS)
)
SOUND = [encoded(quarters(8), kind, **options) for kind, options in FILES] + [
    encoded(quarters(8), "JPEG", exif=oriented(6)),
    encoded(quarters(8).convert("P"), "PNG", transparency=bytes(range(200))),
    encoded(quarters(8).convert("CMYK"), "JPEG"),
    encoded(quarters(8).convert("F"), "TIFF"),
    encoded(quarters(8).convert("1"), "TIFF", compression="group4"),
    encoded(quarters(8), "GIF", save_all=True, append_images=[noise(8)]),
    encoded(quarters(8), "PNG", save_all=True, append_images=[noise(8)]),
]


def outcome(data: bytes) -> Image.Image | str:
    """An image, or the reason why there is none; nothing else can happen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "MAX_PIXELS", 10**6)  # a flipped bit of a header may ask for a gigabyte
        try:
            return decode(data)
        except UnreadableImage as error:
            return error.reason


def assert_image_or_reason(seen: Image.Image | str) -> None:
    if isinstance(seen, str):
        assert seen
        assert "\n" not in seen
    else:
        assert seen.mode == "RGB"
        assert np.asarray(seen).shape == (seen.height, seen.width, 3)


@given(st.sampled_from([b"", b"RIFF", b"RIFF\xff\0\0\0WEBPVP8 "]) | SIGNATURES, st.binary(max_size=300))
@settings(max_examples=300)
def test_random_bytes_are_an_image_or_unreadable(first_bytes, rest):
    assert_image_or_reason(outcome(first_bytes + rest))


@given(st.sampled_from(SOUND), st.data())
@settings(max_examples=400)
def test_damaged_files_are_an_image_or_unreadable(sound, data):
    damaged = bytearray(sound)
    # Half of the damage is done to headers, where it does most.
    place = st.integers(0, min(99, len(sound) - 1)) | st.integers(0, len(sound) - 1)
    for at, value in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), max_size=8)):
        damaged[at] = value
    assert_image_or_reason(outcome(bytes(damaged[: data.draw(st.just(len(sound)) | place)])))
