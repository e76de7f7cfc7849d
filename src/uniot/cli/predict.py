"""`uniot predict`: a finished run answers for samples that it has not seen."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from uniot.cli.screen import Tally, reading_progress
from uniot.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from uniot.model import AdaptedModel
    from uniot.prediction import Prediction


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    new: Annotated[
        Path, typer.Argument(help="New samples: an image, a folder of images, a list file, or a file of embeddings.")
    ],
    out: Annotated[Path | None, typer.Option(help="A .csv or .parquet to write; standard output if not given.")] = None,
    copy_to: Annotated[
        Path | None, typer.Option(help="Also copy the images into folders by predicted class and group.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first image that cannot be read.")] = False,
    store: Annotated[Path | None, typer.Option(help="Folder that keeps embeddings between runs; one of yours.")] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that decode images.")] = None,
) -> None:
    """Label new samples with a finished run, each on its own.

    Example: `uniot predict run/ holiday-photos/ --out new.csv`
    """
    from uniot.answers import AnswerWriter
    from uniot.data.image_files import holds_images, is_list
    from uniot.model import AdaptedModel
    from uniot.sorted_copies import SortedCopies

    if not new.exists():
        raise DataError(f"{new} does not exist. Give an image, a folder of images, or a file of embeddings.")
    model = AdaptedModel.load(run)
    tally = Tally()
    if out is None and copy_to is None and new.is_file() and holds_images(new) and not is_list(new):
        _print_one(model, new)
        return
    with ExitStack() as stack:
        place: Path | TextIO = sys.stdout if out is None else out
        writer = stack.enter_context(AnswerWriter(place, model.classes, model.unknown))
        copies = None
        if copy_to is not None:
            copies = SortedCopies(copy_to, model.classes, source=new if new.is_dir() else new.parent)
        if holds_images(new):
            blocks = _image_blocks(model, new, tally, strict, store, workers, stack)
        else:
            if copy_to is not None:
                raise DataError(f"--copy-to needs images, and {new} is a file of embeddings.")
            blocks = _embedding_blocks(model, new)
        for names, paths, prediction in blocks:
            writer.write(names, prediction)
            tally.add(prediction)
            if copies is not None and names is not None:
                copies.write(zip(paths, names, strict=True), prediction)
    place_text = "" if out is None else f" Every answer is in {out}."
    typer.echo(f"{tally.verdict()}{place_text}", err=out is None)
    if copy_to is not None:
        typer.echo(f"The images are sorted into folders in {copy_to}.", err=out is None)


def _print_one(model: AdaptedModel, image: Path) -> None:
    """A single photograph gets a line for people."""
    from uniot.data.image_files import unlabelled_images
    from uniot.images import Reading, predict_images

    (block,) = predict_images(model, unlabelled_images(image), Reading(strict=True))
    answer = block.prediction
    nearest = model.classes[answer.nearest[0]]
    if answer.known[0]:
        said = f"{nearest}, confidence {answer.confidence[0]:.2f}"
    else:
        group = f", group {answer.group[0]}" if answer.group[0] >= 0 else ""
        said = f"{model.unknown}{group}; nearest {nearest}, confidence {answer.confidence[0]:.2f}"
    typer.echo(f"{image}: {said}")


def _embedding_blocks(model: AdaptedModel, new: Path) -> Iterator[tuple[list[str] | None, list[Path], Prediction]]:
    from uniot.data.embedding_files import read_embeddings
    from uniot.estimator import UniOT

    embeddings = read_embeddings(new)
    yield embeddings.ids, [], UniOT.from_model(model).predict_full(embeddings.x)


def _image_blocks(
    model: AdaptedModel,
    new: Path,
    tally: Tally,
    strict: bool,
    store: Path | None,
    workers: int | None,
    stack: ExitStack,
) -> Iterator[tuple[list[str] | None, list[Path], Prediction]]:
    from uniot.data.image_files import stream_images
    from uniot.embeddings.store import EmbeddingStore
    from uniot.images import Reading, predict_images

    on_progress = stack.enter_context(reading_progress()) if new.is_dir() else None
    reading = Reading(EmbeddingStore(store), strict, workers, on_progress)
    for block in predict_images(model, stream_images(new), reading):
        for skipped in block.skipped:
            tally.skip(skipped.name, skipped.reason)
        yield [file.name for file in block.files], [file.path for file in block.files], block.prediction
