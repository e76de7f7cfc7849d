"""`uniot adapt`: label a collection with the classes of a labelled one, and write a run folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.inputs import (
    Collections,
    collection_lines,
    list_image_pair,
    open_reading,
    read_embedding_pair,
    read_image_pair,
)
from uniot.cli.labelled import check_exists, settings_for_model
from uniot.cli.options import (
    IMAGES,
    BackboneName,
    FineTune,
    Flip,
    Log,
    Precision,
    Preferred,
    PrivatePrior,
    SettingsFile,
    Store,
    Strict,
    Weights,
    Workers,
    method_line,
    refuse_for_embeddings,
)
from uniot.cli.results import show_result
from uniot.cli.screen import console, fitting_progress, show_warning, working
from uniot.errors import DataError, RunFolderError, SettingsError
from uniot.io.text import command

_MACHINES = "Several processes"


def adapt(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="Labelled images: a folder that has one folder per class. Or a list file, or a file of embeddings "
            "(.npz with x and y, …)."
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(help="Unlabelled images: any folder, a list file, or a file of embeddings.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results; an interrupted run continues.")] = None,
    source_model: Annotated[
        Path | None,
        typer.Option(help="File of `uniot train-source`, in place of the labelled images; give only the unlabelled."),
    ] = None,
    continued: Annotated[
        Path | None,
        typer.Option("--continue", help="Run again with what people said: names become classes, labels stay."),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(help="Table with path and label, as `uniot label` exports it; the labels become further classes."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed: the same seed repeats a run. Default: 0.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Training steps, for methods that train. Default: by the number of unlabelled images."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method that labels the images; `uniot methods` lists all. Default: unincm.")
    ] = None,
    forget_target: Annotated[
        bool,
        typer.Option(
            "--forget-target", help="Store averages of several unlabelled images in the run folder, and no single one."
        ),
    ] = False,
    private_classes: Annotated[
        int | None, typer.Option(help="Number of new groups, if you know it. Default: estimated.")
    ] = None,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
    settings: SettingsFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Only continue an interrupted run; an error if there is none.")
    ] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Also write predictions.parquet.")] = False,
    target_labels: Annotated[
        str | None,
        typer.Option(
            help="True labels of the unlabelled images, only to score the result: a file, or `folders` if they are "
            "sorted into folders by class."
        ),
    ] = None,
    log: Annotated[
        Log | None, typer.Option(help="Also log settings, losses and scores there, if the method trains.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between checkpoints. Default: 100.")] = None,
    backbone: BackboneName = None,
    weights: Weights = None,
    flip: Flip = None,
    fine_tune: Annotated[
        FineTune | None, typer.Option(help="Part of that network to train. Default: none.", rich_help_panel=IMAGES)
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(help="Number of parts of a batch, if memory is short. Default: 1.", rich_help_panel=IMAGES),
    ] = None,
    strict: Strict = False,
    store: Store = None,
    workers: Workers = None,
    devices: Annotated[
        str,
        typer.Option(
            help="Number of processes on this machine, or `auto`: one per GPU, or one if there is none.",
            rich_help_panel=_MACHINES,
        ),
    ] = "auto",
    nodes: Annotated[
        int, typer.Option(min=1, help="Number of machines; run the same command on each.", rich_help_panel=_MACHINES)
    ] = 1,
    precision: Annotated[
        Precision | None,
        typer.Option(help="Number format on a GPU; mixed is faster. Default: 32-true.", rich_help_panel=_MACHINES),
    ] = None,
) -> None:
    """Label images with the classes of labelled ones, and group those that fit none of the classes.

    Example: `uniot adapt labelled/ unlabelled/ --out run/`

    After you named groups with `uniot label`: `uniot adapt --continue run/`

    Without the labelled images: `uniot adapt --source-model source.safetensors unlabelled/ --out run/`
    """
    given = {
        "seed": seed,
        "steps": steps,
        "method": method,
        "n_private_classes": private_classes,
        "private_prior": private_prior,
        "prefer": None if prefer is None else prefer.value,
        "checkpoint_every": checkpoint_every,
        "store_target": False if forget_target else None,
    }
    of_images = {
        "backbone": backbone,
        "weights": None if weights is None else str(weights),
        "flip": flip,
        "fine_tune": None if fine_tune is None else fine_tune.value,
        "accumulate": accumulate,
        "precision": None if precision is None else precision.value,
    }
    n_devices = _devices(devices)
    if resume and overwrite:
        raise SettingsError(
            "--resume continues the run in the folder, and --overwrite replaces it. Give only one of them."
        )
    for place in filter(None, (source, target) if continued is None else ()):
        check_exists(place)
    with working("Loading PyTorch"):
        from uniot.methods.registry import check_method, check_start, method_info
        from uniot.runs import Run, RunFiles
        from uniot.training.fit import FitContext, fit
        from uniot.training.history import open_logger
        from uniot.training.processes import start_processes
    if continued is not None:
        collections, out = _continued(
            continued, out, (source, target, names, source_model), [backbone, weights, flip, fine_tune]
        )
        settings = settings or RunFiles(continued).settings
    elif source_model is not None:
        collections, out = _without_source(source_model, (source, target), names, out)
    elif source is None or target is None or out is None:
        raise DataError(
            "expected labelled images, unlabelled images and --out: uniot adapt labelled/ unlabelled/ --out run/. "
            "Or, after you named groups of a run: uniot adapt --continue run/"
        )
    else:
        from uniot.labelling import read_names

        collections = Collections(source, target, None if names is None else read_names(names))
    chosen, images = settings_for_model(collections.source_model, source_model, settings, given, of_images)
    if continued is not None:
        # Groups that have names now are classes, so the earlier numbers no longer hold.
        chosen = chosen.model_copy(update={"n_private_classes": private_classes, "private_prior": private_prior})
    if collections.start is not None:
        reader = collections.start.reader
        trains = chosen.network != "none" or (reader is not None and reader.fine_tunes)
        check_start(chosen.method, collections.start.method, trains=trains)
    check_method(chosen)
    are_images = collections.are_images()
    if not are_images:
        others = {"strict": strict or None, "store": store, "workers": workers}
        options = {f"--{name.replace('_', '-')}": value for name, value in (of_images | others).items()}
        refuse_for_embeddings(options, "the collections are embeddings")
    files = list_image_pair(collections, target_labels) if are_images else None
    logger = None if log is None else open_logger(log.value, out)
    processes = start_processes(n_devices, nodes, images.precision)
    leads = processes.rank == 0
    if leads:
        console().print(method_line(chosen.method))
        if files is not None:
            n_classes = len({file.label for file in files.source})
            _show(collection_lines(collections, len(files.source), n_classes, len(files.target), "image"))
    writer = Run.writer(out)
    with ExitStack() as stack:
        if leads:
            stack.enter_context(writer)
            if resume and not Run.has_checkpoint(out):
                raise RunFolderError(f"{out} contains no interrupted run. Leave --resume out to start one.")
            if overwrite:
                writer.clear()
        processes.wait()
        was_finished = Run.is_finished(out)
        shown: list[str] = []

        def warn(words: str) -> None:
            shown.append(words)
            show_warning(words)

        if files is not None:
            reading = open_reading(collections, strict, store, workers, stack if leads else None)
            inputs = read_image_pair(files, collections, chosen, images, reading, processes)
        else:
            inputs = read_embedding_pair(collections, chosen, target_labels)
            if leads:
                read = inputs.domains
                _show(collection_lines(collections, len(read.source), len(read.classes), len(read.target), "embedding"))
        with fitting_progress(method_info(chosen.method).title, leads) as on_step:
            context = FitContext(
                source_weights=None if collections.source_model is None else collections.source_model.weights,
                start=collections.start,
                answers=None
                if collections.names is None
                else collections.names.answers(inputs.names, inputs.domains.classes),
                checkpoints=writer.checkpoints,
                finished=writer.finished,
                processes=processes,
                watch=inputs.watch,
                on_step=on_step,
                logger=logger,
                warn=warn if leads else None,
            )
            model = fit(inputs.domains, chosen, context)
        if was_finished:
            writer.check_names(inputs.names)
        checked = None
        if leads:
            with working("Looking for wrong labels and near-duplicates"):
                checked = inputs.check(model)
            writer.save(model, inputs.names, collections.inputs, parquet=parquet)
            inputs.write(writer, checked)
            if collections.names is not None:
                writer.write_names(collections.names.lines())
        processes.wait()
    if leads:
        show_result(
            model, inputs, collections, out, was_finished=was_finished, checked=checked, logger=logger, shown=shown
        )


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        console().print(line)


def _continued(
    run: Path, out: Path | None, collections: tuple[Path | None, ...], of_backbone: list[object]
) -> tuple[Collections, Path]:
    """Return the collections of a run that is continued, and the folder of the new run."""
    if any(place is not None for place in collections):
        raise SettingsError(
            "--continue takes the collections and the names from the run. Leave the others out, or start a new run "
            "without --continue."
        )
    if any(value is not None for value in of_backbone):
        raise SettingsError(
            "--continue uses the network of the run. Leave the options for images out, or start a new run."
        )
    if out is not None and out.resolve() == run.resolve():
        raise SettingsError("--out is the run that is continued; give another folder.")
    return Collections.of_run(run), out or run.with_name(f"{run.resolve().name}-continued")


def _without_source(
    model: Path, places: tuple[Path | None, Path | None], names: Path | None, out: Path | None
) -> tuple[Collections, Path]:
    """Return the target of a run that adapts a source model, and the folder of the run."""
    from uniot.training.source_model import SourceModel

    target, other = places
    if other is not None:
        raise SettingsError(
            f"--source-model stands in place of the labelled samples, and {target} and {other} are given. Give only "
            "the unlabelled samples, or leave --source-model out."
        )
    if names is not None:
        raise SettingsError(
            "--names adds labelled samples, and a source model is adapted without any. Leave one of them out."
        )
    if target is None or out is None:
        raise DataError(
            "expected unlabelled images and --out: "
            + command("adapt", "--source-model", model, "unlabelled/", "--out", "run/")
        )
    return Collections(model, target, source_model=SourceModel.load(model)), out


def _devices(text: str) -> int | str:
    if text == "auto" or (text.isdigit() and int(text) > 0):
        return text if text == "auto" else int(text)
    raise SettingsError(f"--devices is {text!r}. Give a number of processes, such as 2, or `auto`.")
