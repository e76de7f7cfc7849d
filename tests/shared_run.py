"""The small run, shared by processes: `shared_run.py folder processes`; each process writes what it ended with."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from small_run import data, settings_of  # isort: skip

from uniot.conclusion import conclude
from uniot.data.samples import TensorSamples
from uniot.methods import UniOTMethod
from uniot.processes import Processes, start_processes
from uniot.training import train


def adapt(processes: Processes) -> dict[str, torch.Tensor]:
    """Weights, losses and answers of the small run; its target of 31 rows does not divide evenly."""
    source, classes, target = data()
    target = torch.cat([target, target[:1] + 0.5])
    settings = settings_of()
    torch.manual_seed(settings.seed)
    method = UniOTMethod(5, 3, settings)
    samples = TensorSamples(target)
    history = train(method, TensorSamples(source), classes, samples, settings, processes=processes)
    model = conclude(
        method,
        TensorSamples(source),
        classes,
        samples,
        classes=np.arange(3),
        unknown=-1,
        settings=settings,
        history=history,
        fingerprint="",
        processes=processes,
    )
    answers = {name: torch.from_numpy(getattr(model.target, name)) for name in ("nearest", "known", "confidence")}
    weights = {f"weights.{name}": value.clone() for name, value in method.state_dict().items()}
    losses = torch.tensor([history.column(name) for name in ("loss", "loss_common", "loss_private")])
    return {**weights, **answers, "losses": losses, "potential": model.rule.class_potential}


def main(folder: Path, count: int) -> None:
    torch.set_num_threads(1)
    processes = start_processes(count)
    save_file(adapt(processes), folder / f"{processes.rank}-of-{processes.count}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
