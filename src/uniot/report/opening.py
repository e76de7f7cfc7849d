"""The first screen of the report: how sure the result is, what people answered, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from uniot.io.text import command, counted, is_wide, listed, plural
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN
from uniot.reliability import DOUBTED, Reliability
from uniot.runs.run import Run

if TYPE_CHECKING:
    from uniot.report.categories import Categories, Category
    from uniot.report.faults import Faults
    from uniot.report.summary import RunSummary
    from uniot.training.model import AdaptedModel

_MOST_LINES = 200
# Lists of the first screen.
_MOST_DOUBTED, _MOST_LARGEST = 5, 4
# From this number of answers on, naming groups is suggested before further questions.
_MANY_ANSWERS = 10
_NO_GROUP = "They form no clear group. If you know how many kinds they are, run again with --private-classes."


@dataclass(frozen=True)
class Share:
    """The share of unknown samples, from 0 to 1, and the interval that nine tenths of the probability lie in.

    The interval is None if a preference decides.
    """

    unknown: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, model: AdaptedModel) -> Share:
        """Return the share of the target of a model."""
        return cls(float((~model.target.known).mean()), model.shown_share_interval)

    @property
    def percent(self) -> int:
        """Return the share as a whole number of per cent."""
        return round(100 * self.unknown)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Return the interval as whole numbers of per cent."""
        return None if self.interval is None else (round(100 * self.interval[0]), round(100 * self.interval[1]))

    @property
    def in_words(self) -> str:
        """Return the share and its interval, such as `61 % (50 to 70 %)`."""
        bounds = self.bounds
        return f"{self.percent} %" + ("" if bounds is None else f" ({bounds[0]} to {bounds[1]} %)")


@dataclass(frozen=True)
class AnswersSoFar:
    """Answers that people gave since the run was made, and their effect.

    Attributes:
        n_of_classes: samples that were said to be of a source class.
        n_unknown: samples that were said to be of none.
        n_cannot_tell: samples that people could not tell.
        n_right: of the first two, how many the run had labelled in the same way before.
        n_moved: labels that changed of samples that nobody answered about.
        n_named: groups that have a name.
        lost: classes that were found before the answers and are not any more.
        before: share of unknown samples before the answers.
        after: share after them.
    """

    n_of_classes: int
    n_unknown: int
    n_cannot_tell: int
    n_right: int
    n_moved: int
    n_named: int
    lost: list[str]
    before: Share
    after: Share

    @property
    def n_decided(self) -> int:
        """Return the number of answers that say what a sample is."""
        return self.n_of_classes + self.n_unknown

    @property
    def sentences(self) -> list[str]:
        """Return the answers and their effect, in sentences."""
        said = []
        n_answers = self.n_decided + self.n_cannot_tell
        if n_answers:
            kinds = (
                (self.n_of_classes, "of your classes"),
                (self.n_unknown, "of none of them"),
                (self.n_cannot_tell, "cannot be told"),
            )
            parts = ", ".join(f"{count:,} {what}" for count, what in kinds if count)
            said.append(f"{counted(n_answers, 'sample')} answered: {parts}.")
        if self.n_decided:
            was = f"{self.n_right:,} of {self.n_decided:,}"
            said.append(f"The run had {was} right before; questions are about samples that it is least sure of.")
            others = f"{counted(self.n_moved, 'other label')} changed with them"
            said.append(f"{others}. Unknown: {self.before.in_words} before, {self.after.in_words} now.")
        if self.lost:
            are = plural(len(self.lost), "is", "are")
            lost = (
                f"{counted(len(self.lost), 'class', 'classes')} found before {are} not found now: {listed(self.lost)}."
            )
            said.append(f"{lost} If you expect them, answer about samples that you know to be theirs.")
        if self.n_named:
            said.append(f"{counted(self.n_named, 'group')} {plural(self.n_named, 'has', 'have')} a name.")
        return said


