"""Make the galleries of the report: typical and doubtful samples of each category, with thumbnails of bounded size."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from uniot.discovery.groups import exemplars
from uniot.errors import DataError, import_optional
from uniot.runs.pictures import Collection, Pictures

if TYPE_CHECKING:
    from uniot.report.run import Category, FinishedRun

Picture = tuple[Collection, int]
"""A picture: its collection and its row there."""
# Pillow decodes outside of Python's lock, and files may lie on a slow disk.
_THREADS = 4
_AT_ONCE = 64
# Number of pictures from which the size of all is estimated.
_TRIED = 24
SHEET_COLUMNS = 16


def read_thumbnails(
    pictures: Pictures | None, wanted: Iterable[Picture], side: int, most_bytes: int
) -> dict[Picture, bytes]:
    """Return pictures as JPEG, in order until the limit of bytes; missing files are left out.

    Args:
        pictures: pictures of the run; the result is empty if None.
        wanted: pictures to read; duplicates are read once.
        side: longest side in pixels.
        most_bytes: limit of the sum of all sizes.

    Returns:
        The JPEG bytes of each picture that was read.
    """
    if pictures is None:
        return {}
    found: dict[Picture, bytes] = {}
    room = most_bytes
    queue = iter(dict.fromkeys(wanted))
    with ThreadPoolExecutor(_THREADS) as threads:
        while block := list(islice(queue, _AT_ONCE)):
            for picture, jpeg in zip(block, threads.map(lambda one: _read(pictures, one, side), block), strict=True):
                if jpeg is None:
                    continue
                room -= len(jpeg)
                if room < 0:
                    return found
                found[picture] = jpeg
    return found


def fitting_side(pictures: Pictures | None, wanted: Sequence[Picture], sides: Sequence[int], most_bytes: int) -> int:
    """Return the first of `sides` at which all pictures are likely to fit into `most_bytes`, or else the last."""
    step = max(1, len(wanted) // _TRIED)
    for side in sides[:-1]:
        tried = read_thumbnails(pictures, wanted[::step], side, most_bytes).values()
        if len(wanted) * sum(map(len, tried)) <= most_bytes * len(tried):
            return side
    return sides[-1]


def data_uri(jpeg: bytes) -> str:
    """Return a picture as a data URI."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


def _pillow(module: str) -> Any:
    return import_optional(f"PIL.{module}", "report", "showing pictures in the report")


