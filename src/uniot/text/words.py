"""The words that are typical of groups of texts: frequent in a group, and rare elsewhere (class-based TF-IDF).

No list of stop words is needed, and no language is assumed: a word that says nothing about the group of a text, such as
"the", "der" or "pour", is found by its mutual information with the groups.

References:
    BERTopic: Neural topic modeling with a class-based TF-IDF procedure, 2022, arXiv:2203.05794.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Texts of a group that are read, and letters of a text: enough for the shares of words to be exact within 5 %.
_MOST_TEXTS = 500
_MOST_LETTERS = 2000
_MOST_TERMS = 50_000
# A word of at least two letters that begins with a letter; numbers are rarely the name of anything.
_WORD = r"(?u)[^\W\d_][\w'’-]*\w"
# A term of a single text may be a typing error.
_LEAST_TEXTS = 2
# A word that explains less of its own entropy than this says nothing about the groups. On BANKING77 "the", "is", "what"
# and "and" are at 0.02 to 0.04, "card", "cash", "top" and "transfer" at 0.18 to 0.22.
_LEAST_INFORMATION = 0.1
# Rarer words are typical of nothing by chance, and may be informative with too few texts to show it.
_FREQUENT = 0.01
# A shorter term is left out if a longer one with it has this part of its texts: "top" beside "top up".
_SAME = 0.6
_HALF = 0.5
_TWICE = 2.0
# Letters in a row, where a capital after a small letter begins a word.
_PART_OF_NAME = re.compile(r"[^\W\d_]?[^\W\d_A-Z]+|[^\W\d_]+")


def typical_words(
    texts: Sequence[str],
    groups: NDArray[np.integer],
    n_groups: int,
    most: int = 10,
    *,
    standing_out: bool = False,
) -> list[tuple[str, ...]]:
    """Return the words and pairs of words that are typical of each group, the most typical first.

    Args:
        texts: (n_texts,).
        groups: the group of each text, (n_texts,); -1 for none. Numbers from `n_groups` on are groups to compare with,
            such as known classes, which are not described.
        n_groups: number of groups that are described.
        most: words per group.
        standing_out: whether only words count that half of the group has, and twice as often as all texts.

    Returns:
        The words of each group, (n_groups,); fewer than `most`, or none, if a group has too few.
    """
    groups = np.asarray(groups)
    if not n_groups:
        return []
    numbers, counts = np.unique(groups, return_counts=True)
    found = _terms_of(texts, groups, numbers)
    if found is None:
        return [()] * n_groups
    terms, shares, n_read = found
    weights = counts / counts.sum()
    overall = weights @ shares
    silent = _stop_words(terms, shares, overall, weights, int(n_read.sum()))
    usable = np.array([not ({*term.split(" ")[:1], *term.split(" ")[-1:]} & silent) for term in terms])
    place = {int(number): row for row, number in enumerate(numbers)}
    typical: list[tuple[str, ...]] = []
    for group in range(n_groups):
        if group not in place:
            typical.append(())
            continue
        share, n_texts = shares[place[group]], int(n_read[place[group]])
        allowed = usable & (share * n_texts > min(_LEAST_TEXTS, n_texts) - 0.5)
        if standing_out:
            allowed &= (share >= _HALF) & (share >= _TWICE * overall)
        typical.append(_typical(terms, share, overall, allowed, most))
    return typical


def words_of_name(name: str) -> str:
    """Return the words of a file name and of its folders: of "mugs/redMug_01.jpg", mugs, red and Mug."""
    return " ".join(_PART_OF_NAME.findall(PurePosixPath(name).with_suffix("").as_posix()))


def _terms_of(
    texts: Sequence[str], groups: NDArray[np.integer], numbers: NDArray[np.integer]
) -> tuple[list[str], NDArray[np.float64], NDArray[np.int64]] | None:
    """Return terms, the share of each group's texts that have them, (n_groups, n_terms), and the texts read of each."""
    from sklearn.feature_extraction.text import CountVectorizer

    read = [_evenly(np.flatnonzero(groups == number), _MOST_TEXTS) for number in numbers]
    counter = CountVectorizer(
        token_pattern=_WORD, ngram_range=(1, 2), binary=True, min_df=_LEAST_TEXTS, max_features=_MOST_TERMS
    )
    try:
        there: csr_matrix = counter.fit_transform(texts[row][:_MOST_LETTERS] for rows in read for row in rows.tolist())
    except ValueError:  # no word is in two texts
        return None
    ends = np.cumsum([len(rows) for rows in read])
    n_read = np.diff(ends, prepend=0)
    shares = [
        np.asarray(there[end - count : end].mean(axis=0)).ravel()
        for end, count in zip(ends.tolist(), n_read.tolist(), strict=True)
    ]
    return counter.get_feature_names_out().tolist(), np.stack(shares), n_read


def _evenly(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def _stop_words(
    terms: Sequence[str],
    shares: NDArray[np.float64],
    overall: NDArray[np.float64],
    weights: NDArray[np.float64],
    n_texts: int,
) -> set[str]:
    """Return the frequent single words that say nothing about the group of a text."""
    entropy = _entropy(overall)
    information = entropy - weights @ _entropy(shares)
    # By chance alone it is this high (Miller and Madow).
    information -= (len(weights) - 1) / (2 * n_texts)
    silent = (overall >= _FREQUENT) & (information < _LEAST_INFORMATION * entropy)
    return {term for term, is_silent in zip(terms, silent, strict=True) if is_silent and " " not in term}


def _entropy(share: NDArray[np.float64]) -> NDArray[np.float64]:
    inside = np.clip(share, 1e-12, 1 - 1e-12)
    entropy: NDArray[np.float64] = -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside))
    return entropy


def _typical(
    terms: Sequence[str],
    share: NDArray[np.float64],
    overall: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    most: int,
) -> tuple[str, ...]:
    """Return the terms of a group by how frequent they are in it times the logarithm of how rare elsewhere."""
    score = share * np.log(np.maximum(share, 1e-12) / overall)
    score[~allowed] = 0
    chosen: list[int] = []
    # Rounded, so that equal scores have one order on every processor: that of the terms.
    for term in np.argsort(-score.round(9), kind="stable").tolist():
        if len(chosen) == most or score[term] <= 0:
            break
        words = set(terms[term].split(" "))
        others = [(other, set(terms[other].split(" "))) for other in chosen]
        if any(words > theirs and share[term] < _SAME * share[other] for other, theirs in others):
            continue
        shorter = [other for other, theirs in others if theirs < words]
        if shorter:
            # The pair takes the place of the word that hardly occurs without it.
            chosen[chosen.index(shorter[0])] = term
            chosen = [other for other in chosen if other not in shorter[1:]]
        elif not any(words < theirs and share[other] >= _SAME * share[term] for other, theirs in others):
            chosen.append(term)
    return tuple(terms[term] for term in chosen)
