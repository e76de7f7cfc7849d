"""The files of a job's folder: result.json, error.txt and log.txt; `Job.write` writes job.json."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from uniot import __version__
from uniot.benchmark.jobs import PROTOCOL, Job
from uniot.benchmark.oracle_answers import AnswerScore
from uniot.benchmark.results import Result
from uniot.errors import DataError, SettingsError
from uniot.io.files import remove_partial_files, write_text

if TYPE_CHECKING:
    from uniot.benchmark.fit_and_score import ScoredJob

LOG = "log.txt"
"""Name of the file with everything that the job's process printed."""
_RESULT, _ERROR = "result.json", "error.txt"


def is_over(folder: Path) -> bool:
    """Return whether the job of a folder has finished or failed."""
    return any((folder / name).exists() for name in (_RESULT, _ERROR))


def is_job_of(folder: Path, job: Job) -> bool:
    """Return whether the job that is described in a folder has the same result as this one."""
    try:
        return Job.read(folder).digest == job.digest
    except (DataError, SettingsError):
        return False


def clear(folder: Path) -> None:
    """Remove the result or the error of an earlier attempt, and what it left unfinished if it was killed."""
    if folder.is_dir():
        remove_partial_files(folder)
    for name in (_RESULT, _ERROR):
        (folder / name).unlink(missing_ok=True)


def write_result(folder: Path, job: Job, scored: ScoredJob) -> None:
    """Write result.json: the row of results.csv, every score with its notes, and the scores after simulated answers."""
    about = {
        "protocol": PROTOCOL,
        "digest": job.digest,
        "version": __version__,
        "threads": job.threads,
        "result": asdict(scored.result),
        "evaluation": scored.evaluation.to_dict(),
    }
    if job.oracle_answers:
        about["oracle_answers"] = [asdict(one) for one in scored.answers]
    write_text(folder / _RESULT, json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def read_result(folder: Path, job: Job) -> Result | None:
    """Return the result in a job's folder, or None if there is none or it is the result of another job."""
    try:
        about = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        if about["digest"] != job.digest:
            return None
        return replace(Result(**about["result"]), backbone=job.backbone, dataset=job.dataset)
    except (OSError, ValueError, KeyError, TypeError):
        # Absent or damaged: the job is run again.
        return None


def read_oracle_answers(folder: Path) -> list[AnswerScore]:
    """Return the scores after simulated answers in the folder of a finished job."""
    about = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
    return [AnswerScore(**row) for row in about["oracle_answers"]]


def write_failure(folder: Path, sentence: str, details: str = "") -> None:
    """Write error.txt: a sentence, and details such as the traceback."""
    one_line = " ".join(sentence.split()) or "it failed without a message"
    write_text(folder / _ERROR, f"{one_line}\n\n{details}".rstrip() + "\n")


def read_failure(folder: Path) -> str | None:
    """Return the first line of error.txt, or None if there is no such file."""
    try:
        return (folder / _ERROR).read_text(encoding="utf-8").partition("\n")[0]
    except FileNotFoundError:
        return None
