"""Every kind of file: what is written is read back, and what is wrong is told in a sentence."""

from __future__ import annotations

import csv
import json
import os
import random
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file

from uniot.errors import DataError, RunFolderError
from uniot.io import array_files, table_files
from uniot.io.embedding_files import read_embeddings, read_labels, write_embeddings
from uniot.io.files import replacing
from uniot.io.text import as_utf8

WRITTEN = [".npz", ".npy", ".parquet", ".safetensors"]
READ = [*WRITTEN, ".csv"]

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
Y = np.array(["cat", "Übung, alt", "cat", "dog", 'a "b"'])
IDS = ["a.jpg", "b/ä, 1.jpg", "line\nbreak.jpg", "return\r.jpg", "数据.png"]


def write(path: Path, x=X, y=None, ids=None) -> Path:
    write_embeddings(path, x, y, ids, replacing=replacing)
    return path


def write_csv(path: Path, rows: list[list[object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def write_parquet(path: Path, table: pa.Table | pd.DataFrame, **options: object) -> Path:
    pq.write_table(table if isinstance(table, pa.Table) else pa.Table.from_pandas(table), path, **options)
    return path


def vectors(kind: str, rows: list[list[float | None] | None]) -> pa.Array:
    of = pa.float32()
    types = {"list": pa.list_(of), "large": pa.large_list(of), "fixed": pa.list_(of, 2)}
    return pa.array(rows, types[kind])


# --- written and read back --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WRITTEN)
def test_embeddings_labels_and_names_come_back(tmp_path, kind):
    read = read_embeddings(write(tmp_path / f"features{kind}", X, Y, IDS))
    np.testing.assert_array_equal(read.x, X)
    assert read.x.dtype == X.dtype
    assert read.y.tolist() == Y.tolist()
    assert read.ids == IDS


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_is_left_out_stays_out(tmp_path, kind):
    alone = read_embeddings(write(tmp_path / f"alone{kind}"))
    assert (alone.y, alone.ids) == (None, None)
    labelled = read_embeddings(write(tmp_path / f"labelled{kind}", X, Y))
    assert (labelled.y.tolist(), labelled.ids) == (Y.tolist(), None)
    named = read_embeddings(write(tmp_path / f"named{kind}", X, None, IDS))
    assert (named.y, named.ids) == (None, IDS)


@pytest.mark.parametrize("kind", WRITTEN)
def test_whole_numbers_as_labels_stay_numbers_where_the_kind_has_types(tmp_path, kind):
    y = np.array([3, -1, 3, 0, 2**40])
    read = read_embeddings(write(tmp_path / f"features{kind}", X, y)).y
    assert read.tolist() == ([str(label) for label in y] if kind == ".npy" else y.tolist())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("kind", WRITTEN)
def test_type_of_the_numbers_is_kept(tmp_path, kind, dtype):
    x = (10 * X).astype(dtype)
    read = read_embeddings(write(tmp_path / f"features{kind}", x)).x
    assert read.dtype == x.dtype
    np.testing.assert_array_equal(read, x)


def test_columns_of_a_table_have_names_and_those_of_other_files_do_not(tmp_path):
    (tmp_path / "table.csv").write_text("path,width,label,height\na.jpg,1,cat,2\n", encoding="utf-8")
    read = read_embeddings(tmp_path / "table.csv")
    assert (read.feature_names, read.x.tolist()) == (("width", "height"), [[1, 2]])
    assert read_embeddings(write(tmp_path / "list.parquet", X)).feature_names is None
    assert read_embeddings(write(tmp_path / "array.npz", X)).feature_names is None


@pytest.mark.parametrize("kind", WRITTEN)
def test_columns_of_a_larger_array_can_be_written(tmp_path, kind):
    whole = np.arange(40.0).reshape(5, 8)
    np.testing.assert_array_equal(read_embeddings(write(tmp_path / f"f{kind}", whole[:, ::2])).x, whole[:, ::2])


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
LABEL = TEXT.filter(lambda text: text.strip().lower() not in ("", "nan", "nat", "<na>"))


@given(rows=st.lists(st.tuples(LABEL, TEXT), min_size=1, max_size=5))
@example(rows=[("a\rb", "\u2028"), ('"', ","), (" a ", "\r\n"), ("\x1c-", "\x85")])
@settings(max_examples=30)
def test_any_label_and_any_name_come_back(tmp_path_factory, rows):
    y, ids = [label for label, _ in rows], [name for _, name in rows]
    folder = tmp_path_factory.mktemp("any")
    for kind in WRITTEN:
        read = read_embeddings(write(folder / f"features{kind}", np.ones((len(rows), 2)), np.array(y), ids))
        assert (read.y.tolist(), read.ids) == (y, ids)


@pytest.mark.parametrize("kind", WRITTEN)
def test_file_name_that_is_no_text_is_kept_or_written_out(tmp_path, kind):
    name = os.fsdecode(b"b\xffd.jpg")
    read = read_embeddings(write(tmp_path / f"features{kind}", X[:1], Y[:1], [name])).ids
    assert read == [name if kind in (".npz", ".safetensors") else r"b\udcffd.jpg"]
    assert as_utf8(name) == r"b\udcffd.jpg"


def test_parquet_of_many_pieces_is_one_array(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_WRITE_VALUES", 7)
    monkeypatch.setattr(table_files, "_READ_ROWS", 2)
    read = read_embeddings(write(tmp_path / "features.parquet", X, Y, IDS))
    assert pq.ParquetFile(tmp_path / "features.parquet").num_row_groups == 3
    np.testing.assert_array_equal(read.x, X)
    assert (read.y.tolist(), read.ids) == (Y.tolist(), IDS)


def test_parquet_is_hardly_larger_than_its_numbers(tmp_path):
    x = np.random.default_rng(0).normal(size=(2000, 64)).astype(np.float32)
    assert write(tmp_path / "a.parquet", x).stat().st_size < 1.02 * x.nbytes


@pytest.mark.parametrize("kind", WRITTEN)
def test_everybody_who_may_read_one_kind_may_read_the_others(tmp_path, kind):
    (tmp_path / "ordinary").touch()
    assert write(tmp_path / f"f{kind}").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize("kind", WRITTEN)
def test_failure_while_writing_leaves_the_old_files_and_nothing_else(tmp_path, kind, monkeypatch):
    path = write(tmp_path / f"features{kind}", X, Y, IDS)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    @contextmanager
    def fails_at_the_end(path):
        with replacing(path) as partial:
            yield partial
            raise OSError(28, "No space left on device")

    with pytest.raises(RunFolderError, match=r"features.* cannot be written .*No space left on device"):
        write_embeddings(path, 2 * X, Y[::-1], IDS, replacing=fails_at_the_end)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_full_disk_while_writing_safetensors_is_an_error_of_the_file(tmp_path, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(array_files, "save_file", full)
    with pytest.raises(RunFolderError, match=r"features\.safetensors cannot be written .*No space left on device"):
        write(tmp_path / "features.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_table_of_other_embeddings_is_not_adopted(tmp_path):
    path = write(tmp_path / "features.npy", X, Y)
    with pytest.raises(DataError, match=r"features\.csv belongs to other .* read as the labels of .*features\.npy"):
        write(path, 2 * X)
    np.testing.assert_array_equal(read_embeddings(path).x, X)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("a.csv", {}, r"ends with '\.csv'\. Embeddings are written to \.npz, \.npy, \.parquet, \.safetensors files"),
        ("a", {}, r"ends with ''"),
        ("a.npz", {"y": Y[:2]}, "there are 2 labels for 5 rows of x"),
        ("a.npz", {"ids": IDS[:1]}, "there are 1 ids for 5 rows of x"),
        ("a.npz", {"x": np.full((2, 2), np.nan)}, "x holds nan in row 0, column 0"),
        ("a.npz", {"x": np.ones(3)}, "one row per sample"),
        (
            "a.npz",
            {"y": np.array([None, "a", "b", "c", "d"])},
            r"y has no label in 1 of 5 rows, the first is row 0 \(None\)",
        ),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, name, arguments, words):
    with pytest.raises(DataError, match=words):
        write(tmp_path / name, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_names_that_fill_the_header_of_safetensors_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_HEADER_BYTES", 20)
    with pytest.raises(DataError, match=r"names are too long for a \.safetensors file.* Write a \.parquet file"):
        write(tmp_path / "a.safetensors", X, Y, IDS)
    assert list(tmp_path.iterdir()) == []


# --- which file -------------------------------------------------------------------------------------------


def test_other_kinds_are_refused_with_the_list_of_those_that_are_read(tmp_path):
    (tmp_path / "x.pkl").touch()
    with pytest.raises(
        DataError, match=r"ends with '\.pkl'.*\.npz, \.npy, \.parquet, \.safetensors, \.csv, \.tsv files"
    ):
        read_embeddings(tmp_path / "x.pkl")


@pytest.mark.parametrize("kind", READ)
def test_folder_and_missing_file_are_told_apart(tmp_path, kind):
    with pytest.raises(DataError, match=r"does not exist\. Give a file of embeddings: \.npz, \.npy"):
        read_embeddings(tmp_path / f"a{kind}")
    (tmp_path / f"a{kind}").mkdir()
    with pytest.raises(DataError, match="is a folder, and not one of .parquet files alone. Give a file of embeddings"):
        read_embeddings(tmp_path / f"a{kind}")


def test_suffix_may_be_in_capitals(tmp_path):
    assert read_embeddings(write(tmp_path / "F.NPZ")).x.shape == (5, 3)
    assert read_embeddings(write(tmp_path / "F.Parquet")).x.shape == (5, 3)


@pytest.mark.parametrize("kind", WRITTEN)
def test_no_cut_off_file_is_read(tmp_path, kind):
    content = write(tmp_path / f"whole{kind}", X, Y, IDS).read_bytes()
    part = tmp_path / f"part{kind}"
    for length in [*range(0, len(content), 53), len(content) - 1]:
        part.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"It may be truncated; make it again|is not an \.np[yz] file"):
            read_embeddings(part)


@pytest.mark.parametrize("kind", READ)
def test_file_of_another_kind_is_refused(tmp_path, kind):
    (tmp_path / f"a{kind}").write_bytes(b"\xff\xfe\xfd neither text nor any of them \0\x80" * 9)
    with pytest.raises(DataError, match=r"is not an \.np|cannot be read as"):
        read_embeddings(tmp_path / f"a{kind}")


# --- .npz and .npy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [("x", "y", "ids"), ("features", "labels", "files"), ("embedding", "label", "path")])
def test_arrays_go_by_several_names(tmp_path, keys):
    np.savez(tmp_path / "a.npz", **dict(zip(keys, (X, Y, IDS), strict=True)))
    read = read_embeddings(tmp_path / "a.npz")
    assert (read.x.shape, read.y.tolist(), read.ids) == (X.shape, Y.tolist(), IDS)


def test_names_may_be_bytes(tmp_path):
    np.savez(tmp_path / "a.npz", x=X[:2], ids=np.array([b"a", "ü".encode()]))
    assert read_embeddings(tmp_path / "a.npz").ids == ["a", "ü"]


def test_label_and_name_of_a_single_row_may_be_single_values(tmp_path):
    np.savez(tmp_path / "a.npz", x=X[:1], y="cat", ids="a.jpg")
    read = read_embeddings(tmp_path / "a.npz")
    assert (read.y.tolist(), read.ids) == (["cat"], ["a.jpg"])


def test_only_what_is_needed_of_an_archive_is_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, other=np.array([{}], dtype=object))
    np.testing.assert_array_equal(read_embeddings(tmp_path / "a.npz").x, X)


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", [".npz", ".npy"])
def test_pickle_in_a_file_is_never_run(tmp_path, kind):
    objects = np.array([Bomb(tmp_path / "ran"), 1], dtype=object)
    if kind == ".npz":
        np.savez(tmp_path / "a.npz", x=objects)
    else:
        np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    with pytest.raises(DataError, match="object array, which only a pickle could load, and uniot never loads pickles"):
        read_embeddings(tmp_path / f"a{kind}")
    assert not (tmp_path / "ran").exists()


def test_large_array_stays_on_disk(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((20_000, 128), dtype=np.float32))
    tracemalloc.start()
    read = read_embeddings(tmp_path / "a.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20 < read.x.nbytes
    assert isinstance(read.x, np.memmap)


def test_table_beside_an_array_names_and_labels_its_rows(tmp_path):
    np.save(tmp_path / "a.npy", X[:2])
    write_csv(tmp_path / "a.csv", [["label", "width", "path"], ["cat", 3, "x.jpg"], ["dog", 4, "y.jpg"]])
    read = read_embeddings(tmp_path / "a.npy")
    assert (read.y.tolist(), read.ids) == (["cat", "dog"], ["x.jpg", "y.jpg"])


@pytest.mark.parametrize("kind", WRITTEN)
def test_table_that_is_given_goes_before_what_the_file_says(tmp_path, kind):
    path = write(tmp_path / f"a{kind}", X[:2], Y[:2], IDS[:2])
    table = write_csv(tmp_path / "other.csv", [["label"], ["new"], ["newer"]])
    read = read_embeddings(path, table)
    assert read.y.tolist() == ["new", "newer"]
    assert read.ids == (None if kind == ".npy" else IDS[:2])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["path", "label"], ["a", "cat"]], "has 1 labels for 5 rows of x"),
        ([["path"], *([["a"]] * 6)], "has 6 ids for 5 rows of x"),
        ([["name", "kind"], *([["a", "cat"]] * 5)], r"columns name, kind; path, label or both must be among them"),
        ([], r"columns \(none\); path, label or both"),
        ([["path", "label"], *([["a", "cat"]] * 4), ["a"]], "has 1 cells in line 6 and 2 columns"),
        ([["label"], *([["cat"]] * 3), [" "], [""]], r"no label in 1 of 5 rows, the first in row 4"),
    ],
)
def test_wrong_table_beside_an_array_is_refused(tmp_path, rows, words):
    np.save(tmp_path / "a.npy", X)
    write_csv(tmp_path / "a.csv", rows)
    with pytest.raises(DataError, match=words):
        read_embeddings(tmp_path / "a.npy")


@pytest.mark.parametrize("kind", [".npz", ".npy"])
def test_single_number_is_no_embedding(tmp_path, kind):
    np.savez(tmp_path / "a.npz", x=3.0)
    np.save(tmp_path / "a.npy", 3.0)
    with pytest.raises(DataError, match="holds a single number. Give one row of numbers per sample"):
        read_embeddings(tmp_path / f"a{kind}")


# --- .parquet ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "embedding", "embeddings", "features"])
@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
def test_lists_of_any_sort_are_embeddings(tmp_path, kind, name):
    rows = [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]
    table = pa.table({"n": [1, 2, 3], name: vectors(kind, rows), "label": ["a", "b", "a"], "path": ["p", "q", "r"]})
    read = read_embeddings(write_parquet(tmp_path / "a.parquet", table, row_group_size=2))
    assert read.x.tolist() == rows
    assert read.x.dtype == np.float32
    assert (read.y.tolist(), read.ids) == (["a", "b", "a"], ["p", "q", "r"])


def test_numeric_columns_are_embeddings_where_there_is_no_list(tmp_path):
    frame = pd.DataFrame({"f0": np.float32([1, 2]), "title": ["t", "u"], "f1": np.float32([3, 4])})
    frame["y"] = pd.Categorical(["cat", "dog"])
    # An index that pandas writes as a column.
    frame.index = [7, 9]
    read = read_embeddings(write_parquet(tmp_path / "a.parquet", frame))
    assert read.x.tolist() == [[1, 3], [2, 4]]
    assert read.x.dtype == np.float32
    assert (read.y.tolist(), read.ids) == (["cat", "dog"], None)


def test_labels_that_are_all_empty_are_no_labels(tmp_path):
    table = pa.table({"x": vectors("list", [[1.0, 2.0]] * 2), "label": pa.array([None, None], pa.string())})
    assert read_embeddings(write_parquet(tmp_path / "a.parquet", table)).y is None


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"x": vectors("list", [[1, 2], [1, 2], [1, 2, 3]])}, "3 numbers in row 2 and 2 in the rows before"),
        ({"x": vectors("list", [[1, 2], [1, 2, 3], [1, 2]])}, "3 numbers in row 1 and 2 in the rows before"),
        ({"x": vectors("list", [[1, 2], [1, 2], None])}, "an empty cell in row 2"),
        ({"x": vectors("list", [[1, 2], [1, 2], [1, None]])}, "an empty cell in row 2"),
        ({"x": vectors("fixed", [[1, 2], [1, None], [1, 2]])}, "an empty cell in row 1"),
        ({"a": [1.0, 2.0, 3.0], "b": [1, 2, None]}, "an empty cell in row 2"),
        ({"title": ["a", "b", "c"], "label": [1, 2, 3]}, "columns title, label and no embeddings among them"),
        ({"a": [1.0, 2.0, 3.0], "label": ["a", None, "b"]}, "no label in 1 of 3 rows, the first in row 1"),
        ({"a": [1.0, 2.0, 3.0], "path": ["a", "b", None]}, "no name in row 2"),
    ],
)
def test_gaps_and_uneven_rows_are_named(tmp_path, monkeypatch, columns, words):
    monkeypatch.setattr(table_files, "_READ_ROWS", 2)
    path = write_parquet(tmp_path / "a.parquet", pa.table(columns))
    with pytest.raises(DataError, match=words):
        read_embeddings(path)


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["f", "f"])
    with pytest.raises(DataError, match="two columns of the same name among f, f"):
        read_embeddings(write_parquet(tmp_path / "a.parquet", table))


