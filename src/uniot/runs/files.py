"""The files of a run folder: the name of each, and the text that tells people what they contain."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from uniot.methods.fitted import StoredTarget
    from uniot.training.model import AdaptedModel

LABEL_COLUMNS = ("path", "label", "decision", "group")
"""Columns of `RunFiles.labels` and `RunFiles.names`."""

Stamp = tuple[int, int, int]

_WIDTH, _INDENT = 100, 22


class RunFiles:
    """The paths of the files of a run folder, which need not exist.

    Examples:
        >>> RunFiles(Path("run")).predictions
        PosixPath('run/predictions.csv')
    """

    SHARED = (
        "README.md",
        "settings.toml",
        "history.csv",
        "features.safetensors",
        "backbone.safetensors",
        "model.safetensors",
    )
    """Names of the files that a shared run consists of. The model comes last: if it is there, so are the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.card, self.settings, self.history, self.features, self.backbone, self.model = (
            folder / name for name in self.SHARED
        )
        self.predictions = folder / "predictions.csv"
        self.predictions_parquet = folder / "predictions.parquet"
        self.contents = folder / "contents.txt"
        self.metrics = folder / "metrics.json"
        self.report = folder / "report.html"
        self.checkpoints = folder / "checkpoints"
        self.checkpoint = self.checkpoints / "last.safetensors"
        self.tensorboard = folder / "tensorboard"
        # Labels by people: those that the run began with, those given since, and the database of the labelling page.
        self.names = folder / "names.csv"
        self.labels = folder / "labels.csv"
        self.annotations = folder / "labels.sqlite"
        self.labelling_lock = folder / ".labels.lock"
        self.thumbnails = folder / "thumbnails.sqlite"
        # What was found in the collections.
        self.skipped = folder / "skipped.csv"
        self.duplicates = folder / "duplicates.csv"
        self.suspect_labels = folder / "suspect_labels.csv"
        self.near_duplicates = folder / "near_duplicates.csv"
        # Where the images are, or the images themselves if they came as arrays.
        self.image_paths = folder / "images.json"
        self.pixels = folder / "pictures.safetensors"

    def written_by_run(self) -> list[Path]:
        """Return the files that belong to the run itself; labels that people gave since do not."""
        by_people = {self.labels, self.annotations, self.labelling_lock, self.thumbnails}
        others = {self.folder, self.card, self.checkpoints, self.tensorboard}
        return [path for path in vars(self).values() if path not in by_people | others]

    def needed_to_predict(self) -> list[Path]:
        """Return the files of the folder that predictions for new samples depend on."""
        written_ahead = self.annotations.with_name(f"{self.annotations.name}-wal")
        shared = [self.folder / name for name in self.SHARED]
        return [path for path in (*shared, self.predictions, self.annotations, written_ahead) if path.is_file()]

    def exported_labels(self, kind: str) -> Path:
        """Return the path that labels are exported to in a format: csv, jsonl, coco, fiftyone or label-studio."""
        if kind == "csv":
            return self.labels
        endings = {"jsonl": ".jsonl", "fiftyone": "-fiftyone"}
        return self.folder / f"labels{endings.get(kind, f'-{kind}.json')}"

    def stamp(self) -> Stamp | None:
        """Return inode, time and size of the model's file, which change if it is written again; None without it."""
        try:
            status = self.model.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def contents_text(model: AdaptedModel, features: Mapping[str, Tensor]) -> str:
    """Return a text that lists the files of a run and the samples that each contains, for those who share the folder.

    Args:
        model: the model that is saved.
        features: tensors for the report and the labelling page.
    """
    n_target, rows = len(model.target), model.source.rows
    labelled = "class means of the source model" if len(rows) and (rows < 0).all() else "labelled ones"
    state, stored = model.method.state_dict(), model.method.stored_target()
    kept = _of_samples(stored, trained=bool(model.history.rows))
    files = RunFiles(Path())
    parts = [
        (files.predictions, "the prediction for each target sample, by its name"),
        (files.settings, "every setting, and where the collections were"),
        (files.model, f"{_size(state)} of weights and of the rule; {kept}"),
        (
            files.features,
            f"{_size(features)}: adapted features, in half precision, of {n_target} target samples and {len(rows)} "
            f"{labelled}, for the report and the labelling page",
        ),
    ]
    if model.history.rows:
        parts.append((files.history, "losses per step"))
    if model.reader is not None:
        parts += [(files.backbone, "the network that reads images"), (files.image_paths, "where the images were")]
    lines = [f"A run of {model.settings.method}: {len(model.classes)} classes, {n_target} target samples.", ""]
    for path, what in parts:
        lines += textwrap.wrap(
            what,
            _WIDTH,
            initial_indent=f"{path.name:{_INDENT}}",
            subsequent_indent=" " * _INDENT,
            break_on_hyphens=False,  # of a broken option, only half would be copied
        )
    lines += [
        "",
        "These files contain no image, and no embedding as it was given. `uniot push` shares a run without samples.",
    ]
    return "\n".join(lines) + "\n"


def judged_by(model: AdaptedModel) -> str:
    """Return a sentence on what new samples will be compared with."""
    stored = model.method.stored_target()
    if stored.n_samples:
        return (
            f"New samples will be compared with these {stored.n_samples}, which the run keeps for that "
            f"({size_of(stored.n_bytes)}; --forget-target leaves them out)."
        )
    if stored.n_means:
        return (
            f"New samples will be compared with {_means(stored)}; no single sample is kept (--forget-target). "
            "Some get another answer than with the target, about one in twenty, and more if the target is small."
        )
    return "New samples will be judged each by itself, by the same rule."


def _of_samples(stored: StoredTarget, *, trained: bool) -> str:
    averages = f"{_means(stored)}, and a linear map fitted to all of them" if stored.n_means else ""
    if not stored.n_samples and trained:
        kept = "what the method kept of the target for its training, such as a queue of features, is among the weights"
        return f"{averages}; {kept}" if averages else kept
    if not stored.n_samples:
        return f"no single sample is in it, but {averages}" if averages else "no sample is in it"
    return (
        f"{size_of(stored.n_bytes)} of that is {stored.n_samples} target samples, {stored.n_features} "
        f"numbers each in half precision, and which {stored.n_neighbours} are nearest to each; --forget-target "
        f"(store_target=False in Python) leaves them out and keeps {averages or 'none'}"
    )


def _means(stored: StoredTarget) -> str:
    return f"{stored.n_means} averages of at least {stored.least_averaged} target samples each"


def _size(tensors: Mapping[str, Tensor]) -> str:
    return size_of(sum(tensor.nbytes for tensor in tensors.values()))


def size_of(n_bytes: float) -> str:
    """Return a number of bytes in words, such as 1.5 MB."""
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"
