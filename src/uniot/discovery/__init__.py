"""Discover the target's private classes: their number, the groups of unknown samples, and absent source classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniot.discovery.class_count import NumberOfClasses, SeenTarget, number_of_private_classes
    from uniot.discovery.groups import PrivateGroups, absence, private_groups
    from uniot.discovery.kmeans import SphericalClusters, spherical_kmeans
    from uniot.discovery.label_order import label_queue

_HOME = {
    "NumberOfClasses": "class_count",
    "PrivateGroups": "groups",
    "SeenTarget": "class_count",
    "SphericalClusters": "kmeans",
    "absence": "groups",
    "label_queue": "label_order",
    "number_of_private_classes": "class_count",
    "private_groups": "groups",
    "spherical_kmeans": "kmeans",
}

__all__ = [
    "NumberOfClasses",
    "PrivateGroups",
    "SeenTarget",
    "SphericalClusters",
    "absence",
    "label_queue",
    "number_of_private_classes",
    "private_groups",
    "spherical_kmeans",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: the methods cluster with `kmeans`, and `groups` imports the methods.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"uniot.discovery.{_HOME[name]}"), name)
    raise AttributeError(f"module 'uniot.discovery' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__.copy()
