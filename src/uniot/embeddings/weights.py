"""Weights of a network: from a file, from the cache of the Hugging Face hub, or downloaded. Nothing is executed."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import torch
from torch import Tensor, nn

from uniot.embeddings.timm_import import import_timm
from uniot.errors import DataError

_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_SECONDS_TO_CONNECT = 5
_SHOWN = 3
_GIVE_ANOTHER = "Give weights of this network, or the name of the network that these weights are of."


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a weights file by name, without what training wrapped around them.

    Args:
        file: .safetensors; or .pth, .pt or .bin as `torch.save` writes them, with tensors in it and nothing that would
            have to be executed. The weights may lie under `state_dict` or `model` and names may begin with `module.`.
    """
    if not file.is_file():
        raise DataError(f"{file} {'is a folder' if file.is_dir() else 'does not exist'}. Give a file of weights.")
    if file.suffix not in _SUFFIXES:
        raise DataError(f"{file} is none of {' '.join(_SUFFIXES)}. Give a file of weights in one of these formats.")
    try:
        found: Any = import_timm().models.load_state_dict(str(file), weights_only=True)
    except Exception as error:  # zip, safetensors and torch each have their own, and text files end in a KeyError
        if "weights_only" in str(error):
            raise DataError(
                f"{file} holds more than tensors, and reading it would run code from it, which uniot never does. "
                "Where you trust it, load its state dict with torch and write that with "
                "`safetensors.torch.save_file(state_dict, 'weights.safetensors')`."
            ) from None
        raise DataError(
            f"{file} cannot be read as weights ({_first_line(error)}). It may be cut off; download it again."
        ) from None
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    if not tensors:
        raise DataError(
            f"{file} holds no tensors by name but {', '.join(map(str, list(found)[:_SHOWN])) or 'nothing'}. "
            "Give the state dict of a network."
        )
    return tensors


def load_into(network: nn.Module, weights: Mapping[str, Tensor], *, name: str, file: Path) -> None:
    """Puts weights into a network without a classifier; all of it must be there, and nothing else but a classifier."""
    # timm keeps beside each family of networks what translates weights from where the family was published.
    translate = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    try:
        translated: dict[str, Tensor] = dict(translate(dict(weights), network) if translate else weights)
    except Exception as error:  # it expects the right file, and fails in its own ways on any other
        raise DataError(f"{file} does not fit {name} ({_first_line(error)}). {_GIVE_ANOTHER}") from error
    wanted, classifier = network.state_dict(), _classifier(network)
    given = {key: value for key, value in translated.items() if not key.startswith(classifier)}
    # Files from before torch 0.4.1 do not count batches, and nothing here does.
    missing = [key for key in wanted if key not in given and not key.endswith("num_batches_tracked")]
    problems = {
        "has no": missing,
        "has, and the network does not,": [key for key in given if key not in wanted],
        "has in another shape": [key for key in wanted if key in given and given[key].shape != wanted[key].shape],
    }
    if any(problems.values()):
        told = "; ".join(f"it {what} {_some(keys)}" for what, keys in problems.items() if keys)
        raise DataError(f"{file} does not fit {name}: {told}. {_GIVE_ANOTHER}")
    network.load_state_dict(given, strict=False)


def weights_at_hand(config: Mapping[str, Any]) -> Path | None:
    """The file of a network's pretrained weights where it was downloaded before.

    Args:
        config: the network's `pretrained_cfg`.
    """
    if config.get("custom_load"):
        return None  # in a format of its own, which only timm reads
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


def unreachable(config: Mapping[str, Any]) -> str | None:
    """Why the host of a network's pretrained weights cannot be reached; None where it can.

    Asked first because the hub's own client tries for a minute before it gives up.
    """
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
    """What names of a classifier's tensors begin with. The network has none, nor what is around it in some networks."""
    config: Mapping[str, Any] = getattr(network, "pretrained_cfg", None) or {}
    layers = config.get("classifier") or ()
    names = [layers] if isinstance(layers, str) else list(layers)
    there = {key.partition(".")[0] for key in network.state_dict()}
    heads = {name.partition(".")[0] for name in names} - there
    return tuple(f"{name}." for name in [*names, *heads])


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:_SHOWN]) + (f" … ({len(keys)} in all)" if len(keys) > _SHOWN else "")


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
