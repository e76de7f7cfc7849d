"""The target samples of a run, as people label them: what the run predicts for each, and what they look like."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from uniot.annotations.annotations import Annotations, class_named, composed
from uniot.annotations.places import start_places
from uniot.errors import DataError, RunFolderError
from uniot.io.text import as_utf8
from uniot.labelling.names import read_names
from uniot.labelling.state import AnnotationState
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN, Answers, no_such_class
from uniot.runs.annotations import run_digest

if TYPE_CHECKING:
    from uniot.runs.group_descriptions import GroupDescriptions
    from uniot.runs.run import Run
    from uniot.runs.texts import Texts
    from uniot.training.model import AdaptedModel


@dataclass(frozen=True)
class TargetSamples:
    """The target samples that people label, with the predictions of a run.

    Attributes:
        names: names of the samples, as in predictions.csv, (n_samples,).
        classes: names of the source classes, text, (n_classes,).
        unknown: label of unknown samples.
        start: place of each sample before any action, (n_samples,).
        nearest: index of the nearest source class, (n_samples,).
        confidence: probability of the prediction, of a class or of being unknown, (n_samples,).
        features: features of unit norm, (n_samples, n_features).
        prototypes: class prototypes of unit norm, (n_classes, n_features).
        class_faces: row of a typical source sample of each class; -1 if the class has none, (n_classes,).
        n_groups: number of groups that the run found.
        digest: digest of everything that a label refers to; it differs between runs.
        no_groups_asked: whether the user set the number of groups to 0.
        continued: labels of an earlier run that this run was made with.
        model: model of the run as it was saved, which decides about samples that no person placed; None if nothing
            decides about them.
        noun: what a sample is called, in the singular, such as image or text.
        texts: texts or links of the samples; None if the run has none.
        descriptions: what describes the groups, by the numbers that the run gave them; None if nothing does.
    """

    names: list[str]
    classes: list[str]
    unknown: str
    start: NDArray[np.int64]
    nearest: NDArray[np.int64]
    confidence: np.ndarray
    features: NDArray[np.float32]
    prototypes: NDArray[np.float32]
    class_faces: NDArray[np.int64]
    n_groups: int
    digest: str
    no_groups_asked: bool = False
    continued: Answers = field(default_factory=Answers)
    model: AdaptedModel | None = None
    noun: str = "sample"
    texts: Texts | None = None
    descriptions: GroupDescriptions | None = None

    @classmethod
    def of_run(cls, run: Run) -> TargetSamples:
        """Return the target samples of a run.

        Raises:
            RunFolderError: the run was shared without its target, or two samples have the same name.
            DataError: the run does not have the features of its whole target, or its names.csv cannot be read.
        """
        run.require_target("to label")
        run.saved_model.require_all_features("its samples cannot be labelled")
        _check_distinct(run)
        target = replace(
            cls.of(run.saved_model, run.predictions.names),
            noun=run.noun,
            texts=run.texts,
            descriptions=run.group_descriptions,
        )
        if not run.files.names.is_file():
            return target
        return replace(target, continued=read_names(run.files.names).answers(target.names, np.array(target.classes)))

    @classmethod
    def of(cls, model: AdaptedModel, names: list[str]) -> TargetSamples:
        """Return the target samples of a model, given their names."""
        prototypes = model.class_centres
        classes = model.class_names
        start = start_places(model.target, model.groups.n_groups)
        return cls(
            names=names,
            classes=classes,
            unknown=as_utf8(str(model.unknown)),
            start=start,
            nearest=model.target.nearest,
            confidence=model.target.confidence,
            features=model.target_features,
            prototypes=prototypes,
            class_faces=model.source.nearest_rows(prototypes),
            n_groups=model.groups.n_groups,
            digest=run_digest(model.fingerprint, names, classes, start),
            no_groups_asked=model.settings.n_private_classes == 0,
            model=model,
        )

    def class_exemplars(self, index: int, count: int) -> list[int]:
        """Return up to `count` source samples of a class: a typical one, then typical ones that differ from it.

        Returns:
            Rows of the source; none if the run does not have it.
        """
        source = None if self.model is None else self.model.source
        rows = np.zeros(0, dtype=np.int64) if source is None else np.flatnonzero(source.classes == index)
        if source is None or not len(rows) or source.rows[rows].min() < 0:
            return [face for face in self.class_faces[index : index + 1].tolist() if face >= 0]
        order = np.argsort(-(source.features[rows] @ self.prototypes[index]), kind="stable")
        # The more typical half, so that an outlier or a wrong label is no exemplar.
        typical = rows[order][: max(count, -(-len(rows) // 2))]
        chosen, cosines = [0], source.features[typical] @ source.features[typical].T
        while len(chosen) < min(count, len(typical)):
            chosen.append(int(np.argmin(cosines[chosen].max(axis=0))))
        return [int(row) for row in source.rows[typical[chosen]]]

    def initial_state(self) -> AnnotationState:
        """Return the state before any action."""
        return AnnotationState.initial(self.start, self.given, self.n_groups)

    @property
    def given(self) -> Answers:
        """Return the answers that the run was made with."""
        return Answers() if self.model is None else self.model.answers

    def annotations(self, state: AnnotationState) -> Annotations:
        """Return what people decided about the target."""
        return Annotations.of(
            self.names,
            self.start,
            state.category,
            state.by_hand,
            state.cannot_tell,
            state.names,
            self.classes,
            self.n_groups,
            self.given,
        )

    def is_ungrouped(self, group: int) -> bool:
        """Return whether a group of the page consists of the unknown samples that the run did not group."""
        return not self.n_groups and not group and bool((self.start == group).any())

    def group_title(self, group: int) -> str:
        """Return what a group without a name is called in a sentence."""
        return "the unknown without a group" if self.is_ungrouped(group) else f"group {group}"

    def class_named(self, name: str) -> int | None:
        """Return the index of the source class with this name, in any Unicode normalisation; None if there is none."""
        return class_named(name, self.classes)

    def answer_index(self, answer: str | None) -> int:
        """Return the index of an answer: of a source class, `UNKNOWN`, or `CANNOT_TELL` for None.

        Raises:
            DataError: there is no such class; the message offers the most similar one.
        """
        if answer is None:
            return CANNOT_TELL
        name = composed(answer)
        if self.is_unknown(name):
            return UNKNOWN
        index = self.class_named(name)
        if index is None:
            raise DataError(f"{no_such_class(answer, self.classes)} For none of the classes, answer {self.unknown!r}.")
        return index

    def is_unknown(self, name: str) -> bool:
        """Return whether a name is the label of unknown samples."""
        return name == composed(self.unknown)


def _check_distinct(run: Run) -> None:
    names = run.predictions.names
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise RunFolderError(
            f"{run.files.predictions} has two samples named {twice!r}, and labels are stored by name. Give each sample "
            "a name of its own, and make the run again."
        )