def test_parquet_without_rows_is_empty(tmp_path):
    table = pa.table({"x": pa.array([], pa.list_(pa.float32()))})
    assert len(read_embeddings(write_parquet(tmp_path / "a.parquet", table)).x) == 0


def test_parquet_is_not_held_twice_while_it_is_read(tmp_path):
    path = write(tmp_path / "a.parquet", np.zeros((40_000, 64), dtype=np.float32))
    tracemalloc.start()
    read = read_embeddings(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * read.x.nbytes


def test_missing_pyarrow_is_named_with_its_cure(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    words = r"Parquet files needs pyarrow, .*pip install 'uniot\[images\]'"
    with pytest.raises(DataError, match=words):
        read_embeddings(path)
    with pytest.raises(DataError, match=words):
        write(tmp_path / "b.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


# --- .safetensors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_types_that_numpy_lacks_become_float32(tmp_path, dtype):
    tensor = torch.tensor([[0.5, -2.0], [1.0, 0.25]]).to(dtype)
    save_file({"embeddings": tensor}, tmp_path / "a.safetensors")
    read = read_embeddings(tmp_path / "a.safetensors").x
    assert read.dtype == np.float32
    assert read.tolist() == tensor.float().tolist()


def test_labels_are_numbers_unless_the_metadata_names_them(tmp_path):
    tensors = {"x": torch.ones(3, 2), "labels": torch.tensor([1, 0, 1], dtype=torch.int16)}
    save_file(tensors, tmp_path / "a.safetensors")
    assert read_embeddings(tmp_path / "a.safetensors").y.tolist() == [1, 0, 1]
    about = {"classes": json.dumps(["cat", "dog"]), "paths": json.dumps(["p", "q", "r"])}
    save_file(tensors, tmp_path / "a.safetensors", about)
    read = read_embeddings(tmp_path / "a.safetensors")
    assert (read.y.tolist(), read.ids) == (["dog", "cat", "dog"], ["p", "q", "r"])


@pytest.mark.parametrize(
    ("y", "about", "words"),
    [
        (torch.tensor([0, 2]), {"classes": '["a", "b"]'}, "the label 2 and names 2 classes. .* from 0 to 1"),
        (torch.tensor([-1, 0]), {"classes": '["a", "b"]'}, "the label -1 and names 2 classes"),
        (torch.tensor([0.0, 1.0]), {"classes": '["a", "b"]'}, "Give whole numbers from 0 to 1 as y"),
        (torch.tensor([0, 1]), {"classes": "a, b"}, "metadata 'classes' that is not JSON"),
        (torch.tensor([0, 1]), {"classes": '{"a": 1}'}, "metadata 'classes' that is not a list of names"),
        (torch.tensor([0, 1]), {"ids": "[[1], 2]"}, "metadata 'ids' that is not a list of names"),
        (torch.tensor([0, 1]), {"ids": '["p"]'}, "has 1 ids for 2 rows of x"),
        (torch.tensor([0, 1, 1]), {}, "has 3 labels for 2 rows of x"),
    ],
)
def test_metadata_that_does_not_fit_is_named(tmp_path, y, about, words):
    save_file({"x": torch.ones(2, 2), "y": y}, tmp_path / "a.safetensors", about)
    with pytest.raises(DataError, match=words):
        read_embeddings(tmp_path / "a.safetensors")


def test_tensors_without_embeddings_are_named(tmp_path):
    save_file({"weight": torch.ones(2, 2)}, tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="holds weight and no tensor called x"):
        read_embeddings(tmp_path / "a.safetensors")


# --- .csv -------------------------------------------------------------------------------------------------


def test_columns_of_numbers_are_embeddings(tmp_path):
    rows = [["path", "f0", "label", "f1"], ["a,\nb", 1, "cat", -2.5e-3], [], ["c", 3, "dog", 4]]
    read = read_embeddings(write_csv(tmp_path / "a.csv", rows))
    assert read.x.tolist() == [[1, -2.5e-3], [3, 4]]
    assert (read.y.tolist(), read.ids) == (["cat", "dog"], ["a,\nb", "c"])


def test_table_as_pandas_writes_it_is_read_without_its_index(tmp_path):
    pd.DataFrame(X).assign(label=Y).to_csv(tmp_path / "a.csv", encoding="utf-8-sig")
    read = read_embeddings(tmp_path / "a.csv")
    np.testing.assert_array_equal(read.x.astype(np.float32), X)
    assert read.y.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["0.5", "1.5"], [1, 2]], "columns 0.5, 1.5; .* Give the names of the columns in the first line"),
        ([["path", "label"], ["a", "b"]], "columns path, label; a column for each dimension must be among them"),
        ([["a", "b"], [1, 2], [1, "x"]], r"a.csv has 'x', which is not a number, in line 3, column 'b'\. Give numbers"),
        ([["a", "b"], [1, "n/a"], [1, 2]], "has 'n/a', which is not a number, in line 2, column 'b'"),
        ([["a", "b"], [1, 2], [1, ""]], "a.csv is empty in line 3, column 'b'"),
        (
            [["a", "b"], ["so", "few"]],
            r"has no column of numbers among a, b\. .*; for texts, name their column with --text",
        ),
        ([["a", "b", "a"], [1, 2, 3]], r"has two columns of the same name: a\. Give each its own name"),
        ([["a;b;c"], ["1;2;3"]], r"is separated by semicolons, and a \.csv file is read with commas"),
        (
            [["embedding", "label"], ["[1, 2]", "a"], ["[1]", "b"]],
            r"no list of numbers in line 3, column embedding \(1 n",
        ),
        ([["a", "b"], [1, 2], [1]], "has 1 cells in line 3 and 2 columns"),
        ([], r"columns \(none\)"),
    ],
)
def test_csv_without_numbers_in_their_places_is_refused(tmp_path, rows, words):
    with pytest.raises(DataError, match=words):
        read_embeddings(write_csv(tmp_path / "a.csv", rows))


