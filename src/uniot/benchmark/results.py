"""Read and write the results of jobs as CSV, one row per job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import cast

from uniot.errors import DataError
from uniot.io.csv_tables import CsvError, dict_reader, table_text
from uniot.io.files import write_text

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
"""Titles of the scores in tables, by their names in `Result`."""
# Fractions from 0 to 1 that have no table of their own.
_FURTHER = ("h_oracle", "nothing_rejected", "true_accuracy", "estimated_accuracy", "h_oracle_selection")


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of one job: a method on a task with a seed.

    Attributes:
        method: name as `uniot methods` lists it.
        task: such as "A2W".
        seed: random seed.
        setting: name of the class split, such as "open-partial".
        backbone: network that made the features, and whether it was trained.
        steps: training steps.
        seconds: duration of the fit.
        h: H-score. This and the other scores are fractions from 0 to 1, as in `uniot.metrics`; None if undefined.
        h3_oracle: H³-score as in the paper, which uses the true private samples and their number of classes.
        h3_honest: H³-score of the groups that were found.
        nmi_oracle: third part of `h3_oracle`: NMI of the private samples, grouped into the true number of classes.
        common_accuracy: accuracy on common classes.
        unknown_recall: fraction of the private samples that were rejected.
        auroc: area under the ROC curve of the confidence, common against private.
        oscr: area under the open-set classification rate curve.
        n_groups: number of groups found among the rejected samples.
        n_private_true: number of private classes that have a sample in the target.
        h_oracle: largest H-score of all thresholds on the same confidence, with the same nearest classes.
        nothing_rejected: accuracy on common classes if no sample is rejected.
        true_accuracy: accuracy over all samples; "unknown" is right for private ones.
        estimated_accuracy: the model's own estimate of `true_accuracy`, without labels.
        warned: whether the model warned of unreliable predictions; None if the method has no estimate.
        h_oracle_selection: largest H-score of the models at `--oracle-selection` steps; a choice by target labels.
        cpu_seconds: processor time of the fit, which hardly depends on what else runs.
        version: version of this package; empty for a failure.
        dataset: name of the data set in a benchmark of several; empty otherwise.
        failure: why the job failed; empty if it succeeded. A failed job has no scores.
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
    h_oracle_selection: float | None = None
    cpu_seconds: float | None = None
    version: str = ""
    dataset: str = ""
    failure: str = ""

    def __post_init__(self) -> None:
        for name in ("method", "task", "setting", "backbone"):
            if len(getattr(self, name).splitlines()) != 1:
                raise DataError(f"a result has {getattr(self, name)!r} as {name}. Give a name, in one line.")
        for name in ("seed", "steps", "seconds", "cpu_seconds"):
            if not 0 <= (value := getattr(self, name) or 0) < math.inf:
                raise DataError(f"{self.job} has {value} as {name}. Give a number from 0 on.")
        scores = {name: value for name in (*SCORES, *_FURTHER) if (value := getattr(self, name)) is not None}
        for name, value in scores.items():
            if not 0 <= value <= 1:
                raise DataError(f"{self.job} has {value} as {name}. Give a fraction from 0 to 1, or None.")
        failed = bool(self.failure.strip())
        if failed and scores:
            raise DataError(f"{self.job} failed ({self.failure}) and has scores. Leave out one or the other.")
        if not failed and self.h is None:
            raise DataError(f"{self.job} has no h, and no reason of a failure. Give one of them.")

    @property
    def job(self) -> str:
        """Return a description of the job for error messages."""
        of_set = f" of {self.dataset}" if self.dataset else ""
        return f"{self.method} on {self.task}{of_set} ({self.setting}, {self.backbone}) with seed {self.seed}"

    def score(self, name: str) -> float | None:
        """Return a score by its name in `SCORES`."""
        if name not in SCORES:
            raise DataError(f"there is no score called {name!r}. Take one of: {', '.join(SCORES)}.")
        return cast(float | None, getattr(self, name))


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Write results as CSV, whole or not at all.

    Every job is one line: line breaks in the reason of a failure become spaces. A missing value is an empty cell.
    """
    rows = [asdict(result) | {"failure": " ".join(result.failure.split())} for result in results]
    write_text(path, table_text(_COLUMNS, ([row[name] for name in _COLUMNS] for row in rows)))


def read_results(path: Path) -> list[Result]:
    """Return the results of a CSV file that `write_results` wrote."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = dict_reader(file, strict=True)
            missing = [name for name in _COLUMNS if name not in (lines.fieldnames or ())]
            if missing:
                raise DataError(
                    f"{path} has no column {', '.join(missing)}. Results have the columns {', '.join(_COLUMNS)}; the "
                    "first line names them."
                )
            return [_result(line, f"{path}, line {lines.line_num}") for line in lines]
    except (OSError, UnicodeDecodeError, CsvError) as error:
        raise DataError(
            f"{path} cannot be read as UTF-8 text with commas ({error}). Give a file of results, one line for each job."
        ) from None


def _result(line: Mapping[str, str | None], place: str) -> Result:
    # A short line has None in its last columns, which is not an empty cell.
    if None in line.values() or None in line:
        raise DataError(f"{place} does not have one cell per column. Write the file again with `uniot benchmark`.")
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
# How each column is read, and whether an empty cell is None; all others are scores.
_KINDS: Mapping[str, tuple[Callable[[str], str | int | float], bool]] = {
    **dict.fromkeys(("method", "task", "setting", "backbone", "failure", "dataset", "version"), (str, False)),
    **dict.fromkeys(("seed", "steps"), (int, False)),
    "seconds": (float, False),
    **dict.fromkeys(("n_groups", "n_private_true"), (int, True)),
    "warned": (_flag, True),
}
