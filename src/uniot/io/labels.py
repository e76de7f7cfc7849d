"""Check class labels and convert them to one form: an array of text or of 64-bit integers."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from uniot.errors import DataError
from uniot.io.frames import is_frame, only_column

# An array of text takes as much memory for each label as for the longest: four bytes per letter, here a gigabyte.
_MOST_LETTERS = 1 << 28
# Letters of the class names of a file, which may come from anybody.
_MOST_LETTERS_OF_CLASSES = 1 << 26
# What a missing value becomes when pandas or NumPy convert labels to text, in lower case.
_MISSING = frozenset({"", "nan", "nat", "<na>"})
_INT64 = np.iinfo(np.int64)


def as_labels(values: Any, name: str, *, allow_blank: bool = False) -> np.ndarray:
    """Return class labels as one array of text or of integers.

    Args:
        values: list, array, tensor or column of a data frame with text, bytes in UTF-8, whole numbers (also as floats)
            or booleans, which become 0 and 1, (n_samples,).
        name: name of the argument, for error messages.
        allow_blank: whether blank text and `nan` are labels as others are, such as the group of a sample without one.

    Returns:
        Labels, (n_samples,), of type str or int64.

    Raises:
        DataError: labels are missing, fractional, too large or too long, of several types, or not one-dimensional.
    """
    if values is None:
        raise DataError(f"{name} requires y to be passed, but the target y is None. Give one label per sample.")
    array = _as_array(values, name)
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}. Give one label per sample, as a flat list.")
    if array.dtype.kind == "O":
        array = _of_one_type(array, name)
    if array.dtype.kind == "S":
        array = _decoded(array, name)
    if array.dtype.kind == "U":
        if not allow_blank:
            _check_text(array, name)
        return array
    if array.dtype.kind not in "iufb":
        raise DataError(f"{name} has dtype {array.dtype}. Give text or whole numbers.")
    return _whole_numbers(array, name)


def class_names_problem(names: Sequence[str | int]) -> str | None:
    """Return a phrase about what is wrong with the class names of a file; None if nothing is."""
    if len(set(names)) < len(names):
        return "gives two classes the same name"
    longest = max((len(name) for name in names if isinstance(name, str)), default=1)
    if len(names) * longest > _MOST_LETTERS_OF_CLASSES:
        return f"has {len(names)} class names of up to {longest} letters, which exceeds the limit"
    return None


def _as_array(values: Any, name: str) -> np.ndarray:
    """Return values as an array, the elements of a list as objects."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16; double represents every number of the other types.
        values = values.double() if values.is_floating_point() else values
    if is_frame(values):
        values = only_column(values, name)
    if type(values).__module__.partition(".")[0] in ("polars", "pyarrow"):
        # As a list, whose elements keep their types and of which a missing one is None.
        values = values.to_list() if hasattr(values, "to_list") else values.to_pylist()
    if isinstance(values, (list, tuple, Set)):
        # As objects, elements keep their types; NumPy would convert ["a", 1] and ["a", nan] to text.
        values = np.array([_scalar(value) for value in values], dtype=object)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be read as one label per sample ({error}). Give a flat list.") from None
    if isinstance(values, np.ma.MaskedArray):
        _refuse_missing(np.flatnonzero(np.ma.getmaskarray(values)), "masked", array.size, name)
    return array