def test_long_lists_of_columns_are_shortened(tmp_path):
    rows = [[f"0.{place + 1}" for place in range(2000)], [1] * 2000]
    with pytest.raises(DataError, match="and 1,988 more") as caught:
        read_embeddings(write_csv(tmp_path / "a.csv", rows))
    assert len(str(caught.value)) < 500


# --- labels alone -----------------------------------------------------------------------------------------


def truth_file(folder: Path, kind: str, y: list[str], ids: list[str] | None) -> Path:
    """True labels as somebody may have them, embeddings or not."""
    path = folder / f"truth{kind}"
    columns = {"label": y} | ({} if ids is None else {"path": ids})
    if kind == ".npz":
        np.savez(path, **{"y": np.array(y)} | ({} if ids is None else {"ids": np.array(ids)}))
    elif kind == ".parquet":
        write_parquet(path, pa.table(columns))
    elif kind == ".csv":
        write_csv(path, [list(columns), *zip(*columns.values(), strict=True)])
    else:
        write(path, np.ones((len(y), 2)), np.array(y), ids)
    return path


@pytest.mark.parametrize("kind", READ)
def test_labels_follow_the_names_not_the_order(tmp_path, kind):
    order = random.Random(0).sample(range(5), 5)
    path = truth_file(tmp_path, kind, [Y[i] for i in order], [IDS[i] for i in order])
    assert read_labels(path, IDS).tolist() == Y.tolist()
    assert read_labels(path, IDS[1:3]).tolist() == Y[1:3].tolist()


