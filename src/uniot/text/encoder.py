"""Embeddings of texts; each distinct text is computed once, or read from a store."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniot.errors import DataError, UniotWarning
from uniot.images.store import as_float16
from uniot.io.text import as_utf8, counted, listed, plural
from uniot.text.packaged import NAME, PackagedModel
from uniot.text.sentence_models import SentenceModel

if TYPE_CHECKING:
    from uniot.images.store import EmbeddingStore, EmbeddingTable

Rows = NDArray[np.float32]
OnProgress = Callable[[int, int, int, float], None]
"""Callback with texts done, total texts, computed rows, and texts per second, as for images.

It is called before the first text, while the network is prepared, and at the end, too.
"""

# Texts that are split, sorted and computed at a time: the more, the more of them have the same length.
_TEXTS_AT_A_TIME = 8192
_SECONDS_BETWEEN_CALLS = 0.1
_SHOWN_ROWS = 5


class Model(Protocol):
    """A network that turns texts into rows of numbers.

    Attributes:
        made_by: key of everything that determines the rows, for the store; None if they are not stored.
        most_tokens: tokens of a text that are used; None if the network does not say.
    """

    made_by: str | None
    most_tokens: int | None

    @property
    def width(self) -> int:
        """Return the length of a row."""
        ...

    def rows(self, texts: Sequence[str], on_rows: Callable[[int], None]) -> tuple[Rows, int]:
        """Return the rows of texts, (n_texts, width), and the number of texts of which only a part was used.

        Args:
            texts: (n_texts,).
            on_rows: callback with the number of rows that were computed since the last call.
        """
        ...


class TextEncoder:
    """A network that turns texts into embeddings.

    Attributes:
        name: name of the network.

    Examples:
        >>> from uniot.text import TextEncoder
        >>> encoder = TextEncoder.open()
        >>> encoder.embed(["Where is my card?", "My card has not arrived."]).shape
        (2, 384)
    """

    def __init__(self, name: str, model: Model, store: EmbeddingStore | None = None) -> None:
        self.name = name
        self._model = model
        self._store = store

    @classmethod
    def open(cls, name: str | None = None, *, store: EmbeddingStore | None = None) -> TextEncoder:
        """Return a text encoder.

        Args:
            name: name or folder of a model for the package sentence-transformers; all-MiniLM-L6-v2, whose weights
                come with `uniot[text]`, if None.
            store: store of embeddings between runs, for all-MiniLM-L6-v2 only; none if None.

        Raises:
            MissingPackageError: the packages of `uniot[text]` are not installed.
            DataError: there is no such model, or its files are damaged.
        """
        if name is None or name.removeprefix("sentence-transformers/") == NAME:
            return cls(NAME, PackagedModel(), store)
        return cls(name, SentenceModel(name))

    @property
    def width(self) -> int:
        """Return the length of an embedding."""
        return self._model.width

    def embed(
        self,
        texts: Sequence[str],
        on_progress: OnProgress | None = None,
        *,
        warn: Callable[[str], None] | None = None,
    ) -> Rows:
        """Return the embeddings of texts.

        Numbers are rounded to half precision, like those of images.

        Args:
            texts: (n_texts,).
            on_progress: callback with texts done, total texts, computed rows, and texts per second; equal texts count
                once.
            warn: function that is called with a sentence if texts are longer than the network takes; Python's warnings
                if None.

        Returns:
            Unit rows, (n_texts, width).

        Raises:
            DataError: a text is empty, or not a text.
        """
        check_texts(texts)
        places: dict[str, int] = {}
        row_of = np.array([places.setdefault(text, len(places)) for text in texts], dtype=np.int64)
        distinct = list(places)
        progress = _Progress(on_progress, len(distinct))
        rows = np.empty((len(distinct), self.width), dtype=np.float32)
        n_cut = 0
        with ExitStack() as stack:
            made_by, table = self._model.made_by, None
            if self._store is not None and made_by is not None:
                table = stack.enter_context(self._store.table(made_by))
            for start in range(0, len(distinct), _TEXTS_AT_A_TIME):
                part = slice(start, start + _TEXTS_AT_A_TIME)
                found, n_cut_here = self._part(distinct[part], table, progress)
                rows[part] = found
                n_cut += n_cut_here
        progress.end()
        if n_cut:
            (warn or _warn)(self._cut_sentence(n_cut))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return rows if len(distinct) == len(texts) else rows[row_of]

    def _part(self, texts: list[str], table: EmbeddingTable | None, progress: _Progress) -> tuple[NDArray[Any], int]:
        """Return the rows of distinct texts, and how many of those that were computed are too long."""
        if table is None:
            rows, n_cut = self._model.rows(texts, progress.computed)
            return as_float16(rows, self.name, of="a text"), n_cut
        keys = [hashlib.sha256(as_utf8(text).encode()).digest() for text in texts]
        stored = table.get_many(keys)
        progress.found(len(stored))
        missing = [place for place, key in enumerate(keys) if key not in stored]
        n_cut = 0
        if missing:
            rows, n_cut = self._model.rows([texts[place] for place in missing], progress.computed)
            halves = as_float16(rows, self.name, of="a text")
            table.put_many([keys[place] for place in missing], halves)
            stored.update((keys[place], row) for place, row in zip(missing, halves, strict=True))
        return np.stack([stored[key] for key in keys]), n_cut

    def _cut_sentence(self, n_cut: int) -> str:
        most = self._model.most_tokens
        limit = "tokens than the network takes" if most is None else f"than {most} tokens"
        return (
            f"{counted(n_cut, 'text')} {plural(n_cut, 'has', 'have')} more {limit}; only the beginning was embedded. "
            "Split them if the rest matters."
        )


def embed_texts(texts: Sequence[str], name: str | None = None, on_progress: OnProgress | None = None) -> Rows:
    """Return the embeddings of texts.

    Args:
        texts: (n_texts,).
        name: as for `TextEncoder.open`.
        on_progress: callback with texts done, total texts, computed rows, and texts per second.

    Returns:
        Unit rows, (n_texts, width).

    Examples:
        >>> from uniot.text import embed_texts
        >>> X_source = embed_texts(["Where is my card?", "Is there a fee for cash?"])
    """
    return TextEncoder.open(name).embed(texts, on_progress)


def check_texts(texts: Sequence[object]) -> None:
    """Raise DataError if there are no texts, if one is empty or blank, or if one is not a text."""
    if isinstance(texts, str):
        raise DataError("expected a list of texts, and a single text came. Put it into a list.")
    if not len(texts):
        raise DataError("there are no texts. Give at least one.")
    others = [row for row, text in enumerate(texts) if not isinstance(text, str)]
    if others:
        kinds = sorted({type(texts[row]).__name__ for row in others})
        them = plural(len(others), "it", "them")
        raise DataError(
            f"{counted(len(others), 'row')} {plural(len(others), 'is', 'are')} not text but {listed(kinds)} "
            f"({_rows(others)}). Leave {them} out, or turn {them} into text."
        )
    empty = [row for row, text in enumerate(texts) if isinstance(text, str) and not text.strip()]
    if empty:
        raise DataError(
            f"{counted(len(empty), 'text')} {plural(len(empty), 'is', 'are')} empty ({_rows(empty)}). Leave "
            f"{plural(len(empty), 'it', 'them')} out: an empty text fits everything and nothing."
        )


def _rows(rows: list[int]) -> str:
    return f"{plural(len(rows), 'row')} {listed([row + 1 for row in rows], _SHOWN_ROWS)}, counted from 1"


def _warn(sentence: str) -> None:
    warnings.warn(sentence, UniotWarning, stacklevel=3)


class _Progress:
    """Calls a callback while texts are embedded, a few times per second at most."""

    def __init__(self, on_progress: OnProgress | None, total: int) -> None:
        self._call = on_progress
        self._total = total
        self._found = self._computed = 0
        self._start = self._last = time.monotonic()
        self._report()

    def found(self, count: int) -> None:
        """Count rows of the store."""
        self._found += count

    def computed(self, count: int) -> None:
        """Count rows that were computed."""
        self._computed += count
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_CALLS:
            self._last = now
            self._report()

    def end(self) -> None:
        """Report the last state."""
        self._report()

    def _report(self) -> None:
        if self._call is not None:
            seconds = max(time.monotonic() - self._start, 1e-9)
            done = self._found + self._computed
            self._call(done, self._total, self._computed, done / seconds)
