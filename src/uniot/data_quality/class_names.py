"""Warn of class names that were probably not meant: two that look the same, and names for missing labels."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Sequence

from uniot.io.text import listed

# Names that tables have for a missing label, in lower case; labels of arrays that are blank or NaN are refused before.
_MAYBE_MISSING = frozenset({"", "nan", "nat", "<na>", "none", "null", "na", "n/a"})
_MOST_NAMES = 5


def class_name_warnings(classes: Sequence[object], unknown: object) -> tuple[str, ...]:
    """Return warnings about class names, as sentences.

    Args:
        classes: names of the classes; integers never look the same.
        unknown: label of unknown samples, which no class should look like.
    """
    texts = [name for name in classes if isinstance(name, str)]
    return (*_look_the_same(texts, unknown), *_maybe_missing(texts))


def _look_the_same(texts: Sequence[str], unknown: object) -> tuple[str, ...]:
    alike = defaultdict(list)
    for text in [*texts, unknown] if isinstance(unknown, str) else texts:
        alike[as_seen(text)].append(text)
    pairs = [" and ".join(told_apart(names)) for names in alike.values() if len(names) > 1]
    if not pairs:
        return ()
    return (
        f"class names that look the same are treated as different classes: {listed(pairs, _MOST_NAMES)}. They differ "
        "only in spaces, invisible characters or Unicode normal form. Give samples of one class one name.",
    )


def as_seen(text: str) -> str:
    """Return a text as a reader sees it: composed, without invisible characters and surrounding or double spaces."""
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", " ".join(visible.split()))


def told_apart(names: Sequence[str]) -> list[str]:
    """Return names in quotation marks, in ASCII if they would look the same otherwise."""
    shown = [repr(name) for name in names]
    composed = {unicodedata.normalize("NFC", name) for name in shown}
    return shown if len(composed) == len(names) else [ascii(name) for name in names]


def _maybe_missing(texts: Sequence[str]) -> tuple[str, ...]:
    names = [repr(text) for text in texts if as_seen(text).lower() in _MAYBE_MISSING]
    if not names:
        return ()
    return (
        f"{listed(names, _MOST_NAMES)} {'is a class' if len(names) == 1 else 'are classes'}. If that marks samples "
        "without a label, leave these samples out.",
    )