@pytest.mark.parametrize("kind", READ)
def test_labels_follow_the_order_where_there_are_no_names(tmp_path, kind):
    path = truth_file(tmp_path, kind, Y.tolist(), None)
    assert read_labels(path, IDS).tolist() == Y.tolist()
    with pytest.raises(DataError, match="has 5 labels for 4 target samples. Give one per sample, in order"):
        read_labels(path, IDS[:4])


@pytest.mark.parametrize("kind", READ)
def test_samples_that_a_run_only_numbered_follow_the_order(tmp_path, kind):
    numbers = [str(row) for row in range(5)]
    assert read_labels(truth_file(tmp_path, kind, Y.tolist(), IDS), numbers).tolist() == Y.tolist()
    backwards = truth_file(tmp_path, kind, Y.tolist()[::-1], numbers[::-1])
    assert read_labels(backwards, numbers).tolist() == Y.tolist()


@pytest.mark.parametrize("kind", READ)
def test_sample_without_a_label_is_named(tmp_path, kind):
    path = truth_file(tmp_path, kind, Y.tolist()[1:], IDS[1:])
    with pytest.raises(DataError, match=r"no label for 1 of 5 samples, the first is 'a\.jpg'\. Use the paths"):
        read_labels(path, IDS)


def test_name_with_two_labels_is_refused_unless_the_order_tells(tmp_path):
    path = truth_file(tmp_path, ".csv", ["cat", "dog", "cat"], ["a", "a", "b"])
    assert read_labels(path, ["a", "a", "b"]).tolist() == ["cat", "dog", "cat"]
    with pytest.raises(DataError, match="names 'a' twice, with two labels"):
        read_labels(path, ["b", "a"])


