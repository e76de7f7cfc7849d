"""One process or many: who holds which part of a batch, and how the parts meet."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from uniot.errors import SettingsError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Processes:
    """This process alone; `ManyProcesses` is the same for several.

    Attributes:
        rank: number of this process, from zero.
        count: how many there are.
        device: where this one computes.
    """

    rank = 0
    count = 1
    device = torch.device("cpu")

    def part(self, size: int) -> slice:
        """Which of `size` consecutive items are this process's own: parts in the order of the ranks, sizes even."""
        return slice(size * self.rank // self.count, size * (self.rank + 1) // self.count)

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, in the order of the ranks; gradients go back to where a row came from.

        Every process must bring equally many rows.
        """
        return rows

    def gather_parts(self, rows: Tensor, size: int) -> Tensor:
        """All `size` rows, of which each process brings its `part`; without gradients."""
        return rows

    def add(self, values: Tensor) -> Tensor:
        """The sum over the processes."""
        return values

    def wait(self) -> None:
        """Until all processes are here."""

    def autocast(self) -> AbstractContextManager[object]:
        """Mixed precision, where it was asked for."""
        return nullcontext()

    def set_up(self, optimiser: torch.optim.Optimizer) -> Any:
        """The optimiser as the training loop calls it; it knows about mixed precision, where that was asked for."""
        return optimiser

    def backward(self, loss: Tensor, parameters: Iterable[nn.Parameter]) -> None:
        """Gradients of the loss of the whole batch, which every process holds; all end with the same gradients."""
        torch.autograd.backward(loss)


class ManyProcesses(Processes):
    """Processes that were started by `torchrun` or by fabric, on one machine or several."""

    def __init__(self, fabric: Fabric) -> None:
        """Takes part in what `start_processes` or `torchrun` began."""
        self._fabric = fabric
        self.rank = fabric.global_rank
        self.count = fabric.world_size
        self.device = fabric.device

    def gather(self, rows: Tensor) -> Tensor:
        gathered: Tensor = self._fabric.all_gather(rows, sync_grads=rows.requires_grad)  # type: ignore[assignment]
        return gathered.flatten(0, 1) if self.count > 1 else rows

    def gather_parts(self, rows: Tensor, size: int) -> Tensor:
        # Parts may differ by one row; collectives want equal ones.
        longest = -(-size // self.count)
        padded = torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])]).to(self.device)
        gathered = self.gather(padded).cpu().view(self.count, longest, *rows.shape[1:])
        sizes = [size * (rank + 1) // self.count - size * rank // self.count for rank in range(self.count)]
        return torch.cat([part[:length] for part, length in zip(gathered, sizes, strict=True)])

    def add(self, values: Tensor) -> Tensor:
        if self.count == 1:
            return values
        total: Tensor = self._fabric.all_reduce(values.to(self.device), reduce_op="sum")  # type: ignore[assignment]
        return total.to(values.device)

    def wait(self) -> None:
        self._fabric.barrier()

    def autocast(self) -> AbstractContextManager[object]:
        return self._fabric.autocast()

    def set_up(self, optimiser: torch.optim.Optimizer) -> Any:
        return self._fabric.setup_optimizers(optimiser)

    def backward(self, loss: Tensor, parameters: Iterable[nn.Parameter]) -> None:
        self._fabric.backward(loss)
        if self.count == 1:
            return
        # Gathering sends a row the gradients of all processes, `count` times that of the loss; what is computed from
        # gathered rows has it once in each process. The mean is the gradient of the loss for both.
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = self.add(torch.cat([gradient.reshape(-1) for gradient in gradients])) / self.count
        for gradient, mean in zip(gradients, flat.split([len(g.view(-1)) for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))


def start_processes(devices: int | str = 1, nodes: int = 1, precision: str = "32-true") -> Processes:
    """Joins or starts the processes of a run; one process on the CPU needs nothing.

    Args:
        devices: processes on this machine, each with its GPU where there are any; "auto" for all GPUs.
        nodes: machines; each of them runs the same command.
        precision: of the network on a GPU, "bf16-mixed" or "16-mixed" for mixed precision.
    """
    has_gpu = torch.cuda.is_available()
    if devices == "auto" and not has_gpu:
        devices = 1
    if devices == 1 and nodes == 1 and not has_gpu:
        if precision != "32-true":
            raise SettingsError(f"precision is {precision!r} and there is no GPU here. Leave it at '32-true'.")
        return Processes()
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise SettingsError(
            f"more than one process needs lightning-fabric, which cannot be imported ({error}). "
            "Run `pip install 'uniot[images]'`."
        ) from None
    strategy = "auto" if devices == 1 and nodes == 1 else "ddp"
    accelerator = "cuda" if has_gpu else "cpu"
    # fabric types each of its arguments as the literals it knows; it checks them itself.
    options: Any = {"devices": devices, "num_nodes": nodes, "strategy": strategy, "precision": precision}
    fabric = Fabric(accelerator=accelerator, **options)
    fabric.launch()
    return ManyProcesses(fabric)
