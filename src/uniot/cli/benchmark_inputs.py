"""Data, splits and jobs from the options of `uniot benchmark`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.cli.screen import reading_progress
from uniot.errors import DataError, SettingsError

if TYPE_CHECKING:
    from uniot.benchmark.jobs import Job, Options
    from uniot.benchmark.runner import Launcher
    from uniot.benchmark.tasks import TaskSet
    from uniot.config import ImageSettings
    from uniot.datasets.catalogue import ClassSplit
    from uniot.images.files import ImageFile

_JOBS_ON_SLURM = 100
_LEAVE_OUT = "Or give --incomplete, to leave such images out in a trial."


def comma_separated(text: str | None) -> list[str]:
    """Return the words between commas, without repetitions."""
    return list(dict.fromkeys(word for part in (text or "").split(",") if (word := part.strip())))


def own_split(file: Path | None, lists: tuple[str | None, str | None, str | None]) -> dict[str, ClassSplit] | None:
    """Return the user's split by its name, from a file or from three lists of classes; None if neither is given."""
    from uniot.benchmark.splits import custom_split, read_split

    given = any(part is not None for part in lists)
    if file is not None and given:
        raise SettingsError("--split FILE has all three lists of classes. Leave out --common and the other lists.")
    if file is not None:
        return dict([read_split(file)])
    return {"custom": custom_split(*map(comma_separated, lists))} if given else None


def find_tasks(dataset: str, features: Path | None, images: Path | None, *, is_own: bool) -> TaskSet:
    """Return the tasks of the published set of this name, or of the user's set if `is_own`."""
    from uniot.benchmark.features import domain_names
    from uniot.benchmark.tasks import TaskSet, folder_name

    try:
        return TaskSet.of_published(dataset)
    except DataError as error:
        if not is_own:
            raise DataError(f"{error} A set of your own needs a split: give --split FILE.") from None
    names = domain_names(features) if features is not None else _domain_folders(images or Path())
    return TaskSet.of_domains(folder_name(dataset, "the name of the set"), names)


def _domain_folders(root: Path) -> list[str]:
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Give a folder with one folder per domain, and in it one per class.")
    return sorted(place.name for place in root.iterdir() if place.is_dir() and not place.name.startswith("."))


def embed_images(
    tasks: TaskSet,
    task_names: list[str],
    images: Path,
    out: Path,
    *,
    backbone: str,
    weights: Path | None,
    store: Path | None,
    incomplete: bool,
) -> Path:
    """Embed the images of the domains that the tasks need; files that are up to date are kept.

    Args:
        tasks: domains and tasks of the data set.
        task_names: tasks that will be run.
        images: folder of the unpacked images.
        out: folder of the benchmark.
        backbone: name of a timm model.
        weights: file of its weights; None for those of the install or the download.
        store: folder of the embedding store; None for the user's.
        incomplete: whether images may be missing or unreadable.

    Returns:
        The folder with one file of embeddings per domain.
    """
    import numpy as np

    from uniot.benchmark.features import holds_domain
    from uniot.config import ImageSettings
    from uniot.images.backbones import ImageReader
    from uniot.images.embedding import ReadOptions, UnusableImage
    from uniot.images.embedding import embed_images as embed
    from uniot.images.store import EmbeddingStore
    from uniot.io.embedding_files import write_embeddings
    from uniot.io.files import only_one_writer, replacing

    folder = out / "embeddings"
    letters = dict.fromkeys(letter for task in task_names for letter in tasks.pair(task))
    reader = ImageReader.open(
        ImageSettings.checked(backbone=backbone, weights=None if weights is None else str(weights))
    )
    with only_one_writer(out), reading_progress({}) as progress:
        # An image that cannot be read changes what is compared, so it is an error unless --incomplete is given.
        options = ReadOptions(EmbeddingStore(store), strict=not incomplete, progress=progress)
        for letter in letters:
            name = tasks.domains[letter]
            files = _domain_files(tasks, letter, images, incomplete=incomplete)
            try:
                found = embed(files, reader, options, collection=name)
            except UnusableImage as error:
                raise DataError(f"{error} {_LEAVE_OUT}") from None
            labels = np.array([str(file.label) for file in found.files])
            if not holds_domain(folder, name, found.values, labels):
                names = [file.name for file in found.files]
                write_embeddings(folder / f"{name}.npz", found.values, labels, names, replacing=replacing)
    return folder


def list_images(
    tasks: TaskSet,
    task_names: list[str],
    images: Path,
    out: Path,
    network: ImageSettings,
    *,
    store: Path | None,
    incomplete: bool,
) -> Path:
    """List the images of the domains that the tasks need, for a network that is trained on them.

    Every image is read once; lists of images that have not changed are kept.

    Args:
        tasks: domains and tasks of the data set.
        task_names: tasks that will be run.
        images: folder of the unpacked images.
        out: folder of the benchmark.
        network: the network, and what of it is trained.
        store: folder that keeps the outputs of its frozen part; None for the user's.
        incomplete: whether images may be missing or unreadable.

    Returns:
        The folder with one list per domain.
    """
    from uniot.benchmark.image_lists import ImageList, is_list_of, write_list
    from uniot.images.backbones import ImageReader
    from uniot.images.embedding import ReadOptions, UnusableImage
    from uniot.images.embedding import embed_images as read
    from uniot.images.store import EmbeddingStore
    from uniot.io.files import only_one_writer

    folder = out / "images"
    letters = dict.fromkeys(letter for task in task_names for letter in tasks.pair(task))
    reader = ImageReader.open(network)
    with only_one_writer(out), reading_progress({}) as progress:
        options = ReadOptions(EmbeddingStore(store), strict=not incomplete, progress=progress)
        for letter in letters:
            name = tasks.domains[letter]
            files = _domain_files(tasks, letter, images, incomplete=incomplete)
            if is_list_of(folder, name, files, reader.backbone.digest):
                continue
            try:
                found = read(files, reader, options, collection=name)
            except UnusableImage as error:
                raise DataError(f"{error} {_LEAVE_OUT}") from None
            write_list(folder, name, ImageList(tuple(found.files), tuple(found.contents), reader.backbone.digest))
    return folder


