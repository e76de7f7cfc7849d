"""Compute a frozen trunk with ONNX Runtime, which takes less than half of torch's time on a CPU.

A trunk is exported once, compared with torch, and kept as a file in the user's cache. If it cannot be exported or the
outputs differ, the file records that, and torch computes the trunk.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from uniot.errors import DataError, RunFolderError
from uniot.images.store import default_folder
from uniot.io.files import parse_json, replacing

if TYPE_CHECKING:
    from uniot.images.preparation import Pixels, Preparation
    from uniot.images.splitting import Split

ENGINE = "onnxruntime"

# Increased when the same trunk is exported in another way.
_FORMAT = "uniot-graph-1"
_OPSET = 17
_TOLERANCE = 1e-3
# Of all files together; the default network takes 14 MB.
_MOST_BYTES = 1_000_000_000
_MOST_HEADER = 10_000
_MOST_OPEN = 2

_lock = threading.Lock()
_open: dict[str, Graph | None] = {}


class Graph:
    """A trunk in ONNX Runtime; one image at a time on the calling thread, so that a row depends on the image alone.

    Batches would not be faster. Several threads may compute at the same time.

    Args:
        content: an ONNX model.
    """

    def __init__(self, content: bytes) -> None:
        runtime: Any = import_module(ENGINE)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    @property
    def width(self) -> int:
        """Return the length of a row, or of its first dimension."""
        return int(self._session.get_outputs()[0].shape[1])

    def row(self, pixels: Pixels) -> NDArray[np.float32]:
        """Return the output of the trunk for the pixels of an image, (3, crop, crop)."""
        row: NDArray[np.float32] = self._session.run(None, {"pixels": np.ascontiguousarray(pixels)[None]})[0][0]
        return row


def graph_of(split: Split) -> Graph | None:
    """Return the trunk of a split backbone as a graph; None if torch has to compute it.

    The choice depends on the installed packages, the device and the trunk only, so that the same command always has
    the same result.
    """
    if split.device.type != "cpu" or not _installed():
        return None
    key = split.made_by
    with _lock:
        if not _is_open(key):
            _keep_open(key, _exported(split, key))
        return _open[key]


def cached_graph(made_by: str) -> Graph | None:
    """Return the graph of a trunk on the CPU if it was exported before, and None otherwise.

    Args:
        made_by: `Split.made_by` of the trunk.
    """
    if not _installed():
        return None
    with _lock:
        return _open[made_by] if _is_open(made_by) else None


def graph_folder() -> Path:
    """Return the folder of the graphs, beside the default folder of the embeddings."""
    return default_folder().with_name("graphs")


def _installed() -> bool:
    # Both, although a graph in the cache does not need onnx: the cache must not decide.
    try:
        return all(find_spec(name) is not None for name in (ENGINE, "onnx")) and import_module(ENGINE) is not None
    except (ImportError, ValueError):
        return False


def _is_open(key: str) -> bool:
    """Return whether it is known how a trunk is computed, after looking in the cache."""
    if key not in _open:
        with suppress(OSError, ValueError):
            _keep_open(key, _read(_path(key), key))
    return key in _open


def _keep_open(key: str, graph: Graph | None) -> None:
    while len(_open) >= _MOST_OPEN:
        del _open[next(iter(_open))]
    _open[key] = graph


def _path(key: str) -> Path:
    return graph_folder() / f"{hashlib.sha256(f'{_FORMAT} {key}'.encode()).hexdigest()[:32]}.onnx"


def _read(path: Path, key: str) -> Graph | None:
    """Return the graph of a file; None if the file says that there is none.

    Raises:
        OSError: the file is missing or unreadable.
        ValueError: it is damaged, belongs to another trunk, or tells of a failure of other packages than these.
    """
    with path.open("rb") as file:
        header = parse_json(file.readline(_MOST_HEADER).decode())
        content = file.read(_MOST_BYTES + 1)
    if not isinstance(header, dict) or header != _header(key, content):
        raise ValueError(f"{path} is damaged")
    with suppress(OSError):
        os.utime(path)  # the graphs that were not used for the longest time are removed first
    if not content:
        return None
    try:
        return Graph(content)
    except Exception as error:  # each error of ONNX Runtime is a class of its own
        raise ValueError(f"{path} cannot be run") from error


def _header(key: str, content: bytes) -> dict[str, str]:
    header = {"format": _FORMAT, "trunk": key, "sha256": hashlib.sha256(content).hexdigest()}
    if content:
        return header
    # Other versions may succeed.
    return header | {"failed_with": f"torch {torch.__version__}, {ENGINE} {import_module(ENGINE).__version__}"}


def _exported(split: Split, key: str) -> Graph | None:
    """Export a trunk, compare it with torch, and write it to the cache; return None if it cannot be used."""
    network = _FromPixels(split.trunk, split.preparation).eval()
    graph, content = None, b""
    try:
        content = _onnx(network, split.preparation.crop)
        graph = Graph(content)
        agrees = _agree(graph, network, split.preparation.crop)
    except (MemoryError, OSError) as error:  # another time it may succeed
        raise DataError(
            f"the network cannot be prepared for {ENGINE} ({str(error) or 'not enough memory'}). Make room in memory "
            "or on the disk, and run the same command again."
        ) from error
    except Exception:  # exporter and runtime raise errors of every type for layers that they do not know
        agrees = False
    if not agrees:
        graph, content = None, b""
    # A cache that cannot be written costs time, and nothing else.
    with suppress(RunFolderError, OSError):
        with replacing(_path(key)) as partial:
            partial.write_bytes(json.dumps(_header(key, content)).encode() + b"\n" + content)
        _remove_oldest(_path(key))
    return graph


class _FromPixels(nn.Module):
    """A trunk with the normalisation of the pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self, trunk: nn.Module, preparation: Preparation) -> None:
        super().__init__()
        self.trunk = trunk
        self.register_buffer("mean", torch.tensor(preparation.mean).mul(255).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(preparation.std).mul(255).view(3, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        rows: Tensor = self.trunk((pixels.float() - self.mean) / self.std)
        return rows


def _onnx(network: nn.Module, side: int) -> bytes:
    file: Any = io.BytesIO()  # which torch's exporter takes, and its annotations do not mention
    example = torch.zeros(1, 3, side, side, dtype=torch.uint8)
    with torch.no_grad(), warnings.catch_warnings():
        # The exporter warns about every Python number in a network; for a fixed size of the images they are constants.
        warnings.simplefilter("ignore")
        # torch's newer exporter (dynamo=True) takes ten times as long for the same graph.
        torch.onnx.export(
            network, (example,), file, dynamo=False, input_names=["pixels"], output_names=["rows"], opset_version=_OPSET
        )
    content: bytes = file.getvalue()
    return content


def _agree(graph: Graph, network: nn.Module, side: int) -> bool:
    noise = torch.randint(256, (1, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ramp = torch.linspace(0, 255, side).to(torch.uint8).expand(1, 3, side, side)
    for pixels in (noise, ramp):
        with torch.inference_mode():
            expected = network(pixels)[0].numpy()
        difference = np.abs(graph.row(pixels[0].numpy()) - expected).max()
        if not difference <= _TOLERANCE * np.abs(expected).max():  # so that NaN fails too
            return False
    return True


def _remove_oldest(newest: Path) -> None:
    others = [(file.stat().st_mtime, file.stat().st_size, file) for file in newest.parent.glob("*.onnx")]
    total = 0
    for _, size, file in sorted(others, reverse=True):
        total += size
        if total > _MOST_BYTES and file != newest:
            file.unlink(missing_ok=True)
