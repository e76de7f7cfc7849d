from __future__ import annotations

import csv
import io
import os
import pickle
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.data import image_files
from uniot.data.image_files import (
    IMAGE_SUFFIXES,
    ImageFile,
    holds_images,
    labelled_images,
    labels_from_folders,
    labels_from_list,
    stream_images,
    unlabelled_images,
)
from uniot.errors import DataError


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
    with pytest.raises(DataError, match=r"2 of 3 images lie directly in .* 'b.jpg' first.*folder named by its class"):
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


# --- list files --------------------------------------------------------------------------------------------


def test_text_list_of_the_field_is_read(tmp_path):
    where = write(tmp_path / "amazon.txt", "images/back_pack/1.jpg 0\nimages/bike/2.jpg 1\n")
    assert labelled_images(where) == [
        ImageFile(tmp_path / "images/back_pack/1.jpg", "images/back_pack/1.jpg", "0"),
        ImageFile(tmp_path / "images/bike/2.jpg", "images/bike/2.jpg", "1"),
    ]


@pytest.mark.parametrize(
    ("line", "path", "label"),
    [
        ("a.jpg 3", "a.jpg", "3"),
        ("a.jpg\t3", "a.jpg", "3"),
        ("a.jpg   cat  ", "a.jpg", "cat"),
        ("my photo.jpg 3", "my photo.jpg", "3"),
        ("my photo.JPG", "my photo.JPG", None),
        ("A.JPG 3", "A.JPG", "3"),
        ("a.jpg coffee mug", "a.jpg", "coffee mug"),
        ("a.jpg copy.jpg", "a.jpg copy.jpg", None),
        ("a.jpg copy.jpg mug", "a.jpg copy.jpg", "mug"),
        ("a.jpg.d/b.png 3", "a.jpg.d/b.png", "3"),
        ("no suffix 3", "no suffix 3", None),
        ("a.jpg", "a.jpg", None),
    ],
)
@pytest.mark.parametrize("suffix", [".txt", ".lst", ".TXT"])
def test_line_of_a_text_list_is_a_path_and_what_follows_it(tmp_path, line, path, label, suffix):
    where = write(tmp_path / f"list{suffix}", line + "\n")
    assert unlabelled_images(where) == [ImageFile(tmp_path / path, path, None)]
    if label is not None:
        assert labelled_images(where) == [ImageFile(tmp_path / path, path, label)]
    else:
        with pytest.raises(DataError, match=rf"line 1 of .*list{suffix} has no label for '{path}'"):
            labelled_images(where)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_empty_lines_marks_and_line_ends_change_nothing(tmp_path, mark, end):
    text = end.join(["# our photographs", "", "ä.jpg cat", "   ", "  # more", "b.jpg dog"])
    found = labelled_images(write(tmp_path / "list.txt", mark + text.encode()))
    assert [(file.name, file.label) for file in found] == [("ä.jpg", "cat"), ("b.jpg", "dog")]


def test_only_line_feeds_end_a_line(tmp_path):
    where = write(tmp_path / "list.txt", "a\u2028b.jpg 1\nc\x0bd.jpg 2\n")
    assert names(labelled_images(where)) == ["a\u2028b.jpg", "c\x0bd.jpg"]


@pytest.mark.parametrize(
    "header", ["path,label", "Path, Label ", "image,class", "FILE,category", "filename,label", '"path","label"']
)
def test_table_is_read_by_its_columns(tmp_path, header):
    where = write(tmp_path / "list.csv", f'{header}\na.jpg,cat\n\'b c.jpg,"coffee, mug"\n')
    found = labelled_images(where)
    assert [(file.name, file.label) for file in found] == [("a.jpg", "cat"), ("'b c.jpg", "coffee, mug")]


def test_table_may_be_separated_by_tabs_and_have_other_columns(tmp_path):
    where = write(tmp_path / "list.tsv", "id\tlabel\twidth\tpath\n1\tcat\t640\ta, b.jpg\n")
    assert labelled_images(where) == [ImageFile(tmp_path / "a, b.jpg", "a, b.jpg", "cat")]


def test_table_with_mark_and_windows_line_ends_and_empty_lines_is_read(tmp_path):
    where = write(tmp_path / "list.csv", b"\xef\xbb\xbfpath,label\r\n\r\na.jpg,cat\r\n,\r\n")
    assert [(file.name, file.label) for file in labelled_images(where)] == [("a.jpg", "cat")]