def answers_so_far(run: Run) -> AnswersSoFar | None:
    """Return what people said since the run was made; None if they said nothing, or a preference hides its effect."""
    before, after = run.saved_model, run.model
    if after.threshold is not None and before.threshold is None:
        return None
    said = before.answers.by_row
    new = {row: of for row, of in after.answers.by_row.items() if said.get(row) != of}
    inferred = set(after.answers.rows[after.answers.inferred].tolist())
    given = {row: of for row, of in new.items() if row not in inferred}
    if not given and not after.group_names:
        return None
    by_rule = np.where(before.target.known, before.target.nearest, UNKNOWN)
    now = np.where(after.target.known, after.target.nearest, UNKNOWN)
    changed = by_rule != now
    changed[list(given)] = False
    said_of = np.array(list(given.values()), dtype=np.int64)
    rows = np.array(list(given), dtype=np.int64)
    return AnswersSoFar(
        n_of_classes=int((said_of >= 0).sum()),
        n_unknown=int((said_of == UNKNOWN).sum()),
        n_cannot_tell=int((said_of == CANNOT_TELL).sum()),
        n_right=int((by_rule[rows] == said_of).sum()),
        n_moved=int(changed.sum()),
        n_named=len(after.group_names),
        lost=[after.class_names[one] for one in sorted(set(by_rule.tolist()) - set(now.tolist()) - {UNKNOWN})],
        before=Share.of(before),
        after=Share.of(after),
    )


@dataclass(frozen=True)
class ClassAccuracy:
    """Estimated accuracy of the samples with one label.

    Attributes:
        name: the class, or the unknown ones together.
        key: identifier of its gallery; empty if it has none.
        count: samples with this label.
        estimated: estimated fraction of these that are right: the mean of their calibrated confidences.
        measured: the same with true labels, of the samples that people did not label; None without true labels.
    """

    name: str
    key: str
    count: int
    estimated: float
    measured: float | None = None

    @property
    def n_wrong(self) -> int:
        """Return the estimated number of wrong labels."""
        return round(self.count * (1 - self.estimated))


def class_accuracies(run: Run, categories: Categories) -> list[ClassAccuracy]:
    """Return the estimated accuracy of each class that was found, and of the unknown ones; the least sure first.

    Their mean over all samples is the estimated accuracy of the run, because confidences are calibrated to that.
    """
    model, truth = run.model, run.true_labels
    confidence, known = model.target.confidence, model.target.known
    is_right = None if truth is None else right_labels(model, truth)

    def line(name: str, key: str, rows: np.ndarray) -> ClassAccuracy:
        scored = rows[~model.labelled_by_people[rows]]
        measured = None if is_right is None or not len(scored) else float(is_right[scored].mean())
        return ClassAccuracy(name, key, len(rows), float(confidence[rows].mean()), measured)

    lines = [line(one.name, one.key, one.members) for one in categories.found if one.known]
    unknown = np.flatnonzero(~known)
    if len(unknown):
        lines.append(line("unknown", "", unknown))
    return sorted(lines, key=lambda one: one.estimated)


def right_labels(model: AdaptedModel, truth: np.ndarray) -> np.ndarray:
    """Return which target samples have the right label, (n_samples,): their class, or unknown if it is no source class.

    Args:
        model: model of the run.
        truth: true classes as text, (n_samples,).
    """
    names = np.array(model.class_names)
    labels = np.where(model.target.known, names[model.target.nearest], "")
    return np.asarray(labels == np.where(np.isin(truth, names), truth, ""))


@dataclass(frozen=True)
class NextStep:
    """What to do next: why, and a command to copy or a link within the page.

    Attributes:
        title: what to do.
        why: reason, as a sentence.
        command: command to copy; empty if there is none.
        link: identifier of a part of the page; empty if there is none.
    """

    title: str
    why: str
    command: str = ""
    link: str = ""


def next_steps(run: Run, found: RunSummary, faults: Faults | None) -> list[NextStep]:
    """Return what to do next with a run, the most useful first."""
    model, folder = run.model, run.files.title
    asked = _questions(model, found, folder, has_page=run.pictures is not None or run.texts is not None)
    named = _names(model, found, folder, can_continue=Run.has_source(run.folder))
    # Names come first once the questions were answered.
    steps = [*named, *asked] if len(model.answers.by_people) >= _MANY_ANSWERS else [*asked, *named]
    return [
        *steps,
        *_own_labels(faults),
        NextStep(
            "Label new samples",
            "They get the same classes and groups.",
            command("predict", folder, _new_file(run)),
        ),
    ]


