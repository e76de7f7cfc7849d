"""Where labelling happens: an action is checked, saved, and only then made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock

from uniot.annotations.places import DISCARDED, as_text, is_group
from uniot.errors import DataError, UniotError
from uniot.labelling.actions import Edit, Redo, Undo
from uniot.labelling.exporting import Exported, export_labels
from uniot.labelling.formats import Format
from uniot.labelling.geometry import Geometry
from uniot.labelling.importing import parse_labels
from uniot.labelling.planning import Plan, Planner
from uniot.labelling.spreading import Spreader
from uniot.labelling.state import Change, Labels
from uniot.labelling.store import Store
from uniot.labelling.target import Target


class Stale(UniotError):
    """A page asked for something that another page has changed since."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{_capital(what)} has been changed in another tab or window. What you asked for was not done. The page "
            "shows the present state: look again, and do it again if it is still right."
        )


@dataclass(frozen=True)
class Step:
    """An action that can be taken back: its number in the log and what it did, for people."""

    id: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """What came of an action.

    Attributes:
        message: a sentence for people.
        show: the place to look at afterwards, where the present one is gone.
    """

    message: str
    show: int | None = None


class Desk:
    """The labels of a run while somebody works on them; any number of threads may call it.

    Two pages do not overwrite each other: an action names the last action that its page has seen, and is refused if
    since then another one changed a group or class that it takes samples from, a group that it puts samples into, or
    the group that it names. Actions about different groups go through. An undo names the action that it takes back,
    which must still be the last.

    Args:
        target: what there is to label.
        store: where it is kept.

    Attributes:
        revision: number of the last action, 0 before the first.
        spreader: where samples follow a labelled one, and which to label next.
        on_change: called after every action.
        problem: why the tables of the run folder are behind, for people; empty if they are not.
    """

    def __init__(self, target: Target, store: Store) -> None:
        self.target = target
        self.labels = Labels.start(target.start)
        store.load(self.labels)
        self.geometry = Geometry(target, self.labels)
        self.revision = 0
        self.spreader = Spreader(target, self.labels)
        self.on_change: Callable[[], None] = lambda: None
        self.problem = ""
        self._planner = Planner(target, self.labels, self.geometry, self.spreader)
        self._store = store
        self._lock = RLock()
        self._done: list[Step] = []
        self._undone: list[Step] = []
        for entry in store.entries():
            self._note(entry.id, entry.kind, entry.text)
        self._first_revision = self.revision
        self._changed: dict[int, int] = {}

    @property
    def to_undo(self) -> Step | None:
        """What an undo would take back."""
        return self._done[-1] if self._done else None

    @property
    def to_redo(self) -> Step | None:
        """What a redo would do again."""
        return self._undone[-1] if self._undone else None

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nobody else changes anything within this block."""
        with self._lock:
            yield

    def act(self, action: Edit | Undo | Redo, seen: int) -> Outcome:
        """Does what was asked for and saves it, or does nothing.

        Args:
            action: what to do.
            seen: the last action that the page knows of.

        Raises:
            Stale: another page has changed what the action is about.
            DataError: there is no such group, class or sample, or the name cannot be used.
            RunFolderError: it cannot be saved.
        """
        with self._lock:
            if isinstance(action, Undo | Redo):
                return self._go_back_or_forth(action)
            self._check_fresh(self._planner.concerned(action), seen)
            return self._carry_out(action.kind, self._planner.plan(action))

    def import_labels(self, text: str) -> Outcome:
        """Takes over labels that were made elsewhere, all or none; see `parse_labels`."""
        with self._lock:
            return self._carry_out("import", self._planner.imported(parse_labels(text, self.target.names)))

    def export(self, kind: Format = "csv") -> Exported:
        """Writes what was decided into the run folder, in one of the formats."""
        with self._lock:
            labels = self.labels.copy()
        return export_labels(self.target, labels, kind)

    def existing_place(self, text: str) -> int:
        """A place by its text; DataError where there is none."""
        return self._planner.existing_place(text)

    def next_place(self, text: str, instead: int | None) -> str:
        """The place of that text while it exists; then the one to show instead, or else any."""
        try:
            return as_text(self.existing_place(text))
        except DataError:
            groups = filter(is_group, self.labels.sizes())
            return as_text(min(groups, default=DISCARDED) if instead is None else instead)

    def _carry_out(self, kind: str, plan: Plan) -> Outcome:
        if not plan.change:
            return Outcome("Nothing to change: it is so already.")
        self._commit(kind, plan.text, plan.change)
        return Outcome(f"{_capital(plan.text)}.", plan.show)

    def _go_back_or_forth(self, action: Undo | Redo) -> Outcome:
        undoes = isinstance(action, Undo)
        step = self.to_undo if undoes else self.to_redo
        if step is None or step.id != action.of:
            raise Stale("what was to be undone or done again")
        change = self._store.change_of(step.id)
        change = change.inverse() if undoes else change
        self._commit(action.kind, step.text, change, of=step.id)
        groups = sorted(place for place in change.places() if is_group(place) and (self.labels.place == place).any())
        return Outcome(f"{'Undone' if undoes else 'Done again'}: {step.text}.", groups[0] if groups else None)

    def _check_fresh(self, places: Iterable[int], seen: int) -> None:
        if not self._first_revision <= seen <= self.revision:
            raise Stale("the run")
        for place in sorted(places):
            if self._changed.get(place, 0) > seen:
                raise Stale(self._planner.title(place))

    def _commit(self, kind: str, text: str, change: Change, of: int | None = None) -> None:
        self.target.check_in_place()
        added = self._store.append(self.revision, kind, text, change, of)
        self.labels.apply(change)
        self.geometry.forget(change.places())
        self._changed.update(dict.fromkeys(change.places(), added))
        self._note(added, kind, text)
        self.on_change()

    def _note(self, added: int, kind: str, text: str) -> None:
        """Keeps what can be undone and redone in step with the log."""
        self.revision = added
        if kind == "undo":
            self._undone.append(self._done.pop())
        elif kind == "redo":
            self._done.append(self._undone.pop())
        else:
            self._done.append(Step(added, text))
            self._undone.clear()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
