"""A labelled and an unlabelled collection on disk, and the domains that a method is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uniot.adaptation.shown import of_one_kind, shown_values
from uniot.datasets.digits import load_digits_pair, rewrite
from uniot.errors import DataError
from uniot.images.embedding import ReadOptions
from uniot.images.files import (
    ImageFile,
    check_list,
    classes_one_folder_below,
    holds_images,
    labelled_images,
    labels_from_folders,
    labels_from_list,
    unlabelled_images,
)
from uniot.images.lists import LIST_SUFFIXES
from uniot.io.columns import Columns
from uniot.io.embedding_files import read_embeddings, read_labels, read_texts
from uniot.io.files import check_exists
from uniot.io.labels import as_labels
from uniot.io.shown import Shown
from uniot.io.table_files import take_columns
from uniot.io.text import command, counted, listed, plural
from uniot.labelling import named_rows, read_names
from uniot.labelling.source_labels import SourceLabels

if TYPE_CHECKING:
    from uniot.cells.reading import CellPair
    from uniot.config import ImageSettings, Settings
    from uniot.images.backbones import ImageReader
    from uniot.labelling import Names
    from uniot.runs import Run
    from uniot.runs.files import RunFiles
    from uniot.training.domains import Domains
    from uniot.training.model import AdaptedModel
    from uniot.training.processes import Processes
    from uniot.training.source_model import SourceModel

_USUAL = Columns()
# Columns that a target must have if they were chosen; it need not have labels.
_OF_TARGET = ("ids", "show", "text")
# An encoder needs a text; what is predicted for this one means nothing, as a note on the collection says.
_IN_PLACE_OF_EMPTY = "-"


@dataclass(frozen=True, eq=False)
class Collection:
    """The samples of a collection: images that are not opened yet, texts that are not embedded yet, or embeddings.

    Attributes:
        path: folder or file of the collection; None for the digits of the demo.
        names: names of the samples, (n_samples,).
        labels: class per sample, (n_samples,); None if the collection is unlabelled.
        files: the images; None for embeddings.
        rows: embeddings, (n_samples, n_features), or grey images, (n_samples, height, width); None for image files.
        feature_names: names of the features, (n_features,); None if they have none.
        has_unused_labels: whether the file contains labels that are not read.
        shown: what a person sees of each sample, if it is not the image that was read; None without it.
        noun: what a sample is, in the singular, if it is neither an image nor just an embedding, such as text or cell.
        texts: texts, (n_samples,); None for images and embeddings.
        encoder: name of the network that made the embeddings of the texts; None before.
        notes: sentences about what was read.
    """

    path: Path | None
    names: list[str]
    labels: np.ndarray | None = None
    files: list[ImageFile] | None = None
    rows: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None
    has_unused_labels: bool = False
    shown: Shown | None = None
    noun: str | None = None
    texts: list[str] | None = None
    encoder: str | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def labelled(cls, path: Path, *, allow_one_class: bool = False, columns: Columns = _USUAL) -> Collection:
        """Find the samples of a labelled collection.

        Args:
            path: a folder with one folder per class, a list file, a table, or a file of embeddings with labels.
            allow_one_class: whether a single class is allowed, because labels by people will add others.
            columns: columns that were chosen; that of the labels must be there.

        Raises:
            DataError: there are no labelled samples, or too few classes.
        """
        columns = columns.needs("label", "text")
        if not are_images(path, columns):
            found = cls._rows(path, columns)
            if found.labels is None:
                raise DataError(_no_labels(path))
            labels = as_labels(found.labels, f"y of {path}")
            _check_classes(path, labels.tolist(), "Give at least two classes.", allow_one_class=allow_one_class)
            return replace(found, labels=labels)._without_empty_texts()
        files = labelled_images(path, columns)
        below = classes_one_folder_below(path, files)
        advice = "Give at least two classes." if below is None else f"Did you mean {below}?"
        if below is None and path.is_dir():
            advice = "Give a folder that has one folder of images per class, at least two."
        labels = np.array([str(file.label) for file in files])
        _check_classes(path, labels.tolist(), advice, allow_one_class=allow_one_class)
        return cls(path, [file.name for file in files], labels, files)

    @classmethod
    def unlabelled(cls, path: Path, *, columns: Columns = _USUAL) -> Collection:
        """Find the samples of a collection whose labels, if it has any, are not used.

        Args:
            path: a folder of images, a list file, an image, a table, or a file of embeddings.
            columns: columns that were chosen; which of them must be there, they say themselves.

        Raises:
            DataError: there are no samples.
        """
        if are_images(path, columns):
            check_list(path, columns)
            files = unlabelled_images(path, columns)
            return cls(path, [file.name for file in files], files=files)
        found = cls._rows(path, columns)
        n_empty, first = _empty(found.texts or ())
        notes = found.notes
        if n_empty:
            share = "its prediction means" if n_empty == 1 else "their predictions mean"
            notes += (
                f"{counted(n_empty, 'text')} of {path} {plural(n_empty, 'is', 'are')} empty, the first in row {first}; "
                f"{share} nothing.",
            )
        return replace(found, labels=None, has_unused_labels=found.labels is not None, notes=notes)

    @classmethod
    def _rows(cls, path: Path, columns: Columns) -> Collection:
        """Return the samples of a file of embeddings, or of texts if a column of them was chosen."""
        if columns.text is not None:
            of_texts = read_texts(path, columns)
            shown = Shown("text", of_texts.texts)
            if of_texts.shown is not None:
                shown = shown_values(of_texts.shown, path.parent)
            names = of_texts.ids or _numbers(len(of_texts.texts))
            return cls(path, names, of_texts.y, shown=shown, noun="text", texts=of_texts.texts)
        found = read_embeddings(path, columns=columns)
        return cls(
            path,
            found.ids or _numbers(len(found.x)),
            found.y,
            rows=found.x,
            feature_names=found.feature_names,
            shown=None if found.shown is None else shown_values(found.shown, path.parent),
            notes=_left_out(path, found.left_out),
        )

    def _without_empty_texts(self) -> Collection:
        """Return the labelled samples whose texts are not empty, with a note on the others."""
        n_empty, first = _empty(self.texts or ())
        if not n_empty:
            return self
        assert self.texts is not None
        note = (
            f"{counted(n_empty, 'text')} of {self.path} {plural(n_empty, 'is', 'are')} empty and left out, the first "
            f"in row {first}."
        )
        kept = self.part(np.array([row for row, text in enumerate(self.texts) if text.strip()], dtype=np.int64))
        return replace(kept, notes=(*self.notes, note))

    def embedded(self, encoder: str | None, options: ReadOptions, name: str) -> Collection:
        """Return the same samples with the embeddings of their texts; those of empty texts mean nothing.

        Args:
            encoder: name of the network; the default one if None.
            options: where embeddings are stored between runs, and how progress is shown.
            name: of the collection, for the progress.
        """
        from uniot.text.encoder import TextEncoder

        opened = TextEncoder.open(encoder, store=options.store)
        texts = [text if text.strip() else _IN_PLACE_OF_EMPTY for text in self.texts or ()]
        rows = opened.embed(texts, options.on_progress(name)) if texts else np.zeros((0, opened.width), np.float32)
        return replace(self, rows=rows, encoder=opened.name)

    def with_features_of(self, other: Collection) -> Collection:
        """Return these embeddings with the columns of another collection, matched by name.

        Raises:
            DataError: a column is missing.
        """
        mine, wanted = self.feature_names, other.feature_names
        if mine is None or wanted is None or mine == wanted or self.rows is None:
            return self
        return self.with_features(wanted, str(other.path))

    def with_features(self, wanted: Sequence[str], whose: str) -> Collection:
        """Return these embeddings with columns of these names, in their order.

        Args:
            wanted: names, (n_features,).
            whose: what has them, for messages.

        Raises:
            DataError: a column is missing.
        """
        assert self.rows is not None
        names = self.feature_names or ()
        if tuple(names) == tuple(wanted):
            return self
        rows = take_columns(self.rows, match_features(names, wanted, str(self.path), whose))
        notes = self.notes
        left_out = set(names) - set(wanted)
        if left_out:
            words = plural(len(left_out), "column", f"{len(left_out):,} columns")
            others = listed([name for name in names if name in left_out], 5)
            notes += (
                f"The {words} of {self.path} that {whose} lacks {plural(len(left_out), 'is', 'are')} left out: "
                f"{others}.",
            )
        return replace(self, rows=rows, feature_names=tuple(wanted), notes=notes)

    @property
    def kind(self) -> str:
        """Return what the samples are, in the singular, such as image or embedding."""
        return self.noun or ("embedding" if self.files is None else "image")

    def part(self, rows: np.ndarray) -> Collection:
        """Return the samples at these indices, (n_samples,)."""
        chosen = rows.tolist()
        return replace(
            self,
            names=[self.names[row] for row in chosen],
            labels=None if self.labels is None else self.labels[rows],
            files=None if self.files is None else [self.files[row] for row in chosen],
            rows=None if self.rows is None else self.rows[rows],
            shown=None if self.shown is None else self.shown.part(rows),
            texts=None if self.texts is None else [self.texts[row] for row in chosen],
        )

    def joined(self, other: Collection, labels: np.ndarray) -> Collection:
        """Return this labelled collection together with samples of another one, which get these labels."""
        files = rows = texts = None
        if self.texts is not None and other.texts is not None:
            texts = self.texts + other.texts
        if self.files is not None and other.files is not None:
            more = [replace(file, label=str(label)) for file, label in zip(other.files, labels.tolist(), strict=True)]
            files = [*self.files, *more]
        if self.rows is not None and other.rows is not None:
            rows = np.concatenate([self.rows, other.rows])
        both = np.concatenate([np.asarray(self.labels).astype(str), labels.astype(str)])
        shown = None if self.shown is None or other.shown is None else self.shown.joined(other.shown)
        names = self.names + other.names
        return replace(self, names=names, labels=both, files=files, rows=rows, shown=shown, texts=texts)


@dataclass(frozen=True, eq=False)
class Collections:
    """A labelled and an unlabelled collection, found and checked; images are not opened yet.

    Attributes:
        source: labelled samples, with the target samples that people labelled at its end; none if a source model is
            adapted.
        target: unlabelled samples, without those that people discarded.
        truth: true labels of the target, (n_target,), only to score the result; None if they were not given.
        annotations: labels that people gave to target samples; None if there are none.
        n_annotated: number of samples at the end of the source that people labelled.
        start: model of the run that this one continues.
        source_model: model that is adapted without labelled samples; None if there are some.
        columns: columns of the tables that were chosen.
        encoder: name of the network that embeds texts; the default one if None.
        cells: how the cells of two .h5ad files were read; None for other samples.
        source_labels: corrections of labels of the source, which are applied already; None if there are none.
    """

    source: Collection
    target: Collection
    truth: np.ndarray | None = None
    annotations: Names | None = None
    n_annotated: int = 0
    start: AdaptedModel | None = None
    source_model: SourceModel | None = None
    columns: Columns = _USUAL
    encoder: str | None = None
    cells: CellPair | None = None
    source_labels: SourceLabels | None = None

    @classmethod
    def open(
        cls,
        source: Path,
        target: Path,
        *,
        annotations: Names | None = None,
        target_labels: str | None = None,
        columns: Columns = _USUAL,
        encoder: str | None = None,
        use_rep: str | None = None,
        source_labels: SourceLabels | None = None,
    ) -> Collections:
        """Find two collections, so that a wrong folder or file is reported before any image is read.

        Args:
            source: labelled samples, as for `Collection.labelled`.
            target: unlabelled samples, as for `Collection.unlabelled`.
            annotations: labels that people gave to target samples, which become source samples as well.
            target_labels: file with the true labels of the target, or `folders` for the names of its folders.
            columns: columns of both that were chosen; for cells, of obs.
            encoder: name of the network that embeds texts; the default one if None.
            use_rep: for cells: array of obsm that both files have in common; None to compare their genes.
            source_labels: corrected labels of the source, by the names of its samples.

        Raises:
            DataError: a collection is missing, has no samples, no labels or too few classes; or the two are of
                different kinds, or the same.
        """
        check_exists(source)
        check_exists(target)
        if are_cells(source) or are_cells(target):
            return cls.of_cells(
                source,
                target,
                columns.label,
                use_rep,
                annotations=annotations,
                target_labels=target_labels,
                source_labels=source_labels,
            )
        kinds = ["images" if are_images(path, columns) else "embeddings" for path in (source, target)]
        if kinds[0] != kinds[1]:
            for path, kind in zip((source, target), kinds, strict=True):
                if kind == "images" and path.is_file():
                    unlabelled_images(path, columns)  # raises an error if it is no list of images at all
            raise DataError(
                f"{source} contains {kinds[0]}, but {target} {kinds[1]}. Give images for both, or embeddings."
            )
        if source.samefile(target):
            kind = "folder" if source.is_dir() else "file"
            raise DataError(
                f"source and target are the same {kind}, {source}. Give the labelled samples first, then the ones to "
                "label."
            )
        return cls._found(source, target, annotations, target_labels, columns, encoder, source_labels)

    @classmethod
    def of_source_model(
        cls,
        model: SourceModel,
        path: Path,
        target: Path,
        *,
        target_labels: str | None = None,
        columns: Columns = _USUAL,
    ) -> Collections:
        """Find the target of a source model, which is adapted without labelled samples.

        Args:
            model: the source model.
            path: its file.
            target: unlabelled samples, as for `Collection.unlabelled`.
            target_labels: as for `open`.
            columns: as for `open`.
        """
        kind, of_target = ("embeddings" if model.reader is None else "images"), are_images(target, columns)
        if (model.reader is not None) != of_target:
            other = "images" if of_target else "embeddings"
            raise DataError(
                f"{path} was trained on {kind}, but {target} contains {other}. Give {kind}, or train the source model "
                f"on {other}."
            )
        found = Collection.unlabelled(target, columns=columns.needs(*_OF_TARGET))
        if model.feature_names is not None and found.feature_names is not None:
            found = found.with_features(model.feature_names, str(path))
        none = found.part(np.arange(0))
        source = replace(none, path=path, labels=np.array([], dtype=str), shown=None)
        return cls(source, found, _truth(found, target_labels, columns), source_model=model, columns=columns)

    @classmethod
    def of_run(
        cls, run: Run, *, target_labels: str | None = None, source_labels: SourceLabels | None = None
    ) -> Collections:
        """Find the collections of a run whose groups were named or source labels corrected, to continue from it.

        Args:
            run: the run.
            target_labels: as for `open`.
            source_labels: further corrections, which replace those of the run.

        Raises:
            DataError: nothing is named or corrected yet, or the run does not know its labelled samples.
        """
        inputs, files = run.inputs, run.files
        if "demo" not in inputs and not {"source", "target"} <= set(inputs):
            missing = f"{files.settings} does not name the folders of the images. Start a new run"
            if "source_model" in inputs:
                missing = (
                    f"{files.folder} adapted a source model, so names cannot become classes. Start a new run where "
                    "the labelled samples are"
                )
            again = command("adapt", "labelled/", "unlabelled/", "--names", files.labels, "--out", "new/")
            raise DataError(f"{missing}: `{again}`.")
        corrections = SourceLabels.of_run(files.source_labels)
        if source_labels is not None:
            corrections = corrections.followed_by(source_labels)
        annotations = cls._annotations_of_run(files)
        if annotations is None and not len(corrections):
            raise DataError(f"{files.labels} does not exist. Name the groups with `{command('label', files.folder)}`.")
        if inputs.get("demo") == "digits":
            found = cls._digits(annotations, target_labels, corrections)
        elif are_cells(Path(inputs["target"])):
            found = cls.of_cells(
                Path(inputs["source"]),
                Path(inputs["target"]),
                inputs.get("label"),
                inputs.get("use_rep"),
                annotations=annotations,
                target_labels=target_labels,
                source_labels=corrections,
            )
        else:
            places, columns = (Path(inputs["source"]), Path(inputs["target"])), Columns.of_inputs(inputs)
            found = cls._found(*places, annotations, target_labels, columns, inputs.get("encoder"), corrections)
        # Without a name or answer there is nothing that the earlier model knows and the next one does not: any method
        # can be repeated.
        return found if annotations is None else replace(found, start=run.saved_model)

    @staticmethod
    def _annotations_of_run(files: RunFiles) -> Names | None:
        """Return what people said about the target of a run, before it and since; None if that is nothing."""
        earlier = read_names(files.names) if files.names.is_file() else None
        if not files.labels.is_file():
            return earlier
        later = read_names(files.labels)
        found = later if earlier is None else earlier.followed_by(later)
        return found if found.names else None

    @classmethod
    def _found(
        cls,
        source: Path,
        target: Path,
        annotations: Names | None,
        target_labels: str | None,
        columns: Columns,
        encoder: str | None,
        source_labels: SourceLabels | None,
    ) -> Collections:
        try:
            labelled = Collection.labelled(source, allow_one_class=annotations is not None, columns=columns)
        except DataError as error:
            raise _perhaps_swapped(error, target) from None
        unlabelled = Collection.unlabelled(target, columns=columns.needs(*_OF_TARGET)).with_features_of(labelled)
        labelled = replace(labelled, shown=of_one_kind(labelled.shown, unlabelled.shown))
        truth = _truth(unlabelled, target_labels, columns)
        found = cls(labelled, unlabelled, truth, columns=columns, encoder=encoder)
        return found.corrected(source_labels).annotated(annotations)

    @classmethod
    def of_cells(
        cls,
        source: Path,
        target: Path,
        label: str | None,
        use_rep: str | None,
        *,
        annotations: Names | None = None,
        target_labels: str | None = None,
        source_labels: SourceLabels | None = None,
    ) -> Collections:
        """Read the cells of two .h5ad files; arguments as in `open`."""
        from uniot.cells.reading import read_cells

        for path in (source, target):
            check_exists(path)
            if not are_cells(path):
                raise DataError(f"{path} is no .h5ad file, and the other collection is. Give cells for both.")
        if source.samefile(target):
            raise DataError(
                f"source and target are the same file, {source}. Give the reference with labels first, then the query."
            )
        cells = read_cells(source, target, label=label, use_rep=use_rep)
        labels = np.asarray(cells.reference.labels)
        advice = f"Give at least two classes in obs[{cells.label!r}]."
        _check_classes(source, labels.tolist(), advice, allow_one_class=annotations is not None)
        reference, query = (
            Collection(path, of.names, of.labels, rows=of.rows, feature_names=cells.feature_names, noun="cell")
            for path, of in ((source, cells.reference), (target, cells.query))
        )
        columns = Columns(label=label)
        truth = _truth(query, target_labels, columns)
        found = cls(reference, query, truth, cells=cells, columns=columns)
        return found.corrected(source_labels).annotated(annotations)

    @classmethod
    def _digits(
        cls, annotations: Names | None, target_labels: str | None, source_labels: SourceLabels | None
    ) -> Collections:
        """Return the digits of the demo."""
        digits = load_digits_pair()
        numbers = _numbers(len(digits.source_images))
        source = Collection(None, numbers, digits.source_labels, rows=digits.source_images)
        target = Collection(None, digits.target_names, rows=digits.target_images)
        found = cls(source, target, _truth(target, target_labels, _USUAL))
        return found.corrected(source_labels).annotated(annotations)

    def corrected(self, source_labels: SourceLabels | None) -> Collections:
        """Return these collections with corrected labels of the source, and without the samples that were dropped.

        Raises:
            DataError: a sample is not in the source, or fewer than two classes are left.
        """
        if source_labels is None or not len(source_labels):
            return self
        source = self.source
        labels, kept = source_labels.apply(source.names, np.asarray(source.labels))
        given = np.asarray(source.labels)
        # Whole numbers stay whole numbers, unless a correction is none.
        if given.dtype.kind == "i" and all(label.removeprefix("-").isdigit() for label in labels.tolist()):
            labels = labels.astype(given.dtype)
        files = source.files
        if files is not None:
            files = [replace(file, label=str(label)) for file, label in zip(files, labels.tolist(), strict=True)]
        left = replace(source, labels=labels, files=files).part(np.flatnonzero(kept))
        if len(np.unique(np.asarray(left.labels))) < 2:
            raise DataError("the corrected labels leave fewer than two classes in the source. Keep samples of two.")
        return replace(self, source=left, source_labels=source_labels)

    def annotated(self, annotations: Names | None) -> Collections:
        """Return these collections with labelled target samples in the source too, and without discarded ones."""
        if annotations is None:
            return self
        found = named_rows(self.target.names, annotations)
        return replace(
            self,
            source=self.source.joined(self.target.part(found.labelled), found.labels),
            target=self.target.part(np.flatnonzero(found.kept)),
            truth=None if self.truth is None else self.truth[found.kept],
            annotations=annotations,
            n_annotated=len(found.labelled),
        )

    @property
    def are_images(self) -> bool:
        """Return whether the samples are image files."""
        return self.target.files is not None

    @property
    def n_classes(self) -> int:
        """Return the number of source classes."""
        return len(np.unique(np.asarray(self.source.labels)))

    @property
    def inputs(self) -> dict[str, str]:
        """Return where the collections are, for settings.toml."""
        if self.source.path is None or self.target.path is None:
            return {"demo": "digits"}
        name = "source" if self.source_model is None else "source_model"
        places = {name: str(self.source.path.absolute()), "target": str(self.target.path.absolute())}
        encoder = self.encoder or self.target.encoder
        of_cells = {} if self.cells is None else self.cells.inputs
        return {**places, **self.columns.chosen, **({} if encoder is None else {"encoder": encoder}), **of_cells}

    def embedded(self, options: ReadOptions | None = None) -> Collections:
        """Return these collections with the embeddings of their texts; unchanged without texts.

        Args:
            options: where embeddings are stored between runs, and the callback that shows the progress.
        """
        if self.target.texts is None:
            return self
        options = options or ReadOptions()
        return replace(
            self,
            source=self.source.embedded(self.encoder, options, "source"),
            target=self.target.embedded(self.encoder, options, "target"),
        )

    def domains(
        self,
        settings: Settings,
        images: ImageSettings | None = None,
        options: ReadOptions | None = None,
        *,
        processes: Processes | None = None,
        working: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> Domains:
        """Return the domains that a method is fitted to; images become embeddings here.

        Args:
            settings: of the fit.
            images: the backbone and what of it is trained; not used for embeddings, nor if the source model or the run
                that is continued has a backbone.
            options: how image files are read.
            processes: processes that share the work.
            working: context in which the backbone is loaded, given what is being done.
        """
        from uniot.training.domains import domains_from_arrays, read_images

        target = self.target
        if self.source.files is not None and target.files is not None:
            reader = self._reader(images, working)
            return read_images(
                self.source.files,
                target.files,
                reader,
                settings,
                options,
                source_model=self.source_model,
                processes=processes,
            )
        if self.source_model is not None:
            domains = self.source_model.domains(target.rows, settings, feature_names=target.feature_names)
            return replace(domains, target_names=target.names)
        domains = domains_from_arrays(
            self.source.rows,
            self.source.labels,
            target.rows,
            settings,
            augment=rewrite if target.path is None else None,
            feature_names=target.feature_names,
        )
        annotated = np.arange(len(self.source)) >= len(self.source) - self.n_annotated
        return replace(domains, source_names=self.source.names, target_names=target.names, annotated=annotated)

    def _reader(
        self, images: ImageSettings | None, working: Callable[[str], AbstractContextManager[object]]
    ) -> ImageReader:
        from uniot.config import ImageSettings
        from uniot.images.backbones import ImageReader

        earlier = self.source_model or self.start
        if earlier is not None and earlier.reader is not None:
            return earlier.reader
        images = images or ImageSettings.checked()
        with working(f"Loading the network {images.backbone}"):
            return ImageReader.open(images)

    def truth_of(self, domains: Domains) -> np.ndarray | None:
        """Return the true labels of the target samples that could be read, (n_target,); None if they are not known."""
        if self.truth is None or domains.images is None:
            return self.truth
        return np.asarray(self.truth[domains.images.target.kept])


def are_cells(path: Path) -> bool:
    """Return whether a collection is, by its name, a file of cells."""
    return path.suffix.lower() == ".h5ad"


def are_images(path: Path, columns: Columns = _USUAL) -> bool:
    """Return whether a collection consists of images; raise DataError if there is none, or if it has no columns."""
    check_exists(path)
    is_images = holds_images(path, columns)
    if is_images and columns.chosen and path.suffix.lower() not in LIST_SUFFIXES:
        what = "a folder of images" if path.is_dir() else "an image"
        option = next(iter(columns.chosen))
        raise DataError(f"--{option} names a column of a table, and {path} is {what}. Leave it out, or give a table.")
    if is_images and columns.show is not None:
        raise DataError(f"--show is for embeddings and texts, and {path} lists images, which are shown. Leave it out.")
    return is_images


def match_features(names: Sequence[str], wanted: Sequence[str], mine: str, theirs: str) -> np.ndarray:
    """Return the places of columns among the names of a table, (n_features,).

    Args:
        names: columns of the table.
        wanted: columns in the order in which they are wanted, (n_features,).
        mine: the table, for messages.
        theirs: what has the wanted columns, for messages.

    Raises:
        DataError: a column is missing.
    """
    place_of = {name: place for place, name in enumerate(names)}
    missing = [name for name in wanted if name not in place_of]
    if len(missing) == len(wanted):
        raise DataError(
            f"{mine} and {theirs} have no column of numbers in common: {listed(names, 3)}; and {listed(wanted, 3)}. "
            "Give embeddings by one model, with the same column names."
        )
    if missing:
        raise DataError(
            f"{mine} lacks {counted(len(missing), 'column')} of numbers that {theirs} has: {listed(missing)}. Give "
            "both the same columns; their order does not matter."
        )
    return np.array([place_of[name] for name in wanted], dtype=np.int64)


def _no_labels(path: Path) -> str:
    """Return the message for a source without labels."""
    if path.suffix.lower() in (".csv", ".tsv", ".parquet") or path.is_dir():
        return f"{path} has no column called label, class or y. Name the column of the labels: --label COLUMN."
    return f"{path} contains no labels. Save them as y: `numpy.savez(file, x=embeddings, y=labels)`."


def _left_out(path: Path, columns: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence about columns of a table that are not read; none if all are."""
    if not columns:
        return ()
    are = plural(len(columns), "is no number and is", "are no numbers and are")
    return (f"{plural(len(columns), 'Column', 'Columns')} of {path} that {are} left out: {listed(columns, 5)}.",)


