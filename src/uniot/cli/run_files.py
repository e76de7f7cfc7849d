"""The files of a run folder: written, kept from being mixed up, removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from uniot.errors import RunFolderError

if TYPE_CHECKING:
    from uniot.model import AdaptedModel

_RUN_FILES = (
    "model.safetensors",
    "backbone.safetensors",
    "features.safetensors",
    "settings.toml",
    "predictions.csv",
    "predictions.parquet",
    "history.csv",
    "contents.txt",
    "names.csv",
    "metrics.json",
    "skipped.csv",
    "duplicates.csv",
    "suspect_labels.csv",
    "near_duplicates.csv",
    "images.json",
    "pictures.safetensors",
    "report.html",
)


def finish_run(
    model: AdaptedModel, folder: Path, names: list[str] | None, inputs: dict[str, Any], *, parquet: bool = False
) -> None:
    """Writes what the run found; its checkpoints have done their work."""
    from uniot.model_files import annotations_of, rewrite_answers, save_model, write_answers

    if parquet:
        write_answers(model, folder / "predictions.parquet", names)
    save_model(model, folder, names, inputs)
    annotations = annotations_of(model, folder)
    if annotations is not None:
        # The same run again, after people named its groups.
        rewrite_answers(model.with_annotations(annotations), folder, names)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def warn_of_outdated_names(folder: Path, model: AdaptedModel) -> None:
    """Warn if the folder keeps names that people gave to the groups of an earlier run in it."""
    from uniot.annotations import FILE

    if model.annotations is None and len(model.target) and (folder / FILE).is_file():
        typer.echo(
            f"Warning: {folder / FILE} is about an earlier run in this folder, whose groups were others, so its names "
            f"are not used. Move it away to name the groups of this run with `uniot label {folder}`.",
            err=True,
        )


def clear_run(folder: Path) -> None:
    """Removes what a run wrote, and nothing else: the names that people gave its groups stay."""
    for name in ("checkpoints", "tensorboard"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in _RUN_FILES:
        (folder / name).unlink(missing_ok=True)


def check_names(folder: Path, names: list[str]) -> None:
    """Refuses to give the answers of a finished run to samples of other names."""
    from uniot.answers import read_answers
    from uniot.data.text import as_utf8

    table = folder / "predictions.csv"
    if not table.is_file():
        return
    before, now = read_answers(table).names, [as_utf8(name) for name in names]
    if before != now:
        first = next((f"{new!r} was {old!r}" for old, new in zip(before, now, strict=False) if old != new), "")
        raise RunFolderError(
            f"{folder} holds a finished run of the same samples under other names{first and f' ({first})'}. "
            "Give another folder, or --overwrite to replace it."
        )
