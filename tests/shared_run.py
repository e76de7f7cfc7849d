"""The small run, shared by processes: `shared_run.py folder processes`; each process writes what it ended with."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import save_file

from small_run import data, settings_of  # isort: skip

from uniot.methods.registry import create_method
from uniot.training.domains import Domains
from uniot.training.finalize import finalize
from uniot.training.loop import train
from uniot.training.model import AdaptedModel
from uniot.training.processes import Processes, start_processes
from uniot.training.samples import TensorSamples


def adapt(processes: Processes, **changes: object) -> tuple[AdaptedModel, dict[str, torch.Tensor]]:
    """The small run and its answers; its target of 31 rows does not divide evenly."""
    source, classes, target = data()
    target = torch.cat([target, target[:1] + 0.5])
    settings = settings_of(**changes)
    torch.manual_seed(settings.seed)
    method = create_method(settings, 5, 3)
    samples = TensorSamples(target)
    history = train(method, TensorSamples(source), classes, samples, settings, processes=processes)
    domains = Domains(TensorSamples(source), classes.numpy(), samples, np.zeros(len(classes), dtype=bool), digest="")
    model = finalize(method, domains, settings, unknown=-1, processes=processes)
    model = replace(model, history=history)
    answers = {name: torch.from_numpy(getattr(model.target, name)) for name in ("nearest", "known", "confidence")}
    return model, answers


def adapt_both(processes: Processes) -> dict[str, torch.Tensor]:
    """Weights, losses and answers of UniOT as published; answers and classes of the universal one, with a prior too."""
    model, answers = adapt(processes, method="uniot")
    weights = {f"weights.{name}": value.clone() for name, value in model.method.state_dict().items()}
    losses = torch.tensor([model.history.column(name) for name in ("loss", "loss_common", "loss_private")])
    _, universal = adapt(processes, method="unincm", steps=0)
    universal = {f"universal.{name}": value for name, value in universal.items()}
    with patch("uniot.training.finalize._MOST_SOURCE_ROWS", 7):
        few, _ = adapt(processes, method="unincm", steps=0)
    _, preferring = adapt(processes, method="unincm", steps=0, private_prior=0.6)
    universal |= {f"preferring.{name}": value for name, value in preferring.items()}
    universal["universal.prototypes_of_all_rows"] = few.method.class_prototypes()
    return {**weights, **answers, **universal, "losses": losses, "potential": model.method.solved.get().class_potential}


def main(folder: Path, count: int) -> None:
    torch.set_num_threads(1)
    processes = start_processes(count)
    save_file(adapt_both(processes), folder / f"{processes.rank}-of-{processes.count}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
