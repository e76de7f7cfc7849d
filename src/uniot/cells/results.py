"""Write the labels of a query as columns of obs: into a copy of its .h5ad file, or of its AnnData object."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uniot.cells.cells import FileCells, unique_names
from uniot.cells.h5ad import open_h5ad
from uniot.errors import RunFolderError, import_optional
from uniot.io.files import replacing
from uniot.io.predictions import Prediction
from uniot.io.text import as_utf8
from uniot.runs.files import RunFiles
from uniot.runs.run import Run
from uniot.training.model import AdaptedModel

LABEL, CONFIDENCE, GROUP = "uniot_label", "uniot_confidence", "uniot_group"
"""Columns of obs that are written."""
ABOUT = "uniot"
"""Entry of uns that is written."""


@dataclass(frozen=True, eq=False)
class CellColumns:
    """What is written about the cells of a query.

    Attributes:
        labels: class, name of the group or unknown; None for a cell that a person left out, (n_cells,) of objects.
        confidence: probability of the label; NaN for a cell that was left out, (n_cells,).
        groups: group of an unknown cell; None for all others, (n_cells,) of objects.
        classes: classes of the reference, which are categories of the label even if no cell has them.
        about: sentences and numbers on the run as a whole.
    """

    labels: np.ndarray
    confidence: np.ndarray
    groups: np.ndarray
    classes: Sequence[str] = ()
    about: Mapping[str, str | float | Sequence[str] | Sequence[float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def for_cells(self, names: Sequence[str], of: Sequence[str]) -> CellColumns:
        """Return the columns for cells by their names; those that have none here were left out.

        Args:
            names: of the cells that the columns are wanted for, each one once.
            of: names of the cells of these columns.
        """
        if list(names) == list(of):
            return self
        row_of = {name: row for row, name in enumerate(of)}
        rows = np.array([row_of.get(name, -1) for name in names], dtype=np.int64)
        found = rows >= 0
        if len(of) and not found.any():
            raise RunFolderError("no cell of the file has the name of a cell of the run. Give the query of the run.")
        labels, groups = np.full(len(rows), None, dtype=object), np.full(len(rows), None, dtype=object)
        confidence = np.full(len(rows), np.nan)
        labels[found], groups[found] = self.labels[rows[found]], self.groups[rows[found]]
        confidence[found] = self.confidence[rows[found]]
        return CellColumns(labels, confidence, groups, self.classes, self.about)

    @property
    def label_categories(self) -> list[str]:
        """Return the labels that occur: classes first, in their order, then others, unknown last."""
        present = {str(label) for label in self.labels.tolist() if label is not None}
        classes = [name for name in self.classes if name in present]
        others = sorted(present - set(classes), key=lambda name: (name == "unknown", name))
        return [*classes, *others]

    @property
    def group_categories(self) -> list[str]:
        """Return the groups that occur, by their numbers."""
        present = {str(group) for group in self.groups.tolist() if group is not None}
        return sorted(present, key=lambda name: (len(name), name))


def group_title(group: int) -> str:
    """Return what a group is called in the column of groups."""
    return f"group {group}"


def columns_of(model: AdaptedModel, prediction: Prediction | None = None) -> CellColumns:
    """Return the columns for the target of a model, after all that people decided about it.

    Args:
        model: the fitted model.
        prediction: of other cells; the columns are for these if it is given.
    """
    cells = model.target if prediction is None else prediction
    groups = [None if group < 0 else group_title(group) for group in cells.group.tolist()]
    labels = [as_utf8(str(label)) for label in model.labels(cells).tolist()]
    return CellColumns(
        np.array(labels, dtype=object),
        cells.confidence.astype(np.float32),
        np.array(groups, dtype=object),
        model.class_names,
        _about(model) if prediction is None else {"method": model.settings.method},
    )


def _about(model: AdaptedModel) -> dict[str, str | float | Sequence[str] | Sequence[float]]:
    """Return the estimates and warnings of a model, without those that it does not have."""
    reliability, interval = model.reliability_of_decision, model.shown_share_interval
    about: dict[str, str | float | Sequence[str] | Sequence[float]] = {
        "method": model.settings.method,
        "unknown_fraction": float((~model.target.known).mean()) if len(model.target) else 0.0,
        "warnings": list(reliability.warnings),
    }
    if interval is not None:
        about["unknown_fraction_interval"] = [float(bound) for bound in interval]
    if reliability.accuracy is not None:
        about["estimated_accuracy"] = float(reliability.accuracy)
    return about


def annotated(adata: Any, columns: CellColumns, notes: Sequence[str] = ()) -> Any:
    """Return a copy of an AnnData object, in memory, with the columns in obs and what is said of them in uns.

    Args:
        adata: cells, in the order of the columns.
        columns: of these cells.
        notes: sentences on how the cells were read.
    """
    pandas = import_optional("pandas", "cells", "writing labels of cells")
    copy = adata.to_memory() if getattr(adata, "isbacked", False) else adata.copy()
    for name, values, categories in (
        (LABEL, columns.labels, columns.label_categories),
        (GROUP, columns.groups, columns.group_categories),
    ):
        # As objects: anndata cannot write the texts of pandas 3.
        index = pandas.Index(np.array(categories, dtype=object), dtype=object)
        copy.obs[name] = pandas.Categorical.from_codes(_codes(values, categories), categories=index)
    copy.obs[CONFIDENCE] = columns.confidence
    copy.uns[ABOUT] = {name: _stored(value) for name, value in columns.about.items()}
    copy.uns[ABOUT]["notes"] = _stored(list(notes))
    return copy


def write_annotated(query: Path, out: Path, columns: CellColumns, names: Sequence[str]) -> None:
    """Write a copy of an .h5ad file with the columns in obs; everything else in it stays as it is.

    Args:
        query: the file.
        out: the copy, which may be the file itself; it appears when it is complete.
        columns: of the cells of a run.
        names: of these cells, (n_cells,).

    Raises:
        DataError: the file cannot be read.
        RunFolderError: it has none of the cells, or the copy cannot be written.
    """
    with open_h5ad(query) as file:
        columns = columns.for_cells(unique_names(FileCells(file).names()).names, names)
    with replacing(out) as partial:
        shutil.copyfile(query, partial)
        _write_columns(partial, columns)


def refresh(run: Path) -> None:
    """Write the labels of the cells in a run folder again, after what people decided; nothing if it has none."""
    if RunFiles(run).cells.is_file():
        with Run.writer(run, wait=True):
            export_cells(Run.open(run), RunFiles(run).cells)


def export_cells(run: Run, out: Path) -> None:
    """Write the query of a run with the present labels of its cells as an .h5ad file.

    Raises:
        RunFolderError: the run is not one of cells.
    """
    run.require_target("to export")
    if not run.files.cells.is_file():
        raise RunFolderError(
            f"{run.folder} has no {run.files.cells.name}, because its samples are not cells of .h5ad files. Its labels "
            f"are in {run.files.predictions}."
        )
    write_annotated(run.files.cells, out, columns_of(run.model), run.predictions.names)


def _write_columns(path: Path, columns: CellColumns) -> None:
    h5py = import_optional("h5py", "cells", "writing .h5ad files")
    with h5py.File(path, "r+") as file:
        obs = file["obs"]
        _write_categories(h5py, obs, LABEL, columns.labels, columns.label_categories)
        _write_categories(h5py, obs, GROUP, columns.groups, columns.group_categories)
        _replace(obs, CONFIDENCE)
        _encoded(obs.create_dataset(CONFIDENCE, data=columns.confidence.astype(np.float32)), "array", "0.2.0")
        order = [_text(name) for name in np.atleast_1d(obs.attrs.get("column-order", []))]
        order += [name for name in (LABEL, CONFIDENCE, GROUP) if name not in order]
        obs.attrs.create("column-order", np.array(order, dtype=object), dtype=h5py.string_dtype())
        uns = file.require_group("uns")
        if "encoding-type" not in uns.attrs:
            _encoded(uns, "dict", "0.1.0")
        for name in (ABOUT, f"{LABEL}_colors", f"{GROUP}_colors"):
            # Colours of an earlier result may be too few for this one.
            _replace(uns, name)
        about = uns.create_group(ABOUT)
        _encoded(about, "dict", "0.1.0")
        for name, value in columns.about.items():
            stored = _stored(value)
            if isinstance(stored, np.ndarray) and stored.dtype.kind == "O":
                _encoded(about.create_dataset(name, data=stored, dtype=h5py.string_dtype()), "string-array", "0.2.0")
            elif isinstance(stored, np.ndarray):
                _encoded(about.create_dataset(name, data=stored), "array", "0.2.0")
            elif isinstance(stored, str):
                _encoded(about.create_dataset(name, data=stored, dtype=h5py.string_dtype()), "string", "0.2.0")
            else:
                _encoded(about.create_dataset(name, data=stored), "numeric-scalar", "0.2.0")


def _write_categories(h5py: Any, obs: Any, name: str, values: np.ndarray, categories: list[str]) -> None:
    _replace(obs, name)
    group = obs.create_group(name)
    _encoded(group, "categorical", "0.2.0")
    group.attrs["ordered"] = False
    _encoded(group.create_dataset("codes", data=_codes(values, categories)), "array", "0.2.0")
    texts = np.array(categories, dtype=object)
    _encoded(group.create_dataset("categories", data=texts, dtype=h5py.string_dtype()), "string-array", "0.2.0")


def _codes(values: np.ndarray, categories: list[str]) -> np.ndarray:
    code_of = {name: code for code, name in enumerate(categories)}
    codes = [-1 if value is None else code_of[str(value)] for value in values.tolist()]
    smallest = np.int8 if len(categories) < 128 else np.int32
    return np.array(codes, dtype=smallest)


def _replace(group: Any, name: str) -> None:
    if name in group:
        del group[name]


def _encoded(item: Any, kind: str, version: str) -> None:
    item.attrs["encoding-type"], item.attrs["encoding-version"] = kind, version


def _stored(value: Any) -> Any:
    if isinstance(value, str | float):
        return value
    values = list(value)
    return np.array(values, dtype=object if any(isinstance(one, str) for one in values) or not values else float)


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
