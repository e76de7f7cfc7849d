"""Texts: their embeddings, the words that are typical of a group, and names that are suggested for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniot.text.encoder import TextEncoder, embed_texts
    from uniot.text.suggestions import Terms, read_terms, suggest_names
    from uniot.text.words import typical_words

_HOME = {
    "Terms": "suggestions",
    "TextEncoder": "encoder",
    "embed_texts": "encoder",
    "read_terms": "suggestions",
    "suggest_names": "suggestions",
    "typical_words": "words",
}

__all__ = ["Terms", "TextEncoder", "embed_texts", "read_terms", "suggest_names", "typical_words"]


def __getattr__(name: str) -> Any:
    # Imported on first use: the encoder needs torch, words need scikit-learn, and a name needs neither.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"uniot.text.{_HOME[name]}"), name)
    raise AttributeError(f"module 'uniot.text' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__.copy()
