"""`uniot evaluate`: how good a run is, for people who hold the truth."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.screen import console, show_scores
from uniot.errors import DataError

if TYPE_CHECKING:
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
    evaluation = score_run(model, truth, run, average)
    show_scores(evaluation)
    console().print(f"Written to {run / 'metrics.json'}.")


def score_run(model: AdaptedModel, truth: object, run: Path, average: Average = Average.CLASS) -> Evaluation:
    """Scores the target of a run and writes metrics.json."""
    from uniot.adaptation import labels_as_classes
    from uniot.evaluation import confusion
    from uniot.evaluation import evaluate as score
    from uniot.run_folder import write_text

    answers = model.target
    y_true, y_pred = labels_as_classes(truth, model.classes, "the truth"), model.labels(answers)
    evaluation = score(
        y_true,
        y_pred,
        source_classes=model.classes,
        unknown=model.unknown,
        average=average.value,
        confidence=answers.confidence,
        nearest=model.classes[answers.nearest],
        features=model.target_features,
        groups=answers.group,
        seed=model.settings.seed,
    )
    counts = confusion(y_true, y_pred, source_classes=model.classes, unknown=model.unknown)
    metrics = evaluation.to_dict() | {"confusion": counts}
    write_text(run / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    return evaluation
