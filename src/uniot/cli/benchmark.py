"""`uniot benchmark`: methods compared on the tasks of a data set, under one protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.benchmark_screen import conclude, show, show_study
from uniot.cli.benchmark_universality import plan, refuse_for_universality, show_universality
from uniot.cli.progress import reading_progress
from uniot.errors import DataError, SettingsError

if TYPE_CHECKING:
    from uniot.benchmark.jobs import Job
    from uniot.benchmark.launching import Launcher
    from uniot.benchmark.protocol import TaskSet
    from uniot.benchmark.runner import Summary
    from uniot.benchmark.studies import Study
    from uniot.data.published_set import ClassSplit

_DATA, _SPLIT, _WHERE, _UNIVERSALITY = "Data", "A split of your own", "Where it runs", "Study universality"
_JOBS_ON_SLURM = 100


def benchmark(
    out: Annotated[Path, typer.Option(help="Folder for the results. A benchmark in it goes on.")],
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="office31, office-home, visda, domainnet; or a name for a set of your own. Without it, "
            "--study universality runs on all sets that it is given, and on the digits of the install."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="By commas, see `uniot methods`; or `all`. uniot-universal,uniot,source-only, or the study's."
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            help="Vary one thing at a time: ablation, robustness, sensitivity as the paper does, beyond; or "
            "universality: every kind of class split and target, on several data sets."
        ),
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Such as A2W,D2W; all, or the study's.")] = None,
    settings: Annotated[str | None, typer.Option(help="Of open-partial, open, partial, closed; open-partial.")] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many; 3 are the seeds 0, 1 and 2. Of universality: number of splits.")
    ] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="Of every job; chosen by the size of the target.")] = None,
    options: Annotated[
        Path | None,
        typer.Option(help="TOML file of settings for all methods, and of a table for each that has its own."),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help="Embeddings: an .npz with DOMAIN_x, DOMAIN_y and classes, or a folder with a DOMAIN.npz of each. For "
            "--study universality NAME=FILE, again for each data set.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="The unpacked images, instead of --features.", rich_help_panel=_DATA)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="With --images a timm model; efficientnet_lite0, which needs no download. With --features only what "
            "tables call it.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weights from a file.", rich_help_panel=_DATA)] = None,
    incomplete: Annotated[
        bool,
        typer.Option(
            "--incomplete", help="Take data that are not all as published, to try things with.", rich_help_panel=_DATA
        ),
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps embeddings between runs; one of yours.", rich_help_panel=_DATA),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with the lists common, source_private and target_private.", rich_help_panel=_SPLIT
        ),
    ] = None,
    common: Annotated[
        str | None, typer.Option(help="Classes of both, separated by commas.", rich_help_panel=_SPLIT)
    ] = None,
    source_private: Annotated[
        str | None, typer.Option(help="Classes of the source alone.", rich_help_panel=_SPLIT)
    ] = None,
    target_private: Annotated[
        str | None, typer.Option(help="Classes of the target alone.", rich_help_panel=_SPLIT)
    ] = None,
    purpose: Annotated[
        str | None,
        typer.Option(
            help="Which splits: choice, on which defaults are chosen, or check, on which nothing is chosen; choice.",
            rich_help_panel=_UNIVERSALITY,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="One split and two pairs of domains of each data set.", rich_help_panel=_UNIVERSALITY
        ),
    ] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Jobs at a time; one a core.", rich_help_panel=_WHERE)] = None,
    threads: Annotated[int, typer.Option(min=1, help="Of a job.", rich_help_panel=_WHERE)] = 1,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Submit the jobs to Slurm, --jobs at a time.", rich_help_panel=_WHERE)
    ] = False,
    slurm_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="What submitit takes, such as timeout_min=60 or slurm_partition=cpu; again for each.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
) -> None:
    """Compare methods on the tasks of a data set: one protocol, the same embeddings and batches for all.

    Every job is a method, setting, task and seed. Stopped in any way, the same command goes on from there.

    Example: `uniot benchmark office31 --methods uniot-universal,dance --features features.npz --out results/`

    Example: `uniot benchmark --study universality --features office31=features.npz --features pacs=pacs.npz --out
    suite/`
    """
    from uniot.benchmark.features import features_backbone
    from uniot.benchmark.planning import Options, check_methods, plan_jobs
    from uniot.benchmark.studies import plan_study

    chosen = Options() if options is None else Options.read(options)
    if steps is not None:
        chosen = Options({**chosen.shared, "steps": steps}, chosen.of_method)
    if study == "universality":
        refuse_for_universality(
            settings=settings,
            split=split,
            common=common,
            source_private=source_private,
            target_private=target_private,
            images=images,
            backbone=backbone,
            weights=weights,
            store=store,
            incomplete=incomplete or None,
        )
        launcher = _launcher(out, jobs, threads, slurm_set or [], slurm=slurm)
        planned = plan(
            out,
            dataset,
            features or [],
            methods=None if methods is None else _methods(methods, None),
            purpose=purpose or "choice",
            n_splits=seeds,
            task_names=_words(tasks),
            options=chosen,
            threads=threads,
            quick=quick,
        )
        _run(planned, out, launcher, partial(show_universality, planned, purpose=purpose or "choice"))
        return
    if purpose is not None or quick:
        raise SettingsError("--purpose and --quick are for --study universality. Leave them out, or give it.")
    if dataset is None:
        raise SettingsError(
            "no data set is named. Give one, such as `uniot benchmark office31 …`; only --study universality does "
            "without."
        )
    if features is not None and len(features) > 1:
        raise SettingsError("--features is given more than once, which is for --study universality. Give one file.")
    file = Path(features[0]) if features else None
    if (file is None) == (images is None):
        raise DataError("give the data with --features FILE or with --images FOLDER, one of the two.")
    if images is None and (weights is not None or store is not None):
        raise SettingsError("--weights and --store are for --images. Leave them out.")
    own_split = _own_split(split, (common, source_private, target_private))
    if own_split is not None and settings is not None:
        raise SettingsError("--settings are published splits, and a split of your own is given too. Leave one out.")
    task_set = _task_set(dataset, file, images, is_own=own_split is not None)
    splits = own_split or task_set.splits(_words(settings) or ["open-partial"])
    asked = _study(study, settings, task_set, splits)
    task_names = _words(tasks) or list((asked and asked.tasks) or task_set.tasks)
    named = _methods(methods, asked)
    check_methods(named, chosen)
    if images is not None:
        backbone = backbone or "efficientnet_lite0"
        file = _embed(task_set, task_names, images, out, backbone, weights, store, incomplete=incomplete)
    assert file is not None
    planned = (partial(plan_jobs, splits=splits) if asked is None else partial(plan_study, asked))(
        tasks=task_set,
        features=file,
        methods=named,
        task_names=task_names,
        n_seeds=seeds,
        backbone=backbone or features_backbone(file),
        options=chosen,
        threads=threads,
        incomplete=incomplete,
    )
    launcher = _launcher(out, jobs, threads, slurm_set or [], slurm=slurm)
    _run(
        planned,
        out,
        launcher,
        partial(show, dataset=task_set.name) if asked is None else partial(show_study, asked, task_set=task_set),
    )


def _run(jobs: list[Job], out: Path, launcher: Launcher, shown: Callable[[Summary, Path], list[Path]]) -> None:
    """Run the jobs, show and write what came of them, and exit with 1 if any failed."""
    from rich.console import Console

    from uniot.benchmark.live import watching
    from uniot.benchmark.runner import run_benchmark

    with watching(jobs, launcher.count, Console(stderr=True, highlight=False)) as watcher:
        summary = run_benchmark(jobs, out, launcher, watcher)
    conclude(summary, out, shown(summary, out))
    if summary.failures:
        raise typer.Exit(1)


def _words(text: str | None) -> list[str]:
    """What is between commas, each once."""
    return list(dict.fromkeys(word for part in (text or "").split(",") if (word := part.strip())))


def _methods(text: str | None, study: Study | None) -> list[str]:
    from uniot.methods import METHODS

    if text is None:
        return ["uniot-universal", "uniot", "source-only"] if study is None else list(study.methods)
    return list(METHODS) if text.strip() == "all" else _words(text)


def _study(name: str | None, settings: str | None, task_set: TaskSet, splits: dict[str, ClassSplit]) -> Study | None:
    """The study of this name, which sets out from one split."""
    from uniot.benchmark.studies import make_study

    if name is None:
        return None
    if settings is not None:
        raise SettingsError("a study chooses its settings. Leave --settings out, or give a split with --split FILE.")
    ((setting, split),) = splits.items()
    return make_study(name, task_set, setting, split)


def _own_split(file: Path | None, lists: tuple[str | None, str | None, str | None]) -> dict[str, ClassSplit] | None:
    """A split that is not published, by its name."""
    from uniot.benchmark.protocol import custom_split, read_split

    given = any(part is not None for part in lists)
    if file is not None and given:
        raise SettingsError("--split FILE says which classes are common and private. Leave the other lists out.")
    if file is not None:
        return dict([read_split(file)])
    return {"custom": custom_split(*map(_words, lists))} if given else None


def _task_set(dataset: str, features: Path | None, images: Path | None, *, is_own: bool) -> TaskSet:
    """The published set of this name; or, where the split is one's own, a set of one's own."""
    from uniot.benchmark.features import domain_names
    from uniot.benchmark.image_domains import image_domain_names
    from uniot.benchmark.protocol import TaskSet, folder_name

    try:
        return TaskSet.of_published(dataset)
    except DataError as error:
        if not is_own:
            raise DataError(f"{error} A set of your own needs a split: give --split FILE.") from None
    names = domain_names(features) if features is not None else image_domain_names(images or Path())
    return TaskSet.of_domains(folder_name(dataset, "the name of the set"), names)


def _embed(
    task_set: TaskSet,
    task_names: list[str],
    images: Path,
    out: Path,
    backbone: str,
    weights: Path | None,
    store: Path | None,
    *,
    incomplete: bool,
) -> Path:
    """A folder with the embeddings of the domains that the tasks use."""
    from uniot.benchmark.image_domains import embed_domains
    from uniot.embeddings.image_reader import ImageReader
    from uniot.embeddings.store import EmbeddingStore
    from uniot.images import Reading
    from uniot.run_folder import only_one_writer
    from uniot.settings import ImageSettings

    letters = dict.fromkeys(letter for task in task_names for letter in task_set.pair(task))
    settings = ImageSettings.checked(backbone=backbone, weights=None if weights is None else str(weights))
    with only_one_writer(out), reading_progress({}) as progress:
        # An image that cannot be read changes what is compared, so it is an error unless less was asked for.
        reading = Reading(EmbeddingStore(store), strict=not incomplete, progress=progress)
        return embed_domains(
            task_set,
            images,
            letters,
            ImageReader.open(settings),
            out / "embeddings",
            reading=reading,
            as_published=not incomplete,
        )


def _launcher(out: Path, jobs: int | None, threads: int, parameters: list[str], *, slurm: bool) -> Launcher:
    from uniot.benchmark.cluster import Cluster
    from uniot.benchmark.local import LocalWorkers
    from uniot.embeddings.reading import available_cores

    if not slurm:
        if parameters:
            raise SettingsError("--slurm-set is for jobs on Slurm. Give --slurm too, or leave it out.")
        return LocalWorkers(jobs or max(1, available_cores() // threads))
    values = {"cpus_per_task": threads} | dict(map(_parameter, parameters))
    kind = str(values.pop("cluster", "slurm"))
    return Cluster(out, jobs or _JOBS_ON_SLURM, kind, values)


def _parameter(text: str) -> tuple[str, int | float | str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise SettingsError(f"--slurm-set is {text!r}. Give KEY=VALUE, such as timeout_min=60.")
    for kind in (int, float):
        with suppress(ValueError):
            return key, kind(value)
    return key, value
