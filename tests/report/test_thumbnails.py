from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from uniot.report.sheets import data_uri, sheets
from uniot.runs.pictures import Pictures
from uniot.runs.thumbnails import fitting_side, read_thumbnails


@pytest.fixture
def pictures() -> Pictures:
    shades = np.arange(20, dtype=np.uint8) * 12
    return Pictures({}, {"source": np.zeros((3, 8, 8), np.uint8), "target": np.tile(shades[:, None, None], (1, 8, 8))})


def test_pictures_are_read_in_order_and_once(pictures):
    wanted = [("target", 4), ("source", 0), ("target", 4), ("target", 1)]
    assert list(read_thumbnails(pictures, wanted, 16, 10**6)) == [("target", 4), ("source", 0), ("target", 1)]


def test_reading_stops_when_there_is_no_more_room(pictures):
    one = len(pictures.thumbnail("target", 0, 16))
    found = read_thumbnails(pictures, [("target", row) for row in range(20)], 16, 3 * one + 10)
    assert 2 <= len(found) <= 3
    assert sum(map(len, found.values())) <= 3 * one + 10


def test_thumbnails_are_as_large_as_there_is_room_for():
    noise = np.random.default_rng(0).integers(0, 256, (50, 64, 64), dtype=np.uint8)
    pictures = Pictures({}, {"source": noise[:0], "target": noise})
    wanted = [("target", row) for row in range(50)]
    large, small = (len(pictures.thumbnail("target", 0, side)) for side in (128, 64))
    assert fitting_side(pictures, wanted, (128, 64, 32), 52 * large) == 128
    assert fitting_side(pictures, wanted, (128, 64, 32), 52 * small) == 64
    assert fitting_side(pictures, wanted, (128, 64, 32), 40 * small) == 32


def test_a_file_that_is_gone_is_left_out(tmp_path):
    kept = tmp_path / "kept.png"
    Image.new("RGB", (9, 9), "red").save(kept)
    pictures = Pictures({"source": [], "target": [str(tmp_path / "gone.png"), str(kept)]}, {})
    assert list(read_thumbnails(pictures, [("target", 0), ("target", 1)], 16, 10**6)) == [("target", 1)]


def test_a_run_without_pictures_has_no_thumbnails():
    assert read_thumbnails(None, [("target", 0)], 16, 10**6) == {}


def test_each_picture_has_its_square_on_the_sheet(pictures):
    thumbnails = list(read_thumbnails(pictures, [("target", row) for row in range(20)], 16, 10**6).values())
    (sheet,) = sheets(thumbnails, 16, 10**6)
    pixels = np.asarray(Image.open(io.BytesIO(sheet)).convert("L")).astype(int)
    assert pixels.shape == (32, 256)
    for number in range(20):
        row, column = divmod(number, 16)
        assert abs(pixels[16 * row + 8, 16 * column + 8] - 12 * number) < 6
    assert pixels[24, 200] > 245  # nothing is there


def test_sheets_stop_when_there_is_no_more_room(pictures):
    thumbnails = [pictures.thumbnail("target", 0, 16)] * 600
    every = sheets(thumbnails, 16, 10**6)
    assert len(every) == 3
    assert len(sheets(thumbnails, 16, len(every[0]) + len(every[1]))) == 2


def test_a_data_uri_holds_the_picture():
    assert data_uri(b"\xff\xd8") == "data:image/jpeg;base64,/9g="
