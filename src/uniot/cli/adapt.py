"""`uniot adapt`: a labelled and an unlabelled collection in, a run folder out."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uniot.cli.screen import (
    console,
    reading_progress,
    show_prediction,
    show_reading,
    show_scores,
    training_progress,
    verdict,
)
from uniot.errors import DataError, RunFolderError, SettingsError

if TYPE_CHECKING:
    import numpy as np

    from uniot.images import ImageRun, Reading
    from uniot.model import AdaptedModel
    from uniot.processes import Processes
    from uniot.settings import ImageSettings, Settings


class FineTune(Enum):
    """What of a backbone is trained."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class Precision(Enum):
    """Of the network on a GPU."""

    FULL = "32-true"
    BF16 = "bf16-mixed"
    FP16 = "16-mixed"


_IMAGES, _MACHINES = "Images", "Several processes"


def adapt(
    source: Annotated[
        Path,
        typer.Argument(
            help="Labelled: a folder with a folder of images per class, a list file, or a file of embeddings "
            "(.npz with x and y, …)."
        ),
    ],
    target: Annotated[
        Path, typer.Argument(help="Unlabelled: any folder of images, a list file, or a file of embeddings.")
    ],
    out: Annotated[Path, typer.Option(help="The run folder. An interrupted run in it goes on.")],
    seed: Annotated[
        int | None, typer.Option(help="Decides every random choice; 0 unless --settings says otherwise.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps; chosen by the target's size.")] = None,
    private_classes: Annotated[int | None, typer.Option(help="Groups among the unknown, where you know it.")] = None,
    settings: Annotated[Path | None, typer.Option(help="A settings.toml, for instance of another run.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run in the folder.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Only go on with an interrupted run; an error where there is none.")
    ] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write predictions.parquet as well.")] = False,
    target_labels: Annotated[
        str | None,
        typer.Option(
            help="True labels of the target, only to score the result: `folders`, or a file. Training never sees them."
        ),
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between two checkpoints; 100.")] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="A timm model; efficientnet_lite0, which needs no download.", rich_help_panel=_IMAGES),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Its weights from a file, .safetensors or a state dict.", rich_help_panel=_IMAGES),
    ] = None,
    fine_tune: Annotated[
        FineTune | None, typer.Option(help="What of the backbone is trained; none.", rich_help_panel=_IMAGES)
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(help="Parts of a batch in memory one after another; 1.", rich_help_panel=_IMAGES),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first image that cannot be read.", rich_help_panel=_IMAGES)
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps embeddings between runs; one of yours.", rich_help_panel=_IMAGES),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode images.", rich_help_panel=_IMAGES)
    ] = None,
    devices: Annotated[
        str,
        typer.Option(
            help="Processes on this machine, one a GPU where there are any; or `auto`.", rich_help_panel=_MACHINES
        ),
    ] = "auto",
    nodes: Annotated[
        int, typer.Option(min=1, help="Machines; run the same command on each.", rich_help_panel=_MACHINES)
    ] = 1,
    precision: Annotated[
        Precision | None, typer.Option(help="On a GPU; mixed is quicker.", rich_help_panel=_MACHINES)
    ] = None,
) -> None:
    """Label the target by the source, and find what is in neither.

    Example: `uniot adapt labelled/ unlabelled/ --out run/`
    """
    from uniot.data.image_files import holds_images
    from uniot.processes import start_processes
    from uniot.run_folder import only_one_writer

    given = {"seed": seed, "steps": steps, "n_private_classes": private_classes, "checkpoint_every": checkpoint_every}
    of_images = {
        "backbone": backbone,
        "weights": None if weights is None else str(weights),
        "fine_tune": None if fine_tune is None else fine_tune.value,
        "accumulate": accumulate,
        "precision": None if precision is None else precision.value,
    }
    chosen, images = _settings(settings, given, of_images)
    for place in (source, target):
        if not place.exists():
            raise DataError(f"{place} does not exist. Give a folder of images, a list file, or a file of embeddings.")
    from_images = [holds_images(place) for place in (source, target)]
    if from_images[0] != from_images[1]:
        kinds = ["images" if is_images else "embeddings" for is_images in from_images]
        raise DataError(f"{source} holds {kinds[0]} and {target} {kinds[1]}. Give images for both, or embeddings.")
    if not from_images[0] and any(value is not None for value in of_images.values()):
        raise SettingsError("--backbone, --weights, --fine-tune, --accumulate and --precision are for images only.")
    processes = start_processes(_devices(devices), nodes, images.precision)
    leads = processes.rank == 0
    with ExitStack() as stack:
        if leads:
            stack.enter_context(only_one_writer(out))
            if resume and not (out / "checkpoints").exists():
                raise RunFolderError(f"{out} holds no interrupted run. Leave --resume out to begin one.")
            if overwrite:
                clear_run(out)
        processes.wait()
        if from_images[0]:
            reading = _reading(strict, store, workers, stack if leads else None)
            found = _from_images(source, target, out, chosen, images, reading, processes, target_labels)
        else:
            found = _from_embeddings(source, target, out, chosen, processes, target_labels)
        if leads:
            finish_run(found.model, out, found.names, {"source": str(source), "target": str(target)}, parquet=parquet)
            found.write_notes(out)
        processes.wait()
    if leads:
        _show(found, out, source, target)