def sheets(thumbnails: Sequence[bytes], side: int, most_bytes: int) -> list[bytes]:
    """Return sheets of 16 × 16 squares as JPEG, in half the bytes of single pictures, until the limit of bytes.

    Args:
        thumbnails: pictures as JPEG.
        side: side of a square in pixels.
        most_bytes: limit of the size of all sheets.
    """
    image = _pillow("Image")
    made: list[bytes] = []
    for start in range(0, len(thumbnails), SHEET_COLUMNS**2):
        block = thumbnails[start : start + SHEET_COLUMNS**2]
        sheet = image.new("RGB", (SHEET_COLUMNS * side, -(-len(block) // SHEET_COLUMNS) * side), "white")
        for number, jpeg in enumerate(block):
            sheet.paste(square(jpeg, side), (number % SHEET_COLUMNS * side, number // SHEET_COLUMNS * side))
        stream = io.BytesIO()
        sheet.save(stream, "JPEG", quality=75)
        most_bytes -= len(stream.getvalue())
        if most_bytes < 0:
            break
        made.append(stream.getvalue())
    return made


def square(jpeg: bytes, side: int) -> Any:
    """Return the whole picture in the middle of a white square."""
    picture = _pillow("Image").open(io.BytesIO(jpeg)).convert("RGB")
    return _pillow("ImageOps").pad(picture, (side, side), color="white")


def _read(pictures: Pictures, picture: Picture, side: int) -> bytes | None:
    try:
        return pictures.thumbnail(*picture, side)
    except DataError:
        return None


TYPICAL, DOUBTFUL = 16, 8
# Confidence below which a sample is doubtful: at least one label in four is wrong, or another group is not even twice
# as far away.
_DOUBTFUL_BELOW, _DOUBTFUL_BELOW_IN_GROUP = 0.75, 0.5
_MOST_OF_A_KIND = 30
_NEAREST = 3


@dataclass(frozen=True)
class Gallery:
    """Lists some members of a category, as target rows.

    Attributes:
        category: whose members they are.
        typical: nearest to the centre, the nearest first; none that is doubtful.
        doubtful: those with the lowest confidence of all that are doubtful, the lowest first.
        n_doubtful: number of all members that are doubtful.
        doubtful_below: confidence below which a member is doubtful.
        source_row: of a source class, the labelled sample nearest to its prototype; None elsewhere.
        nearest_classes: of a group, the source classes that its members are most similar to, as index and mean
            cosine, the most similar first; none elsewhere.
    """

    category: Category
    typical: np.ndarray
    doubtful: np.ndarray
    n_doubtful: int
    doubtful_below: float
    source_row: int | None
    nearest_classes: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Galleries:
    """Holds the galleries of the largest categories of one kind.

    Attributes:
        shown: the largest first.
        left_out: categories without a gallery, all smaller.
    """

    shown: list[Gallery]
    left_out: list[Category]


def make_galleries(run: FinishedRun, *, known: bool) -> Galleries:
    """Return the galleries of source classes, or of groups. Paper: Fig. S5 and S6."""
    categories = [category for category in run.categories if category.known == known]
    centres = run.model.class_centres
    shown = [_gallery(run, category, centres) for category in categories[:_MOST_OF_A_KIND]]
    return Galleries(shown, categories[_MOST_OF_A_KIND:])


def _gallery(run: FinishedRun, category: Category, class_centres: np.ndarray) -> Gallery:
    features = run.model.target_features[category.members]
    below = _DOUBTFUL_BELOW_IN_GROUP if category.is_group else _DOUBTFUL_BELOW
    chosen = exemplars(category.members, features @ category.centre, category.confidence, doubtful_below=below)
    source_row = run.nearest_source_rows.get(category.index) if category.known else None
    nearest = () if category.known else nearest_classes(features, class_centres)
    return Gallery(
        category,
        chosen.typical[:TYPICAL],
        chosen.doubtful[:DOUBTFUL],
        len(chosen.doubtful),
        below,
        source_row,
        nearest,
    )


def nearest_classes(features: np.ndarray, class_centres: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Return the classes that samples are most similar to on average, with their mean cosine.

    Args:
        features: unit rows, (m, d).
        class_centres: unit rows, (c, d).
    """
    similarity = class_centres @ features.mean(axis=0)
    nearest = np.argsort(-similarity, kind="stable")[:_NEAREST]
    return tuple((int(index), float(similarity[index])) for index in nearest)


# With plotly's five megabytes and four thirds for base64, the page stays below 15 MB.
_MOST_BYTES = 3_600_000
# Longest side in pixels: a thumbnail enlarges, so it is as large as there is room for.
_SIDES = (384, 256, 192, 128)
_MOST_LISTED = 200


@dataclass(frozen=True)
class Sample:
    """Shows a target sample in a gallery, with its picture as a data URI if there is one."""

    row: int
    name: str
    confidence: float
    picture: str | None


@dataclass(frozen=True)
class Card:
    """Shows a category with some of its samples, and the picture of a labelled one if it is a source class.

    Attributes:
        category: what the card is of.
        typical: samples nearest to the centre.
        doubtful: those with the lowest confidence of all that are doubtful.
        n_doubtful: number of all that are doubtful.
        doubtful_below: confidence below which a sample is doubtful.
        labelled: picture of a source sample, a data URI.
        nearest: names of the source classes that a group is most similar to, with the mean similarity.
    """

    category: Category
    typical: list[Sample]
    doubtful: list[Sample]
    n_doubtful: int
    doubtful_below: float
    labelled: str | None
    nearest: list[tuple[str, float]]

    @property
    def count(self) -> int:
        """Return the number of members of the category."""
        return len(self.category.members)

    @property
    def n_typical(self) -> int:
        """Return the number of members that are not doubtful."""
        return self.count - self.n_doubtful


@dataclass(frozen=True)
class Cards:
    """Holds the cards of the largest categories of one kind, and the names and number of the others."""

    shown: list[Card]
    left_out: list[Category]
    n_left_out: int

    @property
    def rows(self) -> list[int]:
        """Return the target rows that are on a card."""
        return [sample.row for card in self.shown for sample in (*card.typical, *card.doubtful)]


def make_cards(run: FinishedRun, *galleries: Galleries) -> list[Cards]:
    """Return the cards of each kind of gallery; they share the room for pictures."""
    wanted = _wanted([gallery for some in galleries for gallery in some.shown])
    side = fitting_side(run.pictures, wanted, _SIDES, _MOST_BYTES)
    pictures = read_thumbnails(run.pictures, wanted, side, _MOST_BYTES)
    return [
        Cards(
            [_card(run, gallery, pictures) for gallery in some.shown],
            some.left_out[:_MOST_LISTED],
            len(some.left_out),
        )
        for some in galleries
    ]


def _wanted(shown: list[Gallery]) -> list[Picture]:
    """Return the pictures of the galleries, the most important first."""
    wanted: list[Picture] = [("source", gallery.source_row) for gallery in shown if gallery.source_row is not None]
    wanted += [("target", int(row)) for gallery in shown for row in gallery.typical]
    return wanted + [("target", int(row)) for gallery in shown for row in gallery.doubtful]


def _card(run: FinishedRun, gallery: Gallery, pictures: Mapping[Picture, bytes]) -> Card:
    category = gallery.category
    confidence = run.answers.group_confidence if category.is_group else run.answers.confidence

    def uri(picture: Picture) -> str | None:
        return data_uri(pictures[picture]) if picture in pictures else None

    def samples(rows: Iterable[int]) -> list[Sample]:
        return [Sample(row, run.names[row], float(confidence[row]), uri(("target", row))) for row in rows]

    return Card(
        category=category,
        typical=samples(gallery.typical.tolist()),
        doubtful=samples(gallery.doubtful.tolist()),
        n_doubtful=gallery.n_doubtful,
        doubtful_below=gallery.doubtful_below,
        labelled=None if gallery.source_row is None else uri(("source", gallery.source_row)),
        nearest=[(run.class_names[index], similarity) for index, similarity in gallery.nearest_classes],
    )
