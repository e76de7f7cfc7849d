"""The labelled samples: how commands read them, and `uniot train-source`, which needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uniot.cli.options import (
    BackboneName,
    Flip,
    SettingsFile,
    Store,
    Strict,
    Weights,
    Workers,
    check_writable,
    chosen_settings,
    method_line,
    refuse_for_embeddings,
)
from uniot.cli.screen import (
    console,
    fitting_progress,
    lost_line,
    reading_progress,
    show_next,
    show_warning,
    skipped_line,
    working,
)
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.io.text import command, counted, listed, quoted
from uniot.runs.files import size_of

if TYPE_CHECKING:
    import numpy as np

    from uniot.config import ImageSettings, Settings
    from uniot.images.backbones import ImageReader
    from uniot.images.files import ImageFile
    from uniot.io.embedding_files import EmbeddingFile
    from uniot.training.images import Reading
    from uniot.training.source_model import SourceModel

_MOST_NAMES = 5


def train_source(
    labelled: Annotated[
        Path,
        typer.Argument(
            help="Labelled images: a folder that has one folder per class. Or a list file, or a file of embeddings "
            "(.npz with x and y, …)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write, .safetensors.")],
    method: Annotated[
        str | None, typer.Option(help="Method that will label the other images: glc, glc-plus or lead. Default: glc.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed: the same seed repeats a training. Default: 0.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps. Default: by the number of labelled images.")
    ] = None,
    settings: SettingsFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    backbone: BackboneName = None,
    weights: Weights = None,
    flip: Flip = None,
    strict: Strict = False,
    store: Store = None,
    workers: Workers = None,
) -> None:
    """Train a model on labelled images, to label others at a place where the labelled ones are not.

    The file contains the trained model, the names and sizes of the classes, an average of each class, and for images
    the network that reads them. It contains no image.

    Example: `uniot train-source labelled/ --method glc --out source.safetensors`

    Then, at the other place: `uniot adapt --source-model source.safetensors unlabelled/ --out run/`
    """
    import numpy as np

    with working("Loading PyTorch"):
        from uniot.images.backbones import ImageReader
        from uniot.images.store import EmbeddingStore
        from uniot.methods.registry import method_info
        from uniot.training.images import Reading
        from uniot.training.source_model import check_source_free
        from uniot.training.source_model import train_source as train

    given = {"seed": seed, "steps": steps, "method": method}
    of_images = {"backbone": backbone, "weights": None if weights is None else str(weights), "flip": flip}
    chosen, images = chosen_settings(settings, given, of_images, {"method": "glc"})
    check_source_free(chosen)
    of_reading = {"strict": strict or None, "store": store, "workers": workers}
    has_images = are_images(labelled)
    if not has_images:
        options = {f"--{name}": value for name, value in (of_images | of_reading).items()}
        refuse_for_embeddings(options, f"{labelled} is a file of embeddings")
    _check_out(out, labelled, overwrite)
    console().print(method_line(chosen.method))
    reader, feature_names = None, None
    if has_images:
        files = labelled_files(labelled)
        console().print(labelled_line(labelled, len(files), len({file.label for file in files}), "image"))
        with working(f"Loading the network {images.backbone}"):
            reader = ImageReader.open(images)
        with reading_progress({"images": str(labelled)}) as progress:
            x, y = _read(files, reader, Reading(EmbeddingStore(store), strict, workers, progress), out)
    else:
        found = labelled_embeddings(labelled)
        x, y, feature_names = found.x, np.asarray(found.y), found.feature_names
        console().print(labelled_line(labelled, len(x), len(np.unique(y)), "embedding"))
    with fitting_progress(method_info(chosen.method).title) as on_step:
        model = train(x, y, chosen, reader=reader, on_step=on_step, feature_names=feature_names, warn=show_warning)
    model.save(out)
    _show(model, out)


def _check_out(out: Path, labelled: Path, overwrite: bool) -> None:
    check_writable(out, (".safetensors",))
    if out.exists() and out.samefile(labelled):
        raise RunFolderError(f"--out is the file of the labelled samples, {labelled}. Give another file.")
    if out.exists() and not overwrite:
        raise RunFolderError(f"{out} exists already. Give another file, or --overwrite to replace it.")


def _read(files: list[ImageFile], reader: ImageReader, reading: Reading, out: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings and labels; list images that cannot be read in a table beside `out`."""
    import numpy as np

    from uniot.training.images import lost_classes, read_collection, skipped_beside, write_skipped

    read = read_collection(files, reader, reading)
    lost = lost_classes(files, read)
    write_skipped(skipped_beside(out), read.skipped)
    if read.skipped:
        console().print(skipped_line(read.skipped, skipped_beside(out)))
    for label, skipped in lost.items():
        console().print(lost_line(label, skipped))
    return read.values, np.array([str(file.label) for file in read.files])


