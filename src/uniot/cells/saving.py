"""Write what belongs to cells into a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uniot.cells.cells import FileCells, unique_names
from uniot.cells.descriptions import describe_groups
from uniot.cells.h5ad import open_h5ad
from uniot.cells.results import columns_of, write_annotated
from uniot.runs.annotations import read_annotations

if TYPE_CHECKING:
    from uniot.cells.reading import CellPair
    from uniot.runs.saving import RunWriter
    from uniot.training.model import AdaptedModel


def save_cells(writer: RunWriter, query: Path, model: AdaptedModel, names: list[str], cells: CellPair) -> None:
    """Write the labelled copy of the query, the marker genes of the groups and the projection of the genes.

    Args:
        writer: of the run.
        query: file of the query.
        model: the fitted model.
        names: cells of the query that have a prediction, (n_predicted,).
        cells: how the two files were read.
    """
    if cells.projection is not None:
        writer.write_gene_projection(cells.projection)
    with open_h5ad(query) as file:
        row_of = {name: row for row, name in enumerate(unique_names(FileCells(file).names()).names)}
    rows = np.array([row_of[name] for name in names], dtype=np.int64)
    described = describe_groups(query, rows, model.target.group, model.groups.n_groups)
    if described is not None:
        writer.write_descriptions(described)
    # A run that was finished before may have been labelled since.
    annotations = read_annotations(model, writer.folder)
    decided = model if annotations is None else model.with_annotations(annotations)
    if not model.settings.store_target:
        # `--forget-target` promises that no single sample is in the folder.
        writer.files.cells.unlink(missing_ok=True)
        return
    write_annotated(query, writer.files.cells, columns_of(decided), names)
    writer.add_to_contents(
        f"{writer.files.cells.name} is a copy of {query.name} with the labels in obs, so it contains the cells "
        "themselves. Leave it out if you share the folder."
    )
