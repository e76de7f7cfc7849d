"""Describe the new groups of a query by their marker genes."""

from __future__ import annotations

from typing import Any

import numpy as np

from uniot.cells.cells import open_cells
from uniot.cells.expression import find_expression
from uniot.cells.markers import marker_genes
from uniot.errors import DataError
from uniot.runs.group_descriptions import GroupDescription, GroupDescriptions

KIND = "marker genes"


def describe_groups(query: Any, rows: np.ndarray, groups: np.ndarray, n_groups: int) -> GroupDescriptions | None:
    """Return the marker genes of the groups of a query, each group against all other cells.

    Args:
        query: an AnnData object, or the path of an .h5ad file.
        rows: cells of the query that have a prediction, (n_predicted,).
        groups: number of the group of each of these cells, −1 for none, (n_predicted,).
        n_groups: number of groups.

    Returns:
        A description per group; None if there are no groups, or the query has no expression.
    """
    if not n_groups:
        return None
    with open_cells(query, "query") as cells:
        try:
            expression = find_expression(cells)
        except DataError:
            # A query with a representation alone can be labelled; only the words about its groups are missing.
            return None
        of_cells = np.full(len(expression), -1, dtype=np.int64)
        of_cells[rows] = groups
        found = marker_genes(expression, of_cells, n_groups)
    return GroupDescriptions(KIND, tuple(GroupDescription(one.genes, (one.name,) if one.name else ()) for one in found))
