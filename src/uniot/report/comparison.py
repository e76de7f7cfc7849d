"""Compare two runs on the samples that both have: which labels changed, for which samples, and with truth for whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest

from uniot.errors import DataError
from uniot.io.text import as_utf8, counted, listed, plural

if TYPE_CHECKING:
    from uniot.runs.run import Run

Kind = Literal["same", "labelled", "unknown", "class", "group"]
KIND_WORDS: dict[Kind, str] = {
    "labelled": "now labelled",
    "unknown": "now unknown",
    "class": "with another label",
    "group": "in another group",
}
_UNKNOWN = "unknown"
_MOST_SETTINGS = 30


@dataclass(frozen=True)
class Transition:
    """Samples whose label changed in the same way.

    Attributes:
        kind: how it changed.
        before: label and group before, for people.
        after: label and group after it.
        rows: of the comparison, the least confident after first, (n_samples,).
    """

    kind: Kind
    before: str
    after: str
    rows: np.ndarray


@dataclass(frozen=True)
class ClassChange:
    """The samples of a true class: how many there are, and how many are right in each run."""

    name: str
    count: int
    before: int
    after: int
    mended: int
    broken: int


@dataclass(frozen=True, eq=False)
class RunSide:
    """One of the two runs, on the samples that both have.

    Attributes:
        run: the run.
        rows: of its target, (n_common,).
        labels: label of each sample; `unknown` for unnamed unknown samples, whatever the run calls them, (n_common,).
        known: whether each sample has a label other than unknown, (n_common,).
        group: group of each unlabelled sample, -1 for none, (n_common,).
        confidence: probability that the label is right, (n_common,).
        by_people: whether a person said what the sample is, of it alone or by naming its group, (n_common,).
    """

    run: Run
    rows: np.ndarray
    labels: np.ndarray
    known: np.ndarray
    group: np.ndarray
    confidence: np.ndarray
    by_people: np.ndarray

    @classmethod
    def of(cls, run: Run, rows: np.ndarray) -> RunSide:
        """Return the side of a run, given the rows of its target that both runs have."""
        model = run.model
        target = model.target.rows(rows)
        labels = np.array([as_utf8(str(label)) for label in model.labels(target).tolist()], dtype=object)
        is_named = target.known | (labels != as_utf8(str(model.unknown)))
        labels[~is_named] = _UNKNOWN
        group = np.where(is_named, -1, target.group)
        by_people = model.labelled_by_people[rows] | (is_named & ~target.known)
        return cls(run, rows, labels, is_named, group, target.confidence, by_people)

    def described(self, row: int) -> str:
        """Return label and group of a sample, for people."""
        group = int(self.group[row])
        return str(self.labels[row]) if group < 0 else f"{self.labels[row]} (group {group})"


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Two runs on the samples that both have.

    Attributes:
        before: the first run.
        after: the second run.
        names: names of the samples that both have, (n_common,).
        truth: true class of each of them, (n_common,); None if nobody knows it.
    """

    before: RunSide
    after: RunSide
    names: list[str]
    truth: np.ndarray | None

    @classmethod
    def of(cls, before: Run, after: Run, truth: np.ndarray | None = None) -> RunComparison:
        """Compare two runs.

        Args:
            before: the first run.
            after: the second run.
            truth: true classes of the samples of the second run, text, (n_target,); those that either run was scored
                with if None.

        Raises:
            RunFolderError: a run was shared without its target.
            DataError: the runs have no sample in common, or a run has two samples of the same name.
        """
        for run in (before, after):
            run.require_target("to compare")
        names = [[as_utf8(name) for name in run.predictions.names] for run in (before, after)]
        for run, own in zip((before, after), names, strict=True):
            if len(set(own)) < len(own):
                twice = Counter(own).most_common(1)[0][0]
                raise DataError(f"{run.folder} has two samples named {twice!r}, and runs are compared by name.")
        row_of = {name: row for row, name in enumerate(names[1])}
        common = [name for name in names[0] if name in row_of]
        if not common:
            raise DataError(
                f"{before.folder} and {after.folder} have no sample in common: {names[0][0]!r} and {names[1][0]!r} are "
                "their first ones. Give two runs on the same target."
            )
        own_row = {name: row for row, name in enumerate(names[0])}
        rows = np.array([own_row[name] for name in common]), np.array([row_of[name] for name in common])
        found = None
        if truth is not None:
            found = truth[rows[1]]
        elif after.true_labels is not None:
            found = after.true_labels[rows[1]]
        elif before.true_labels is not None:
            found = before.true_labels[rows[0]]
        true = None if found is None else np.array([as_utf8(str(one)) for one in found.tolist()], dtype=object)
        return cls(RunSide.of(before, rows[0]), RunSide.of(after, rows[1]), common, true)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def kind(self) -> np.ndarray:
        """Return how the label of each sample changed, (n_common,), text of `Kind`."""
        was, now = self.before.known, self.after.known
        differs = self.before.labels != self.after.labels
        moved = ~was & ~now & (self._matched_groups != self.after.group)
        kinds = np.where(moved, "group", np.full(len(self), "same", dtype=object))
        kinds[~was & now] = "labelled"
        kinds[was & ~now] = "unknown"
        kinds[was & now & differs] = "class"
        return kinds

    @cached_property
    def _matched_groups(self) -> np.ndarray:
        """Return the group of the second run that corresponds to that of each sample in the first, (n_common,).

        Numbers of groups mean nothing across runs: they correspond so that as many samples as possible stay in theirs.
        """
        both = (self.before.group >= 0) & (self.after.group >= 0)
        matched = np.where(self.before.group >= 0, -2, -1)
        if both.any():
            old, old_of = np.unique(self.before.group[both], return_inverse=True)
            new, new_of = np.unique(self.after.group[both], return_inverse=True)
            overlap = np.zeros((len(old), len(new)), dtype=np.int64)
            np.add.at(overlap, (old_of, new_of), 1)
            for first, second in zip(*linear_sum_assignment(-overlap), strict=True):
                matched[self.before.group == old[first]] = new[second]
        return matched

    @property
    def changed(self) -> np.ndarray:
        """Return whether the label or group of each sample changed, (n_common,)."""
        return np.asarray(self.kind != "same")

    @cached_property
    def transitions(self) -> list[Transition]:
        """Return the changes, each kind of label before and after together, the most frequent first."""
        rows_of: dict[tuple[Kind, str, str], list[int]] = {}
        for row in np.flatnonzero(self.changed).tolist():
            key = (self.kind[row], self.before.described(row), self.after.described(row))
            rows_of.setdefault(key, []).append(row)
        found = []
        for (kind, before, after), own in rows_of.items():
            rows = np.array(own)
            found.append(Transition(kind, before, after, rows[np.argsort(self.after.confidence[rows], kind="stable")]))
        return sorted(found, key=lambda one: (-len(one.rows), one.before, one.after))

    @cached_property
    def overruled(self) -> np.ndarray:
        """Return the samples of which a person had said what they are and whose label is another one now, as rows."""
        differs = (self.before.labels != self.after.labels) & self.before.by_people
        return np.flatnonzero(differs)

    @cached_property
    def right(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return whether each sample is right before and after, (n_common,) each; None without true classes.

        Both runs are judged by the classes that both have in their source: for a sample of any other class, unknown is
        right, and so is the name of its class.
        """
        if self.truth is None:
            return None
        classes = set(self.before.run.model.class_names) & set(self.after.run.model.class_names)
        is_private = np.array([true not in classes for true in self.truth.tolist()])
        before, after = (
            np.asarray((side.labels == self.truth) | (is_private & ~side.known)) for side in (self.before, self.after)
        )
        return before, after

    @cached_property
    def classes(self) -> list[ClassChange]:
        """Return what changed for the samples of each true class, those with the largest change first."""
        if self.right is None or self.truth is None:
            return []
        before, after = self.right
        found = []
        for name in sorted(set(self.truth.tolist())):
            own = self.truth == name
            mended, broken = int((~before & after & own).sum()), int((before & ~after & own).sum())
            found.append(
                ClassChange(name, int(own.sum()), int((before & own).sum()), int((after & own).sum()), mended, broken)
            )
        return sorted(found, key=lambda one: (-(one.mended + one.broken), one.name))

    @cached_property
    def settings(self) -> list[tuple[str, str, str]]:
        """Return the settings that differ, as name, value before and value after."""
        old, new = (side.run.saved_model.settings.model_dump() for side in (self.before, self.after))
        return [(name, str(old.get(name)), str(new.get(name))) for name in new if old.get(name) != new.get(name)][
            :_MOST_SETTINGS
        ]

    @property
    def sentences(self) -> list[str]:
        """Return what changed, in sentences."""
        noun, n_changed = self.after.run.noun, int(self.changed.sum())
        whole = f"{counted(len(self), noun)} that both runs have"
        if not n_changed:
            said = [f"No label of the {whole} changed."]
        else:
            counts = Counter(self.kind[self.changed].tolist())
            parts = [f"{counts[kind]:,} {words}" for kind, words in KIND_WORDS.items() if counts[kind]]
            said = [f"Of the {whole}, {n_changed:,} changed: {', '.join(parts)}."]
        for number, words in (
            (self.before.run.n_target - len(self), "only in the first run"),
            (self.after.run.n_target - len(self), "only in the second run"),
        ):
            if number:
                said.append(f"{counted(number, noun)} {plural(number, 'is', 'are')} {words}.")
        return [*said, *self._truth_sentences(), *self._people_sentences()]

    def _truth_sentences(self) -> list[str]:
        if self.right is None:
            return []
        before, after = self.right
        mended, broken = int((~before & after).sum()), int((before & ~after).sum())
        said = [
            f"By the true labels, {100 * before.mean():.1f} % were right before and {100 * after.mean():.1f} % are "
            f"now: {mended:,} became right and {broken:,} became wrong."
        ]
        if mended + broken:
            chance = float(binomtest(mended, mended + broken).pvalue)
            said.append(f"If both were equally good, so large a difference would have the probability {chance:.2g}.")
        return said

    def _people_sentences(self) -> list[str]:
        n_said = int(self.before.by_people.sum())
        if not n_said:
            return []
        noun, n_other = self.after.run.noun, len(self.overruled)
        whole = counted(n_said, noun)
        if not n_other:
            keep = f"All {whole} that people had labelled keep their label."
            return [keep if n_said > 1 else f"The {noun} that a person had labelled keeps its label."]
        names = listed([self.names[row] for row in self.overruled.tolist()], 3)
        return [f"{n_other:,} of {whole} that people had labelled have another label now: {names}."]
