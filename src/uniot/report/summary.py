"""Summarise a run in a sentence and a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.discovery.class_count import why_ungrouped
from uniot.discovery.groups import ABSENT
from uniot.io.text import counted, listed, plural

if TYPE_CHECKING:
    from uniot.report.categories import Categories
    from uniot.training.model import AdaptedModel

# A class with at most this many samples may have been found by mistake.
_FEW = 2
# Known scores within this distance of one half are near the threshold.
_CLOSE = 0.05


@dataclass(frozen=True)
class Tile:
    """A number with its unit and a remark."""

    number: str
    what: str
    remark: str = ""


@dataclass(frozen=True)
class AbsentClass:
    """A source class that no target sample is labelled with, and its absence score."""

    name: str
    absence: float


@dataclass(frozen=True)
class RunSummary:
    """What a run found, in numbers.

    Attributes:
        n_target: samples of the target.
        n_known: of these, how many belong to a source class.
        n_classes: source classes.
        n_found: of these, how many have a sample in the target.
        n_missing: source classes without any.
        scarce: names of source classes that have one or two.
        n_groups: number of groups of unknown samples.
        interval: smallest and largest plausible number of groups.
        n_close: samples whose known score is near one half.
        n_wrong: estimated number of wrong predictions; None if there is no estimate of the accuracy.
        noun: word for one sample: photo, picture, text, cell or sample.
    """

    n_target: int
    n_known: int
    n_classes: int
    n_found: int
    n_missing: int
    scarce: tuple[str, ...]
    n_groups: int
    interval: tuple[int, int]
    n_close: int
    n_wrong: int | None
    noun: str

    @property
    def n_unknown(self) -> int:
        """Return the number of target samples of no source class."""
        return self.n_target - self.n_known


def summarise(
    model: AdaptedModel, categories: Categories, *, has_pictures: bool = False, noun: str = "sample"
) -> RunSummary:
    """Return the counts of a run; `noun` is what a sample is called that has no picture."""
    target, sizes = model.target, categories.class_sizes
    n_groups, interval = model.groups.n_groups, model.groups.number.interval
    if model.annotations is not None:
        # People may have merged and split groups, so they are counted again.
        n_groups = len([category for category in categories.found if not category.known and category.index >= 0])
        interval = (n_groups, n_groups)
    return RunSummary(
        n_target=len(target),
        n_known=int(target.known.sum()),
        n_classes=len(sizes),
        n_found=int((sizes > 0).sum()),
        n_missing=int((sizes == 0).sum()),
        scarce=tuple(model.class_names[index] for index in np.flatnonzero((sizes > 0) & (sizes <= _FEW)).tolist()),
        n_groups=n_groups,
        interval=interval,
        n_close=int((np.abs(target.known_score - 0.5) < _CLOSE).sum()),
        n_wrong=_estimated_errors(model),
        noun="photo" if model.reader is not None else "picture" if has_pictures else noun,
    )


def sentence(model: AdaptedModel, found: RunSummary) -> str:
    """Return a summary of the run for readers who do not know the method, with the estimated accuracy."""
    return f"{contents_sentence(model, found)} {model.reliability_of_decision.sentence}".strip()


def contents_sentence(model: AdaptedModel, found: RunSummary) -> str:
    """Return what was found in the target, in a sentence or two."""
    return " ".join(part for part in (_known_and_unknown(model, found), _absent(found)) if part)


def look_first(found: RunSummary) -> str:
    """Return how many predictions may be wrong, and which to check first."""
    first = "Look first at the predictions with the lowest confidence in predictions.csv."
    if found.n_wrong is None:
        return f"The number of wrong predictions is not estimated for this method. {first}"
    about = f"About {found.n_wrong:,} of {found.n_target:,} predictions are estimated to be wrong"
    return f"{about}; {found.n_close:,} are near the threshold, between 0.45 and 0.55. {first}"


def _estimated_errors(model: AdaptedModel) -> int | None:
    accuracy = model.reliability_of_decision.accuracy
    return None if accuracy is None else round(float((1 - model.target.confidence).sum()))


def warnings(model: AdaptedModel) -> list[str]:
    """Return the warnings about unreliable predictions."""
    return [f"Warning: {words}" for words in model.reliability_of_decision.warnings]


def tiles(found: RunSummary) -> list[Tile]:
    """Return the counts of the first screen that are not beside its bar."""
    low, high = found.interval
    return [
        Tile(f"{found.n_target:,}", plural(found.n_target, found.noun), "in the target"),
        Tile(f"{found.n_found:,}", plural(found.n_found, "class", "classes") + " found", _of_classes(found)),
        Tile(
            f"{found.n_groups:,}",
            plural(found.n_groups, "new group"),
            f"{low} to {high} are plausible" if low < high else "among the unknown",
        ),
        Tile(f"{found.n_close:,}", "near the threshold"),
    ]


def _of_classes(found: RunSummary) -> str:
    few = f"; {len(found.scarce):,} in one or two samples only" if found.scarce else ""
    return f"of your {found.n_classes:,}{few}"


def absent_classes(model: AdaptedModel) -> list[AbsentClass]:
    """Return the source classes that no target sample is labelled with, the surest first."""
    absence = model.absence
    order = [index for index in np.argsort(-absence, kind="stable").tolist() if absence[index] > ABSENT]
    return [AbsentClass(model.class_names[index], float(absence[index])) for index in order]


def _known_and_unknown(model: AdaptedModel, found: RunSummary) -> str:
    of_classes = f"{found.n_found:,} of your {counted(found.n_classes, 'class', 'classes')}"
    if found.n_found == found.n_classes:
        of_classes = f"your {counted(found.n_classes, 'class', 'classes')}"
    everything = f"{found.n_target:,} {plural(found.n_target, found.noun)}"
    if not found.n_unknown:
        return f"All {everything} are labelled with {of_classes}; none is of a new kind."
    if not found.n_known:
        start = f"None of the {everything} is labelled with your {counted(found.n_classes, 'class', 'classes')}"
        if found.n_groups:
            return f"{start}: they {_new_kinds(found)}."
        return f"{start}. {plural(found.n_unknown, 'It', 'They')} {ungrouped(model, found)}."
    start = f"Of {everything}, {found.n_known:,} {plural(found.n_known, 'is', 'are')} labelled with {of_classes}"
    if found.n_groups:
        return f"{start}; the other {found.n_unknown:,} {_new_kinds(found)}."
    return f"{start}. The other {found.n_unknown:,} {ungrouped(model, found)}."


def ungrouped(model: AdaptedModel, found: RunSummary) -> str:
    """Return why the unknown samples form no group, as the rest of a sentence."""
    return why_ungrouped(found.n_unknown, asked_for_none=model.settings.n_private_classes == 0)


def _new_kinds(found: RunSummary) -> str:
    low, high = found.interval
    if found.n_groups == 1 and high <= 1:
        return "look like one new kind" if found.n_unknown > 1 else "looks like a new kind"
    look = plural(found.n_unknown, "looks", "look")
    between = f" ({low:,} to {high:,})" if low < high else ""
    return f"{look} like about {counted(found.n_groups, 'new kind')}{between}"


def _absent(found: RunSummary) -> str:
    missing, scarce = found.n_missing, len(found.scarce)
    sentences = []
    # If nothing is known, the first sentence says that no class appears.
    if missing and found.n_known:
        sentences.append(f"{missing:,} of your classes {plural(missing, 'was', 'were')} not found.")
    if scarce:
        was = plural(scarce, "was", "were")
        sentences.append(
            f"{scarce:,} {was} found in one or two samples only, which may be mistakes ({listed(found.scarce, 5)})."
        )
    return " ".join(sentences)
