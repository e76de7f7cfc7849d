"""`uniot benchmark`: compare methods on the tasks of a data set under one protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.benchmark_inputs import (
    comma_separated,
    embed_images,
    find_tasks,
    list_images,
    make_launcher,
    own_split,
    plan_scenarios,
    refuse_for_scenarios,
)
from uniot.cli.benchmark_screen import show, show_answers, show_end, show_study, show_universality, watching
from uniot.cli.options import BatchNorm, FineTune, Precision, Protocol
from uniot.cli.screen import console, working
from uniot.errors import DataError, SettingsError

if TYPE_CHECKING:
    from uniot.benchmark.jobs import Job
    from uniot.benchmark.runner import FinishedBenchmark, Launcher
    from uniot.benchmark.studies import Study
    from uniot.benchmark.tasks import TaskSet
    from uniot.datasets.catalogue import ClassSplit

_DATA, _NETWORK, _SPLIT, _WHERE = "Data", "Training the network", "A split of your own", "Where it runs"
_SCENARIOS = "Studies universality and answers"
_OF_SCENARIOS = ("universality", "answers")


def benchmark(
    out: Annotated[Path, typer.Option(help="Folder for the results. A benchmark that is already there is continued.")],
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="office31, office-home, visda, domainnet; or a name for a set of your own. Without it, "
            "--study universality and answers run on all sets that they are given, and on the digits of the install."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, see `uniot methods`; or `all`. Default: unincm,uniot,source-only, or the study's."
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            help="Vary one thing at a time: ablation, robustness, sensitivity as the paper does; target-learners, "
            "which has other losses in place of L_PCD; beyond; universality: every kind of class split and target, on "
            "several data sets; or answers: what simulated answers of a person are worth, on the same."
        ),
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Tasks such as A2W,D2W. Default: all, or the study's.")] = None,
    settings: Annotated[
        str | None,
        typer.Option(help="Of open-partial, open, partial, closed; default open-partial. For universality: scenarios."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds: 3 are 0, 1 and 2. For universality: number of splits.")
    ] = 3,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps of every job; by default from the size of the target.")
    ] = None,
    oracle_selection: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="TIMES",
            help="Also score the model with target labels at this many steps, and write the best to the column "
            "h_oracle_selection of results.csv: what a choice by target labels would gain. It enters no table.",
        ),
    ] = 0,
    options: Annotated[
        Path | None,
        typer.Option(help="TOML file: settings for all methods, and a table per method with its own."),
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
    weights: Annotated[
        Path | None, typer.Option(help="File with the weights of the backbone.", rich_help_panel=_DATA)
    ] = None,
    incomplete: Annotated[
        bool,
        typer.Option("--incomplete", help="Accept data that are not complete, for trials.", rich_help_panel=_DATA),
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps embeddings between runs; by default a cache.", rich_help_panel=_DATA),
    ] = None,
    fine_tune: Annotated[
        FineTune,
        typer.Option(
            help="With --images: train nothing of the network, its last stage, or all of it as the paper does, with "
            "the paper's augmentation.",
            rich_help_panel=_NETWORK,
        ),
    ] = FineTune.NONE,
    batch_norm: Annotated[
        BatchNorm | None,
        typer.Option(
            help="Batch normalisation of the trained part: by default trained, with source and target forwarded "
            "separately, as the authors' code does; or frozen.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="Floating-point precision of the training on a GPU; 32-true.", rich_help_panel=_NETWORK),
    ] = None,
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="K, queue and μ of UniOT for a published data set: those of the authors' code (reference), of the "
            "paper's text (paper), or from the size of the target as `uniot adapt` has them (size)."
        ),
    ] = Protocol.REFERENCE,
    split: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with the lists common, source_private and target_private.", rich_help_panel=_SPLIT
        ),
    ] = None,
    common: Annotated[
        str | None, typer.Option(help="Common classes, separated by commas.", rich_help_panel=_SPLIT)
    ] = None,
    source_private: Annotated[
        str | None, typer.Option(help="Classes that only the source has.", rich_help_panel=_SPLIT)
    ] = None,
    target_private: Annotated[
        str | None, typer.Option(help="Classes that only the target has.", rich_help_panel=_SPLIT)
    ] = None,
    purpose: Annotated[
        str | None,
        typer.Option(
            help="Which splits: choice, on which defaults are chosen, or check, on which nothing is chosen; choice.",
            rich_help_panel=_SCENARIOS,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="One split and two pairs of domains of each data set.", rich_help_panel=_SCENARIOS
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of jobs at the same time; by default one per core.", rich_help_panel=_WHERE),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads per job.", rich_help_panel=_WHERE)] = 1,
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

    Every job is a method, setting, task and seed. After an interruption, the same command continues.

    Example: `uniot benchmark office31 --methods unincm,dance --features features.npz --out results/`

    Example: `uniot benchmark office31 --images office31/ --backbone resnet50.tv_in1k --fine-tune all --methods uniot
    --steps 10000 --out paper/` is the paper's experiment; it needs a GPU.

    Example: `uniot benchmark --study universality --features office31=features.npz --features pacs=pacs.npz --out
    suite/`
    """
    from uniot.benchmark.features import features_backbone
    from uniot.benchmark.jobs import Options, check_methods, plan_jobs
    from uniot.benchmark.studies import plan_study
    from uniot.config import ImageSettings

    chosen = Options() if options is None else Options.read(options)
    if steps is not None:
        chosen = Options({**chosen.shared, "steps": steps}, chosen.of_method)
    if study in _OF_SCENARIOS:
        refuse_for_scenarios(
            study,
            split=split,
            common=common,
            source_private=source_private,
            target_private=target_private,
            images=images,
            backbone=backbone,
            weights=weights,
            store=store,
            incomplete=incomplete or None,
            oracle_selection=oracle_selection or None,
            fine_tune=None if fine_tune is FineTune.NONE else fine_tune,
            batch_norm=batch_norm,
            precision=precision,
            protocol=None if protocol is Protocol.REFERENCE else protocol,
        )
        _load()
        launcher = make_launcher(out, jobs, threads, slurm_set or [], slurm=slurm)
        planned = plan_scenarios(
            study,
            out,
            dataset,
            features or [],
            methods=None if methods is None else _methods(methods, None),
            purpose=purpose or "choice",
            n_splits=seeds,
            task_names=comma_separated(tasks),
            scenarios=comma_separated(settings),
            options=chosen,
            threads=threads,
            quick=quick,
        )
        shown = show_universality if study == "universality" else show_answers
        _run(planned, out, launcher, partial(shown, planned, purpose=purpose or "choice"))
        return
    if purpose is not None or quick:
        raise SettingsError(
            "--purpose and --quick are for --study universality and answers. Leave them out, or give one of these."
        )
    if dataset is None:
        raise SettingsError(
            "no data set is named. Give one, such as `uniot benchmark office31 …`; only --study universality "
            "and answers do without."
        )
    if features is not None and len(features) > 1:
        raise SettingsError(
            "--features is given more than once, which is for --study universality and answers. Give one file."
        )
    file = Path(features[0]) if features else None
    if (file is None) == (images is None):
        raise DataError("give the data with --features FILE or with --images FOLDER, one of the two.")
    if images is None and (weights is not None or store is not None):
        raise SettingsError("--weights and --store are for --images. Leave them out.")
    if fine_tune is FineTune.NONE and (batch_norm is not None or precision is not None):
        raise SettingsError(
            "--batch-norm and --precision are for a network that is trained. Give --fine-tune last or all as well, or "
            "leave them out."
        )
    if fine_tune is not FineTune.NONE and images is None:
        raise SettingsError("--fine-tune trains a network on images, and --features are embeddings. Give --images.")
    given_split = own_split(split, (common, source_private, target_private))
    if given_split is not None and settings is not None:
        raise SettingsError("--settings are published splits, and a split of your own is given too. Leave one out.")
    _load()
    task_set = find_tasks(dataset, file, images, is_own=given_split is not None)
    splits = given_split or task_set.splits(comma_separated(settings) or ["open-partial"])
    asked = _study(study, settings, task_set, splits)
    task_names = comma_separated(tasks) or list((asked and asked.tasks) or task_set.tasks)
    named = _methods(methods, asked)
    if task_set.published is not None and protocol is not Protocol.SIZE:
        chosen = replace(chosen, of_dataset=task_set.published.protocols[protocol.value])
    check_methods(named, chosen)
    network: ImageSettings | None = None
    if images is not None:
        backbone = backbone or "efficientnet_lite0"
    if images is not None and fine_tune is not FineTune.NONE:
        network = ImageSettings.checked(
            backbone=backbone,
            weights=None if weights is None else str(weights.absolute()),
            fine_tune=fine_tune.value,
            batch_norm=(batch_norm or BatchNorm.TRAINED).value,
            scaled=False,
            precision=(precision or Precision.FULL).value,
        )
        file = list_images(task_set, task_names, images, out, network, store=store, incomplete=incomplete)
        backbone = f"{backbone}, {'last stage ' if fine_tune is FineTune.LAST else ''}fine-tuned"
    elif images is not None:
        assert backbone is not None
        file = embed_images(
            task_set,
            task_names,
            images,
            out,
            backbone=backbone,
            weights=weights,
            store=store,
            incomplete=incomplete,
        )
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
        images=network,
        store=store,
    )
    launcher = make_launcher(out, jobs, threads, slurm_set or [], slurm=slurm, trains_networks=network is not None)
    _run(
        [replace(job, oracle_selection=oracle_selection) for job in planned],
        out,
        launcher,
        partial(show, dataset=task_set.name) if asked is None else partial(show_study, asked, task_set=task_set),
    )


