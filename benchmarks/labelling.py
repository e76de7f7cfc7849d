"""The labelling page with 50 000 images in 100 groups: how long a person waits for the first page, and for an action.

The run is made up: directions at random, and small JPEG files of a thousand contents. `uniot label` serves it in a
process of its own; a plain client and Chromium, where there is one, ask.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from measure import Report, arguments
from PIL import Image

from uniot import UniNCM
from uniot.images.files import ImageFile
from uniot.io.predictions import Prediction
from uniot.runs.pictures import write_places
from uniot.runs.saving import save_model
from uniot.training.model import AdaptedModel

N_CLASSES, N_CONTENTS, SIDE = 20, 1000, 240
FIRST_PAGE, ACTION = 1.0, 0.1
# Milliseconds in which somebody looks at the result before doing the next thing; pictures are drawn meanwhile.
MOMENT = 700
BROWSER_OPTIONS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--groups", type=int, default=100)
    options = parser.parse_args()
    if options.quick:
        options.images, options.groups = 2000, 20
    repeats = 2 if options.quick else 9
    report = Report("labelling", options.quick)
    with tempfile.TemporaryDirectory(prefix="uniot-labelling-") as folder:
        run = make_run(Path(folder), options.images, options.groups)
        begin = perf_counter()
        with serving(run) as address:
            report.tell("start of `uniot label` until it prints the address", perf_counter() - begin, "s")
            measure_server(report, address, repeats, options.groups)
            measure_browser(report, address, repeats, options.groups)
    report.finish(options.json)


def make_run(folder: Path, n_images: int, n_groups: int) -> Path:
    """A run folder whose target is known by half; the rest is in groups of about the same size."""
    rng = np.random.default_rng(0)
    labels = np.arange(10 * N_CLASSES) % N_CLASSES
    source = np.eye(N_CLASSES, 32)[labels] + 0.1 * rng.normal(size=(len(labels), 32))
    model = UniNCM().fit(source, labels.astype(str), source).model_
    model = with_target(model, n_images, n_groups, rng)
    run = folder / "run"
    contents = [noise(rng) for _ in range(N_CONTENTS)]
    files = {
        "source": write_files(folder / "source", contents, len(labels)),
        "target": write_files(folder / "target", contents, n_images),
    }
    save_model(model, run, [file.name for file in files["target"]])
    write_places(run, files["source"], files["target"])
    return run


def with_target(model: AdaptedModel, n_images: int, n_groups: int, rng: np.random.Generator) -> AdaptedModel:
    width = model.target_features.shape[1]
    known = np.arange(n_images) % 2 == 0
    nearest, group = rng.integers(N_CLASSES, size=n_images), np.where(known, -1, rng.integers(n_groups, size=n_images))
    directions = rng.normal(size=(N_CLASSES + n_groups, width))
    features = directions[np.where(known, nearest, N_CLASSES + group)] + rng.normal(size=(n_images, width))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    centres = directions[N_CLASSES:] / np.linalg.norm(directions[N_CLASSES:], axis=1, keepdims=True)
    known_score, confidence = np.where(known, 0.9, 0.1), np.full(len(known), 0.9)
    return replace(
        model,
        target=Prediction(nearest, known, known_score, confidence, group, np.where(known, 0.0, 0.5)),
        target_features=features.astype(np.float32),
        target_odds=np.where(known, 9.0, 1 / 9) * rng.uniform(0.5, 1.5, n_images),
        target_nearest=nearest,
        target_class_probability=np.full(n_images, 0.9),
        groups=replace(model.groups, group=group[~known], centres=centres.astype(np.float32)),
    )


def noise(rng: np.random.Generator, side: int = SIDE) -> bytes:
    """A photograph of nothing."""
    coarse = Image.fromarray(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8))
    stream = io.BytesIO()
    coarse.resize((side, side), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=85)
    return stream.getvalue()


def write_files(folder: Path, contents: list[bytes], n_files: int) -> list[ImageFile]:
    files = []
    for number in range(n_files):
        path = folder / f"{number // 1000:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[number % len(contents)])
        files.append(ImageFile(path, str(path.relative_to(folder))))
    return files


@contextmanager
def serving(run: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "uniot", "label", str(run)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http\S+", server.stdout.readline())
        if found is None:
            sys.exit("`uniot label` did not start; run it by hand to see why.")
        yield found[0]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


class Client:
    """Asks over one connection, as a browser does, and takes the time until the answer is there."""

    def __init__(self, address: str) -> None:
        place, _, self._path = address.removeprefix("http://").partition("/")
        self._origin = f"http://{place}"
        self._connection = http.client.HTTPConnection(place)
        self._headers: dict[str, str] = {}
        self._headers["Cookie"] = self._answer("GET", f"/{self._path}")[1]["set-cookie"].partition(";")[0]
        self.revision = json.loads(self.get("/state")[0])["revision"]

    def get(self, path: str) -> tuple[bytes, float]:
        begin = perf_counter()
        body, _ = self._answer("GET", path)
        return body, perf_counter() - begin

    def act(self, **action: Any) -> float:
        headers = {"Origin": self._origin, "Content-Type": "application/json"}
        begin = perf_counter()
        body, _ = self._answer("POST", "/actions", json.dumps({"seen": self.revision, "action": action}), headers)
        took = perf_counter() - begin
        self.revision = json.loads(body)["state"]["revision"]
        return took

    def undo(self) -> float:
        return self.act(kind="undo", of=json.loads(self.get("/state")[0])["undo"]["of"])

    def _answer(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[bytes, dict[str, str]]:
        self._connection.request(method, path, body, self._headers | (headers or {}))
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status in (200, 303), content
        return content, {name.lower(): value for name, value in answer.getheaders()}


def measure_server(report: Report, address: str, repeats: int, n_groups: int) -> None:
    client = Client(address)
    groups = count()

    def rows_of(group: int) -> list[int]:
        page = json.loads(client.get(f"/gallery?category=group-{group}")[0])
        return [sample["row"] for sample in page["samples"]]

    def a_merge() -> float:
        took = client.act(kind="merge", group=next(groups) % n_groups, to="class-0")
        client.undo()
        return took

    actions: dict[str, Callable[[], float]] = {
        "the page": lambda: client.get("/")[1],
        "sixty images of a group": lambda: client.get(f"/gallery?category=group-{next(groups) % n_groups}")[1],
        "sixty images of a class": lambda: client.get("/gallery?category=class-3")[1],
        "name a group": lambda: client.act(kind="name", group=next(groups) % n_groups, name=f"name {next(groups)}"),
        "discard sixty images": lambda: client.act(kind="move", rows=rows_of(next(groups) % n_groups), to="discarded"),
        "merge a group into a class": a_merge,
        "split a group": lambda: client.act(kind="split", group=next(groups) % n_groups),
        "undo": client.undo,
    }
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            took = action()
            if turn:
                times[name].append(took)
    for name, taken in times.items():
        report.at_most(f"server: {name}", 1000 * statistics.median(taken), 1000 * ACTION, "ms", seconds=taken)


def launch(playwright: Any) -> Any:
    """Chromium, as it is installed or as playwright brought it."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    return playwright.chromium.launch(executable_path=found, args=BROWSER_OPTIONS.split())


