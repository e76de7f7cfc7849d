"""Check the features and domains that users give and convert them to one form; `uniot.io.labels` does labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uniot.errors import DataError
from uniot.io.frames import column_names, frame_values, is_frame, rows_of_frame
from uniot.io.text import listed

# Blocks of this size stay in the processor's cache.
_CHUNK_VALUES = 1 << 18


def as_inputs(values: Any, name: str, *, n_dims: int = 2) -> np.ndarray:
    """Return features or images as a NumPy array of finite numbers.

    Args:
        values: numpy array, torch tensor, data frame of pandas, polars or Arrow, or nested list; any integer or
            floating type.
        name: name of the argument, for error messages.
        n_dims: 2 for embeddings, 3 for grey images.

    Returns:
        Array of shape (n_samples, n_features), or (n_samples, height, width); a view if possible, at least one sample.

    Raises:
        DataError: the values are not numeric, not finite, masked, sparse, empty, or of another number of dimensions.
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.dtype == torch.bfloat16 else values
    if hasattr(values, "toarray") and hasattr(values, "tocsr"):
        raise DataError(f"{name} is a sparse matrix. Give a dense array: `{name}.toarray()`.")
    _refuse_masked(values, name)
    values = frame_values(values, name) if is_frame(values) else values
    _refuse_texts(values, name)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"{name} cannot be read as an array ({error}). Give rows of equal length.") from None
    if array.dtype.kind == "c":
        raise DataError(f"Complex data not supported: {name} has dtype {array.dtype}. Give real numbers.")
    if array.dtype.kind not in "fiub":
        example = array.reshape(-1)[0] if array.size else None
        raise DataError(
            f"{name} has dtype {array.dtype} (first value: {example!r}). Give numbers: select the numeric columns, "
            f"or convert with `.astype(float)`."
        )
    if array.ndim != n_dims:
        expected = "one row per sample and one column per dimension" if n_dims == 2 else "(samples, height, width)"
        raise DataError(f"{name} has shape {array.shape}. Reshape your data: give an array with {expected}.")
    if len(array) and not array[0].size:
        raise DataError(
            f"{name} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required. Give numbers per sample."
        )
    if 0 in array.shape:
        raise DataError(f"{name} has shape {array.shape}, so it is empty. Give at least one sample.")
    if array.dtype.kind == "f":
        check_finite(array, name)
    return array


def _refuse_texts(values: Any, name: str) -> None:
    """Raise a DataError if the samples are texts, which have to be embedded first."""
    is_text = isinstance(values, (list, tuple)) and bool(values) and all(isinstance(value, str) for value in values)
    if is_text or (getattr(getattr(values, "dtype", None), "kind", "") == "U" and getattr(values, "ndim", 0) == 1):
        raise DataError(
            f"{name} holds texts. Embed them first: `from uniot.text.encoder import TextEncoder`, then "
            f"`TextEncoder.open().embed({name})`."
        )


def _refuse_masked(values: Any, name: str) -> None:
    """Raise a DataError if values of a masked array are masked: a plain array would show the values below the mask."""
    if not np.ma.is_masked(values):
        return
    masked = np.argwhere(np.ma.getmaskarray(values))
    where = ", column ".join(str(place) for place in masked[0])
    raise DataError(
        f"{name} is a masked array with {len(masked)} masked values, the first in row {where}. Fill them "
        f"(`{name}.filled(…)`) or leave out their rows: `numpy.ma.getmaskarray({name}).any(axis=1)` finds them."
    )


