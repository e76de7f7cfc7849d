"""`uniot train-source`: a model of the labelled samples alone, to be adapted where they are not available."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.options import (
    BackboneName,
    Flip,
    LabelColumn,
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
    labelled_line,
    lost_line,
    reading_progress,
    show_next,
    show_warning,
    skipped_line,
    working,
)
from uniot.errors import RunFolderError
from uniot.io.columns import Columns
from uniot.io.text import command, counted, listed, quoted, size_of

if TYPE_CHECKING:
    import numpy as np

    from uniot.images.backbones import ImageReader
    from uniot.images.embedding import ReadOptions
    from uniot.images.files import ImageFile
    from uniot.training.source_model import SourceModel

_MOST_NAMES = 5


def train_source(
    labelled: Annotated[
        Path,
        typer.Argument(
            help="Labelled images: a folder that has one folder per class. Or a list file, or a table or file of "
            "embeddings (.csv with a column label, .npz with x and y, …)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write, .safetensors.")],
    method: Annotated[
        str | None, typer.Option(help="Method that will label the other images: glc, glc-plus or lead. Default: glc.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed: the same seed repeats a training. Default: 0.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Training steps. Default: set by the number of labelled images.")
    ] = None,
    settings: SettingsFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    label: LabelColumn = None,
    backbone: BackboneName = None,
    weights: Weights = None,
    flip: Flip = None,
    strict: Strict = False,
    store: Store = None,
    workers: Workers = None,
) -> None:
    """Train a model on labelled images, to label other images where the labelled ones are not available.

    The file contains the trained model, the names and sizes of the classes, an average of each class, and for images
    the network that reads them. It contains no image.

    Example: `uniot train-source labelled/ --method glc --out source.safetensors`

    Then, where the other images are: `uniot adapt --source-model source.safetensors unlabelled/ --out run/`
    """
    import numpy as np

    with working("Loading PyTorch"):
        from uniot.adaptation.collections import Collection, are_images
        from uniot.images.backbones import ImageReader
        from uniot.images.embedding import ReadOptions
        from uniot.images.store import EmbeddingStore
        from uniot.methods.registry import method_info
        from uniot.training.source_model import check_source_free
        from uniot.training.source_model import train_source as train

    given = {"seed": seed, "steps": steps, "method": method}
    of_images = {"backbone": backbone, "weights": None if weights is None else str(weights), "flip": flip}
    chosen, images = chosen_settings(settings, given, of_images, {"method": "glc"})
    check_source_free(chosen)
    of_reading = {"strict": strict or None, "store": store, "workers": workers}
    columns = Columns(label)
    has_images = are_images(labelled, columns)
    if not has_images:
        options = {f"--{name}": value for name, value in (of_images | of_reading).items()}
        refuse_for_embeddings(options, f"{labelled} is a file of embeddings")
    _check_out(out, labelled, overwrite)
    console().print(method_line(chosen.method))
    found = Collection.labelled(labelled, columns=columns)
    x, y, reader = found.rows, np.asarray(found.labels), None
    console().print(labelled_line(labelled, len(found), len(np.unique(y)), found.kind))
    if found.files is not None:
        with working(f"Loading the network {images.backbone}"):
            reader = ImageReader.open(images)
        with reading_progress({"images": str(labelled)}) as progress:
            x, y = _embedded(found.files, reader, ReadOptions(EmbeddingStore(store), strict, workers, progress), out)
    with fitting_progress(method_info(chosen.method).title) as on_step:
        model = train(
            x, y, chosen, reader=reader, on_step=on_step, feature_names=found.feature_names, warn=show_warning
        )
    model.save(out)
    _show(model, out)


def _check_out(out: Path, labelled: Path, overwrite: bool) -> None:
    check_writable(out, (".safetensors",))
    if out.exists() and out.samefile(labelled):
        raise RunFolderError(f"--out is the file of the labelled samples, {labelled}. Give another file.")
    if out.exists() and not overwrite:
        raise RunFolderError(f"{out} exists already. Give another file, or --overwrite to replace it.")


def _embedded(
    files: list[ImageFile], reader: ImageReader, options: ReadOptions, out: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings and labels; list images that cannot be read in a table beside `out`."""
    import numpy as np

    from uniot.images.embedding import embed_images, lost_classes, skipped_beside, write_skipped

    read = embed_images(files, reader, options)
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
