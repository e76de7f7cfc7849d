"""A finished run, read from its folder: the only reader of run folders."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from uniot.annotations.places import start_places
from uniot.config import ImageSettings, Settings
from uniot.errors import DataError, RunFolderError, UniotError
from uniot.io.columns import Columns
from uniot.io.csv_tables import CsvError
from uniot.io.embedding_files import read_labels
from uniot.io.files import MOST_SETTINGS_BYTES, parse_json, read_bounded
from uniot.io.predictions import Predictions, read_predictions
from uniot.io.text import as_utf8, command, counted, read_inputs, read_settings
from uniot.metrics.evaluate import Evaluation, evaluate
from uniot.runs.annotations import read_annotations, run_digest
from uniot.runs.description import describe_run
from uniot.runs.files import TRUE_LABEL_COLUMNS, RunFiles
from uniot.runs.gene_projection import GeneProjection
from uniot.runs.group_descriptions import MARKER_GENES, GroupDescriptions
from uniot.runs.loading import load_model
from uniot.runs.pictures import Pictures
from uniot.runs.saving import RunWriter, is_saved
from uniot.runs.texts import Texts

if TYPE_CHECKING:
    from uniot.annotations.annotations import Annotations
    from uniot.training.model import AdaptedModel

Average = Literal["class", "instance"]


class Run:
    """A finished run: its predictions, its settings and its model, read from the run folder when first used.

    Attributes:
        folder: the run folder.
        files: the paths of its files.
        settings: settings of the run, with everything decided that depends on the data.

    Examples:
        >>> from uniot import Run
        >>> run = Run.open("run/")
        >>> run.predictions.labels
        array(['cup', 'fork', 'unknown', ...], dtype='<U7')
        >>> table = pandas.DataFrame(run.predictions.to_dict())
        >>> run.evaluate("truth.csv").h_score
        0.91
        >>> run.report()
        PosixPath('run/report.html')
    """

    def __init__(self, folder: str | Path, private_prior: float | None = None, prefer: str | None = None) -> None:
        self.folder = Path(folder)
        self.files = RunFiles(self.folder)
        # Before anything is read: a later difference means that the run was written again.
        self.stamp = self.files.stamp()
        self._description, self.n_target = describe_run(self.folder)
        self.settings: Settings = self._description.checked_settings
        Settings.checked(private_prior=private_prior, prefer=prefer)
        self._preference = (private_prior, prefer)

    @classmethod
    def open(cls, folder: str | Path, private_prior: float | None = None, prefer: str | None = None) -> Run:
        """Open a finished run. Annotations of the labelling page are applied to its model.

        Args:
            folder: the run folder.
            private_prior: fraction of the target that is to be unknown, from 0 to 1; as in the run if None.
            prefer: "known" or "unknown" moves the threshold towards that side; as in the run if None.

        Returns:
            The run; its parts are read when they are first used.

        Raises:
            RunFolderError: the folder has no finished run, or a damaged one.
            SettingsError: the run or the preference has a setting that does not exist or is out of range.
        """
        return cls(folder, private_prior, prefer)

    def __repr__(self) -> str:
        """Return folder, method and counts; without the counts if the table of predictions cannot be read."""
        words = f"Run({str(self.folder)!r}): {self.settings.method}, {counted(self.n_target, 'target sample')}"
        try:
            found = self.predictions if self.n_target else None
        except (UniotError, OSError):
            found = None
        if found is None:
            return f"<{words}>"
        n_known, groups = int(found.known.sum()), np.unique(found.groups[found.groups >= 0])
        among = f" in {counted(len(groups), 'group')}" if len(groups) else ""
        return f"<{words}: {n_known:,} known, {self.n_target - n_known:,} unknown{among}>"

    def _repr_html_(self) -> str:
        """Return the run for a notebook: counts, the interval, and three exemplars of each class and group."""
        from uniot.runs.notebook import run_html

        return run_html(self)

    @staticmethod
    def is_finished(folder: str | Path) -> bool:
        """Return whether the folder contains a finished run."""
        return is_saved(Path(folder))

    @staticmethod
    def has_checkpoint(folder: str | Path) -> bool:
        """Return whether the folder contains a run that can be resumed."""
        return RunFiles(Path(folder)).checkpoint.exists()

    @staticmethod
    def has_source(folder: str | Path) -> bool:
        """Return whether the run had labelled samples; one that adapted a source model did not."""
        settings = RunFiles(Path(folder)).settings
        return not settings.is_file() or "source_model" not in read_inputs(settings)

    @staticmethod
    def writer(folder: str | Path, *, wait: bool = False) -> RunWriter:
        """Return a context manager that locks a run folder and writes into it.

        Args:
            folder: created if it does not exist.
            wait: whether to wait some seconds for another writer; for short writes.
        """
        return RunWriter(Path(folder), wait=wait)

    @cached_property
    def saved_model(self) -> AdaptedModel:
        """Return the model as it was saved, without a preference and without annotations."""
        return load_model(self.folder)

    @cached_property
    def _annotations(self) -> Annotations | None:
        return read_annotations(self.saved_model, self.folder)

    @cached_property
    def answered_model(self) -> AdaptedModel:
        """Return the model after all answers of people, with the preference, without names and moved samples.

        It decides about new samples as `model` does, except that groups have no names.
        """
        model, annotations = self.saved_model, self._annotations
        answered = model if annotations is None else model.with_answers(annotations.answers)
        return answered.with_preference(*self._preference)

    @cached_property
    def model(self) -> AdaptedModel:
        """Return the model after all that people decided: their answers, the preference, places and names.

        Raises:
            RunFolderError: the model is damaged.
            DataError: a preference was given and the run was shared without its target.
        """
        if self._annotations is None:
            return self.answered_model
        return self.saved_model.with_annotations(self._annotations, *self._preference)

    @cached_property
    def predictions(self) -> Predictions:
        """Return the predictions for the target samples, in the order of the target.

        Raises:
            RunFolderError: the run was shared without its target, or mixes files of two runs.
        """
        self.require_target("to predict")
        table = read_predictions(self.files.predictions)
        self._check_count(self.files.predictions.name, len(table))
        return table if self._preference == (None, None) else _predictions_of(self.model, table.names)

    @property
    def image_settings(self) -> ImageSettings | None:
        """Return how images were read; None if the run was made from arrays."""
        return read_settings(self.files.settings)[1] if self._description.from_images else None

    @property
    def inputs(self) -> dict[str, str]:
        """Return where the data came from, such as source and target; empty if unknown."""
        return read_inputs(self.files.settings) if self.files.settings.is_file() else {}

    @cached_property
    def pictures(self) -> Pictures | None:
        """Return the pictures of the samples; None if the run has none."""
        pictures = Pictures.open(self.folder)
        if pictures is not None:
            self._check_count("the pictures", pictures.count("target"))
        return pictures

    @cached_property
    def texts(self) -> Texts | None:
        """Return the texts or links of the samples; None if the run has none."""
        texts = Texts.open(self.folder)
        if texts is not None:
            self._check_count("the texts", texts.count("target"))
        return texts

    @cached_property
    def group_descriptions(self) -> GroupDescriptions | None:
        """Return what describes the groups, by the numbers that the run gave them; None if nothing does."""
        return GroupDescriptions.open(self.folder)

    @property
    def noun(self) -> str:
        """Return what a sample is called, in the singular: image, text, cell or sample."""
        if self.pictures is not None:
            return "image"
        if self.texts is not None and not self.texts.are_links:
            return "text"
        described = self.group_descriptions is not None and self.group_descriptions.kind == MARKER_GENES
        return "cell" if described or self.inputs.get("target", "").endswith(".h5ad") else "sample"

    @cached_property
    def gene_projection(self) -> GeneProjection | None:
        """Return the principal components that the run computed from gene expression; None for other samples."""
        return GeneProjection.open(self.folder)

    @cached_property
    def metrics(self) -> Mapping[str, Any] | None:
        """Return the scores that `uniot evaluate` wrote; None without them, or if they are those of other decisions."""
        if self._preference != (None, None) or not self.files.metrics.is_file():
            return None
        try:
            metrics = parse_json(read_bounded(self.files.metrics, MOST_SETTINGS_BYTES))
            if not isinstance(metrics, dict):
                raise ValueError("not a JSON object")
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{self.files.metrics} cannot be read ({error}). Remove it, or run `uniot evaluate` again."
            ) from None
        if metrics.get("decisions", decisions_digest(self.saved_model)) != decisions_digest(self.model):
            return None
        return metrics

    @cached_property
    def true_labels(self) -> np.ndarray | None:
        """Return the true labels that the run was scored with, as text, (n_target,); None if it was not scored.

        They are for looking at the result: no method, choice or default reads them.

        Raises:
            RunFolderError: the file cannot be read, or is about other samples.
        """
        if not self.files.true_labels.is_file():
            return None
        from uniot.io.table_files import read_columns

        again = "Remove it, or run `uniot evaluate` again."
        try:
            columns = read_columns(self.files.true_labels, TRUE_LABEL_COLUMNS)
        except (OSError, ValueError, CsvError) as error:
            raise RunFolderError(f"{self.files.true_labels} cannot be read ({error}). {again}") from None
        if columns["path"] != self.predictions.names:
            raise RunFolderError(f"{self.files.true_labels} is not about the samples of this run. {again}")
        return np.array([as_utf8(str(label)) for label in columns["label"]], dtype=str)

    @property
    def digest(self) -> str:
        """Return the digest of everything that a label by a person refers to; it differs between runs."""
        model = self.saved_model
        start = start_places(model.target, model.groups.n_groups)
        return run_digest(model.fingerprint, self.predictions.names, model.class_names, start)

    def annotated(self, annotations: Annotations, pictures: Pictures | None = None) -> Run:
        """Return the same run with other annotations than those in its folder, without reading it again.

        Args:
            annotations: what people decided about the target.
            pictures: pictures to use in place of those of the run; None for its own.
        """
        other = copy(self)
        for name in ("model", "answered_model", "metrics"):
            other.__dict__.pop(name, None)
        other.__dict__["_annotations"] = annotations
        if pictures is not None:
            other.__dict__["pictures"] = pictures
        return other

    @property
    def outdated_annotations(self) -> str | None:
        """Return a warning if the folder's annotations belong to an earlier run in it; None otherwise."""
        if not self.n_target or not self.files.annotations.is_file() or self.model.annotations is not None:
            return None
        return (
            f"{self.files.annotations} belongs to an earlier run in this folder, which had other groups, so its names "
            f"are not used. Move it away to name the groups of this run with `{command('label', self.folder)}`."
        )

    def evaluate(
        self,
        labels: str | Path | Sequence[Any] | np.ndarray,
        average: Average = "class",
        rows: np.ndarray | None = None,
    ) -> Evaluation:
        """Score the predictions of the run against true labels, except those of samples that a person labelled.

        Args:
            labels: true target labels, (n_samples,); or the path of a file of labels, which are matched to the samples
                by name if the file has names.
            average: "class" for means over classes, "instance" for means over samples.
            rows: mask or indices of the samples to score; those that no person labelled if None.

        Returns:
            The scores of `uniot.evaluate`.

        Raises:
            DataError: there is not one label per sample, or a person labelled all of them.
            RunFolderError: the run was shared without its target.

        Examples:
            >>> Run.open("run/").evaluate("truth.csv").h_score
        """
        self.require_target("to evaluate")
        if isinstance(labels, (str, Path)):
            labels = read_labels(Path(labels), self.predictions.names, Columns.of_inputs(self.inputs))
        if rows is None and self.model.labelled_by_people.any():
            rows = ~self.model.labelled_by_people
            if not rows.any():
                raise DataError(
                    f"people labelled all {counted(self.n_target, 'sample')} of {self.folder}, so that there is no "
                    "prediction to score. Give `rows` to score them nevertheless."
                )
        return evaluate_model(self.model, labels, average, rows)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report of the run as one HTML file that needs no network.

        Args:
            path: the file; report.html in the run folder if None.

        Returns:
            The path of the file.
        """
        from uniot.report import write_report

        return write_report(self, None if path is None else Path(path)).page

    def require_target(self, purpose: str) -> None:
        """Raise RunFolderError if the run was shared without its target samples."""
        if not self.n_target:
            raise RunFolderError(
                f"{self.folder} was shared without its target, so there is nothing {purpose}. Use the folder that "
                f"`uniot adapt` wrote; to label new samples: "
                f"{command('predict', self.folder, 'photos/', '--out', 'new.csv')}"
            )

    def _check_count(self, what: str, count: int) -> None:
        if count != self.n_target:
            raise RunFolderError(
                f"{self.folder} mixes files of two runs: the model has {counted(self.n_target, 'target sample')}, "
                f"{what} {count}. Make the run again."
            )


def evaluate_model(
    model: AdaptedModel, labels: object, average: Average = "class", rows: np.ndarray | None = None
) -> Evaluation:
    """Return the scores of a model's predictions for its target; arguments as in `Run.evaluate`."""
    from uniot.training.true_labels import labels_as_classes

    truth = labels_as_classes(labels, model.classes, "labels")
    if len(truth) != len(model.target):
        raise DataError(f"there are {len(truth)} labels for {counted(len(model.target), 'sample')}. Give one each.")
    chosen = slice(None) if rows is None else rows
    target = model.target.rows(chosen)
    return evaluate(
        truth[chosen],
        # Without the names of groups: a group is unknown, whatever people call it.
        target.labels(model.classes, model.unknown),
        source_classes=model.classes,
        unknown=model.unknown,
        average=average,
        known_score=model.odds_after_answers[chosen],
        nearest=model.classes[target.nearest],
        features=model.target_features[chosen] if model.feature_rows is None else None,
        groups=target.group,
    )


