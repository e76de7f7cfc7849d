"""The reference pages name everything that is public, and nothing that is not there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import uniot

DOCS = Path(__file__).parents[2] / "docs"
NAMED = [
    name
    for page in sorted((DOCS / "reference").glob("*.md"))
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.M)
]
# `uniot` itself, every package that it offers, and modules of a package without a list of public names.
ROOMS = [
    "uniot",
    *(f"uniot.{name}" for name in uniot.__all__ if isinstance(getattr(uniot, name), ModuleType)),
    "uniot.discovery.class_count",
    "uniot.discovery.groups",
    "uniot.discovery.label_order",
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
    # A package of the package is a room of its own.
    names = [name for name in public(module) if not isinstance(getattr(module, name), ModuleType)]
    missing = [name for name in names if not any(getattr(module, name) is value for value in shown)]
    assert public(module)
    assert not missing
