"""`uniot evaluate`: how good a run is, for people who hold the truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.screen import console, show_scores
from uniot.errors import DataError
from uniot.words import counted

if TYPE_CHECKING:
    import numpy as np

    from uniot.evaluation import Evaluation
    from uniot.model import AdaptedModel


class Average(Enum):
    """What accuracies are means over."""

    CLASS = "class"
    INSTANCE = "instance"


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    labels: Annotated[
        Path,
        typer.Option(help="True target labels: .npz with y, .npy, .csv with path and label, or a label a line."),
    ],
    average: Annotated[
        Average, typer.Option(help="`class`: mean over classes. `instance`: mean over samples.")
    ] = Average.CLASS,
) -> None:
    """Score a finished run against the truth; writes metrics.json.

    Of a run that went on from labels of a person, the scores are given with and without the samples that they labelled.

    Example: `uniot evaluate run/ --labels webcam.npz`
    """
    from uniot.answers import read_answers
    from uniot.data.embedding_files import read_labels
    from uniot.model_files import load_model

    model = load_model(run)
    if not len(model.target):
        raise DataError(
            f"{run} was pulled and has no target, so there is nothing to evaluate. It answers for new samples: "
            f"uniot predict {run} photos/ --out new.csv"
        )
    truth = read_labels(labels, read_answers(run / "predictions.csv").names)
    show_run_scores(score_run(model, truth, run, average))
    console().print(f"Written to {run / 'metrics.json'}.")


@dataclass(frozen=True)
class RunScores:
    """Scores of the target of a run.

    Attributes:
        all_samples: of every sample.
        n_labelled: samples that a person labelled before the run, which learnt from them.
        others: of all but these; None if there is none of them, or nothing else.
    """

    all_samples: Evaluation
    n_labelled: int = 0
    others: Evaluation | None = None


def show_run_scores(scores: RunScores, only: Sequence[str] = ()) -> None:
    """Show the scores, with and without the samples that a person labelled."""
    if not scores.n_labelled:
        show_scores(scores.all_samples, only)
        return
    given = counted(scores.n_labelled, "sample")
    if scores.others is None:
        show_scores(scores.all_samples, only)
        console().print(
            f"A person labelled all {given} before this run, which learnt from them: the scores are no test."
        )
        return
    show_scores(scores.others, only, beside={"with them": scores.all_samples})
    console().print(
        f"A person labelled {given} before this run, which learnt from them. The first column leaves them out; the "
        "second counts them."
    )


def score_run(model: AdaptedModel, truth: object, run: Path, average: Average = Average.CLASS) -> RunScores:
    """Score the target of a run and write metrics.json."""
    from uniot.adaptation import labels_as_classes
    from uniot.evaluation import confusion
    from uniot.run_folder import write_text

    true = labels_as_classes(truth, model.classes, "the truth")
    labelled = _labelled_by_people(run, len(model.target))
    scores = RunScores(_scores(model, true, slice(None), average), int(labelled.sum()))
    if labelled.any() and not labelled.all():
        scores = replace(scores, others=_scores(model, true, ~labelled, average))
    counts = confusion(true, model.labels(model.target), source_classes=model.classes, unknown=model.unknown)
    written = scores.all_samples.to_dict() | {"confusion": counts}
    if scores.n_labelled:
        written["n_labelled_by_people"] = scores.n_labelled
        written["without_labelled_by_people"] = None if scores.others is None else scores.others.to_dict()
    write_text(run / "metrics.json", json.dumps(written, indent=2) + "\n")
    return scores


def _scores(model: AdaptedModel, truth: np.ndarray, rows: slice | np.ndarray, average: Average) -> Evaluation:
    from uniot.evaluation import evaluate as score

    answers = model.target.rows(rows)
    return score(
        truth[rows],
        model.labels(answers),
        source_classes=model.classes,
        unknown=model.unknown,
        average=average.value,
        known_score=model.target_shares[rows],
        nearest=model.classes[answers.nearest],
        features=model.target_features[rows],
        groups=answers.group,
    )


def _labelled_by_people(run: Path, n_target: int) -> np.ndarray:
    """Whether each target sample had a label from a person when the run began, (n,)."""
    import numpy as np

    from uniot.answers import read_answers
    from uniot.cli.ways_in import BEGAN_WITH
    from uniot.labelling import read_names

    if not (run / BEGAN_WITH).is_file():
        return np.zeros(n_target, dtype=bool)
    names = read_names(run / BEGAN_WITH)
    given = {name for name, label in zip(names.names, names.labels.tolist(), strict=True) if label}
    return np.array([name in given for name in read_answers(run / "predictions.csv").names], dtype=bool)
