"""ThumbnailCache are drawn once, kept within bounds, and never the reason why a page fails."""

from __future__ import annotations

import io
from contextlib import closing

import pytest
from PIL import Image

from uniot.errors import DataError
from uniot.runs.thumbnails import LARGE_SIDE, THUMBNAIL_SIDE, ThumbnailCache


class Counting:
    """Pictures that count how often one is drawn."""

    def __init__(self, pictures):
        self._pictures, self.drawn = pictures, 0

    def thumbnail(self, collection, row, side):
        self.drawn += 1
        return self._pictures.thumbnail(collection, row, side)


@pytest.fixture
def pictures(target, new_pictures):
    return Counting(new_pictures(target))


def shade(jpeg: bytes) -> int:
    return Image.open(io.BytesIO(jpeg)).convert("L").getpixel((4, 4))


def test_a_picture_is_drawn_once_even_across_processes(pictures, tmp_path):
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails:
        first = thumbnails.small("target", 7)
        assert thumbnails.small("target", 7) == first
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails:
        assert thumbnails.small("target", 7) == first
    assert pictures.drawn == 1
    assert max(Image.open(io.BytesIO(first)).size) == THUMBNAIL_SIDE


def test_rows_and_collections_are_not_confused(pictures, tmp_path):
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails:
        for _ in range(2):
            shades = [shade(thumbnails.small("target", row)) for row in (0, 1, 59)]
            assert shades == sorted(shades)
            assert shades[2] > 200
            assert shade(thumbnails.small("source", 1)) < 10


def test_large_pictures_are_not_kept(pictures, tmp_path):
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails:
        assert max(Image.open(io.BytesIO(thumbnails.large("target", 7))).size) == LARGE_SIDE
        thumbnails.large("target", 7)
    assert pictures.drawn == 2


def test_the_oldest_are_forgotten_when_the_cache_is_full(pictures, tmp_path):
    size = len(pictures.thumbnail("target", 0, THUMBNAIL_SIDE))
    with closing(
        ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run", max_bytes=5 * size + 50)
    ) as thumbnails:
        for row in range(12):
            thumbnails.small("target", row)
        before = pictures.drawn
        for row in range(11, 8, -1):
            thumbnails.small("target", row)
        assert pictures.drawn == before
        thumbnails.small("target", 0)
        assert pictures.drawn == before + 1
    assert (tmp_path / "thumbnails.sqlite").stat().st_size < 100_000


def test_pictures_of_another_run_are_not_shown(pictures, tmp_path):
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails:
        thumbnails.small("target", 7)
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "another run")) as thumbnails:
        thumbnails.small("target", 7)
    assert pictures.drawn == 2


@pytest.mark.parametrize("make", [lambda path: path.write_bytes(b"damaged" * 1000), lambda path: path.mkdir()])
def test_a_cache_that_cannot_be_used_is_done_without(pictures, tmp_path, make):
    make(tmp_path / "thumbnails.sqlite")
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails:
        assert shade(thumbnails.small("target", 59)) > 200


def test_a_missing_picture_is_an_error_that_is_not_remembered(pictures, tmp_path):
    with closing(ThumbnailCache(pictures, tmp_path / "thumbnails.sqlite", "a run")) as thumbnails:
        for _ in range(2):
            with pytest.raises(DataError, match="has 60 pictures, and number 60 was requested"):
                thumbnails.small("target", 60)
