"""The report of a run that is being labelled: drawn in the background while somebody looks, after every pause."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from uniot.errors import UniotError
from uniot.runs.pictures import Collection, Pictures

if TYPE_CHECKING:
    from uniot.labelling.session import LabellingSession
    from uniot.report.map import SampleMap
    from uniot.runs.run import Run

# A report takes seconds of a processor; several actions in a row are drawn once.
_SECONDS_OF_REST = 1.5
_MOST_PICTURE_BYTES = 1 << 26


@dataclass(frozen=True)
class DrawnReport:
    """A report that was drawn: the number of the last action that it shows, its page and its security policy."""

    revision: int
    page: bytes
    policy: str


class LiveReport:
    """Draws the report of a run in its present state; nothing is drawn unless somebody asks for it.

    Args:
        run: the run that is labelled.
        session: its labels.
    """

    def __init__(self, run: Run, session: LabellingSession) -> None:
        self._run, self._session = run, session
        self._lock = Lock()
        self._drawn: DrawnReport | None = None
        self._map: SampleMap | None = None
        self._pictures: Pictures | None = None
        self._thread: Thread | None = None
        self.problem = ""

    def latest(self) -> DrawnReport | None:
        """Return the latest report that was drawn, None if there is none yet; begin to draw it if it is out of date."""
        with self._lock:
            is_idle = self._thread is None or not self._thread.is_alive()
            is_current = self._drawn is not None and self._drawn.revision == self._session.revision
            if is_idle and not is_current and not self.problem:
                self._thread = Thread(target=self._work, name="live report", daemon=True)
                self._thread.start()
            return self._drawn

    def _work(self) -> None:
        is_first = self._drawn is None
        while True:
            seen, begun = self._session.revision, monotonic()
            while not is_first and monotonic() - begun < _SECONDS_OF_REST:
                sleep(0.1)
                if self._session.revision != seen:
                    seen, begun = self._session.revision, monotonic()
            try:
                drawn = self._draw()
            except UniotError as error:
                self.problem = f"The report cannot be drawn: {error}"
                return
            with self._lock:
                self._drawn = drawn
            if drawn.revision == self._session.revision:
                return

    def _draw(self) -> DrawnReport:
        from uniot.report.page import content_policy, render
        from uniot.report.values import ReportValues

        session = self._session
        with session.locked():
            revision, annotations = session.revision, session.target.annotations(session.state.copy())
        if self._pictures is None and self._run.pictures is not None:
            self._pictures = _RememberedPictures(self._run.pictures)
        values = ReportValues.of(self._run.annotated(annotations, self._pictures), drawn=self._map)
        self._map = values.map
        page = render(values, live=revision).encode("utf-8")
        return DrawnReport(revision, page, f"{content_policy(live=True)}; frame-ancestors 'none'")


class _RememberedPictures(Pictures):
    """Pictures whose thumbnails are kept, up to a limit of bytes: the next report shows most of them again."""

    def __init__(self, pictures: Pictures) -> None:
        super().__init__(pictures._places, pictures._pixels)
        self._kept: dict[tuple[Collection, int, int], bytes] = {}
        self._room = _MOST_PICTURE_BYTES

    def thumbnail(self, collection: Collection, row: int, side: int) -> bytes:
        key = (collection, row, side)
        found = self._kept.get(key)
        if found is None:
            found = super().thumbnail(collection, row, side)
            if len(found) <= self._room:
                self._kept[key] = found
                self._room -= len(found)
        return found