def _load() -> None:
    """Load what plans and runs jobs, and show that it takes a moment."""
    with working("Loading PyTorch", lines=False):
        import uniot.benchmark.runner  # noqa: F401


def _run(
    jobs: list[Job], out: Path, launcher: Launcher, shown: Callable[[FinishedBenchmark, Path], list[Path]]
) -> None:
    """Run the jobs, print and write the results, and exit with 1 if a job failed."""
    from uniot.benchmark.runner import run_benchmark

    with watching(jobs, launcher.count, console(err=True)) as watcher:
        finished = run_benchmark(jobs, out, launcher, watcher)
    show_end(finished, out, shown(finished, out))
    if finished.failures:
        raise typer.Exit(1)


def _methods(text: str | None, study: Study | None) -> list[str]:
    from uniot.methods.registry import METHODS

    if text is None:
        return ["unincm", "uniot", "source-only"] if study is None else list(study.methods)
    return list(METHODS) if text.strip() == "all" else comma_separated(text)


def _study(name: str | None, settings: str | None, task_set: TaskSet, splits: dict[str, ClassSplit]) -> Study | None:
    """Return the study of this name on one split; None without a name."""
    from uniot.benchmark.studies import make_study

    if name is None:
        return None
    if settings is not None:
        raise SettingsError("a study chooses its settings. Leave --settings out, or give a split with --split FILE.")
    ((setting, split),) = splits.items()
    return make_study(name, task_set, setting, split)
