"""Embeddings in safetensors files, whose names live in the metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from uniot.data.embedding_parts import KEYS, Parts, check_letters, roles_of
from uniot.errors import DataError
from uniot.untrusted import parse_json

# safetensors reads no header above 100 MB, and the names live there.
_HEADER_BYTES = 90_000_000


def read_safetensors(path: Path, with_x: bool) -> Parts:
    """Tensors `x` and `y`; class names and names of samples are lists in the metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            names = list(file.keys())
            tensors = {role: file.get_tensor(key) for role, key in roles_of(names, with_x).items()}
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a safetensors file ({error}). It may be cut off; make it again."
        ) from None
    if with_x and "x" not in tensors:
        raise DataError(
            f"{path} holds {', '.join(sorted(names)) or 'nothing'} and no tensor called x. "
            'Save embeddings with `safetensors.torch.save_file({"x": embeddings, "y": labels}, file)`.'
        )
    arrays = {role: _as_array(path, tensor) for role, tensor in tensors.items()}
    y = arrays.get("y")
    if y is not None and "classes" in about:
        y = _class_names(path, np.atleast_1d(y), _json_list(path, "classes", about["classes"]))
    ids = next((_json_list(path, key, about[key]) for key in KEYS["ids"] if key in about), None)
    return Parts(
        arrays.get("x"), None if y is None else np.atleast_1d(y), None if ids is None else [str(name) for name in ids]
    )


def write_safetensors(path: Path, x: np.ndarray, y: np.ndarray | None, ids: Sequence[str] | None) -> None:
    """Labels that are text are written as numbers, with the class names in the metadata."""
    tensors, about = {"x": np.ascontiguousarray(x)}, {}
    if y is not None and y.dtype.kind == "U":
        classes, y = np.unique(y, return_inverse=True)
        about["classes"] = json.dumps(classes.tolist())
    if y is not None:
        tensors["y"] = y.astype(np.int64)
    if ids is not None:
        about["ids"] = json.dumps(list(ids))
    if sum(map(len, about.values())) > _HEADER_BYTES:
        raise DataError("the names are too long for a .safetensors file, which keeps them in its header. Use .parquet.")
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, about)
    except SafetensorError as error:  # a full disk arrives as one
        raise OSError(str(error)) from error
    # safetensors puts a file of its own in the place, which nobody else may read.
    path.chmod(mode)


def _as_array(path: Path, tensor: Tensor) -> np.ndarray:
    # NumPy has no bfloat16 and no 8-bit floats; float32 holds each of them exactly.
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        try:
            tensor = tensor.float()
        except NotImplementedError:  # numbers of 4 bits, which torch stores and does not compute with
            raise DataError(f"{path} holds numbers of type {tensor.dtype}. Save them as float32.") from None
    return np.asarray(tensor.numpy())


def _json_list(path: Path, key: str, text: str) -> list[Any]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise DataError(
            f"{path} has metadata {key!r} that is not JSON ({error}). Write it with `json.dumps`."
        ) from None
    if not isinstance(values, list) or not all(isinstance(value, (str, int)) for value in values):
        raise DataError(f"{path} has metadata {key!r} that is not a list of names. Write a JSON list of text.")
    return values


def _class_names(path: Path, y: np.ndarray, classes: list[Any]) -> np.ndarray:
    wrong = y[(y < 0) | (y >= len(classes))] if y.dtype.kind in "iu" else y
    if len(wrong):
        raise DataError(
            f"{path} holds the label {wrong[0]} and names {len(classes)} classes. "
            f"Give whole numbers from 0 to {len(classes) - 1} as y."
        )
    check_letters(path, max(len(y), len(classes)), classes)
    return np.array(classes).take(y)
