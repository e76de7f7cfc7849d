"""What commands refuse before any work: places that cannot be written, and options that would have no effect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from uniot.errors import RunFolderError, SettingsError
from uniot.words import plural


def check_writable(file: Path, suffixes: Sequence[str] = ()) -> None:
    """Refuse a file that could not be written after the work.

    Args:
        file: to be written; its folders need not exist.
        suffixes: those that it may end with; any if empty.
    """
    if suffixes and file.suffix.lower() not in suffixes:
        raise RunFolderError(f"{file} ends with {file.suffix!r}. Give a file that ends with {', '.join(suffixes)}.")
    if file.is_dir():
        raise RunFolderError(f"{file} is a folder. Give the name of a file.")
    check_folder(file.parent)


def check_folder(folder: Path) -> None:
    """Refuse a folder that could not be made, or not be written to."""
    place = next((here for here in (folder, *folder.absolute().parents) if here.exists()), Path("/"))
    if not place.is_dir():
        raise RunFolderError(f"{place} is a file, so that nothing can be written to {folder}. Give another folder.")
    if not os.access(place, os.W_OK):
        raise RunFolderError(f"{place} cannot be written to. Give a folder that is yours to write.")


def refuse_for_embeddings(options: Mapping[str, object], why: str) -> None:
    """Refuse options for images that were given with embeddings.

    Args:
        options: each with its value, None if it was not given.
        why: what came instead of images.
    """
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise SettingsError(
            f"{', '.join(given)} {plural(len(given), 'is', 'are')} for images, and {why}. Leave it out."
        )
