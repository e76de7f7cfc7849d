"""Labels on disk: an SQLite file in the run folder, written at every action.

`actions` only ever grows, and holds what each action changed: done one after another, from what the run said, they make
the state. `samples` and `groups` hold that state, and are written in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from uniot.annotations.file import FILE, FORMAT
from uniot.errors import RunFolderError
from uniot.labelling.state import Change, Labels
from uniot.run_folder import lock_file, open_lock

_LOCK = ".labels.lock"

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
CREATE TABLE samples (row INTEGER PRIMARY KEY, place INTEGER NOT NULL, by_hand INTEGER NOT NULL);
CREATE TABLE groups (number INTEGER PRIMARY KEY, name TEXT NOT NULL);
"""


class Entry(NamedTuple):
    """A line of the log: `of` is the action that an undo or redo is about."""

    id: int
    kind: str
    of: int | None
    text: str


class Store:
    """The labels of one run.

    Args:
        path: made if it does not exist.
        digest: of the run that the labels refer to.

    Raises:
        RunFolderError: the file belongs to another run, is damaged, or cannot be written.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise RunFolderError(f"{path} is a link or no regular file. Move it away to begin anew.")
        with self._explained():
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            with self._explained():
                # With the log written ahead, an action is one short write; FULL has it on the disk before we say so.
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                if not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    self._create(digest)
            self._check(digest)
        except RunFolderError:
            self._connection.close()
            raise

    @classmethod
    def existing(cls, path: Path, digest: str) -> Store:
        """The labels that were made already; an error where there are none."""
        if not path.is_file():
            raise RunFolderError(
                f"{path.parent} has no labels yet. Open the page with `uniot label {path.parent}`, and name its groups."
            )
        return cls(path, digest)

    def entries(self) -> list[Entry]:
        """The whole log, without what each action changed."""
        with self._explained():
            return [Entry(*line) for line in self._connection.execute("SELECT id, kind, of, text FROM actions")]

    def change_of(self, action: int) -> Change:
        """What an action changed."""
        with self._explained():
            (text,) = self._connection.execute("SELECT change FROM actions WHERE id = ?", (action,)).fetchone()
        return Change.from_json(text)

    def load(self, labels: Labels) -> None:
        """Brings the labels of a run from its own answers to the state that was saved."""
        with self._explained():
            for row, place, by_hand in self._connection.execute("SELECT row, place, by_hand FROM samples"):
                if not 0 <= row < len(labels.place):
                    raise ValueError(f"it labels sample {row} of {len(labels.place)}")
                labels.place[row], labels.by_hand[row] = place, bool(by_hand)
            for number, name in self._connection.execute("SELECT number, name FROM groups"):
                labels.next_group = max(labels.next_group, number + 1)
                if name:
                    labels.names[number] = name

    def append(self, after: int, kind: str, text: str, change: Change, of: int | None = None) -> int:
        """Saves an action and the state that it leads to, both or neither.

        Args:
            after: the last action that the caller knows of, 0 for none.
            kind: of the action.
            text: what it did, for people.
            change: what it changed.
            of: the action that this one takes back, or does again.

        Returns:
            The number of the action.
        """
        with self._explained(), self._transaction():
            (last,) = self._connection.execute("SELECT COALESCE(MAX(id), 0) FROM actions").fetchone()
            if last != after:
                raise RunFolderError(
                    f"another process has written to {self._path}. Nothing was saved. End `uniot label` and start it "
                    "again."
                )
            added = self._connection.execute(
                "INSERT INTO actions (kind, of, text, change) VALUES (?, ?, ?, ?)", (kind, of, text, change.to_json())
            ).lastrowid
            for rows, _, (place, by_hand) in ((piece.rows, piece.before, piece.after) for piece in change.pieces):
                values = ((row, place, int(by_hand)) for row in rows.tolist())
                self._connection.executemany("REPLACE INTO samples (row, place, by_hand) VALUES (?, ?, ?)", values)
            # Every group that ever was is noted, so that no number is given twice.
            self._connection.executemany(
                "INSERT OR IGNORE INTO groups (number, name) VALUES (?, '')",
                ((place,) for place in change.places() if place >= 0),
            )
            self._connection.executemany(
                "REPLACE INTO groups (number, name) VALUES (?, ?)", ((name.group, name.after) for name in change.names)
            )
        return int(added or 0)

    def close(self) -> None:
        """Ends the use of the file."""
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
        if about.get("format") != FORMAT:
            raise RunFolderError(
                f"{self._path} has format {about.get('format')!r} and this version of uniot reads {FORMAT!r}. Install "
                "the version that wrote it, or move the file away to begin anew."
            )
        if about.get("run") != digest:
            raise RunFolderError(
                f"{self._path} belongs to another run: {self._path.parent} was made again after it was labelled, and "
                f"its groups are others now. To begin anew, move {FILE} away, with {FILE}-wal and {FILE}-shm where "
                f"they are. Names that were exported are still in labels.csv; keep that too, a new export replaces it."
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # what went wrong may have rolled back already
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RunFolderError(
                f"{self._path} cannot be written ({error}), and nothing was changed. Check that the folder is yours "
                "to write and that the disk has room, then do it again."
            ) from error
        except (sqlite3.DatabaseError, OverflowError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"{self._path} is damaged ({error}). Move it away to begin anew; labels.csv, where it was exported, is "
                "a file of its own and can still be read."
            ) from error


@contextmanager
def only_one_page(run: Path) -> Iterator[None]:
    """Keeps a second labelling page from the same run; the system lets go of the lock when a process dies."""
    try:
        lock = open_lock(run / _LOCK)
    except OSError as error:
        raise RunFolderError(
            f"{run} cannot be written ({error.strerror}). Labels are kept in it: copy it to a place that is yours."
        ) from error
    with lock:
        try:
            lock_file(lock.fileno())
        except OSError:
            raise RunFolderError(
                f"another `uniot label` has {run} open. Use the address that it printed, in as many tabs as you like, "
                "or end it with Ctrl-C first."
            ) from None
        yield


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
