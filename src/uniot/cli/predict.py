"""`uniot predict`: a finished run on new images or embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from uniot.cli.options import (
    IdsColumn,
    Preferred,
    PrivatePrior,
    Store,
    Strict,
    TextColumn,
    check_folder,
    check_writable,
    refuse_for_embeddings,
)
from uniot.cli.screen import Tally, print_line, reading_progress, skipped_line, table_output, working
from uniot.cli.sharded import (
    Engine,
    EngineName,
    EngineWorkers,
    RayAddress,
    RayOptions,
    predict_in_shards,
    refuse_for_ray,
    refuse_without_ray,
)
from uniot.errors import DataError, SettingsError
from uniot.io.columns import Columns
from uniot.io.text import quoted

if TYPE_CHECKING:
    from uniot.images.embedding import ReadOptions, Skipped
    from uniot.images.files import ImageFile
    from uniot.io.predictions import Prediction
    from uniot.io.sorted_copies import SortedCopies
    from uniot.runs import Run
    from uniot.training.model import AdaptedModel


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    new: Annotated[
        list[str],
        typer.Argument(
            help="New images: files, a folder, a list file; or a table or file of embeddings or texts; cells (.h5ad)."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            help="Table to write, .csv or .parquet, for cells also .h5ad; with --engine ray a folder. Default: printed."
        ),
    ] = None,
    copy_to: Annotated[
        Path | None,
        typer.Option(help="Also copy the images into this folder, sorted into one folder per class or group."),
    ] = None,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
    ids: IdsColumn = None,
    text: TextColumn = None,
    strict: Strict = False,
    store: Store = None,
    workers: EngineWorkers = None,
    engine: EngineName = Engine.PROCESS,
    ray_address: RayAddress = None,
) -> None:
    """Label new images with a finished run.

    Names that you gave to groups with `uniot label` are used. A class that the run found absent is hardly ever
    predicted: new images get the most similar class or unknown. Run `uniot adapt` again if the class may appear.

    --private-prior and --prefer call more or fewer images unknown without a new run; the fraction refers to the
    unlabelled images of the run.

    Of a table, the columns of the run are read; texts are embedded by the network of the run.

    With --engine ray the input may be a folder of Parquet files of embeddings, or the URL of such a folder or of a
    folder of images, and the predictions are written to a folder, shard by shard.

    Example: `uniot predict run/ holiday-photos/ --out new.csv`
    """
    preferred = None if prefer is None else prefer.value
    if engine is Engine.RAY:
        refuse_for_ray({"--copy-to": copy_to, "--store": store, "--ids": ids, "--text": text})
        predict_in_shards(run, new, out, (private_prior, preferred), strict, RayOptions(ray_address, workers))
        return
    refuse_without_ray({"--ray-address": ray_address}, *new, out)
    _predict(
        run,
        [Path(place) for place in new],
        None if out is None else Path(out),
        copy_to,
        (private_prior, preferred),
        Columns(ids=ids, text=text),
        strict=strict,
        store=store,
        workers=workers,
    )


def _predict(
    run: Path,
    new: list[Path],
    out: Path | None,
    copy_to: Path | None,
    preference: tuple[float | None, str | None],
    columns: Columns,
    *,
    strict: bool,
    store: Path | None,
    workers: int | None,
) -> None:
    """Print predictions or write them to a table, in this process."""
    with working("Loading PyTorch", lines=False):
        from uniot.images.files import is_image
        from uniot.images.lists import TABLE_SUFFIXES
        from uniot.images.store import EmbeddingStore

    are_cells = len(new) == 1 and new[0].suffix.lower() == ".h5ad"
    if out is not None:
        check_writable(out, (".csv", ".parquet", ".h5ad") if are_cells else (".csv", ".parquet"))
    if copy_to is not None:
        check_folder(copy_to)
    _check_places(new)
    # The run may say which columns of a table to read, so that tables wait for it.
    is_table = new[0].suffix.lower() in (*TABLE_SUFFIXES, ".parquet")
    of_images = {"--copy-to": copy_to, "--strict": strict or None, "--store": store, "--workers": workers}
    files = None if is_table else _image_files(new, columns)
    if files is None and not is_table:
        refuse_for_embeddings(of_images, f"{new[0]} is a file of {'cells' if are_cells else 'embeddings'}")
    with working("Loading the run", lines=False):
        from uniot.images.embedding import ReadOptions
        from uniot.io.predictions import PredictionWriter
        from uniot.io.sorted_copies import SortedCopies, check_destination
        from uniot.runs import Run
        from uniot.runs.run import preference_line

        opened = Run.open(run, *preference)
        columns = _columns_of(opened, columns, new[0])
        if is_table:
            files = _image_files(new, columns)
        if is_table and files is None:
            is_text = columns.text is not None
            given = of_images | {"--store": None} if is_text else of_images
            refuse_for_embeddings(given, f"{new[0]} is {'a table of texts' if is_text else 'a file of embeddings'}")
        if copy_to is not None:
            check_destination(copy_to, _collections(opened, new))
        model = opened.model
    if opened.outdated_annotations is not None:
        print_line(f"Warning: {opened.outdated_annotations}", err=True)
    line = preference_line(model)
    if are_cells:
        _predict_cells(opened, new[0], out)
        if line is not None:
            print_line(line, err=out is None)
        return
    if out is None and copy_to is None and files is not None and all(map(is_image, new)):
        # Embedding one image takes no longer than looking it up in the store.
        _print_lines(
            model, files, ReadOptions(EmbeddingStore(store), strict, workers) if len(new) > 1 else ReadOptions()
        )
        if line is not None:
            print_line(line, err=True)
        return
    copies = None
    if copy_to is not None:
        collections = _collections(opened, new)
        copies = SortedCopies(copy_to, model.classes, collections=collections, group_names=model.group_names)
    tally = Tally()
    skipped: list[Skipped] = []
    with ExitStack() as stack:
        kind = "text" if columns.text is not None else "image"
        progress = stack.enter_context(reading_progress({f"{kind}s": str(new[0])}, kind))
        options = ReadOptions(EmbeddingStore(store), strict, workers, progress)
        if files is None:
            blocks = _row_blocks(opened, model, new[0], columns, options)
        else:
            blocks = _image_blocks(model, files, options, skipped)
        place: Path | TextIO = table_output() if out is None else out
        writer = stack.enter_context(PredictionWriter(place, model.classes, model.unknown, model.group_names))
        for names, paths, prediction in blocks:
            writer.write(names, prediction)
            tally.add(prediction)
            if copies is not None and names is not None:
                copies.write(zip(paths, names, strict=True), prediction)
    _show_summary(tally, skipped, out)
    if line is not None:
        print_line(line, err=out is None)
    if copies is not None and copy_to is not None:
        _show_copies(copies, copy_to, err=out is None)


def _collections(run: Run, new: list[Path]) -> list[Path]:
    """Return the places of the new samples, and of the two collections of the run if it has them."""
    inputs = run.inputs
    return [*new, *(Path(inputs[name]) for name in ("source", "target") if name in inputs)]


def _columns_of(run: Run, chosen: Columns, new: Path) -> Columns:
    """Return the columns to read of a new table: those that were chosen, else those of the run."""
    columns = chosen.needs("ids", "text").over(Columns.of_inputs(run.inputs))
    if chosen.text is not None and run.inputs.get("text") is None:
        raise SettingsError(
            f"--text is for runs of texts, and {quoted(run.folder)} was made from others. Leave it out, or give texts "
            "that you embedded with the network of the run."
        )
    if chosen.text is None and new.suffix.lower() in (".csv", ".tsv", ".parquet"):
        columns = replace(columns, needed=columns.needed | {"text"} if columns.text is not None else columns.needed)
    elif chosen.text is None:
        columns = replace(columns, text=None)  # a file of embeddings, such as `uniot embed` writes of texts
    return columns


def _check_places(new: list[Path]) -> None:
    for place in new:
        if not place.exists():
            raise DataError(
                f"{place} does not exist. Give images, a folder of images, a list file, or a file of embeddings."
            )


def _image_files(new: list[Path], columns: Columns) -> Iterable[ImageFile] | None:
    """Return the new images; None for embeddings and texts."""
    from uniot.images.files import check_list, given_images, holds_images, stream_images

    if len(new) > 1:
        return given_images(new)
    if not holds_images(new[0], columns):
        return None
    check_list(new[0], columns)
    return stream_images(new[0], columns)


def _print_lines(model: AdaptedModel, files: Iterable[ImageFile], options: ReadOptions) -> None:
    """Print a line per image."""
    from uniot.training.image_predictions import predict_images

    for block in predict_images(model, files, options):
        for row, file in enumerate(block.files):
            print_line(f"{file.path}: {_in_words(model, block.prediction, row)}")
        if block.skipped and block.files:
            print_line(skipped_line(block.skipped, None), err=True)


def _in_words(model: AdaptedModel, answers: Prediction, row: int) -> str:
    nearest, sure = model.classes[answers.nearest[row]], f"confidence {answers.confidence[row]:.2f}"
    if answers.known[row]:
        return f"{nearest}, {sure}"
    group = int(answers.group[row])
    called = model.group_names.get(group, model.unknown)
    placed = f"; group {group}, group confidence {answers.group_confidence[row]:.2f}" if group >= 0 else ""
    return f"{called}, {sure}{placed}; nearest class {nearest}"


def _row_blocks(
    run: Run, model: AdaptedModel, new: Path, columns: Columns, options: ReadOptions
) -> Iterator[tuple[list[str] | None, list[Path], Prediction]]:
    """Yield the predictions for a file of embeddings, or for a table of texts."""
    from uniot.adaptation.collections import Collection
    from uniot.training.domains import inputs_of

    found = Collection.unlabelled(new, columns=columns)
    if found.texts is not None:
        found = found.embedded(run.inputs.get("encoder"), options, "texts")
    elif model.feature_names is not None and found.feature_names is not None:
        found = found.with_features(model.feature_names, str(run.folder))
    for note in found.notes:
        print_line(note, err=True)
    yield found.names, [], model.predict(inputs_of(found.rows, model), found.names)


def _predict_cells(run: Run, new: Path, out: Path | None) -> None:
    """Print the predictions for cells, or write them to a table or to a copy of the .h5ad file."""
    from uniot.cells.h5ad import is_h5ad
    from uniot.cells.reading import read_new_cells
    from uniot.cells.results import columns_of, write_annotated
    from uniot.io.predictions import PredictionWriter
    from uniot.training.domains import inputs_of

    model = run.model
    cells, notes = read_new_cells(new, use_rep=run.inputs.get("use_rep"), projection=run.gene_projection)
    for note in notes:
        print_line(note, err=True)
    prediction = model.predict(inputs_of(cells.rows, model), cells.names)
    if out is not None and is_h5ad(out):
        write_annotated(new, out, columns_of(model, prediction), cells.names)
    else:
        place: Path | TextIO = table_output() if out is None else out
        with PredictionWriter(place, model.classes, model.unknown, model.group_names) as writer:
            writer.write(cells.names, prediction)
    tally = Tally()
    tally.add(prediction)
    _show_summary(tally, [], out)


def _image_blocks(
    model: AdaptedModel, files: Iterable[ImageFile], options: ReadOptions, skipped: list[Skipped]
) -> Iterator[tuple[list[str] | None, list[Path], Prediction]]:
    from uniot.training.image_predictions import predict_images

    for block in predict_images(model, files, options):
        skipped += block.skipped
        yield [file.name for file in block.files], [file.path for file in block.files], block.prediction


def _show_summary(tally: Tally, skipped: list[Skipped], out: Path | None) -> None:
    """Print the counts, and the images that could not be read; to standard error if standard output is the table."""
    from uniot.images.embedding import skipped_beside, write_skipped

    if out is None:
        print_line(tally.verdict(), err=True)
    else:
        print_line(f"{tally.verdict()} Every prediction is in {quoted(out)}.")
        write_skipped(skipped_beside(out), skipped)
    if skipped:
        print_line(skipped_line(skipped, None if out is None else skipped_beside(out)), err=out is None)


def _show_copies(copies: SortedCopies, place: Path, *, err: bool) -> None:
    print_line(f"The images are sorted into folders in {quoted(place)}.", err=err)
    if copies.had_files:
        print_line(
            f"{quoted(place)} was not empty. Its files were kept, so earlier images may be among these; give a new "
            "folder to get these alone.",
            err=err,
        )
