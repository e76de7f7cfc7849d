"""Provide toy domains for first steps, the digits of the demo, and the benchmark data sets with their splits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniot.datasets.digits import ToyDomains, make_toy_domains

__all__ = ["ToyDomains", "make_toy_domains"]


def __getattr__(name: str) -> Any:
    # Imported on first use: the list of benchmark data sets does not need torch.
    if name in __all__:
        from uniot.datasets import digits

        return getattr(digits, name)
    raise AttributeError(f"module 'uniot.datasets' has no attribute {name!r}")
