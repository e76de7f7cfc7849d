"""Cells with their annotations and expression, from an AnnData object or from parts of an .h5ad file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from uniot.cells.h5ad import H5adFile, open_h5ad
from uniot.errors import DataError

# Columns of var that may hold other names of the genes than its index does; the first ones are the usual ones.
GENE_COLUMNS = (
    "gene_symbols",
    "feature_name",
    "gene_symbol",
    "gene_name",
    "gene_names",
    "symbol",
    "gene_ids",
    "gene_id",
    "feature_id",
    "ensembl_id",
    "ensembl_ids",
)
INDEX = "var_names"
"""What the names of the genes in the index of var are called."""


class Matrix(Protocol):
    """A matrix whose rows are read on request."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of cells and of genes."""
        ...

    def rows(self, start: int, stop: int) -> Any:
        """Return some rows, dense or as a CSR matrix, (stop − start, n_genes)."""
        ...


class Cells(Protocol):
    """Cells of an AnnData object or of a file.

    Attributes:
        where: the file, or what the object is called, for messages.
    """

    where: str

    def names(self) -> list[str]:
        """Return the names of the cells, (n_cells,)."""
        ...

    def columns(self) -> list[str]:
        """Return the names of the columns of obs."""
        ...

    def column(self, name: str) -> np.ndarray:
        """Return a column of obs as objects, None for missing values, (n_cells,)."""
        ...

    def representations(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays in obsm by name."""
        ...

    def representation(self, name: str) -> np.ndarray:
        """Return an array of obsm, (n_cells, n_features)."""
        ...

    def loadings(self) -> np.ndarray | None:
        """Return the principal components over the genes, varm["PCs"]; None without them."""
        ...

    def matrices(self) -> list[str]:
        """Return the names of the matrices that may hold counts or expression: X, raw.X, layers['counts']."""
        ...

    def matrix(self, name: str) -> Matrix:
        """Return one of `matrices`."""
        ...

    def genes(self, name: str) -> dict[str, list[str]]:
        """Return the names of the genes of one of `matrices`, by the column of var that they are in."""
        ...


class FileCells:
    """Cells of an open .h5ad file."""

    def __init__(self, file: H5adFile) -> None:
        self.where, self._file = str(file.path), file

    def names(self) -> list[str]:
        """Return the names of the cells."""
        return self._file.index("obs")

    def columns(self) -> list[str]:
        """Return the names of the columns of obs."""
        return self._file.columns("obs")

    def column(self, name: str) -> np.ndarray:
        """Return a column of obs."""
        return self._file.column("obs", name)

    def representations(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays in obsm."""
        return {name: self._file.shape(f"obsm/{name}") for name in self._file.members("obsm")}

    def representation(self, name: str) -> np.ndarray:
        """Return an array of obsm."""
        return self._file.array(f"obsm/{name}")

    def loadings(self) -> np.ndarray | None:
        """Return the principal components over the genes."""
        return self._file.array("varm/PCs") if self._file.has("varm/PCs") else None

    def matrices(self) -> list[str]:
        """Return the names of the matrices."""
        places = {"X": "X", "raw.X": "raw/X", "layers['counts']": "layers/counts"}
        return [name for name, place in places.items() if self._file.has(place)]

    def matrix(self, name: str) -> Matrix:
        """Return a matrix."""
        place = {"X": "X", "raw.X": "raw/X"}.get(name, "layers/counts")
        found: Matrix = self._file.matrix(place)
        return found

    def genes(self, name: str) -> dict[str, list[str]]:
        """Return the names of the genes of a matrix."""
        table = "raw/var" if name == "raw.X" else "var"
        others = [column for column in GENE_COLUMNS if column in self._file.columns(table)]
        found = {column: _texts(self._file.column(table, column)) for column in others}
        return {INDEX: self._file.index(table), **found}


class AnnDataCells:
    """Cells of an AnnData object, in memory or backed by a file.

    Args:
        adata: the object.
        where: what it is called in messages.
    """

    def __init__(self, adata: Any, where: str) -> None:
        self.where, self._adata = where, adata

    def names(self) -> list[str]:
        """Return the names of the cells."""
        return [str(name) for name in self._adata.obs_names]

    def columns(self) -> list[str]:
        """Return the names of the columns of obs."""
        return [str(name) for name in self._adata.obs.columns]

    def column(self, name: str) -> np.ndarray:
        """Return a column of obs."""
        column = self._adata.obs[name]
        values = np.asarray(column.astype(object), dtype=object).copy()
        values[np.asarray(column.isna())] = None
        return values

    def representations(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arrays in obsm."""
        return {str(name): tuple(values.shape) for name, values in self._adata.obsm.items()}

    def representation(self, name: str) -> np.ndarray:
        """Return an array of obsm."""
        values = self._adata.obsm[name]
        return np.asarray(values.toarray() if hasattr(values, "toarray") else values)

    def loadings(self) -> np.ndarray | None:
        """Return the principal components over the genes."""
        return np.asarray(self._adata.varm["PCs"]) if "PCs" in self._adata.varm else None

    def matrices(self) -> list[str]:
        """Return the names of the matrices."""
        has = {
            "X": self._adata.X is not None,
            "raw.X": self._adata.raw is not None,
            "layers['counts']": "counts" in self._adata.layers,
        }
        return [name for name, is_there in has.items() if is_there]

    def matrix(self, name: str) -> Matrix:
        """Return a matrix."""
        values = {"X": lambda: self._adata.X, "raw.X": lambda: self._adata.raw.X}.get(
            name, lambda: self._adata.layers["counts"]
        )()
        return _HeldMatrix(values)

    def genes(self, name: str) -> dict[str, list[str]]:
        """Return the names of the genes of a matrix."""
        table = self._adata.raw.var if name == "raw.X" else self._adata.var
        others = [column for column in GENE_COLUMNS if column in table.columns]
        found = {
            column: ["" if value is None else str(value) for value in table[column].astype(object)] for column in others
        }
        return {INDEX: [str(gene) for gene in table.index], **found}


class _HeldMatrix:
    """Rows of a matrix in memory, or of one that anndata reads from a file."""

    def __init__(self, values: Any) -> None:
        # Rows of a matrix that is stored by columns would each take a pass over all of it.
        self._values = values.tocsr() if getattr(values, "format", "") == "csc" and hasattr(values, "tocsr") else values
        self.shape: tuple[int, int] = (int(values.shape[0]), int(values.shape[1]))

    def rows(self, start: int, stop: int) -> Any:
        """Return some rows."""
        return self._values[start:stop]


@contextmanager
def open_cells(given: Any, called: str) -> Iterator[Cells]:
    """Open cells for reading.

    Args:
        given: the path of an .h5ad file, or an AnnData object.
        called: what an object is called in messages, such as reference.

    Raises:
        DataError: it is neither, or the file cannot be read.
    """
    if isinstance(given, (str, Path)):
        with open_h5ad(Path(given)) as file:
            yield FileCells(file)
    elif all(hasattr(given, name) for name in ("obs", "var", "obsm", "n_obs")):
        yield AnnDataCells(given, called)
    else:
        raise DataError(f"{called} is a {type(given).__name__}. Give an AnnData object, or the path of an .h5ad file.")


@dataclass(frozen=True)
class CellNames:
    """Names of cells, each one once.

    Attributes:
        names: (n_cells,).
        n_changed: number of names that were given a number because another cell has the same.
    """

    names: list[str]
    n_changed: int


def unique_names(names: list[str]) -> CellNames:
    """Return names with a number after each repeated one, as anndata's `obs_names_make_unique` does."""
    taken = set(names)
    if len(taken) == len(names):
        return CellNames(names, 0)
    seen: dict[str, int] = {}
    found, n_changed = [], 0
    for name in names:
        if name not in seen:
            seen[name] = 0
            found.append(name)
            continue
        number = seen[name] + 1
        while f"{name}-{number}" in taken:
            number += 1
        seen[name] = number
        taken.add(f"{name}-{number}")
        found.append(f"{name}-{number}")
        n_changed += 1
    return CellNames(found, n_changed)


def _texts(values: np.ndarray) -> list[str]:
    return ["" if value is None else str(value) for value in values.tolist()]
