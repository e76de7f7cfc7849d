"""Write tensors with a description and a checksum; read them back with their shape, type and range checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from uniot.errors import RunFolderError
from uniot.io.files import parse_json, replacing
from uniot.io.text import command

MAKE_AGAIN = "It is damaged or was not written by uniot; make it again."


@dataclass(frozen=True)
class StoredTensors:
    """Untrusted tensors.

    Attributes:
        where: file that they came from, for error messages.
        tensors: the tensors by name.
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
            name: name of the tensor.
            shape: required size of each dimension; None for any size.
            dtype: required type.
            low: smallest number allowed; None for any.
            high: largest number allowed; None for any.

        Raises:
            RunFolderError: the tensor is missing, or has another shape, type or range.
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
                f"{self.where} has a tensor {name!r} of {came} numbers of type {_named(found.dtype)}; expected "
                f"{wanted} of type {_named(dtype)}. {MAKE_AGAIN}"
            )
        self._check_range(name, found, low, high)
        return found

    def check_finite(self, leave_out: Sequence[str] = ()) -> None:
        """Raise RunFolderError if a tensor has NaN or an infinite number, except for those named in `leave_out`."""
        for name, tensor in self.tensors.items():
            if name not in leave_out:
                self._check_range(name, tensor, None, None)

    def below(self, prefix: str) -> StoredTensors:
        """Return the tensors whose names start with a prefix, under their names without it."""
        some = {name.removeprefix(prefix): part for name, part in self.tensors.items() if name.startswith(prefix)}
        return StoredTensors(self.where, some)

    def _check_range(self, name: str, tensor: Tensor, low: float | None, high: float | None) -> None:
        if not tensor.numel() or tensor.dtype == torch.bool:
            return
        smallest, largest = (float(end) for end in tensor.aminmax())
        # A NaN anywhere makes both ends NaN.
        if not (-float("inf") < smallest and largest < float("inf")):
            value = "NaN" if smallest != smallest else "an infinite number"
            raise RunFolderError(f"{self.where} holds {value} in {name!r}; expected finite numbers. {MAKE_AGAIN}")
        if (low is not None and smallest < low) or (high is not None and largest > high):
            outside = smallest if low is not None and smallest < low else largest
            raise RunFolderError(
                f"{self.where} holds {outside:g} in {name!r}; expected numbers "
                f"{'up' if low is None else f'from {low:g}'}{'' if high is None else f' to {high:g}'}. {MAKE_AGAIN}"
            )


def check_sizes(where: str, module: nn.Module, outline: Mapping[str, Tensor], advice: str = MAKE_AGAIN) -> None:
    """Compare the weights of a module on the meta device with the tensors of a file, without allocating either.

    Args:
        where: the file, for the error message.
        module: a module on the meta device, which may have its own rules for loading.
        outline: the tensors of the file on the meta device.
        advice: what to do about a difference.

    Raises:
        RunFolderError: a tensor is missing or unexpected, or has another shape or type.
    """
    try:
        module.load_state_dict(outline)
    except RuntimeError as error:
        # The first line of torch's message names only the class.
        found = str(error).partition("\n")[2] or str(error)
        raise RunFolderError(f"{where} does not fit its settings ({' '.join(found.split())[:200]}). {advice}") from None
    for name, value in module.state_dict().items():
        if outline[name].dtype != value.dtype:
            raise RunFolderError(
                f"{where} does not fit its settings ({name} is of type {_named(outline[name].dtype)}; expected "
                f"{_named(value.dtype)}). {advice}"
            )


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


FORMAT = "uniot-4"
# Types by their names in a safetensors header.
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
    """Write tensors with a JSON description and a checksum to a safetensors file, atomically."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    described = json.dumps(about)
    metadata = {"format": FORMAT, "about": described, "sha256": _checksum(contiguous, described)}
    with replacing(path) as partial:
        try:
            # save_file creates files that only their owner may read; this one gets the usual permissions.
            partial.touch()
            mode = partial.stat().st_mode
            save_file(contiguous, partial, metadata)
            partial.chmod(mode)
        except SafetensorError as error:  # also raised for a full disk
            raise OSError(str(error)) from error


def describe_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a file on the meta device and its description, without allocating the tensors.

    The checksum is compared only by `read_tensors`.

    Raises:
        RunFolderError: the file is missing, damaged, or of another format.
    """
    with _opened(path) as file:
        described = _description(path, file)
        names: list[str] = list(file.keys())
        shapes = {name: file.get_slice(name) for name in names}
        kinds = {name: str(part.get_dtype()) for name, part in shapes.items()}
        odd = [name for name, kind in kinds.items() if kind not in _DTYPES]
        if odd:
            raise RunFolderError(f"{path} holds {odd[0]!r} as {kinds[odd[0]]}, which uniot never writes. {MAKE_AGAIN}")
        without_numbers = {
            name: torch.empty(part.get_shape(), dtype=_DTYPES[kinds[name]], device="meta")
            for name, part in shapes.items()
        }
    return without_numbers, _parsed(path, described)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description that `write_tensors` wrote.

    Raises:
        RunFolderError: the file is missing, damaged, or of another format.
    """
    with _opened(path) as file:
        described, checksum = _description(path, file), (file.metadata() or {}).get("sha256")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    if _checksum(tensors, described) != checksum:
        raise RunFolderError(
            f"{path} does not match its own checksum: it was changed after it was written. Make it again."
        )
    return tensors, _parsed(path, described)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise RunFolderError(
            f"{path} does not exist. Give the folder of a finished run, or make one: "
            f"{command('adapt', 'labelled/', 'unlabelled/', '--out', path.parent)}"
        )
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except RunFolderError:
        raise
    except (SafetensorError, OSError) as error:
        raise RunFolderError(f"{path} cannot be read ({error}). {MAKE_AGAIN}") from None


def _description(path: Path, file: Any) -> str:
    metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise RunFolderError(
            f"{path} has format {metadata.get('format')!r} and this version of uniot reads {FORMAT!r}. "
            "Install the version that wrote it, or make it again."
        )
    return str(metadata.get("about", ""))


def _parsed(path: Path, described: str) -> dict[str, Any]:
    try:
        about = parse_json(described)
    except ValueError as error:
        raise RunFolderError(f"{path} has a description that is not JSON ({error}). {MAKE_AGAIN}") from None
    if not isinstance(about, dict):
        raise RunFolderError(f"{path} has a description that is not a JSON object: {described[:40]}. {MAKE_AGAIN}")
    return about


def _checksum(tensors: Mapping[str, Tensor], described: str) -> str:
    digest = hashlib.sha256(described.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
