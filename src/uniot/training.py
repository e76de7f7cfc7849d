"""The only loop: batches → method.step → optimiser, with checkpoints that a killed run goes on from."""

from __future__ import annotations

import hashlib
import math
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from uniot.data.batches import PairedBatches
from uniot.data.samples import Samples
from uniot.errors import DataError, NumericalError, RunFolderError, RunInterrupted, SettingsError
from uniot.methods.method import Batch, Losses, Method, parameter_groups
from uniot.processes import Processes
from uniot.run_folder import read_tensors, write_tensors
from uniot.settings import Settings

# So many times in a run the class mass is noted.
_CLASS_MASSES = 100

Watch = Callable[[Tensor, Losses], Mapping[str, float]]
"""Sees the target ids and the losses of a step and returns numbers for the history; cannot reach the weights."""


@dataclass
class History:
    """One row of numbers a step.

    Attributes:
        columns: what the numbers are.
        rows: of each step.
        class_mass: step, and the mass of each source class after it; of some hundred steps, evenly spread.
    """

    columns: list[str] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    class_mass: list[list[float]] = field(default_factory=list)

    def add(self, values: Mapping[str, float]) -> None:
        """Appends a row; the first row fixes the columns."""
        self.columns = self.columns or list(values)
        self.rows.append([float(values.get(name, math.nan)) for name in self.columns])

    def tensors(self) -> dict[str, Tensor]:
        """All numbers, for a file of tensors."""
        return {
            "history": torch.tensor(self.rows, dtype=torch.float64),
            "history.class_mass": torch.tensor(self.class_mass, dtype=torch.float64),
        }

    @classmethod
    def of(cls, columns: list[str], tensors: Mapping[str, Tensor]) -> History:
        """What `tensors` were made from."""
        return cls(columns, tensors["history"].tolist(), tensors["history.class_mass"].tolist())

    def column(self, name: str) -> list[float]:
        """All values of one column, step by step."""
        return [row[self.columns.index(name)] for row in self.rows]

    def to_csv(self) -> str:
        """The history as text; a number that a step does not have is an empty cell."""
        rows = (",".join("" if math.isnan(value) else f"{value:.9g}" for value in row) for row in self.rows)
        return "\n".join([",".join(self.columns), *rows]) + "\n"


def learning_rate_factor(step: int, steps: int) -> float:
    """(1 + 10 step/steps)^-0.75, the decay of the compared methods and of the paper."""
    return float((1 + 10 * step / steps) ** -0.75)


