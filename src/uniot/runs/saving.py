"""Write run folders: the model, the tables beside it, and the checkpoints of an unfinished run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uniot.annotations.places import start_places
from uniot.errors import RunFolderError
from uniot.io.csv_tables import write_table
from uniot.io.files import only_one_writer, replacing, write_text
from uniot.io.predictions import Prediction, PredictionWriter, read_predictions
from uniot.io.tensor_files import describe_tensors, read_tensors, write_tensors
from uniot.io.text import as_utf8, command
from uniot.methods.registry import METHODS
from uniot.runs.annotations import read_annotations
from uniot.runs.contents import contents_text
from uniot.runs.files import LABEL_COLUMNS, SOURCE_LABEL_COLUMNS, TRUE_LABEL_COLUMNS, RunFiles
from uniot.runs.group_descriptions import GroupDescriptions
from uniot.runs.pictures import write_paths, write_pixels, write_places
from uniot.runs.texts import write_texts

if TYPE_CHECKING:
    from types import TracebackType

    from uniot.data_quality.checks import CheckedCollections
    from uniot.images.embedding import Skipped
    from uniot.images.files import ImageFile
    from uniot.io.shown import Shown
    from uniot.runs.gene_projection import GeneProjection
    from uniot.training.model import AdaptedModel

# A short write, of a table or a page, takes less than a second.
_SECONDS_TO_WAIT = 10.0
_PREDICTION = tuple(part.name for part in fields(Prediction))


class RunWriter:
    """The only object that writes into a run folder; a context manager that locks the folder.

    `files`, `finished` and `checkpoints.load` only read, and may be used without the lock: by the processes of a run
    that do not write.

    Args:
        folder: created if it does not exist.
        wait: whether to wait some seconds for another writer; for short writes.

    Raises:
        RunFolderError: the folder cannot be written, or another process is writing to it.

    Examples:
        >>> with Run.writer("run/") as writer:
        ...     writer.save(model, names)
    """

    def __init__(self, folder: Path, *, wait: bool = False) -> None:
        self.folder = folder
        self.files = RunFiles(folder)
        self.checkpoints = CheckpointFile(self.files)
        self._wait_seconds = _SECONDS_TO_WAIT if wait else 0.0
        self._lock = ExitStack()

    def __enter__(self) -> RunWriter:
        self._lock.enter_context(only_one_writer(self.folder, self._wait_seconds))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def clear(self) -> None:
        """Remove the files of a run and nothing else; labels that people gave stay."""
        for folder in (self.files.checkpoints, self.files.tensorboard):
            shutil.rmtree(folder, ignore_errors=True)
        for path in self.files.written_by_run():
            path.unlink(missing_ok=True)

    def finished(self, fingerprint: str) -> AdaptedModel | None:
        """Return the model of the finished run in the folder; None if there is none.

        Raises:
            RunFolderError: the folder has a run of another fingerprint, that is, of other data or settings.
        """
        from uniot.runs.loading import load_model

        if not self.files.model.is_file():
            return None
        model = load_model(self.folder)
        if model.fingerprint != fingerprint:
            raise RunFolderError(
                f"{self.folder} contains a finished run of other data or other settings. Give another folder, or "
                "replace that run (--overwrite on the command line)."
            )
        return model

    def check_names(self, names: Sequence[str]) -> None:
        """Raise RunFolderError if the finished run in the folder has other sample names than these."""
        if not self.files.predictions.is_file():
            return
        before, now = read_predictions(self.files.predictions).names, [as_utf8(name) for name in names]
        if before != now:
            first = next((f"{new!r} was {old!r}" for old, new in zip(before, now, strict=False) if old != new), "")
            raise RunFolderError(
                f"{self.folder} contains a finished run of the same samples under other names"
                f"{first and f' ({first})'}. Give another folder, or --overwrite to replace it."
            )

    def save(
        self,
        model: AdaptedModel,
        names: Sequence[str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        parquet: bool = False,
    ) -> None:
        """Write a finished run, and remove its checkpoints.

        If the run was written before and labelled since, its predictions follow the annotations.

        Args:
            model: the model to save.
            names: names of the target samples, (n_samples,); their numbers if None.
            inputs: where the data came from, for the settings file.
            parquet: whether predictions are also written as Parquet.

        Raises:
            RunFolderError: the folder contains another run.
        """
        if parquet:
            _write_predictions(self.files.predictions_parquet, model, names)
        save_model(model, self.folder, names, inputs)
        annotations = read_annotations(model, self.folder)
        if annotations is not None:
            self.write_predictions(model.with_annotations(annotations), names)
        self.checkpoints.clear()

    def write_predictions(self, model: AdaptedModel, names: Sequence[str] | None) -> None:
        """Write the tables of predictions again: CSV, and Parquet if the run has such a table."""
        for path in (self.files.predictions, self.files.predictions_parquet):
            if path.is_file():
                _write_predictions(path, model, names)

    def write_metrics(self, values: Mapping[str, object]) -> None:
        """Write scores as JSON."""
        write_text(self.files.metrics, json.dumps(values, indent=2) + "\n")

    def write_true_labels(self, names: Sequence[str], labels: Iterable[object]) -> None:
        """Write the true labels that the run was scored with, for its report; nothing else reads them."""
        lines = ((name, as_utf8(str(label))) for name, label in zip(names, labels, strict=True))
        write_table(self.files.true_labels, TRUE_LABEL_COLUMNS, lines, keep_empty=True)

    def write_report(self, page: str) -> Path:
        """Write the HTML report.

        Returns:
            The path of its file.
        """
        write_text(self.files.report, page)
        return self.files.report

    def write_names(self, lines: Iterable[Sequence[object]]) -> None:
        """Write the labels by people that the run began with: path, label, decision and group per line."""
        write_table(self.files.names, LABEL_COLUMNS, lines, keep_empty=True)

    def write_labels(self, lines: Iterable[Sequence[object]]) -> None:
        """Write the labels that people gave on the labelling page: path, label, decision and group per line."""
        write_table(self.files.labels, LABEL_COLUMNS, lines, keep_empty=True)

    def write_source_labels(self, lines: Iterable[Sequence[object]]) -> None:
        """Write what people said about labels of the source: path, label and decision per line; no file without any."""
        write_table(self.files.source_labels, SOURCE_LABEL_COLUMNS, lines)

    def write_skipped(self, skipped: Sequence[Skipped]) -> None:
        """Write the images that could not be read, with the reason; no file if there are none."""
        from uniot.images.embedding import write_skipped

        write_skipped(self.files.skipped, skipped)

    def write_duplicates(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Write pairs of equal files, a source name and a target name each; no file if there are none."""
        write_table(self.files.duplicates, ("source", "target"), pairs)

    def write_checks(self, checked: CheckedCollections) -> None:
        """Write source labels that are probably wrong, and near-duplicates; no file for either if there are none."""
        checked.write(self.files.suspect_labels, self.files.near_duplicates)

    def write_image_paths(self, source: Sequence[ImageFile], target: Sequence[ImageFile]) -> None:
        """Write the paths of the images of both collections, with every link resolved."""
        write_places(self.folder, source, target)

    def write_pixels(self, source: np.ndarray, target: np.ndarray) -> None:
        """Write the pictures of both collections: grey images from 0 to 1, (n_samples, height, width)."""
        write_pixels(self.folder, source, target)

    def write_shown(self, source: Shown | None, target: Shown) -> None:
        """Write what a person sees of the samples of both collections: texts or links, or the paths of image files."""
        if target.kind == "image":
            write_paths(self.folder, [] if source is None else source.values, target.values)
        else:
            write_texts(self.folder, source, target)

    def write_descriptions(self, descriptions: GroupDescriptions) -> None:
        """Write what describes the groups of the run, by their numbers."""
        descriptions.write(self.folder)

    def write_gene_projection(self, projection: GeneProjection) -> None:
        """Write the principal components that the run computed from gene expression."""
        projection.write(self.folder)

    def add_to_contents(self, sentence: str) -> None:
        """Add a sentence to the text that says what the folder contains."""
        text = self.files.contents.read_text(encoding="utf-8") if self.files.contents.is_file() else ""
        write_text(self.files.contents, f"{text}{sentence}\n")

    def write_card(self, text: str) -> None:
        """Write the model card of a shared run."""
        write_text(self.files.card, text)

    def take_shared(self, folder: Path) -> None:
        """Move the files of a shared run from another folder here; remove those of a run that was here before."""
        for name in RunFiles.SHARED:
            if not (folder / name).is_file():
                (self.folder / name).unlink(missing_ok=True)
        for name in RunFiles.SHARED:
            if (folder / name).is_file():
                with replacing(self.folder / name) as partial:
                    shutil.move(folder / name, partial)


