"""Record a training: its history, its state in checkpoints, and the values for a logger.

A logger is an object with three methods of lightning fabric's `Logger`, such as those of fabric and of Lightning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from uniot.errors import RunFolderError, RunInterrupted, SettingsError, import_optional
from uniot.io.csv_tables import table_text


class Checkpoints(Protocol):
    """Storage for the newest state of an unfinished run; `uniot.runs` has one for run folders."""

    def save(self, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
        """Write a state in place of the one before."""

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and the description of the newest state; None if there is none."""


@dataclass
class History:
    """Numbers of a training, a row per step.

    Attributes:
        columns: names of the numbers.
        rows: numbers of each step.
        class_mass: step and mass of each source class after it, for about a hundred evenly spaced steps.
    """

    columns: list[str] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    class_mass: list[list[float]] = field(default_factory=list)

    def add(self, values: Mapping[str, float]) -> None:
        """Append a row; the first row fixes the columns."""
        self.columns = self.columns or list(values)
        self.rows.append([float(values.get(name, math.nan)) for name in self.columns])

    def tensors(self) -> dict[str, Tensor]:
        """Return all numbers as tensors, for a file."""
        return {
            "history": torch.tensor(self.rows, dtype=torch.float64),
            "history.class_mass": torch.tensor(self.class_mass, dtype=torch.float64),
        }

    @classmethod
    def of(cls, columns: list[str], tensors: Mapping[str, Tensor]) -> History:
        """Return the history that `tensors` were made from."""
        return cls(columns, tensors["history"].tolist(), tensors["history.class_mass"].tolist())

    def column(self, name: str) -> list[float]:
        """Return the values of one column, step by step."""
        return [row[self.columns.index(name)] for row in self.rows]

    def to_csv(self) -> str:
        """Return the history as CSV text; a number that a step does not have is an empty cell."""
        rows = (["" if math.isnan(value) else f"{value:.9g}" for value in row] for row in self.rows)
        return table_text(self.columns, rows)


def save_state(
    checkpoints: Checkpoints,
    fingerprint: str,
    step: int,
    method: nn.Module,
    optimiser: torch.optim.SGD,
    history: History,
) -> None:
    """Save weights, optimiser and history after `step` steps; arguments as in `restore_state`."""
    tensors = {f"method.{name}": value for name, value in method.state_dict().items()}
    for index, parameter in enumerate(parameters_of(optimiser)):
        moment = optimiser.state[parameter].get("momentum_buffer")
        if moment is not None:
            tensors[f"momentum.{index}"] = moment
    about = {"step": step, "fingerprint": fingerprint, "columns": history.columns}
    checkpoints.save(tensors | history.tensors(), about)


def restore_state(
    checkpoints: Checkpoints, fingerprint: str, method: nn.Module, optimiser: torch.optim.SGD
) -> tuple[int, History]:
    """Load the newest state into a method and its optimiser.

    Args:
        checkpoints: storage of the state.
        fingerprint: of data and settings.
        method: its weights are replaced.
        optimiser: its momentum is replaced.

    Returns:
        Number of steps done and their history; 0 and an empty one if there is no state.

    Raises:
        RunFolderError: the state is of other data or settings.
    """
    found = checkpoints.load()
    if found is None:
        return 0, History()
    tensors, about = found
    if about["fingerprint"] != fingerprint:
        raise RunFolderError(
            "the run folder contains an unfinished run of other data or other settings. Give another folder, or remove "
            "this one to start anew (--overwrite on the command line)."
        )
    start = len("method.")
    method.load_state_dict({k[start:]: v for k, v in tensors.items() if k.startswith("method.")})
    for index, parameter in enumerate(parameters_of(optimiser)):
        if f"momentum.{index}" in tensors:
            # A copy has memory as torch lays it out; the order of a sum may depend on that.
            optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(
                tensors[f"momentum.{index}"]
            )
    return cast(int, about["step"]), History.of(cast(list[str], about["columns"]), tensors)


def parameters_of(optimiser: torch.optim.SGD) -> list[Any]:
    """Return the parameters of all groups of an optimiser, in order."""
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


class ExperimentLogger(Protocol):
    """The methods of a logger that are used."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Record the settings of a run."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record numbers of a step."""

    def finalize(self, status: str) -> None:
        """End the run: "success", "failed" or "aborted"."""