def train(
    method: Method,
    source: Samples,
    source_classes: Tensor,
    target: Samples,
    settings: Settings,
    *,
    folder: Path | None = None,
    fingerprint: str = "",
    processes: Processes | None = None,
    watch: Watch | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
) -> History:
    """Trains a method on a labelled source and an unlabelled target.

    Args:
        method: its weights are changed in place.
        source: labelled samples.
        source_classes: (n_source,), class index of each.
        target: unlabelled samples; there is no argument for their labels.
        settings: resolved settings.
        folder: where checkpoints go and are looked for; none are written if None.
        fingerprint: of data and settings, so that a checkpoint is never continued with others.
        processes: who shares the work; each brings its part of every batch, and all end with the same weights.
        watch: adds columns to the history.
        on_step: told of each finished step, for a progress bar.

    Returns:
        The history. After the same seed, the same data and the same number of threads, history and weights are
        the same to the last bit, whether the run was interrupted or not.
    """
    assert settings.steps is not None
    assert settings.learning_rate is not None
    processes = processes or Processes()
    if not settings.steps:
        cast(nn.Module, method).to(processes.device).eval()
        return History()
    if settings.batch_size % processes.count:
        raise SettingsError(
            f"a batch of {settings.batch_size} cannot be shared evenly by {processes.count} processes. "
            f"Set batch_size to a multiple of {processes.count}."
        )
    module = cast(nn.Module, method).to(processes.device)
    module.train()
    batches = PairedBatches(source_classes, len(target), settings.batch_size, settings.seed)
    groups = parameter_groups(module, method.backbone, settings)
    optimiser = torch.optim.SGD(
        groups,
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.momentum > 0,
        fused=True,
    )
    optimiser = processes.set_up(optimiser)
    full_rates = [group["lr"] for group in optimiser.param_groups]
    checkpoint = None if folder is None else Checkpoint(folder, fingerprint)
    first, history = checkpoint.restore(module, optimiser) if checkpoint else (0, History())
    between_masses = math.ceil(settings.steps / _CLASS_MASSES)
    if first == 0:
        _prepare(method, target, batches, processes)
    make = partial(_make_batch, source, source_classes, target, batches, processes)
    coming = batches_of(make, range(first, settings.steps), ahead=source.reads_files or target.reads_files)
    with _interrupts_noted(enabled=checkpoint is not None) as interrupted, closing(coming):
        for step, batch in coming:
            factor = learning_rate_factor(step, settings.steps)
            for group, rate in zip(optimiser.param_groups, full_rates, strict=True):
                group["lr"] = rate * factor
            done = step + 1
            row, class_mass = _step(method, optimiser, batch, processes, watch)
            row = {"step": done, "learning_rate": settings.learning_rate * factor, **row}
            history.add(row)
            if class_mass is not None and (done % between_masses == 0 or done in (1, settings.steps)):
                history.class_mass.append([done, *class_mass.tolist()])
            if on_step is not None:
                on_step(done, row)
            # Asked once: an interrupt that comes after this line is for the next step.
            stop = _anywhere(interrupted(), processes)
            if (
                checkpoint
                and processes.rank == 0
                and (stop or done % settings.checkpoint_every == 0 or done == settings.steps)
            ):
                checkpoint.save(done, module, optimiser, history)
            if stop:
                raise RunInterrupted(
                    f"stopped at step {done} of {settings.steps}. Everything up to here is saved in {folder}; "
                    "run the same command again to go on."
                )
    module.eval()
    return history


def _prepare(method: Method, target: Samples, batches: PairedBatches, processes: Processes) -> None:
    module = cast(nn.Module, method)
    module.eval()
    step = 0
    while not method.is_prepared():
        ids = batches.target(step)
        inputs = target.batch(ids, part=processes.part(len(ids))).to(processes.device)
        method.prepare(inputs, ids.to(processes.device), processes.gather)
        step += 1
    module.train()


def _make_batch(
    source: Samples,
    source_classes: Tensor,
    target: Samples,
    batches: PairedBatches,
    processes: Processes,
    step: int,
) -> Batch:
    source_ids, target_ids = batches.source(step), batches.target(step)
    generator = batches.generator(step)
    device = processes.device
    return Batch(
        source=source.batch(source_ids, generator, processes.part(len(source_ids))).to(device),
        source_labels=source_classes[source_ids].to(device),
        target=target.batch(target_ids, generator, processes.part(len(target_ids))).to(device),
        target_ids=target_ids.to(device),
        step=step,
        generator=generator,
        gather=processes.gather,
    )


def batches_of(make: Callable[[int], Batch], steps: Iterable[int], *, ahead: bool) -> Generator[tuple[int, Batch]]:
    """Each step with its batch; `ahead`: while one is computed with, the next one is made."""
    if not ahead:
        yield from ((step, make(step)) for step in steps)
        return
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="next-batch") as worker:
        waiting: Future[Batch] | None = None
        last = None
        for step in steps:
            upcoming = worker.submit(make, step)
            if waiting is not None and last is not None:
                yield last, waiting.result()
            last, waiting = step, upcoming
        if waiting is not None and last is not None:
            yield last, waiting.result()


def _anywhere(noted: bool, processes: Processes) -> bool:
    """Whether any process was interrupted: all of them stop at the same step."""
    if processes.count == 1:
        return noted
    return bool(processes.add(torch.tensor(float(noted))) > 0)


