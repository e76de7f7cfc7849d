"""Methods without a rejection rule of their own, by scores that do not depend on the one they borrow.

    python benchmarks/without_rule.py                 # Office-31, open-partial, seed 0
    python benchmarks/without_rule.py --seeds 3

Each method is fitted as `every_method.py` fits it. Beside H by the borrowed rule stand the best threshold (oracle), the
area under the OSCR curve, the accuracy if nothing is rejected, and the score after ten true answers to the questions
that the model asks: H on the samples that were not asked about. MATHS has a rule, whose test rarely finds private
classes on frozen embeddings. Source only and UniNCM are there for comparison. Rows are appended to
results/without-rule.csv; after an interruption, the same command continues.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import torch
from every_method import OFFICE31, plan
from private_share import commit
from threadpoolctl import threadpool_limits
from written_tables import APART

from uniot.benchmark.fit_and_score import fit, load_data, score_model
from uniot.benchmark.jobs import Job
from uniot.benchmark.oracle_answers import scores_after_questions
from uniot.errors import UniotWarning
from uniot.io.csv_tables import CsvWriter, dict_reader

TABLE = Path(__file__).parent / "results" / "without-rule.csv"
COMPARED = ("source-only", "unincm")
ANSWERS = 10
KEY = ("method", "setting", "task", "seed")
SCORES = ("h", "h_oracle", "oscr", "auroc", "nothing_rejected")
COLUMNS = (*KEY, "backbone", "steps", *SCORES, "h_after_answers", "cpu_seconds", "version", "commit")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join((*COMPARED, *APART)), help="comma-separated")
    parser.add_argument("--setting", default="open-partial", help="of the class split")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore", UniotWarning)
    done = {tuple(row[name] for name in KEY) for row in read()}
    with TABLE.open("a", newline="", encoding="utf-8") as stream, tempfile.TemporaryDirectory() as made:
        writer = CsvWriter(stream)
        if not stream.tell():
            writer.write([COLUMNS])
        jobs = [job for job in plan(given.methods.split(","), given.seeds, Path(made)) if job.dataset == OFFICE31]
        for job in jobs:
            if job.setting == given.setting and key(job) not in done:
                found = row(job)
                writer.write([[found[name] for name in COLUMNS]])
                stream.flush()
                print(*key(job), *(f"{name} {found[name]}" for name in (*SCORES, "h_after_answers")), flush=True)


def key(job: Job) -> tuple[str, ...]:
    return job.method, job.setting, job.task, str(job.seed)


def row(job: Job) -> dict[str, object]:
    """Return the scores of a job, by the rule, without it and after the answers."""
    data = load_data(job)
    torch.set_num_threads(job.threads)
    with threadpool_limits(job.threads):
        began, began_cpu = time.perf_counter(), time.process_time()
        model = fit(job, data.source, data.source_labels, data.target)
        seconds = time.perf_counter() - began, time.process_time() - began_cpu
        result = score_model(job, model, data.oracle_target_labels, seconds).result
        (answered,) = scores_after_questions(model, data.oracle_target_labels, [ANSWERS])
    scores = {name: getattr(result, name) for name in SCORES} | {"h_after_answers": answered.score}
    return {
        **dict(zip(KEY, key(job), strict=True)),
        **{name: "" if value is None else f"{value:.5f}" for name, value in scores.items()},
        "backbone": result.backbone,
        "steps": result.steps,
        "cpu_seconds": f"{result.cpu_seconds:.2f}",
        "version": result.version,
        "commit": commit(),
    }


def read() -> list[dict[str, str]]:
    if not TABLE.exists():
        return []
    with TABLE.open(newline="", encoding="utf-8") as file:
        return list(dict_reader(file))


if __name__ == "__main__":
    main()