def _empty(texts: Sequence[str]) -> tuple[int, int]:
    """Return the number of empty texts, and the row of the first one."""
    rows = [row for row, text in enumerate(texts) if not text.strip()]
    return len(rows), rows[0] if rows else -1


def _check_classes(path: Path, labels: Iterable[object], advice: str, *, allow_one_class: bool) -> None:
    """Raise DataError if there is a single class, or one with the name of the label of unknown samples."""
    classes = set(labels)
    if len(classes) < 2 and not allow_one_class:
        raise DataError(f"{path} has only one class, {classes.pop()!r}. {advice}")
    if "unknown" in classes:
        raise DataError(
            f"{path} has a class called 'unknown', which is the label of samples that fit no class. Give the class "
            "another name, or leave it out."
        )


def _perhaps_swapped(error: DataError, target: Path) -> DataError:
    """Return the error about the source; it says so if the two collections seem to be swapped."""
    try:
        n_classes = len({file.label for file in labelled_images(target)})
    except DataError:
        return error
    if n_classes < 2:
        return error
    return DataError(
        f"{error} {target} has a folder for each of {n_classes} classes: did you swap the two? The labelled images "
        "come first."
    )


def _truth(target: Collection, labels: str | None, columns: Columns) -> np.ndarray | None:
    """Return the true labels of a target, (n_target,), from a file or from the names of its folders."""
    if labels is None:
        return None
    if target.files is None:
        if labels == "folders":
            raise DataError("--target-labels folders is for images. Give the file that contains the labels.")
        return read_labels(Path(labels), target.names, columns)
    if labels == "folders":
        return np.array(labels_from_folders(target.files))
    return np.array(labels_from_list(Path(labels), target.files, columns))


def _numbers(count: int) -> list[str]:
    return [str(row) for row in range(count)]