def test_array_of_labels_is_read_as_such(tmp_path):
    np.save(tmp_path / "y.npy", np.array([4, 5, 6]))
    write_csv(tmp_path / "y.csv", [["path", "label"], ["c", "of"], ["b", "something"], ["a", "else"]])
    assert read_labels(tmp_path / "y.npy", ["a", "b", "c"]).tolist() == [4, 5, 6]


def test_text_with_a_label_a_line_is_read(tmp_path):
    (tmp_path / "y.txt").write_text("cat\nÜbung\n", encoding="utf-8")
    assert read_labels(tmp_path / "y.txt", ["a", "b"]).tolist() == ["cat", "Übung"]


def test_labels_are_read_without_their_embeddings(tmp_path):
    path = write(tmp_path / "a.parquet", np.zeros((20_000, 64), dtype=np.float32), np.arange(20_000))
    tracemalloc.start()
    read_labels(path, [f"{row}.jpg" for row in range(20_000)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "does not exist. Give a file with the true label of every target sample"),
        (lambda path: np.savez(path, x=X), "holds no labels. Save them as y"),
        (lambda path: np.savez(path, y=Y, ids=IDS[:2]), "has 2 ids for 5 labels"),
    ],
)
def test_wrong_file_of_labels_is_refused(tmp_path, make, words):
    make(tmp_path / "y.npz")
    with pytest.raises(DataError, match=words):
        read_labels(tmp_path / "y.npz", IDS)


def test_error_lists_at_most_a_dozen_of_many_arrays(tmp_path):
    np.savez(tmp_path / "many.npz", **{f"a{number:04}": np.ones(1) for number in range(300)})
    save_file({f"a{number:04}": torch.ones(1) for number in range(300)}, tmp_path / "many.safetensors")
    for name in ("many.npz", "many.safetensors"):
        with pytest.raises(DataError, match=r"holds a0000, .*a0011 and 288 more and no (array|tensor) called x"):
            read_embeddings(tmp_path / name)
