"""Options and checks that all commands share: plain help and errors, places to write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from uniot.errors import RunFolderError, SettingsError
from uniot.io.text import plural
from uniot.io.visible import visible

if TYPE_CHECKING:
    from uniot.config import ImageSettings, Settings
    from uniot.training.source_model import SourceModel


# The class of usage errors, which typer does not export.
_UsageError: Any = typer.BadParameter.__mro__[1]


class Interrupted(Exception):
    """Ctrl-C, raised before typer turns it into an exit code without a message."""


class Command(TyperCommand):
    """Command whose help shows a flag without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Commands that raise Interrupted on Ctrl-C, and whose usage errors repeat arguments as visible text."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_flags(super().get_params(ctx))

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _visible_arguments():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _visible_arguments():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


@contextmanager
def _visible_arguments() -> Iterator[None]:
    """Escape the message of a usage error: an argument may be a file name that the shell found."""
    try:
        yield
    except _UsageError as error:
        error.message = visible(error.message)
        raise


def _with_plain_flags(parameters: list[Any]) -> list[Any]:
    # A flag takes no value: <bool> after it would mislead.
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def check_writable(file: Path, suffixes: Sequence[str] = ()) -> None:
    """Raise RunFolderError if a file cannot be written, before the work begins.

    Args:
        file: file to write; its folder need not exist.
        suffixes: allowed endings; any if empty.
    """
    if file.is_dir():
        raise RunFolderError(f"{file} is a folder. Give the name of a file.")
    if suffixes and file.suffix.lower() not in suffixes:
        raise RunFolderError(f"{file} ends with {file.suffix!r}. Give a file that ends with {', '.join(suffixes)}.")
    check_folder(file.parent)


def check_folder(folder: Path) -> None:
    """Raise RunFolderError if a folder cannot be made or written to."""
    place = next((here for here in (folder, *folder.absolute().parents) if here.exists()), Path("/"))
    if not place.is_dir():
        raise RunFolderError(f"{place} is a file, so nothing can be written to {folder}. Give another folder.")
    if not os.access(place, os.W_OK):
        raise RunFolderError(f"{place} cannot be written to. Give a folder in which you may write.")


def renamed(old: str, new: str, example: str) -> Any:
    """Return a hidden option that is refused with the name that it has now; scripts may still have the old one."""

    def refuse(value: str | None) -> None:
        if value is not None:
            raise SettingsError(f"{old} is called {new} now, as in every command: {example}")

    return typer.Option(old, hidden=True, callback=refuse)


def check_encoder(encoder: str | None, text: str | None) -> None:
    """Raise SettingsError if a network for texts is given without a column of texts."""
    if encoder is not None and text is None:
        raise SettingsError("--encoder embeds texts, and no column of texts is given. Give --text COLUMN too.")


def refuse_for_embeddings(options: Mapping[str, object], why: str) -> None:
    """Raise SettingsError if options for images are given with embeddings.

    Args:
        options: options by name; None if an option was not given.
        why: end of the message: what was given instead of images.
    """
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise SettingsError(
            f"{', '.join(given)} {plural(len(given), 'is', 'are')} for images, and {why}. Leave it out."
        )


class Prefer(Enum):
    """Side that the threshold between known and unknown favours."""

    KNOWN = "known"
    UNKNOWN = "unknown"


class FineTune(Enum):
    """Part of the pretrained network that is trained."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class BatchNorm(Enum):
    """Statistics of batch normalisation in training."""

    TRAINED = "trained"
    FROZEN = "frozen"


class Protocol(Enum):
    """Origin of UniOT's hyper-parameters for a data set."""

    REFERENCE = "reference"
    PAPER = "paper"
    SIZE = "size"


class Precision(Enum):
    """Number format of the network on a GPU."""

    FULL = "32-true"
    BF16 = "bf16-mixed"
    FP16 = "16-mixed"


