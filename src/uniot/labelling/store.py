"""Store labels on disk, in an SQLite file in the run folder that is written at every action.

The table `actions` is append-only and holds the change that each action made. `samples` and `groups` hold the state
that results from applying these changes to the predictions of the run, and are written in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from uniot.errors import RunFolderError
from uniot.io.files import file_lock
from uniot.labelling.state import AnnotationState, Change
from uniot.runs.annotations import FILE, FORMAT, check_format
from uniot.runs.files import RunFiles, Stamp

if TYPE_CHECKING:
    from uniot.runs.run import Run

_TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE actions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    kind TEXT NOT NULL,
    of INTEGER REFERENCES actions (id),
    text TEXT NOT NULL,
    change TEXT NOT NULL
);
CREATE TRIGGER actions_stay BEFORE UPDATE ON actions BEGIN SELECT RAISE(ABORT, 'actions are only appended'); END;
CREATE TRIGGER actions_remain BEFORE DELETE ON actions BEGIN SELECT RAISE(ABORT, 'actions are only appended'); END;
CREATE TABLE samples (
    row INTEGER PRIMARY KEY, place INTEGER NOT NULL, by_hand INTEGER NOT NULL, cannot_tell INTEGER NOT NULL
);
CREATE TABLE groups (number INTEGER PRIMARY KEY, name TEXT NOT NULL);
"""


class LogEntry(NamedTuple):
    """An action in the log; `of` is the action that an undo or redo refers to."""

    id: int
    kind: str
    of: int | None
    text: str


class LabelStore:
    """Saves the labels of one run.

    Args:
        files: files of the run; the SQLite file among them is created if it does not exist.
        digest: of the run that the labels refer to.
        stamp: of the model's file when the run was read.

    Attributes:
        files: files of the run.

    Raises:
        RunFolderError: the file belongs to another run, is damaged, or cannot be written.
    """

    def __init__(self, files: RunFiles, digest: str, stamp: Stamp | None = None) -> None:
        self.files, self._stamp = files, stamp
        self._path = path = files.annotations
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise RunFolderError(f"{path} is a link or not a regular file. Move it away to start again without labels.")
        with self._explained():
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with self._explained():
                # With a write-ahead log an action is one short write; FULL waits until it is on the disk.
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                if not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    self._create(digest)
            self._check(digest)
        except RunFolderError:
            self._connection.close()
            raise

    @classmethod
    def of_run(cls, run: Run, digest: str) -> LabelStore:
        """Return the store of a run; `digest` is that of `TargetSamples`."""
        return cls(run.files, digest, run.stamp)

    def check_unchanged(self) -> None:
        """Raise RunFolderError if the run was written again since it was read: labels would go to the wrong samples."""
        self.files.check_unchanged(self._stamp)

    def entries(self) -> list[LogEntry]:
        """Return the whole log, without the changes."""
        with self._explained():
            return [LogEntry(*line) for line in self._connection.execute("SELECT id, kind, of, text FROM actions")]

    def change_of(self, action: int) -> Change:
        """Return the change that an action made."""
        with self._explained():
            (text,) = self._connection.execute("SELECT change FROM actions WHERE id = ?", (action,)).fetchone()
        return Change.from_json(text)

    def load(self, state: AnnotationState) -> None:
        """Update the initial state of a run to the state that was saved."""
        with self._explained():
            columns = "row, place, by_hand, cannot_tell"
            for row, category, by_hand, unsure in self._connection.execute(f"SELECT {columns} FROM samples"):
                if not 0 <= row < len(state.category):
                    raise ValueError(f"it labels sample {row} of {len(state.category)}")
                state.category[row], state.by_hand[row], state.cannot_tell[row] = category, bool(by_hand), bool(unsure)
            for number, name in self._connection.execute("SELECT number, name FROM groups"):
                state.next_group = max(state.next_group, number + 1)
                if name:
                    state.names[number] = name

    def append(self, after: int, kind: str, text: str, change: Change, of: int | None = None) -> int:
        """Save an action and the resulting state in one transaction.

        Args:
            after: number of the last action that the caller has seen, 0 for none.
            kind: of the action.
            text: description for people.
            change: of the state.
            of: the action that this one undoes or redoes.

        Returns:
            The number of the new action.

        Raises:
            RunFolderError: another process has added an action, or the file cannot be written.
        """
        with self._explained(), self._transaction():
            (last,) = self._connection.execute("SELECT COALESCE(MAX(id), 0) FROM actions").fetchone()
            if last != after:
                raise RunFolderError(
                    f"another process has written to {self._path}. Nothing was saved. Stop `uniot label` and start it "
                    "again."
                )
            added = self._connection.execute(
                "INSERT INTO actions (kind, of, text, change) VALUES (?, ?, ?, ?)", (kind, of, text, change.to_json())
            ).lastrowid
            for one in change.samples:
                assigned = (one.after.category, int(one.after.by_hand), int(one.after.cannot_tell))
                self._connection.executemany(
                    "REPLACE INTO samples (row, place, by_hand, cannot_tell) VALUES (?, ?, ?, ?)",
                    ((row, *assigned) for row in one.rows.tolist()),
                )
            # Groups that no longer exist stay in the table, so that no number is used twice.
            self._connection.executemany(
                "INSERT OR IGNORE INTO groups (number, name) VALUES (?, '')",
                ((category,) for category in change.categories() if category >= 0),
            )
            self._connection.executemany(
                "REPLACE INTO groups (number, name) VALUES (?, ?)", ((name.group, name.after) for name in change.names)
            )
        return int(added or 0)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _create(self, digest: str) -> None:
        with self._transaction():
            for statement in _statements(_TABLES):
                self._connection.execute(statement)
            about = {"format": FORMAT, "run": digest}
            self._connection.executemany("INSERT INTO about (key, value) VALUES (?, ?)", about.items())

    def _check(self, digest: str) -> None:
        with self._explained():
            about = dict(self._connection.execute("SELECT key, value FROM about"))
        check_format(self._path, about)
        if about.get("run") != digest:
            raise RunFolderError(
                f"{self._path} belongs to another run: {self._path.parent} was run again after it was labelled, and "
                f"now has other groups. To start again without labels, move {FILE} away, together with {FILE}-wal and "
                f"{FILE}-shm if they exist. Keep a copy of the exported labels: they are replaced."
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # the failed statement may have rolled back already
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RunFolderError(
                f"{self._path} cannot be written ({error}); nothing was changed. Check that you may write to the "
                "folder and that the disk has room, then repeat the step."
            ) from error
        except (sqlite3.DatabaseError, OverflowError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"{self._path} is damaged ({error}). Move it away to start again without labels; labels.csv, if it was "
                "exported, is a separate file and can still be read."
            ) from error


@contextmanager
def label_lock(run: Path) -> Iterator[None]:
    """Lock the labels of a run against a second `uniot label`, `ask` or `tell`; the system releases it at the end.

    Raises:
        RunFolderError: another process holds the lock, or the folder cannot be written.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(RunFiles(run).labelling_lock))
        except BlockingIOError:
            raise RunFolderError(
                f"another `uniot label` or `uniot ask` has {run} open. Use the address that it printed, in as many "
                "tabs as you like, or stop it with Ctrl-C first."
            ) from None
        except OSError as error:
            raise RunFolderError(
                f"{run} cannot be written ({error.strerror}). Copy it to a folder that you may write to."
            ) from error
        yield


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
