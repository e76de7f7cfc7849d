"""`uniot benchmark --study universality`: which data sets, and what is shown in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uniot.cli.screen import console
from uniot.errors import SettingsError

if TYPE_CHECKING:
    from uniot.benchmark.jobs import Job
    from uniot.benchmark.planning import Options
    from uniot.benchmark.runner import Summary

# Columns of a table in a file, where no terminal sets the width.
_WIDTH_OF_A_FILE = 240


def refuse_for_universality(**options: object) -> None:
    """Raise an error if an option is given (not None) that the study has no use for."""
    for name, value in options.items():
        if value is not None:
            raise SettingsError(
                f"--{name.replace('_', '-')} is not for --study universality, which draws its own splits from "
                "--features NAME=FILE. Leave it out."
            )


def plan(
    out: Path,
    dataset: str | None,
    features: Sequence[str],
    *,
    methods: Sequence[str] | None,
    purpose: str,
    n_splits: int,
    task_names: Sequence[str],
    options: Options,
    threads: int,
    quick: bool,
) -> list[Job]:
    """Return the jobs of the study; if the digits are among the data sets, write their features to `out`.

    Args:
        out: folder of the benchmark.
        dataset: the only data set that is asked for; None for all.
        features: as typed, NAME=FILE of each data set.
        methods: the study's own if None.
        purpose: which splits.
        n_splits: number of splits.
        task_names: which pairs of domains; all if none is named.
        options: settings that differ from their defaults.
        threads: number of threads of a job.
        quick: one split and two pairs of each data set.
    """
    from uniot.benchmark.planning import check_methods
    from uniot.benchmark.universality import DIGITS, METHODS, Collection, plan_universality, write_digits
    from uniot.run_folder import only_one_writer

    chosen = list(methods or METHODS)
    check_methods(chosen, options)
    named = named_features(dataset, features)
    collections = [Collection.read(name, path) for name, path in named.items()]
    if dataset in (None, DIGITS):
        with only_one_writer(out):
            collections.append(Collection.read(DIGITS, write_digits(out / "embeddings")))
    return plan_universality(
        collections,
        methods=chosen,
        purpose=purpose,
        n_splits=n_splits,
        task_names=task_names,
        options=options,
        threads=threads,
        quick=quick,
    )


def named_features(dataset: str | None, features: Sequence[str]) -> dict[str, Path]:
    """Return the features of each data set by its name, of one alone if it is named."""
    from uniot.benchmark.universality import DIGITS

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


def show_universality(jobs: Sequence[Job], summary: Summary, out: Path, *, purpose: str) -> list[Path]:
    """Print the table of scenario families, and write everything to files."""
    from rich.table import Table as RichTable
    from rich.text import Text

    from uniot.benchmark.tables import method_title
    from uniot.benchmark.universality_files import (
        COLUMNS,
        scenario_scores,
        summarise,
        summary_cells,
        write_universality,
    )

    scores = scenario_scores(jobs, summary.results)
    screen = console(_WIDTH_OF_A_FILE)
    summaries = summarise(scores)
    for method in dict.fromkeys(one.method for one in summaries):
        shown = RichTable(box=None, pad_edge=False, title=Text(method_title(method)), title_justify="left")
        for place, column in enumerate(COLUMNS):
            shown.add_column(column, justify="right" if place > 1 else "left")
        for one in summaries:
            if one.method == method:
                shown.add_row(*map(Text, summary_cells(one)))
        screen.print(shown)
    return write_universality(out, scores, purpose=purpose)
