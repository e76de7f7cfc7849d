"""The published sets: their splits, their folders as people have them, and what is said of an incomplete copy."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uniot.datasets.catalogue import BENCHMARK_SETS, BenchmarkSet, benchmark_set
from uniot.errors import DataError

OFFICE31, OFFICE_HOME, VISDA, DOMAINNET = (benchmark_set(n) for n in ("office31", "office-home", "visda", "domainnet"))


def small(published: BenchmarkSet, *classes: str) -> BenchmarkSet:
    """The set with few classes and two images of each, so that a copy takes no time to write."""
    classes = classes or (*published.classes[:3], published.classes[-1])
    domains = [
        replace(domain, n_images=2 * len(set(classes) - set(domain.absent_classes))) for domain in published.domains
    ]
    return replace(published, classes=classes, domains=tuple(domains))


def unpack(benchmark: BenchmarkSet, root: Path, inner: str = "") -> Path:
    """Writes empty image files as the archive would, with lists where the set has them."""
    for domain in benchmark.domains:
        lines = []
        for number, name in enumerate(benchmark.classes):
            if name not in domain.absent_classes:
                folder = root / domain.folder / inner / name
                folder.mkdir(parents=True)
                for image in ("00000.jpg", "00001.jpg"):
                    (folder / image).touch()
                    lines.append(f"{domain.folder}/{name}/{image} {number}\n")
        if domain.image_list:
            (root / domain.image_list).write_text("".join(lines))
    return root


@pytest.mark.parametrize(
    ("published", "setting", "sizes"),
    [
        (OFFICE31, "open-partial", (10, 10, 11)),
        (OFFICE31, "open", (10, 0, 11)),
        (OFFICE31, "partial", (10, 21, 0)),
        (OFFICE31, "closed", (31, 0, 0)),
        (OFFICE_HOME, "open-partial", (10, 5, 50)),
        (OFFICE_HOME, "open", (25, 0, 40)),
        (OFFICE_HOME, "partial", (25, 40, 0)),
        (OFFICE_HOME, "closed", (65, 0, 0)),
        (VISDA, "open-partial", (6, 3, 3)),
        (VISDA, "open", (6, 0, 6)),
        (VISDA, "partial", (6, 6, 0)),
        (VISDA, "closed", (12, 0, 0)),
        (DOMAINNET, "open-partial", (150, 50, 145)),
        (DOMAINNET, "closed", (345, 0, 0)),
    ],
)
def test_splits_have_the_published_sizes_and_share_no_class(published, setting, sizes) -> None:
    split = published.split(setting)
    parts = (split.common, split.source_private, split.target_private)
    assert tuple(map(len, parts)) == sizes
    assert len({name for part in parts for name in part}) == sum(sizes)
    assert set(split.source) & set(split.target) == set(split.common)
    assert set(split.source) | set(split.target) <= set(published.classes)


def test_office31_shares_ten_classes_with_caltech_and_leaves_the_last_eleven_to_the_target() -> None:
    split = OFFICE31.split("open-partial")
    common = "back_pack bike calculator headphones keyboard laptop_computer monitor mouse mug projector"
    assert split.common == tuple(common.split())
    assert split.source_private[0] == "bike_helmet"
    assert split.source_private[-1] == "paper_notebook"
    last = "pen phone printer punchers ring_binder ruler scissors speaker stapler tape_dispenser trash_can"
    assert split.target_private == tuple(last.split())
    assert OFFICE31.split("open").target_private == split.target_private


def test_office_home_and_visda_split_the_alphabet() -> None:
    home, visda = OFFICE_HOME.split("open-partial"), VISDA.split("open-partial")
    assert (home.common[0], home.common[-1]) == ("Alarm_Clock", "Candles")
    assert home.source_private == ("Chair", "Clipboards", "Computer", "Couch", "Curtains")
    assert OFFICE_HOME.split("partial").common[-1] == "Fork"
    assert visda.source_private == ("motorcycle", "person", "plant")
    assert visda.target_private == ("skateboard", "train", "truck")


def test_domainnet_is_in_the_order_of_its_lists_which_know_no_capitals() -> None:
    split = DOMAINNET.split("open-partial")
    assert (split.common[-1], split.source_private[-1]) == ("hot_air_balloon", "ocean")
    # Files of the class say its number, from one: cello/painting_067_…, swan/painting_297_…
    numbers = {"aircraft_carrier": 1, "cello": 67, "cell_phone": 68, "swan": 297, "t-shirt": 328, "zigzag": 345}
    assert {name: DOMAINNET.classes.index(name) + 1 for name in numbers} == numbers
    assert {"The_Eiffel_Tower", "The_Great_Wall_of_China", "The_Mona_Lisa"} <= set(split.target_private)


@pytest.mark.parametrize(("published", "n_classes"), [(OFFICE_HOME, 65), (VISDA, 12), (DOMAINNET, 345)])
def test_classes_are_in_the_alphabetical_order_of_their_letters(published: BenchmarkSet, n_classes: int) -> None:
    assert len(set(published.classes)) == n_classes
    assert list(published.classes) == sorted(published.classes, key=lambda name: re.sub("[^a-z]", "", name.lower()))


def test_tasks_name_their_domains() -> None:
    assert OFFICE31.tasks == ("A2D", "A2W", "D2A", "D2W", "W2A", "W2D")
    assert len(OFFICE_HOME.tasks) == 12
    for published in BENCHMARK_SETS:
        for task in published.tasks:
            source, target = published.task(task)
            assert f"{source.letter}2{target.letter}" == task
    source, target = VISDA.task("S2R")
    assert (source.folder, target.folder) == ("train", "validation")


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: benchmark_set("mnist"), "no benchmark set called 'mnist'. Take one of: office31, office-home, visda"),
        (lambda: DOMAINNET.split("open"), "no published split called 'open'. Take one of: open-partial, closed"),
        (lambda: VISDA.task("R2S"), "no task 'R2S'. Take one of: S2R"),
        (lambda: OFFICE31.domain("C"), r"no domain 'C'. Take one of: A \(amazon\), D \(dslr\), W \(webcam\)"),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(ask, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ask()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Office-31", OFFICE31), ("OfficeHome", OFFICE_HOME), ("VisDA-2017", VISDA), ("DomainNet", DOMAINNET)],
)
def test_sets_answer_to_their_titles(name: str, expected: BenchmarkSet) -> None:
    assert benchmark_set(name) is expected


def test_the_images_of_office31_are_those_that_were_published() -> None:
    archive = (
        Path(os.environ.get("UNIOT_DATA", Path(__file__).parents[3] / "shared" / "data")) / "office31/office31.tar"
    )
    if not archive.is_file():
        pytest.skip(f"{archive} is absent; UNIOT_DATA says where the folder office31/ is")
    with tarfile.open(archive) as file:
        paths = [Path(name).parts for name in file.getnames() if name.endswith(".jpg")]
    for domain in OFFICE31.domains:
        classes = [parts[2] for parts in paths if parts[:2] == (domain.folder, "images")]
        assert len(classes) == domain.n_images
        assert set(classes) == set(OFFICE31.classes)


def test_a_whole_copy_is_as_published(tmp_path: Path) -> None:
    benchmark = small(OFFICE31)
    unpack(benchmark, tmp_path, "images")
    report = benchmark.check(tmp_path)
    assert report.as_published
    assert [len(found.files) for found in report.domains] == [8, 8, 8]
    assert [found.n_classes for found in report.domains] == [4, 4, 4]
    files = benchmark.domain_files(tmp_path, "W")
    assert len(files) == 8
    assert all(file.path.parts[-4:-1] == ("webcam", "images", file.label) for file in files)


@pytest.mark.parametrize(
    ("above", "inner"),
    [
        ("", "images"),
        ("", ""),
        ("office31", "images"),
        ("domain_adaptation_images", "images"),
        ("a/Original_images", ""),
    ],
)
def test_folders_that_archives_and_people_add_do_not_matter(above: str, inner: str, tmp_path: Path) -> None:
    benchmark = small(OFFICE31)
    unpack(benchmark, tmp_path / above, inner)
    assert benchmark.check(tmp_path).as_published
    assert len(benchmark.domain_files(tmp_path, "D")) == 8


@pytest.mark.parametrize(
    "name", ["Real World", "RealWorld", "Real_World", "real_world", "OfficeHomeDataset/Real World"]
)
def test_the_real_world_of_office_home_has_several_spellings(name: str, tmp_path: Path) -> None:
    benchmark = small(OFFICE_HOME)
    unpack(benchmark, (tmp_path / name).parent)
    (tmp_path / name).parent.joinpath("Real World").rename(tmp_path / name)
    assert benchmark.check(tmp_path).as_published
    assert {file.label for file in benchmark.domain_files(tmp_path, "Rw")} == set(benchmark.classes)


@given(
    st.lists(st.sampled_from([str.upper, str.title, str.swapcase, str]), min_size=12, max_size=12),
    st.sampled_from("_- "),
)
@settings(max_examples=20)
def test_labels_are_the_published_names_however_folders_write_them(writings, between: str) -> None:
    classes = OFFICE31.classes[8:20]
    benchmark = replace(OFFICE31, classes=classes, domains=(replace(OFFICE31.domain("A"), n_images=12),))
    with tempfile.TemporaryDirectory() as folder:
        for name, write in zip(classes, writings, strict=True):
            place = Path(folder, "Amazon", "images", write(name).replace("_", between))
            place.mkdir(parents=True)
            (place / "frame_0001.jpg").touch()
        labels = [file.label for file in benchmark.domain_files(Path(folder), "A")]
    assert Counter(labels) == Counter(classes)


def test_another_set_under_the_same_roof_is_not_taken_for_it(tmp_path: Path) -> None:
    benchmark = small(VISDA)
    unpack(benchmark, tmp_path / "visda")
    for split in ("train", "validation"):
        for name in ("n01440764", "bus"):
            (tmp_path / "another" / split / name).mkdir(parents=True)
    assert benchmark.check(tmp_path).domains[0].folder == tmp_path / "visda" / "train"


def test_what_is_missing_empty_and_too_much_is_named(tmp_path: Path) -> None:
    benchmark = small(OFFICE31, "back_pack", "bike", "mug", "pen")
    images = unpack(benchmark, tmp_path, "images") / "amazon" / "images"
    shutil.rmtree(images / "bike")
    (images / "mug" / "00000.jpg").unlink()
    (images / "mug" / "00001.jpg").unlink()
    (images / "lost+found").mkdir()
    shutil.rmtree(tmp_path / "dslr")
    amazon, dslr, webcam = benchmark.check(tmp_path).domains
    assert amazon.missing_classes == ("bike",)
    assert amazon.empty_classes == ("mug",)
    assert amazon.extra_folders == ("lost+found",)
    assert amazon.faults == ("4 images instead of 8", "no folder for 1 class (bike)", "no image of 1 class (mug)")
    assert dslr.folder is None
    assert dslr.faults == ("no folder dslr/ with class folders in it",)
    assert webcam.faults == ()


def test_a_folder_that_is_no_class_changes_nothing(tmp_path: Path) -> None:
    benchmark = small(OFFICE31)
    extra = unpack(benchmark, tmp_path) / "webcam" / "thumbnails"
    extra.mkdir()
    (extra / "one.jpg").touch()
    assert benchmark.check(tmp_path).as_published
    assert len(benchmark.domain_files(tmp_path, "W")) == 8


def test_an_incomplete_domain_is_refused_unless_asked_for(tmp_path: Path) -> None:
    benchmark = small(VISDA, "bus", "car")
    (unpack(benchmark, tmp_path) / "validation" / "bus" / "00000.jpg").unlink()
    with pytest.raises(DataError) as refusal:
        benchmark.domain_files(tmp_path, "R")
    expected = ("VisDA-2017", "3 images instead of 4", "holds train, validation", "taskcv-2017-public", "--incomplete")
    for words in expected:
        assert words in str(refusal.value)
    assert len(benchmark.domain_files(tmp_path, "R", as_published=False)) == 3
    assert len(benchmark.domain_files(tmp_path, "S")) == 4


def test_an_absent_domain_is_refused_even_where_any_copy_will_do(tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    with pytest.raises(
        DataError, match="no folder amazon/.*holds holiday.*amazon/images/<class>/.*gatech.edu"
    ) as error:
        OFFICE31.domain_files(tmp_path, "A", as_published=False)
    assert "--incomplete" not in str(error.value)


@pytest.mark.parametrize("place", [".", "txt", "painting"])
def test_domainnet_takes_the_images_that_its_lists_name(place: str, tmp_path: Path) -> None:
    benchmark = small(DOMAINNET, "ant", "t-shirt", "zebra")
    unpack(benchmark, tmp_path)
    (tmp_path / "painting" / "zebra" / "unlisted.jpg").touch()
    (tmp_path / "painting" / "t-shirt").mkdir()
    (tmp_path / "painting" / "t-shirt" / "unlisted.jpg").touch()
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / "painting_train.txt").rename(tmp_path / place / "painting_train.txt")
    assert benchmark.check(tmp_path).as_published
    files = benchmark.domain_files(tmp_path, "P")
    assert len(files) == 4
    assert not any(file.path.name == "unlisted.jpg" for file in files)


def test_domainnet_without_its_lists_is_another_set(tmp_path: Path) -> None:
    benchmark = small(DOMAINNET, "ant", "t-shirt", "zebra")
    unpack(benchmark, tmp_path)
    (tmp_path / "sketch_train.txt").unlink()
    assert benchmark.check(tmp_path).domains[2].faults == (
        "no sketch_train.txt, which lists the images of the protocol",
    )
    with pytest.raises(DataError, match="no sketch_train.txt.*http://ai.bu.edu/M3SDA/"):
        benchmark.domain_files(tmp_path, "S")
    assert len(benchmark.domain_files(tmp_path, "S", as_published=False)) == 6


def test_listed_images_that_are_not_on_disk_are_named(tmp_path: Path) -> None:
    benchmark = small(DOMAINNET, "ant", "yoga")
    (unpack(benchmark, tmp_path) / "real" / "yoga" / "00001.jpg").unlink()
    real = benchmark.check(tmp_path).domains[1]
    assert real.faults == (
        "3 images instead of 4",
        "not on disk: 1 listed image (real/yoga/00001.jpg)",
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("zebra.jpg 343", "contains 'zebra.jpg', which is not in the folder of a class"),
        ("painting/unicorn/painting_346_000001.jpg 345", "download the list again"),
        ("<html>", "line 6 of .*painting_train.txt"),
    ],
)
def test_a_list_with_a_strange_line_spoils_its_domain_alone(line: str, words: str, tmp_path: Path) -> None:
    benchmark = small(DOMAINNET, "ant", "t-shirt", "zebra")
    with (unpack(benchmark, tmp_path) / "painting_train.txt").open("a") as file:
        file.write(f"\n{line}\n")
    painting, real, sketch = benchmark.check(tmp_path).domains
    assert re.search(words, painting.faults[0])
    assert not real.faults + sketch.faults
    with pytest.raises(DataError, match=words):
        benchmark.domain_files(tmp_path, "P", as_published=False)


def test_class_folders_without_images_spoil_their_domain_alone(tmp_path: Path) -> None:
    benchmark = small(VISDA)
    for image in (unpack(benchmark, tmp_path) / "train").rglob("*.jpg"):
        image.unlink()
    synthetic, real = benchmark.check(tmp_path).domains
    assert "holds no image" in synthetic.faults[0]
    assert not real.faults


def test_a_root_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere does not exist. Give the folder into which Office-31 was unpacked"):
        OFFICE31.check(tmp_path / "nowhere")
    (tmp_path / "office31.tar").touch()
    with pytest.raises(DataError, match="office31.tar is a file. Give the folder"):
        OFFICE31.check(tmp_path / "office31.tar")
