"""Read a labelled reference and a query of cells, and bring both into one representation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uniot.cells.cells import Cells, open_cells, unique_names
from uniot.cells.expression import find_expression
from uniot.cells.genes import common_genes
from uniot.cells.representation import joint_components, project
from uniot.errors import DataError
from uniot.io.arrays import as_inputs
from uniot.io.labels import as_labels
from uniot.io.text import counted, listed, plural
from uniot.runs.gene_projection import GeneProjection

DEFAULT_LABEL = "cell_type"
"""Column of labels in files of CELLxGENE, which is used if none is named."""
# What atlases write in place of a label.
_NO_LABEL = frozenset({"", "nan", "na", "n/a", "none", "<na>", "unknown", "unassigned", "unlabelled", "unlabeled"})


@dataclass(frozen=True, eq=False)
class CellRows:
    """Cells in the representation that a method compares.

    Attributes:
        rows: (n_cells, n_features), float32.
        names: of the cells, each one once, (n_cells,).
        labels: of the reference, (n_cells,); None for the query.
    """

    rows: np.ndarray
    names: list[str]
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class CellPair:
    """A labelled reference and a query in one representation.

    Attributes:
        reference: cells with labels; those without one are left out.
        query: all cells of the query.
        label: column of obs that the labels are from.
        use_rep: array of obsm that both are represented by; None for principal components of both together.
        feature_names: names of the features, (n_features,).
        projection: of the genes; None if `use_rep` is given.
        notes: sentences on what was done and left out.
    """

    reference: CellRows
    query: CellRows
    label: str
    use_rep: str | None
    feature_names: tuple[str, ...]
    projection: GeneProjection | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def inputs(self) -> dict[str, str]:
        """Return how the cells were read, for settings.toml."""
        return {"label": self.label, **({} if self.use_rep is None else {"use_rep": self.use_rep})}


def read_cells(reference: Any, query: Any, *, label: str | None = None, use_rep: str | None = None) -> CellPair:
    """Read a labelled reference and a query, and bring both into one representation.

    Args:
        reference: an AnnData object, or the path of an .h5ad file.
        query: the same, without labels or with some that are not read.
        label: column of obs of the reference; cell_type if None.
        use_rep: array of obsm in which cells of both can be compared; principal components of the genes in common are
            computed if None.

    Returns:
        Both collections, and what was done with them.

    Raises:
        DataError: a file cannot be read, the column or the array is missing, or the two have no gene in common.
    """
    with open_cells(reference, "reference") as one, open_cells(query, "query") as other:
        notes: list[str] = []
        label, labels, kept = _labels(one, label, notes)
        names = [_names(cells, notes) for cells in (one, other)]
        projection = None
        if use_rep is None:
            expressions = find_expression(one), find_expression(other)
            for cells, expression, called in zip((one, other), expressions, names, strict=True):
                _check_count(cells, len(called), expression.name, len(expression))
                notes.append(f"{cells.where}: {expression.words}.")
            genes = common_genes(expressions[0].genes, expressions[1].genes, (one.where, other.where))
            components = joint_components(*expressions, genes, kept)
            rows, projection = (components.reference, components.query), components.projection
            feature_names = projection.names
            notes += [
                *genes.notes,
                f"Both are compared by {len(feature_names)} principal components of {len(projection.genes):,} genes, "
                f"of {counted(len(genes.names), 'gene')} in common.",
            ]
        else:
            found = [
                _representation(cells, use_rep, len(called)) for cells, called in zip((one, other), names, strict=True)
            ]
            if found[0].shape[1] != found[1].shape[1]:
                raise DataError(
                    f"obsm[{use_rep!r}] has {found[0].shape[1]} columns in {one.where} and {found[1].shape[1]} in "
                    f"{other.where}. Give a representation that was computed for both together, or none."
                )
            rows = found[0][kept], found[1]
            feature_names = tuple(f"{use_rep}{number + 1}" for number in range(found[1].shape[1]))
            notes += _separate_components(one, other, use_rep)
    kept_names = [name for name, is_kept in zip(names[0], kept.tolist(), strict=True) if is_kept]
    return CellPair(
        CellRows(rows[0], kept_names, labels[kept]),
        CellRows(rows[1], names[1]),
        label,
        use_rep,
        feature_names,
        projection,
        tuple(notes),
    )


def read_new_cells(
    cells: Any, *, use_rep: str | None, projection: GeneProjection | None
) -> tuple[CellRows, tuple[str, ...]]:
    """Read cells in the representation of a run.

    Args:
        cells: an AnnData object, or the path of an .h5ad file.
        use_rep: array of obsm that the run compares; None for components.
        projection: components of the run; None for an array of obsm.

    Returns:
        The cells, and sentences on what was done.

    Raises:
        DataError: the file cannot be read, or has neither the array nor the genes of the run.
    """
    with open_cells(cells, "the new cells") as opened:
        notes: list[str] = []
        names = _names(opened, notes)
        if projection is not None:
            expression = find_expression(opened)
            _check_count(opened, len(names), expression.name, len(expression))
            rows, warning = project(expression, projection, opened.where)
            notes += [f"{opened.where}: {expression.words}."] + ([] if warning is None else [warning])
        elif use_rep is not None:
            rows = _representation(opened, use_rep, len(names))
        else:
            raise DataError(
                f"the run was made from embeddings, and {opened.where} is a file of cells. Give a file of embeddings "
                "as the run has them."
            )
    return CellRows(rows, names), tuple(notes)


def _labels(cells: Cells, label: str | None, notes: list[str]) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the name of the column, labels as text and which cells have one, (n_cells,) each."""
    columns = cells.columns()
    if label is None and DEFAULT_LABEL not in columns:
        raise DataError(
            f"the column of labels is not named. Give --label (label) with one of the columns of obs of {cells.where}: "
            f"{listed(columns) or 'it has none'}."
        )
    label = label or DEFAULT_LABEL
    if label not in columns:
        raise DataError(
            f"{cells.where} has no column {label!r} in obs. It has: {listed(columns) or 'none'}. Give one of these as "
            "--label (label)."
        )
    values = cells.column(label)
    texts = np.array(
        [None if value is None else value.strip() if isinstance(value, str) else value for value in values],
        dtype=object,
    )
    kept = np.array([value is not None and str(value).lower() not in _NO_LABEL for value in texts], dtype=bool)
    if not kept.any():
        raise DataError(
            f"{cells.where} has no cell with a label in obs[{label!r}]. Give another column as --label (label)."
        )
    n_without = int((~kept).sum())
    if n_without:
        notes.append(
            f"{counted(n_without, 'cell')} of {cells.where} {plural(n_without, 'has', 'have')} no label in "
            f"obs[{label!r}] and {plural(n_without, 'is', 'are')} left out."
        )
    known = as_labels(texts[kept].tolist(), f"obs[{label!r}] of {cells.where}")
    labels = np.zeros(len(texts), dtype=f"<U{max(map(len, map(str, known.tolist())))}")
    labels[kept] = known.astype(str)
    return label, labels, kept


