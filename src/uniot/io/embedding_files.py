"""Read and write files of embeddings, with labels and sample names; nothing in a file is ever executed.

The tables of readers and writers below list the supported kinds of file; a new kind is one more entry there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from uniot.errors import DataError
from uniot.io.array_files import (
    FileContent,
    label_bytes,
    not_enough_memory,
    read_npy,
    read_npz,
    read_safetensors,
    write_npy,
    write_npz,
    write_safetensors,
)
from uniot.io.arrays import as_inputs
from uniot.io.columns import KEYS, Columns
from uniot.io.labels import as_labels
from uniot.io.shards import is_shard_folder, read_shards
from uniot.io.table_files import read_csv, read_parquet, write_csv, write_parquet
from uniot.io.text import as_utf8, listed, text_lines

Replacing = Callable[[Path], AbstractContextManager[Path]]

_READERS: dict[str, Callable[[Path, bool, Columns], FileContent]] = {
    ".npz": read_npz,
    ".npy": read_npy,
    ".parquet": read_parquet,
    ".safetensors": read_safetensors,
    ".csv": read_csv,
    ".tsv": read_csv,
}
_WRITERS: dict[
    str, Callable[[Path, np.ndarray, np.ndarray | None, Sequence[str] | None, Mapping[str, Sequence[str]]], None]
] = {
    ".npz": write_npz,
    ".npy": write_npy,
    ".parquet": write_parquet,
    ".safetensors": write_safetensors,
}
WRITTEN_SUFFIXES = tuple(_WRITERS)
"""Suffixes of the files that `write_embeddings` writes."""
_USUAL = Columns()
_MOST_PADDED_LETTERS, _MOST_HEADER_LETTERS = 1 << 27, 1 << 23
_NO_LABELS = (
    "Give the true labels as an .npz with y, an .npy of labels, a .csv with the columns path and label, or a text file "
    "with one label per line."
)


@dataclass(frozen=True)
class EmbeddingFile:
    """Embeddings of a file.

    Attributes:
        x: embeddings, (n_samples, n_features).
        y: labels, (n_samples,); None if the file has none.
        ids: sample names, (n_samples,); None if the file has none.
        feature_names: names of the columns of a table, (n_features,); None if the file has none.
        shown: what a person sees of each sample, (n_samples,); None if no column was chosen or the file lacks it.
        left_out: columns of a table that are neither numbers nor labels, names or what is shown.
    """

    x: np.ndarray
    y: np.ndarray | None
    ids: list[str] | None
    feature_names: tuple[str, ...] | None = None
    shown: list[str] | None = None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextFile:
    """Texts of a file.

    Attributes:
        texts: cut to ten thousand letters each, (n_samples,).
        y: labels, (n_samples,); None if the file has none.
        ids: sample names, (n_samples,); None if the file has none.
        shown: what a person sees of each sample, (n_samples,); None if no column was chosen or the file lacks it.
    """

    texts: list[str]
    y: np.ndarray | None
    ids: list[str] | None
    shown: list[str] | None = None


def read_embeddings(path: Path, table: Path | None = None, columns: Columns = _USUAL) -> EmbeddingFile:
    """Read embeddings and, if the file has them, labels and sample names.

    Args:
        path: a file of one of these kinds.
            .npz: arrays `x`, `y`, `ids`.
            .npy: the embeddings, read from disk as needed; labels and names in a .csv of the same name beside it.
            .parquet: a list column `x` or, without one, every numeric column; columns `label` and `path`.
            .safetensors: tensors `x` and, as integers, `y`; metadata `classes` and `ids`, each a JSON list.
            .csv, .tsv: column names in the first line; columns `label` and `path`, and numbers in all others, or a
                column `x` with a list of numbers per cell.
            a folder of .parquet files: their rows in the order of the file names.
        table: a .csv with the columns path, label or both, in the order of the rows; overrides those of `path`.
        columns: columns of the labels, the names and what is shown, if they are not called as above.

    Returns:
        The embeddings, labels and sample names.

    Raises:
        DataError: the file is missing, damaged or of another kind, or has labels or names for some rows only.
    """
    content = _read(path, with_x=True, table=table, columns=columns)
    x = content.x
    if x is None or x.ndim == 0:
        raise DataError(f"{path} holds a single number. Give one row of numbers per sample.")
    for what, values in (("labels", content.y), ("ids", content.ids), ("texts to show", content.shown)):
        if values is not None and len(values) != len(x):
            raise DataError(f"{path} has {len(values)} {what} for {len(x)} rows of x. Give one per row, or none.")
    has_names = x.ndim == 2 and len(content.columns) == x.shape[1] and content.columns[0] not in KEYS["x"]
    names = content.columns if has_names else None
    return EmbeddingFile(x, content.y, content.ids, names, content.shown, content.left_out)


def read_texts(path: Path, columns: Columns) -> TextFile:
    """Read a column of texts and, if the file has them, labels and sample names.

    Args:
        path: a file as for `read_embeddings`; embeddings in it are not read.
        columns: the column of the texts, and others if they are not called as for `read_embeddings`.

    Raises:
        DataError: the file cannot be read, has no such column, or all of its texts are empty.
    """
    content = _read(path, with_x=False, columns=replace(columns, needed=columns.needed | {"text"}))
    texts = content.texts or []
    if not any(text.strip() for text in texts):
        what = f"{len(texts)} empty texts" if texts else "no rows"
        raise DataError(f"{path} has {what} in the column {columns.text!r}. Give a text per row.")
    for what, values in (("labels", content.y), ("ids", content.ids), ("texts to show", content.shown)):
        if values is not None and len(values) != len(texts):
            raise DataError(f"{path} has {len(values)} {what} for {len(texts)} texts. Give one per text, or none.")
    return TextFile(texts, content.y, content.ids, content.shown)


def read_labels(path: Path, ids: list[str], columns: Columns = _USUAL) -> np.ndarray:
    """Read the label of each sample.

    Args:
        path: any file that `read_embeddings` reads, with or without embeddings; an .npy of labels; or a text file
            with one label per line. If the file names its samples, labels are matched by name, otherwise by order.
        ids: sample names, as in predictions.csv, (n_samples,).
        columns: columns of the labels and the names, if they are not called label and path.

    Returns:
        Labels in the order of `ids`, (n_samples,).

    Raises:
        DataError: the file cannot be read, or has no label for a sample.
    """
    if not path.is_file() and not is_shard_folder(path):
        raise DataError(f"{path} does not exist. Give a file with the true label of every target sample.")
    if path.is_dir() or path.suffix.lower() in _READERS:
        content = _read(path, with_x=False, columns=columns)
    else:
        content = FileContent(y=_text_labels(path))
    labels, names = content.y, content.ids
    if labels is None:
        raise DataError(
            f"{path} holds no labels. Save them as y, or in a column called label, or name the column with --label."
        )
    if names is not None and len(names) != len(labels):
        raise DataError(f"{path} has {len(names)} ids for {len(labels)} labels. Give one per label, or none.")
    if names is None or names == ids or _only_numbered(ids, names):
        if len(labels) != len(ids):
            raise DataError(
                f"{path} has {len(labels)} labels for {len(ids)} target samples. Give one per sample, in order."
            )
        return np.array(labels)
    return _labels_by_name(path, labels, names, ids)


def storable_texts(path: Path, texts: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], int | None]:
    """Return columns of texts as a file stores them, and the number of letters that they are cut to, None for all.

    Columns get other names if they are called as embeddings, labels or sample names. NumPy pads each text to the
    longest, and the metadata of a .safetensors file is short.

    Args:
        path: the file.
        texts: columns by their names, (n_samples,) each.
    """
    taken = {name for names in KEYS.values() for name in names}
    named = {f"{name}_text" if name in taken else name: list(values) for name, values in texts.items()}
    n_texts = sum(map(len, named.values()))
    longest = max((len(text) for values in named.values() for text in values), default=0)
    most = {".npz": _MOST_PADDED_LETTERS, ".safetensors": _MOST_HEADER_LETTERS}.get(path.suffix.lower())
    if most is None or longest * n_texts <= most:
        return named, None
    cut = max(1, most // n_texts)
    return {name: [text[:cut] for text in values] for name, values in named.items()}, cut


def write_embeddings(
    path: Path,
    x: np.ndarray,
    y: np.ndarray | None = None,
    ids: Sequence[str] | None = None,
    *,
    texts: Mapping[str, Sequence[str]] | None = None,
    replacing: Replacing,
) -> None:
    """Write embeddings to a file that `read_embeddings` reads.

    Labels and names of an .npy go into a .csv beside it, from which integer labels are read back as text.

    Args:
        path: the file; its suffix (.npz, .npy, .parquet or .safetensors) decides the kind.
        x: embeddings, (n_samples, n_features).
        y: labels, (n_samples,), text or whole numbers.
        ids: sample names, (n_samples,). Bytes of a name that are not UTF-8 are written as in `uniot.io.text.as_utf8`.
        texts: further columns of texts by their names, (n_samples,) each.
        replacing: returns a temporary path for a final one, and renames it afterwards: `uniot.io.files.replacing`.

    Raises:
        DataError: the suffix is unknown, the numbers of rows differ, or a number is not finite.
    """
    kind = path.suffix.lower()
    if kind not in _WRITERS:
        raise DataError(f"{path} ends with {kind!r}. Embeddings are written to {listed(_WRITERS)} files.")
    x = as_inputs(x, "x")
    y = None if y is None else as_labels(y, "y")
    texts = {name: [as_utf8(text) for text in values] for name, values in (texts or {}).items()}
    for what, values in (("labels", y), ("ids", ids), *texts.items()):
        if values is not None and len(values) != len(x):
            raise DataError(f"there are {len(values)} {what} for {len(x)} rows of x. Give one per row, or none.")
    beside = path.with_suffix(".csv") if kind == ".npy" else None
    has_table = y is not None or ids is not None or bool(texts)
    if beside is not None and not has_table and beside.exists():
        raise DataError(
            f"{beside} belongs to other embeddings and would be read as the labels of {path}. "
            "Remove it, or give another name."
        )
    with ExitStack() as files:
        _WRITERS[kind](files.enter_context(replacing(path)), x, y, ids, texts)
        if beside is not None and has_table:
            write_csv(files.enter_context(replacing(beside)), y, ids, texts)


def _read(path: Path, *, with_x: bool, table: Path | None = None, columns: Columns = _USUAL) -> FileContent:
    kind = path.suffix.lower()
    if path.is_dir() and not is_shard_folder(path):
        raise DataError(
            f"{path} is a folder, and not one of .parquet files alone. Give a file of embeddings: {listed(_READERS)}; "
            "or such a folder."
        )
    if not path.is_dir() and not path.is_file():
        raise DataError(f"{path} does not exist. Give a file of embeddings: {listed(_READERS)}.")
    if path.is_file() and kind not in _READERS:
        raise DataError(f"{path} ends with {kind!r}. Embeddings are read from {listed(_READERS)} files.")
    try:
        content = (read_shards if path.is_dir() else _READERS[kind])(path, with_x, columns)
    except MemoryError as error:
        raise DataError(not_enough_memory(path, error)) from None
    if path.is_dir():
        return content
    beside = path.with_suffix(".csv")
    if table is None and kind == ".npy" and content.y is None and beside.is_file():
        table = beside
    if table is None:
        return content
    named = read_csv(table, False, columns)
    y, ids = content.y if named.y is None else named.y, content.ids if named.ids is None else named.ids
    return FileContent(content.x, y, ids, content.columns, named.shown, named.texts)


def _text_labels(path: Path) -> np.ndarray:
    """Return the lines of a text file as labels."""
    labels: list[str] = []
    n_letters = longest = 0
    for _, text in text_lines(path, _NO_LABELS):
        # Other characters than a line feed may end a line too.
        for label in text.splitlines():
            labels.append(label)
            n_letters += len(label)
            longest = max(longest, len(label))
    label_bytes(path, len(labels), longest, n_letters)
    return np.array(labels, dtype=str)


def _labels_by_name(path: Path, labels: np.ndarray, names: list[str], ids: list[str]) -> np.ndarray:
    row_of: dict[str, int] = {}
    for row, name in enumerate(names):
        if labels[row_of.setdefault(name, row)] != labels[row]:
            raise DataError(f"{path} names {name!r} twice, with two labels. Give each sample a name of its own.")
    missing = [name for name in ids if name not in row_of]
    if missing:
        raise DataError(
            f"{path} has no label for {len(missing)} of {len(ids)} samples, the first is {missing[0]!r}. "
            "Use the paths of the run's predictions.csv."
        )
    return np.array(labels[[row_of[name] for name in ids]])


def _only_numbered(ids: list[str], names: list[str]) -> bool:
    """Whether the run only numbered its samples while the label file names them: then the order decides."""
    return ids == [str(row) for row in range(len(ids))] and not set(ids) <= set(names)
