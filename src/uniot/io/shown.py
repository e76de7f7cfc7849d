"""What a person sees of each sample of a collection: a text, a link or an image file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Kind = Literal["text", "link", "image"]
KINDS: tuple[str, ...] = get_args(Kind)

_LONGEST = 10_000


@dataclass(frozen=True)
class Shown:
    """What a person sees of each sample.

    Attributes:
        kind: text, link (an address, which is never fetched) or image (the path of a file).
        values: (n_samples,).
    """

    kind: Kind
    values: list[str]

    def __len__(self) -> int:
        return len(self.values)

    def part(self, rows: np.ndarray) -> Shown:
        """Return what is seen of the samples at these indices, (n_samples,)."""
        return Shown(self.kind, [self.values[row] for row in rows.tolist()])

    def joined(self, other: Shown) -> Shown:
        """Return what is seen of these samples and of others; as text if their kinds differ."""
        return Shown(self.kind if self.kind == other.kind else "text", self.values + other.values)


def shortened(texts: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """Return texts of at most `longest` letters each; ten thousand are more than a page shows of one."""
    return [text if len(text) <= longest else f"{text[: longest - 1]}…" for text in texts]
