"""Run a labelling session: check each action, save it, and only then apply it; prepare the views of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from uniot.annotations.places import DISCARDED, as_text, class_index, class_place, is_class, is_group
from uniot.discovery.class_count import why_ungrouped
from uniot.errors import DataError, RunFolderError, UniotError
from uniot.io.text import plural
from uniot.labelling.actions import Edit, Effect, EffectBuilder, Redo, Undo
from uniot.labelling.decisions import AnsweredModel, ModelDecisions
from uniot.labelling.descriptions import CurrentDescriptions
from uniot.labelling.exporting import Exported, Format, export_labels
from uniot.labelling.gallery import GalleryOrder, Order
from uniot.labelling.lists import SampleLists
from uniot.labelling.parsing import parse_labels
from uniot.labelling.propagation import LabelPropagation
from uniot.labelling.questions import HARDLY, N_NEAREST, Belief, Question, ShareEstimate
from uniot.labelling.reading import IN_EXAMPLE, IN_TILE, SampleTexts, searched
from uniot.labelling.state import Change
from uniot.rejection.answers import CANNOT_TELL, UNKNOWN

if TYPE_CHECKING:
    from uniot.labelling.samples import TargetSamples
    from uniot.labelling.store import LabelStore
    from uniot.runs.texts import Collection
    from uniot.training.model import AdaptedModel

PAGE_SIZE = 60
N_EXEMPLARS = 3
# Samples of a list that are shown beside the one that is asked about.
_N_FOLLOWING = 12


class ConflictError(UniotError):
    """Raised if a page acts on something that another page has changed since."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{_capitalised(what)} has been changed in another tab or window. Your last step was not carried out. The "
            "page now shows the latest state: check it, and repeat the step if it is still right."
        )


@dataclass(frozen=True)
class Step:
    """An action that can be undone or redone: its number in the log, and a text for people."""

    id: int
    text: str


@dataclass(frozen=True)
class ActionResult:
    """The result of an action.

    Attributes:
        message: a sentence for people.
        show: category to show afterwards if the present one no longer exists.
    """

    message: str
    show: int | None = None


