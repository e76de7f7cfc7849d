"""Brings the tables of a run folder up to date with what people decided, while they work on it."""

from __future__ import annotations

from threading import Event, Thread

from uniot.annotations import FILE, Annotations
from uniot.errors import UniotError
from uniot.labelling.desk import Desk
from uniot.labelling.exporting import TABLE, write_table
from uniot.model import AdaptedModel
from uniot.model_files import rewrite_answers

# Many actions in a row are written once.
_SECONDS_OF_REST = 0.3


def publish(desk: Desk, model: AdaptedModel) -> None:
    """Writes labels.csv and the predictions of the run, each whole or not at all."""
    with desk.at_rest():
        target, labels = desk.target, desk.labels.copy()
    target.check_in_place()
    write_table(target, labels, target.run / TABLE)
    annotations = Annotations.of(
        target.names, target.start, labels.place, labels.by_hand, labels.names, target.classes, target.n_groups
    )
    rewrite_answers(model.with_annotations(annotations), target.run, target.names)


class Publisher:
    """Publishes in the background, a moment after an action; a context manager that ends with the last state written.

    Args:
        desk: where people work; it notes what could not be written.
        model: what the run ended with.
    """

    def __init__(self, desk: Desk, model: AdaptedModel) -> None:
        self._desk, self._model = desk, model
        self._changed, self._wake, self._ends = Event(), Event(), Event()
        self._thread = Thread(target=self._work, name="publisher", daemon=True)

    def __enter__(self) -> Publisher:
        self._desk.on_change = self._note
        if self._is_outdated():
            self._note()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._wake.set()
        self._thread.join()

    def _note(self) -> None:
        self._changed.set()
        self._wake.set()

    def _work(self) -> None:
        ends = False
        while not ends:
            self._wake.wait()
            ends = self._ends.wait(_SECONDS_OF_REST)
            self._wake.clear()
            if self._changed.is_set():
                self._changed.clear()
                self._publish()

    def _publish(self) -> None:
        try:
            publish(self._desk, self._model)
        except UniotError as error:
            self._desk.problem = str(error)
        else:
            self._desk.problem = ""

    def _is_outdated(self) -> bool:
        """Whether a page that was killed has left decisions that no table has."""
        if not self._desk.revision:
            return False
        run = self._desk.target.run
        saved = max(path.stat().st_mtime_ns for path in run.glob(f"{FILE}*"))
        tables = [path.stat().st_mtime_ns for path in (run / TABLE, run / "predictions.csv") if path.is_file()]
        return len(tables) < 2 or min(tables) < saved
