"""`uniot predict`: a finished run answers for samples that it has not seen."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from uniot.cli.checks import check_folder, check_writable, refuse_for_embeddings
from uniot.cli.preference import Preferred, PrivatePrior
from uniot.cli.progress import reading_progress
from uniot.cli.run_files import warn_of_outdated_names
from uniot.cli.screen import Tally, skipped_line
from uniot.errors import DataError

if TYPE_CHECKING:
    from uniot.data.image_files import ImageFile
    from uniot.embeddings.reading import Skipped
    from uniot.images import Reading
    from uniot.model import AdaptedModel
    from uniot.prediction import Prediction
    from uniot.sorted_copies import SortedCopies


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    new: Annotated[
        list[Path],
        typer.Argument(help="New samples: images, a folder of images, a list file, or a file of embeddings."),
    ],
    out: Annotated[Path | None, typer.Option(help="A .csv or .parquet to write; standard output if not given.")] = None,
    copy_to: Annotated[
        Path | None, typer.Option(help="Also copy the images into folders by predicted class and group.")
    ] = None,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first image that cannot be read.")] = False,
    store: Annotated[Path | None, typer.Option(help="Folder that keeps embeddings between runs; one of yours.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that read and decode images; one per core.")
    ] = None,
) -> None:
    """Label new samples with a finished run, each on its own.

    Names given to groups on the page of `uniot label` are used here too.

    --private-prior and --prefer move the threshold between known and unknown, and nothing is adapted again; the
    fraction is that of the fitted target.

    Example: `uniot predict run/ holiday-photos/ --out new.csv`
    """
    from uniot.answers import AnswerWriter
    from uniot.data.image_files import is_image
    from uniot.embeddings.store import EmbeddingStore
    from uniot.images import Reading
    from uniot.model_files import load_annotated
    from uniot.run_contents import preference_line
    from uniot.sorted_copies import SortedCopies, check_destination

    if out is not None:
        check_writable(out, (".csv", ".parquet"))
    if copy_to is not None:
        check_folder(copy_to)
        check_destination(copy_to, _collections(run, new))
    files = _image_files(new)
    if files is None:
        given = {"--copy-to": copy_to, "--strict": strict or None, "--store": store, "--workers": workers}
        refuse_for_embeddings(given, f"{new[0]} is a file of embeddings")
    model = load_annotated(run, private_prior, None if prefer is None else prefer.value)
    warn_of_outdated_names(run, model)
    preference = preference_line(model)
    if out is None and copy_to is None and files is not None and all(map(is_image, new)):
        # One photograph is as soon computed as looked up.
        _print_lines(model, files, Reading(EmbeddingStore(store), strict, workers) if len(new) > 1 else Reading())
        if preference is not None:
            typer.echo(preference, err=True)
        return
    copies = None
    if copy_to is not None:
        collections = _collections(run, new)
        copies = SortedCopies(copy_to, model.classes, collections=collections, group_names=model.group_names)
    tally = Tally()
    skipped: list[Skipped] = []
    with ExitStack() as stack:
        if files is None:
            blocks = _embedding_blocks(model, new[0])
        else:
            reading = Reading(
                EmbeddingStore(store), strict, workers, stack.enter_context(reading_progress({"images": new[0]}))
            )
            blocks = _image_blocks(model, files, reading, skipped)
        place: Path | TextIO = sys.stdout if out is None else out
        writer = stack.enter_context(AnswerWriter(place, model.classes, model.unknown, model.group_names))
        for names, paths, prediction in blocks:
            writer.write(names, prediction)
            tally.add(prediction)
            if copies is not None and names is not None:
                copies.write(zip(paths, names, strict=True), prediction)
    _tell(tally, skipped, out)
    if preference is not None:
        typer.echo(preference, err=out is None)
    if copies is not None and copy_to is not None:
        _tell_of_copies(copies, copy_to, err=out is None)


def _collections(run: Path, new: list[Path]) -> list[Path]:
    """The new samples, and source and target of the run as far as it says where they lay."""
    from uniot.settings import read_inputs

    settings = run / "settings.toml"
    inputs = read_inputs(settings) if settings.is_file() else {}
    return [*new, *(Path(inputs[name]) for name in ("source", "target") if name in inputs)]


def _image_files(new: list[Path]) -> Iterable[ImageFile] | None:
    """The images that are meant; None where it is a file of embeddings."""
    from uniot.data.image_files import given_images, holds_images, stream_images

    for place in new:
        if not place.exists():
            raise DataError(
                f"{place} does not exist. Give images, a folder of images, a list file, or a file of embeddings."
            )
    if len(new) > 1:
        return given_images(new)
    return stream_images(new[0]) if holds_images(new[0]) else None


def _print_lines(model: AdaptedModel, files: Iterable[ImageFile], reading: Reading) -> None:
    """Photographs that are given one by one get a line each, for people."""
    from uniot.images import predict_images

    for block in predict_images(model, files, reading):
        for row, file in enumerate(block.files):
            typer.echo(f"{file.path}: {_in_words(model, block.prediction, row)}")
        if block.skipped and block.files:
            typer.echo(skipped_line(block.skipped, None), err=True)


def _in_words(model: AdaptedModel, answers: Prediction, row: int) -> str:
    nearest, sure = model.classes[answers.nearest[row]], f"confidence {answers.confidence[row]:.2f}"
    if answers.known[row]:
        return f"{nearest}, {sure}"
    group = int(answers.group[row])
    called = model.group_names.get(group, model.unknown)
    placed = f"; group {group}, group confidence {answers.group_confidence[row]:.2f}" if group >= 0 else ""
    return f"{called}, {sure}{placed}; nearest class {nearest}"


def _embedding_blocks(model: AdaptedModel, new: Path) -> Iterator[tuple[list[str] | None, list[Path], Prediction]]:
    from uniot.arrays import inputs_of
    from uniot.data.embedding_files import read_embeddings

    embeddings = read_embeddings(new)
    samples = embeddings.ids or [str(row) for row in range(len(embeddings.x))]
    yield embeddings.ids, [], model.predict(inputs_of(embeddings.x, model), samples)


def _image_blocks(
    model: AdaptedModel, files: Iterable[ImageFile], reading: Reading, skipped: list[Skipped]
) -> Iterator[tuple[list[str] | None, list[Path], Prediction]]:
    from uniot.images import predict_images

    for block in predict_images(model, files, reading):
        skipped += block.skipped
        yield [file.name for file in block.files], [file.path for file in block.files], block.prediction


def _tell(tally: Tally, skipped: list[Skipped], out: Path | None) -> None:
    """What came out; on standard error where standard output is the table."""
    from uniot.images import skipped_beside, write_skipped

    if out is None:
        typer.echo(tally.verdict(), err=True)
    else:
        typer.echo(f"{tally.verdict()} Every answer is in {out}.")
        write_skipped(skipped_beside(out), skipped)
    if skipped:
        typer.echo(skipped_line(skipped, None if out is None else skipped_beside(out)), err=out is None)


def _tell_of_copies(copies: SortedCopies, place: Path, *, err: bool) -> None:
    typer.echo(f"The images are sorted into folders in {place}.", err=err)
    if copies.had_files:
        typer.echo(
            f"{place} was not empty. What it held is as it was, so that earlier images may lie beside these; "
            "a new folder would hold these alone.",
            err=err,
        )
