"""How long a person waits after an answer: 5000 samples, twenty answers, one thread; medians of the processor time.

    python benchmarks/answers_speed.py

`tell` is the model after one more answer; a step is what the labelling page and `uniot ask` do: the answer is saved,
the samples that no person placed follow, and the next question, the share with its interval and what another answer
would change are ready. The page prepares it while somebody looks at the question. In Chromium, where there is one: the
time on the clock from a click on an answer until the next question is on the screen with its picture, a JPEG of a
megapixel; between two answers somebody looks for a moment. Other processes on the machine count in that time.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from time import process_time

import numpy as np
import torch
from measure import Report, arguments

from labelling import MOMENT, launch, noise, serving
from uniot import UniNCM
from uniot.datasets import make_toy_domains
from uniot.images.files import ImageFile
from uniot.labelling.actions import AnswerQuestion
from uniot.labelling.samples import TargetSamples
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.rejection.answers import UNKNOWN, Answers
from uniot.runs.pictures import write_places
from uniot.runs.run import Run
from uniot.runs.saving import save_model

N_ANSWERS = 20
MOST_TELL, MOST_STEP = 0.05, 0.3
N_CONTENTS, SIDE = 40, 1000
STEP = "the same, with the interval and what another answer would change"


def main() -> None:
    options = arguments(__doc__).parse_args()
    report = Report("answers_speed", options.quick)
    torch.set_num_threads(1)
    per_class = 20 if options.quick else 157
    toy = make_toy_domains(20, 10, 12, samples_per_class=per_class, dimensions=256, spread=1.0, seed=1)
    estimator = UniNCM(random_state=0).fit(toy.x_source[::4], toy.y_source[::4], toy.x_target)
    n_samples = len(toy.x_target)
    times: dict[str, list[float]] = defaultdict(list)

    def timed(what: str, begin: float) -> None:
        times[what].append(process_time() - begin)

    with tempfile.TemporaryDirectory(prefix="uniot-answers-") as folder:
        run = Path(folder) / "run"
        estimator.save(run)
        opened = Run.open(run)
        target = TargetSamples.of_run(opened)
        right = [str(one) if one in target.classes else "unknown" for one in toy.oracle_y_target.tolist()]
        with closing(LabelStore.of_run(opened, target.digest)) as store:
            session, answers = LabellingSession(target, store), Answers()
            for _ in range(N_ANSWERS):
                (question,) = session.questions()
                row = question.row
                known = target.classes.index(right[row]) if right[row] in target.classes else UNKNOWN
                answers = answers.told([row], [known])
                begin = process_time()
                target.model.with_answers(answers)
                timed("tell", begin)
                begin = process_time()
                session.act(AnswerQuestion(kind="answer", row=row, answer=right[row]), session.revision)
                timed("save an answer, and all samples follow", begin)
                session.questions()
                timed("the same, and the next question", begin)
                session.question_view()
                timed(STEP, begin)
            for _ in range(N_ANSWERS):
                (question,) = session.questions()
                begin = process_time()
                session.following_rows(question.row)
                timed("prepare what follows the usual answers, while a person looks", begin)
                said = "unknown" if right[question.row] == "unknown" else question.nearest[0][0]
                begin = process_time()
                session.act(AnswerQuestion(kind="answer", row=question.row, answer=said), session.revision)
                session.question_view()
                timed("the whole step, if it was prepared", begin)
    many = np.arange(0, n_samples, max(1, n_samples // 1000))
    classes = np.array([target.classes.index(right[row]) if right[row] in target.classes else UNKNOWN for row in many])
    begin = process_time()
    target.model.with_answers(Answers(many, classes))
    timed(f"tell after {len(many)} answers", begin)
    for what, taken in times.items():
        limit = {"tell": MOST_TELL, "the whole step, if it was prepared": MOST_STEP, STEP: MOST_STEP}.get(what)
        median, title = 1000 * statistics.median(taken), f"{what}, {n_samples} samples"
        if limit is None:
            report.tell(title, median, "ms", seconds=taken)
        else:
            report.at_most(title, median, 1000 * limit, "ms", seconds=taken)
    with tempfile.TemporaryDirectory(prefix="uniot-answers-") as folder:
        measure_browser(report, make_run(Path(folder), estimator, right), right)
    report.finish(options.json)


def make_run(folder: Path, estimator: UniNCM, right: list[str]) -> Path:
    """A run folder with pictures; samples share the files of a few."""
    rng = np.random.default_rng(0)
    paths = [folder / f"{number}.jpg" for number in range(N_CONTENTS)]
    for path in paths:
        path.write_bytes(noise(rng, SIDE))
    n_source = int(estimator.model_.source.rows.max()) + 1
    source, target = (
        [ImageFile(paths[row % N_CONTENTS], f"{row:06d}.jpg") for row in range(number)]
        for number in (n_source, len(right))
    )
    save_model(estimator.model_, folder / "run", [file.name for file in target])
    write_places(folder / "run", source, target)
    return folder / "run"


# The clock runs in the page, so that the time of the tool that drives the browser does not count.
TIMED = """(control) => new Promise((resolve) => {
  const begin = performance.now();
  const name = document.querySelector("#question-name");
  new MutationObserver(async (_, observer) => {
    observer.disconnect();
    await document.querySelector("#question-picture img").decode();
    requestAnimationFrame(() => resolve((performance.now() - begin) / 1000));
  }).observe(name, { childList: true, characterData: true, subtree: true });
  document.querySelector(control).click();
})"""


def measure_browser(report: Report, run: Path, right: list[str]) -> None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("Playwright is not installed: nothing is measured in a browser.")
        return
    with serving(run) as address, sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.goto(f"{address}#questions")
        page.locator("#question-picture img").wait_for()
        taken = []
        for _ in range(N_ANSWERS):
            page.wait_for_timeout(MOMENT)
            row = int(page.locator("#question-name").inner_text().removesuffix(".jpg"))
            taken.append(page.evaluate(TIMED, "#answer-none" if right[row] == "unknown" else "#answer-yes"))
        browser.close()
    what = f"Chromium: from a click on an answer to the next question on the screen, {len(right)} samples"
    report.at_most(what, 1000 * statistics.median(taken), 1000 * MOST_STEP, "ms", seconds=taken)
    report.tell(f"{what}, slowest", 1000 * max(taken), "ms")


if __name__ == "__main__":
    main()
