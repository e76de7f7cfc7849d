"""A run is a folder. Every file is written beside its place and renamed, so none is ever half there."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from uniot.errors import RunFolderError
from uniot.stored_tensors import MAKE_AGAIN
from uniot.untrusted import parse_json

FORMAT = "uniot-3"
# Names of types in a safetensors header.
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


def open_lock(path: Path) -> BinaryIO:
    """Open the file of a lock, made if there is none; a link or a pipe in its place is an OSError.

    Somebody else may have made the folder: opening a link would change the file that it leads to.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.fdopen(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666), "rb+", buffering=0)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return cast(BinaryIO, file)
    file.close()
    raise OSError(errno.EINVAL, f"{path.name} is not a regular file", str(path))


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


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes a CSV table whole or not at all; without rows there is no file."""
    if not rows:
        path.unlink(missing_ok=True)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())


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


def describe_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a file without their numbers, on the meta device, and the description; allocates nothing.

    The checksum is compared by `read_tensors`.
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
    """Reads what `write_tensors` wrote; anything else is an error that says what to do."""
    with _opened(path) as file:
        described, checksum = _description(path, file), (file.metadata() or {}).get("sha256")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    if _checksum(tensors, described) != checksum:
        raise RunFolderError(
            f"{path} does not match its own checksum: it was changed after it was written. Make the run again."
        )
    return tensors, _parsed(path, described)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise RunFolderError(
            f"{path} does not exist. Give the folder of a finished run, or run `uniot adapt … --out {path.parent}`."
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
            "Install the version that wrote it, or make the run again."
        )
    return str(metadata.get("about", ""))


def _parsed(path: Path, described: str) -> dict[str, Any]:
    try:
        about = parse_json(described)
    except ValueError as error:
        raise RunFolderError(f"{path} has a description that is not JSON ({error}). {MAKE_AGAIN}") from None
    if not isinstance(about, dict):
        raise RunFolderError(f"{path} has a description that is no JSON object, but {described[:40]}. {MAKE_AGAIN}")
    return about


@contextmanager
def only_one_writer(folder: Path) -> Iterator[None]:
    """Keeps a second process out of a run folder; the system lets go of the lock when a process dies.

    A folder that was not there before, and that a failure leaves empty, is removed.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(_folder_made(folder))
            lock = stack.enter_context(open_lock(folder / ".lock"))
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
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
