"""The pictures of a run, for people to look at: files where they lie, or small ones kept in the run folder itself.

`images.json` in a run folder says where each image of source and target lies. `pictures.safetensors` holds those of a
run that was made from arrays of pixels, such as the demo.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from uniot.data.decoding import UnreadableImage, decode, read_image
from uniot.data.image_files import ImageFile
from uniot.errors import DataError, RunFolderError
from uniot.run_folder import read_tensors, write_tensors, write_text
from uniot.stored_tensors import StoredTensors
from uniot.untrusted import MOST_TEXT_BYTES, parse_json, read_bounded

if TYPE_CHECKING:
    from PIL.Image import Image

Collection = Literal["source", "target"]

IMAGES, PIXELS = "images.json", "pictures.safetensors"


class Pictures:
    """Pictures by collection and row: row 0 of the target is the first line of predictions.csv."""

    def __init__(self, places: dict[Collection, list[str]], pixels: dict[Collection, np.ndarray]) -> None:
        self._places = places
        self._pixels = pixels

    @classmethod
    def open(cls, run: Path) -> Pictures | None:
        """Those of a run; None where it was made from embeddings, which nobody can look at."""
        if (run / PIXELS).is_file():
            stored = StoredTensors(str(run / PIXELS), read_tensors(run / PIXELS)[0])
            source, target = (stored.take(name, (None, None, None), torch.uint8) for name in ("source", "target"))
            return cls({}, {"source": source.numpy(), "target": target.numpy()})
        if (run / IMAGES).is_file():
            return cls(_read_places(run / IMAGES), {})
        return None

    def count(self, collection: Collection) -> int:
        """How many there are."""
        return len(self._pixels[collection] if self._pixels else self._places[collection])

    def path(self, collection: Collection, row: int) -> Path | None:
        """Where the file of a picture lay when the run was made; None if the run itself keeps the pictures."""
        return None if self._pixels else Path(self._places[collection][row])

    def thumbnail(self, collection: Collection, row: int, side: int) -> bytes:
        """A picture as JPEG, its longer side at most `side` pixels (small ones are enlarged by whole numbers).

        A file is decoded and drawn anew, never passed on as it is: nothing but a picture can come of it. It is read
        only while it lies where it lay when the run was made; one that has been replaced by a link is refused.

        Raises:
            DataError: there is no such row; or the file is gone, is a link by now, or cannot be read.
        """
        if not 0 <= row < self.count(collection):
            raise DataError(f"the {collection} has {self.count(collection)} pictures, and number {row} was asked for.")
        if self._pixels:
            return _as_jpeg(_enlarged(self._pixels[collection][row], side))
        path = Path(self._places[collection][row])
        try:
            if path.resolve() != path:
                raise DataError(f"{path} has become a link, which is not followed. Make the run again.")
            image = decode(read_image(path), shortest_side=side)
        except (OSError, RuntimeError, ValueError) as error:  # a path with a NUL byte, or a loop of links
            reason = error.reason if isinstance(error, UnreadableImage) else error
            raise DataError(f"{path} cannot be read ({reason}). Put it back, or make the run again.") from None
        image.thumbnail((side, side))
        return _as_jpeg(image)


def write_places(path: Path, source: Sequence[ImageFile], target: Sequence[ImageFile]) -> None:
    """Notes where the images of a run lie, with every link followed."""
    places = {"source": source, "target": target}
    write_text(path, json.dumps({name: [str(file.path.resolve()) for file in files] for name, files in places.items()}))


def write_pixels(path: Path, source: np.ndarray, target: np.ndarray) -> None:
    """Keeps grey images (n, height, width) from 0 to 1 in the run itself."""
    write_tensors(path, {"source": _as_bytes(source), "target": _as_bytes(target)}, {})


def _as_bytes(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.rint(255 * np.clip(images, 0, 1)).astype(np.uint8))


def _read_places(path: Path) -> dict[Collection, list[str]]:
    try:
        places = parse_json(read_bounded(path, MOST_TEXT_BYTES))
        if not isinstance(places, dict):
            raise ValueError("no JSON object")
        return {"source": _paths(places, "source"), "target": _paths(places, "target")}
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). Make the run again.") from None


def _paths(places: dict[str, Any], collection: Collection) -> list[str]:
    paths = places.get(collection)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError(f"{collection} is no list of paths")
    return paths


def _enlarged(pixels: np.ndarray, side: int) -> Image:
    from PIL import Image

    times = max(1, side // max(pixels.shape))
    return Image.fromarray(np.kron(pixels, np.ones((times, times), np.uint8)))


def _as_jpeg(image: Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=80)
    return stream.getvalue()