class Log(Enum):
    """Experiment logger."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"


TABLES = "Tables"
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="Column of the labels; of obs for cells. Default: label, class or y; cell_type for cells.",
        rich_help_panel=TABLES,
        show_default=False,
    ),
]
IdsColumn = Annotated[
    str | None,
    typer.Option(
        "--ids",
        metavar="COLUMN",
        help="Column of the names of the samples. Default: ids or path; without one they are numbered.",
        rich_help_panel=TABLES,
        show_default=False,
    ),
]
ShowColumn = Annotated[
    str | None,
    typer.Option(
        "--show",
        metavar="COLUMN",
        help="Column of what a person sees of each sample: paths of images, links or texts.",
        rich_help_panel=TABLES,
        show_default=False,
    ),
]
TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="COLUMN",
        help="Column of texts, which are embedded; the other columns of numbers are not read.",
        rich_help_panel=TABLES,
        show_default=False,
    ),
]
EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Network that embeds the texts: a model or folder of sentence-transformers. Default: all-MiniLM-L6-v2.",
        rich_help_panel=TABLES,
        show_default=False,
    ),
]


PrivatePrior = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Fraction of the unlabelled images to call unknown, from 0 to 1. Default: the method decides.",
        show_default=False,
    ),
]
Preferred = Annotated[
    Prefer | None,
    typer.Option(
        help="`known`: half as many unknown; `unknown`: half as many known. Default: the method decides.",
        show_default=False,
    ),
]
IMAGES = "Images"
Weights = Annotated[
    Path | None,
    typer.Option(
        help="File with weights of that network: .safetensors, or a state dict of PyTorch.", rich_help_panel=IMAGES
    ),
]
BackboneName = Annotated[
    str | None,
    typer.Option(
        help="Pretrained network, a model of timm. Default: efficientnet_lite0, which needs no download.",
        rich_help_panel=IMAGES,
    ),
]
Flip = Annotated[
    bool | None,
    typer.Option(
        "--flip/--no-flip",
        help="Also look at each image mirrored; reading takes twice as long.",
        rich_help_panel=IMAGES,
        show_default=False,
    ),
]
SettingsFile = Annotated[Path | None, typer.Option(help="File of settings, such as that of another run.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first image that cannot be read.", rich_help_panel=IMAGES)
]
Store = Annotated[
    Path | None,
    typer.Option(
        help="Folder that stores what was computed from images, for later runs. Default: in your cache folder.",
        rich_help_panel=IMAGES,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Threads that read and decode images. Default: one per core.", rich_help_panel=IMAGES),
]


def chosen_settings(
    file: Path | None,
    given: Mapping[str, Any],
    of_images: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    image_defaults: Mapping[str, Any] | None = None,
) -> tuple[Settings, ImageSettings]:
    """Return the settings of a file, replaced by those that the command line gives.

    Args:
        file: settings file; none if None.
        given: settings by name; None if the command line does not give one.
        of_images: image settings, likewise.
        defaults: settings that hold if neither the file nor the command line gives them.
        image_defaults: image settings, likewise.
    """
    from uniot.config import ImageSettings, Settings
    from uniot.io.text import read_settings

    chosen, images = (Settings.checked(), None) if file is None else read_settings(file)
    images = images or ImageSettings.checked()
    values = chosen.model_dump() | _unset(chosen, defaults)
    image_values = images.model_dump() | _unset(images, image_defaults)
    if given.get("private_prior") is not None or given.get("prefer") is not None:
        # One preference replaces the other.
        values |= {"private_prior": None, "prefer": None}
    values |= {name: value for name, value in given.items() if value is not None}
    image_values |= {name: value for name, value in of_images.items() if value is not None}
    return Settings.checked(**values), ImageSettings.checked(**image_values)


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


def _unset(settings: Settings | ImageSettings, values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return those of the values whose settings nobody gave."""
    return {name: value for name, value in (values or {}).items() if name not in settings.model_fields_set}


def method_line(name: str) -> str:
    """Return the sentence on the method with which a command begins."""
    from uniot.config import Settings
    from uniot.methods.registry import method_info

    info = method_info(name)
    if name == Settings.checked().method:
        return f"Method: {info.title}, the default. `uniot methods` lists the others."
    return f"Method: {info.title} ({info.source})."