def test_table_with_line_ends_of_old_is_read(tmp_path):
    where = write(tmp_path / "list.csv", "path,label\ra.jpg,cat\rb.jpg,dog\r")
    assert [(file.name, file.label) for file in labelled_images(where)] == [("a.jpg", "cat"), ("b.jpg", "dog")]


def test_file_names_of_a_table_need_no_suffix(tmp_path):
    assert names(labelled_images(write(tmp_path / "list.csv", "path,label\n0f3a,cat\n"))) == ["0f3a"]


def test_predictions_of_a_run_are_a_list(tmp_path):
    text = "path,label,known,confidence,nearest_class,group\ncat/a.jpg,cat,true,0.9,cat,\n"
    assert names(unlabelled_images(write(tmp_path / "predictions.csv", text))) == ["cat/a.jpg"]


def test_unlabelled_list_needs_no_labels_and_drops_those_it_has(tmp_path):
    assert unlabelled_images(write(tmp_path / "a.csv", "path\na.jpg\n")) == [ImageFile(tmp_path / "a.jpg", "a.jpg")]
    assert unlabelled_images(write(tmp_path / "b.csv", "path,label\na.jpg,cat\n")) == [
        ImageFile(tmp_path / "a.jpg", "a.jpg")
    ]


def test_paths_are_relative_to_the_list_or_absolute(tmp_path, monkeypatch):
    (tmp_path / "lists").mkdir()
    absolute = (tmp_path / "store" / "b.jpg").as_posix()
    write(tmp_path / "lists/all.txt", f"a.jpg\n../c.jpg\n{absolute}\n")
    monkeypatch.chdir(tmp_path)
    files = unlabelled_images(Path("lists/all.txt"))
    assert names(files) == ["a.jpg", "../c.jpg", absolute]
    assert [file.path for file in files] == [Path("lists/a.jpg"), Path("lists/../c.jpg"), Path(absolute)]


def test_order_is_that_of_the_list(tmp_path):
    assert names(unlabelled_images(write(tmp_path / "l.txt", "b.jpg\na.jpg\nc.jpg\n"))) == ["b.jpg", "a.jpg", "c.jpg"]


def test_image_that_is_listed_twice_is_kept_once(tmp_path):
    where = write(tmp_path / "l.txt", "b.jpg 1\na.jpg 2\n./b.jpg 1\nx/../a.jpg 2\nb.jpg 1\n")
    assert names(labelled_images(where)) == ["b.jpg", "a.jpg"]
    assert names(unlabelled_images(where)) == ["b.jpg", "a.jpg"]


def test_two_labels_for_one_image_are_an_error_with_both(tmp_path):
    where = write(tmp_path / "l.txt", "a.jpg cat\nb.jpg cat\n./a.jpg dog\n")
    with pytest.raises(DataError, match=r"'./a.jpg' two labels: 'cat' in line 1 and 'dog' in line 3. Keep one"):
        labelled_images(where)
    assert names(unlabelled_images(where)) == ["a.jpg", "b.jpg"]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_list_of_nothing_is_an_error(tmp_path, text):
    with pytest.raises(DataError, match=r"lists no image"):
        unlabelled_images(write(tmp_path / "l.txt", text))


def test_table_of_nothing_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"lists no image"):
        unlabelled_images(write(tmp_path / "a.csv", "path,label\n"))
    with pytest.raises(DataError, match=r"line 1 of .* has nothing where names of columns are needed"):
        unlabelled_images(write(tmp_path / "b.csv", ""))


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", "commas"), (".tsv", "tabs")])
def test_table_without_names_of_columns_is_an_error_that_shows_what_came(tmp_path, suffix, separator):
    where = write(tmp_path / f"l{suffix}", "a.jpg;cat\n")
    with pytest.raises(DataError, match=rf"line 1 of .* has 'a.jpg;cat' where names .*separated by {separator}"):
        unlabelled_images(where)


@pytest.mark.parametrize(
    "text", ["path\na.jpg\n", "path,label\na.jpg,\n", "path,label\na.jpg\n", "path,label\na.jpg,  "]
)
def test_missing_label_in_a_table_is_an_error_with_its_line(tmp_path, text):
    with pytest.raises(DataError, match=r"line 2 of .*l.csv has no label for 'a.jpg'.*columns path and label"):
        labelled_images(write(tmp_path / "l.csv", text))


def test_missing_path_in_a_table_is_an_error_with_its_line(tmp_path):
    with pytest.raises(DataError, match=r"line 3 of .* has no path"):
        labelled_images(write(tmp_path / "l.csv", "path,label\na.jpg,cat\n,dog\n"))