def _show(model: SourceModel, out: Path) -> None:
    screen, kind = console(), "sample" if model.reader is None else "image"
    classes = counted(len(model.classes), "class", "classes")
    size = size_of(out.stat().st_size)
    samples = counted(int(model.class_sizes.sum()), kind)
    screen.print(
        f"{quoted(out)} is written, {size}: a model of {classes}, trained on {samples}. "
        f"It contains class names, class sizes and class averages, and no {kind}."
    )
    single = model.classes[model.class_sizes == 1].tolist()
    if single:
        screen.print(
            f"Warning: {counted(len(single), 'class has', 'classes have')} a single {kind}, whose embedding is the "
            f"average in the file: {listed(single, _MOST_NAMES)}."
        )
    place = "unlabelled.npz" if model.reader is None else "unlabelled/"
    following = command("adapt", "--source-model", out, place, "--out", "run/")
    show_next({following: f"where the unlabelled {kind}s are"})


def are_images(place: Path) -> bool:
    """Return whether a collection consists of images; raise DataError if there is none."""
    from uniot.images.files import holds_images
    from uniot.images.lists import check_is_list

    check_exists(place)
    if place.is_file():
        check_is_list(place)
    return holds_images(place)


def check_exists(place: Path) -> None:
    """Raise DataError if a collection does not exist; the message names one beside it with a similar name."""
    if place.exists():
        return
    try:
        beside = [other.name for other in place.parent.iterdir()]
    except OSError:
        beside = []
    alike = get_close_matches(place.name, beside, n=1)
    advice = "Give a folder of images, a list file, or a file of embeddings."
    if alike:
        advice = f"Did you mean {place.with_name(alike[0])}?"
    raise DataError(f"{place} does not exist. {advice}")


def labelled_embeddings(place: Path, *, allow_one_class: bool = False) -> EmbeddingFile:
    """Return the embeddings of a file, with their labels.

    Args:
        place: the file.
        allow_one_class: as for `labelled_files`.

    Raises:
        DataError: there are no labels, or too few classes.
    """
    from uniot.io.embedding_files import read_embeddings
    from uniot.io.labels import as_labels

    found = read_embeddings(place)
    if found.y is None:
        raise DataError(f"{place} contains no labels. Save them as y: `numpy.savez(file, x=embeddings, y=labels)`.")
    labels = as_labels(found.y, f"y of {place}")
    _check_classes(place, labels.tolist(), "Give at least two classes.", allow_one_class=allow_one_class)
    return replace(found, y=labels)


def labelled_files(place: Path, *, allow_one_class: bool = False) -> list[ImageFile]:
    """Return the images of a folder or a list file, with their labels.

    Args:
        place: the folder or the list file.
        allow_one_class: whether a single class is allowed, because labels by people will add others.

    Raises:
        DataError: there are no labelled images, or too few classes.
    """
    from uniot.images.files import classes_one_folder_below, labelled_images

    files = labelled_images(place)
    below = classes_one_folder_below(place, files)
    advice = "Give at least two classes." if below is None else f"Did you mean {below}?"
    if below is None and place.is_dir():
        advice = "Give a folder that has one folder of images per class, at least two."
    _check_classes(place, [str(file.label) for file in files], advice, allow_one_class=allow_one_class)
    return files


def _check_classes(place: Path, labels: Iterable[object], advice: str, *, allow_one_class: bool) -> None:
    """Raise DataError if there is a single class, or one with the name of the label of unknown samples."""
    classes = set(labels)
    if len(classes) < 2 and not allow_one_class:
        raise DataError(f"{place} has one class only, {classes.pop()!r}. {advice}")
    if "unknown" in classes:
        raise DataError(
            f"{place} has a class called 'unknown', which is the label of samples that fit no class. Give the class "
            "another name, or leave it out."
        )


def labelled_line(place: Path, number: int, n_classes: int, kind: str) -> str:
    """Return a sentence on how many labelled samples there are, such as images."""
    return f"Labelled: {counted(number, kind)} of {counted(n_classes, 'class', 'classes')} in {place}."


def settings_for_model(
    model: SourceModel | None,
    model_file: Path | None,
    file: Path | None,
    given: Mapping[str, Any],
    of_images: Mapping[str, Any],
) -> tuple[Settings, ImageSettings]:
    """Return the settings of a run; those that a source model requires are taken from it.

    Args:
        model: the source model that the run adapts; None if it has labelled samples.
        model_file: its file, for error messages.
        file: as for `chosen_settings`.
        given: as for `chosen_settings`.
        of_images: as for `chosen_settings`.

    Raises:
        SettingsError: a setting differs from that of the source model.
    """
    if model is None:
        return chosen_settings(file, given, of_images)
    required = {name: getattr(model.settings, name) for name in ("method", "feature_size", "input_norm")}
    of_reader = {}
    if model.reader is not None:
        of_reader = model.reader.settings.model_dump(include={"backbone", "weights", "flip", "fine_tune"})
    chosen, images = chosen_settings(file, given, of_images, required, of_reader)
    found = chosen.model_dump() | images.model_dump()
    for name, value in (required | of_reader).items():
        if found[name] != value:
            own = "the weights that it contains" if name == "weights" else f"{name} {value}"
            raise SettingsError(
                f"{name} is {found[name]}, and {model_file} was trained with {own}. Leave it out, or train another "
                "source model with `uniot train-source`."
            )
    return chosen, images
