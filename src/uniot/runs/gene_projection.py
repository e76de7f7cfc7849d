"""The principal components that a run computed from gene expression, so that new cells get the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from uniot.errors import RunFolderError
from uniot.io.tensor_files import MAKE_AGAIN, StoredTensors, read_tensors, write_tensors
from uniot.runs.files import RunFiles


@dataclass(frozen=True, eq=False)
class GeneProjection:
    """Principal components of log-normalised expression.

    Attributes:
        genes: names of the genes, (n_genes,).
        means: mean expression of each gene, (n_genes,), float32.
        loadings: (n_genes, n_components), float32.
    """

    genes: tuple[str, ...]
    means: np.ndarray
    loadings: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the components, (n_components,)."""
        return tuple(f"PC{number + 1}" for number in range(self.loadings.shape[1]))

    @classmethod
    def open(cls, run: Path) -> GeneProjection | None:
        """Return the projection in a run folder; None if the run has none.

        Raises:
            RunFolderError: the file is damaged.
        """
        path = RunFiles(run).gene_projection
        if not path.is_file():
            return None
        tensors, about = read_tensors(path)
        genes = about.get("genes")
        if not isinstance(genes, list) or not all(isinstance(gene, str) for gene in genes):
            raise RunFolderError(f"{path} has no list of genes. {MAKE_AGAIN}")
        stored = StoredTensors(str(path), tensors)
        means = stored.take("means", (len(genes),), torch.float32)
        loadings = stored.take("loadings", (len(genes), None), torch.float32)
        return cls(tuple(genes), means.numpy(), loadings.numpy())

    def write(self, folder: Path) -> None:
        """Write the projection to a run folder."""
        tensors = {"means": torch.from_numpy(self.means), "loadings": torch.from_numpy(self.loadings)}
        write_tensors(RunFiles(folder).gene_projection, tensors, {"genes": list(self.genes)})
