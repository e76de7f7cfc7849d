"""`uniot adapt`: label a collection with the classes of a labelled one, and write a run folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.evaluate import show_run_scores
from uniot.cli.options import (
    IMAGES,
    TABLES,
    BackboneName,
    EncoderName,
    FineTune,
    Flip,
    IdsColumn,
    LabelColumn,
    Log,
    Precision,
    Preferred,
    PrivatePrior,
    SettingsFile,
    ShowColumn,
    Store,
    Strict,
    TextColumn,
    Weights,
    Workers,
    check_encoder,
    check_folder,
    method_line,
    refuse_for_embeddings,
    settings_for_model,
)
from uniot.cli.screen import (
    console,
    fitting_progress,
    labelled_line,
    print_line,
    reading_progress,
    show_descriptions,
    show_next,
    show_prediction,
    show_private_classes,
    show_reading,
    show_reliability,
    show_warning,
    verdict,
    working,
)
from uniot.errors import DataError, SettingsError
from uniot.io.columns import Columns
from uniot.io.files import check_exists
from uniot.io.text import command, counted, is_wide, plural, quoted, share_sentence

if TYPE_CHECKING:
    from uniot.adaptation.adapt import AdaptedRun
    from uniot.adaptation.collections import Collections
    from uniot.config import Settings
    from uniot.labelling import Names
    from uniot.training.fit import OnStep
    from uniot.training.history import ExperimentLogger
    from uniot.training.model import AdaptedModel

_MACHINES = "Several processes"


def adapt(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="Labelled images: a folder that has one folder per class. Or a list file, or a table or file of "
            "embeddings (.csv with a column label, .npz with x and y, …), or with --text a table of texts."
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(help="Unlabelled images: any folder, a list file, or a table as for the labelled ones."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results; an interrupted run continues.")] = None,
    source_model: Annotated[
        Path | None,
        typer.Option(help="File of `uniot train-source`, in place of the labelled images; give only the unlabelled."),
    ] = None,
    continued: Annotated[
        Path | None,
        typer.Option(
            "--continue", help="Run again with what people said: named groups become classes, and labels are kept."
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(help="Table with path and label, as `uniot label` exports it; the labels become further classes."),
    ] = None,
    source_labels: Annotated[
        Path | None,
        typer.Option(
            help="Table with path and label that corrects labels of the labelled samples; without a label, one is "
            "left out. --continue also takes what was said on the page of `uniot label`."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed: the same seed repeats a run. Default: 0.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Training steps, for methods that train. Default: set by the number of unlabelled images."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method that labels the images; `uniot methods` lists all. Default: unincm.")
    ] = None,
    forget_target: Annotated[
        bool,
        typer.Option(
            "--forget-target",
            help="Store only averages of several unlabelled images in the run folder, never a single one.",
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
    use_rep: Annotated[
        str | None,
        typer.Option(
            help="For .h5ad: array of obsm that both files have in common, such as X_scVI. Default: principal "
            "components of both together, of the genes that both have."
        ),
    ] = None,
    log: Annotated[
        Log | None, typer.Option(help="Also log settings, losses and scores with this tool, if the method trains.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between checkpoints. Default: 100.")] = None,
    label: LabelColumn = None,
    ids: IdsColumn = None,
    show: ShowColumn = None,
    text: TextColumn = None,
    encoder: EncoderName = None,
    terms: Annotated[
        Path | None,
        typer.Option(
            help="Word list, one term per line, of which names are suggested for the new groups of texts; or the "
            "embeddings of terms (.npz with x and ids) by the network of the samples. Default: typical words.",
            rich_help_panel=TABLES,
        ),
    ] = None,
    backbone: BackboneName = None,
    weights: Weights = None,
    flip: Flip = None,
    fine_tune: Annotated[
        FineTune | None, typer.Option(help="Part of that network to train. Default: none.", rich_help_panel=IMAGES)
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(
            help="Compute each batch in this number of parts, if memory is short. Default: 1.", rich_help_panel=IMAGES
        ),
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

    The same for embeddings and for texts, in tables or other files.

    Example: `uniot adapt labelled/ unlabelled/ --out run/`

    For texts: `uniot adapt labelled.csv new.csv --text message --label intent --out run/`

    After you named groups, or corrected labels, with `uniot label`: `uniot adapt --continue run/`

    Without the labelled images: `uniot adapt --source-model source.safetensors unlabelled/ --out run/`
    """
    of_fit = {
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
    of_reading = {"strict": strict or None, "store": store, "workers": workers}
    only_for_images = {f"--{name.replace('_', '-')}": value for name, value in (of_images | of_reading).items()}
    columns = Columns(label, ids, show, text)
    check_encoder(encoder, text)
    n_processes = _devices(devices)
    if resume and overwrite:
        raise SettingsError(
            "--resume continues the run in the folder, and --overwrite replaces it. Give only one of them."
        )
    if continued is not None:
        given = [name for name in ("backbone", "weights", "flip", "fine_tune") if of_images[name] is not None]
        given += [f"--{option}" for option in columns.chosen]
        out = _out_of_continued(continued, out, (source, target, names, source_model), given)
    elif source_model is not None:
        if source_labels is not None:
            raise SettingsError(
                "--source-labels corrects labelled samples, and a source model is adapted without any. Leave one of "
                "them out."
            )
        target, out = _target_of_source_model(source_model, (source, target), names, out)
    else:
        source, target, out = _both_collections(source, target, out)

    check_folder(out)
    with working("Loading PyTorch"):
        from uniot.adaptation.adapt import adapt as make_run
        from uniot.adaptation.collections import Collections, are_images
        from uniot.images.embedding import ReadOptions
        from uniot.images.store import EmbeddingStore
        from uniot.labelling import read_names
        from uniot.labelling.source_labels import SourceLabels
        from uniot.runs import Run
        from uniot.training.history import open_logger
        from uniot.training.processes import start_processes
        from uniot.training.source_model import SourceModel

    corrections = None if source_labels is None else SourceLabels.read(source_labels)
    if continued is not None:
        earlier = Run.open(continued)
        collections = Collections.of_run(earlier, target_labels=target_labels, source_labels=corrections)
        chosen, images = settings_for_model(None, None, settings or earlier.files.settings, of_fit, of_images)
        # Groups that have names now are classes, so the earlier numbers no longer hold.
        chosen = chosen.model_copy(update={"n_private_classes": private_classes, "private_prior": private_prior})
        _check_settings(chosen, collections.start)
    elif source_model is not None:
        assert target is not None
        model = SourceModel.load(source_model)
        chosen, images = settings_for_model(model, source_model, settings, of_fit, of_images)
        _check_settings(chosen)
        if text is not None:
            raise SettingsError(
                "--source-model adapts embeddings or images. Embed the texts with `uniot embed --text` first."
            )
        collections = Collections.of_source_model(
            model, source_model, target, target_labels=target_labels, columns=columns
        )
    else:
        assert source is not None
        assert target is not None
        annotations = None if names is None else read_names(names)
        chosen, images = settings_for_model(None, None, settings, of_fit, of_images)
        _check_settings(chosen)
        if not are_images(source, columns) and not are_images(target, columns):
            refuse_for_embeddings(only_for_images, _what_is_given(columns))
        collections = Collections.open(
            source,
            target,
            annotations=annotations,
            target_labels=target_labels,
            columns=columns,
            encoder=encoder,
            use_rep=use_rep,
            source_labels=corrections,
        )
    if not collections.are_images:
        refuse_for_embeddings(only_for_images, _what_is_given(collections.columns))

    logger = None if log is None else open_logger(log.value, out)
    processes = start_processes(n_processes, nodes, images.precision)
    leads = processes.rank == 0
    if leads:
        _show_start(chosen, collections)
    progress = _ShownProgress(leads)
    with reading_progress(_titles(collections), collections.target.kind) as on_reading:
        made = make_run(
            collections,
            chosen,
            out,
            images=images,
            options=ReadOptions(EmbeddingStore(store), strict, workers, on_reading if leads else None),
            processes=processes,
            logger=logger,
            resume=resume,
            overwrite=overwrite,
            parquet=parquet,
            terms=terms,
            progress=progress,
        )
    if leads:
        _show_result(made, collections, out, logger, progress.warnings)


def _what_is_given(columns: Columns) -> str:
    return f"the collections are {'texts' if columns.text is not None else 'embeddings'}"


def _both_collections(source: Path | None, target: Path | None, out: Path | None) -> tuple[Path, Path, Path]:
    """Return both collections and the run folder; raise DataError if one is missing."""
    for place in filter(None, (source, target)):
        check_exists(place)
    if source is None or target is None or out is None:
        raise DataError(
            "expected labelled images, unlabelled images and --out: uniot adapt labelled/ unlabelled/ --out run/. "
            "Or, after you named groups of a run: uniot adapt --continue run/"
        )
    return source, target, out


def _out_of_continued(
    run: Path, out: Path | None, collections: tuple[Path | None, ...], of_backbone: list[str]
) -> Path:
    """Return the folder of a run that continues another one; raise SettingsError if options contradict that."""
    if any(place is not None for place in collections):
        raise SettingsError(
            "--continue takes the collections and the names from the run. Leave the others out, or start a new run "
            "without --continue."
        )
    if of_backbone:
        raise SettingsError(
            "--continue uses the network and the columns of the run. Leave the options for images and tables out, or "
            "start a new run."
        )
    if out is not None and out.resolve() == run.resolve():
        raise SettingsError("--out is the run that is continued; give another folder.")
    return out or run.with_name(f"{run.resolve().name}-continued")


def _target_of_source_model(
    model: Path, places: tuple[Path | None, Path | None], names: Path | None, out: Path | None
) -> tuple[Path, Path]:
    """Return the target of a run that adapts a source model, and the run folder."""
    target, other = places
    for place in filter(None, places):
        check_exists(place)
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
    return target, out


def _check_settings(settings: Settings, start: AdaptedModel | None = None) -> None:
    """Raise SettingsError if the method does not take its options, or cannot continue from a model."""
    from uniot.methods.registry import check_method, check_start

    if start is not None:
        trains = settings.network != "none" or (start.reader is not None and start.reader.fine_tunes)
        check_start(settings.method, start.method, trains=trains)
    check_method(settings)


def _devices(text: str) -> int | str:
    if text == "auto" or (text.isdigit() and int(text) > 0):
        return text if text == "auto" else int(text)
    raise SettingsError(f"--devices is {text!r}. Give a number of processes, such as 2, or `auto`.")


class _ShownProgress:
    """Shows progress in the terminal while a run is made; shows nothing in processes other than the first."""

    def __init__(self, leads: bool) -> None:
        self._leads = leads
        self.warnings: list[str] = []

    def working(self, words: str) -> AbstractContextManager[object]:
        """Show what is being done."""
        return working(words, shown=self._leads)

    def fitting(self, title: str) -> AbstractContextManager[OnStep | None]:
        """Show the training steps."""
        return fitting_progress(title, self._leads)

    @property
    def warn(self) -> Callable[[str], None] | None:
        """Return the function that prints a warning at once."""
        return self._warn if self._leads else None

    def _warn(self, words: str) -> None:
        self.warnings.append(words)
        show_warning(words)


def _titles(collections: Collections) -> dict[str, str]:
    """Return what the progress of reading is called, by the names of the collections."""
    titles = {"source": str(collections.source.path), "target": str(collections.target.path)}
    if collections.annotations is not None:
        titles["source"] += f" and {counted(collections.n_annotated, collections.target.kind)} that you labelled"
    return titles


def _show_start(settings: Settings, collections: Collections) -> None:
    """Print the method, and a sentence on each collection; none on the digits of the demo."""
    screen, source, target = console(), collections.source, collections.target
    screen.print(method_line(settings.method))
    if source.path is not None and collections.source_model is None:
        screen.print(labelled_line(source.path, len(source), collections.n_classes, source.kind))
    corrections = "" if collections.source_labels is None else collections.source_labels.sentence
    if corrections:
        screen.print(corrections)
    if target.path is not None:
        screen.print(f"Unlabelled: {counted(len(target), target.kind)} in {target.path}.")
    of_cells = () if collections.cells is None else collections.cells.notes
    for note in (*source.notes, *target.notes, *of_cells):
        screen.print(note)


def _show_result(
    made: AdaptedRun, collections: Collections, out: Path, logger: ExperimentLogger | None, shown: list[str]
) -> None:
    """Print the result of a run and what to do next, without the warnings `shown` before; close the log."""
    from uniot.adaptation.evaluation import score_run
    from uniot.runs import Run, RunFiles
    from uniot.runs.contents import judged_by
    from uniot.runs.run import preference_line
    from uniot.training.fit import log_end

    screen, files, model, images = console(), RunFiles(out), made.model, made.domains.images
    if made.was_finished:
        screen.print(f"{quoted(out)} is already finished; nothing was trained.")
        model = Run.open(out).model  # people may have labelled it since
    show_prediction(model, model.target)
    scores = None
    if made.truth is not None:
        scores = score_run(model, made.truth, out)
        show_run_scores(scores)
    if logger is not None and not made.was_finished:
        log_end(logger, model, None if scores is None else (scores.others or scores.all_samples).to_dict())
        if not model.settings.steps:
            screen.print(f"Nothing was logged: {model.settings.method} trains nothing here.")
    if images is not None:
        show_reading(images, files)
    for line in () if made.faults is None else made.faults.lines(files.suspect_labels, files.near_duplicates):
        screen.print(line)
    has_unused_labels = collections.target.has_unused_labels and made.truth is None
    if has_unused_labels:
        screen.print(
            f"{quoted(collections.target.path)} contains labels, which were not used; `uniot evaluate` below "
            "compares with them."
        )
    show_private_classes(model, out)
    show_descriptions(model, out)
    if collections.annotations is not None:
        screen.print(_annotations_line(model, collections.annotations))
    screen.print(f"{verdict(model.target)} Every prediction is in {quoted(files.predictions)}.")
    if collections.cells is not None and files.cells.is_file():
        screen.print(f"The unlabelled cells with their labels, for scanpy, are in {quoted(files.cells)}.")
    preference = preference_line(model)
    if preference is not None:
        screen.print(preference)
    interval = model.shown_share_interval
    if interval is not None:
        screen.print(share_sentence(float((~model.target.known).mean()), interval))
        if is_wide(interval):
            # Not wrapped: a command in two lines could not be pasted.
            print_line(f"Answers narrow this down: {command('ask', out)}")
    screen.print(judged_by(model))
    show_reliability(model, shown)
    following = {command("report", out): "a page to look at"}
    if model.groups.n_groups:
        following[command("label", out)] = "name the groups"
    elif not model.target.known.all():
        following[command("label", out)] = "look at the unknown, and name them"
    if made.faults is not None and any(one.clear for one in made.faults.suspects) and files.suspect_labels.is_file():
        following[command("label", out, "--select", "source-labels")] = "correct or drop source labels that look wrong"
    suffix = "npz" if collections.target.path is None else collections.target.path.suffix[1:] or "npz"
    following[command("predict", out, f"new.{suffix}" if images is None else "photo.jpg")] = "label another"
    if made.truth is None:
        labels = collections.target.path if has_unused_labels else "truth.csv"
        following[command("evaluate", out, "--labels", labels)] = "if you know true labels"
    show_next(following)


def _annotations_line(model: AdaptedModel, annotations: Names) -> str:
    """Return a sentence on the samples that keep what people said of them, and on those that are left out."""
    answers, n_discarded = model.answers, int((annotations.decisions == "discarded").sum())
    n_labelled, n_inferred = len(answers.by_people.of_classes), int(answers.inferred.sum())
    n_unknown = len(answers) - n_labelled - n_inferred
    parts = []
    if n_labelled:
        moved = f" and {n_inferred:,} that moved with them" if n_inferred else ""
        keep = plural(n_labelled + n_inferred, "keeps its label", "keep their labels")
        parts.append(f"{counted(n_labelled, 'sample')} that you labelled{moved} {keep}.")
    elif n_inferred:
        keep = plural(n_inferred, "keeps its label", "keep their labels")
        parts.append(f"{counted(n_inferred, 'sample')} that moved with what you said {keep}.")
    if n_unknown:
        stay = plural(n_unknown, "stays", "stay")
        parts.append(f"{counted(n_unknown, 'sample')} that you called unknown {stay} unknown.")
    if n_discarded:
        parts.append(
            f"{counted(n_discarded, 'sample')} that you discarded {plural(n_discarded, 'is', 'are')} left out."
        )
    return " ".join(parts)
