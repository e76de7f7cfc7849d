"""Embeddings in a folder of Parquet files."""

from __future__ import annotations

import numpy as np
import pytest

import uniot.io.shards as shards
from uniot.datasets.digits import make_toy_domains
from uniot.errors import DataError
from uniot.images.files import holds_images
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
    monkeypatch.setattr(shards, "MOST_BYTES_IN_MEMORY", most_bytes)
    names = [f"{row}.jpg" for row in range(20)]
    folder = write(tmp_path / "shards", x, np.array(["cup", "fork"] * 10), names)
    (folder / "_shards.json").write_text("{}")
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