def decisions_digest(model: AdaptedModel) -> str:
    """Return a digest of which target samples are known, with which class, and which of them people labelled."""
    classes = np.where(model.target.known, model.target.nearest, -1).astype("<i8")
    return hashlib.sha256(classes.tobytes() + np.packbits(model.labelled_by_people).tobytes()).hexdigest()


def preference_line(model: AdaptedModel) -> str | None:
    """Return a sentence on the preference of a model and its effect on the target; None without a preference."""
    settings = model.settings
    if settings.private_prior is not None:
        given = f"private prior {settings.private_prior:g}"
    elif settings.prefer is not None:
        given = f"prefer {settings.prefer}"
    else:
        return None
    if not len(model.target):
        return f"Preference applied: {given}."
    unknown = 100 * float((~model.target.known).mean())
    return (
        f"Preference applied: {given}. With it, {unknown:.1f} % of the unlabelled samples of the run are called "
        f"unknown; without it, {100 * model.private_prior:.1f} %."
    )


def _predictions_of(model: AdaptedModel, names: list[str]) -> Predictions:
    target = model.target
    return Predictions(
        names=names,
        labels=np.array([as_utf8(str(label)) for label in model.labels(target).tolist()], dtype=str),
        known=target.known,
        confidence=target.confidence,
        nearest_classes=np.array(model.class_names, dtype=str)[target.nearest],
        groups=target.group,
        group_confidence=target.group_confidence,
    )
