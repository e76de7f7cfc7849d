"""Rows of both domains in one array, told apart by the sign of a number beside each, as skada has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from uniot.errors import DataError


def target_rows(sample_domain: Any, n_rows: int) -> np.ndarray:
    """Which rows are the target, (n,), bool: those with a negative number, as skada has it."""
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
    """Source rows, their labels, and target rows. The labels of the target are never looked at."""
    n_rows = len(X)
    target = target_rows(sample_domain, n_rows)
    if target.all():
        raise DataError("sample_domain marks every row as target. Give the source's rows a positive number, such as 1.")
    if y is None or len(y) != n_rows:
        given = "no labels" if y is None else f"{len(y)} labels"
        raise DataError(f"y has {given} for {n_rows} rows of X. Give one per row; those of the target may be anything.")
    return rows_of(X, ~target), rows_of(y, ~target), rows_of(X, target)


def rows_of(values: Any, rows: np.ndarray) -> Any:
    """Rows of an array, a tensor, a data frame or a list."""
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if hasattr(values, "shape"):
        return values[rows]
    # Not by way of an array: there, one label of text would turn all numbers into text.
    return [values[row] for row in np.flatnonzero(rows)]
