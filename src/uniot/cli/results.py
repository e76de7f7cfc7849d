"""The outcome of a run: what `uniot adapt` and `uniot evaluate` print, and the scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from uniot.cli.screen import (
    console,
    print_line,
    show_next,
    show_prediction,
    show_private_classes,
    show_reading,
    show_reliability,
    verdict,
)
from uniot.errors import DataError
from uniot.io.text import command, counted, plural, quoted, share_sentence

if TYPE_CHECKING:
    import numpy as np

    from uniot.cli.inputs import Collections, Inputs
    from uniot.data_quality.checks import CheckedCollections
    from uniot.labelling import Names
    from uniot.metrics.evaluate import Evaluation
    from uniot.training.history import ExperimentLogger
    from uniot.training.model import AdaptedModel


# An interval of the share of unknown samples that is wider than this calls for answers of a person.
_WIDE = 0.2


def show_result(
    model: AdaptedModel,
    inputs: Inputs,
    collections: Collections,
    out: Path,
    *,
    was_finished: bool,
    checked: CheckedCollections | None = None,
    logger: ExperimentLogger | None = None,
    shown: Collection[str] = (),
) -> None:
    """Print the result of a run and what to do next, without the warnings `shown` before; close the log."""
    from uniot.runs.files import RunFiles, judged_by
    from uniot.runs.run import Run, preference_line
    from uniot.training.fit import log_end

    screen, files = console(), RunFiles(out)
    if was_finished:
        screen.print(f"{quoted(out)} is already finished; nothing was trained.")
        model = Run.open(out).model  # people may have labelled it since
    show_prediction(model, model.target)
    scores = None
    if inputs.truth is not None:
        scores = score_run(model, inputs.truth, out)
        show_run_scores(scores)
    if logger is not None and not was_finished:
        log_end(logger, model, None if scores is None else (scores.others or scores.all_samples).to_dict())
        if not model.settings.steps:
            screen.print(f"Nothing was logged: {model.settings.method} trains nothing here.")
    if inputs.images is not None:
        show_reading(inputs.images, files)
    for line in () if checked is None else checked.lines(files.suspect_labels, files.near_duplicates):
        screen.print(line)
    if inputs.has_unused_labels:
        screen.print(
            f"{quoted(collections.target)} contains labels (y), which were not used; `uniot evaluate` below compares "
            "with them."
        )
    show_private_classes(model, out)
    if collections.names is not None:
        screen.print(_names_line(model, collections.names))
    screen.print(f"{verdict(model.target)} Every prediction is in {quoted(files.predictions)}.")
    preference = preference_line(model)
    if preference is not None:
        screen.print(preference)
    interval = model.shown_share_interval
    if interval is not None:
        screen.print(share_sentence(float((~model.target.known).mean()), interval))
        if interval[1] - interval[0] > _WIDE:
            # Not wrapped: a command in two lines could not be pasted.
            print_line(f"Ten answers settle this: {command('ask', out)}")
    screen.print(judged_by(model))
    show_reliability(model, shown)
    new = "photo.jpg" if inputs.images is not None else "new.npz"
    following = {command("report", out): "a page to look at"}
    if model.groups.n_groups:
        following[command("label", out)] = "name the groups"
    elif not model.target.known.all():
        following[command("label", out)] = "look at the unknown, and name them"
    following[command("predict", out, new)] = "label another"
    if inputs.truth is None:
        labels = collections.target if inputs.has_unused_labels else "truth.csv"
        following[command("evaluate", out, "--labels", labels)] = "if you know true labels"
    show_next(following)


def _names_line(model: AdaptedModel, names: Names) -> str:
    """Return a sentence on the samples that keep what people said of them, and on those that are left out."""
    answers, n_discarded = model.answers, int((names.decisions == "discarded").sum())
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


class Average(Enum):
    """Unit that accuracies are averaged over."""

    CLASS = "class"
    INSTANCE = "instance"


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    labels: Annotated[
        Path,
        typer.Option(
            help="True labels of the images: .csv with path and label, .npz with y, .npy, or one label per line."
        ),
    ],
    average: Annotated[
        Average, typer.Option(help="h_score counts every class the same (`class`) or every image (`instance`).")
    ] = Average.CLASS,
) -> None:
    """Compare the labels of a finished run with true labels, and write the scores to metrics.json.

    Images that people labelled since the run do not count in the scores. If the run was continued with labels by
    people, the scores are shown with and without the images that they labelled before.

    Example: `uniot evaluate run/ --labels truth.csv`
    """
    from uniot.io.embedding_files import read_labels
    from uniot.runs import Run

    opened = Run.open(run)
    opened.require_target("to evaluate")
    truth = read_labels(labels, opened.predictions.names)
    show_run_scores(score_run(opened.model, truth, run, average))
    console().print(f"These scores and more, from 0 to 1 and not in per cent, are in {quoted(opened.files.metrics)}.")


@dataclass(frozen=True)
class RunScores:
    """Scores of the target of a run.

    Attributes:
        all_samples: scores of all samples, except those that people labelled since the run.
        n_labelled: number of samples that people labelled before the run, which was trained on them.
        others: scores of the other samples; None if all or none were labelled.
        n_answered: number of samples that people labelled since, which are left out.
    """

    all_samples: Evaluation
    n_labelled: int = 0
    others: Evaluation | None = None
    n_answered: int = 0


# Names as in metrics.json; its scores for comparison with papers are left out, because they need the papers' words.
_MEANINGS = {
    "h_score": "Overall: high only if both of the next two are (their harmonic mean).",
    "common_accuracy": "Of the samples of your classes, those with the right label; every class counts the same.",
    "unknown_recall": "Of the samples of new classes, those called unknown.",
    "unknown_precision": "Of the samples called unknown, those that are of new classes.",
    "common_accuracy_instance": "As common_accuracy, but every sample counts the same.",
    "overall_accuracy": "Of all samples, those that are right: the right label, or unknown for a new class.",
    "auroc": "Chance that a sample of your classes looks more known than one of a new class; 50 is guessing.",
    "oscr": "As auroc, but samples of your classes also need the right label.",
    "hungarian_accuracy": "Of the samples called unknown, those in the right group if each new class has one group.",
    "purity": "Of the samples called unknown, those of the most frequent true class in their group.",
    "nmi_honest": "How much groups and true classes of the unknown have in common; 0 is nothing, 100 is all.",
    "adjusted_rand": "How well groups put together what belongs together; 0 is chance, 100 are the true classes.",
}
_OF_GROUPS = ("hungarian_accuracy", "purity", "nmi_honest", "adjusted_rand")


def show_scores(evaluation: Evaluation, *, beside: Mapping[str, Evaluation] | None = None) -> None:
    """Print the scores in per cent, each with its meaning.

    Args:
        evaluation: the scores.
        beside: scores for further columns, by the titles of the columns.
    """
    table = Table(title="Scores in per cent; 100 is best", title_justify="left", box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    columns = {"value": evaluation.to_dict(), **{title: other.to_dict() for title, other in (beside or {}).items()}}
    for title in columns:
        table.add_column(Text(title), justify="right", no_wrap=True)  # a title may have two lines
    table.add_column("meaning", overflow="fold")
    for name, meaning in _MEANINGS.items():
        values = [column[name] for column in columns.values()]
        # Without a group, a dash says more than a missing line: other runs of the same data have these scores.
        if any(value is not None for value in values) or (name in _OF_GROUPS and evaluation.n_groups == 0):
            table.add_row(name, *("–" if value is None else f"{100 * value:.1f}" for value in values), meaning)
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
        console().print(f"People labelled all {given} before this run, which learned from them: this is no test.")
        return
    show_scores(scores.others, beside={"with the samples\nyou labelled": scores.all_samples})
    console().print(
        f"People labelled {given} before this run, which learned from them. The first column leaves them out; the "
        "second includes them."
    )


def score_run(model: AdaptedModel, truth: object, run: Path, average: Average = Average.CLASS) -> RunScores:
    """Score the predictions of a run and write the scores to its folder.

    Args:
        model: the model of the run.
        truth: true target labels, (n_samples,).
        run: the run folder.
        average: unit that the accuracy within the H-score is averaged over.

    Returns:
        The scores, with and without the samples that people labelled before the run.

    Raises:
        DataError: people labelled all samples since the run.
    """
    import numpy as np

    from uniot.metrics.accuracy import confusion
    from uniot.runs import Run
    from uniot.runs.run import decisions_digest, evaluate_model
    from uniot.training.fit import labels_as_classes

    before = _labelled_by_people(run, len(model.target))
    scored = before | ~model.labelled_by_people
    if not scored.any():
        raise DataError(
            f"people labelled all {counted(len(model.target), 'sample')} of {run}, so that there is no prediction to "
            "score."
        )
    labelled = before[scored]
    rows = None if scored.all() else scored
    scores = RunScores(evaluate_model(model, truth, average.value, rows), int(labelled.sum()))
    if labelled.any() and not labelled.all():
        others = np.flatnonzero(scored)[~labelled]
        scores = replace(scores, others=evaluate_model(model, truth, average.value, others))
    scores = replace(scores, n_answered=int((~scored).sum()))
    true = labels_as_classes(truth, model.classes, "labels")[scored]
    labels = model.target.rows(scored).labels(model.classes, model.unknown)
    counts = confusion(true, labels, source_classes=model.classes, unknown=model.unknown)
    written = scores.all_samples.to_dict() | {"confusion": counts, "decisions": decisions_digest(model)}
    if scores.n_answered:
        written["n_left_out"] = scores.n_answered
    if scores.n_labelled:
        written["n_labelled_by_people"] = scores.n_labelled
        written["without_labelled_by_people"] = None if scores.others is None else scores.others.to_dict()
    with Run.writer(run, wait=True) as writer:
        writer.write_metrics(written)
    return scores


def _labelled_by_people(run: Path, n_target: int) -> np.ndarray:
    """Return whether each target sample had a label by a person when the run began, (n_samples,)."""
    import numpy as np

    from uniot.io.predictions import read_predictions
    from uniot.labelling import read_names
    from uniot.runs import RunFiles

    files = RunFiles(run)
    if not files.names.is_file():
        return np.zeros(n_target, dtype=bool)
    names = read_names(files.names)
    by_people = np.isin(names.decisions, ["named", "class"])
    given = {name for name, is_given in zip(names.names, by_people.tolist(), strict=True) if is_given}
    return np.array([name in given for name in read_predictions(files.predictions).names], dtype=bool)
