"""What a benchmark finds: one line for each job, kept as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from uniot.errors import DataError
from uniot.run_folder import write_text

SCORES: Mapping[str, str] = {
    "h": "H-score",
    "h3_oracle": "H³-score (oracle)",
    "h3_honest": "H³-score (honest)",
    "nmi_oracle": "NMI of private samples (oracle)",
    "common_accuracy": "Accuracy on common classes",
    "unknown_recall": "Recall of unknown",
    "auroc": "AUROC",
    "oscr": "OSCR",
}
"""Scores of a result: name of the field to what tables call it."""
# Shares between 0 and 1 that have no table of their own.
_FURTHER = ("h_oracle", "nothing_rejected", "true_accuracy", "estimated_accuracy")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One job: a method on a task with a seed. A list of them is of one data set, unless `dataset` is given.

    Attributes:
        method: as `uniot methods` lists it.
        task: such as "A2W".
        seed: of every random choice.
        setting: which classes are common and private, such as "open-partial".
        backbone: what made the features, and whether it was trained.
        steps: of the training.
        seconds: that the job took.
        h: H-score. This and the other scores are shares between 0 and 1, as `uniot.evaluation` gives them, and None
            where they have no value.
        h3_oracle: H³-score as the paper has it: told which rows are private, and how many classes they have.
        h3_honest: H³-score of the groups that were found.
        nmi_oracle: third part of `h3_oracle`: NMI of the private rows, grouped into as many as they have classes.
        common_accuracy: share of right rows in common classes.
        unknown_recall: share of the private rows that were called unknown.
        auroc: of the confidence, common against private.
        oscr: area under the open-set classification rate.
        n_groups: groups found among the rows called unknown.
        n_private_true: private classes that have a sample in the target.
        h_oracle: the largest H-score of all thresholds on the same confidence, with the same nearest classes.
        nothing_rejected: accuracy on common classes if no sample is called unknown.
        true_accuracy: share of all samples that are right, private ones if they are called unknown.
        estimated_accuracy: what the model itself expects `true_accuracy` to be, without labels.
        warned: whether the model warned that its answers are unreliable; None if it cannot tell.
        dataset: which data set, in a benchmark of several; empty otherwise.
        failure: why the job gave no answer; empty where it did. A job that failed has no scores.
    """

    method: str
    task: str
    seed: int
    setting: str
    backbone: str
    steps: int
    seconds: float
    h: float | None = None
    h3_oracle: float | None = None
    h3_honest: float | None = None
    nmi_oracle: float | None = None
    common_accuracy: float | None = None
    unknown_recall: float | None = None
    auroc: float | None = None
    oscr: float | None = None
    n_groups: int | None = None
    n_private_true: int | None = None
    h_oracle: float | None = None
    nothing_rejected: float | None = None
    true_accuracy: float | None = None
    estimated_accuracy: float | None = None
    warned: bool | None = None
    dataset: str = ""
    failure: str = ""

    def __post_init__(self) -> None:
        for name in ("method", "task", "setting", "backbone"):
            if len(getattr(self, name).splitlines()) != 1:
                raise DataError(f"a result has {getattr(self, name)!r} as {name}. Give a name, in one line.")
        for name in ("seed", "steps", "seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                raise DataError(f"{self.job} has {getattr(self, name)} as {name}. Give a number from 0 on.")
        scores = {name: value for name in (*SCORES, *_FURTHER) if (value := getattr(self, name)) is not None}
        for name, value in scores.items():
            if not 0 <= value <= 1:
                raise DataError(
                    f"{self.job} has {value} as {name}. Give a share between 0 and 1, or None for no value."
                )
        failed = bool(self.failure.strip())
        if failed and scores:
            raise DataError(f"{self.job} failed ({self.failure}) and has scores. Leave out one or the other.")
        if not failed and self.h is None:
            raise DataError(f"{self.job} has no h, and no failure that says why. Give one or the other.")

    @property
    def job(self) -> str:
        """What was run, in words."""
        of_set = f" of {self.dataset}" if self.dataset else ""
        return f"{self.method} on {self.task}{of_set} ({self.setting}, {self.backbone}) with seed {self.seed}"

    def score(self, name: str) -> float | None:
        """A score by its name, which is one of `SCORES`."""
        if name not in SCORES:
            raise DataError(f"there is no score called {name!r}. Take one of: {', '.join(SCORES)}.")
        value: float | None = getattr(self, name)
        return value


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Writes results as CSV, whole or not at all.

    Every job is one line, so that white space of a failure becomes blanks; a value that a job does not have is an empty
    cell.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(result) | {"failure": " ".join(result.failure.split())} for result in results)
    write_text(path, text.getvalue())


def read_results(path: Path) -> list[Result]:
    """Reads what `write_results` wrote, now or before a column was added; columns of other names are left alone."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.DictReader(file, strict=True)
            missing = [name for name in _COLUMNS if name not in (lines.fieldnames or ()) and name not in _ADDED]
            if missing:
                raise DataError(
                    f"{path} has no column {', '.join(missing)}. Results have the columns {', '.join(_COLUMNS)}; the "
                    "first line names them."
                )
            return [_result(line, f"{path}, line {lines.line_num}") for line in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as UTF-8 text with commas ({error}). Give a file of results, one line for each job."
        ) from None


def _result(line: Mapping[str, str | None], place: str) -> Result:
    # A short line has None in its last columns, which is not an empty cell.
    if None in line.values() or None in line:
        raise DataError(f"{place} has not as many cells as there are columns. Make the file again.")
    values = {name: _value(name, line.get(name) or "", place) for name in _COLUMNS}
    try:
        return Result(**values)  # type: ignore[arg-type] # each was read as what its field holds
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _flag(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(text)
    return text == "True"


def _value(name: str, text: str, place: str) -> str | int | float | None:
    kind, may_be_empty = _KINDS.get(name, (float, True))
    if not text and may_be_empty:
        return None
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "a whole number", _flag: "True or False"}.get(kind, "a number")
        raise DataError(f"{place} has {text!r} as {name}. Give {wanted}.") from None


_COLUMNS = tuple(field.name for field in fields(Result))
# Files that were written before these columns were there are read as if the cells were empty.
_ADDED = frozenset({"nmi_oracle", "n_private_true", "warned", "dataset", *_FURTHER})
# How each column is read, and whether an empty cell is None; all others are scores.
_KINDS: Mapping[str, tuple[Callable[[str], str | int | float], bool]] = {
    **dict.fromkeys(("method", "task", "setting", "backbone", "failure", "dataset"), (str, False)),
    **dict.fromkeys(("seed", "steps"), (int, False)),
    "seconds": (float, False),
    **dict.fromkeys(("n_groups", "n_private_true"), (int, True)),
    "warned": (_flag, True),
}
