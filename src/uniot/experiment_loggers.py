"""Where losses, settings and scores of a training are logged: TensorBoard, MLflow, Weights & Biases, or any logger.

A logger is an object with three methods of lightning fabric's `Logger`, so that those of fabric and of Lightning fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from uniot.errors import RunInterrupted, SettingsError


class ExperimentLogger(Protocol):
    """What is asked of a logger."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Record the settings of a run."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record numbers of a step."""

    def finalize(self, status: str) -> None:
        """End the run: "success", "failed" or "aborted"."""


def check_logger(logger: object) -> None:
    """Refuse an object that lacks a method of a logger."""
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
        folder: of the run. TensorBoard writes to `tensorboard/` in it, MLflow to `mlflow.db` unless MLFLOW_TRACKING_URI
            is set, and Weights & Biases to `wandb/`, offline if WANDB_MODE says so.

    Raises:
        SettingsError: the package is not installed.
    """
    if name == "tensorboard":
        _needed("tensorboard", name)
        fabric_logger: ExperimentLogger = _needed("lightning_fabric.loggers", name).TensorBoardLogger(
            folder, name="tensorboard", version=""
        )
        return fabric_logger
    if name == "mlflow":
        return MlflowLogger(_needed("mlflow", name), folder)
    return WandbLogger(_needed("wandb", name), folder)


class MlflowLogger:
    """Logs to MLflow, to the experiment `uniot` of the tracking server, under the name of the run folder."""

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
    """Logs to Weights & Biases, to the project `uniot`, under the name of the run folder."""

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
    """Log what of some values is a number; a step without one of them has NaN there."""
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


def _needed(package: str, name: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise SettingsError(
            f"logging to {name} needs {package.partition('.')[0]}, which cannot be imported ({error}). "
            f"Run `pip install 'uniot[{name}]'`."
        ) from None
