"""Data frames and series of pandas, polars and Arrow, read through one door: narwhals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from uniot.errors import DataError, import_optional
from uniot.io.text import counted, listed


def is_frame(values: Any) -> bool:
    """Return whether values are a data frame or table of pandas, polars, Arrow or another library that narwhals reads.

    Nothing is imported for anything else: each of these libraries is there already if the values are its own.
    """
    module = type(values).__module__.partition(".")[0]
    if module in ("numpy", "torch") or isinstance(values, (list, tuple)) or not hasattr(values, "shape"):
        return False
    dependencies = import_optional("narwhals.dependencies", "", "reading a data frame")
    return bool(dependencies.is_into_dataframe(values))


def column_names(frame: Any) -> list[Any]:
    """Return the names of the columns of a data frame, (n_columns,); those of pandas need not be text."""
    names = getattr(frame, "column_names", None)
    if names is None:
        return list(frame.columns)
    # pandas writes the index of its rows as a column of an Arrow table.
    return [name for name in names if not name.startswith("__index_level_")]


def frame_values(frame: Any, name: str) -> np.ndarray:
    """Return the numbers of a data frame, (n_rows, n_columns); a missing value is NaN.

    Args:
        frame: data frame or table.
        name: name of the argument, for error messages.

    Raises:
        DataError: a column has other values than numbers.
    """
    narwhals = import_optional("narwhals", "", "reading a data frame")
    table = narwhals.from_native(_with_text_names(frame), eager_only=True)
    kinds = table.schema
    wrong = [(column, kind) for column, kind in kinds.items() if not (kind.is_numeric() or kind == narwhals.Boolean)]
    if wrong:
        names = [column for column, _ in wrong]
        what = "objects" if wrong[0][1] == narwhals.Object else "text"
        if wrong[0][1] not in (narwhals.Object, narwhals.String, narwhals.Categorical):
            what = f"the type {wrong[0][1]}"[:100]
        given = f"{counted(len(wrong), 'column')} without numbers, the first with {what}"
        raise DataError(
            f"{name} has {given}: {listed(names)}. Give columns of numbers alone: leave these out, or convert them "
            "with `.astype(float)`."
        )
    if not kinds:
        return np.zeros((len(table), 0))
    # Decimals and booleans among numbers would become objects.
    odd = [column for column, kind in kinds.items() if kind == narwhals.Boolean or kind.is_decimal()]
    if odd:
        table = table.with_columns(narwhals.col(*odd).cast(narwhals.Float64))
    return np.asarray(table.to_numpy())


def only_column(frame: Any, name: str) -> Any:
    """Return the column of a data frame that has a single one, as a series; raise DataError if it has several."""
    names = column_names(frame)
    if len(names) != 1:
        raise DataError(f"{name} has {len(names)} columns: {listed(names)}. Give one column of labels.")
    narwhals = import_optional("narwhals", "", "reading a data frame")
    table = narwhals.from_native(_with_text_names(frame), eager_only=True)
    return table[table.columns[0]].to_native()


def rows_of_frame(frame: Any, rows: Sequence[int]) -> Any:
    """Return the rows of a data frame at these indices, as a data frame of the same library."""
    narwhals = import_optional("narwhals", "", "reading a data frame")
    return narwhals.from_native(_with_text_names(frame), eager_only=True)[list(rows)].to_native()


def _with_text_names(frame: Any) -> Any:
    """Return a frame whose columns have distinct names that are text, as narwhals needs them."""
    names = column_names(frame)
    if hasattr(frame, "column_names"):
        return frame if names == frame.column_names else frame.select(names)
    if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
        return frame
    renamed = frame.copy(deep=False)
    renamed.columns = [str(place) for place in range(len(names))]
    return renamed
