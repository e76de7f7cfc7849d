from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from uniot import UniNCM
from uniot.adaptation.hugging_face import read_dataset
from uniot.datasets import make_toy_domains
from uniot.errors import DataError

datasets = pytest.importorskip("datasets")


def test_vectors_and_class_names_are_those_of_the_dataset():
    toy = make_toy_domains(seed=1)
    classes = sorted(set(toy.y_source.tolist()))
    features = datasets.Features(
        {"vector": datasets.Sequence(datasets.Value("float32")), "label": datasets.ClassLabel(names=classes)}
    )
    rows = {"vector": toy.x_source.tolist(), "label": [classes.index(name) for name in toy.y_source]}
    source = read_dataset(datasets.Dataset.from_dict(rows, features=features))
    np.testing.assert_array_equal(source.x, toy.x_source.astype(np.float32))
    assert source.y is not None
    assert source.y.tolist() == toy.y_source.tolist()
    target = read_dataset(datasets.Dataset.from_dict({"vector": toy.x_target.tolist()}))
    assert target.y is None
    model = UniNCM(random_state=0).fit(source.x, source.y, target.x)
    assert (model.labels_ == toy.oracle_y_target).mean() > 0.5


def png(colour: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (64, 64), (colour, 100, 200 - colour)).save(stream, "PNG")
    return stream.getvalue()


def test_images_are_embedded_and_unreadable_ones_left_out():
    pictures = [
        {"bytes": png(0), "path": None},
        {"bytes": b"no image", "path": None},
        {"bytes": png(150), "path": None},
    ]
    features = datasets.Features({"image": datasets.Image(), "kind": datasets.Value("string")})
    table = datasets.Dataset.from_dict({"image": pictures, "kind": ["a", "b", "c"]}, features=features)
    found = read_dataset(table, label="kind")
    assert found.rows.tolist() == [0, 2]
    assert found.y is not None
    assert found.y.tolist() == ["a", "c"]
    assert found.x.shape[0] == 2
    assert np.isfinite(found.x).all()


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"a": ["x"], "b": ["y"]}, {}, "has texts in several columns: a, b. Name one of them."),
        ({"a": [1], "b": [2]}, {}, "has the columns a, b, and none has vectors, images or texts"),
        ({"a": [[1.0]]}, {"column": "b"}, "no vectors, images or texts in a column 'b'; it has a"),
        ({"a": [[1.0]]}, {"label": "b"}, "has no column 'b'; it has a. Give one of these as label"),
    ],
)
def test_column_that_cannot_be_meant_is_named(columns, options, words):
    with pytest.raises(DataError, match=words):
        read_dataset(datasets.Dataset.from_dict(columns), **options)


def test_splits_are_given_one_by_one():
    with pytest.raises(DataError, match=r"is a DatasetDict of train\. Give a datasets.Dataset"):
        read_dataset(datasets.DatasetDict(train=datasets.Dataset.from_dict({"a": [[1.0]]})))
