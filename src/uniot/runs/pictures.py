"""Show the samples of a run to people: their pictures, and the annotations of the labelling page.

A run made from image files keeps their paths; a run made from arrays of pixels, such as the demo, keeps the pictures
themselves.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np
import torch
from numpy.typing import NDArray

from uniot.discovery.annotations import Annotations, class_place
from uniot.errors import DataError, RunFolderError
from uniot.images.decoding import UnreadableImage, decoded, memory_for_encoded, read_image
from uniot.io.files import MOST_TEXT_BYTES, parse_json, read_bounded, write_text
from uniot.io.predictions import Prediction, read_predictions
from uniot.io.tensor_files import StoredTensors, read_tensors, write_tensors
from uniot.io.text import as_utf8
from uniot.rejection.answers import Answers
from uniot.runs.files import RunFiles

if TYPE_CHECKING:
    from PIL.Image import Image

    from uniot.images.files import ImageFile
    from uniot.training.model import AdaptedModel

Collection = Literal["source", "target"]


class Pictures:
    """Pictures by collection and row; row 0 of the target is the first line of predictions.csv."""

    def __init__(self, places: dict[Collection, list[str]], pixels: dict[Collection, np.ndarray]) -> None:
        self._places = places
        self._pixels = pixels

    @classmethod
    def open(cls, run: Path) -> Pictures | None:
        """Return the pictures of a run folder; None if the run was made from embeddings."""
        files = RunFiles(run)
        if files.pixels.is_file():
            stored = StoredTensors(str(files.pixels), read_tensors(files.pixels)[0])
            source, target = (stored.take(name, (None, None, None), torch.uint8) for name in ("source", "target"))
            return cls({}, {"source": source.numpy(), "target": target.numpy()})
        if files.image_paths.is_file():
            return cls(_read_places(files.image_paths), {})
        return None

    def count(self, collection: Collection) -> int:
        """Return the number of pictures of a collection."""
        return len(self._pixels[collection] if self._pixels else self._places[collection])

    def path(self, collection: Collection, row: int) -> Path | None:
        """Return where the file of a picture was when the run was made; None if the run keeps the pictures itself."""
        return None if self._pixels else Path(self._places[collection][row])

    def thumbnail(self, collection: Collection, row: int, side: int) -> bytes:
        """Return a picture as JPEG, its longer side at most `side` pixels; small ones are enlarged by whole numbers.

        A file is decoded and encoded again, so that nothing but a picture can come of it. A file that has been
        replaced by a link since the run was made is not read.

        Raises:
            DataError: there is no such row; or the file is missing, has become a link, or cannot be read.
        """
        if not 0 <= row < self.count(collection):
            raise DataError(f"the {collection} has {self.count(collection)} pictures, and number {row} was requested.")
        if self._pixels:
            return _as_jpeg(_enlarged(self._pixels[collection][row], side))
        path = Path(self._places[collection][row])
        try:
            if path.resolve() != path:
                raise DataError(f"{path} has become a link, which is not followed. Make the run again.")
            with memory_for_encoded(path), decoded(read_image(path), shortest_side=side) as image:
                image.thumbnail((side, side))
                return _as_jpeg(image)
        except (OSError, RuntimeError, ValueError) as error:  # a path with a NUL byte, or a loop of links
            reason = error.reason if isinstance(error, UnreadableImage) else error
            raise DataError(f"{path} cannot be read ({reason}). Put it back, or make the run again.") from None


def write_places(folder: Path, source: Sequence[ImageFile], target: Sequence[ImageFile]) -> None:
    """Write the paths of the images of a run to its folder, with every link resolved."""
    places = {"source": source, "target": target}
    paths = {name: [str(file.path.resolve()) for file in files] for name, files in places.items()}
    write_text(RunFiles(folder).image_paths, json.dumps(paths))


def write_pixels(folder: Path, source: np.ndarray, target: np.ndarray) -> None:
    """Write grey images with values from 0 to 1, (n_samples, height, width), to a run folder."""
    write_tensors(RunFiles(folder).pixels, {"source": _as_bytes(source), "target": _as_bytes(target)}, {})


def _as_bytes(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.rint(255 * np.clip(images, 0, 1)).astype(np.uint8))


def _read_places(path: Path) -> dict[Collection, list[str]]:
    try:
        places = parse_json(read_bounded(path, MOST_TEXT_BYTES))
        if not isinstance(places, dict):
            raise ValueError("not a JSON object")
        return {"source": _paths(places, "source"), "target": _paths(places, "target")}
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Make the run again.") from None


def _paths(places: dict[str, Any], collection: Collection) -> list[str]:
    paths = places.get(collection)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError(f"{collection} is not a list of paths")
    return paths


def _enlarged(pixels: np.ndarray, side: int) -> Image:
    from PIL import Image

    times = max(1, side // max(pixels.shape))
    return Image.fromarray(np.kron(pixels, np.ones((times, times), np.uint8)))


def _as_jpeg(image: Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=80)
    return stream.getvalue()


FILE = RunFiles(Path()).annotations.name
FORMAT = "uniot-labels-1"

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
    classes = [as_utf8(str(name)) for name in model.classes.tolist()]
    try:
        about, standings, names = _read(path)
    except sqlite3.DatabaseError as error:
        raise RunFolderError(
            f"{path} is damaged ({error}). Move it away to use the run without its names; {files.labels.name}, if it "
            "was written, can still be read."
        ) from error
    start = start_places(model.target, n_groups)
    if about != {"format": FORMAT, "run": run_digest(model.fingerprint, samples, classes, start)}:
        return None
    place, (by_hand, cannot_tell) = start.copy(), told_rows(model.answers, len(start))
    for row, now, person, unsure in standings:
        place[row], by_hand[row], cannot_tell[row] = now, bool(person), bool(unsure)
    group_names = {number: name for number, name in names if name}
    return Annotations.of(samples, start, place, by_hand, cannot_tell, group_names, classes, n_groups, model.answers)


def told_rows(answers: Answers, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which samples have an answer, and about which a person could not say; two masks, (n_samples,)."""
    told, unsure = np.zeros(n_samples, dtype=bool), np.zeros(n_samples, dtype=bool)
    told[answers.decided.rows] = True
    unsure[answers.rows] = ~told[answers.rows]
    return told, unsure


