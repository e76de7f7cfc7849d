"""Texts as numbers of tokens, as the vocabulary of a network splits them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniot.errors import import_optional
from uniot.io.text import as_utf8

# A text of this many letters has more tokens than the network takes, unless it is hardly one; splitting the rest of a
# text of megabytes would take minutes.
_MOST_LETTERS = 8000
# Texts that are split at a time; what the tokenizer says of each takes a hundred times the memory of its numbers.
_AT_A_TIME = 64


@dataclass(frozen=True)
class Tokens:
    """The tokens of texts.

    Attributes:
        numbers: the numbers of each text's tokens, (n_texts,) arrays.
        n_cut: number of texts that have more tokens than were kept.
    """

    numbers: list[NDArray[np.int32]]
    n_cut: int


class Tokenizer:
    """A vocabulary, and the rules by which texts are split.

    Args:
        file: a tokenizer.json.
        most_tokens: tokens of a text that are kept, with those for its beginning and its end.
    """

    def __init__(self, file: Path, most_tokens: int) -> None:
        tokenizers: Any = import_optional("tokenizers", "text", "embedding texts")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(most_tokens)

    def split(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of texts."""
        numbers: list[NDArray[np.int32]] = []
        n_cut = 0
        for start in range(0, len(texts), _AT_A_TIME):
            part = texts[start : start + _AT_A_TIME]
            split = self._tokenizer.encode_batch([as_utf8(text[:_MOST_LETTERS]) for text in part])
            for text, found in zip(part, split, strict=True):
                numbers.append(np.array(found.ids, dtype=np.int32))
                n_cut += len(text) > _MOST_LETTERS or bool(found.overflowing)
        return Tokens(numbers, n_cut)
