"""The training loop: batches → method.step → optimiser, with checkpoints that a killed run continues from."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from uniot.errors import DataError, NumericalError, RunInterrupted, SettingsError
from uniot.methods.base import Batch, Losses, Method
from uniot.training.history import Checkpoints, History, parameters_of, restore_state, save_state
from uniot.training.processes import Processes
from uniot.training.samples import PairedBatches, Samples

if TYPE_CHECKING:
    from uniot.config import Settings

# The class mass is recorded this many times per run.
_CLASS_MASSES = 100

Watch = Callable[[Tensor, Losses], Mapping[str, float]]
"""From the target ids and the losses of a step to numbers for the history."""


def learning_rate_factor(step: int, steps: int) -> float:
    """Return (1 + 10 step/steps)^-0.75, the decay of the paper and of the methods compared with."""
    return float((1 + 10 * step / steps) ** -0.75)


def train(
    method: Method,
    source: Samples,
    source_classes: Tensor,
    target: Samples,
    settings: Settings,
    *,
    checkpoints: Checkpoints | None = None,
    fingerprint: str = "",
    processes: Processes | None = None,
    watch: Watch | None = None,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    on_weights: Callable[[int], None] | None = None,
) -> History:
    """Train a method on a labelled source and an unlabelled target.

    Args:
        method: its weights are changed in place.
        source: labelled samples.
        source_classes: class index per source sample, (n_source,).
        target: unlabelled samples; there is no argument for their labels.
        settings: resolved settings.
        checkpoints: storage of the state that an interrupted run continues from; none is written if None.
        fingerprint: digest of data and settings; a checkpoint with another one is not continued.
        processes: processes that share every batch; all end with the same weights.
        watch: adds columns to the history.
        on_step: called with each finished step and its numbers.
        on_weights: called with each finished step, after the weights have changed.

    Returns:
        The history. Equal seed, data and number of threads give equal history and weights to the last bit, whether the
        run was interrupted or not.
    """
    assert settings.steps is not None
    assert settings.learning_rate is not None
    processes = processes or Processes()
    if not settings.steps:
        method.to(processes.device).eval()
        return History()
    if settings.batch_size % processes.count:
        raise SettingsError(
            f"a batch of {settings.batch_size} cannot be shared evenly by {processes.count} processes. "
            f"Set batch_size to a multiple of {processes.count}."
        )
    method.to(processes.device).train()
    batches = PairedBatches(source_classes, len(target), settings.batch_size, settings.seed)
    groups = parameter_groups(method, method.backbone, settings)
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
    first, history = 0, History()
    if checkpoints is not None:
        first, history = restore_state(checkpoints, fingerprint, method, optimiser)
    between_masses = math.ceil(settings.steps / _CLASS_MASSES)
    if first == 0:
        _prepare(method, target, batches, processes)
    make = partial(_make_batch, source, source_classes, target, batches, processes)
    coming = batches_of(make, range(first, settings.steps), ahead=source.reads_files or target.reads_files)
    with _interrupts_noted(enabled=checkpoints is not None) as interrupted, closing(coming):
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
            if on_weights is not None:
                on_weights(done)
            # Read once: an interrupt after this line belongs to the next step.
            stop = _anywhere(interrupted(), processes)
            if (
                checkpoints is not None
                and processes.rank == 0
                and (stop or done % settings.checkpoint_every == 0 or done == settings.steps)
            ):
                save_state(checkpoints, fingerprint, done, method, optimiser, history)
            if stop:
                raise RunInterrupted(
                    f"stopped at step {done} of {settings.steps}. Everything up to here is saved in the run folder; "
                    "run the same command again to continue."
                )
    method.eval()
    return history


def parameter_groups(method: nn.Module, backbone: nn.Module, settings: Settings) -> list[dict[str, object]]:
    """Return the optimiser's parameter groups: the backbone has a learning rate of its own."""
    of_backbone = {id(parameter) for parameter in backbone.parameters()}
    new_layers = [parameter for parameter in method.parameters() if id(parameter) not in of_backbone]
    groups: list[dict[str, object]] = [{"params": new_layers, "lr": settings.learning_rate}]
    if of_backbone:
        groups.append({"params": list(backbone.parameters()), "lr": settings.backbone_learning_rate})
    return groups


def _prepare(method: Method, target: Samples, batches: PairedBatches, processes: Processes) -> None:
    method.eval()
    step = 0
    while not method.is_prepared():
        ids = batches.target(step)
        inputs = target.batch(ids, part=processes.part(len(ids))).to(processes.device)
        method.prepare(inputs, ids.to(processes.device), processes.gather)
        step += 1
    method.train()


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
    """Yield each step with its batch; with `ahead`, the next batch is made while the present one is used."""
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
    """Return whether any process was interrupted, so that all of them stop at the same step."""
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
        # The samples were checked before the run, so the weights must have overflowed.
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
    processes.backward(losses.total, parameters_of(optimiser))
    optimiser.step()
    method.after_step()
    row = {"loss": float(losses.total.detach())}
    row |= {f"loss_{name}": float(part.detach()) for name, part in losses.parts.items()}
    row |= losses.notes
    return row | dict(watch(batch.target_ids, losses) if watch else {}), losses.class_mass


@contextmanager
def _interrupts_noted(*, enabled: bool) -> Iterator[Callable[[], bool]]:
    """Record a first Ctrl-C within the block, so that the current step ends; a second one raises KeyboardInterrupt.

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
