"""Choose the images of the gallery: typical samples, similar groups, label propagation, label order, and thumbnails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Literal

import numpy as np

from uniot.discovery.annotations import DISCARDED, class_index, class_place, is_class, is_group
from uniot.discovery.kmeans import spherical_kmeans
from uniot.discovery.label_order import RUN_WEIGHT, Neighbourhoods, Queued, label_queue, spread_labels, uncertainty

if TYPE_CHECKING:
    from uniot.labelling.state import AnnotationState
    from uniot.labelling.target import Target
    from uniot.runs.pictures import Collection, Pictures

Order = Literal["typical", "doubtful"]
THUMBNAIL_SIDE, LARGE_SIDE = 160, 720

# A thousand samples suffice to find two centres; k-means on all of a large group would keep the page waiting.
_MAX_ROWS_TO_SPLIT = 1000
_MAX_CACHE_BYTES = 1 << 28
# Decoding a large photograph takes up to a gigabyte of memory.
_MAX_DECODERS = max(2, min(4, os.cpu_count() or 2))


class GalleryOrder:
    """Orders the samples of a category by similarity, and categories too; caches centres until `forget`.

    Args:
        target: features and class means.
        state: the present state, which the caller changes.
    """

    def __init__(self, target: Target, state: AnnotationState) -> None:
        self._target, self._state = target, state
        self._centres: dict[int, np.ndarray] = {}
        self._exemplars: dict[int, int] = {}
        self._first_centres: dict[int, np.ndarray] = {}

    def forget(self, categories: Iterable[int]) -> None:
        """Drop what is cached about categories that have changed."""
        for category in categories:
            self._centres.pop(category, None)
            self._exemplars.pop(category, None)

    def exemplar(self, group: int) -> int:
        """Return the row of the sample nearest to the centre of a group."""
        if group not in self._exemplars:
            rows = self._state.members(group)
            self._exemplars[group] = int(rows[(self._target.features[rows] @ self._centre(group)).argmax()])
        return self._exemplars[group]

    def ordered(self, category: int, order: Order) -> np.ndarray:
        """Return the rows of a category, nearest to its centre first or last; discarded ones by number, (n_members,).

        The centre is that of the group when it was first shown, so that the remaining samples keep their order when
        some are moved away.
        """
        rows = self._state.members(category)
        if is_group(category) or is_class(category):
            if category not in self._first_centres and len(rows):
                self._first_centres[category] = self._centre(category)
            cosines = self._target.features[rows] @ self._first_centres[category] if len(rows) else np.zeros(0)
            rows = rows[np.argsort(-cosines, kind="stable")]
        return rows if order == "typical" else rows[::-1]

    def class_members(self, index: int, count: int, leave_out: int) -> list[int]:
        """Return up to `count` samples of a source class: those that a person placed there first, then typical ones.

        Args:
            index: of the class.
            count: number of samples.
            leave_out: a row that is not returned.
        """
        rows = self._state.members(class_place(index))
        rows = rows[rows != leave_out]
        cosines = self._target.features[rows] @ self._target.prototypes[index]
        return [int(row) for row in rows[np.lexsort((-cosines, ~self._state.by_hand[rows]))][:count]]

    def similar(self, category: int) -> list[tuple[int, float]]:
        """Return every other group and class with its cosine to a group or class, the most similar first."""
        groups = [group for group in self._state.sizes() if is_group(group)]
        others = [*groups, *(class_place(index) for index in range(len(self._target.classes)))]
        cosines = np.stack([self._centre(other) for other in others]) @ self._centre(category)
        order = np.argsort(-cosines, kind="stable")
        return [(others[number], float(cosines[number])) for number in order if others[number] != category]

    def smaller_half(self, group: int) -> np.ndarray:
        """Return the rows of the smaller of two parts into which spherical k-means splits a group, (n_rows,)."""
        rows = self._state.members(group)
        rng = np.random.default_rng(group)
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[rng.permutation(len(rows))[:_MAX_ROWS_TO_SPLIT]] = True
        found = spherical_kmeans(self._target.features[rows[chosen]], 2, seed=0)
        half = np.zeros(len(rows), dtype=np.int64)
        half[chosen] = found.groups
        half[~chosen] = (self._target.features[rows[~chosen]] @ found.centres.T).argmax(axis=1)
        return np.asarray(rows[half == np.bincount(half).argmin()])

    def _centre(self, category: int) -> np.ndarray:
        if is_class(category):
            return np.asarray(self._target.prototypes[class_index(category)])
        if category not in self._centres:
            mean = self._target.features[self._state.members(category)].mean(axis=0)
            self._centres[category] = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return self._centres[category]


@dataclass(frozen=True)
class _Scores:
    """Holds the scores of categories for the samples of the neighbour graph.

    Attributes:
        categories: (n_categories,).
        scores: (n_graph, n_categories).
        labelled: indices of samples that a person labelled, (n_labelled,).
        discarded: indices of discarded samples, (n_discarded,).
    """

    categories: np.ndarray
    scores: np.ndarray
    labelled: np.ndarray
    discarded: np.ndarray


class LabelPropagation:
    """Propagates single labels over a graph of nearest neighbours, which is cached.

    Args:
        target: features and predictions of the run.
        state: the present state, which the caller changes.
    """

    def __init__(self, target: Target, state: AnnotationState) -> None:
        self._target, self._state = target, state
        self._neighbourhoods: Neighbourhoods | None = None

    def propagate(self, row: int, category: int) -> np.ndarray:
        """Return the category of each sample after a person has assigned one of them, (n_samples,).

        Samples that a person assigned earlier, and discarded ones, keep their category.
        """
        found = self._scores(row, category)
        graph = self._graph(row)
        best = found.scores.argmax(axis=1)
        keeps = self._state.by_hand | (self._state.category == DISCARDED)
        # Samples whose neighbours are all discarded have a score of 0 for every category.
        keeps |= (found.scores[np.arange(len(best)), best] == 0)[graph.representative]
        after = np.where(keeps, self._state.category, found.categories[best][graph.representative])
        after[row] = category
        return np.asarray(after)

    def next_to_label(self, count: int) -> list[Queued]:
        """Return up to `count` samples to label next, the most informative first."""
        found = self._scores()
        if not len(found.categories):
            return []
        names = self._state.names
        is_named = np.array([is_class(one) or one in names for one in found.categories.tolist()], dtype=bool)
        uncertain = uncertainty(found.scores, is_named)
        uncertain[found.discarded] = 0
        return label_queue(self._graph(), uncertain, found.labelled, count, found.discarded)

    def _graph(self, row: int | None = None) -> Neighbourhoods:
        needed = np.flatnonzero(self._state.by_hand).tolist() + ([] if row is None else [row])
        graph = self._neighbourhoods
        if graph is None or any(graph.index_of(one) is None for one in needed):
            graph = self._neighbourhoods = Neighbourhoods.of(self._target.features, needed)
        return graph

    def _scores(self, row: int | None = None, category: int = DISCARDED) -> _Scores:
        graph, state = self._graph(row), self._state
        now, by_hand = state.category[graph.rows], state.by_hand[graph.rows].copy()
        if row is not None:
            index = graph.index_of(row)
            now[index], by_hand[index] = category, True
        # A sample votes for the run's prediction, unless people have dissolved the predicted group.
        start, existing = self._target.start[graph.rows], set(state.category.tolist())
        vote = np.where([one in existing for one in start.tolist()], start, now)
        vote[now == DISCARDED] = DISCARDED
        categories = np.unique(np.concatenate([now, vote]))
        categories = categories[categories != DISCARDED]
        votes = np.zeros((len(now), len(categories)))
        voting = np.flatnonzero(vote != DISCARDED)
        confidence = self._target.confidence[graph.rows][voting]
        votes[voting, np.searchsorted(categories, vote)[voting]] = RUN_WEIGHT * np.maximum(confidence, 1e-6)
        labelled = np.flatnonzero(by_hand & (now != DISCARDED))
        scores = spread_labels(graph, votes, labelled, np.searchsorted(categories, now[labelled]))
        return _Scores(categories, scores, labelled, np.flatnonzero(now == DISCARDED))


class Thumbnails:
    """Draws thumbnails and caches them in a file of the run folder, which drops the oldest when it is full.

    If the cache cannot be read or written, thumbnails are drawn each time.

    Args:
        pictures: of the run.
        path: of the cache.
        digest: of the run; the cache of another run is emptied.
        max_bytes: total size of the cached thumbnails.
    """

    def __init__(self, pictures: Pictures, path: Path, digest: str, max_bytes: int = _MAX_CACHE_BYTES) -> None:
        self._pictures, self._max_bytes = pictures, max_bytes
        self._decoders, self._lock = BoundedSemaphore(_MAX_DECODERS), Lock()
        self._bytes = 0
        self._cache = _open_cache(path, digest)
        if self._cache is not None:
            self._bytes = self._cache.execute("SELECT COALESCE(SUM(LENGTH(jpeg)), 0) FROM thumbnails").fetchone()[0]

    def small(self, collection: Collection, row: int) -> bytes:
        """Return a thumbnail as JPEG.

        Raises:
            DataError: the picture does not exist or cannot be read any more.
        """
        key = f"{collection} {row}"
        jpeg = self._cached(key)
        if jpeg is None:
            jpeg = self._draw(collection, row, THUMBNAIL_SIDE)
            self._add(key, jpeg)
        return jpeg

    def large(self, collection: Collection, row: int) -> bytes:
        """Return a picture as JPEG in a size to look at closely; it is not cached."""
        return self._draw(collection, row, LARGE_SIDE)

    def close(self) -> None:
        """Close the cache."""
        with self._lock:
            if self._cache is not None:
                self._cache.close()
                self._cache = None

    def _draw(self, collection: Collection, row: int, side: int) -> bytes:
        with self._decoders:
            return self._pictures.thumbnail(collection, row, side)

    def _cached(self, key: str) -> bytes | None:
        def find(cache: sqlite3.Connection) -> bytes | None:
            found = cache.execute("SELECT jpeg FROM thumbnails WHERE key = ?", (key,)).fetchone()
            return None if found is None else bytes(found[0])

        return self._with_cache(find)

    def _add(self, key: str, jpeg: bytes) -> None:
        def add(cache: sqlite3.Connection) -> None:
            added = cache.execute("INSERT OR IGNORE INTO thumbnails (key, jpeg) VALUES (?, ?)", (key, jpeg)).rowcount
            self._bytes += len(jpeg) * added
            while self._bytes > self._max_bytes:
                oldest, size = cache.execute("SELECT id, LENGTH(jpeg) FROM thumbnails ORDER BY id LIMIT 1").fetchone()
                cache.execute("DELETE FROM thumbnails WHERE id = ?", (oldest,))
                self._bytes -= size

        self._with_cache(add)

    def _with_cache(self, use: Callable[[sqlite3.Connection], bytes | None]) -> bytes | None:
        with self._lock:
            if self._cache is None:
                return None
            try:
                return use(self._cache)
            except sqlite3.Error:
                self._cache.close()
                self._cache = None
                return None


def _open_cache(path: Path, digest: str) -> sqlite3.Connection | None:
    if path.is_symlink():
        return None  # in a shared folder a link may point to any database
    for _ in range(2):
        cache = None
        try:
            cache = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            cache.execute("PRAGMA journal_mode = WAL")
            cache.execute("PRAGMA synchronous = NORMAL")
            cache.execute("CREATE TABLE IF NOT EXISTS run (digest TEXT PRIMARY KEY)")
            cache.execute(
                "CREATE TABLE IF NOT EXISTS thumbnails (id INTEGER PRIMARY KEY, key TEXT UNIQUE, jpeg BLOB NOT NULL)"
            )
            if cache.execute("SELECT digest FROM run").fetchall() != [(digest,)]:
                cache.execute("DELETE FROM thumbnails")
                cache.execute("DELETE FROM run")
                cache.execute("INSERT INTO run (digest) VALUES (?)", (digest,))
            return cache
        except sqlite3.DatabaseError:
            if cache is not None:
                cache.close()
            # A damaged cache is replaced.
            with suppress(OSError):
                for part in ("", "-wal", "-shm"):
                    path.with_name(path.name + part).unlink(missing_ok=True)
    return None
