"""Small collections of cells with counts, for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

import anndata  # isort: skip

MARKERS = {
    "B": ("MS4A1", "CD79A"),
    "T": ("CD3D", "IL7R"),
    "NK": ("NKG7", "GNLY"),
    "Mono": ("LYZ", "CD14"),
}
N_GENES = 60
# Others have numbers for names; those of ribosomes are named as such.
GENES = [gene for genes in MARKERS.values() for gene in genes] + ["RPL10"] + [f"GENE{n}" for n in range(N_GENES - 9)]
ENSEMBL = [f"ENSG{number:011d}" for number in range(N_GENES)]


def counts_of(types: list[str], seed: int, depth: float = 1.0) -> np.ndarray:
    """Poisson counts of cells of these types; both markers of a type are high in its cells."""
    rng = np.random.default_rng(seed)
    # The same in every collection.
    base = np.random.default_rng(0).uniform(0.5, 2, N_GENES)
    means = np.tile(base, (len(types), 1))
    for row, name in enumerate(types):
        for gene in MARKERS[name]:
            means[row, GENES.index(gene)] += 12
    return rng.poisson(depth * means * rng.uniform(0.7, 1.4, (len(types), 1))).astype(np.float32)


def cells(types: dict[str, int], seed: int = 0, depth: float = 1.0, prefix: str = "cell") -> Any:
    """An AnnData object with sparse counts in X and the column cell_type in obs."""
    names = [name for name, size in types.items() for _ in range(size)]
    index = pd.Index([f"{prefix}{row}" for row in range(len(names))], dtype=object)
    categories = pd.Categorical(np.array(names, dtype=object), categories=pd.Index(sorted(types), dtype=object))
    obs = pd.DataFrame({"cell_type": categories}, index=index)
    var = pd.DataFrame(index=pd.Index(GENES, dtype=object))
    return anndata.AnnData(sparse.csr_matrix(counts_of(names, seed, depth)), obs=obs, var=var)


def log_normalised(adata: Any) -> Any:
    """The same cells as scanpy normalises them."""
    x = adata.X.toarray().astype(np.float64)
    changed = adata.copy()
    changed.X = sparse.csr_matrix(np.log1p(x / x.sum(axis=1, keepdims=True) * 1e4).astype(np.float32))
    return changed


def reference() -> Any:
    return cells({"B": 40, "T": 40, "Mono": 40}, seed=1, prefix="reference")


def query() -> Any:
    """Cells of another depth, without Mono and with NK, which the reference lacks."""
    return cells({"B": 40, "T": 40, "NK": 40}, seed=2, depth=1.5, prefix="query")


def written(adata: Any, path: Path) -> Path:
    adata.write_h5ad(path)
    return path
