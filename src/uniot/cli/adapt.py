"""`uniot adapt`: a labelled and an unlabelled collection in, a run folder out."""

from __future__ import annotations

from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uniot.cli.checks import refuse_for_embeddings
from uniot.cli.preference import Preferred, PrivatePrior
from uniot.cli.run_files import check_names, clear_run, finish_run
from uniot.cli.ways_in import BEGAN_WITH, Beginning, from_embeddings, from_images, open_reading, show
from uniot.errors import DataError, RunFolderError, SettingsError

if TYPE_CHECKING:
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


class Log(Enum):
    """Where a training is logged."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


_IMAGES, _MACHINES = "Images", "Several processes"


def adapt(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="Labelled: a folder with a folder of images per class, a list file, or a file of embeddings "
            "(.npz with x and y, …)."
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(help="Unlabelled: any folder of images, a list file, or a file of embeddings.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder. An interrupted run in it goes on.")] = None,
    continued: Annotated[
        Path | None,
        typer.Option("--continue", help="Go on from this run with the names that were given in `uniot label`."),
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="Names of groups from `uniot label`, as new classes of the source.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Decides every random choice; 0 unless --settings says otherwise.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps; chosen by the target's size.")] = None,
    method: Annotated[
        str | None, typer.Option(help="One of those that `uniot methods` lists; uniot-universal.")
    ] = None,
    forget_target: Annotated[
        bool, typer.Option("--forget-target", help="Keep averages of several target samples, and no single one.")
    ] = False,
    private_classes: Annotated[int | None, typer.Option(help="Groups among the unknown, where you know it.")] = None,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
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
    log: Annotated[
        Log | None, typer.Option(help="Log settings, losses and scores there too, if the method trains.")
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
    flip: Annotated[
        bool | None,
        typer.Option(
            "--flip/--no-flip",
            help="Average with the embedding of the mirrored image; twice the time to read images.",
            rich_help_panel=_IMAGES,
            show_default=False,
        ),
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
        int | None,
        typer.Option(min=0, help="Threads that read and decode images; one per core.", rich_help_panel=_IMAGES),
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

    Once groups have names: `uniot adapt --continue run/`
    """
    from uniot.experiment_loggers import open_logger
    from uniot.labelling import write_names
    from uniot.methods import check_method
    from uniot.model_files import is_saved
    from uniot.processes import start_processes
    from uniot.run_folder import only_one_writer

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
            "--resume goes on with the run in the folder, and --overwrite removes it. Give one of them."
        )
    if continued is not None:
        begin, out = _continued(continued, out, (source, target, names), [backbone, weights, flip, fine_tune])
        settings = settings or continued / "settings.toml"
    elif source is None or target is None or out is None:
        raise DataError(
            "a labelled collection, an unlabelled one and --out are needed: uniot adapt labelled/ unlabelled/ --out "
            "run/. Or, from a run whose groups have names: uniot adapt --continue run/"
        )
    else:
        from uniot.labelling import read_names

        begin = Beginning(source, target, None if names is None else read_names(names))
    chosen, images = _settings(settings, given, of_images)
    if continued is not None:
        # Classes that have names now are no longer private.
        chosen = chosen.model_copy(update={"n_private_classes": private_classes, "private_prior": private_prior})
    check_method(chosen)
    are_images = begin.are_images()
    if not are_images:
        others = {"strict": strict or None, "store": store, "workers": workers}
        options = {f"--{name.replace('_', '-')}": value for name, value in (of_images | others).items()}
        refuse_for_embeddings(options, "the collections are embeddings")
    logger = None if log is None else open_logger(log.value, out)
    processes = start_processes(n_devices, nodes, images.precision)
    leads = processes.rank == 0
    with ExitStack() as stack:
        if leads:
            stack.enter_context(only_one_writer(out))
            if resume and not (out / "checkpoints").exists():
                raise RunFolderError(f"{out} holds no interrupted run. Leave --resume out to begin one.")
            if overwrite:
                clear_run(out)
        processes.wait()
        was_finished = is_saved(out)
        if are_images:
            reading = open_reading(begin, strict, store, workers, stack if leads else None)
            found = from_images(begin, out, chosen, images, reading, processes, target_labels, logger)
        else:
            found = from_embeddings(begin, out, chosen, processes, target_labels, logger)
        if was_finished:
            check_names(out, found.names)
        if leads:
            finish_run(found.model, out, found.names, begin.inputs, parquet=parquet)
            found.write_notes(out)
            if begin.names is not None:
                write_names(out / BEGAN_WITH, begin.names.lines())
        processes.wait()
    if leads:
        show(found, out, begin, was_finished=was_finished, logger=logger)


def _continued(
    run: Path, out: Path | None, collections: tuple[Path | None, ...], of_backbone: list[object]
) -> tuple[Beginning, Path]:
    """What goes on from a run, and where to."""
    if any(place is not None for place in collections):
        raise SettingsError(
            "--continue takes the collections and the names from the run. Leave the others out, or leave --continue "
            "out to begin anew."
        )
    if any(value is not None for value in of_backbone):
        raise SettingsError("--continue goes on with the backbone of the run. Leave its options out, or begin anew.")
    return Beginning.of_run(run), out or run.with_name(f"{run.resolve().name}-continued")


def _devices(text: str) -> int | str:
    if text == "auto" or (text.isdigit() and int(text) > 0):
        return text if text == "auto" else int(text)
    raise SettingsError(f"--devices is {text!r}. Give how many processes, such as 2, or `auto`.")


def _settings(
    file: Path | None, given: dict[str, int | float | str | None], of_images: dict[str, Any]
) -> tuple[Settings, ImageSettings]:
    """What a file says, and over it what the command line does."""
    from uniot.settings import ImageSettings, Settings

    chosen, images = (Settings.checked(), None) if file is None else Settings.from_toml(file)
    values, image_values = chosen.model_dump(), (images or ImageSettings.checked()).model_dump()
    if given["private_prior"] is not None or given["prefer"] is not None:
        # One preference replaces the other.
        values |= {"private_prior": None, "prefer": None}
    values |= {name: value for name, value in given.items() if value is not None}
    image_values |= {name: value for name, value in of_images.items() if value is not None}
    return Settings.checked(**values), ImageSettings.checked(**image_values)
