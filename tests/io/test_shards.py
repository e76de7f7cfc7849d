"""Embeddings in a folder of Parquet files."""

from __future__ import annotations

import errno
import os
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uniot.datasets import make_toy_domains
from uniot.errors import DataError
from uniot.images.files import holds_images
from uniot.io import shards, table_files
from uniot.io.embedding_files import read_embeddings, read_labels, write_embeddings
from uniot.io.files import replacing


def write(folder, x, y=None, ids=None, parts=3):
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(np.array_split(np.arange(len(x)), parts)):
        own = [None if values is None else np.asarray(values)[rows] for values in (y, ids)]
        names = None if own[1] is None else own[1].tolist()
        write_embeddings(folder / f"part-{number:05}.parquet", x[rows], own[0], names, replacing=replacing)
    return folder


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


@pytest.mark.parametrize("most_bytes", [0, 1 << 30])
def test_shards_are_read_as_one_file_in_memory_or_on_disk(tmp_path, x, monkeypatch, most_bytes):
    monkeypatch.setattr(table_files, "MOST_BYTES_IN_MEMORY", most_bytes)
    names = [f"{row}.jpg" for row in range(20)]
    folder = write(tmp_path / "shards", x, np.array(["cup", "fork"] * 10), names)
    (folder / "_shards.json").write_text('{"complete": true, "rows": 20}')
    read = read_embeddings(folder)
    assert isinstance(read.x, np.memmap) == (most_bytes == 0)
    assert np.array_equal(read.x, x)
    assert read.ids == names
    assert read.y.tolist() == ["cup", "fork"] * 10
    assert read.x.dtype == np.float32


def test_a_folder_of_parquet_files_alone_has_embeddings(tmp_path, x):
    folder = write(tmp_path / "shards", x)
    assert not holds_images(folder)
    (folder / "photo.jpg").write_bytes(b"")
    assert holds_images(folder)
    with pytest.raises(DataError, match="not one of .parquet files alone"):
        read_embeddings(folder)
    (tmp_path / "empty").mkdir()
    assert holds_images(tmp_path / "empty")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"x": np.ones((3, 5), np.float32)}, "rows of 5 float32 numbers and .* rows of 4 float32"),
        ({"x": np.ones((3, 4))}, "float64 numbers"),
        ({"x": np.ones((3, 4), np.float32), "ids": ["a", "b", "c"]}, "has names and .* has none"),
        ({"x": np.ones((3, 4), np.float32), "y": np.arange(3)}, "has labels and .* has none"),
    ],
)
def test_shards_of_another_kind_are_refused(tmp_path, x, second, words):
    folder = write(tmp_path / "shards", x)
    write_embeddings(
        folder / "part-99999.parquet", second["x"], second.get("y"), second.get("ids"), replacing=replacing
    )
    with pytest.raises(DataError, match=words):
        read_embeddings(folder)


def test_a_truncated_shard_is_named(tmp_path, x):
    folder = write(tmp_path / "shards", x)
    path = folder / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"part-00001.parquet cannot be read as a Parquet file"):
        read_embeddings(folder)


@pytest.mark.slow
def test_adapt_and_predict_take_folders_of_shards(tmp_path, uniot):
    toy = make_toy_domains(3, 2, 2, samples_per_class=30, dimensions=16)
    names = [f"{row}.jpg" for row in range(len(toy.x_target))]
    source = write(tmp_path / "source", toy.x_source, toy.y_source)
    target = write(tmp_path / "target", toy.x_target, toy.oracle_y_target, names)
    answer = uniot("adapt", str(source), str(target), "--out", str(tmp_path / "run"))
    assert answer.code == 0, answer.stderr
    write_embeddings(tmp_path / "target.npz", toy.x_target, None, names, replacing=replacing)
    write_embeddings(tmp_path / "source.npz", toy.x_source, toy.y_source, replacing=replacing)
    whole = uniot("adapt", str(tmp_path / "source.npz"), str(tmp_path / "target.npz"), "--out", str(tmp_path / "whole"))
    assert whole.code == 0, whole.stderr
    tables = [(tmp_path / run / "predictions.csv").read_text() for run in ("run", "whole")]
    assert tables[0] == tables[1]
    answer = uniot("predict", str(tmp_path / "run"), str(target), "--out", str(tmp_path / "new.csv"))
    assert answer.code == 0, answer.stderr
    assert (tmp_path / "new.csv").read_text() == tables[0]
    assert read_labels(target, names).tolist() == toy.oracle_y_target.tolist()


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ('{"complete": false, "rows": null}', "is not finished. Run the command that writes it again"),
        ('{"complete": true, "rows": 27}', "Expected 27 rows in .*, got 20"),
        ("[]", "_shards.json cannot be read"),
        ("{}", "_shards.json cannot be read"),
    ],
)
def test_an_output_that_is_not_whole_is_refused(tmp_path, x, manifest, words):
    folder = write(tmp_path / "shards", x)
    (folder / "_shards.json").write_text(manifest)
    with pytest.raises(DataError, match=words):
        read_embeddings(folder)


def test_columns_in_another_order_are_refused(tmp_path):
    for number, names in enumerate([("a", "b"), ("b", "a")]):
        pq.write_table(pa.table({name: [1.0, 2.0] for name in names}), tmp_path / f"{number}.parquet")
    with pytest.raises(DataError, match="1.parquet has its numbers in the columns b, a and .*0.parquet in a, b"):
        read_embeddings(tmp_path)


def test_shards_without_rows_are_left_out(tmp_path, x):
    folder = write(tmp_path / "shards", x, np.array(["cup", "fork"] * 10))
    empty = pq.read_table(folder / "part-00000.parquet")[:0]
    for name in ("part-", "part-00001b"):
        pq.write_table(empty, folder / f"{name}.parquet")
    assert np.array_equal(read_embeddings(folder).x, x)


def test_a_shard_that_changes_meanwhile_is_refused(tmp_path, x, monkeypatch):
    folder = write(tmp_path / "shards", x)
    monkeypatch.setattr(shards, "_count_rows", lambda path: 7)
    with pytest.raises(DataError, match=r"part-00002.parquet had 7 rows of 4 float32 numbers and has 6 of 4"):
        read_embeddings(folder)


def test_a_full_disk_is_reported_before_the_embeddings_are_copied(tmp_path, x, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(table_files, "MOST_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match="No space left on device.*TMPDIR"):
        read_embeddings(write(tmp_path / "shards", x))


def test_a_long_label_of_one_shard_is_refused_before_all_rows_take_its_length(tmp_path, x):
    labels = np.array(["cup"] * 20, dtype=object)
    folder = write(tmp_path / "shards", x, labels.astype(str))
    long = pa.table({"label": ["x" * 1_000_000], "x": pa.FixedSizeListArray.from_arrays(x[0], 4)})
    pq.write_table(long, folder / "part-00003.parquet")
    with mock.patch("uniot.io.array_files._MAX_LABEL_BYTES", 40_000_000), pytest.raises(DataError, match="Shorten"):
        read_embeddings(folder)
