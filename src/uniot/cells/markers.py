"""Marker genes: the genes that a group of cells expresses more than all other cells of the collection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

from uniot.cells.expression import Expression
from uniot.cells.genes import symbols

N_MARKERS = 10
"""Marker genes of a group."""
# A marker is found in this part of the cells of its group, as in scanpy's `filter_rank_genes_groups`; a gene of one
# cell names no group. Genes of ribosomes and mitochondria differ with the state of a cell more than with its type.
_SMALLEST_FRACTION = 0.25
_LARGEST_P = 0.05
_UNINFORMATIVE = ("RPL", "RPS", "MT-", "MRPL", "MRPS", "MTRNR")
_FEWEST_CELLS = 3
_N_IN_NAME = 2


@dataclass(frozen=True, eq=False)
class GroupComparison:
    """Every gene in every group against all other cells, by Welch's t-test on log-normalised expression.

    Attributes:
        scores: t, (n_groups, n_genes); NaN for a group or a rest of fewer than two cells.
        p_values: two-sided, (n_groups, n_genes).
        fractions: part of the cells of the group that express the gene, (n_groups, n_genes).
        rest_fractions: part of all other cells that express it, (n_groups, n_genes).
        sizes: cells of each group, (n_groups,).
    """

    scores: np.ndarray
    p_values: np.ndarray
    fractions: np.ndarray
    rest_fractions: np.ndarray
    sizes: np.ndarray


def compare_groups(expression: Expression, groups: np.ndarray, n_groups: int) -> GroupComparison:
    """Compare the expression of every gene in every group with that in all other cells.

    The scores are those of scanpy's `rank_genes_groups(method="t-test", groups=…, reference="rest")`, computed in one
    pass over blocks of cells.

    Args:
        expression: of all cells.
        groups: number of the group of each cell, −1 for none, (n_cells,).
        n_groups: number of groups.
    """
    n_genes = expression.matrix.shape[1]
    # The last row is that of cells without a group.
    sums, squares, present = (np.zeros((n_groups + 1, n_genes)) for _ in range(3))
    for place, block in expression.blocks():
        members = np.where(groups[place] < 0, n_groups, groups[place])
        of_group = sparse.csr_matrix(
            (np.ones(len(members)), (members, np.arange(len(members)))), shape=(n_groups + 1, len(members))
        )
        block = block.astype(np.float64)
        sums += (of_group @ block).toarray()
        squares += (of_group @ block.multiply(block).tocsr()).toarray()
        present += (of_group @ (block > 0).astype(np.float64)).toarray()
    sizes = np.bincount(np.where(groups < 0, n_groups, groups), minlength=n_groups + 1)
    inside, rest = sizes[:n_groups, None], (sizes.sum() - sizes[:n_groups])[:, None]
    means, variances = _moments(sums[:n_groups], squares[:n_groups], inside)
    rest_means, rest_variances = _moments(sums.sum(0) - sums[:n_groups], squares.sum(0) - squares[:n_groups], rest)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores, p_values = stats.ttest_ind_from_stats(
            means, np.sqrt(variances), inside, rest_means, np.sqrt(rest_variances), rest, equal_var=False
        )
        fractions = present[:n_groups] / np.maximum(inside, 1)
        rest_fractions = (present.sum(0) - present[:n_groups]) / np.maximum(rest, 1)
    comparable = (inside > 1) & (rest > 1)
    # A gene that no cell expresses has neither a difference nor a variance.
    scores = np.where(comparable, np.nan_to_num(scores, nan=0.0), np.nan)
    return GroupComparison(scores, np.nan_to_num(p_values, nan=1.0), fractions, rest_fractions, sizes[:n_groups])


@dataclass(frozen=True)
class Markers:
    """Marker genes of a group.

    Attributes:
        genes: the clearest first.
        name: a name by the two of them that are found in few other cells, such as `CD79A+ MS4A1+`; empty without.
    """

    genes: tuple[str, ...] = ()
    name: str = ""


def marker_genes(expression: Expression, groups: np.ndarray, n_groups: int, most: int = N_MARKERS) -> list[Markers]:
    """Return the marker genes of each group; none for a group of fewer than three cells.

    Args:
        expression: of all cells.
        groups: number of the group of each cell, −1 for none, (n_cells,).
        n_groups: number of groups.
        most: largest number of genes of a group.
    """
    compared = compare_groups(expression, groups, n_groups)
    names = symbols(expression.genes)
    uninformative = np.array([name.upper().startswith(_UNINFORMATIVE) for name in names], dtype=bool)
    found = []
    for group in range(n_groups):
        scores = compared.scores[group]
        if compared.sizes[group] < _FEWEST_CELLS or np.isnan(scores).all():
            found.append(Markers())
            continue
        suitable = (
            (scores > 0)
            & (compared.p_values[group] * len(names) < _LARGEST_P)
            & (compared.fractions[group] >= _SMALLEST_FRACTION)
            & ~uninformative
        )
        order = [gene for gene in np.argsort(-scores, kind="stable").tolist() if suitable[gene]][:most]
        # Shared genes of related types have high scores too; a name says what sets the group apart.
        apart = compared.fractions[group] - compared.rest_fractions[group]
        naming = sorted(order, key=lambda gene: -apart[gene])[:_N_IN_NAME]
        found.append(Markers(tuple(names[gene] for gene in order), " ".join(f"{names[gene]}+" for gene in naming)))
    return found


def _moments(sums: np.ndarray, squares: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    means = sums / np.maximum(sizes, 1)
    return means, np.maximum(squares - sizes * means**2, 0) / np.maximum(sizes - 1, 1)