def measure_browser(report: Report, address: str, repeats: int, n_groups: int) -> None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("Playwright is not installed: nothing is measured in a browser.")
        return
    with sync_playwright() as playwright:
        browser = launch(playwright)
        loads = [load(browser, f"{address}#group-{number % n_groups}") for number in range(repeats)]
        what = "Chromium: from the address to a window full of pictures, none of them drawn before"
        report.at_most(what, statistics.median(loads), FIRST_PAGE, "s", seconds=loads)
        clicks = click(browser, address, repeats)
        for name, taken in clicks.items():
            what = f"Chromium: from {name} to its result on the screen"
            report.at_most(what, 1000 * statistics.median(taken), 1000 * ACTION, "ms", seconds=taken)
        browser.close()


# Asked afterwards: to look while the page loads would slow it down. Pictures below the window may come later. The page
# counts from the moment it asks for the address; a picture that has arrived is on the screen with the next frame.
ARRIVED = """() => {
  const shown = [...document.querySelectorAll(".tile img, nav img")].filter((image) => {
    const box = image.getBoundingClientRect();
    return box.height && box.top < innerHeight && box.bottom > 0;
  });
  const ends = new Map(performance.getEntriesByType("resource").map((entry) => [entry.name, entry.responseEnd]));
  return shown.map((image) => ends.get(image.src) / 1000);
}"""


def load(browser: Any, address: str) -> float:
    """In a fresh profile each time, so that nothing comes from the browser's own cache."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(2 * MOMENT)
    arrived: list[float] = page.evaluate(ARRIVED)
    assert len(arrived) > 20, "the page shows no pictures"
    context.close()
    return max(arrived)


# The clock runs in the page, so that the time of the tool that drives the browser does not count.
TIMED = """([selector, isThere]) => new Promise((resolve) => {
  const begin = performance.now();
  const message = document.querySelector("#message");
  new MutationObserver((_, observer) => {
    if (!message.textContent.includes(isThere)) return;
    observer.disconnect();
    requestAnimationFrame(() => resolve((performance.now() - begin) / 1000));
  }).observe(message, { childList: true, characterData: true, subtree: true });
  document.querySelector(selector).click();
})"""


def click(browser: Any, address: str, repeats: int) -> dict[str, list[float]]:
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(f"{address}#groups")
    times: dict[str, list[float]] = {"a name": [], "discarding an image": [], "a split": [], "an undo": []}

    def timed(name: str, control: str, message: str) -> None:
        page.wait_for_timeout(MOMENT)
        times[name].append(page.evaluate(TIMED, [control, message]))

    for turn in range(repeats):
        page.locator("#groups a").nth(turn).click()
        page.wait_for_timeout(MOMENT)
        page.locator("#name").fill(f"thing {turn}")
        timed("a name", "#name-form button", f"named “thing {turn}”")
        page.locator(".tile").first.click()
        timed("discarding an image", "#discard", "image discarded")
        timed("a split", "#split", "split: ")
        timed("an undo", "#undo", "Undone: ")
    return times


if __name__ == "__main__":
    main()