def _names(cells: Cells, notes: list[str]) -> list[str]:
    names = unique_names(cells.names())
    if not names.names:
        raise DataError(f"{cells.where} has no cells. Give a file whose obs has rows.")
    if names.n_changed:
        notes.append(
            f"{counted(names.n_changed, 'cell')} of {cells.where} {plural(names.n_changed, 'has', 'have')} the name of "
            "another one and got a number after it, as `obs_names_make_unique` does."
        )
    return names.names


def _representation(cells: Cells, name: str, n_cells: int) -> np.ndarray:
    shapes = cells.representations()
    if name not in shapes:
        raise DataError(
            f"{cells.where} has no {name!r} in obsm. It has: {listed(shapes) or 'none'}. Give one that both have, "
            "or leave --use-rep (use_rep) out to compare genes."
        )
    rows = as_inputs(cells.representation(name), f"obsm[{name!r}] of {cells.where}").astype(np.float32, copy=False)
    _check_count(cells, n_cells, f"obsm[{name!r}]", len(rows))
    return rows


def _check_count(cells: Cells, n_cells: int, what: str, n_rows: int) -> None:
    if n_rows != n_cells:
        raise DataError(
            f"{cells.where} has {n_rows} rows in {what} for {n_cells} cells. Save it again with "
            "`adata.write_h5ad(file)`."
        )


def _separate_components(reference: Cells, query: Cells, use_rep: str) -> list[str]:
    """Return a warning if principal components of both were computed separately: their axes mean different things."""
    loadings = [cells.loadings() for cells in (reference, query)]
    if use_rep != "X_pca" or loadings[0] is None or loadings[1] is None:
        return []
    if loadings[0].shape == loadings[1].shape and np.allclose(loadings[0], loadings[1], atol=1e-4):
        return []
    return [
        "Warning: the loadings in varm['PCs'] of the two files differ, so X_pca was computed for each file alone and "
        "cannot be compared. Leave --use-rep (use_rep) out, or compute it for both together."
    ]
