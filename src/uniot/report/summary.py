"""What a run found, in a sentence and a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniot.report.finished_run import FinishedRun

# A class that is more surely absent than this is called so.
_ABSENT = 0.5
# Confidence this near to one half is a close call.
_CLOSE = 0.05


@dataclass(frozen=True)
class Tile:
    """A number with what it counts and a remark."""

    number: str
    what: str
    remark: str = ""


@dataclass(frozen=True)
class AbsentClass:
    """A source class that the target seems to lack."""

    name: str
    absence: float
    n_target: int


@dataclass(frozen=True)
class Summary:
    """Counts of a run.

    Attributes:
        n_target: samples of the target.
        n_known: of these, how many belong to a source class.
        n_classes: source classes.
        n_found: of these, how many have a sample in the target.
        n_missing: source classes without any.
        n_unlikely: source classes that have some, and still count as absent.
        n_groups: private groups.
        interval: fewest and most private groups that the evidence allows.
        n_close: samples whose confidence is near one half.
    """

    n_target: int
    n_known: int
    n_classes: int
    n_found: int
    n_missing: int
    n_unlikely: int
    n_groups: int
    interval: tuple[int, int]
    n_close: int

    @property
    def n_unknown(self) -> int:
        """Samples of the target that belong to no source class."""
        return self.n_target - self.n_known


def summarise(run: FinishedRun) -> Summary:
    """Counts what was found."""
    answers, sizes, absence = run.answers, run.class_sizes, run.model.absence
    n_groups, interval = run.model.groups.n_groups, run.model.groups.number.interval
    if run.model.annotations is not None:
        # People have merged and split groups: there are as many as they left.
        n_groups = len([category for category in run.categories if not category.known and category.index >= 0])
        interval = (n_groups, n_groups)
    return Summary(
        n_target=len(answers),
        n_known=int(answers.known.sum()),
        n_classes=len(sizes),
        n_found=int((sizes > 0).sum()),
        n_missing=int((sizes == 0).sum()),
        n_unlikely=int(((sizes > 0) & (absence > _ABSENT)).sum()),
        n_groups=n_groups,
        interval=interval,
        n_close=int((np.abs(answers.confidence - 0.5) < _CLOSE).sum()),
    )


def sentence(run: FinishedRun, found: Summary) -> str:
    """The whole run, for somebody who has never heard of the method."""
    return " ".join(part for part in (_known_and_unknown(run, found), _absent(found)) if part)


def reliability(run: FinishedRun) -> str:
    """The estimated accuracy in a sentence; empty if there is no estimate."""
    found = run.model.reliability
    if found is None or found.accuracy is None:
        return ""
    of_known = "" if found.known_accuracy is None else f", {100 * found.known_accuracy:.0f} % of those called known"
    return f"An estimated {100 * found.accuracy:.0f} % of the answers are right{of_known}."


def warnings(run: FinishedRun) -> list[str]:
    """What speaks against the answers, as sentences."""
    return [] if run.model.reliability is None else [f"Warning: {words}" for words in run.model.reliability.warnings]


def tiles(run: FinishedRun, found: Summary) -> list[Tile]:
    """The counts that lead the page."""
    low, high = found.interval
    return [
        Tile(f"{found.n_target:,}", run.noun(found.n_target), "in the target"),
        Tile(f"{found.n_known:,}", "known", f"{_percent(found.n_known, found.n_target)} belong to a class of yours"),
        Tile(f"{found.n_unknown:,}", "unknown", f"{_percent(found.n_unknown, found.n_target)} belong to none"),
        Tile(f"{found.n_found:,}", "classes found", f"of your {found.n_classes:,}"),
        Tile(
            f"{found.n_groups:,}", "new groups", f"{low} to {high} are plausible" if low < high else "among the unknown"
        ),
        Tile(f"{found.n_close:,}", "close calls", "confidence between 0.45 and 0.55"),
    ]


def absent_classes(run: FinishedRun) -> list[AbsentClass]:
    """Source classes that the target seems to lack, the surest first."""
    absence = run.model.absence
    order = [index for index in np.argsort(-absence, kind="stable").tolist() if absence[index] > _ABSENT]
    return [AbsentClass(run.class_names[i], float(absence[i]), int(run.class_sizes[i])) for i in order]


def _known_and_unknown(run: FinishedRun, found: Summary) -> str:
    of_classes = f"{found.n_found:,} of your {found.n_classes:,} classes"
    if found.n_found == found.n_classes:
        of_classes = f"your {found.n_classes:,} classes"
    everything = f"{found.n_target:,} {run.noun(found.n_target)}"
    if not found.n_unknown:
        return f"All {everything} belong to {of_classes}; none is of a new kind."
    if not found.n_known:
        start = f"None of the {everything} belongs to your {found.n_classes:,} classes"
        return f"{start}: they {_new_kinds(found)}." if found.n_groups else f"{start}; they were not grouped."
    belong = "belongs" if found.n_known == 1 else "belong"
    start = f"Of {everything}, {found.n_known:,} {belong} to {of_classes}; the other {found.n_unknown:,}"
    if found.n_groups:
        return f"{start} {_new_kinds(found)}."
    verbs = ("is", "was") if found.n_unknown == 1 else ("are", "were")
    return f"{start} {verbs[0]} of no class of yours and {verbs[1]} not grouped."


def _new_kinds(found: Summary) -> str:
    low, high = found.interval
    if found.n_groups == 1 and high <= 1:
        return "look like one new kind" if found.n_unknown > 1 else "looks like a new kind"
    return f"are of about {found.n_groups:,} new kinds" + (f" ({low:,} to {high:,})" if low < high else "")


def _absent(found: Summary) -> str:
    missing, unlikely = found.n_missing, found.n_unlikely
    sentences = []
    # Where nothing at all is known, that none appears has been said.
    if missing and found.n_known:
        sentences.append(f"{missing:,} of your classes {'does' if missing == 1 else 'do'} not appear.")
    if unlikely:
        of_those = "of those found" if sentences else "of your classes"
        sentences.append(f"{unlikely:,} {of_those} {'is' if unlikely == 1 else 'are'} probably not there all the same.")
    return " ".join(sentences)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"
