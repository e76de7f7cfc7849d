"""A run is a folder. Every file is written beside its place and renamed, so none is ever half there."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from uniot.errors import RunFolderError

FORMAT = "uniot-3"

if sys.platform == "win32":
    import msvcrt

    def lock_file(descriptor: int) -> None:
        """Locks an open file for this process, or raises OSError."""
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def lock_file(descriptor: int) -> None:
        """Locks an open file for this process, or raises OSError."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends well, and vanishes when it does not."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with _folder_made(path.parent):
            try:
                yield partial
                with partial.open("rb+") as written:
                    os.fsync(written.fileno())
                partial.replace(path)
            finally:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written ({error.strerror or error}). Check that the folder exists, that it is "
            "yours to write, and that the disk has room; then run the same command again."
        ) from error


@contextmanager
def _folder_made(folder: Path) -> Iterator[None]:
    """Makes a folder, and its parents; what was made goes again if the block fails and leaves it empty."""
    made = list(takewhile(lambda place: not place.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for place in made:
                place.rmdir()
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
    """Writes tensors with a JSON description and a checksum; never a pickle."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    described = json.dumps(about)
    metadata = {"format": FORMAT, "about": described, "sha256": _checksum(contiguous, described)}
    with replacing(path) as partial:
        try:
            # save_file makes files that only their owner may read; this one is as readable as any other.
            partial.touch()
            mode = partial.stat().st_mode
            save_file(contiguous, partial, metadata)
            partial.chmod(mode)
        except SafetensorError as error:  # a full disk arrives as one
            raise OSError(str(error)) from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Reads what `write_tensors` wrote; anything else is an error that says what to do."""
    if not path.is_file():
        raise RunFolderError(
            f"{path} does not exist. Give the folder of a finished run, or run `uniot adapt … --out {path.parent}`."
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise RunFolderError(
            f"{path} cannot be read ({error}). It is damaged or was not written by uniot; make the run again."
        ) from None
    if metadata.get("format") != FORMAT:
        raise RunFolderError(
            f"{path} has format {metadata.get('format')!r} and this version of uniot reads {FORMAT!r}. "
            "Install the version that wrote it, or make the run again."
        )
    described = metadata.get("about", "")
    if _checksum(tensors, described) != metadata.get("sha256"):
        raise RunFolderError(
            f"{path} does not match its own checksum: it was changed after it was written. Make the run again."
        )
    about: dict[str, object] = json.loads(described)
    return tensors, about


@contextmanager
def only_one_writer(folder: Path) -> Iterator[None]:
    """Keeps a second process out of a run folder; the system lets go of the lock when a process dies.

    A folder that was not there before, and that a failure leaves empty, is removed.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(_folder_made(folder))
            lock = stack.enter_context((folder / ".lock").open("w"))
        except OSError as error:
            raise RunFolderError(
                f"{folder} cannot be written ({error.strerror}). Give a folder that is yours to write."
            ) from error
        try:
            lock_file(lock.fileno())
            # The lock counts only if the file is still there: a process that ends removes it.
            if os.fstat(lock.fileno()).st_ino != (folder / ".lock").stat().st_ino:
                raise OSError("the lock was replaced")
        except OSError:
            raise RunFolderError(
                f"another uniot process is writing to {folder}. Wait for it, or give another folder."
            ) from None
        try:
            for left_by_a_killed_process in folder.rglob(".*.partial"):
                left_by_a_killed_process.unlink(missing_ok=True)
            yield
        finally:
            (folder / ".lock").unlink(missing_ok=True)


def _checksum(tensors: Mapping[str, Tensor], described: str) -> str:
    digest = hashlib.sha256(described.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()
