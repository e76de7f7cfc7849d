"""Tensors from a file, of which shape, type and range are checked when they are taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from uniot.errors import RunFolderError

MAKE_AGAIN = "It is damaged or was not written by uniot; make the run again."


@dataclass(frozen=True)
class StoredTensors:
    """Tensors of which nothing is known yet.

    Attributes:
        where: what they came from, for messages.
        tensors: by name.
    """

    where: str
    tensors: Mapping[str, Tensor]

    def take(
        self,
        name: str,
        shape: Sequence[int | None],
        dtype: torch.dtype,
        *,
        low: float | None = None,
        high: float | None = None,
    ) -> Tensor:
        """Return a tensor of finite numbers.

        Args:
            name: of the tensor.
            shape: the size of each dimension; None for any size.
            dtype: the type that it must have.
            low: smallest number that it may hold; any if None.
            high: largest number that it may hold; any if None.

        Raises:
            RunFolderError: there is no such tensor, or it is another.
        """
        if name not in self.tensors:
            raise RunFolderError(f"{self.where} has no tensor {name!r}. {MAKE_AGAIN}")
        found = self.tensors[name]
        fits = len(shape) == found.ndim and all(
            wanted in (None, size) for wanted, size in zip(shape, found.shape, strict=True)
        )
        if not fits or found.dtype != dtype:
            wanted = " × ".join("any" if size is None else str(size) for size in shape) or "a single number"
            came = " × ".join(map(str, found.shape)) or "a single number"
            raise RunFolderError(
                f"{self.where} has a tensor {name!r} of {came} numbers of type {_named(found.dtype)}; expected were "
                f"{wanted} of type {_named(dtype)}. {MAKE_AGAIN}"
            )
        self._check_range(name, found, low, high)
        return found

    def check_finite(self, leave_out: Sequence[str] = ()) -> None:
        """Raise RunFolderError if a tensor holds NaN or an infinite number, but for those left out."""
        for name, tensor in self.tensors.items():
            if name not in leave_out:
                self._check_range(name, tensor, None, None)

    def below(self, prefix: str) -> StoredTensors:
        """Tensors whose name begins so, without the beginning."""
        some = {name.removeprefix(prefix): part for name, part in self.tensors.items() if name.startswith(prefix)}
        return StoredTensors(self.where, some)

    def _check_range(self, name: str, tensor: Tensor, low: float | None, high: float | None) -> None:
        if not tensor.numel() or tensor.dtype == torch.bool:
            return
        smallest, largest = (float(end) for end in tensor.aminmax())
        # A NaN anywhere makes both ends NaN.
        if not (-float("inf") < smallest and largest < float("inf")):
            value = "NaN" if smallest != smallest else "an infinite number"
            raise RunFolderError(f"{self.where} holds {value} in {name!r}; expected were finite numbers. {MAKE_AGAIN}")
        if (low is not None and smallest < low) or (high is not None and largest > high):
            outside = smallest if low is not None and smallest < low else largest
            raise RunFolderError(
                f"{self.where} holds {outside:g} in {name!r}; expected were numbers "
                f"{'up' if low is None else f'from {low:g}'}{'' if high is None else f' to {high:g}'}. {MAKE_AGAIN}"
            )


def check_sizes(where: str, module: nn.Module, outline: Mapping[str, Tensor], advice: str = MAKE_AGAIN) -> None:
    """Compare the weights of a module on the meta device with the tensors of a file, without allocating either.

    Args:
        where: the file, for the message.
        module: on the meta device; its own rules about what it loads apply.
        outline: the tensors of the file without their numbers.
        advice: what to do about a difference.

    Raises:
        RunFolderError: a tensor is missing, is one too many, or has another shape or type.
    """
    try:
        module.load_state_dict(outline)
    except RuntimeError as error:
        # The first sentence of torch names only the class.
        found = str(error).partition("\n")[2] or str(error)
        raise RunFolderError(f"{where} does not fit its settings ({' '.join(found.split())[:200]}). {advice}") from None
    for name, value in module.state_dict().items():
        if outline[name].dtype != value.dtype:
            raise RunFolderError(
                f"{where} does not fit its settings ({name} is of type {_named(outline[name].dtype)}; expected was "
                f"{_named(value.dtype)}). {advice}"
            )


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
