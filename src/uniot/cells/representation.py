"""Principal components of two collections of cells together, from the genes that vary most in either."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from uniot.cells.expression import Expression
from uniot.cells.genes import CommonGenes, columns_of_genes
from uniot.errors import DataError
from uniot.io.text import counted
from uniot.runs.gene_projection import GeneProjection

N_COMPONENTS = 50
"""Number of principal components, as in scanpy."""
MOST_GENES = 2000
"""Number of highly variable genes, as in scanpy."""
FEWEST_GENES = 10
"""Number of common genes below which there is nothing to compare."""
# Genes of similar mean expression are compared with each other.
_N_BINS = 20
# Cells that are dense in memory at a time.
_DENSE_CELLS = 4096
# A part of the genes that new cells may lack; without more of them their components mean something else.
_MOST_MISSING = 0.5


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of two collections.

    Attributes:
        reference: (n_reference, n_components), float32.
        query: (n_query, n_components), float32.
        projection: what they are computed with.
    """

    reference: np.ndarray
    query: np.ndarray
    projection: GeneProjection


def joint_components(
    reference: Expression, query: Expression, genes: CommonGenes, kept: np.ndarray, n_components: int = N_COMPONENTS
) -> Components:
    """Return principal components of two collections together.

    Args:
        reference: expression of the reference.
        query: expression of the query.
        genes: genes that both have.
        kept: which cells of the reference count, bool, (n_reference,).
        n_components: at most this number.

    Raises:
        DataError: there are too few genes or cells.
    """
    if len(genes.names) < FEWEST_GENES:
        raise DataError(
            f"the two collections have only {counted(len(genes.names), 'gene')} in common; at least {FEWEST_GENES} are "
            "needed. Give both all measured genes."
        )
    chosen = np.arange(len(genes.names))
    if len(chosen) > MOST_GENES:
        dispersions = [
            normalised_dispersions(*_moments(one, columns, rows))
            for one, columns, rows in ((reference, genes.reference, kept), (query, genes.query, None))
        ]
        chosen = np.sort(np.argsort(-(dispersions[0] + dispersions[1]), kind="stable")[:MOST_GENES])
    parts = [
        _selected(reference, genes.reference[chosen], kept),
        _selected(query, genes.query[chosen], None),
    ]
    means, loadings = principal_axes(parts, n_components)
    projection = GeneProjection(tuple(genes.names[gene] for gene in chosen), means, loadings)
    return Components(_projected(parts[0], projection), _projected(parts[1], projection), projection)


def project(cells: Expression, projection: GeneProjection, where: str) -> tuple[np.ndarray, str | None]:
    """Return the components of new cells, (n_cells, n_components), and a warning if genes are missing.

    A gene that the new cells lack counts with its mean.

    Raises:
        DataError: the cells lack more than half of the genes.
    """
    columns = columns_of_genes(projection.genes, cells.genes)
    missing = columns < 0
    if missing.mean() > _MOST_MISSING:
        raise DataError(
            f"{where} has {int((~missing).sum())} of the {len(missing)} genes that the run compares. Give cells with "
            "the same kind of gene names and of the same species."
        )
    blocks = []
    for _, block in cells.blocks(columns):
        filled = block.toarray()
        filled[:, missing] = projection.means[missing]
        blocks.append((filled - projection.means) @ projection.loadings)
    warning = None
    if missing.any():
        warning = (
            f"{where} lacks {counted(int(missing.sum()), 'gene')} of the {len(missing)} that the run compares; they "
            "count with their means."
        )
    return np.concatenate(blocks).astype(np.float32), warning


def normalised_dispersions(means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return how much each gene varies compared with genes of similar mean, as scanpy's flavour seurat, (n_genes,).

    Args:
        means: of the normalised expression without logarithm, (n_genes,).
        variances: of the same, with n − 1, (n_genes,).

    References:
        Satija et al., Spatial reconstruction of single-cell gene expression data, Nature Biotechnology 2015.
    """
    safe = np.where(means > 0, means, 1e-12)
    ratio = variances / safe
    dispersions = np.log(np.where(ratio > 0, ratio, np.nan))
    log_means = np.log1p(means)
    edges = np.linspace(log_means.min(), log_means.max(), _N_BINS + 1)
    bins = np.clip(np.searchsorted(edges, log_means, side="left") - 1, 0, _N_BINS - 1)
    scores = np.zeros(len(means))
    for number in np.unique(bins):
        members = np.flatnonzero(bins == number)
        inside = dispersions[members]
        varying = inside[~np.isnan(inside)]
        if len(varying) == 0:
            continue
        # A gene that is alone in its bin has nothing to be compared with: it counts as one deviation above.
        centre, spread = (varying.mean(), varying.std(ddof=1)) if len(varying) > 1 else (0.0, varying[0] or 1.0)
        scores[members] = np.where(np.isnan(inside), -np.inf, (inside - centre) / (spread or 1.0))
    return np.where(np.isneginf(scores), -1e6, scores)


def principal_axes(parts: list[sparse.csr_matrix], n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the means, (n_genes,), and the first principal axes, (n_genes, n_components), of all rows together.

    Args:
        parts: rows, (n_cells, n_genes) each.
        n_components: at most this number; no more than there are genes or cells less one.
    """
    n_cells, n_genes = sum(part.shape[0] for part in parts), parts[0].shape[1]
    number = min(n_components, n_genes - 1, n_cells - 1)
    if number < 2:
        raise DataError(f"there are {counted(n_cells, 'cell')} of {counted(n_genes, 'gene')}. Give more of them.")
    means = sum(np.asarray(part.sum(axis=0, dtype=np.float64)).ravel() for part in parts) / n_cells
    products = np.zeros((n_genes, n_genes))
    for part in parts:
        for start in range(0, part.shape[0], _DENSE_CELLS):
            block = part[start : start + _DENSE_CELLS].toarray() - means.astype(np.float32)
            products += block.T @ block
    # Rows are centred by rounded means, which this corrects for nothing: the error is that of float32.
    _, axes = linalg.eigh(products / (n_cells - 1), subset_by_index=(n_genes - number, n_genes - 1), driver="evr")
    axes = axes[:, ::-1]
    largest = np.abs(axes).argmax(axis=0)
    axes = axes * np.sign(axes[largest, np.arange(number)])
    return means.astype(np.float32), np.ascontiguousarray(axes, dtype=np.float32)


def _moments(cells: Expression, columns: np.ndarray, kept: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of the normalised expression without logarithm of each gene, (n_genes,) each."""
    sums, squares, n_cells = np.zeros(len(columns)), np.zeros(len(columns)), 0
    for place, block in cells.blocks(columns):
        rows = block if kept is None else block[kept[place]]
        plain = rows.astype(np.float64).expm1()
        sums += np.asarray(plain.sum(axis=0)).ravel()
        squares += np.asarray(plain.multiply(plain).sum(axis=0)).ravel()
        n_cells += rows.shape[0]
    means = sums / max(n_cells, 1)
    return means, np.maximum(squares - n_cells * means**2, 0) / max(n_cells - 1, 1)


def _selected(cells: Expression, columns: np.ndarray, kept: np.ndarray | None) -> sparse.csr_matrix:
    """Return the expression of some genes in memory, CSR."""
    blocks = [block if kept is None else block[kept[place]] for place, block in cells.blocks(columns)]
    return sparse.vstack(blocks, format="csr")


def _projected(part: sparse.csr_matrix, projection: GeneProjection) -> np.ndarray:
    shift = projection.means @ projection.loadings
    return np.asarray(part @ projection.loadings - shift, dtype=np.float32)
