from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

from uniot import UniNCM
from uniot.annotations.places import class_place
from uniot.datasets import make_toy_domains
from uniot.labelling.app import create_app
from uniot.labelling.live_report import LiveReport
from uniot.labelling.samples import TargetSamples
from uniot.labelling.security import Access
from uniot.labelling.server import listen, make_server
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.labelling.suspects import SuspectLabels
from uniot.runs.files import RunFiles, Stamp
from uniot.runs.group_descriptions import GroupDescription, GroupDescriptions
from uniot.runs.pictures import Pictures
from uniot.runs.run import Run
from uniot.runs.texts import Texts
from uniot.runs.thumbnails import ThumbnailCache

CLASSES = ["mug", "pen", "stapler"]
EACH = 10


def make_target(n_groups: int = 3, each: int = EACH, classes: list[str] | None = None) -> TargetSamples:
    """`each` samples of every class and then of every group, each kind around a direction of its own."""
    classes = CLASSES if classes is None else classes
    kinds = np.repeat(np.arange(len(classes) + n_groups), each)
    rng = np.random.default_rng(0)
    directions = np.eye(len(classes) + n_groups, 16)
    features = directions[kinds] + 0.1 * rng.normal(size=(len(kinds), 16))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    is_known = kinds < len(classes)
    return TargetSamples(
        names=[f"photos/{row:03d} é.jpg" for row in range(len(kinds))],
        classes=classes,
        unknown="unknown",
        start=np.where(is_known, class_place(0) - kinds, kinds - len(classes)),
        nearest=np.where(is_known, kinds, 0),
        confidence=np.where(is_known, 0.9, 0.8),
        features=features.astype(np.float32),
        prototypes=directions[: len(classes)].astype(np.float32),
        class_faces=np.arange(len(classes)),
        n_groups=n_groups,
        digest=hashlib.sha256(b"a run").hexdigest(),
        noun="image",
    )


def with_texts(target: TargetSamples, *, links: bool = False, **texts: str) -> TargetSamples:
    """A target whose samples have texts; `row_30="…"` is another text of row 30."""
    of_target = [
        f"https://example.org/{row}" if links else f"Where is my card {row}?" for row in range(len(target.names))
    ]
    for name, text in texts.items():
        of_target[int(name.removeprefix("row_"))] = text
    of_source = [f"Labelled example of {name}" for name in target.classes]
    descriptions = GroupDescriptions(
        "typical words",
        tuple(
            GroupDescription((f"word{group}", "card"), (f"name {group}", "kettle")) for group in range(target.n_groups)
        ),
    )
    return replace(
        target,
        noun="sample" if links else "text",
        texts=Texts({"source": of_source, "target": of_target}, are_links=links),
        descriptions=descriptions,
    )


def make_pictures(target: TargetSamples) -> Pictures:
    """Grey squares, no two alike."""
    shades = np.linspace(20, 235, len(target.names)).astype(np.uint8)
    return Pictures({}, {"source": np.zeros((len(target.classes), 8, 8), np.uint8), "target": _squares(shades)})


def _squares(shades: np.ndarray) -> np.ndarray:
    return np.broadcast_to(shades[:, None, None], (len(shades), 8, 8)).copy()


@pytest.fixture
def target() -> TargetSamples:
    """Rows 0 to 29 are mug, pen and stapler; rows 30 to 59 are groups 0, 1 and 2."""
    return make_target()


@pytest.fixture
def new_target() -> Callable[..., TargetSamples]:
    return make_target


@pytest.fixture
def open_session(tmp_path: Path) -> Iterator[Callable[..., LabellingSession]]:
    """Opens the session of a target; again, as often as a process would be started."""
    stores: list[LabelStore] = []

    def opened(target: TargetSamples, folder: Path = tmp_path, stamp: Stamp | None = None) -> LabellingSession:
        if stores:
            stores.pop().close()
        stores.append(LabelStore(RunFiles(folder), target.digest, stamp))
        return LabellingSession(target, stores[-1])

    yield opened
    for store in stores:
        store.close()


@pytest.fixture(name="with_texts")
def with_texts_fixture() -> Callable[..., TargetSamples]:
    return with_texts


