"""`uniot data` as it is typed."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from uniot.cli.data import app
from uniot.datasets import catalogue as benchmark_sets
from uniot.datasets.catalogue import BENCHMARK_SETS, benchmark_set
from uniot.errors import DataError

PUBLISHED = benchmark_set("office31")
OFFICE31 = replace(
    PUBLISHED,
    classes=("bike", "mug", "pen"),
    domains=tuple(replace(domain, n_images=6) for domain in PUBLISHED.domains),
)


def data(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "160"})


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of an Office-31 that has three classes, with two tiny pictures in place of the photographs of each."""
    monkeypatch.setattr(benchmark_sets, "BENCHMARK_SETS", (OFFICE31,))
    image = pytest.importorskip("PIL.Image", reason="needs `pip install 'uniot[images]'`")
    picture = BytesIO()
    image.new("RGB", (4, 4), "teal").save(picture, "JPEG")
    root = tmp_path / "[office31]"
    for domain in OFFICE31.domains:
        for name in OFFICE31.classes:
            folder = root / domain.folder / "images" / name
            folder.mkdir(parents=True)
            for frame in ("frame_0001.jpg", "frame_0002.jpg"):
                (folder / frame).write_bytes(picture.getvalue())
    return root


def test_list_names_every_set_with_its_source_and_licence() -> None:
    answer = data("list")
    assert answer.exit_code == 0
    for known in BENCHMARK_SETS:
        assert all(words in answer.stdout for words in (known.name, known.home, known.citation, known.licence))
    assert "open-partial 10/10/11; open 10/0/11" in answer.stdout
    assert "Next: uniot data check" in answer.stdout


@pytest.mark.parametrize("command", ["list", "check"])
def test_help_has_an_example(command: str) -> None:
    assert f"Example: uniot data {command}" in re.sub(r"\s+", " ", data(command, "--help").stdout)


def test_a_whole_set_is_as_published(whole: Path) -> None:
    answer = data("check", "office31", whole)
    assert answer.exit_code == 0, answer.stdout
    assert re.search(r"W +webcam/images +3/3 +6/6 +as published", answer.stdout)
    assert "Office-31 is as published (no image was opened" in answer.stdout


def test_decode_opens_every_image(whole: Path) -> None:
    answer = data("check", "office31", whole, "--decode")
    assert answer.exit_code == 0, answer.stdout
    assert "every image opens" in answer.stdout


def test_an_incomplete_set_is_told_with_what_to_do(whole: Path) -> None:
    shutil.rmtree(whole / "dslr" / "images" / "mug")
    shutil.rmtree(whole / "webcam")
    answer = data("check", "office31", whole)
    assert answer.exit_code == 1
    assert re.search(r"D +dslr/images +2/3 +4/6 +4 images instead of 6; no folder for 1 class", answer.stdout)
    assert re.search(r"W +- +0/3 +0/6 +no folder webcam/", answer.stdout)
    assert "Not as published." in answer.stdout
    assert "[office31] holds amazon, dslr. Office-31 should have amazon/images/<class>/" in answer.stdout
    assert f"Get it from {OFFICE31.home}" in answer.stdout


def test_decode_lists_what_cannot_be_read(whole: Path) -> None:
    first, second = sorted((whole / "amazon" / "images" / "mug").iterdir())[:2]
    first.write_bytes(first.read_bytes()[:200])
    second.write_bytes(b"")
    answer = data("check", "office31", whole, "--decode")
    assert answer.exit_code == 1
    assert "2 images cannot be read:" in answer.stdout
    assert f"{second}: empty file" in answer.stdout
    assert str(first) in answer.stdout
    assert "Copy or download the 2 unreadable images anew" in answer.stdout


def test_folders_that_are_no_class_are_mentioned(whole: Path) -> None:
    (whole / "amazon" / "images" / "[old]").mkdir()
    answer = data("check", "office31", whole)
    assert answer.exit_code == 0
    assert "as published; not used, because not a class: [old]" in answer.stdout


def test_an_unknown_set_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    answer = data("check", "imagenet", tmp_path)
    assert isinstance(answer.exception, DataError)
    assert "Take one of: office31, office-home, visda, domainnet" in str(answer.exception)
