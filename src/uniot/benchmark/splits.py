"""Class splits: which classes are common and which are private, from a TOML file or from lists of names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uniot.benchmark.tasks import folder_name
from uniot.datasets.catalogue import ClassSplit
from uniot.datasets.unpacked import plain
from uniot.errors import DataError
from uniot.io.text import listed, read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SPLIT_KEYS = ("common", "source_private", "target_private")


def custom_split(common: Sequence[str], source_private: Sequence[str], target_private: Sequence[str]) -> ClassSplit:
    """Return a split; raise DataError if a class is in it twice or a domain has too few classes."""
    parts = (common, source_private, target_private)
    seen: set[str] = set()
    for name in (name for part in parts for name in part):
        if name in seen:
            raise DataError(f"class {name!r} is in the split twice. A class is common, or private to one side.")
        seen.add(name)
    split = ClassSplit(*(tuple(part) for part in parts))
    if len(split.source) < 2:
        raise DataError(
            f"the split gives the source {len(split.source)} classes. Give it at least two, common or private to it."
        )
    if not split.target:
        raise DataError("the split gives the target no class. Give it common classes, or private ones.")
    return split


def read_split(path: Path) -> tuple[str, ClassSplit]:
    """Return the name and the split of a TOML file with three lists of class names.

    The name is the entry `name = "…"`, or else the name of the file.
    """
    advice = 'Write three lists of class names: common = ["mug", "pen"], source_private and target_private.'
    try:
        values: dict[str, Any] = tomllib.loads(read_text(path, advice))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not valid TOML ({error}). {advice}") from None
    name = values.pop("name", path.stem)
    unexpected = [key for key in values if key not in _SPLIT_KEYS]
    if unexpected:
        raise DataError(f"{path} has the unexpected keys {listed(unexpected)}. {advice}")
    for key, names in values.items():
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise DataError(f"{key} in {path} is {names!r}. {advice}")
    return folder_name(name, "the name of the split"), custom_split(*(values.get(key, []) for key in _SPLIT_KEYS))


def check_split(split: ClassSplit, classes: set[str]) -> None:
    """Raise DataError if the split has a class that is in neither domain.

    A single domain may lack a class: no painting of DomainNet is a t-shirt.

    Args:
        split: common and private classes.
        classes: class names of both domains.
    """
    known = set(map(plain, classes))
    missing = [name for name in (*split.source, *split.target_private) if plain(name) not in known]
    if missing:
        raise DataError(
            f"the split has classes that neither domain has: {listed(missing)}. The domains have "
            f"{listed(sorted(classes))}. Compare the spelling; if they are missing, --incomplete makes a trial without "
            "them."
        )