@pytest.fixture
def session(target: TargetSamples, open_session: Callable[..., LabellingSession]) -> LabellingSession:
    return open_session(target)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Served:
    """A labelling page that runs; requests are sent as they are given, unlike those of a polite client."""

    session: LabellingSession
    access: Access
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.access.token}"

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str | None) -> Answer:
        """With the cookie and the origin of the page, unless `headers` say otherwise; None leaves a header out."""
        usual = {"Host": f"127.0.0.1:{self.port}", "Cookie": f"{self.access.cookie}={self.access.token}"}
        if method == "POST":
            usual |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/json"}
        given = usual | {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None and "Transfer-Encoding" not in given:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def act(self, seen: int | None = None, **action: object) -> Answer:
        seen = self.session.revision if seen is None else seen
        return self.ask("/actions", "POST", json.dumps({"seen": seen, "action": action}).encode())


@contextmanager
def serving(
    session: LabellingSession,
    thumbnails: ThumbnailCache | None,
    host: str = "127.0.0.1",
    report: LiveReport | None = None,
    suspects: SuspectLabels | None = None,
) -> Iterator[Served]:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        access = Access.new(host, port)
        server = make_server(create_app(session, thumbnails, access, report, suspects))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Served(session, access, port)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def serving_with_pictures(target: TargetSamples, session: LabellingSession) -> Iterator[Served]:
    thumbnails = ThumbnailCache(make_pictures(target), session.store.files.thumbnails, target.digest)
    with closing(thumbnails), serving(session, thumbnails) as page:
        yield page


@pytest.fixture
def served(target: TargetSamples, session: LabellingSession) -> Iterator[Served]:
    """A page with pictures."""
    with serving_with_pictures(target, session) as page:
        yield page


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page for requests that may not change anything; one for all of them, because to start one takes a while."""
    target, files = make_target(), RunFiles(tmp_path_factory.mktemp("untouched"))
    with closing(LabelStore(files, target.digest)) as store:
        session = LabellingSession(target, store)
        with serving_with_pictures(target, session) as page:
            yield page
        assert session.revision == 0


@pytest.fixture
def serve_session() -> Callable[..., object]:
    """Serves a session within a `with` block."""
    return serving


@pytest.fixture
def new_pictures() -> Callable[[TargetSamples], Pictures]:
    return make_pictures


@dataclass(frozen=True)
class AskedRun:
    """A run of a real model, which can be asked, with what is right about its target."""

    folder: Path
    truth: np.ndarray
    n_source: int

    def open(self, folder: Path) -> AskedRun:
        return replace(self, folder=Path(shutil.copytree(self.folder, folder)))

    def pictures(self) -> Pictures:
        shades = np.linspace(20, 235, len(self.truth)).astype(np.uint8)
        return Pictures({}, {"source": np.zeros((self.n_source, 8, 8), np.uint8), "target": _squares(shades)})


@pytest.fixture(scope="session")
def first_asked_run(tmp_path_factory: pytest.TempPathFactory) -> AskedRun:
    """Classes that overlap, so that the run is wrong about some samples."""
    toy = make_toy_domains(3, 2, 2, seed=1)
    noise = 1.6 * toy.x_target.std() * np.random.default_rng(0).normal(size=toy.x_target.shape)
    folder = tmp_path_factory.mktemp("asked") / "run"
    UniNCM(random_state=0, n_private_classes=2).fit(toy.x_source, toy.y_source, toy.x_target + noise).save(folder)
    truth = np.where(np.isin(toy.oracle_y_target, np.unique(toy.y_source)), toy.oracle_y_target, "unknown")
    return AskedRun(folder, truth, len(toy.x_source))


@pytest.fixture
def asked_run(first_asked_run: AskedRun, tmp_path: Path) -> AskedRun:
    return first_asked_run.open(tmp_path / "asked")


@pytest.fixture
def asked_session(asked_run: AskedRun, open_session: Callable[..., LabellingSession]) -> LabellingSession:
    run = Run.open(asked_run.folder)
    # The page gets pictures that the folder does not have.
    return open_session(replace(TargetSamples.of_run(run), noun="image"), run.folder, run.stamp)


@pytest.fixture
def asked(asked_run: AskedRun, asked_session: LabellingSession) -> Iterator[Served]:
    """The page of a run that can be asked, with pictures."""
    thumbnails = ThumbnailCache(
        asked_run.pictures(), asked_run.folder / "thumbnails.sqlite", asked_session.target.digest
    )
    with closing(thumbnails), serving(asked_session, thumbnails) as page:
        yield page
