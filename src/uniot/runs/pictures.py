"""The pictures of a run's samples.

A run made from image files keeps their paths; a run made from arrays of pixels, such as the demo, keeps the pictures
themselves.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from uniot.errors import DataError, RunFolderError
from uniot.images.decoding import UnreadableImage, decoded, memory_for_encoded, read_image
from uniot.io.files import MOST_TEXT_BYTES, parse_json, read_bounded, write_text
from uniot.io.tensor_files import StoredTensors, read_tensors, write_tensors
from uniot.runs.files import RunFiles

if TYPE_CHECKING:
    from PIL.Image import Image

    from uniot.images.files import ImageFile

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
    write_paths(folder, *([str(file.path) for file in files] for files in (source, target)))


def write_paths(folder: Path, source: Sequence[str], target: Sequence[str]) -> None:
    """Write the paths of image files of a run to its folder, with every link resolved."""
    places = {"source": source, "target": target}
    paths = {name: [str(Path(path).resolve()) for path in of_one] for name, of_one in places.items()}
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
