"""Annotations: what people decided about the samples of a target, by the place that each sample is in."""

from __future__ import annotations

from uniot.annotations.annotations import Annotations

__all__ = ["Annotations"]
