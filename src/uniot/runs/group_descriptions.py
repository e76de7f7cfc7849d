"""What describes the groups of a run: their typical words or marker genes, and names that are suggested for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uniot.errors import RunFolderError
from uniot.io.files import MOST_TEXT_BYTES, parse_json, read_bounded, write_text
from uniot.runs.files import RunFiles

MOST_SUGGESTIONS = 5
MOST_TERMS = 10

MARKER_GENES = "marker genes"
"""What the terms of cells are."""

# Words of a damaged or hostile folder are cut; no word or gene has more letters.
_LONGEST_WORD = 80
# A description is of the samples that the run grouped: it stays with a group as long as this part of the samples that
# are in either is in both.
_SAME = 0.75


@dataclass(frozen=True)
class GroupDescription:
    """What describes a group of unknown samples.

    Attributes:
        terms: typical words, or marker genes, the most typical first.
        suggestions: up to five names for the group, the best first.
    """

    terms: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupDescriptions:
    """What describes the groups of a run, by the numbers that it gave them.

    Attributes:
        kind: what the terms are, in the plural, such as "typical words" or "marker genes".
        groups: (n_groups,).
    """

    kind: str
    groups: tuple[GroupDescription, ...]

    @classmethod
    def open(cls, run: Path) -> GroupDescriptions | None:
        """Return the descriptions in a run folder; None if it has none.

        Raises:
            RunFolderError: the file is damaged.
        """
        path = RunFiles(run).descriptions
        if not path.is_file():
            return None
        try:
            content = parse_json(read_bounded(path, MOST_TEXT_BYTES))
            if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
                raise ValueError("not the descriptions of groups")
            groups = content.get("groups")
            if not isinstance(groups, list):
                raise ValueError("groups is not a list")
            return cls(
                content["kind"],
                tuple(GroupDescription(_words(one, "terms"), _words(one, "suggestions")) for one in groups),
            )
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} cannot be read ({error}). Make the run again.") from None

    def of(self, group: int) -> GroupDescription:
        """Return what describes a group; nothing if the run did not number it."""
        return self.groups[group] if 0 <= group < len(self.groups) else GroupDescription()

    def fitting(self, group: int, n_before: int, n_now: int, n_both: int) -> GroupDescription | None:
        """Return what describes a group that people may have changed; None if it is not the run's group any more.

        Args:
            group: number of the group.
            n_before: samples that the run had in it.
            n_now: samples that are in it now.
            n_both: samples in both.
        """
        return self.of(group) if n_both >= _SAME * (n_before + n_now - n_both) and n_both else None

    def write(self, folder: Path) -> None:
        """Write the descriptions to a run folder."""
        content = {"kind": self.kind, "groups": [asdict(one) for one in self.groups]}
        write_text(RunFiles(folder).descriptions, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _words(one: Any, name: str) -> tuple[str, ...]:
    words: Sequence[Any] | None = one.get(name) if isinstance(one, dict) else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{name} is not a list of words")
    most = MOST_SUGGESTIONS if name == "suggestions" else MOST_TERMS
    lines = dict.fromkeys(" ".join(word[: 2 * _LONGEST_WORD].split())[:_LONGEST_WORD] for word in words)
    return tuple(filter(None, lines))[:most]


def overlap(before: np.ndarray, now: np.ndarray, group: int) -> tuple[int, int, int]:
    """Return how many samples a group had, has now, and had and has.

    Args:
        before: group of each sample in the run, (n_samples,).
        now: group of each sample now, (n_samples,).
        group: number of the group.
    """
    was, is_now = before == group, now == group
    return int(was.sum()), int(is_now.sum()), int((was & is_now).sum())
