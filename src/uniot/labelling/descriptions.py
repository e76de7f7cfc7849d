"""What describes the groups as they are now: the words of the run, and new ones for groups that people changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from uniot.annotations.places import DISCARDED, is_group
from uniot.errors import DataError
from uniot.labelling.names import clean_name
from uniot.runs.group_descriptions import MOST_SUGGESTIONS, MOST_TERMS, GroupDescription, overlap

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.state import AnnotationState

_NOTHING = GroupDescription()
# Texts from which words are found again, and of each category: an action shall not wait for them.
_MOST_TEXTS, _MOST_OF_A_CATEGORY = 1500, 60
_FEWEST_OF_A_CATEGORY = 8


class CurrentDescriptions:
    """Terms and suggested names of the groups; caches them until `forget`.

    A group that was merged, split or changed otherwise is not described by the words of the run. Typical words are
    found again, in a part of the texts; marker genes are not, and such a group has none, rather than wrong ones.

    Args:
        target: samples, and what the run says about its groups.
        state: the present state, which the caller changes.
    """

    def __init__(self, target: TargetSamples, state: AnnotationState) -> None:
        self._target, self._state = target, state
        self._found: dict[int, GroupDescription] = {}

    @property
    def kind(self) -> str:
        """Return what the terms are, in the plural; empty if nothing describes the groups."""
        return "" if self._target.descriptions is None else self._target.descriptions.kind

    def forget(self, categories: Iterable[int]) -> None:
        """Drop what is cached about categories that have changed."""
        for category in categories:
            self._found.pop(category, None)

    def of(self, group: int) -> GroupDescription:
        """Return what describes a group now; its suggestions can be taken as names as they are."""
        if group not in self._found:
            self._describe_all()
        return self._found.get(group, _NOTHING)

    def _describe_all(self) -> None:
        """Describe the groups that are not in the cache, those that people changed all at once."""
        missing = [one for one in self._state.sizes() if is_group(one) and one not in self._found]
        found = {one: self._of_run(one) for one in missing}
        changed = [one for one, description in found.items() if description is None]
        found |= zip(changed, self._of_now(changed), strict=True)
        for one, description in found.items():
            described = description or _NOTHING
            self._found[one] = GroupDescription(described.terms, self._usable(described.suggestions))

    def _of_run(self, group: int) -> GroupDescription | None:
        """Return what the run says about a group; None if it is not the group of the run any more."""
        described = self._target.descriptions
        if described is None or self._target.is_ungrouped(group):
            return _NOTHING
        return described.fitting(group, *overlap(self._target.start, self._state.category, group))

    def _of_now(self, groups: Sequence[int]) -> list[GroupDescription]:
        """Return the typical words of groups that people changed, (n_groups,), which are their suggested names too."""
        texts = self._target.texts
        if not groups or texts is None or texts.are_links:
            return [_NOTHING] * len(groups)
        from uniot.text.words import typical_words

        others = [one for one in self._state.sizes() if one not in groups and one != DISCARDED]
        categories = [*groups, *others]
        most = max(_FEWEST_OF_A_CATEGORY, min(_MOST_OF_A_CATEGORY, _MOST_TEXTS // len(categories)))
        rows = [_evenly(self._state.members(one), most) for one in categories]
        of_category = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
        every = texts.all("target")
        read = [every[row] for row in np.concatenate(rows).tolist()]
        words = typical_words(read, of_category, len(groups), MOST_TERMS)
        return [GroupDescription(one, one[:MOST_SUGGESTIONS]) for one in words]

    def _usable(self, suggestions: Iterable[str]) -> tuple[str, ...]:
        """Return the suggestions that `NameGroup` accepts, in their stored form."""
        names: list[str] = []
        for one in suggestions:
            try:
                name = clean_name(one)
            except DataError:
                continue
            if name and name not in names and not self._target.is_unknown(name):
                names.append(name)
        return tuple(names[:MOST_SUGGESTIONS])


def _evenly(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` rows, evenly chosen, so that the words are the same each time."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