class LabellingSession:
    """The labels of a run while people work on them; thread-safe.

    Pages do not overwrite each other. An action comes with the number of the last action that its page has seen, and is
    rejected if a later one changed a group or class that it takes samples from, a group that it moves samples to, or
    the group that it names. An undo names the action to undo, which must still be the last one.

    Args:
        target: samples to label.
        store: saves every action.

    Attributes:
        target: samples to label.
        store: saves every action.
        state: category of each sample and names of the groups.
        order: similarity of samples and groups.
        propagation: of single labels.
        decisions: of the model about samples that no person placed.
        texts: of the samples.
        lists: of samples across categories.
        revision: number of the last action, 0 before the first.
        on_change: called after every action.
        problem: why the tables of the run folder are out of date, for people; empty if they are not.
    """

    def __init__(self, target: TargetSamples, store: LabelStore) -> None:
        self.target, self.store = target, store
        self.state = target.initial_state()
        store.load(self.state)
        self.order = GalleryOrder(target, self.state)
        self.propagation = LabelPropagation(target, self.state)
        self.revision = 0
        self.on_change: Callable[[], None] = lambda: None
        self.problem = ""
        self.decisions = ModelDecisions(target)
        self.texts = SampleTexts(target)
        self.lists = SampleLists(target, self.state, lambda: None if target.model is None else self.model())
        self._descriptions = CurrentDescriptions(target, self.state)
        self._effects = EffectBuilder(target, self.state, self.order, self.propagation, self.decisions)
        self._lock = RLock()
        self._done: list[Step] = []
        self._undone: list[Step] = []
        for entry in store.entries():
            self._record(entry.id, entry.kind, entry.text)
        self._first_revision = self.revision
        self._changed: dict[int, int] = {}

    @property
    def to_undo(self) -> Step | None:
        """Return the action that an undo would undo."""
        return self._done[-1] if self._done else None

    @property
    def to_redo(self) -> Step | None:
        """Return the action that a redo would do again."""
        return self._undone[-1] if self._undone else None

    @property
    def has_answers(self) -> bool:
        """Return whether a person has said something about a single sample."""
        return bool((self.state.by_hand | self.state.cannot_tell).any())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other threads from changing anything within a `with` block."""
        with self._lock:
            yield

    def act(self, action: Edit | Undo | Redo, seen: int) -> ActionResult:
        """Carry out an action and save it, or change nothing.

        Args:
            action: to carry out.
            seen: number of the last action that the page has seen.

        Returns:
            A sentence for people, and what to show next.

        Raises:
            ConflictError: another page has changed what the action concerns.
            DataError: there is no such group, class or sample, or the name is not allowed.
            RunFolderError: it cannot be saved.
        """
        with self._lock:
            if isinstance(action, Undo | Redo):
                return self._undo_or_redo(action)
            self._check_unchanged(self._effects.affected(action), seen)
            return self._carry_out(action.kind, self._effects.effect(action))

    def import_labels(self, text: str) -> ActionResult:
        """Import labels from the text of a file, all or none; return a sentence for people. See `parse_labels`."""
        with self._lock:
            return self._carry_out("import", self._effects.import_effect(parse_labels(text, self.target.names)))

    def tell(self, answers: Mapping[int, int]) -> ActionResult:
        """Add answers about several samples as one action.

        Args:
            answers: index of a source class, `UNKNOWN` or `CANNOT_TELL` by row of the target.
        """
        with self._lock:
            return self._carry_out("answer", self._effects.answer_effect(answers))

    def model(self) -> AdaptedModel:
        """Return the model of the run after all answers.

        Raises:
            RunFolderError: the run has no model.
        """
        return self._answered().model

    def _answered(self) -> AnsweredModel:
        with self._lock:
            found = self.decisions.answered(self.target.annotations(self.state).answers)
        if found is None:
            raise RunFolderError(f"{self.store.files.folder} has no model that can be asked. Make the run again.")
        return found

    def questions(self, n: int = 1) -> list[Question]:
        """Return the questions whose answers say most, the most important first; fewer if fewer samples are left."""
        with self._lock:
            answered = self._answered()
            model, first = answered.model, answered.following
            rows = model.ask(n).tolist() if n > 1 else [] if first is None else [first]
            return [Question.of(row, self.target, self.state, model) for row in rows]

    def estimate(self) -> ShareEstimate:
        """Return the share of unknown samples and its interval."""
        with self._lock:
            interval = self.model().shown_share_interval
            annotations = self.target.annotations(self.state)
            unknown = float((annotations.place >= DISCARDED).mean())
            return ShareEstimate(unknown, interval, int((~annotations.answers.inferred).sum()))

    @property
    def kind_of_terms(self) -> str:
        """Return what describes the groups, in the plural, such as typical words; empty if nothing does."""
        return self._descriptions.kind

    @property
    def is_settled(self) -> bool:
        """Return whether an answer to the next question is expected to change hardly anything."""
        return self._answered().expected_change < HARDLY

    def question_view(self, listed: str = "", at: int | None = None) -> dict[str, Any]:
        """Return the next question, the share of unknown samples and whether it is settled, as JSON values.

        Args:
            listed: text of a selection to ask about, in its order; the samples that say most if empty.
            at: row of that selection to ask about; its first sample without an answer if None, or if it has no such
                row any more.

        Raises:
            DataError: there is no such selection.
        """
        with self._lock:
            shown: dict[str, Any] = {}
            if listed:
                row, shown = self._listed_question(listed, at)
                following = None if row is None else Question.of(row, self.target, self.state, self.model())
            else:
                following = next(iter(self.questions()), None)
            share = self.estimate()
            return shown | {
                "revision": self.revision,
                "question": None if following is None else self._describe_question(following),
                "unknown": round(share.unknown, 4),
                "interval": None if share.interval is None else [round(bound, 4) for bound in share.interval],
                "share": share.sentence,
                "answers": share.n_answers,
                # Before the first answer, only the rule of the method supports it.
                "settled": share.n_answers > 0 and self.is_settled,
            }

    def _listed_question(self, listed: str, at: int | None) -> tuple[int | None, dict[str, Any]]:
        """Return the row of a list to ask about, None if all have an answer, and what the page shows of the list."""
        found = self.lists.of(listed)
        is_open = ~self.lists.is_decided[found.rows]
        places = np.flatnonzero(found.rows == at) if at is not None else np.zeros(0, dtype=np.int64)
        first = int(places[0]) if len(places) else 0
        is_shown = is_open | (found.rows == at)
        following = [*found.rows[first:][is_shown[first:]], *found.rows[:first][is_shown[:first]]][:_N_FOLLOWING]
        about = {
            "list": listed,
            "title": found.title,
            "note": found.note,
            "total": len(found.rows),
            "open": int(is_open.sum()),
            "following": [self._describe_sample(int(row)) for row in following],
        }
        return (int(following[0]) if following else None), {"listed": about}

    def following_rows(self, row: int) -> list[int]:
        """Prepare what follows the usual answers about a row; return the rows that the next question may be about."""
        if row >= len(self.target.names):
            raise DataError(
                f"there is no {self.target.noun} {row}: this run has {len(self.target.names)}. Reload the page."
            )
        with self._lock:
            model, begun = self.model(), self.revision
        found: list[int | None] = []
        # Without the lock: an answer that comes meanwhile does not wait, and ends this.
        for answer in (int(model.target.nearest[row]), UNKNOWN, CANNOT_TELL):
            after = self.decisions.answered(model.answers.told([row], [answer]))
            if after is None or self.revision != begun:
                break
            found.append(after.prepare())
        return [other for other in dict.fromkeys(found) if other is not None]

    def export(self, kind: Format = "csv") -> Exported:
        """Write the labels into the run folder in one of the formats; return the path and counts."""
        with self._lock:
            state = self.state.copy()
        self.store.check_unchanged()
        return export_labels(self.store.files, self.target, state, kind)

    def category_to_show(self, text: str, instead: int | None) -> str:
        """Return `text` if that category exists, else `instead`, else the first group."""
        try:
            return as_text(self._effects.category(text))
        except DataError:
            groups = filter(is_group, self.state.sizes())
            return as_text(min(groups, default=DISCARDED) if instead is None else instead)

    def overview(self) -> dict[str, Any]:
        """Return every group and class with its size, the progress, and what can be undone, as JSON values."""
        with self._lock:
            sizes = self.state.sizes()
            groups = [self._describe_group(one, size) for one, size in sorted(sizes.items()) if is_group(one)]
            by_hand = self.state.category[self.state.by_hand]
            classes: list[dict[str, Any]] = [
                {
                    "category": as_text(class_place(index)),
                    "name": name,
                    "size": sizes.get(class_place(index), 0),
                    "by_hand": int((by_hand == class_place(index)).sum()),
                    "exemplar": int(self.target.class_faces[index]),
                    "example": self.texts.example("source", int(self.target.class_faces[index])),
                }
                for index, name in enumerate(self.target.classes)
            ]
            n_decided = sum(group["size"] for group in groups if group["name"])
            n_decided += sizes.get(DISCARDED, 0) + sum(known["by_hand"] for known in classes)
            n_open = sum(group["size"] for group in groups if not group["name"])
            return {
                "revision": self.revision,
                "groups": groups,
                "classes": classes,
                "discarded": sizes.get(DISCARDED, 0),
                "progress": {
                    "groups_named": sum(bool(group["name"]) for group in groups),
                    "groups": len(groups),
                    "images_decided": n_decided,
                    "images": n_decided + n_open,
                },
                "problem": self.problem,
                "undo": _describe_step(self.to_undo),
                "redo": _describe_step(self.to_redo),
            }

    def gallery(
        self, text: str, page: int, order: Order, search: str = "", *, everywhere: bool = False, listed: str = ""
    ) -> dict[str, Any]:
        """Return one page of the samples of a category, and similar categories, as JSON values.

        Args:
            text: the category, such as `group-3`.
            page: from 0; a number that is too large gives the last page.
            order: typical samples first, or doubtful ones.
            search: words that the text or the name of a sample contains; all samples if there are none.
            everywhere: whether to search in all categories: groups, classes, and what was discarded.
            listed: text of a selection to show in place of the category, in its own order.

        Raises:
            DataError: there is no such category or selection.
        """
        with self._lock:
            category, words = self._effects.category(text), searched(search)
            found = self.lists.of(listed) if listed else None
            everywhere = found is not None or (everywhere and bool(words))
            if found is not None:
                rows = found.rows
            else:
                rows = self._every_row() if everywhere else self.order.ordered(category, order)
            if words:
                rows = rows[self.texts.matching(words)[rows]]
            n_pages = max(1, -(-len(rows) // PAGE_SIZE))
            page = min(page, n_pages - 1)
            similar = [] if category == DISCARDED else self.order.similar(category)
            return {
                "revision": self.revision,
                "category": text,
                "total": len(rows),
                "page": page,
                "pages": n_pages,
                "first": page * PAGE_SIZE,
                "everywhere": everywhere,
                "listed": None if found is None else {"list": listed, "title": found.title, "note": found.note},
                "samples": [
                    self._describe_sample(one, words) | ({"in": self._place_title(one)} if everywhere else {})
                    for one in rows[page * PAGE_SIZE :][:PAGE_SIZE].tolist()
                ],
                "similar": [{"category": as_text(other), "cosine": round(cosine, 3)} for other, cosine in similar],
            }

    def _every_row(self) -> np.ndarray:
        """Return the rows of all samples: groups by number, then classes, then what was discarded, (n_samples,)."""
        place = self.state.category
        # Classes have the places below `DISCARDED`, the first of them the largest.
        key = np.where(place >= 0, place, np.where(place == DISCARDED, np.inf, place.max() - place))
        return np.argsort(key, kind="stable")

    def _place_title(self, row: int) -> str:
        title = self._effects.title(int(self.state.category[row]))
        return f"known {title}" if is_class(int(self.state.category[row])) else title

    def whole_text(self, collection: Collection, row: int) -> dict[str, Any]:
        """Return the whole text of a sample as JSON values.

        Raises:
            DataError: there is no such sample, or the run has no texts.
        """
        found = self.texts.shown(collection, row)
        if not found:
            raise DataError(f"this run has no texts of the {collection}. Reload the page.")
        return found

    def queue(self, count: int) -> dict[str, Any]:
        """Return up to `count` samples to label next, with how many others each is expected to settle."""
        with self._lock:
            model = None if self.target.model is None else self.model()
            samples = [
                self._describe_sample(one.row)
                | {"settles": round(one.settles)}
                | {"now": _describe_belief(Belief.of(one.row, self.target, self.state, model))}
                for one in self.propagation.next_to_label(count)
            ]
            return {"revision": self.revision, "samples": samples}

    def _carry_out(self, kind: str, effect: Effect) -> ActionResult:
        if not effect.change:
            return ActionResult("Nothing to change: this is already so.")
        self._commit(kind, effect.text, effect.change)
        return ActionResult(f"{_capitalised(effect.text)}.", effect.show)

    def _undo_or_redo(self, action: Undo | Redo) -> ActionResult:
        undoes = isinstance(action, Undo)
        step = self.to_undo if undoes else self.to_redo
        if step is None or step.id != action.of:
            raise ConflictError(f"the step to {action.kind}")
        change = self.store.change_of(step.id)
        change = change.inverse() if undoes else change
        self._commit(action.kind, step.text, change, of=step.id)
        groups = sorted(one for one in change.categories() if is_group(one) and (self.state.category == one).any())
        return ActionResult(f"{'Undone' if undoes else 'Redone'}: {step.text}.", groups[0] if groups else None)

    def _check_unchanged(self, categories: Iterable[int], seen: int) -> None:
        if not self._first_revision <= seen <= self.revision:
            raise ConflictError("the run")
        for category in sorted(categories):
            if self._changed.get(category, 0) > seen:
                raise ConflictError(self._effects.title(category))

    def _commit(self, kind: str, text: str, change: Change, of: int | None = None) -> None:
        self.store.check_unchanged()
        added = self.store.append(self.revision, kind, text, change, of)
        self.state.apply(change)
        self.order.forget(change.categories())
        self._descriptions.forget(change.categories())
        self._changed.update(dict.fromkeys(change.categories(), added))
        self._record(added, kind, text)
        self.on_change()

    def _record(self, added: int, kind: str, text: str) -> None:
        self.revision = added
        if kind == "undo":
            self._undone.append(self._done.pop())
        elif kind == "redo":
            self._done.append(self._undone.pop())
        else:
            self._done.append(Step(added, text))
            self._undone.clear()

    def _describe_group(self, group: int, size: int) -> dict[str, Any]:
        name = self.state.names.get(group, "")
        known = self.target.class_named(name) if name else None
        ungrouped = not name and self.target.is_ungrouped(group)
        reason = why_ungrouped(size, asked_for_none=self.target.no_groups_asked)
        described, exemplar = self._descriptions.of(group), self.order.exemplar(group)
        return {
            "category": as_text(group),
            "number": group,
            "name": name,
            "size": size,
            "exemplar": exemplar,
            "example": self.texts.example("target", exemplar),
            "terms": list(described.terms),
            "suggestions": list(described.suggestions),
            "class": None if known is None else self.target.classes[known],
            # Why the run did not group these samples; empty for a group.
            "ungrouped": f"{plural(size, 'It', 'They')} {reason}." if ungrouped else "",
        }

    def _describe_question(self, question: Question) -> dict[str, Any]:
        nearest = []
        for index, (name, cosine) in zip(question.classes[:N_NEAREST], question.nearest, strict=True):
            rows = self.order.class_members(index, N_EXEMPLARS, question.row)
            source = self.target.class_exemplars(index, N_EXEMPLARS)
            nearest.append(
                {
                    "name": name,
                    "cosine": round(cosine, 3),
                    "source": source,
                    "target": [{"row": row, "name": self.target.names[row]} for row in rows],
                    # Labelled examples; those of the target if the source shows none.
                    "texts": [one for row in source if (one := self.texts.shown("source", row, IN_EXAMPLE))]
                    or [one for row in rows if (one := self.texts.shown("target", row, IN_EXAMPLE))],
                }
            )
        return {
            "row": question.row,
            "name": question.name,
            **self.texts.shown("target", question.row),
            "now": _describe_belief(question.belief),
            "nearest": nearest,
            "classes": [as_text(class_place(index)) for index in question.classes],
        }

    def _describe_sample(self, row: int, words: Sequence[str] = ()) -> dict[str, Any]:
        target, start = self.target, int(self.target.start[row])
        return {
            "row": row,
            "name": target.names[row],
            **self.texts.shown("target", row, IN_TILE, words),
            "by_hand": bool(self.state.by_hand[row]),
            "nearest": target.classes[int(target.nearest[row])],
            "known": is_class(start),
            "confidence": round(float(target.confidence[row]), 3),
            "start": target.classes[class_index(start)] if is_class(start) else target.group_title(start),
        }


def _describe_step(step: Step | None) -> dict[str, Any] | None:
    return None if step is None else {"of": step.id, "text": step.text}


def _describe_belief(belief: Belief) -> dict[str, Any]:
    confidence = None if belief.confidence is None else round(belief.confidence, 3)
    return {"label": belief.label, "confidence": confidence, "group": belief.group}


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
