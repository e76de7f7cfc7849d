"""Names that are suggested for groups: the nearest terms of a word list, or the group's typical words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uniot.errors import DataError
from uniot.io.text import counted, quoted, text_lines
from uniot.text.words import typical_words

Rows = NDArray[np.float32]

MOST_SUGGESTIONS = 5
"""Names that are suggested for a group."""

MOST_TERMS = 100_000
"""Longest word list: its embeddings take 150 MB."""

_MOST_TERM_BYTES = 1 << 24
_LONGEST_TERM = 200
# Words that are compared, because the plural of one before is left out.
_CANDIDATES = 3 * MOST_SUGGESTIONS


@dataclass(frozen=True)
class Terms:
    """A word list, and the embeddings of its terms by the encoder of the samples.

    Attributes:
        words: (n_terms,).
        rows: unit rows, (n_terms, width).
    """

    words: tuple[str, ...]
    rows: Rows

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or len(self.words) != len(self.rows):
            raise DataError(
                f"expected one row per term, and {counted(len(self.words), 'term')} came with rows of shape "
                f"{self.rows.shape}. Embed the terms again."
            )


def read_terms(path: Path) -> tuple[str, ...]:
    """Return the terms of a word list: one per line, without blank lines and repetitions, in their order.

    Raises:
        DataError: the file cannot be read, has no terms or too many, or is not a word list.
    """
    advice = "Give a text file with one term per line."
    terms: dict[str, None] = {}
    for number, line in text_lines(path, advice, _MOST_TERM_BYTES):
        term = " ".join(line.split())
        if len(term) > _LONGEST_TERM:
            raise DataError(f"line {number} of {quoted(path)} has {len(term):,} letters, too many for a name. {advice}")
        if term:
            terms[term] = None
        if len(terms) > MOST_TERMS:
            raise DataError(f"{quoted(path)} has more than {MOST_TERMS:,} terms. Give a shorter list.")
    if not terms:
        raise DataError(f"{quoted(path)} has no terms. {advice}")
    return tuple(terms)


def suggest_names(
    texts: Sequence[str],
    groups: NDArray[np.integer],
    n_groups: int,
    *,
    rows: Rows | None = None,
    terms: Terms | None = None,
    most: int = MOST_SUGGESTIONS,
) -> list[tuple[str, ...]]:
    """Return up to five names for each group, the best first.

    With a word list they are its terms nearest to the centre of the group, without one its most typical words.

    Args:
        texts: (n_texts,); not used with a word list.
        groups: the group of each text, as for `typical_words`.
        n_groups: number of groups that get names.
        rows: embeddings of the texts, (n_texts, width), by the encoder of the terms; needed with a word list.
        terms: a word list.
        most: names per group.

    Returns:
        The names of each group, (n_groups,).
    """
    if terms is None:
        return [different(words, most) for words in typical_words(texts, groups, n_groups, _CANDIDATES)]
    if rows is None:
        raise DataError("names from a word list need the embeddings of the samples. Give `rows`.")
    return nearest_terms(terms, group_centres(rows, np.asarray(groups), n_groups), most)


def group_centres(rows: Rows, groups: NDArray[np.integer], n_groups: int) -> Rows:
    """Return the mean direction of each group, (n_groups, width); zeros for a group without samples.

    Args:
        rows: (n_samples, width).
        groups: the group of each sample, (n_samples,).
        n_groups: number of groups.
    """
    centres = np.zeros((n_groups, rows.shape[1]), dtype=np.float32)
    for group in range(n_groups):
        members = np.flatnonzero(groups == group)
        if len(members):
            centres[group] = _unit(rows[members].mean(axis=0, dtype=np.float64).astype(np.float32))
    return centres


def nearest_terms(terms: Terms, centres: Rows, most: int = MOST_SUGGESTIONS) -> list[tuple[str, ...]]:
    """Return the terms of a word list that are nearest to each centre by their cosine, (n_groups,).

    Args:
        terms: the word list.
        centres: unit rows, (n_groups, width), in the space of the terms.
        most: terms per group.
    """
    if centres.shape[1] != terms.rows.shape[1]:
        raise DataError(
            f"the terms have {terms.rows.shape[1]} numbers each and the samples {centres.shape[1]}: they were not "
            "embedded by one network. Embed the terms with the network of the samples."
        )
    nearest = [_best(terms.rows @ centre, 3 * most) for centre in centres]
    return [different([terms.words[place] for place in places], most) for places in nearest]


def _best(scores: NDArray[np.floating], most: int) -> list[int]:
    # Rounded, so that equal scores have one order on every processor.
    best: list[int] = np.argsort(-scores.round(5), kind="stable")[:most].tolist()
    return best


def different(names: Sequence[str], most: int = MOST_SUGGESTIONS) -> tuple[str, ...]:
    """Return the first names that are not the plural, or another ending, of one before."""
    chosen: list[str] = []
    for name in names:
        if len(chosen) < most and not any(_alike(name, other) for other in chosen):
            chosen.append(name)
    return tuple(chosen)


def _alike(name: str, other: str) -> bool:
    short, long = sorted((name.casefold(), other.casefold()), key=len)
    return long.startswith(short) and len(long) - len(short) <= 2


def _unit(row: Rows) -> Rows:
    unit: Rows = row / np.maximum(np.linalg.norm(row), np.finfo(np.float32).tiny)
    return unit
