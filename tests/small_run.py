"""A run small enough to be repeated often; also a script, so that a test can kill it: `small_run.py folder [pause]`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from uniot.config import Settings
from uniot.errors import RunInterrupted
from uniot.methods import create_method, resolved_settings
from uniot.methods.uniot import UniOTMethod
from uniot.runs import Run
from uniot.training.fit import fingerprint
from uniot.training.history import History
from uniot.training.loop import train
from uniot.training.samples import TensorSamples


def settings_of(**changes) -> Settings:
    values = {
        "method": "uniot",
        "n_clusters": 4,
        "queue_size": 24,
        "batch_size": 8,
        "hidden_size": 12,
        "feature_size": 6,
        "detection_start": 4,
        "steps": 30,
        "checkpoint_every": 5,
        "learning_rate": 0.05,
    }
    return resolved_settings(Settings.checked(**(values | changes)), 30)


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Source, its classes, and a target with two of the three classes and one of its own."""
    generator = torch.Generator().manual_seed(seed)
    centres = 4 * torch.eye(4, 5)
    classes = torch.arange(24) % 3
    source = centres[classes] + torch.randn(24, 5, generator=generator)
    target = centres[torch.tensor([0, 1, 3])[torch.arange(30) % 3]] + torch.randn(30, 5, generator=generator)
    return source, classes, target


def run(
    folder: Path | None = None,
    on_step: Callable | None = None,
    values: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
    watch: Callable | None = None,
    **changes,
) -> tuple[UniOTMethod, History]:
    settings = settings_of(**changes)
    source, classes, target = values or data()
    torch.manual_seed(settings.seed)
    method = create_method(settings, 5, 3)
    history = train(
        method,
        TensorSamples(source),
        classes,
        TensorSamples(target),
        settings,
        checkpoints=None if folder is None else Run.writer(folder).checkpoints,
        fingerprint=fingerprint(settings, str([part.tolist() for part in (source, classes, target)])),
        watch=watch,
        on_step=on_step,
    )
    return method, history


def main(folder: Path, pause: float) -> None:
    def told(step: int, row: object) -> None:
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        time.sleep(pause)

    torch.set_num_threads(1)
    try:
        run(folder, told, steps=120, checkpoint_every=1)
    except RunInterrupted as error:
        sys.stderr.write(str(error))
        sys.exit(3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
