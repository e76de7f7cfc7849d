from __future__ import annotations

import csv
import io
import os
import pickle
import sys
from pathlib import Path

import pytest

from uniot.errors import DataError
from uniot.images.decoding import IMAGE_SUFFIXES
from uniot.images.files import (
    ImageFile,
    holds_images,
    labelled_images,
    labels_from_folders,
    labels_from_list,
    stream_images,
    unlabelled_images,
)


def put(folder: Path, *names: str) -> Path:
    """Empty files: nothing is opened before it is decoded."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def names(files: list[ImageFile]) -> list[str]:
    return [file.name for file in files]


def named(*written: str) -> list[ImageFile]:
    return [ImageFile(Path("/nowhere") / name, name) for name in written]


# --- a folder ----------------------------------------------------------------------------------------------


def test_first_folder_is_the_class_however_deep_the_image_lies(tmp_path):
    put(tmp_path, "dog/1.jpg", "cat/2020/may/2.png", "cat/1.jpg")
    assert labelled_images(tmp_path) == [
        ImageFile(tmp_path / "cat/1.jpg", "cat/1.jpg", "cat"),
        ImageFile(tmp_path / "cat/2020/may/2.png", "cat/2020/may/2.png", "cat"),
        ImageFile(tmp_path / "dog/1.jpg", "dog/1.jpg", "dog"),
    ]


def test_unlabelled_folder_may_be_nested_or_flat_and_its_folders_are_no_labels(tmp_path):
    put(tmp_path, "b.jpg", "cat/a.jpg", "cat/deep/er/c.png")
    files = unlabelled_images(tmp_path)
    assert names(files) == ["b.jpg", "cat/a.jpg", "cat/deep/er/c.png"]
    assert [file.path for file in files] == [tmp_path / name for name in names(files)]
    assert {file.label for file in files} == {None}


def test_every_suffix_counts_in_any_case_and_no_other(tmp_path):
    put(tmp_path, *(f"{i}{suffix}" for i, suffix in enumerate(IMAGE_SUFFIXES)), "A.JPG", "B.Png", "c.JfIf")
    put(tmp_path, "notes.txt", "a.jpg.part", "jpg", "clip.mp4", "Thumbs.db", "x.npz", "drawing.svg")
    assert len(unlabelled_images(tmp_path)) == len(IMAGE_SUFFIXES) + 3


def test_hidden_files_and_folders_are_left_out(tmp_path):
    put(
        tmp_path,
        "a.jpg",
        ".hidden.jpg",
        "._a.jpg",
        ".cache/b.jpg",
        "__MACOSX/c.jpg",
        "x/__MACOSX/._d.jpg",
        "x/.e/f.jpg",
    )
    assert names(unlabelled_images(tmp_path)) == ["a.jpg"]


def test_hidden_folder_can_be_the_collection_itself(tmp_path):
    put(tmp_path / ".cache", "a.jpg")
    assert names(unlabelled_images(tmp_path / ".cache")) == ["a.jpg"]


def test_order_is_that_of_code_points(tmp_path):
    put(tmp_path, "é.jpg", "z.jpg", "Z.jpg", "a.jpg", "10.jpg", "9.jpg", "a/b.jpg", "a-b.jpg", "猫.jpg")
    expected = ["10.jpg", "9.jpg", "Z.jpg", "a-b.jpg", "a.jpg", "a/b.jpg", "z.jpg", "é.jpg", "猫.jpg"]
    assert names(unlabelled_images(tmp_path)) == expected


def test_order_does_not_depend_on_the_file_system(tmp_path, monkeypatch):
    put(tmp_path, "a/1.jpg", "a/2.jpg", "b/1.jpg", "c.jpg")
    expected = unlabelled_images(tmp_path)
    scan = os.scandir

    class Backwards:
        def __init__(self, folder):
            self.entries = sorted(scan(folder), key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return self.entries

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", Backwards)
    assert unlabelled_images(tmp_path) == expected


def test_folder_given_relative_to_where_one_is_works_from_there(tmp_path, monkeypatch):
    put(tmp_path / "data", "cat/a.jpg")
    monkeypatch.chdir(tmp_path)
    (file,) = labelled_images(Path("data"))
    assert file == ImageFile(Path("data/cat/a.jpg"), "cat/a.jpg", "cat")
    assert file.path.exists()
    assert names(unlabelled_images(Path())) == ["data/cat/a.jpg"]


@pytest.mark.skipif(sys.platform == "win32", reason="such names exist on POSIX only")
def test_strange_names_can_be_read_back_and_written_to_a_table(tmp_path):
    put(tmp_path, "a cat/my photo.jpg", "x/new\nline.jpg", 'x/quo"te,.jpg', "x/back\\slash.jpg", "x/Größe 猫.jpg")
    files = labelled_images(tmp_path)
    assert all(file.path.exists() for file in files)
    table = io.StringIO()
    csv.writer(table).writerows([file.name, file.label] for file in files)
    table.seek(0)
    assert [tuple(row) for row in csv.reader(table)] == [(file.name, file.label) for file in files]
    assert "x/new\nline.jpg" in names(files)


@pytest.mark.skipif(sys.platform != "linux", reason="only some file systems take such names")
def test_names_that_are_no_text_become_text(tmp_path):
    put(tmp_path, os.fsdecode(b"caf\xe9/\xff.jpg"))
    (file,) = labelled_images(tmp_path)
    assert file.path.exists()
    assert (file.name, file.label) == ("caf\\udce9/\\udcff.jpg", "caf\\udce9")
    assert file.name.encode("utf-8")


def test_empty_class_folder_is_no_class_and_no_error(tmp_path):
    put(tmp_path, "cat/a.jpg", "dog/b.jpg")
    (tmp_path / "bird").mkdir()
    put(tmp_path, "fish/notes.txt")
    assert [file.label for file in labelled_images(tmp_path)] == ["cat", "dog"]


def test_one_class_alone_is_left_to_the_caller(tmp_path):
    assert [file.label for file in labelled_images(put(tmp_path, "cat/a.jpg"))] == ["cat"]


def test_images_outside_of_class_folders_are_an_error_that_counts_them(tmp_path):
    put(tmp_path, "cat/a.jpg", "z.jpg", "b.jpg")
    with pytest.raises(
        DataError, match=r"2 of 3 images lie directly .* the first is 'b.jpg'.*folder named by its class"
    ):
        labelled_images(tmp_path)


def test_folder_without_images_is_an_error_that_names_the_suffixes(tmp_path):
    put(tmp_path, "cat/a.heic", "notes.txt")
    for find in (labelled_images, unlabelled_images):
        with pytest.raises(DataError, match=r"holds no image.*\.jpg \.jpeg \.jfif \.png \.webp"):
            find(tmp_path)


@pytest.mark.parametrize("name", ["missing", "missing.csv", "missing.jpg"])
def test_what_does_not_exist_is_an_error(tmp_path, name):
    for find in (labelled_images, unlabelled_images, lambda where: labels_from_list(where, [])):
        with pytest.raises(DataError, match=rf"{name} does not exist\. Give a"):
            find(tmp_path / name)


def test_file_of_another_kind_is_an_error_that_says_what_to_give(tmp_path):
    put(tmp_path, "x.npz")
    with pytest.raises(
        DataError, match=r"another kind. Give a folder that has a folder of images per class, or a list"
    ):
        labelled_images(tmp_path / "x.npz")
    with pytest.raises(DataError, match=r"another kind. Give a folder of images, a list file"):
        unlabelled_images(tmp_path / "x.npz")


# --- folders that are out of the ordinary -------------------------------------------------------------------


@pytest.fixture
def link(tmp_path):
    """Makes a symbolic link, where the system has them."""

    def make(name: str, to: Path | str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.symlink_to(to)
        except OSError as error:
            pytest.skip(f"no symbolic links here ({error})")

    return make


def test_links_to_files_and_folders_are_followed(tmp_path, link):
    put(tmp_path / "store", "a.jpg", "more/b.jpg", "c.jpg")
    link("source/cat", tmp_path / "store/more")
    link("source/dog/c.jpg", tmp_path / "store/c.jpg")
    files = labelled_images(tmp_path / "source")
    assert names(files) == ["cat/b.jpg", "dog/c.jpg"]
    assert all(file.path.exists() for file in files)


def test_collection_itself_may_be_a_link(tmp_path, link):
    put(tmp_path / "store", "cat/a.jpg")
    link("source", "store")
    assert names(labelled_images(tmp_path / "source")) == ["cat/a.jpg"]


def test_links_that_lead_back_are_not_entered_again(tmp_path, link):
    put(tmp_path / "top", "a.jpg", "x/b.jpg")
    link("top/itself", tmp_path / "top")
    link("top/x/up", "..")
    link("top/x/y/back", "../..")
    assert names(unlabelled_images(tmp_path / "top")) == ["a.jpg", "x/b.jpg"]


def test_way_back_through_another_folder_is_not_taken(tmp_path, link):
    put(tmp_path, "top/a.jpg", "other/b.jpg")
    link("top/there", tmp_path / "other")
    link("other/here", tmp_path / "top")
    assert names(unlabelled_images(tmp_path / "top")) == ["a.jpg", "there/b.jpg"]


def test_folder_with_two_names_is_listed_under_both(tmp_path, link):
    put(tmp_path, "cat/a.jpg")
    link("kitten", "cat")
    assert [(file.name, file.label) for file in labelled_images(tmp_path)] == [
        ("cat/a.jpg", "cat"),
        ("kitten/a.jpg", "kitten"),
    ]


def test_broken_links_are_listed_for_decoding_to_report(tmp_path, link):
    put(tmp_path, "a.jpg")
    link("gone.jpg", "not there.jpg")
    link("self.jpg", "self.jpg")
    link("gone", "no folder")
    assert names(unlabelled_images(tmp_path)) == ["a.jpg", "gone.jpg", "self.jpg"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_are_left_out_because_reading_one_waits_for_ever(tmp_path, link):
    put(tmp_path, "a.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    link("way.jpg", "pipe.jpg")
    assert names(unlabelled_images(tmp_path)) == ["a.jpg"]


def test_folder_that_is_called_like_an_image_is_a_folder(tmp_path):
    assert names(unlabelled_images(put(tmp_path, "a.jpg/b.jpg"))) == ["a.jpg/b.jpg"]


def test_unreadable_folder_is_an_error_that_names_it(tmp_path, monkeypatch):
    put(tmp_path, "cat/a.jpg", "locked/b.jpg")
    scan = os.scandir

    def refuse(folder):
        if folder.endswith("locked"):
            raise PermissionError(13, "Permission denied", folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"the folder .*locked cannot be read \(Permission denied\)\. Make it readable"):
        unlabelled_images(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything is readable to root")
def test_folder_without_permission_is_an_error_that_names_it(tmp_path):
    put(tmp_path, "cat/a.jpg", "locked/b.jpg")
    (tmp_path / "locked").chmod(0)
    try:
        with pytest.raises(DataError, match=r"locked cannot be read"):
            unlabelled_images(tmp_path)
        with pytest.raises(DataError, match=r"inside (cannot be read|does not exist)"):
            unlabelled_images(tmp_path / "locked" / "inside")
    finally:
        (tmp_path / "locked").chmod(0o700)


def test_no_file_is_looked_up_on_its_own(tmp_path, monkeypatch):
    put(tmp_path, *(f"{folder}/{i}.jpg" for folder in "ab" for i in range(50)))
    looked_up = []
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: looked_up.append(path.name) or stat(path, **how))
    assert len(labelled_images(tmp_path)) == 100
    assert not [name for name in looked_up if name.endswith(".jpg")]


def test_files_travel_between_processes(tmp_path):
    files = labelled_images(put(tmp_path, "cat/a.jpg"))
    assert pickle.loads(pickle.dumps(files)) == files


# --- a single image ----------------------------------------------------------------------------------------


def test_single_image_is_an_unlabelled_collection(tmp_path):
    put(tmp_path, "cat/a.JPG")
    assert unlabelled_images(tmp_path / "cat/a.JPG") == [ImageFile(tmp_path / "cat/a.JPG", "a.JPG")]


def test_single_image_is_no_labelled_collection(tmp_path):
    put(tmp_path, "a.jpg")
    with pytest.raises(DataError, match=r"is a single image. Give a folder that has a folder of images per class"):
        labelled_images(tmp_path / "a.jpg")


# --- labels of images that were found without -----------------------------------------------------------------


def test_folders_give_the_labels(tmp_path):
    put(tmp_path, "cat/a.jpg", "cat/deep/b.jpg", "dog/a.jpg")
    assert labels_from_folders(unlabelled_images(tmp_path)) == ["cat", "cat", "dog"]
    assert labels_from_folders(named("./cat/a.jpg")) == ["cat"]


@pytest.mark.parametrize("name", ["a.jpg", "./a.jpg", "/data/cat/a.jpg", "../cat/a.jpg"])
def test_image_in_no_folder_has_no_label(name):
    with pytest.raises(DataError, match=rf"1 of 2 images lie in no folder that could .* the first is '{name}'"):
        labels_from_folders(named("cat/a.jpg", name))


def test_list_gives_the_labels_by_name_in_the_order_asked_for(tmp_path):
    where = write(tmp_path / "truth.csv", "path,label\nb.jpg,dog\nunused.jpg,bird\n./x/a.jpg,cat\n")
    assert labels_from_list(where, named("x/a.jpg", "b.jpg")) == ["cat", "dog"]


def test_list_gives_the_labels_by_path_where_it_names_images_otherwise(tmp_path, monkeypatch):
    put(tmp_path / "target", "cat/a.jpg", "b.jpg")
    files = unlabelled_images(tmp_path / "target")
    relative = write(tmp_path / "truth.txt", "target/cat/a.jpg 3\ntarget/b.jpg 4\n")
    absolute = write(tmp_path / "target/truth.csv", f"path,label\n{files[0].path},4\ncat/a.jpg,3\n")
    assert names(files) == ["b.jpg", "cat/a.jpg"]
    assert labels_from_list(relative, files) == ["4", "3"]
    assert labels_from_list(absolute, files) == ["4", "3"]
    monkeypatch.chdir(tmp_path)
    assert labels_from_list(relative, unlabelled_images(Path("target"))) == ["4", "3"]
    assert labels_from_list(Path("truth.txt"), files) == ["4", "3"]


def test_images_that_the_list_does_not_name_are_an_error_that_counts_them(tmp_path):
    where = write(tmp_path / "truth.txt", "a.jpg cat\n")
    with pytest.raises(DataError, match=r"no label for 2 of 3 images, the first is 'b.jpg'.*as in predictions.csv"):
        labels_from_list(where, named("a.jpg", "b.jpg", "c.jpg"))


def test_list_with_two_labels_for_one_image_gives_none(tmp_path):
    where = write(tmp_path / "truth.txt", "a.jpg cat\na.jpg dog\n")
    with pytest.raises(DataError, match=r"two labels: 'cat' in line 1 and 'dog' in line 2"):
        labels_from_list(where, named("a.jpg"))


@pytest.mark.parametrize(("name", "what"), [(".", "is a folder"), ("a.jpg", "is a single image")])
def test_labels_come_from_a_list_only(tmp_path, name, what):
    put(tmp_path, "a.jpg")
    with pytest.raises(DataError, match=rf"{what}. Give a list file \(.txt .lst .csv .tsv\)"):
        labels_from_list(tmp_path / name, [])


# --- images or embeddings ------------------------------------------------------------------------------------


def test_folders_lists_and_images_hold_images_and_embeddings_do_not(tmp_path):
    assert holds_images(tmp_path)
    for name in ("list.txt", "list.CSV", "a.jpg", "A.TIFF"):
        assert holds_images(tmp_path / name), name
    for name in ("x.npz", "x.npy", "x.parquet", "missing"):
        assert not holds_images(tmp_path / name), name


def test_folder_that_is_called_like_embeddings_holds_images(tmp_path):
    (tmp_path / "x.npz").mkdir()
    assert holds_images(tmp_path / "x.npz")


# --- one after another ------------------------------------------------------------------------------------


def test_stream_finds_what_the_list_finds(tmp_path):
    for name in ("b.jpg", "a.png", "sub/c.jpg", "sub/deeper/d.gif", "other/e.bmp", ".hidden/f.jpg", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    streamed = list(stream_images(tmp_path))
    assert [file.name for file in streamed] == ["a.png", "b.jpg", "other/e.bmp", "sub/c.jpg", "sub/deeper/d.gif"]
    assert sorted(streamed, key=lambda file: file.name) == unlabelled_images(tmp_path)


def test_stream_of_a_large_folder_comes_in_sorted_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("uniot.images.files._ENTRIES_AT_ONCE", 4)
    for number in range(11):
        (tmp_path / f"{number:02d}.jpg").write_bytes(b"x")
    names = [file.name for file in stream_images(tmp_path)]
    assert sorted(names) == [f"{number:02d}.jpg" for number in range(11)]
    blocks = [names[start : start + 4] for start in range(0, 11, 4)]
    assert all(block == sorted(block) for block in blocks)


def test_stream_of_a_folder_without_images_says_what_is_looked_for(tmp_path):
    with pytest.raises(DataError, match="holds no image. Put images with these suffixes"):
        next(stream_images(tmp_path))


def test_stream_takes_a_single_image_and_a_list(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "list.txt").write_text("a.jpg cat\n", encoding="utf-8")
    assert [file.name for file in stream_images(tmp_path / "a.jpg")] == ["a.jpg"]
    assert [(file.name, file.label) for file in stream_images(tmp_path / "list.txt")] == [("a.jpg", None)]
