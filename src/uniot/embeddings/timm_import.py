"""The import of timm, which is optional, slow, and fails beside a torchvision that was built for another torch."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from uniot.errors import DataError

_MISSING_OPERATOR = "operator torchvision::nms does not exist"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@cache
def import_timm() -> ModuleType:
    """The module timm.

    The torchvision of PyPI beside a CPU-only torch lacks its compiled operators and stops at the first that it
    describes. Only detection needs them, so they are declared, without a body, and the import goes on.
    """
    try:
        return import_module("timm")
    except ImportError as error:
        raise DataError(_not_importable(error)) from error
    except RuntimeError as error:
        if _MISSING_OPERATOR not in str(error):
            raise DataError(_not_importable(error)) from error
    _declare_operators()
    try:
        return import_module("timm")
    except (ImportError, RuntimeError) as error:
        raise DataError(_not_importable(error)) from error


@cache
def _declare_operators() -> torch.library.Library:
    # Operators live as long as the library that declares them; the cache keeps it.
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + _SCHEMA)
    return library


def _not_importable(error: Exception) -> str:
    return (
        f"image backbones come from timm, which cannot be imported ({str(error).partition(chr(10))[0]}). "
        "Run `pip install 'uniot[images]'`."
    )
