"""Update the tables of a run folder with the labels of the labelling page."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from uniot.cells.results import refresh as refresh_cells
from uniot.errors import DataError, RunFolderError, UniotError
from uniot.io.text import command
from uniot.labelling.exporting import Exported, Format, decided, export_labels, format_of
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore, label_lock
from uniot.runs.run import Run

if TYPE_CHECKING:
    from uniot.training.model import AdaptedModel

# Several actions in a row are written once.
_SECONDS_OF_REST = 0.3


def publish(session: LabellingSession, model: AdaptedModel) -> None:
    """Write the labels and the predictions of the run, each file atomically."""
    with session.locked():
        target, state = session.target, session.state.copy()
    session.store.check_unchanged()
    with Run.writer(session.store.files.folder, wait=True) as writer:
        writer.write_labels(decided(target, state))
        writer.write_predictions(model.with_annotations(target.annotations(state)), target.names)


class Publisher:
    """Publishes in the background, shortly after an action; a context manager that writes the last state at its end.

    Args:
        session: session of the labelling page; its `problem` is set if a file cannot be written.
        model: the model as it was saved.
    """

    def __init__(self, session: LabellingSession, model: AdaptedModel) -> None:
        self._session, self._model = session, model
        self._changed, self._wake, self._ends = Event(), Event(), Event()
        self._has_published = False
        self._thread = Thread(target=self._work, name="publisher", daemon=True)

    def __enter__(self) -> Publisher:
        self._session.on_change = self._note
        if self._is_outdated():
            self._note()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._wake.set()
        self._thread.join()
        # A copy of all cells: written once, at the end.
        self._refresh_cells()

    def _note(self) -> None:
        self._changed.set()
        self._wake.set()

    def _work(self) -> None:
        ends = False
        while not ends:
            self._wake.wait()
            self._ends.wait(_SECONDS_OF_REST)
            self._wake.clear()
            # Looked at last: an end that is set before this line is seen here, one that is set later wakes again.
            ends = self._ends.is_set()
            if self._changed.is_set():
                self._changed.clear()
                self._publish()

    def _publish(self) -> None:
        try:
            publish(self._session, self._model)
        except UniotError as error:
            self._session.problem = str(error)
        else:
            self._session.problem, self._has_published = "", True

    def _refresh_cells(self) -> None:
        if not self._has_published:
            return
        try:
            refresh_cells(self._session.store.files.folder)
        except UniotError as error:
            self._session.problem = str(error)

    def _is_outdated(self) -> bool:
        """Return whether a page that was killed left actions that are not in the tables."""
        if not self._session.revision:
            return False
        files = self._session.store.files
        saved = max(path.stat().st_mtime_ns for path in files.folder.glob(f"{files.annotations.name}*"))
        tables = [path.stat().st_mtime_ns for path in (files.labels, files.predictions) if path.is_file()]
        return len(tables) < 2 or min(tables) < saved


def import_run(run: Path, table: Path) -> str:
    """Import labels from a file, all or none, as one action that the page can undo.

    Returns:
        A sentence on what was imported.

    Raises:
        DataError: the file cannot be read, or names samples that the target does not have.
        RunFolderError: the run cannot be labelled, or a labelling page has it open.
    """
    try:
        text = table.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{table} cannot be read ({error}). Give a .csv or .jsonl file in UTF-8.") from None
    opened = Run.open(run)
    target = TargetSamples.of_run(opened)
    with label_lock(run), closing(LabelStore.of_run(opened, target.digest)) as store:
        session = LabellingSession(target, store)
        try:
            outcome = session.import_labels(text)
        except DataError as error:
            raise DataError(f"{table}: {error}") from None
        publish(session, opened.saved_model)
    refresh_cells(run)
    return outcome.message


def export_run(run: Path, path: Path, kind: Format | None = None) -> Exported:
    """Export the saved labels of a run, whether or not its page is open.

    Args:
        run: folder of the run.
        path: the file, or the folder for FiftyOne.
        kind: the format; None derives it from the file name.

    Returns:
        The path and the numbers of samples.

    Raises:
        RunFolderError: nothing has been labelled yet, or the run cannot be labelled.
    """
    opened = Run.open(run)
    target = TargetSamples.of_run(opened)
    state = target.initial_state()
    if not opened.files.annotations.is_file():
        raise RunFolderError(f"{run} has no labels yet. Run `{command('label', run)}` and name its groups first.")
    with closing(LabelStore.of_run(opened, target.digest)) as store:
        store.load(state)
        store.check_unchanged()
    return export_labels(opened.files, target, state, kind or format_of(path), path)
