"""What a caller may hand in (lists, arrays, tensors) made into one checked array."""

from __future__ import annotations

from collections.abc import Collection, Set
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uniot.errors import DataError

UNKNOWN = "unknown"
"""The word for a private row; -1 stands for it where classes are integers."""

Label: TypeAlias = str | int
Labels: TypeAlias = "ArrayLike | Collection[str] | Collection[int]"
LabelArray: TypeAlias = "NDArray[np.str_] | NDArray[np.int64]"
Mask: TypeAlias = NDArray[np.bool_]


def read_labels(values: Labels, name: str) -> LabelArray:
    """One label per row, all text or all integers, shape (n,)."""
    raw = _vector(values, name, as_objects=True)
    if raw.dtype.kind == "O":
        kinds = {kind: _kind_of(kind) for kind in {type(value) for value in raw}}
    else:
        kinds = {raw.dtype.type: {"U": "text", "T": "text", "i": "integer", "u": "integer"}.get(raw.dtype.kind)}
    if len(set(kinds.values())) != 1 or None in kinds.values():
        found = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(
            f"{name} must be all text or all integers, but holds {found}. "
            "Give one kind of label; with integer classes, write -1 instead of 'unknown'."
        )
    if "text" in kinds.values():
        return raw.astype(np.str_)
    try:
        return np.asarray(raw.tolist(), dtype=np.int64)
    except OverflowError as cause:
        raise DataError(f"{name} holds an integer beyond 64 bits. Give labels as text instead.") from cause


def same_kind(labels: LabelArray, name: str, other: LabelArray, other_name: str) -> None:
    """Refuse text beside integers: no label of one can equal a label of the other."""
    if labels.dtype.kind != other.dtype.kind:
        words = {"U": "text", "i": "integers"}
        raise DataError(
            f"{name} holds {words[labels.dtype.kind]}, {other_name} holds {words[other.dtype.kind]}. "
            "Give both as class names or both as integers (-1 for unknown)."
        )


def same_length(n: int, name: str, n_other: int, other_name: str) -> None:
    """Refuse two arrays that cannot describe the same rows."""
    if n != n_other:
        raise DataError(
            f"{name} has {n} rows, {other_name} has {n_other}. Give both for the same target rows, in the same order."
        )


def read_score(values: ArrayLike, name: str = "known_score") -> NDArray[np.float64]:
    """One number per row, larger for more surely common, shape (n,); infinity is allowed, NaN is not."""
    raw = _vector(values, name)
    if raw.dtype.kind not in "fiub":
        raise DataError(f"{name} must be numbers, but is {raw.dtype}. Give one number per row.")
    numbers = raw.astype(np.float64)
    broken = np.flatnonzero(np.isnan(numbers))
    if broken.size:
        raise DataError(
            f"{broken.size} of {len(numbers)} values of {name} are NaN (first: row {broken[0]}). "
            "Give every row a number; infinity is allowed."
        )
    return numbers


def read_mask(values: ArrayLike, name: str) -> Mask:
    """One yes or no per row (bool, or 0 and 1), shape (n,)."""
    raw = _vector(values, name)
    if raw.dtype.kind not in "biuf" or not np.isin(raw, (0, 1)).all():
        raise DataError(f"{name} must be true or false for each row, but holds other values. Give bool, 0 or 1.")
    return raw.astype(np.bool_)


def _vector(values: Any, name: str, *, as_objects: bool = False) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values
    if isinstance(values, Set):
        values = list(values)
    # NumPy would turn ["a", 1] into text without a word; as objects, each element keeps its type.
    as_objects = as_objects and isinstance(values, (list, tuple))
    try:
        raw = np.asarray(values, dtype=object if as_objects else None)
    except (TypeError, ValueError) as cause:
        raise DataError(f"{name} must be one flat list, one value per row: {cause}.") from cause
    if raw.ndim != 1:
        raise DataError(
            f"{name} must be one flat list, one value per row, but has shape {raw.shape}. "
            "Give one value per row (a class, not scores or one-hot rows)."
        )
    if not raw.size:
        raise DataError(f"{name} is empty. Give at least one row.")
    return raw


def _kind_of(kind: type) -> str | None:
    if issubclass(kind, str):
        return "text"
    # bool is an integer for Python, but True as a class is most likely a mask given by mistake.
    return "integer" if kind is not bool and issubclass(kind, Integral) else None
