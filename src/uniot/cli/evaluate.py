"""`uniot evaluate`: compare the labels of a finished run with true labels."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from uniot.cli.options import IdsColumn, LabelColumn
from uniot.cli.screen import console, working
from uniot.io.columns import Columns
from uniot.io.text import counted, plural, quoted
from uniot.runs.files import check_run_folder

if TYPE_CHECKING:
    from uniot.adaptation.evaluation import RunScores
    from uniot.metrics.evaluate import Evaluation


class Average(Enum):
    """Unit that accuracies are averaged over."""

    CLASS = "class"
    INSTANCE = "instance"


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    labels: Annotated[
        Path,
        typer.Option(
            help="True labels: a table with path and label, .npz with y, .npy, or a text file with one label per line."
        ),
    ],
    label: LabelColumn = None,
    ids: IdsColumn = None,
    average: Annotated[
        Average, typer.Option(help="h_score counts every class the same (`class`) or every sample (`instance`).")
    ] = Average.CLASS,
) -> None:
    """Compare the labels of a finished run with true labels, and write the scores to metrics.json.

    The true labels are stored in true_labels.csv, with which `uniot report` colours its map and counts the right labels
    of each class.

    Samples that people labelled since the run do not count in the scores. If the run was continued with labels by
    people, the scores are shown with and without the samples that they labelled before.

    Example: `uniot evaluate run/ --labels truth.csv`
    """
    check_run_folder(run)
    with working("Loading PyTorch and the run") as then:
        from uniot.adaptation.evaluation import score_run
        from uniot.io.embedding_files import read_labels
        from uniot.runs import Run

        opened = Run.open(run)
        opened.require_target("to evaluate")
        chosen = Columns(label, ids)
        columns = chosen.needs("label", "ids").over(Columns.of_inputs(opened.inputs))
        truth = read_labels(labels, opened.predictions.names, columns)
        then("Comparing with the true labels")
        scores = score_run(opened.model, truth, run, average.value)
    show_run_scores(scores)
    console().print(f"These scores and more, from 0 to 1 and not in per cent, are in {quoted(opened.files.metrics)}.")


# Names as in metrics.json; its scores for comparison with papers are left out, because they need the papers' words.
_SHOWN = (
    "h_score",
    "common_accuracy",
    "unknown_recall",
    "unknown_precision",
    "common_accuracy_instance",
    "overall_accuracy",
    "auroc",
    "oscr",
)
_OF_GROUPS = ("hungarian_accuracy", "purity", "nmi_honest", "adjusted_rand")


def show_scores(evaluation: Evaluation, *, beside: Mapping[str, Evaluation] | None = None) -> None:
    """Print the scores in per cent, each with its meaning.

    Args:
        evaluation: the scores.
        beside: scores for further columns, by the titles of the columns.
    """
    from uniot.metrics.evaluate import SCORE_MEANINGS

    table = Table(title="Scores in per cent; 100 is best", title_justify="left", box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    columns = {"value": evaluation.to_dict(), **{title: other.to_dict() for title, other in (beside or {}).items()}}
    for title in columns:
        table.add_column(Text(title), justify="right", no_wrap=True)  # a title may have two lines
    table.add_column("meaning", overflow="fold")
    for name in (*_SHOWN, *_OF_GROUPS):
        values = [column[name] for column in columns.values()]
        # Without a group, a dash says more than a missing line: other runs of the same data have these scores.
        if any(value is not None for value in values) or (name in _OF_GROUPS and evaluation.n_groups == 0):
            table.add_row(
                name, *("–" if value is None else f"{100 * value:.1f}" for value in values), SCORE_MEANINGS[name]
            )
    console().print(table)
    if not evaluation.counts["common"]:
        console().print(
            "Note: no true label is one of your classes, so h_score is unknown_recall. If that surprises you, compare "
            "the spelling of the labels with that of the classes."
        )
    if not evaluation.counts["private"]:
        console().print("Note: every true label is one of your classes, so h_score is the accuracy on them.")
    elif evaluation.n_groups == 0:
        console().print("Note: the run found no group among the unknown, so the scores of groups are undefined.")


def show_run_scores(scores: RunScores) -> None:
    """Print the scores; if people labelled samples before the run, with and without these."""
    _show_columns(scores)
    if scores.n_answered:
        console().print(
            f"The predictions follow what people said; {counted(scores.n_answered, 'sample')} that they labelled "
            f"{plural(scores.n_answered, 'is', 'are')} left out of the scores."
        )


def _show_columns(scores: RunScores) -> None:
    if not scores.n_labelled:
        show_scores(scores.all_samples)
        return
    given = counted(scores.n_labelled, "sample")
    if scores.others is None:
        show_scores(scores.all_samples)
        console().print(
            f"People labelled all {given} before this run, which learned from them: these scores are no test."
        )
        return
    show_scores(scores.others, beside={"with the samples\nyou labelled": scores.all_samples})
    console().print(
        f"People labelled {given} before this run, which learned from them. The first column leaves them out; the "
        "second includes them."
    )
