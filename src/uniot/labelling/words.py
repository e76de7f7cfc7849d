"""What the page calls the samples of a run: images, texts, cells, or just samples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """Words about samples of one kind.

    Attributes:
        one: a sample, in the singular; an s makes the plural.
        which: question about a single sample.
        which_group: question about the samples of a group.
        alike: what the samples of a group have in common, as the end of a sentence.
        look: what it is to look at a single sample closely.
    """

    one: str
    which: str
    which_group: str
    alike: str
    look: str


_WORDS = {
    "image": Words("image", "What does it show?", "What do these images show?", "look alike", "Enlarge"),
    "text": Words("text", "What is it about?", "What are these texts about?", "are about the same", "Read"),
    "cell": Words("cell", "Of which type is it?", "Of which type are these cells?", "are similar", "Details"),
}
_OTHERS = Words("sample", "What is it?", "What are these samples?", "are similar", "Details")


def words_for(noun: str) -> Words:
    """Return the words about samples that are called by a noun, in the singular."""
    return _WORDS.get(noun, _OTHERS)