class CheckpointFile:
    """The newest state of an unfinished run."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files

    def save(self, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
        """Write a state in place of the one before."""
        write_tensors(self._files.checkpoint, tensors, about)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and the description of the newest state; None if there is none."""
        return read_tensors(self._files.checkpoint) if self._files.checkpoint.exists() else None

    def clear(self) -> None:
        """Remove the state."""
        shutil.rmtree(self._files.checkpoints, ignore_errors=True)


def save_model(
    model: AdaptedModel, folder: Path, names: Sequence[str] | None = None, inputs: Mapping[str, Any] | None = None
) -> None:
    """Write a model to a run folder. The model's file comes last: if it is there, so are the others.

    Args:
        model: the model to save; without target samples there is no table of predictions.
        folder: created if it does not exist.
        names: names of the target samples, (n_samples,); if None, those of the run in the folder, or their numbers.
        inputs: where the data came from, for the settings file.

    Raises:
        RunFolderError: the folder contains another run, whose files would be mixed with these; or labels that people
            gave to this run, which would no longer belong to it.
    """
    files = RunFiles(folder)
    if is_saved(folder):
        if describe_tensors(files.model)[1].get("fingerprint") != model.fingerprint:
            raise RunFolderError(f"{folder} contains another run. Give another folder, or remove that run first.")
        if names is None and files.predictions.is_file():
            names = read_predictions(files.predictions).names
        _check_annotations(model, folder)
    images = None if model.reader is None else model.reader.settings
    write_text(files.settings, model.settings.to_toml(images, **({"inputs": dict(inputs)} if inputs else {})))
    if model.history.rows:
        write_text(files.history, model.history.to_csv())
    if len(model.target):
        _write_predictions(files.predictions, model, names)
    features = _feature_tensors(model)
    write_tensors(files.features, features, {"fingerprint": model.fingerprint})
    if model.reader is not None:
        model.reader.save(files.backbone)
    write_text(files.contents, contents_text(model, features))
    about = {
        "classes": model.classes.tolist(),
        "unknown": model.unknown,
        "settings": model.settings.model_dump(),
        "method_package": METHODS.package_of(model.settings.method),
        "input_shape": model.input_shape,
        "columns": model.history.columns,
        "number": asdict(model.groups.number),
        "fingerprint": model.fingerprint,
        "from_images": model.reader is not None,
        "threshold": None if model.threshold is None else asdict(model.threshold),
        "calibration": asdict(model.calibration),
        "reliability": asdict(model.reliability),
        **({} if model.feature_names is None else {"feature_names": list(model.feature_names)}),
    }
    write_tensors(files.model, _model_tensors(model), about)


