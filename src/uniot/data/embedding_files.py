"""Embeddings and labels from files; nothing in a file is ever executed."""

from __future__ import annotations

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uniot.errors import DataError

_KEYS = {
    "x": ("x", "X", "embeddings", "features"),
    "y": ("y", "labels"),
    "ids": ("ids", "paths", "files"),
}


@dataclass(frozen=True)
class EmbeddingFile:
    """What a file holds: embeddings (n, d), labels (n,) and names of the samples (n,) where it has them."""

    x: np.ndarray
    y: np.ndarray | None
    ids: list[str] | None


def read_embeddings(path: Path) -> EmbeddingFile:
    """Reads an .npz with the array `x`, and `y` and `ids` where there are any."""
    arrays = _read_npz(path)
    found = {name: next((arrays[key] for key in keys if key in arrays), None) for name, keys in _KEYS.items()}
    x = found["x"]
    if x is None:
        raise DataError(
            f"{path} holds {', '.join(sorted(arrays)) or 'nothing'} and no array called x. "
            "Save embeddings with `numpy.savez(file, x=embeddings, y=labels)`."
        )
    ids = found["ids"]
    if ids is not None and len(ids) != len(x):
        raise DataError(f"{path} has {len(ids)} ids for {len(x)} rows of x. Give one per row, or none.")
    return EmbeddingFile(x, found["y"], None if ids is None else [str(name) for name in ids])


def read_labels(path: Path, ids: list[str]) -> np.ndarray:
    """One label per sample, in the order of `ids`.

    Args:
        path: .npz with `y`; .npy; .csv with the columns path and label, in any order of lines; or a text file with
            a label a line.
        ids: names of the samples, as in predictions.csv.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist. Give a file with the true label of every target sample.")
    if path.suffix == ".csv":
        return _labels_by_name(path, ids)
    if path.suffix in (".npz", ".npy"):
        arrays = _read_npz(path) if path.suffix == ".npz" else {"y": _read_npy(path)}
        labels = next((arrays[key] for key in _KEYS["y"] if key in arrays), None)
        if labels is None:
            raise DataError(f"{path} holds {', '.join(sorted(arrays))} and no array called y. Save labels as y.")
    else:
        labels = np.array(_text(path).splitlines(), dtype=str)
    if len(labels) != len(ids):
        raise DataError(
            f"{path} has {len(labels)} labels for {len(ids)} target samples. Give one per sample, in order."
        )
    return labels


def _labels_by_name(path: Path, ids: list[str]) -> np.ndarray:
    rows = csv.DictReader(_text(path).splitlines())
    if not {"path", "label"} <= set(rows.fieldnames or ()):
        raise DataError(
            f"{path} has the columns {', '.join(rows.fieldnames or ()) or '(none)'}; path and label are needed. "
            "The first line must name them."
        )
    by_name = {row["path"]: row["label"] for row in rows}
    missing = [name for name in ids if name not in by_name]
    if missing:
        raise DataError(
            f"{path} has no label for {len(missing)} of {len(ids)} samples, {missing[0]!r} first. "
            "Use the paths of the run's predictions.csv."
        )
    return np.array([by_name[name] for name in ids], dtype=str)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give an .npz file of embeddings.")
    if not path.is_file():
        raise DataError(f"{path} does not exist. Give an .npz file of embeddings.")
    if _begins_with(path, b"\x93NUMPY"):
        raise DataError(f"{path} is a single array. Save it as `numpy.savez(file, x=array)`.")
    if not _begins_with(path, b"PK"):
        raise DataError(f"{path} is not an .npz file. Make one with `numpy.savez(file, x=embeddings, y=labels)`.")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise DataError(_unreadable(path, error)) from None


def _begins_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give a file that is yours to read.") from None


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, EOFError, ValueError) as error:
        raise DataError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: Exception) -> str:
    if "allow_pickle" in str(error):
        return (
            f"{path} holds an object array, which only a pickle could load, and uniot never does. "
            "Save numbers and text: `numpy.savez(file, x=x.astype('float32'), y=y.astype(str))`."
        )
    return f"{path} cannot be read as a NumPy file ({error}). It may be cut off; make it again."


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text ({error}).") from None