def check_logger(logger: object) -> None:
    """Raise SettingsError if an object lacks a method of a logger."""
    missing = [
        name for name in ("log_hyperparams", "log_metrics", "finalize") if not callable(getattr(logger, name, None))
    ]
    if missing:
        raise SettingsError(
            f"logger is {type(logger).__name__!r}, which has no {missing[0]}. Give a logger of lightning fabric, such "
            "as lightning_fabric.loggers.TensorBoardLogger, or one with log_hyperparams, log_metrics and finalize."
        )


def open_logger(name: str, folder: Path) -> ExperimentLogger:
    """Return a logger; nothing is written before the first number is logged.

    Args:
        name: "tensorboard", "mlflow" or "wandb".
        folder: run folder. TensorBoard writes to `tensorboard/` in it, MLflow to `mlflow.db` unless MLFLOW_TRACKING_URI
            is set, and Weights & Biases to `wandb/`, offline if WANDB_MODE is "offline".

    Returns:
        The logger.

    Raises:
        MissingPackageError: the package is not installed.
    """
    purpose = f"logging to {name}"
    if name == "tensorboard":
        import_optional("tensorboard", name, purpose)
        fabric_logger: ExperimentLogger = import_optional("lightning_fabric.loggers", name, purpose).TensorBoardLogger(
            folder, name="tensorboard", version=""
        )
        return fabric_logger
    if name == "mlflow":
        return MlflowLogger(import_optional("mlflow", name, purpose), folder)
    return WandbLogger(import_optional("wandb", name, purpose), folder)


class MlflowLogger:
    """Log to MLflow, to the experiment `uniot` of the tracking server, under the name of the run folder."""

    def __init__(self, mlflow: Any, folder: Path) -> None:
        self._mlflow = mlflow
        self._folder = folder
        self._run: Any = None

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        # MLflow refuses values of more than 6000 characters.
        self._started().log_params({key: str(value)[:500] for key, value in params.items()})

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._started().log_metrics(metrics, step=step)

    def finalize(self, status: str) -> None:
        if self._run is not None:
            self._mlflow.end_run({"success": "FINISHED", "aborted": "KILLED"}.get(status, "FAILED"))
            self._run = None

    def _started(self) -> Any:
        if self._run is None:
            if not self._mlflow.is_tracking_uri_set():
                self._folder.mkdir(parents=True, exist_ok=True)
                self._mlflow.set_tracking_uri(f"sqlite:///{(self._folder / 'mlflow.db').absolute().as_posix()}")
            self._mlflow.set_experiment("uniot")
            self._run = self._mlflow.start_run(run_name=self._folder.resolve().name)
        return self._mlflow


class WandbLogger:
    """Log to Weights & Biases, to the project `uniot`, under the name of the run folder."""

    def __init__(self, wandb: Any, folder: Path) -> None:
        self._wandb = wandb
        self._folder = folder
        self._run: Any = None

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self._started().config.update(params, allow_val_change=True)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._started().log(metrics, step=step)

    def finalize(self, status: str) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if status == "success" else 1)
            self._run = None

    def _started(self) -> Any:
        if self._run is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._run = self._wandb.init(project="uniot", name=self._folder.resolve().name, dir=str(self._folder))
        return self._run


def log_numbers(logger: ExperimentLogger, numbers: Mapping[str, Any], step: int | None = None) -> None:
    """Log the values that are numbers; NaN, the value that a step does not have, is left out."""
    values = {name: float(value) for name, value in numbers.items() if isinstance(value, (bool, int, float))}
    logger.log_metrics({name: value for name, value in values.items() if not math.isnan(value)}, step)


def logging_step(
    logger: ExperimentLogger, on_step: Callable[[int, int, Mapping[str, float]], None] | None
) -> Callable[[int, int, Mapping[str, float]], None]:
    """Return a callback that logs each step, and then calls `on_step`."""

    def log_step(step: int, steps: int, row: Mapping[str, float]) -> None:
        log_numbers(logger, {name: value for name, value in row.items() if name != "step"}, step)
        if on_step is not None:
            on_step(step, steps, row)

    return log_step


@contextmanager
def ended_on_failure(logger: ExperimentLogger | None) -> Iterator[None]:
    """End the logged run if the block fails: "aborted" if somebody stopped it, "failed" otherwise."""
    try:
        yield
    except BaseException as error:
        if logger is not None:
            logger.finalize("aborted" if isinstance(error, (KeyboardInterrupt, RunInterrupted)) else "failed")
        raise