@dataclass(frozen=True)
class _Found:
    """What a run ended with, and what people are told about it."""

    model: AdaptedModel
    names: list[str] | None
    truth: np.ndarray | None
    has_unused_labels: bool = False
    images: ImageRun | None = None

    def write_notes(self, out: Path) -> None:
        if self.images is not None:
            from uniot.images import write_duplicates, write_skipped

            write_skipped(out / "skipped.csv", self.images.skipped)
            write_duplicates(out / "duplicates.csv", self.images)


def _from_embeddings(
    source: Path, target: Path, out: Path, settings: Settings, processes: Processes, labels: str | None
) -> _Found:
    from uniot.data.embedding_files import read_embeddings, read_labels
    from uniot.estimator import UniOT

    labelled, unlabelled = read_embeddings(source), read_embeddings(target)
    if labelled.y is None:
        raise DataError(f"{source} holds no labels. Save them as y: `numpy.savez(file, x=embeddings, y=labels)`.")
    names = unlabelled.ids or [str(row) for row in range(len(unlabelled.x))]
    if labels == "folders":
        raise DataError("--target-labels folders is for images. Give the file that holds the labels.")
    truth = None if labels is None else read_labels(Path(labels), names)
    values = settings.model_dump()
    model = UniOT(random_state=values.pop("seed"), **values)
    with training_progress(processes.rank == 0) as on_step:
        model.fit(labelled.x, labelled.y, unlabelled.x, run=out, processes=processes, on_step=on_step)
    return _Found(model.model_, unlabelled.ids, truth, has_unused_labels=unlabelled.y is not None and truth is None)


def _from_images(
    source: Path,
    target: Path,
    out: Path,
    settings: Settings,
    images: ImageSettings,
    reading: Reading,
    processes: Processes,
    labels: str | None,
) -> _Found:
    import numpy as np

    from uniot.data.image_files import labelled_images, labels_from_folders, labels_from_list, unlabelled_images
    from uniot.embeddings.image_reader import ImageReader
    from uniot.images import adapt_images

    reader = ImageReader.open(images)
    files = unlabelled_images(target)
    # Looked up before the work begins, so that a wrong file is told at once; used after it has ended.
    truth = None
    if labels is not None:
        truth = labels_from_folders(files) if labels == "folders" else labels_from_list(Path(labels), files)
    with training_progress(processes.rank == 0) as on_step:
        run = adapt_images(
            labelled_images(source),
            files,
            settings,
            reader,
            reading=reading,
            run=out,
            processes=processes,
            on_step=on_step,
        )
    kept = None if truth is None else np.array(truth)[run.target.kept]
    return _Found(run.model, [file.name for file in run.target.files], kept, images=run)


def _reading(strict: bool, store: Path | None, workers: int | None, stack: ExitStack | None) -> Reading:
    from uniot.embeddings.store import EmbeddingStore
    from uniot.images import Reading

    on_progress = None if stack is None else stack.enter_context(reading_progress())
    return Reading(EmbeddingStore(store), strict, workers, on_progress)


def _show(found: _Found, out: Path, source: Path, target: Path) -> None:
    model, screen = found.model, console()
    show_prediction(model, model.target)
    if found.truth is not None:
        from uniot.cli.evaluate import score_run

        show_scores(score_run(model, found.truth, out))
    if found.images is not None:
        show_reading(found.images, out)
    if found.has_unused_labels:
        screen.print(f"{target} holds labels (y). They were not used; score with the line below.")
    screen.print(f"{verdict(model.target)} Every answer is in {out / 'predictions.csv'}.")
    new = "photo.jpg" if found.images is not None else "new.npz"
    truth = target if found.has_unused_labels else "labels.csv"
    screen.print(f"Next: uniot predict {out} {new}, or, with the truth, uniot evaluate {out} --labels {truth}")


def finish_run(
    model: AdaptedModel, folder: Path, names: list[str] | None, inputs: dict[str, Any], *, parquet: bool = False
) -> None:
    """Writes what the run found; its checkpoints have done their work."""
    from uniot.answers import AnswerWriter

    if parquet:
        with AnswerWriter(folder / "predictions.parquet", model.classes, model.unknown) as writer:
            writer.write(names, model.target)
    model.save(folder, names, inputs)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def clear_run(folder: Path) -> None:
    """Removes what a run wrote, and nothing else."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for name in _RUN_FILES:
        (folder / name).unlink(missing_ok=True)


_RUN_FILES = (
    "model.safetensors",
    "backbone.safetensors",
    "features.safetensors",
    "settings.toml",
    "predictions.csv",
    "predictions.parquet",
    "history.csv",
    "metrics.json",
    "skipped.csv",
    "duplicates.csv",
)


def _devices(text: str) -> int | str:
    if text == "auto" or (text.isdigit() and int(text) > 0):
        return text if text == "auto" else int(text)
    raise SettingsError(f"--devices is {text!r}. Give how many processes, such as 2, or `auto`.")


def _settings(
    file: Path | None, given: dict[str, int | None], of_images: dict[str, Any]
) -> tuple[Settings, ImageSettings]:
    """What a file says, and over it what the command line does."""
    from uniot.settings import ImageSettings, Settings

    chosen, images = (Settings.checked(), None) if file is None else Settings.from_toml(file)
    values, image_values = chosen.model_dump(), (images or ImageSettings.checked()).model_dump()
    values |= {name: value for name, value in given.items() if value is not None}
    image_values |= {name: value for name, value in of_images.items() if value is not None}
    return Settings.checked(**values), ImageSettings.checked(**image_values)
