"""The names of the files in a run folder."""

from __future__ import annotations

from pathlib import Path

from uniot.errors import RunFolderError
from uniot.io.text import as_utf8

LABEL_COLUMNS = ("path", "label", "decision", "group")
"""Columns of `RunFiles.labels` and `RunFiles.names`."""
SOURCE_LABEL_COLUMNS = ("path", "label", "decision")
"""Columns of `RunFiles.source_labels`."""
TRUE_LABEL_COLUMNS = ("path", "label")
"""Columns of `RunFiles.true_labels`."""

Stamp = tuple[int, int, int]


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
        "genes.safetensors",
        "model.safetensors",
    )
    """Names of the files that a shared run consists of. The model comes last: if it is there, so are the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.card, self.settings, self.history, self.features, self.backbone, self.gene_projection, self.model = (
            folder / name for name in self.SHARED
        )
        self.predictions = folder / "predictions.csv"
        self.predictions_parquet = folder / "predictions.parquet"
        self.contents = folder / "contents.txt"
        self.metrics = folder / "metrics.json"
        self.true_labels = folder / "true_labels.csv"
        self.report = folder / "report.html"
        self.comparison = folder / "compare.html"
        self.checkpoints = folder / "checkpoints"
        self.checkpoint = self.checkpoints / "last.safetensors"
        self.tensorboard = folder / "tensorboard"
        # Labels by people: those that the run began with, those given since, and the database of the labelling page.
        self.names = folder / "names.csv"
        self.labels = folder / "labels.csv"
        self.annotations = folder / "labels.sqlite"
        # What people said about labels of the source.
        self.source_labels = folder / "source_labels.csv"
        self.labelling_lock = folder / ".labels.lock"
        self.thumbnails = folder / "thumbnails.sqlite"
        # What was found in the collections.
        self.skipped = folder / "skipped.csv"
        self.duplicates = folder / "duplicates.csv"
        self.suspect_labels = folder / "suspect_labels.csv"
        self.near_duplicates = folder / "near_duplicates.csv"
        # True labels of the target, if the run was scored; only the report and a comparison of runs read them.
        # Where the images are, or the images themselves if they came as arrays.
        self.image_paths = folder / "images.json"
        self.pixels = folder / "pictures.safetensors"
        # Texts or links that a person sees in place of pictures, and what describes the groups.
        self.shown = folder / "shown.json"
        self.descriptions = folder / "descriptions.json"
        # The query with its labels, if the samples are cells.
        self.cells = folder / "cells.h5ad"

    @property
    def title(self) -> str:
        """Return the name of the folder, for people."""
        return as_utf8(self.folder.resolve().name)

    def written_by_run(self) -> list[Path]:
        """Return the files that belong to the run itself; labels that people gave since do not."""
        by_people = {self.labels, self.annotations, self.source_labels, self.labelling_lock, self.thumbnails}
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

    def check_unchanged(self, stamp: Stamp | None) -> None:
        """Raise RunFolderError if the run was written again since `stamp`: labels would go to the wrong samples."""
        if self.stamp() != stamp:
            raise RunFolderError(
                f"{self.folder} was made again or moved while it was being labelled. Nothing was changed. Stop "
                "`uniot label` and start it again."
            )

    def stamp(self) -> Stamp | None:
        """Return inode, time and size of the model's file, which change if it is written again; None without it."""
        try:
            status = self.model.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size


def check_run_folder(folder: Path) -> None:
    """Raise RunFolderError if there is no finished run in a folder, as far as its files show."""
    files = RunFiles(folder)
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder. Give the folder of a run made with `uniot adapt`.")
    if not files.model.is_file() and files.checkpoints.exists():
        raise RunFolderError(f"{folder} contains an unfinished run. Run the same command again to resume it.")
