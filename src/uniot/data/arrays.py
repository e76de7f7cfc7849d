"""Arrays as they come from users, checked and brought to one form."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError

# Few enough to stay in a processor's cache.
_CHUNK_VALUES = 1 << 18


def as_inputs(values: Any, name: str, *, n_dims: int = 2) -> np.ndarray:
    """A numeric array of finite numbers with at least one row.

    Args:
        values: numpy array, torch tensor, DataFrame or nested list; any integer or floating type.
        name: what the user calls it, for the message.
        n_dims: 2 for embeddings, 3 for grey images (n, height, width).
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
    if hasattr(values, "toarray") and hasattr(values, "tocsr"):
        raise DataError(f"{name} is a sparse matrix. Give a dense array: `{name}.toarray()`.")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{name} cannot be read as an array ({error}). Give rows of equal length.") from None
    if array.dtype.kind not in "fiub":
        example = array.reshape(-1)[0] if array.size else None
        raise DataError(
            f"{name} has dtype {array.dtype} (first value: {example!r}). Give numbers: select the numeric columns, "
            f"or convert with `.astype(float)`."
        )
    if array.ndim != n_dims:
        expected = "one row per sample and one column per dimension" if n_dims == 2 else "(samples, height, width)"
        raise DataError(f"{name} has shape {array.shape}. Give an array with {expected}.")
    if 0 in array.shape:
        raise DataError(f"{name} has shape {array.shape}, so there is nothing in it. Give at least one sample.")
    if array.dtype.kind == "f":
        _check_finite(array, name)
    return array


def _check_finite(array: np.ndarray, name: str) -> None:
    rows = max(1, _CHUNK_VALUES // max(1, array[0].size))
    for start in range(0, len(array), rows):
        wrong = ~np.isfinite(array[start : start + rows])
        if wrong.any():
            place = np.argwhere(wrong)[0]
            value = array[start : start + rows][tuple(place)]
            where = f"row {start + place[0]}, column {', '.join(str(i) for i in place[1:])}"
            raise DataError(
                f"{name} holds {value} in {where}. Remove such rows or repair them first: "
                f"`numpy.isfinite({name}).all(axis=1)` finds them."
            )


def scaled_rows(array: np.ndarray, norm: float) -> Tensor:
    """Rows of `array` (n, d) brought to one Euclidean norm, float32; a row of zeros stays as it is.

    Whatever common or individual scale the rows came in is gone afterwards.
    """
    scaled = np.empty(array.shape, dtype=np.float32)
    rows = max(1, _CHUNK_VALUES // array.shape[1])
    for start in range(0, len(array), rows):
        part = array[start : start + rows].astype(np.float64)
        # Dividing by the largest value first keeps squares of huge and of tiny values in range.
        largest = np.abs(part).max(axis=1, keepdims=True)
        part /= np.where(largest > 0, largest, 1)
        length = np.sqrt((part * part).sum(axis=1, keepdims=True))
        scaled[start : start + rows] = part * (norm / np.where(length > 0, length, 1))
    return torch.from_numpy(scaled)


def as_labels(values: Any, name: str) -> np.ndarray:
    """Class labels as an array of str or of int64; mixtures and missing labels are refused."""
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}. Give one label per sample, as a flat list.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        kinds = {type(value) for value in array}
        if kinds and all(issubclass(kind, str) for kind in kinds):
            array = array.astype(str)
        elif kinds and all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
            array = array.astype(np.int64)
        else:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise DataError(f"{name} mixes {names}. Give all labels as text, or all as whole numbers, none missing.")
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(~np.isfinite(array) | (array != np.floor(array)))
        if len(wrong):
            raise DataError(f"{name} holds {array[wrong[0]]} in row {wrong[0]}. Give text or whole numbers.")
    if array.dtype.kind not in "Uiufb":
        raise DataError(f"{name} has dtype {array.dtype}. Give text or whole numbers.")
    return array if array.dtype.kind == "U" else array.astype(np.int64)


def is_row_of(rows: Tensor, others: Tensor) -> np.ndarray:
    """Whether each row (n, …) is among the others (m, …), bit by bit, (n,)."""
    present = set(_digests(others))
    return np.array([digest in present for digest in _digests(rows)], dtype=bool)


def _digests(rows: Tensor) -> Iterator[bytes]:
    return (hashlib.blake2b(row.data, digest_size=16).digest() for row in rows.contiguous().numpy())