def _check_annotations(model: AdaptedModel, folder: Path) -> None:
    """Raise RunFolderError if labels that people gave to the run in the folder would not belong to the new model."""
    from uniot.runs.loading import load_model

    if not RunFiles(folder).annotations.is_file():
        return
    before = load_model(folder)
    old, new = (start_places(one.target, one.groups.n_groups) for one in (before, model))
    if read_annotations(before, folder) is not None and not np.array_equal(old, new):
        raise RunFolderError(
            f"{folder} has labels that people gave with `uniot label`, `ask` or `tell`, and after other answers they "
            "would no longer belong to the run. Save to another folder, or give these answers with "
            f"`{command('tell', folder, 'answers.csv')}`."
        )


def is_saved(folder: Path) -> bool:
    """Return whether the folder contains a finished run."""
    return RunFiles(folder).model.is_file()


def _write_predictions(path: Path, model: AdaptedModel, names: Sequence[str] | None) -> None:
    with PredictionWriter(path, model.classes, model.unknown, model.group_names) as writer:
        writer.write(names, model.target)


def _feature_tensors(model: AdaptedModel) -> dict[str, Tensor]:
    rows = {} if model.feature_rows is None else {"target.rows": torch.from_numpy(model.feature_rows)}
    return {
        **rows,
        "target": torch.from_numpy(model.target_features).half(),
        "source": torch.from_numpy(model.source.features).half(),
        "source.classes": torch.from_numpy(model.source.classes),
        "source.rows": torch.from_numpy(model.source.rows),
    }


def _model_tensors(model: AdaptedModel) -> dict[str, Tensor]:
    weights, groups = model.method.state_dict(), model.nearest_groups
    of_groups = {} if groups is None else {"nearest": groups.group, "nearest_confidence": groups.confidence}
    return {
        **{f"method.{name}": value for name, value in weights.items()},
        "groups.centres": torch.from_numpy(model.groups.centres),
        **{f"groups.{name}": torch.from_numpy(values) for name, values in of_groups.items()},
        "absence": torch.from_numpy(model.absence),
        **model.history.tensors(),
        **{f"target.{name}": torch.from_numpy(getattr(model.target, name)) for name in _PREDICTION},
        "target.shares": torch.from_numpy(model.target_odds),
        **_answer_tensors(model),
        "target.class_probability": torch.from_numpy(model.target_class_probability),
        "target.class_log_odds": torch.from_numpy(model.target_class_log_odds),
    }


def _answer_tensors(model: AdaptedModel) -> dict[str, Tensor]:
    """Return a person's answers and what follows from them; nothing if there are none."""
    if not len(model.answers) and model.posterior is None:
        return {}
    posterior = {} if model.posterior is None else model.posterior.tensors()
    return {
        "answers.rows": torch.from_numpy(model.answers.rows),
        "answers.classes": torch.from_numpy(model.answers.classes),
        "answers.inferred": torch.from_numpy(model.answers.inferred),
        "answers.moves_line": torch.from_numpy(model.answers.moves_line),
        "target.rule_nearest": torch.from_numpy(model.target_nearest),
        **{f"posterior.{name}": tensor for name, tensor in posterior.items()},
    }
