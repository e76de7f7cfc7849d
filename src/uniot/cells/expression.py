"""Find the expression of cells, recognise raw counts, and normalise as scanpy does, a block of cells at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from uniot.cells.cells import Cells, Matrix
from uniot.errors import DataError
from uniot.io.text import listed

Kind = Literal["counts", "normalised", "log-normalised", "scaled", "empty"]

TARGET_SUM = 1e4
"""Sum of each cell after normalisation."""
# Values of a block in memory at a time, if it is dense.
_BLOCK_VALUES = 1 << 24
# Cells that are looked at to recognise what a matrix holds, in three places.
_N_PROBED = 300
# No logarithm of an expression is larger: e²⁵ is more molecules than a cell has.
_LARGEST_LOG = 25.0
# Row sums that differ by less belong to one target sum.
_SAME_SUM = 0.01
_IN_WORDS = {
    "counts": "raw counts",
    "normalised": "normalised counts without a logarithm",
    "log-normalised": "log-normalised expression",
    "scaled": "values below zero, as scaled expression has",
    "empty": "zeros only",
}


@dataclass(frozen=True)
class Expression:
    """Log-normalised expression of cells, which is computed in blocks.

    Attributes:
        name: name of the matrix: X, raw.X or layers['counts'].
        kind: what the matrix holds.
        matrix: its rows.
        genes: names of its genes by the column of var that they are in.
        known_sum: sum that the cells were normalised to before the logarithm; None if it is not known.
    """

    name: str
    kind: Kind
    matrix: Matrix
    genes: dict[str, list[str]]
    known_sum: float | None = None

    def __len__(self) -> int:
        return self.matrix.shape[0]

    @property
    def words(self) -> str:
        """Return what the matrix holds and what is done with it, without the name of the file."""
        said = f"{self.name} holds {_IN_WORDS[self.kind]}"
        if self.kind == "log-normalised":
            return said if not self._other_sum else f"{said}, rescaled to {TARGET_SUM:.0f} per cell"
        return f"{said}, normalised to {TARGET_SUM:.0f} per cell with log1p"

    @property
    def _other_sum(self) -> bool:
        return self.known_sum is not None and abs(self.known_sum / TARGET_SUM - 1) > _SAME_SUM

    def blocks(self, columns: np.ndarray | None = None) -> Iterator[tuple[slice, Any]]:
        """Yield the cells in blocks: their place and their log-normalised expression, CSR of float32.

        Args:
            columns: genes to return, (n_columns,); a column -1 is filled with zeros. All if None.
        """
        for place, block in _blocks(self.matrix):
            normalised = self._normalised(block)
            yield place, normalised if columns is None else _with_columns(normalised, columns)

    def _normalised(self, block: Any) -> Any:
        if self.kind == "log-normalised" and not self._other_sum:
            return block
        if self.kind == "log-normalised":
            factor = np.float32(TARGET_SUM / (self.known_sum or TARGET_SUM))
            block.data = np.log1p(np.expm1(block.data) * factor)
            return block
        sums = np.asarray(block.sum(axis=1, dtype=np.float64)).ravel()
        factors = np.divide(TARGET_SUM, sums, out=np.zeros_like(sums), where=sums > 0)
        block.data *= np.repeat(factors, np.diff(block.indptr)).astype(np.float32)
        np.log1p(block.data, out=block.data)
        return block


def find_expression(cells: Cells) -> Expression:
    """Return the expression of cells: from raw counts if there are any, else the log-normalised one.

    Raises:
        DataError: there is no matrix, or none of them holds expression.
    """
    found: list[Expression] = []
    seen = []
    for name in cells.matrices():
        matrix = cells.matrix(name)
        if 0 in matrix.shape:
            continue
        kind, known_sum = _recognise(matrix, f"{name} of {cells.where}")
        seen.append(f"{name} holds {_IN_WORDS[kind]}")
        genes = cells.genes(name)
        if any(len(names) != matrix.shape[1] for names in genes.values()):
            raise DataError(
                f"{cells.where} has {matrix.shape[1]} columns in {name} for {len(genes['var_names'])} genes. Save it "
                "again with `adata.write_h5ad(file)`."
            )
        found.append(Expression(name, kind, matrix, genes, known_sum))
    order: tuple[Kind, ...] = ("counts", "normalised", "log-normalised")
    for kind in order:
        for one in found:
            if one.kind == kind:
                return one
    raise DataError(
        f"{cells.where} has no expression to compare: {listed(seen) or 'X is missing'}. Give counts in X, raw or "
        'layers["counts"], log-normalised values in X, or a common representation of both with --use-rep (use_rep).'
    )


def _recognise(matrix: Matrix, where: str) -> tuple[Kind, float | None]:
    """Return what a matrix holds, by some of its cells, and the sum that log-normalised cells have before the log."""
    n_cells = matrix.shape[0]
    size = min(n_cells, _N_PROBED // 3 if n_cells > _N_PROBED else n_cells)
    starts = (0, (n_cells - size) // 2, n_cells - size) if n_cells > _N_PROBED else (0,)
    probed = sparse.vstack([_as_csr(matrix.rows(start, start + size), where) for start in starts]).tocsr()
    values = probed.data[probed.data != 0]
    if not len(values):
        return "empty", None
    if values.min() < 0:
        return "scaled", None
    if (values == np.rint(values)).all():
        return "counts", None
    if values.max() > _LARGEST_LOG:
        return "normalised", None
    sums = np.asarray(probed.astype(np.float64).expm1().sum(axis=1)).ravel()
    sums = sums[sums > 0]
    middle = float(np.median(sums))
    same = len(sums) > 1 and float(np.abs(sums / middle - 1).max()) < _SAME_SUM
    return "log-normalised", middle if same else None


def _blocks(matrix: Matrix) -> Iterator[tuple[slice, Any]]:
    n_cells, n_genes = matrix.shape
    size = max(1, _BLOCK_VALUES // max(n_genes, 1))
    for start in range(0, n_cells, size):
        place = slice(start, min(start + size, n_cells))
        yield place, _as_csr(matrix.rows(place.start, place.stop), "the expression")


def _as_csr(rows: Any, where: str) -> Any:
    """Return rows as a CSR matrix of float32 that shares nothing with them."""
    if hasattr(rows, "compute"):
        rows = rows.compute()
    found = sparse.csr_matrix(rows, dtype=np.float32, copy=True)
    if not np.isfinite(found.data).all():
        raise DataError(f"{where} holds NaN or infinite numbers. Remove these cells or genes.")
    return found


def _with_columns(block: Any, columns: np.ndarray) -> Any:
    if len(columns) and columns.min() >= 0:
        return block[:, columns]
    present = np.flatnonzero(columns >= 0)
    chosen = block[:, columns[present]].tocoo()
    return sparse.csr_matrix((chosen.data, (chosen.row, present[chosen.col])), shape=(block.shape[0], len(columns)))