def _new_file(run: Run) -> str:
    """Return the name of a file of new samples, of the kind that the run was made from."""
    if run.model.reader is not None:
        return "photo.jpg"
    if run.files.cells.is_file():
        return "new.h5ad"
    return "new.csv" if run.texts is not None else "new.npz"


def _questions(model: AdaptedModel, found: RunSummary, folder: str, *, has_page: bool) -> list[NextStep]:
    interval, accuracy = model.shown_share_interval, model.reliability_of_decision.accuracy
    ask = command("ask", folder, "--open") if has_page else command("ask", folder)
    if interval is not None and is_wide(interval):
        low, high = (round(100 * bound) for bound in interval)
        if len(model.answers.by_people):
            return [NextStep("Answer more questions", f"From {low} to {high} % may still be unknown.", ask)]
        why = f"From {low} to {high} % may be unknown; your answers narrow it down."
        return [NextStep("Answer ten questions", why, ask)]
    if accuracy is not None and accuracy < DOUBTED:
        return [NextStep("Answer some questions", "Many labels are probably wrong; answers correct the line.", ask)]
    if found.n_wrong:
        doubtful = f"About {found.n_wrong:,} of {found.n_target:,} labels are probably wrong."
        return [NextStep("Check the least sure classes", doubtful, link="accuracy")]
    return []


def _names(model: AdaptedModel, found: RunSummary, folder: str, *, can_continue: bool) -> list[NextStep]:
    n_unnamed = found.n_groups - len(model.group_names)
    if n_unnamed > 0:
        groups = counted(n_unnamed, "new group")
        why = "A look at each is enough; the names are used at once."
        return [
            NextStep(f"Name the {groups}" if n_unnamed > 1 else "Name the new group", why, command("label", folder))
        ]
    if model.group_names and can_continue:
        why = "Named groups become classes that are learned like yours."
        return [NextStep("Run again with your names", why, command("adapt", "--continue", folder))]
    if found.n_unknown and not found.n_groups:
        return [NextStep("Look at the unknown", _NO_GROUP, command("label", folder))]
    return []


def _own_labels(faults: Faults | None) -> list[NextStep]:
    if faults is None or not faults.n_clear:
        return []
    look = plural(faults.n_clear, "looks", "look")
    return [
        NextStep("Check your own labels", f"{counted(faults.n_clear, 'label')} of yours {look} wrong.", link="faults")
    ]


@dataclass(frozen=True)
class Opening:
    """What the first screen says, beside the sentence and the counts.

    Attributes:
        share: share of unknown samples with its interval.
        reliability: estimated accuracy and warnings, for the present decision.
        doubted: classes with the lowest estimated accuracy; empty if it is not estimated.
        accuracies: all classes, the least sure first.
        n_accuracies_left_out: classes that are not listed.
        measured: fraction of right labels by true labels; None without any.
        answers: what people said since the run was made; None if nothing.
        steps: what to do next.
        classes: the largest classes.
        groups: the largest groups.
    """

    share: Share
    reliability: Reliability
    doubted: list[ClassAccuracy]
    accuracies: list[ClassAccuracy]
    n_accuracies_left_out: int
    measured: float | None
    answers: AnswersSoFar | None
    steps: list[NextStep]
    classes: list[Category]
    groups: list[Category]

    @property
    def is_estimated(self) -> bool:
        """Return whether the accuracy is estimated; it is not for every method, nor after answers."""
        return self.reliability.accuracy is not None

    @classmethod
    def of(cls, run: Run, categories: Categories, found: RunSummary, faults: Faults | None) -> Opening:
        """Return what the first screen says about a run."""
        model, lines, truth = run.model, class_accuracies(run, categories), run.true_labels
        scored = ~model.labelled_by_people
        reliability = model.reliability_of_decision
        return cls(
            share=Share.of(model),
            reliability=reliability,
            doubted=[] if reliability.accuracy is None else lines[:_MOST_DOUBTED],
            accuracies=lines[:_MOST_LINES],
            n_accuracies_left_out=max(0, len(lines) - _MOST_LINES),
            measured=None if truth is None or not scored.any() else float(right_labels(model, truth)[scored].mean()),
            answers=answers_so_far(run),
            steps=next_steps(run, found, faults),
            classes=[one for one in categories.found if one.known][:_MOST_LARGEST],
            groups=[one for one in categories.found if one.is_group][:_MOST_LARGEST],
        )
