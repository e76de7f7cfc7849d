"""Training in one process or several: how batches are split, and results are gathered."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from uniot.errors import SettingsError, import_optional

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Processes:
    """A single process; `ManyProcesses` has the same methods for several.

    Attributes:
        rank: number of this process, from 0.
        count: number of processes.
        device: device of this process.
    """

    rank = 0
    count = 1
    device = torch.device("cpu")

    def part(self, size: int) -> slice:
        """Return the slice of `size` consecutive items that this process handles; slices follow the ranks."""
        return slice(size * self.rank // self.count, size * (self.rank + 1) // self.count)

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, (count · n_rows, …), in the order of the ranks.

        Args:
            rows: (n_rows, …), with the same n_rows in every process. Gradients flow back to the process of a row.
        """
        return rows

    def gather_parts(self, rows: Tensor, size: int) -> Tensor:
        """Return all `size` rows, (size, …), of which each process passes its `part`; without gradients."""
        return rows

    def add(self, values: Tensor) -> Tensor:
        """Return the sum over the processes."""
        return values

    def wait(self) -> None:
        """Wait until every process has called this (a barrier)."""

    def autocast(self) -> AbstractContextManager[object]:
        """Return a context of the precision that was requested."""
        return nullcontext()

    def set_up(self, optimiser: torch.optim.Optimizer) -> Any:
        """Return the optimiser for the training loop, wrapped if mixed precision was requested."""
        return optimiser

    def backward(self, loss: Tensor, parameters: Iterable[nn.Parameter]) -> None:
        """Compute the gradients of the loss of the whole batch; they are the same in every process."""
        torch.autograd.backward(loss)


class ManyProcesses(Processes):
    """Processes that `torchrun` or fabric started, on one machine or several."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self.rank = fabric.global_rank
        self.count = fabric.world_size
        self.device = fabric.device

    def gather(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, (count · n_rows, …)."""
        gathered: Tensor = self._fabric.all_gather(rows, sync_grads=rows.requires_grad)  # type: ignore[assignment]
        return gathered.flatten(0, 1) if self.count > 1 else rows

    def gather_parts(self, rows: Tensor, size: int) -> Tensor:
        """Return all rows, (size, …)."""
        # Parts may differ by one row, and collectives require equal sizes.
        longest = -(-size // self.count)
        padded = torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])]).to(self.device)
        gathered = self.gather(padded).cpu().view(self.count, longest, *rows.shape[1:])
        sizes = [size * (rank + 1) // self.count - size * rank // self.count for rank in range(self.count)]
        return torch.cat([part[:length] for part, length in zip(gathered, sizes, strict=True)])

    def add(self, values: Tensor) -> Tensor:
        """Return the sum over the processes."""
        if self.count == 1:
            return values
        total: Tensor = self._fabric.all_reduce(values.to(self.device), reduce_op="sum")  # type: ignore[assignment]
        return total.to(values.device)

    def wait(self) -> None:
        self._fabric.barrier()

    def autocast(self) -> AbstractContextManager[object]:
        """Return fabric's context of the requested precision."""
        return self._fabric.autocast()

    def set_up(self, optimiser: torch.optim.Optimizer) -> Any:
        """Return the optimiser as fabric wraps it."""
        return self._fabric.setup_optimizers(optimiser)

    def backward(self, loss: Tensor, parameters: Iterable[nn.Parameter]) -> None:
        self._fabric.backward(loss)
        if self.count == 1:
            return
        # The gradient of a gathered row is the sum over all processes, `count` times that of the loss; parameters that
        # are used after gathering have it once per process. The mean over processes is right for both.
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = self.add(torch.cat([gradient.reshape(-1) for gradient in gradients])) / self.count
        for gradient, mean in zip(gradients, flat.split([len(g.view(-1)) for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))


def start_processes(devices: int | str = 1, nodes: int = 1, precision: str = "32-true") -> Processes:
    """Start the processes of a run, or join those that `torchrun` started.

    Args:
        devices: number of processes on this machine, each with a GPU of its own if there are any; "auto" for all GPUs.
        nodes: number of machines; each of them runs the same command.
        precision: precision of the network on a GPU: "32-true", or "bf16-mixed" or "16-mixed" for mixed precision.

    Returns:
        The processes, as this one takes part in them.

    Raises:
        SettingsError: mixed precision without a GPU.
        MissingPackageError: lightning-fabric is needed and not installed.
    """
    has_gpu = torch.cuda.is_available()
    if devices == "auto" and not has_gpu:
        devices = 1
    if devices == 1 and nodes == 1 and not has_gpu:
        if precision != "32-true":
            raise SettingsError(f"precision is {precision!r} and there is no GPU here. Leave it at '32-true'.")
        return Processes()
    lightning_fabric = import_optional("lightning_fabric", "images", "training on a GPU or in several processes")
    strategy = "auto" if devices == 1 and nodes == 1 else "ddp"
    accelerator = "cuda" if has_gpu else "cpu"
    # fabric checks its arguments itself; it types them as literals.
    options: Any = {"devices": devices, "num_nodes": nodes, "strategy": strategy, "precision": precision}
    fabric = lightning_fabric.Fabric(accelerator=accelerator, **options)
    fabric.launch()
    # Threads of the process group that outlive the interpreter abort the process; fabric ends only those of NCCL.
    atexit.register(_end_process_group)
    return ManyProcesses(fabric)


def _end_process_group() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
