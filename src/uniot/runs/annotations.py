"""The annotations in a run folder: the database that the labelling page writes, read without changing it."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from uniot.annotations.annotations import Annotations, told_rows
from uniot.annotations.places import start_places
from uniot.errors import RunFolderError
from uniot.io.predictions import read_predictions
from uniot.runs.files import RunFiles

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel


FILE = RunFiles(Path()).annotations.name
FORMAT = "uniot-labels-2"
_Rows = tuple[dict[str, str], list[tuple[int, int, int, int]], list[tuple[int, str]]]


def read_annotations(model: AdaptedModel, folder: Path) -> Annotations | None:
    """Return the annotations of a run; None if there are none, or only those of an earlier run in the folder.

    Args:
        model: the model as it was saved.
        folder: the run folder.

    Raises:
        RunFolderError: the annotations are damaged.
    """
    files = RunFiles(folder)
    path = files.annotations
    if not path.is_file() or not files.predictions.is_file():
        return None
    samples, n_groups = read_predictions(files.predictions).names, model.groups.n_groups
    classes = model.class_names
    try:
        about, standings, names = _read(path)
    except sqlite3.DatabaseError as error:
        raise RunFolderError(
            f"{path} is damaged ({error}). Move it away to use the run without its names; {files.labels.name}, if it "
            "was written, can still be read."
        ) from error
    start = start_places(model.target, n_groups)
    if about.get("run") != run_digest(model.fingerprint, samples, classes, start):
        return None
    place, (by_hand, cannot_tell) = start.copy(), told_rows(model.answers, len(start))
    for row, now, person, unsure in standings:
        place[row], by_hand[row], cannot_tell[row] = now, bool(person), bool(unsure)
    group_names = {number: name for number, name in names if name}
    return Annotations.of(samples, start, place, by_hand, cannot_tell, group_names, classes, n_groups, model.answers)


def run_digest(fingerprint: str, samples: Sequence[str], classes: Sequence[str], start: np.ndarray) -> str:
    """Return a digest of everything that an annotation refers to; it differs between runs."""
    described = json.dumps([fingerprint, list(samples), list(classes), start.tolist()])
    return hashlib.sha256(described.encode()).hexdigest()


def check_format(path: Path, about: Mapping[str, str]) -> None:
    """Raise RunFolderError if a file of annotations has another format than this version writes."""
    if about.get("format") != FORMAT:
        raise RunFolderError(
            f"{path} has format {about.get('format')!r} and this version of uniot reads {FORMAT!r}. Install the "
            "version that wrote it, or move the file away to start again without labels."
        )


def _read(path: Path) -> _Rows:
    """Read the database without writing; in a folder that cannot be written, no labelling page can change it."""
    address = f"file:{quote(str(path.absolute()))}"
    try:
        return _rows(path, f"{address}?mode=ro")
    except sqlite3.OperationalError as error:
        if "no such" in str(error):  # a table or a column is missing
            raise
        return _rows(path, f"{address}?immutable=1")


def _rows(path: Path, address: str) -> _Rows:
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            return {}, [], []
        connection.execute("BEGIN")  # one consistent state, even if a page writes at the same time
        about = dict(connection.execute("SELECT key, value FROM about"))
        check_format(path, about)
        return (
            about,
            connection.execute("SELECT row, place, by_hand, cannot_tell FROM samples").fetchall(),
            connection.execute("SELECT number, name FROM groups").fetchall(),
        )
