"""Six open-partial tasks of Office-31 on frozen ResNet-50 features: H, H³, AUROC and time.

The backbone is a Keras-v1 ResNet-50 with frozen features, not the paper's, which is fine-tuned: the paper's numbers
stand beside ours for orientation only.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from time import perf_counter

import numpy as np
from measure import Report, arguments
from office31_tasks import TASKS, Task, load_tasks, missing_data

from uniot import UniOT
from uniot.config import Settings
from uniot.io.csv_tables import write_table
from uniot.metrics.evaluate import evaluate
from uniot.training.model import AdaptedModel

# The paper's H and H³: fine-tuned backbone, 10 000 steps, on a GPU.
PAPER_H = {"A2D": 86.97, "A2W": 88.48, "D2A": 88.35, "D2W": 98.83, "W2A": 87.60, "W2D": 96.57}
PAPER_H3 = {"A2D": 83.69, "A2W": 85.28, "D2A": 71.46, "D2W": 91.24, "W2A": 70.93, "W2D": 90.84}
MOST_STEPS = 1000
N_PRIVATE = 11


@dataclass(frozen=True)
class Outcome:
    """One task with one seed; scores in per cent."""

    task: str
    seed: int
    steps: int
    h: float
    h3_oracle: float
    h3_honest: float
    auroc: float
    groups: int
    in_interval: bool
    hungarian: float
    adjusted_rand: float
    absent_right: float
    seconds: float


SCORES = ("h", "h3_oracle", "h3_honest", "auroc", "groups", "hungarian", "adjusted_rand", "absent_right", "seconds")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds, from 0")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--random-split", type=int, metavar="SEED", help="draw the split of the classes at random")
    parser.add_argument("--partial", action="store_true", help="targets without private classes (10/21/0)")
    parser.add_argument("--steps", type=int, help=f"the library's own choice, at most {MOST_STEPS}, if not given")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write one line for each task and seed there")
    options = parser.parse_args()
    missing = missing_data()
    if missing:
        sys.exit(missing)
    if options.quick:
        options.seeds, options.tasks, options.steps = 1, TASKS[:1], 120
    report = Report("office31", options.quick)
    print("Backbone: Keras-v1 ResNet-50, frozen features; the paper fine-tunes its own. H as mean over classes.")
    tasks = load_tasks(options.tasks, options.random_split, partial=options.partial)
    outcomes = [run(task, seed, options.steps) for seed in range(options.seeds) for task in tasks]
    print_table(outcomes, options.tasks)
    report_means(report, outcomes, 0 if options.partial else N_PRIVATE)
    if options.csv is not None:
        write_csv(options.csv, outcomes)
    report.finish(options.json)


def run(task: Task, seed: int, steps: int | None) -> Outcome:
    """Fits, predicts and scores; the time is that of all three."""
    begin = perf_counter()
    steps = steps or min(MOST_STEPS, Settings().resolved(len(task.target)).steps)
    model = UniOT(steps=steps, random_state=seed).fit(task.source, task.source_labels, task.target)
    outcome = outcome_of(task.name, seed, model.model_, task.target_labels, begin)
    print(f"{task.name} seed {seed}: H {outcome.h:.1f}, {outcome.seconds:.1f} s", flush=True)
    return outcome


def outcome_of(task: str, seed: int, model: AdaptedModel, truth: np.ndarray, begin: float) -> Outcome:
    """Scores what a run says of its target."""
    answers = model.target
    scores = evaluate(
        truth,
        model.labels(answers),
        source_classes=model.classes,
        known_score=model.target_odds,
        nearest=model.classes[answers.nearest],
        features=model.target_features,
        groups=answers.group,
    )
    low, high = model.groups.number.interval
    absent = ~np.isin(model.classes, truth)
    return Outcome(
        task=task,
        seed=seed,
        steps=model.settings.steps or 0,
        h=100 * scores.h_score,
        h3_oracle=_per_cent(scores.h3_score_oracle),
        h3_honest=_per_cent(scores.h3_score_honest),
        auroc=_per_cent(scores.auroc),
        groups=model.groups.n_groups,
        in_interval=low <= (scores.n_private_true or 0) <= high,
        hungarian=_per_cent(scores.hungarian_accuracy),
        adjusted_rand=_per_cent(scores.adjusted_rand),
        absent_right=100 * float(((model.absence > 0.5) == absent).mean()),
        seconds=perf_counter() - begin,
    )


def _per_cent(score: float | None) -> float:
    return float("nan") if score is None else 100 * score


def print_table(outcomes: list[Outcome], tasks: tuple[str, ...]) -> None:
    """Mean ± standard deviation over the seeds, the paper beside it."""
    print(f"{'':>6}" + "".join(f"{name:>16}" for name in SCORES) + f"{'H, paper':>12}{'H3, paper':>12}")
    for task in tasks:
        of_task = [outcome for outcome in outcomes if outcome.task == task]
        cells = "".join(f"{_spread([getattr(outcome, name) for outcome in of_task]):>16}" for name in SCORES)
        print(f"{task:>6}{cells}{PAPER_H[task]:>12.2f}{PAPER_H3[task]:>12.2f}")
    per_seed = [_means(outcomes, seed) for seed in _seeds(outcomes)]
    cells = "".join(f"{_spread([means[name] for means in per_seed]):>16}" for name in SCORES)
    paper = [statistics.mean(numbers[task] for task in tasks) for numbers in (PAPER_H, PAPER_H3)]
    print(f"{'mean':>6}{cells}{paper[0]:>12.2f}{paper[1]:>12.2f}")


def report_means(report: Report, outcomes: list[Outcome], n_private: int) -> None:
    per_seed = {seed: _means(outcomes, seed) for seed in _seeds(outcomes)}
    detail = {"outcomes": [asdict(outcome) for outcome in outcomes]}
    mean = {name: statistics.mean(means[name] for means in per_seed.values()) for name in SCORES}
    error = statistics.mean(abs(outcome.groups - n_private) for outcome in outcomes)
    covered = statistics.mean(outcome.in_interval for outcome in outcomes)
    if n_private:
        report.at_least("H, mean of the tasks and seeds", mean["h"], 86, "%", **detail)
        report.at_least("H3 oracle, mean of the tasks and seeds", mean["h3_oracle"], 79, "%")
        report.tell("H3 honest, mean of the tasks and seeds", mean["h3_honest"], "%")
        report.at_least("H3 honest less H3 oracle", mean["h3_honest"] - mean["h3_oracle"], -6, "%")
        report.tell("AUROC, mean of the tasks and seeds", mean["auroc"], "%")
        report.at_most(f"error of the number of private classes ({n_private}), mean", error, 2.5)
    else:
        report.tell("accuracy, mean of the tasks and seeds", mean["h"], "%", **detail)
        report.tell("number of private classes where there is none, mean", error)
    report.tell("the true number lies within the interval", 100 * covered, "%")
    report.tell("source classes rightly called absent or present", mean["absent_right"], "%")
    for seed in per_seed:
        total = sum(outcome.seconds for outcome in outcomes if outcome.seed == seed)
        report.at_most(f"all tasks, seed {seed}", total, 240, "s")


def write_csv(path: Path, outcomes: list[Outcome]) -> None:
    columns = [field.name for field in fields(Outcome)]
    write_table(path, columns, [list(asdict(outcome).values()) for outcome in outcomes], keep_empty=True)


def _seeds(outcomes: list[Outcome]) -> list[int]:
    return sorted({outcome.seed for outcome in outcomes})


def _means(outcomes: list[Outcome], seed: int) -> dict[str, float]:
    of_seed = [outcome for outcome in outcomes if outcome.seed == seed]
    return {name: statistics.mean(getattr(outcome, name) for outcome in of_seed) for name in SCORES}


def _spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


if __name__ == "__main__":
    main()
