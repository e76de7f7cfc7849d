"""The two ways into a run, images and embeddings, and what people are told at the end of either."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.cli.progress import reading_progress, training_progress
from uniot.cli.screen import (
    console,
    show_prediction,
    show_private_classes,
    show_reading,
    show_reliability,
    verdict,
)
from uniot.errors import DataError
from uniot.words import counted, plural

if TYPE_CHECKING:
    import numpy as np

    from uniot.data_quality.checks import CheckedCollections
    from uniot.experiment_loggers import ExperimentLogger
    from uniot.images import ImageRun, Reading
    from uniot.labelling import Names
    from uniot.model import AdaptedModel
    from uniot.processes import Processes
    from uniot.settings import ImageSettings, Settings

BEGAN_WITH = "names.csv"
"""In a run folder: what people had called samples of the target when the run began, in all rounds before."""


@dataclass(frozen=True)
class Found:
    """What a run ended with, and what people are told about it."""

    model: AdaptedModel
    names: list[str]
    truth: np.ndarray | None
    has_unused_labels: bool = False
    images: ImageRun | None = None
    pixels: tuple[np.ndarray, np.ndarray] | None = None
    checked: CheckedCollections | None = None

    def write_notes(self, out: Path) -> None:
        """Writes what there is to look at, what could not be read, and what is in both collections or looks wrong."""
        if self.checked is not None:
            self.checked.write(out)
        if self.pixels is not None:
            from uniot.pictures import PIXELS, write_pixels

            write_pixels(out / PIXELS, *self.pixels)
        if self.images is not None:
            from uniot.images import write_duplicates, write_skipped
            from uniot.pictures import IMAGES, write_places

            write_places(out / IMAGES, self.images.source.files, self.images.target.files)
            write_skipped(out / "skipped.csv", self.images.skipped)
            write_duplicates(out / "duplicates.csv", self.images)


@dataclass(frozen=True)
class Beginning:
    """What a run begins with.

    Attributes:
        source: labelled collection; None for the digits of the demo.
        target: unlabelled collection; None for the digits of the demo.
        names: what people called samples of the target, which then belong to the source too.
        start: another run to go on from.
    """

    source: Path | None
    target: Path | None
    names: Names | None = None
    start: AdaptedModel | None = None

    @classmethod
    def of_run(cls, run: Path) -> Beginning:
        """What goes on from a run whose groups were named."""
        from uniot.labelling import read_names
        from uniot.model_files import load_model
        from uniot.settings import read_inputs

        start = load_model(run)
        inputs = read_inputs(run / "settings.toml")
        if not (run / "labels.csv").is_file():
            raise DataError(f"{run / 'labels.csv'} does not exist. Name the groups with `uniot label {run}`.")
        names = read_names(run / "labels.csv")
        if (run / BEGAN_WITH).is_file():
            names = read_names(run / BEGAN_WITH).followed_by(names)
        if inputs.get("demo") == "digits":
            return cls(None, None, names, start)
        if "source" not in inputs or "target" not in inputs:
            raise DataError(
                f"{run / 'settings.toml'} does not say where the collections lie. Begin anew with "
                f"`uniot adapt labelled/ unlabelled/ --names {run / 'labels.csv'} --out new/`."
            )
        return cls(Path(inputs["source"]), Path(inputs["target"]), names, start)

    @property
    def inputs(self) -> dict[str, str]:
        """For settings.toml."""
        if self.source is None or self.target is None:
            return {"demo": "digits"}
        return {"source": str(self.source.absolute()), "target": str(self.target.absolute())}

    def are_images(self) -> bool:
        """Whether the collections are images; an error where one is missing or they are of two kinds."""
        from uniot.data.image_files import holds_images

        if self.source is None or self.target is None:
            return False
        for place in (self.source, self.target):
            if not place.exists():
                raise DataError(
                    f"{place} does not exist. Give a folder of images, a list file, or a file of embeddings."
                )
        kinds = ["images" if holds_images(place) else "embeddings" for place in (self.source, self.target)]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"{self.source} holds {kinds[0]} and {self.target} {kinds[1]}. Give images for both, or embeddings."
            )
        return kinds[0] == "images"


def from_embeddings(
    begin: Beginning,
    out: Path,
    settings: Settings,
    processes: Processes,
    labels: str | None,
    logger: ExperimentLogger | None = None,
) -> Found:
    """A run from two files of embeddings, or from the digits of the demo; `labels` is a file, for the scores."""
    import numpy as np

    from uniot.arrays import adapt_arrays
    from uniot.data.embedding_files import read_labels
    from uniot.data_quality.checks import LabelledSamples, check_collections
    from uniot.labelling.named_collections import named_embeddings

    if labels == "folders":
        raise DataError("--target-labels folders is for images. Give the file that holds the labels.")
    read = _arrays(begin)
    x, y, target, names, source_names = read.x, read.y, read.target, read.names, read.source_names
    truth = None if labels is None else read_labels(Path(labels), names)
    if begin.names is not None:
        x, y, target, kept = named_embeddings(x, y, target, names, begin.names)
        decided = zip(begin.names.names, begin.names.decisions.tolist(), strict=True)
        source_names = source_names + [name for name, decision in decided if decision != "discarded"]
        names = [name for name, keep in zip(names, kept, strict=True) if keep]
        truth = None if truth is None else truth[kept]
    with training_progress(processes.rank == 0) as on_step:
        model = adapt_arrays(
            x,
            y,
            target,
            settings,
            start=begin.start,
            run=out,
            processes=processes,
            oracle_y_target=truth,
            on_step=on_step,
            logger=logger,
        )
    checked = None
    if processes.rank == 0:
        labelled = LabelledSamples(x, source_names, np.asarray(y), np.arange(len(x)) >= len(read.x))
        checked = check_collections(labelled, LabelledSamples(target, names, model.labels(model.target)))
    return Found(
        model,
        names,
        truth,
        has_unused_labels=read.has_labels and truth is None,
        pixels=(x, target) if begin.source is None else None,
        checked=checked,
    )


@dataclass(frozen=True)
class _Arrays:
    """Embeddings or digits of both collections, names of their samples, and whether the target came with labels."""

    x: np.ndarray
    y: np.ndarray
    target: np.ndarray
    names: list[str]
    source_names: list[str]
    has_labels: bool


def _arrays(begin: Beginning) -> _Arrays:
    from uniot.data.digits import load_digits_pair
    from uniot.data.embedding_files import read_embeddings

    if begin.source is None or begin.target is None:
        digits = load_digits_pair()
        x, y = digits.source_images, digits.source_labels
        return _Arrays(x, y, digits.target_images, digits.target_names, _numbers(len(x)), has_labels=False)
    labelled, unlabelled = read_embeddings(begin.source), read_embeddings(begin.target)
    if labelled.y is None:
        raise DataError(f"{begin.source} holds no labels. Save them as y: `numpy.savez(file, x=embeddings, y=labels)`.")
    return _Arrays(
        labelled.x,
        labelled.y,
        unlabelled.x,
        names=unlabelled.ids or _numbers(len(unlabelled.x)),
        source_names=labelled.ids or _numbers(len(labelled.x)),
        has_labels=unlabelled.y is not None,
    )


def _numbers(count: int) -> list[str]:
    return [str(row) for row in range(count)]


def from_images(
    begin: Beginning,
    out: Path,
    settings: Settings,
    images: ImageSettings,
    reading: Reading,
    processes: Processes,
    labels: str | None,
    logger: ExperimentLogger | None = None,
) -> Found:
    """A run from two collections of images; `labels` is `folders` or a list file, for the scores."""
    import numpy as np

    from uniot.adaptation import oracle_watch
    from uniot.data.image_files import labelled_images, labels_from_folders, labels_from_list, unlabelled_images
    from uniot.embeddings.image_reader import ImageReader
    from uniot.images import adapt_images, check_images
    from uniot.labelling.named_collections import named_images

    assert begin.source is not None
    assert begin.target is not None
    reader = begin.start.reader if begin.start is not None and begin.start.reader else ImageReader.open(images)
    source, files = labelled_images(begin.source), unlabelled_images(begin.target)
    # Looked up before the work begins, so that a wrong file is told at once; the training never sees it.
    truth = None
    if labels is not None:
        truth = np.array(labels_from_folders(files) if labels == "folders" else labels_from_list(Path(labels), files))
    if begin.names is not None:
        source, files, kept = named_images(source, files, begin.names)
        truth = None if truth is None else truth[kept]
    with training_progress(processes.rank == 0) as on_step:
        run = adapt_images(
            source,
            files,
            settings,
            reader,
            reading=reading,
            start=begin.start,
            run=out,
            processes=processes,
            watch=None if truth is None else lambda classes, kept: oracle_watch(truth[kept], classes, len(kept)),
            on_step=on_step,
            logger=logger,
        )
    true = None if truth is None else truth[run.target.kept]
    checked = check_images(run) if processes.rank == 0 else None
    return Found(run.model, [file.name for file in run.target.files], true, images=run, checked=checked)


def open_reading(
    begin: Beginning, strict: bool, store: Path | None, workers: int | None, stack: ExitStack | None
) -> Reading:
    """How images are read; the progress is shown until `stack` ends, nowhere if None."""
    from uniot.embeddings.store import EmbeddingStore
    from uniot.images import Reading

    places = {name: place for name, place in (("source", begin.source), ("target", begin.target)) if place is not None}
    progress = None if stack is None else stack.enter_context(reading_progress(places))
    return Reading(EmbeddingStore(store), strict, workers, progress)


def show(
    found: Found, out: Path, begin: Beginning, *, was_finished: bool, logger: ExperimentLogger | None = None
) -> None:
    """What came out of a run, and what is next; its scores are logged, and the log ends."""
    from uniot.adaptation import log_end
    from uniot.run_contents import judged_by, preference_line

    model, screen = found.model, console()
    if was_finished:
        screen.print(f"{out} is already finished; nothing was trained.")
    show_prediction(model, model.target)
    scores = None
    if found.truth is not None:
        from uniot.cli.evaluate import score_run, show_run_scores

        scores = score_run(model, found.truth, out)
        show_run_scores(scores)
    if logger is not None and not was_finished:
        log_end(logger, model, None if scores is None else (scores.others or scores.all_samples).to_dict())
        if not model.settings.steps:
            screen.print(f"Nothing was logged: {model.settings.method} trains nothing here.")
    if found.images is not None:
        show_reading(found.images, out)
    for line in () if found.checked is None else found.checked.lines(out):
        screen.print(line)
    if found.has_unused_labels:
        screen.print(f"{begin.target} holds labels (y). They were not used; score with the line below.")
    show_private_classes(model)
    if begin.names is not None:
        screen.print(_told_of_names(found, begin.names))
    screen.print(f"{verdict(model.target)} Every answer is in {out / 'predictions.csv'}.")
    preference = preference_line(model)
    if preference is not None:
        screen.print(preference)
    screen.print(judged_by(model))
    show_reliability(model)
    new = "photo.jpg" if found.images is not None else "new.npz"
    following = [f"uniot report {out} (a page to look at)", f"uniot predict {out} {new}"]
    if model.groups.n_groups:
        following.insert(1, f"uniot label {out} (name the groups)")
    if found.truth is None:
        labels = begin.target if found.has_unused_labels else "truth.csv"
        following.append(f"with the truth, uniot evaluate {out} --labels {labels}")
    screen.print("Next: " + "; ".join(following))


def _told_of_names(found: Found, names: Names) -> str:
    """How many of the samples that somebody named are now called so."""
    from uniot.data.text import as_utf8

    given = dict(zip(names.names, names.labels.tolist(), strict=True))
    called = dict(zip(map(as_utf8, found.names), found.model.labels(found.model.target).tolist(), strict=True))
    labelled = {name: label for name, label in given.items() if label and name in called}
    agree = sum(str(called[name]) == label for name, label in labelled.items())
    if not labelled:
        return f"{counted(len(given), 'sample')} that you discarded {plural(len(given), 'is', 'are')} left out."
    named = counted(len(labelled), "sample")
    return f"Of {named} that you labelled, {agree:,} {plural(agree, 'is', 'are')} called so now."
