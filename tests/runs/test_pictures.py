"""Pictures of a run: from files where they lie, or from the run itself; nothing else can be read through them."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from uniot.errors import DataError, RunFolderError
from uniot.images.files import ImageFile
from uniot.runs import RunFiles
from uniot.runs.pictures import Pictures, write_pixels, write_places


def photo(path, size=(60, 30), colour=(200, 30, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


@pytest.fixture
def run(tmp_path):
    """A run folder that knows of two pictures of the source and one of the target."""
    files = [photo(tmp_path / "photos" / name) for name in ("a.png", "b ü.jpg", "c.png")]
    folder = tmp_path / "run"
    folder.mkdir()
    source = [ImageFile(path, path.name, "cup") for path in files[:2]]
    write_places(folder, source, [ImageFile(files[2], "c.png")])
    return folder


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    assert image.format == "JPEG"
    return image


def test_pictures_are_found_by_collection_and_row(run):
    pictures = Pictures.open(run)
    assert (pictures.count("source"), pictures.count("target")) == (2, 1)
    image = opened(pictures.thumbnail("source", 1, 20))
    assert image.size == (20, 10)
    assert np.allclose(np.asarray(image)[5, 10], (200, 30, 30), atol=12)


def test_a_run_without_pictures_has_none(tmp_path):
    assert Pictures.open(tmp_path) is None


@pytest.mark.parametrize("row", [-1, 1, 10**9])
def test_rows_beyond_the_collection_are_refused(run, row):
    with pytest.raises(DataError, match="the target has 1 pictures"):
        Pictures.open(run).thumbnail("target", row, 20)


def test_links_that_were_there_when_the_run_was_made_are_followed(tmp_path):
    real = photo(tmp_path / "real" / "a.png")
    link = tmp_path / "a.png"
    link.symlink_to(real)
    write_places(tmp_path, [], [ImageFile(link, "a.png")])
    assert opened(Pictures.open(tmp_path).thumbnail("target", 0, 8)).size == (8, 4)


def test_a_file_that_became_a_link_is_refused(run, tmp_path):
    secret = photo(tmp_path / "secret.png")
    picture = tmp_path / "photos" / "c.png"
    picture.unlink()
    picture.symlink_to(secret)
    with pytest.raises(DataError, match="has become a link"):
        Pictures.open(run).thumbnail("target", 0, 20)


def test_a_folder_that_became_a_link_is_refused(run, tmp_path):
    (tmp_path / "photos").rename(tmp_path / "moved")
    (tmp_path / "photos").symlink_to(tmp_path / "moved")
    with pytest.raises(DataError, match="has become a link"):
        Pictures.open(run).thumbnail("target", 0, 20)


def test_a_file_that_is_gone_or_no_image_is_told(run, tmp_path):
    pictures = Pictures.open(run)
    (tmp_path / "photos" / "c.png").write_text("password")
    with pytest.raises(DataError, match=r"c\.png cannot be read \(not an image"):
        pictures.thumbnail("target", 0, 20)
    (tmp_path / "photos" / "c.png").unlink()
    with pytest.raises(DataError, match="no such file.* Put it back"):
        pictures.thumbnail("target", 0, 20)


def test_pixels_are_kept_in_the_run_and_enlarged_by_whole_numbers(tmp_path):
    target = np.zeros((3, 8, 8))
    target[1, :, :4] = 1
    write_pixels(tmp_path, np.zeros((2, 4, 4)), target)
    pictures = Pictures.open(tmp_path)
    assert (pictures.count("source"), pictures.count("target")) == (2, 3)
    image = opened(pictures.thumbnail("target", 1, 60))
    assert image.size == (56, 56)
    assert np.asarray(image)[30, [5, 50]].tolist() == pytest.approx([255, 0], abs=8)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"source": 3, "target": []}', '{"source": []}'])
def test_a_damaged_list_of_places_is_told(tmp_path, content):
    RunFiles(tmp_path).image_paths.write_text(content)
    with pytest.raises(RunFolderError, match=r"images\.json cannot be read"):
        Pictures.open(tmp_path)


def test_names_that_are_no_text_survive(tmp_path):
    strange = tmp_path / "\udcff.png"
    write_places(tmp_path, [], [ImageFile(strange, "x")])
    assert json.loads(RunFiles(tmp_path).image_paths.read_text())["target"] == [str(strange)]
