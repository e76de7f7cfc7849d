"""Lists of images: every way to write one, and what is wrong told with its line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uniot.errors import DataError
from uniot.images.files import ImageFile, labelled_images, unlabelled_images
from uniot.images.lists import LIST_SUFFIXES


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def names(files: list[ImageFile]) -> list[str]:
    return [file.name for file in files]


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


EMBEDDINGS = {
    "named columns": "x0,x1,label\n0.1,0.2,cat\n0.3,-0.4,dog\n",
    "numbered columns": "0,1,label\n0.1,0.2,cat\n0.3,0.4,dog\n",
    "index of pandas": ",0,1,2,label\n0,0.1,0.2,1e-3,cat\n1,0.3,0.4,0.1,dog\n",
    "sample names": "path," + ",".join(f"d{i}" for i in range(8)) + "\ns1," + ",".join(["0.5"] * 8) + "\n",
    "no header": "0.1,0.2,0.3\n0.4,0.5,0.6\n",
    "no header and labels": "0.1,0.2,cat\n0.4,0.5,dog\n",
    "a single line": "0.1,0.2\n",
}


@pytest.mark.parametrize("text", EMBEDDINGS.values(), ids=list(EMBEDDINGS))
@pytest.mark.parametrize("read", [labelled_images, unlabelled_images])
def test_table_of_embeddings_is_told_from_a_list_of_images(tmp_path, text, read):
    words = r"table.csv looks like a table of embeddings, with \d columns of numbers, and a list of images is expected"
    with pytest.raises(DataError, match=words):
        read(write(tmp_path / "table.csv", text))
    with pytest.raises(DataError, match="looks like a table of embeddings"):
        read(write(tmp_path / "table.tsv", text.replace(",", "\t")))


@pytest.mark.parametrize(
    "text",
    [
        "path,width,height,label\na.jpg,640,480,cat\n",
        "image," + ",".join(f"attribute{i}" for i in range(40)) + "\na.jpg" + ",1" * 40 + "\n",
        "path,width,height\nphoto without suffix,640,480\n",
        "path,label\n1,2\n",
    ],
)
def test_list_with_columns_of_numbers_is_a_list(tmp_path, text):
    assert len(unlabelled_images(write(tmp_path / "list.csv", text))) == 1


def test_table_of_embeddings_is_recognised_by_its_first_lines_however_large_it_is(tmp_path):
    where = write(tmp_path / "table.csv", "x0,x1\n0.1,0.2\n" + "\xff" * 10)
    with where.open("ab") as file:
        file.truncate(1 << 40)  # a sparse file of a terabyte
    with pytest.raises(DataError, match="looks like a table of embeddings"):
        unlabelled_images(where)


def test_error_never_prints_a_thousand_column_names(tmp_path):
    where = write(tmp_path / "list.csv", ",".join(f"text {i}" for i in range(1280)) + "\n" + "a,\n")
    with pytest.raises(DataError, match="has 'text 0', .*'text 11' and 1,268 more instead of column names") as error:
        unlabelled_images(where)
    assert len(str(error.value)) < 500


def test_long_column_name_is_cut(tmp_path):
    where = write(tmp_path / "list.csv", "a" * 10_000 + "\n")
    with pytest.raises(DataError) as error:
        unlabelled_images(where)
    assert len(str(error.value)) - len(str(where)) < 300


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
    with pytest.raises(DataError, match=r"line 1 of .* has nothing instead of column names"):
        unlabelled_images(write(tmp_path / "b.csv", ""))


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", "commas"), (".tsv", "tabs")])
def test_table_without_names_of_columns_is_an_error_that_shows_what_came(tmp_path, suffix, separator):
    where = write(tmp_path / f"l{suffix}", "a.jpg;cat\n")
    with pytest.raises(DataError, match=rf"line 1 of .* has 'a.jpg;cat' instead of .*separated by {separator}"):
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
    first = b"path,label\na.jpg,cat\n" if suffix == ".csv" else b"a.jpg cat\nb.jpg cat\n"
    where = write(tmp_path / f"l{suffix}", first + b"caf\xe9.jpg,dog\n")
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
    monkeypatch.setattr("uniot.io.text.open_regular", refuse)
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
    for suffix in LIST_SUFFIXES:
        where = write(folder / f"l{suffix}", text.encode("utf-8", "replace"))
        for find in (labelled_images, unlabelled_images):
            try:
                files = find(where)
            except DataError:
                continue
            assert all(file.name for file in files)
            assert all((file.label is None) == (find is unlabelled_images) for file in files)
