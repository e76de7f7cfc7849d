"""The reference pages name everything that is public, and nothing that is not there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NAMED = [
    name
    for page in sorted((DOCS / "reference").glob("*.md"))
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.M)
]
ROOMS = [
    "uniot",
    "uniot.benchmark",
    "uniot.data_quality",
    "uniot.datasets",
    "uniot.discovery.groups",
    "uniot.distributed",
    "uniot.discovery.label_order",
    "uniot.discovery.class_count",
    "uniot.errors",
    "uniot.estimators",
    "uniot.methods",
    "uniot.metrics",
    "uniot.runs",
    "uniot.transport",
]


def resolved(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        room, _, last = name.rpartition(".")
        return getattr(import_module(room), last)


def public(module: ModuleType) -> list[str]:
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return list(getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")])


@pytest.mark.parametrize("name", NAMED)
def test_what_a_page_names_is_there(name):
    assert resolved(name) is not None


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_on_a_page(room):
    shown = []
    for name in NAMED:
        value = resolved(name)
        # A page that names a room shows its public names.
        shown += [getattr(value, part) for part in public(value)] if isinstance(value, ModuleType) else [value]
    module = import_module(room)
    missing = [name for name in public(module) if not any(getattr(module, name) is value for value in shown)]
    assert public(module)
    assert not missing