def _domain_files(tasks: TaskSet, letter: str, images: Path, *, incomplete: bool) -> list[ImageFile]:
    from uniot.images.files import labelled_images

    if tasks.published is None:
        return labelled_images(images / tasks.domains[letter])
    return tasks.published.domain_files(images, letter, as_published=not incomplete)


def refuse_for_scenarios(study: str, **options: object) -> None:
    """Raise an error if an option is given (not None) that the study of scenarios has no use for."""
    for name, value in options.items():
        if value is not None:
            raise SettingsError(
                f"--{name.replace('_', '-')} is not for --study {study}, which draws its own splits from "
                "--features NAME=FILE. Leave it out."
            )


def plan_scenarios(
    study: str,
    out: Path,
    dataset: str | None,
    features: Sequence[str],
    *,
    methods: Sequence[str] | None,
    purpose: str,
    n_splits: int,
    task_names: Sequence[str],
    scenarios: Sequence[str],
    options: Options,
    threads: int,
    quick: bool,
) -> list[Job]:
    """Return the jobs of the study; if the digits are among the data sets, write their features to `out`.

    Args:
        study: universality or answers.
        out: folder of the benchmark.
        dataset: the only data set that is asked for; None for all.
        features: as typed, NAME=FILE of each data set.
        methods: the study's own if None.
        purpose: which splits.
        n_splits: number of splits.
        task_names: which pairs of domains; all if none is named.
        scenarios: which scenarios; all if none is named.
        options: settings that differ from their defaults.
        threads: number of threads of a job.
        quick: one split and two pairs of each data set.
    """
    from uniot.benchmark.answers import ANSWERS, plan_answers
    from uniot.benchmark.features import DIGITS, DataSet, write_digits
    from uniot.benchmark.jobs import check_methods
    from uniot.benchmark.scenarios import check_scenarios
    from uniot.benchmark.universality import DEFAULT_METHODS, plan_universality
    from uniot.io.files import only_one_writer

    chosen = list(methods or DEFAULT_METHODS)
    check_methods(chosen, options)
    check_scenarios(scenarios)
    named = named_features(dataset, features)
    data_sets = [DataSet.read(name, path) for name, path in named.items()]
    if dataset in (None, DIGITS):
        with only_one_writer(out):
            data_sets.append(DataSet.read(DIGITS, write_digits(out / "embeddings")))
    return (plan_answers if study == ANSWERS else plan_universality)(
        data_sets,
        methods=chosen,
        purpose=purpose,
        n_splits=n_splits,
        task_names=task_names,
        scenarios=scenarios,
        options=options,
        threads=threads,
        quick=quick,
    )


def named_features(dataset: str | None, features: Sequence[str]) -> dict[str, Path]:
    """Return the features of each data set by its name, of one alone if it is named."""
    from uniot.benchmark.features import DIGITS

    found: dict[str, Path] = {}
    for text in features:
        name, equals, path = text.partition("=")
        if not equals and dataset is not None and len(features) == 1:
            name, path = dataset, text
        if not name or not path:
            raise SettingsError(f"--features is {text!r}. Give NAME=FILE, such as office31=features.npz.")
        if name == DIGITS:
            raise SettingsError(
                f"{DIGITS} come with the install, and a file is given for them too. Give the file another name."
            )
        if name in found:
            raise SettingsError(f"--features has two files for {name}. Give them two names, such as {name}-resnet50.")
        found[name] = Path(path)
    if dataset is None:
        return found
    if dataset not in found and dataset != DIGITS:
        raise SettingsError(f"there are no features of {dataset}. Give --features {dataset}=FILE.")
    return {name: path for name, path in found.items() if name == dataset}


def make_launcher(
    out: Path,
    jobs: int | None,
    threads: int,
    parameters: list[str],
    *,
    slurm: bool,
    trains_networks: bool = False,
) -> Launcher:
    """Return what runs the jobs: processes of this machine, or Slurm.

    Args:
        out: folder of the benchmark.
        jobs: number of jobs at the same time; None for one per core, or one per GPU if they train networks.
        threads: number of threads of a job.
        parameters: of Slurm, KEY=VALUE.
        slurm: whether the jobs run on Slurm.
        trains_networks: whether jobs train networks on images; each gets a GPU of its own if there are several.
    """
    from uniot.benchmark.local_workers import LocalWorkers, visible_gpus
    from uniot.benchmark.slurm import SlurmArrays
    from uniot.images.embedding import available_cores

    if not slurm:
        if parameters:
            raise SettingsError("--slurm-set is for jobs on Slurm. Give --slurm too, or leave it out.")
        if trains_networks:
            gpus = visible_gpus()
            return LocalWorkers(jobs or max(1, len(gpus)), gpus)
        return LocalWorkers(jobs or max(1, available_cores() // threads))
    values = {"cpus_per_task": threads} | dict(map(_parameter, parameters))
    kind = str(values.pop("cluster", "slurm"))
    return SlurmArrays(out, jobs or _JOBS_ON_SLURM, kind, values)


def _parameter(text: str) -> tuple[str, int | float | str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingsError(f"--slurm-set is {text!r}. Give KEY=VALUE, such as timeout_min=60.")
    for kind in (int, float):
        with suppress(ValueError):
            return key, kind(value)
    return key, value