def check_finite(array: np.ndarray, name: str) -> None:
    """Raise a DataError that names the first value of an array (n_samples, ...) that is NaN or infinite."""
    rows = max(1, _CHUNK_VALUES // max(1, array[0].size))
    for start in range(0, len(array), rows):
        wrong = ~np.isfinite(array[start : start + rows])
        if wrong.any():
            place = np.argwhere(wrong)[0]
            value = array[start : start + rows][tuple(place)]
            where = f"row {start + place[0]}, column {', '.join(str(i) for i in place[1:])}"
            raise DataError(
                f"{name} holds {value} in {where}. Remove or repair rows with NaN or inf first: "
                f"`numpy.isfinite({name}).all(axis=1)` finds them."
            )


def scaled_rows(array: np.ndarray, norm: float, *, centre: np.ndarray | None = None) -> Tensor:
    """Scale each row to the same Euclidean norm; a row of zeros stays zero.

    Args:
        array: finite numbers, (n_samples, n_features), of any numeric type.
        norm: Euclidean norm of the returned rows.
        centre: subtracted from the scaled rows in double precision, (n_features,), so that rows which hardly differ
            still do in float32; nothing if None.

    Returns:
        float32 tensor, (n_samples, n_features).
    """
    scaled = np.empty(array.shape, dtype=np.float32)
    rows = max(1, _CHUNK_VALUES // array.shape[1])
    for start in range(0, len(array), rows):
        part = array[start : start + rows].astype(np.float64, order="C")
        # Division by the largest value keeps the squares of huge and of tiny values in range.
        largest = np.abs(part).max(axis=1, keepdims=True)
        part /= np.where(largest > 0, largest, 1)
        length = np.sqrt((part * part).sum(axis=1, keepdims=True))
        part *= norm / np.where(length > 0, length, 1)
        scaled[start : start + rows] = part if centre is None else part - centre
    return torch.from_numpy(scaled)


def unit_directions(rows: Tensor) -> Tensor:
    """Scale each row to unit norm; rows that have unit norm already are returned unchanged, to the last bit.

    Args:
        rows: (n_samples, n_features).

    Returns:
        Unit rows, (n_samples, n_features). A row of zeros, which has no direction, becomes the first unit vector.
    """
    length = rows.norm(dim=1, keepdim=True)
    near_one = (length - 1).abs() < 1e-5
    first_axis = (torch.arange(rows.shape[1]) == 0).to(rows.dtype)
    unit = torch.where(length > 0, rows / length.clamp_min(1e-30), first_axis)
    return torch.where(near_one, rows, unit)


def unit_rows(rows: Tensor) -> np.ndarray:
    """Return `unit_directions` of rows on the CPU as an array, (n_samples, n_features)."""
    return np.asarray(unit_directions(rows).numpy())


def target_rows(sample_domain: Any, n_rows: int) -> np.ndarray:
    """Return which rows belong to the target, bool (n_rows,): those with a negative domain, as in skada.

    Args:
        sample_domain: domain of each row, (n_rows,): negative for the target, positive for the source.
        n_rows: number of rows of X.

    Raises:
        DataError: `sample_domain` is not one finite number per row, or no row belongs to the target.
    """
    _refuse_masked(sample_domain, "sample_domain")
    domain = np.asarray(sample_domain)
    if domain.shape != (n_rows,) or domain.dtype.kind not in "iuf" or not np.isfinite(domain).all():
        raise DataError(
            f"sample_domain has shape {domain.shape} and dtype {domain.dtype} for {n_rows} rows of X. "
            "Give one number per row: negative for the target, the others for the source."
        )
    rows: np.ndarray = domain < 0
    if not rows.any():
        raise DataError("sample_domain marks no row as target. Give the target's rows a negative number, such as -2.")
    return rows


def by_domain(X: Any, y: Any, sample_domain: Any) -> tuple[Any, Any, Any]:
    """Split samples of both domains, as skada gives them, into source and target.

    Args:
        X: samples of both domains, (n_rows, ...).
        y: labels, (n_rows,); those of the target are ignored.
        sample_domain: domain of each row, (n_rows,): negative for the target, positive for the source.

    Returns:
        Source rows, source labels, and target rows, each of the type in which it came.
    """
    n_rows = len(X)
    target = target_rows(sample_domain, n_rows)
    if target.all():
        raise DataError("sample_domain marks every row as target. Give the source's rows a positive number, such as 1.")
    if y is None or len(y) != n_rows:
        given = "no labels" if y is None else f"{len(y)} labels"
        raise DataError(f"y has {given} for {n_rows} rows of X. Give one per row; those of the target may be anything.")
    return rows_of(X, ~target), rows_of(y, ~target), rows_of(X, target)


def feature_names(X: Any) -> np.ndarray | None:
    """Return the column names of a data frame if all are text, (n_features,) of objects; None otherwise."""
    if not is_frame(X):
        return None
    columns = column_names(X)
    return np.array(columns, dtype=object) if all(isinstance(name, str) for name in columns) else None


def check_feature_names(X: Any, fitted: np.ndarray | None, name: str) -> None:
    """Raise a DataError if the columns of a data frame are not those of the fit; frames without names are not checked.

    Args:
        X: samples, (n_samples, n_features).
        fitted: column names of the fit, (n_features,); None if it had none.
        name: name of the argument, for error messages.
    """
    names = feature_names(X)
    if names is None or fitted is None or names.tolist() == fitted.tolist():
        return
    unseen, missing = (sorted(set(one) - set(other)) for one, other in ((names, fitted), (fitted, names)))
    parts = ["The feature names should match those that were passed during fit.\n"]
    for words, wrong in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
        if wrong:
            shown = [listed([feature]) for feature in wrong[:5]]
            more = [f"… and {len(wrong) - 5:,} more"] if len(wrong) > 5 else []
            parts.append("\n- ".join([f"Feature names {words}:", *shown, *more]) + "\n")
    if not unseen and not missing:
        parts.append("Feature names must be in the same order as they were in fit.\n")
    raise DataError("".join(parts) + f"Give {name} with the columns of the fit, in their order.")


def rows_of(values: Any, rows: np.ndarray) -> Any:
    """Return the rows of an array, a tensor, a data frame or a list that a mask (n_rows,) selects."""
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if is_frame(values):
        return rows_of_frame(values, np.flatnonzero(rows).tolist())
    if not hasattr(values, "shape") and hasattr(values, "to_numpy"):  # a column of Arrow
        return values.to_numpy()[rows]
    if hasattr(values, "filter") and hasattr(values, "to_numpy"):  # a series of polars
        return values.filter(rows)
    if hasattr(values, "shape"):
        return values[rows]
    # Not converted to an array first, in which a single text label would turn all numbers into text.
    return [values[row] for row in np.flatnonzero(rows)]


def blocks_of(rows: Tensor, size: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows, (n_rows, n_columns), in blocks of one size, each with its place among the rows.

    The last block is filled up with zeros. If there are no rows, there is one block of zeros.
    """
    for start in range(0, max(len(rows), 1), size):
        block = rows[start : start + size]
        yield slice(start, start + len(block)), torch.cat([block, block.new_zeros(size - len(block), rows.shape[1])])


def in_blocks(function: Callable[[Tensor], Tensor], rows: Tensor, size: int) -> Tensor:
    """Apply a function to rows in blocks of one size, which makes the result independent of the batch composition.

    Args:
        function: maps `size` rows to as many.
        rows: (n_rows, n_columns); the last block is filled up with zeros.
        size: number of rows of a block.

    Returns:
        The results of all rows, (n_rows, …).
    """
    results: Tensor | None = None
    for place, block in blocks_of(rows, size):
        found = function(block)[: place.stop - place.start]
        if results is None:
            # One allocation: small results between large temporary tensors would fragment the memory.
            results = found.new_empty(len(rows), *found.shape[1:])
        results[place] = found
    assert results is not None
    return results