def test_line_number_counts_lines_and_not_rows(tmp_path):
    with pytest.raises(DataError, match=r"line 5 of .* has no label"):
        labelled_images(write(tmp_path / "l.csv", 'path,label\n"new\nline.jpg",cat\n\nb.jpg,\n'))


def test_field_beyond_all_bounds_is_an_error_with_its_line(tmp_path):
    with pytest.raises(DataError, match=r"line 2 of .* cannot be read .*quotation marks"):
        labelled_images(write(tmp_path / "l.csv", 'path,label\n"' + "x" * 200_000 + ",cat\n"))


@pytest.mark.parametrize("suffix", [".txt", ".csv"])
def test_list_that_is_not_utf8_is_an_error_with_its_line(tmp_path, suffix):
    where = write(tmp_path / f"l{suffix}", b"path,label\na.jpg,cat\ncaf\xe9.jpg,dog\n")
    with pytest.raises(DataError, match=r"line 3 of .* is not UTF-8 text. Save the list as UTF-8"):
        labelled_images(where)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_list_in_utf16_is_an_error_and_not_a_list_of_strange_names(tmp_path, encoding):
    with pytest.raises(DataError, match=r"line 1 of .* is not UTF-8 text"):
        unlabelled_images(write(tmp_path / "l.txt", "a.jpg\nb.jpg\n".encode(encoding)))


def test_list_that_cannot_be_opened_is_an_error(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    where = write(tmp_path / "l.txt", "a.jpg\n")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"l.txt cannot be read \(Permission denied\)"):
        unlabelled_images(where)


@given(
    st.lists(st.tuples(st.text("ab c.é#\"',;", min_size=1), st.sampled_from(["cat", "coffee mug", "ü"])), min_size=1)
)
def test_table_gives_back_what_was_written(tmp_path_factory, rows):
    rows = list({name.strip() + ".jpg": (name.strip() + ".jpg", label) for name, label in rows}.values())
    text = io.StringIO()
    csv.writer(text).writerows([("path", "label"), *rows])
    where = write(tmp_path_factory.mktemp("lists") / "l.csv", text.getvalue())
    assert [(file.name, file.label) for file in labelled_images(where)] == rows


@given(st.text(max_size=60))
def test_any_text_is_a_list_or_a_data_error(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("lists")
    for suffix in image_files.LIST_SUFFIXES:
        where = write(folder / f"l{suffix}", text.encode("utf-8", "replace"))
        for find in (labelled_images, unlabelled_images):
            try:
                files = find(where)
            except DataError:
                continue
            assert all(file.name for file in files)
            assert all((file.label is None) == (find is unlabelled_images) for file in files)


# --- labels of images that were found without -----------------------------------------------------------------


def test_folders_give_the_labels(tmp_path):
    put(tmp_path, "cat/a.jpg", "cat/deep/b.jpg", "dog/a.jpg")
    assert labels_from_folders(unlabelled_images(tmp_path)) == ["cat", "cat", "dog"]
    assert labels_from_folders(named("./cat/a.jpg")) == ["cat"]


@pytest.mark.parametrize("name", ["a.jpg", "./a.jpg", "/data/cat/a.jpg", "../cat/a.jpg"])
def test_image_in_no_folder_has_no_label(name):
    with pytest.raises(DataError, match=rf"1 of 2 images lie in no folder that could be their label, '{name}' first"):
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
    with pytest.raises(DataError, match=r"no label for 2 of 3 images, 'b.jpg' first.*as predictions.csv does"):
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
    monkeypatch.setattr("uniot.data.image_files._ENTRIES_AT_ONCE", 4)
    for number in range(11):
        (tmp_path / f"{number:02d}.jpg").write_bytes(b"x")
    names = [file.name for file in stream_images(tmp_path)]
    assert sorted(names) == [f"{number:02d}.jpg" for number in range(11)]
    blocks = [names[start : start + 4] for start in range(0, 11, 4)]
    assert all(block == sorted(block) for block in blocks)


def test_stream_of_a_folder_without_images_says_what_is_looked_for(tmp_path):
    with pytest.raises(DataError, match="holds no image. Files with these suffixes"):
        next(stream_images(tmp_path))


def test_stream_takes_a_single_image_and_a_list(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "list.txt").write_text("a.jpg cat\n", encoding="utf-8")
    assert [file.name for file in stream_images(tmp_path / "a.jpg")] == ["a.jpg"]
    assert [(file.name, file.label) for file in stream_images(tmp_path / "list.txt")] == [("a.jpg", None)]
