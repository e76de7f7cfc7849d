"""Label a query of cells with the cell types of a reference, and group those that fit none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Self

from uniot.cells.descriptions import describe_groups
from uniot.cells.reading import CellPair, CellRows, read_cells, read_new_cells
from uniot.cells.results import annotated, columns_of
from uniot.errors import DataError, import_optional
from uniot.estimators import UniNCM
from uniot.estimators.base import UniDAEstimator
from uniot.io.text import listed
from uniot.runs.group_descriptions import GroupDescriptions


@dataclass(frozen=True, eq=False)
class LabelTransfer:
    """A model that was fitted to a reference and a query of cells.

    Attributes:
        model: the fitted estimator; its target rows are the cells of the query, in their order.
        cells: both collections in the representation that the model compares.
        query: the query, as it was given.

    Examples:
        >>> transfer = uniot.cells.LabelTransfer.fit("reference.h5ad", "query.h5ad", label="cell_type")
        >>> transfer.ask(1)
        ['AAACATTGATCAGC-1']
        >>> transfer.tell(["AAACATTGATCAGC-1"], ["unknown"]).labelled().obs["uniot_label"]
    """

    model: UniDAEstimator
    cells: CellPair
    query: Any

    @classmethod
    def fit(
        cls,
        reference: Any,
        query: Any,
        label: str | None = None,
        *,
        use_rep: str | None = None,
        model: UniDAEstimator | None = None,
    ) -> Self:
        """Fit a model to a labelled reference and a query.

        Args:
            reference: an AnnData object, in memory or backed, or the path of an .h5ad file.
            query: the same; it is not changed.
            label: column of obs of the reference; cell_type if None.
            use_rep: array of obsm in which cells of both can be compared; if None, principal components of both
                together, of the genes that both have.
            model: estimator to fit; `UniNCM(random_state=0)` if None.

        Raises:
            DataError: a file cannot be read, the column or the array is missing, or the two have no gene in common.
        """
        cells = read_cells(reference, query, label=label, use_rep=use_rep)
        estimator = UniNCM(random_state=0) if model is None else model
        return cls(estimator.fit(cells.reference.rows, cells.reference.labels, cells.query.rows), cells, query)

    def labelled(self) -> Any:
        """Return a copy of the query in memory with the columns uniot_label, uniot_confidence and uniot_group in obs.

        `uns["uniot"]` has the fraction of unknown cells, its interval, the estimated accuracy and the warnings.
        """
        adata = self.query
        if isinstance(adata, (str, Path)):
            adata = import_optional("anndata", "cells", "returning cells").read_h5ad(adata)
        # `groups_` makes the groups again if something was told since.
        self.model.groups_  # noqa: B018
        columns = columns_of(self.model.model_)
        return annotated(adata, columns, notes=self.cells.notes)

    def ask(self, n: int = 1) -> list[str]:
        """Return the names of the cells whose answers say most about what is unknown, as `UniNCM.ask` does."""
        return [self.cells.query.names[row] for row in self.model.ask(n).tolist()]

    def tell(self, cells: Sequence[str], answers: Sequence[str | None]) -> Self:
        """Add what a person says of cells: a cell type of the reference, "unknown", or None for "cannot tell".

        Args:
            cells: names of cells of the query.
            answers: of each of them.

        Returns:
            This object, whose model follows the answers.
        """
        row_of = {name: row for row, name in enumerate(self.cells.query.names)}
        strange = [name for name in cells if name not in row_of]
        if strange:
            raise DataError(f"the query has no cell called {listed(strange, 3)}. Give names as `ask` returns them.")
        self.model.tell([row_of[name] for name in cells], list(answers))
        return self

    def markers(self) -> GroupDescriptions | None:
        """Return the marker genes of the new groups; None if there are no groups or no expression."""
        groups = self.model.groups_
        return describe_groups(self.query, np.arange(len(groups)), groups, self.model.n_private_classes_)

    def predict(self, cells: Any) -> tuple[CellRows, np.ndarray]:
        """Return further cells in the representation of this model, and their labels, (n_cells,).

        Args:
            cells: an AnnData object, or the path of an .h5ad file.
        """
        rows, _ = read_new_cells(cells, use_rep=self.cells.use_rep, projection=self.cells.projection)
        return rows, self.model.predict(rows.rows)


def transfer_labels(
    reference: Any,
    query: Any,
    label: str | None = None,
    *,
    use_rep: str | None = None,
    model: UniDAEstimator | None = None,
) -> Any:
    """Label a query with the cell types of a reference, and group the cells that fit none of them.

    Args:
        reference: an AnnData object, in memory or backed, or the path of an .h5ad file.
        query: the same; it is not changed.
        label: column of obs of the reference; cell_type if None.
        use_rep: array of obsm in which cells of both can be compared; if None, principal components of both together,
            of the genes that both have.
        model: estimator to fit; `UniNCM(random_state=0)` if None. It is fitted in place, for `ask` and `tell`.

    Returns:
        A copy of the query, an AnnData object in memory. Its obs has `uniot_label` (a cell type of the reference or
        "unknown"), `uniot_confidence` (from 0 to 1) and `uniot_group` (of an unknown cell; missing for all others).

    Raises:
        DataError: a file cannot be read, the column or the array is missing, or the two have no gene in common.

    Examples:
        >>> labelled = uniot.cells.transfer_labels(reference, query, label="cell_type")
        >>> scanpy.pl.umap(labelled, color=["uniot_label", "uniot_group"])
    """
    return LabelTransfer.fit(reference, query, label, use_rep=use_rep, model=model).labelled()