def _step(
    method: Method,
    optimiser: torch.optim.SGD,
    batch: Batch,
    processes: Processes,
    watch: Watch | None,
) -> tuple[dict[str, float], Tensor | None]:
    step = batch.step
    try:
        with processes.autocast():
            losses = method.step(batch)
    except DataError as error:
        # The samples were checked before the run: it is the weights that have left the range of numbers.
        raise NumericalError(
            f"at step {step + 1} the features are no longer numbers ({error}) "
            "Lower learning_rate, or check the embeddings for extreme values."
        ) from error
    if not math.isfinite(float(losses.total.detach())):
        wrong = [name for name, part in losses.parts.items() if not math.isfinite(float(part.detach()))]
        raise NumericalError(
            f"the loss is {float(losses.total.detach())} at step {step + 1} (part: {', '.join(wrong) or 'total'}). "
            "Lower learning_rate, or check the embeddings for extreme values."
        )
    optimiser.zero_grad()
    processes.backward(losses.total, _parameters(optimiser))
    optimiser.step()
    method.after_step()
    row = {"loss": float(losses.total.detach())}
    row |= {f"loss_{name}": float(part.detach()) for name, part in losses.parts.items()}
    row |= losses.notes
    return row | dict(watch(batch.target_ids, losses) if watch else {}), losses.class_mass


class Checkpoint:
    """The newest state of a run on disk: weights, optimiser, history."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.path = folder / "checkpoints" / "last.safetensors"
        self._fingerprint = fingerprint

    def save(self, step: int, method: nn.Module, optimiser: torch.optim.SGD, history: History) -> None:
        """Writes the state after `step` steps in place of the one before."""
        tensors = {f"method.{name}": value for name, value in method.state_dict().items()}
        for index, parameter in enumerate(_parameters(optimiser)):
            moment = optimiser.state[parameter].get("momentum_buffer")
            if moment is not None:
                tensors[f"momentum.{index}"] = moment
        tensors |= history.tensors()
        about = {"step": step, "fingerprint": self._fingerprint, "columns": history.columns}
        write_tensors(self.path, tensors, about)

    def restore(self, method: nn.Module, optimiser: torch.optim.SGD) -> tuple[int, History]:
        """Loads the newest state and returns the number of steps done, 0 where there is none, and their history."""
        if not self.path.exists():
            return 0, History()
        tensors, about = read_tensors(self.path)
        if about["fingerprint"] != self._fingerprint:
            raise RunFolderError(
                f"{self.path.parent.parent} holds a run that was begun with other data or other settings. "
                "Give another folder, or remove this one to start anew (--overwrite on the command line)."
            )
        start = len("method.")
        method.load_state_dict({k[start:]: v for k, v in tensors.items() if k.startswith("method.")})
        for index, parameter in enumerate(_parameters(optimiser)):
            if f"momentum.{index}" in tensors:
                # A copy: memory as torch lays it out, for a sum may depend on where its numbers lie.
                optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(
                    tensors[f"momentum.{index}"]
                )
        return cast(int, about["step"]), History.of(cast(list[str], about["columns"]), tensors)


def fingerprint(settings: Settings, tensors: Sequence[Tensor]) -> str:
    """A digest of everything that decides a run's result."""
    digest = hashlib.sha256(settings.model_dump_json(exclude=settings.outside_fingerprint).encode())
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _parameters(optimiser: torch.optim.SGD) -> list[Any]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


@contextmanager
def _interrupts_noted(*, enabled: bool) -> Iterator[Callable[[], bool]]:
    """Within the block a first Ctrl-C is only noted, so that the step under way ends; a second one stops it.

    If the process was started with interrupts ignored, as a shell starts a job in the background, they stay so.
    """
    noted = False

    def note(_signal: int, _frame: object) -> None:
        nonlocal noted
        noted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not enabled or ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)