def _scalar(value: Any) -> Any:
    """Return a number or text for an array or tensor without dimensions; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _of_one_type(array: np.ndarray, name: str) -> np.ndarray:
    """Return objects as an array of text, bytes or numbers."""
    values = [_scalar(value) for value in array.tolist()]
    missing = [row for row, value in enumerate(values) if _is_missing(value)]
    _refuse_missing(missing, repr(values[missing[0]]) if missing else "", len(values), name)
    kinds = {type(value) for value in values}
    if not kinds:
        return array.astype(np.int64)
    if all(issubclass(kind, str) for kind in kinds) or kinds == {bytes}:
        longest = max(map(len, values))
        if longest * len(values) > _MOST_LETTERS:
            raise DataError(
                f"{name} has a label of {longest} letters, and each of its {len(values)} rows would take that much "
                "memory. Shorten the label."
            )
        # NumPy drops NUL characters at the end of a text, which would make two classes one.
        nul = b"\0" if kinds == {bytes} else "\0"
        wrong = next((row for row, value in enumerate(values) if nul in value), None)
        if wrong is not None:
            raise DataError(
                f"{name} holds a NUL character in row {wrong}, {values[wrong]!r}. Remove it from the label."
            )
        return np.array(values)
    if kinds == {bool}:
        return np.array(values, dtype=bool)
    if all(issubclass(kind, int) and kind is not bool for kind in kinds):
        wrong = next((row for row, value in enumerate(values) if not _INT64.min <= value <= _INT64.max), None)
        if wrong is not None:
            raise DataError(_beyond_64_bits(name, wrong, values[wrong]))
        return np.array(values, dtype=np.int64)
    if all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds):
        return np.array(values, dtype=np.float64)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    held = f"mixes {names}" if len(kinds) > 1 else f"holds objects of the type {names}"
    raise DataError(f"{name} {held}. Give all labels as text, or all as whole numbers, none missing.")


def _is_missing(value: Any) -> bool:
    """Whether an object stands for a missing value: None, NaN, NaT or NA of pandas, or an element that is masked."""
    if value is None or value is np.ma.masked:
        return True
    if isinstance(value, float):
        return math.isnan(value)
    # Neither NaT nor NA can be compared without pandas, which is not needed otherwise.
    return type(value).__name__ in ("NAType", "NaTType")


def _refuse_missing(rows: Sequence[int] | np.ndarray, found: str, n_rows: int, name: str) -> None:
    """Raise a DataError if any row has no label."""
    if len(rows):
        raise DataError(
            f"{name} has no label in {len(rows)} of {n_rows} rows, the first is row {rows[0]} ({found}). "
            "Leave out samples without a label, or label them."
        )


def _decoded(array: np.ndarray, name: str) -> np.ndarray:
    try:
        return np.asarray(np.char.decode(array, "utf-8"))
    except UnicodeDecodeError as error:
        row = array.tolist().index(error.object)
        raise DataError(
            f"{name} holds bytes in row {row} that are not UTF-8 ({error.object[:40]!r}, {error.reason}). Decode the "
            "labels first, such as with `numpy.char.decode(labels, 'latin-1')`."
        ) from None


def _check_text(array: np.ndarray, name: str) -> None:
    """Raise a DataError if a label is blank or the text of a missing value."""
    # A set of the labels is found much faster than each is stripped.
    missing = [text for text in set(array.tolist()) if text.strip().lower() in _MISSING]
    if missing:
        rows = np.flatnonzero(np.isin(array, missing))
        _refuse_missing(rows, repr(str(array[rows[0]])), len(array), name)


def _whole_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """Return numbers as int64; raise a DataError if that would change one of them."""
    if array.dtype.kind == "f":
        _refuse_missing(np.flatnonzero(np.isnan(array)), "nan", len(array), name)
        wrong = np.flatnonzero(array != np.floor(array))
        if len(wrong) or np.isinf(array).any():
            row = wrong[0] if len(wrong) else np.flatnonzero(np.isinf(array))[0]
            raise DataError(
                f"{name} holds {array[row]} in row {row}. Give text or whole numbers, not continuous values."
            )
        # Above this, different whole numbers become the same float.
        most = 2.0 ** min(np.finfo(array.dtype).nmant + 1, 63)
        large = np.flatnonzero(np.abs(array) > most)
        if len(large):
            raise DataError(
                f"{name} holds {array[large[0]]:g} in row {large[0]}, and {array.dtype} represents whole numbers only "
                f"up to {most:.0f}. Give labels as text or as integers."
            )
    elif array.dtype.kind == "u":
        large = np.flatnonzero(array > _INT64.max)
        if len(large):
            raise DataError(_beyond_64_bits(name, int(large[0]), int(array[large[0]])))
    return array.astype(np.int64)


def _beyond_64_bits(name: str, row: int, value: int) -> str:
    shown = str(value) if value.bit_length() < 200 else f"{value.bit_length()} bits"
    return f"{name} holds an integer beyond 64 bits in row {row}, {shown}. Give labels as text instead."
