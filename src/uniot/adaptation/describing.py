"""Describe the groups of a run: typical words of their texts or file names, and suggested names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uniot.errors import DataError
from uniot.io.text import quoted
from uniot.runs.group_descriptions import GroupDescription, GroupDescriptions

if TYPE_CHECKING:
    from uniot.adaptation.collections import Collections
    from uniot.images.embedding import ReadOptions
    from uniot.text.suggestions import Rows, Terms
    from uniot.training.domains import Domains
    from uniot.training.model import AdaptedModel

_EMBEDDED = (".npz", ".parquet")
# More words than are shown: names that differ are chosen among them.
_WORDS = 15
_SHOWN = 10


def check_terms(path: Path, collections: Collections) -> None:
    """Raise DataError if a word list cannot be read, or if nothing can embed its terms for these collections."""
    from uniot.text.suggestions import read_terms

    if path.suffix.lower() in _EMBEDDED:
        _embedded_terms(path)
        return
    if collections.target.texts is None:
        raise DataError(
            f"{quoted(path)} is a word list, and only texts (--text) have a network that can embed it. For images and "
            "embeddings give the embeddings of the terms by the same network: .npz or .parquet with x and ids, the "
            "terms."
        )
    read_terms(path)


def open_terms(path: Path, collections: Collections, options: ReadOptions | None = None) -> Terms:
    """Return a word list with the embeddings of its terms.

    Args:
        path: text file with one term per line, which is embedded like the texts of the collections; or .npz or
            .parquet with embeddings (x) and terms (ids).
        collections: the collections of the run.
        options: where embeddings are stored between runs.
    """
    from uniot.text.encoder import TextEncoder
    from uniot.text.suggestions import Terms, read_terms

    if path.suffix.lower() in _EMBEDDED:
        return _embedded_terms(path)
    words = read_terms(path)
    encoder = TextEncoder.open(collections.encoder, store=None if options is None else options.store)
    return Terms(words, encoder.embed(words))


def describe_groups(
    model: AdaptedModel, collections: Collections, domains: Domains, terms: Terms | None = None
) -> GroupDescriptions | None:
    """Return what describes the groups of a model; None without groups, or if neither texts nor names say anything.

    Args:
        model: the fitted model.
        collections: that it was fitted to, with the embeddings of their texts.
        domains: the same samples as the model saw them.
        terms: a word list, of which names are suggested.
    """
    from uniot.text.suggestions import different, group_centres, nearest_terms
    from uniot.text.words import typical_words, words_of_name

    n_groups = model.groups.n_groups
    texts, files = _texts(collections), None if domains.images is None else domains.images.target.files
    if not n_groups or (texts is None and files is None and terms is None):
        return None
    kind: str = "typical words"
    words: list[tuple[str, ...]] = [()] * n_groups
    # All known classes are one: among many classes, words such as "for" tell them apart a little.
    groups = model.target.group
    if texts is not None:
        words = typical_words(texts, groups, n_groups, _WORDS)
    elif files is not None:
        kind = "words of file names"
        names = [words_of_name(file.name) for file in files]
        words = typical_words(names, groups, n_groups, _WORDS, standing_out=True)
    suggested = [different(found) for found in words]
    if terms is not None:
        suggested = nearest_terms(terms, group_centres(_rows(collections, domains), groups, n_groups))
    if not any(words) and not any(suggested):
        return None
    described = zip(words, suggested, strict=True)
    return GroupDescriptions(kind, tuple(GroupDescription(found[:_SHOWN], names) for found, names in described))


def _texts(collections: Collections) -> list[str] | None:
    target = collections.target
    if target.texts is not None:
        return target.texts
    return target.shown.values if target.shown is not None and target.shown.kind == "text" else None


def _rows(collections: Collections, domains: Domains) -> Rows:
    """Return the embeddings of the target samples, (n_target, width)."""
    rows = collections.target.rows if domains.images is None else domains.images.target.values
    if rows is None or rows.ndim != 2:
        raise DataError("--terms needs embeddings, and these samples have none. Leave --terms out.")
    return np.asarray(rows, dtype=np.float32)


def _embedded_terms(path: Path) -> Terms:
    from uniot.io.embedding_files import read_embeddings
    from uniot.text.suggestions import Terms

    found = read_embeddings(path)
    if not found.ids:
        raise DataError(f"{quoted(path)} has embeddings without ids. Give the terms as ids.")
    rows = np.asarray(found.x, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return Terms(tuple(found.ids), rows / np.maximum(lengths, np.finfo(np.float32).tiny))
