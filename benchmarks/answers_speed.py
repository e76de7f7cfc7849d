"""How long a person waits after an answer: 5000 samples, twenty answers, one thread; medians of the processor time.

    python benchmarks/answers_speed.py

`tell` is the model after one more answer; a step is what the labelling page and `uniot ask` do: the answer is saved,
the samples that no person placed follow, and the next question, the share with its interval and what another answer
would change are ready.
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

from uniot import UniNCM
from uniot.datasets import make_toy_domains
from uniot.labelling.actions import AnswerQuestion
from uniot.labelling.session import LabellingSession
from uniot.labelling.store import LabelStore
from uniot.labelling.target import Target
from uniot.rejection.answers import UNKNOWN, Answers
from uniot.runs.pictures import FILE

N_ANSWERS = 20
MOST_TELL, MOST_STEP = 0.05, 0.3


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
        target = Target.open(run)
        right = [str(one) if one in target.classes else "unknown" for one in toy.oracle_y_target.tolist()]
        with closing(LabelStore(run / FILE, target.digest)) as store:
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
                (following,) = session.questions()
                timed("the same, and the next question", begin)
                session.estimate()
                session.model().expected_change(following.row)
                timed("the same, with the interval and what another answer would change", begin)
    many = np.arange(0, n_samples, max(1, n_samples // 1000))
    classes = np.array([target.classes.index(right[row]) if right[row] in target.classes else UNKNOWN for row in many])
    begin = process_time()
    target.model.with_answers(Answers(many, classes))
    timed(f"tell after {len(many)} answers", begin)
    for what, taken in times.items():
        limit = {"tell": MOST_TELL, "the same, and the next question": MOST_STEP}.get(what)
        median, title = 1000 * statistics.median(taken), f"{what}, {n_samples} samples"
        if limit is None:
            report.tell(title, median, "ms", seconds=taken)
        else:
            report.at_most(title, median, 1000 * limit, "ms", seconds=taken)
    report.finish(options.json)


if __name__ == "__main__":
    main()
