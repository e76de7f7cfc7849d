"""Reads labels.sqlite, the file of a run folder that keeps what people decided on the labelling page."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from uniot.annotations.annotations import Annotations
from uniot.annotations.places import class_place
from uniot.errors import RunFolderError
from uniot.prediction import Prediction

FILE = "labels.sqlite"
FORMAT = "uniot-labels-1"

_Rows = tuple[dict[str, str], list[tuple[int, int, int]], list[tuple[int, str]]]


def read_annotations(
    folder: Path, fingerprint: str, samples: Sequence[str], classes: Sequence[str], target: Prediction, n_groups: int
) -> Annotations | None:
    """Read what people decided about a run; None if the file is missing or belongs to another run of the folder.

    Args:
        folder: of the run.
        fingerprint: of the run's data and settings.
        samples: names of the target's samples, as in predictions.csv.
        classes: names of the source classes, text.
        target: the answers of the run.
        n_groups: number of private groups that the run found.

    Raises:
        RunFolderError: the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        about, standings, names = _read(path)
    except sqlite3.DatabaseError as error:
        raise RunFolderError(
            f"{path} is damaged ({error}). Move it away: the names in it are not used then; labels.csv, if it was "
            "written, can still be read."
        ) from error
    start = start_places(target, n_groups)
    if about != {"format": FORMAT, "run": run_digest(fingerprint, samples, classes, start)}:
        return None
    place, by_hand = start.copy(), np.zeros(len(start), dtype=bool)
    for row, now, person in standings:
        place[row], by_hand[row] = now, bool(person)
    return Annotations.of(
        samples, start, place, by_hand, {number: name for number, name in names if name}, classes, n_groups
    )


def start_places(answers: Prediction, n_groups: int) -> NDArray[np.int64]:
    """Return where the run puts each sample, (n,); unknown samples without a group make the last group."""
    groups = np.where(answers.group < 0, n_groups, answers.group)
    return np.asarray(np.where(answers.known, class_place(0) - answers.nearest, groups), dtype=np.int64)


def run_digest(fingerprint: str, samples: Sequence[str], classes: Sequence[str], start: np.ndarray) -> str:
    """Return a digest of everything that an annotation refers to; another run has another one."""
    described = json.dumps([fingerprint, list(samples), list(classes), start.tolist()])
    return hashlib.sha256(described.encode()).hexdigest()


def _read(path: Path) -> _Rows:
    """Read without writing; a folder that cannot be written holds no page that writes, so nothing can change."""
    address = f"file:{quote(str(path.absolute()))}"
    try:
        return _rows(f"{address}?mode=ro")
    except sqlite3.OperationalError:
        return _rows(f"{address}?immutable=1")


def _rows(address: str) -> _Rows:
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            return {}, [], []
        connection.execute("BEGIN")  # one state, whatever a page writes meanwhile
        return (
            dict(connection.execute("SELECT key, value FROM about")),
            connection.execute("SELECT row, place, by_hand FROM samples").fetchall(),
            connection.execute("SELECT number, name FROM groups").fetchall(),
        )
