"""Run folders: `Run` reads a finished run, `Run.writer` writes one, and nothing else opens or names their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniot.runs.files import RunFiles
    from uniot.runs.run import Run

_HOME = {"Run": "uniot.runs.run", "RunFiles": "uniot.runs.files"}

__all__ = ["Run", "RunFiles"]


def __getattr__(name: str) -> Any:
    # Imported on first use: file names do not need torch, which takes seconds.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'uniot.runs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__.copy()
