"""A wrong number is named before it spreads."""

from __future__ import annotations

import torch
from torch import Tensor

from uniot.errors import DataError


def check_finite(values: Tensor, name: str, first: int = 0, stride: int = 1) -> None:
    """Raises a `DataError` that names the first row and column of `values` (n, d) that is NaN or infinite.

    Args:
        values: every `stride`-th row of a matrix, from row `first` on.
        name: what the matrix is called.
        first: number of the first row.
        stride: between two rows.
    """
    # One NaN or infinity makes the sum one, and a sum costs a fraction of an element-wise test.
    if bool(torch.isfinite(values.sum())):
        return
    wrong = (~torch.isfinite(values)).nonzero()
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise DataError(
            f"{name} holds {float(values[row, column])} in row {first + stride * row}, column {column}, "
            f"one of {len(wrong)} such values. Remove or repair them first."
        )
