"""Embeddings of a local dataset of Hugging Face's package `datasets`: its images, its texts, or its vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import DataError, import_optional
from uniot.images.decoding import UnreadableImage, read_image
from uniot.images.embedding import ReadOptions, embed_images
from uniot.images.files import ImageFile
from uniot.io.arrays import as_inputs
from uniot.io.files import MOST_IMAGE_BYTES
from uniot.io.labels import as_labels
from uniot.io.text import listed


@dataclass(frozen=True)
class DatasetSamples:
    """Samples of a dataset as the estimators take them.

    Attributes:
        x: embeddings, (n_samples, n_features).
        y: labels, (n_samples,): names of the classes if the dataset has them; None without a column of labels.
        rows: rows of the dataset, (n_samples,): all of them, except for images that cannot be read.
        encoder: name of the network that embedded texts; None for others.
    """

    x: np.ndarray
    y: np.ndarray | None
    rows: np.ndarray
    encoder: str | None = None


def read_dataset(
    dataset: Any,
    column: str | None = None,
    *,
    label: str | None = None,
    encoder: str | None = None,
    backbone: str | None = None,
    options: ReadOptions | None = None,
) -> DatasetSamples:
    """Return the samples of a dataset: vectors as they are, images and texts embedded.

    Args:
        dataset: a `datasets.Dataset` on this machine; of a `DatasetDict` give a split, such as `dataset["train"]`.
        column: column of the vectors, images or texts; the only such column if None.
        label: column of the labels; `label` or `labels` if it has one, if None.
        encoder: network that embeds texts; the default one if None.
        backbone: network that embeds images; the default one if None.
        options: how images are read, and where embeddings are stored.

    Raises:
        DataError: the dataset has no such column, or several that may be meant.

    Examples:
        >>> source, target = read_dataset(labelled, "text", label="intent"), read_dataset(new, "text")
        >>> UniNCM(random_state=0).fit(source.x, source.y, target.x)
    """
    options = options or ReadOptions()
    datasets = import_optional("datasets", "", "reading a dataset of Hugging Face")
    if not isinstance(dataset, datasets.Dataset):
        what = f"is a {type(dataset).__name__} of {listed(dataset)}" if isinstance(dataset, dict) else "is no Dataset"
        raise DataError(f"the dataset {what}. Give a datasets.Dataset that is on this machine, such as a split.")
    features = dataset.features
    label = label or next((name for name in ("label", "labels") if name in features), None)
    kinds = {name: _kind(feature) for name, feature in features.items() if name != label}
    column = _column(kinds, column, list(features))
    if label is not None and label not in features:
        raise DataError(f"the dataset has no column {label!r}; it has {listed(features)}. Give one of these as label.")
    rows = np.arange(len(dataset))
    name = None
    if kinds[column] == "vectors":
        x = as_inputs(dataset.with_format("numpy", columns=[column])[column][:], column)
    elif kinds[column] == "texts":
        from uniot.text.encoder import TextEncoder

        network = TextEncoder.open(encoder, store=options.store)
        x, name = network.embed(list(dataset[column]), options.on_progress("texts")), encoder or network.name
    else:
        x, rows = _embedded_images(datasets, dataset, column, backbone, options)
    y = None if label is None else _labels(dataset, label)[rows]
    return DatasetSamples(np.asarray(x), y, rows, name)


def _kind(feature: Any) -> str | None:
    """Return what a column has: images, texts or vectors; None for anything else."""
    if type(feature).__name__ == "Image":
        return "images"
    if getattr(feature, "dtype", None) in ("string", "large_string"):
        return "texts"
    inner = getattr(feature, "feature", None)
    if inner is None and isinstance(feature, list) and len(feature) == 1:
        inner = feature[0]
    numbers = ("int", "uint", "float")
    return "vectors" if str(getattr(inner, "dtype", "")).startswith(numbers) else None


def _column(kinds: dict[str, str | None], chosen: str | None, names: list[str]) -> str:
    """Return the column of the samples; raise DataError if there is none, or several."""
    if chosen is not None:
        if kinds.get(chosen) is None:
            raise DataError(
                f"the dataset has no vectors, images or texts in a column {chosen!r}; it has {listed(names)}. Give "
                "another column."
            )
        return chosen
    for kind in ("images", "vectors", "texts"):
        found = [name for name, own in kinds.items() if own == kind]
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(f"the dataset has {kind} in several columns: {listed(found)}. Name one of them.")
    raise DataError(f"the dataset has the columns {listed(names)}, and none has vectors, images or texts.")


def _labels(dataset: Any, label: str) -> np.ndarray:
    """Return the labels, (n_rows,), as names if the dataset has them."""
    feature, values = dataset.features[label], list(dataset[label])
    names = getattr(feature, "names", None)
    if names is None:
        return as_labels(values, label)
    if any(value is None or not 0 <= value < len(names) for value in values):
        raise DataError(f"the column {label} has rows without a class. Leave these rows out: `dataset.filter(…)`.")
    return as_labels([names[value] for value in values], label)


@dataclass(frozen=True, slots=True)
class _DatasetImage(ImageFile):
    """An image in a dataset, or the file that it names."""

    dataset: Any = field(default=None, compare=False)
    column: str = ""
    row: int = 0

    def read(self) -> bytes:
        value = self.dataset[self.row][self.column]
        if value is None:
            raise UnreadableImage("there is no image")
        if value["bytes"] is None:
            return read_image(Path(value["path"]))
        if len(value["bytes"]) > MOST_IMAGE_BYTES:
            raise UnreadableImage(f"larger than {MOST_IMAGE_BYTES} bytes")
        return bytes(value["bytes"])

    @contextmanager
    def opened(self) -> Iterator[bytes]:
        """Yield the bytes of the image, which the dataset maps from its files."""
        yield self.read()


def _embedded_images(
    datasets: Any, dataset: Any, column: str, backbone: str | None, options: ReadOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return the embeddings of the images that can be read, and their rows."""
    from uniot.config import ImageSettings
    from uniot.images.backbones import ImageReader

    encoded = dataset.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    settings = ImageSettings.checked() if backbone is None else ImageSettings.checked(backbone=backbone)
    files = [_DatasetImage(Path(f"row {row}"), str(row), None, encoded, column, row) for row in range(len(dataset))]
    read = embed_images(files, ImageReader.open(settings), options)
    return read.values.astype(np.float32), np.array([int(file.name) for file in read.files], dtype=np.int64)
