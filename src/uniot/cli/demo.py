"""`uniot demo`: compare two methods on handwritten digits that come with the install, and write a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from uniot.cli.screen import (
    console,
    fitting_progress,
    show_next,
    show_prediction,
    show_private_classes,
    show_reliability,
    verdict,
    working,
)
from uniot.errors import DataError, UniotWarning
from uniot.io.text import command, quoted

if TYPE_CHECKING:
    import numpy as np

    from uniot.datasets.digits import DigitsPair
    from uniot.estimators import UniNCM


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Try two methods on handwritten digits that come with the install: a minute or two on two cores.

    The labelled digits are 0 to 5, from scikit-learn. The unlabelled ones are 0 to 3 and 6 to 9, from MNIST. Both
    methods have to find out which digits occur in both, and to group those that are new.

    Example: `uniot demo --out runs/demo`
    """
    import numpy as np

    with working("Loading PyTorch"):
        from uniot.adaptation.evaluation import score_run
        from uniot.datasets.digits import DEMO_SETTINGS, load_digits_pair, rewrite
        from uniot.estimators import UniNCM, UniOT
        from uniot.runs import RunFiles
        from uniot.runs.run import evaluate_model

    digits, screen = load_digits_pair(), console()
    truth = digits.oracle_target_labels
    labelled = _listed(digits.source_labels)
    screen.print(f"Labelled: {len(digits.source_images)} handwritten digits from scikit-learn: {labelled}.")
    screen.print(
        f"Unlabelled: {len(digits.target_images)} handwritten digits from MNIST: {_listed(truth)}, without their names."
    )
    screen.print("UniOT   the method of the paper as published, with settings for small images.")
    screen.print("UniNCM  the default: labels by the nearest class mean, with the network that UniOT trains.")
    training: dict[str, Any] = {**DEMO_SETTINGS, "augmentation": rewrite}
    default = UniNCM(trainer=UniOT(**training), random_state=seed)
    trained, took = _fit(default, digits, out)
    # The losses and the seed of both are the same, and so is the trained network: UniOT starts at its last step.
    paper = UniOT(**(training | {"steps": 0}), random_state=seed)
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UniotWarning)
        paper.fit(digits.source_images, digits.source_labels, digits.target_images, start=default)
    of_paper = trained + time.monotonic() - began
    common, new = np.intersect1d(digits.source_labels, truth), np.setdiff1d(truth, digits.source_labels)
    table = Table(title="Scores in per cent", title_justify="left", box=None, pad_edge=False)
    for column in ("method", "both (H-score)", "old right", "new found", f"new groups (of {len(new)})", "seconds"):
        table.add_column(column, justify="left" if column == "method" else "right")
    default_scores = score_run(default.model_, truth, out).all_samples
    for model, scores, seconds in (
        (paper, evaluate_model(paper.model_, truth), of_paper),
        (default, default_scores, took),
    ):
        parts = (scores.h_score, scores.common_accuracy, scores.unknown_recall)
        table.add_row(
            type(model).__name__,
            *("–" if part is None else f"{100 * part:.1f}" for part in parts),
            str(model.n_private_classes_),
            f"{seconds:.0f}" if trained else "–",
        )
    screen.print(table)
    screen.print(
        f"Old right: of the digits {_listed(common)}, those with the right label. New found: of the digits "
        f"{_listed(new)}, those called unknown. H-score: high only if both are (their harmonic mean). The true "
        "labels of the unlabelled digits are used for these scores only."
    )
    screen.print("", f"Results of UniNCM, in {quoted(f'{out}/')}:", sep="\n")
    show_prediction(default.model_, default.model_.target)
    screen.print(_group_line(default.groups_, truth))
    show_private_classes(default.model_, out)
    show_reliability(default.model_)
    screen.print(verdict(default.model_.target))
    files = RunFiles(out)
    screen.print(f"  {quoted(files.predictions)}  a table with one line per digit")
    screen.print(f"  {quoted(files.settings)}  all settings of the run")
    _write_report(out)
    show_next(
        {
            command("label", out): "name the new groups",
            command("adapt", "labelled/", "unlabelled/", "--out", "run/"): "on your images",
        }
    )


def _fit(model: UniNCM, digits: DigitsPair, folder: Path) -> tuple[float, float]:
    """Fit a model and write its run; return the seconds of the training and of all, 0 if it was finished before."""
    from uniot.runs import Run

    began, trained = time.monotonic(), 0.0
    with Run.writer(folder) as writer, fitting_progress("UniOT and UniNCM") as show_step, warnings.catch_warnings():

        def on_step(step: int, steps: int, row: Mapping[str, float]) -> None:
            nonlocal trained
            trained = time.monotonic() - began
            if show_step is not None:
                show_step(step, steps, row)

        # Printed at the end by show_reliability.
        warnings.simplefilter("ignore", UniotWarning)
        model.fit(
            digits.source_images,
            digits.source_labels,
            digits.target_images,
            run=folder,
            oracle_y_target=digits.oracle_target_labels,
            on_step=on_step,
        )
        writer.save(model.model_, digits.target_names, {"demo": "digits"})
        writer.write_pixels(digits.source_images, digits.target_images)
    if not trained:
        console().print(f"{quoted(folder)} is already finished; nothing was trained.")
        return 0.0, 0.0
    return trained, time.monotonic() - began


def _write_report(run: Path) -> None:
    from uniot.report import write_report
    from uniot.runs import Run

    try:
        written = write_report(Run.open(run))
    except DataError as error:
        console().print(f"No report: {error}")
        return
    console().print(f"  {quoted(written.page)}  the report: open it in a browser")


def _group_line(groups: np.ndarray, truth: np.ndarray) -> str:
    """Return the most frequent digit of each group."""
    import numpy as np

    parts = []
    for group in range(groups.max() + 1):
        digits, counts = np.unique(truth[groups == group], return_counts=True)
        parts.append(f"{group} is mostly {digits[counts.argmax()]} ({100 * counts.max() / counts.sum():.0f} %)")
    return f"Groups and their true digits: {', '.join(parts)}." if parts else "No groups were found."


def _listed(labels: Iterable[object]) -> str:
    return ", ".join(sorted({str(label) for label in labels}))