def start_places(answers: Prediction, n_groups: int) -> NDArray[np.int64]:
    """Return the place of each sample before any annotation, (n_samples,); ungrouped ones form the last group."""
    groups = np.where(answers.group < 0, n_groups, answers.group)
    return np.asarray(np.where(answers.known, class_place(0) - answers.nearest, groups), dtype=np.int64)


def run_digest(fingerprint: str, samples: Sequence[str], classes: Sequence[str], start: np.ndarray) -> str:
    """Return a digest of everything that an annotation refers to; it differs between runs."""
    described = json.dumps([fingerprint, list(samples), list(classes), start.tolist()])
    return hashlib.sha256(described.encode()).hexdigest()


def has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """Return whether a table of a database has a column."""
    found = connection.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table, column))
    return found.fetchone() is not None


def _read(path: Path) -> _Rows:
    """Read the database without writing; in a folder that cannot be written, no labelling page can change it."""
    address = f"file:{quote(str(path.absolute()))}"
    try:
        return _rows(f"{address}?mode=ro")
    except sqlite3.OperationalError:
        return _rows(f"{address}?immutable=1")


def _rows(address: str) -> _Rows:
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            return {}, [], []
        connection.execute("BEGIN")  # one consistent state, even if a page writes at the same time
        # Earlier versions did not store "cannot tell".
        unsure = "cannot_tell" if has_column(connection, "samples", "cannot_tell") else "0"
        return (
            dict(connection.execute("SELECT key, value FROM about")),
            connection.execute(f"SELECT row, place, by_hand, {unsure} FROM samples").fetchall(),
            connection.execute("SELECT number, name FROM groups").fetchall(),
        )
