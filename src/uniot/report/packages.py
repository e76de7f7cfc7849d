"""The packages that draw: they come with `uniot[report]` and are imported when something is drawn."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from uniot.errors import DataError


def needed(module: str) -> Any:
    """The module, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(
            f"figures are drawn with {module.split('.', maxsplit=1)[0]}, which cannot be imported ({error}). "
            "Run `pip install 'uniot[report]'`."
        ) from None
