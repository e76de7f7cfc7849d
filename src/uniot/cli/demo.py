"""`uniot demo`: the whole of it on handwritten digits that come with the install."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uniot.cli.progress import training_progress
from uniot.cli.screen import (
    console,
    show_prediction,
    show_private_classes,
    show_reliability,
    verdict,
)
from uniot.errors import DataError, UniotWarning

if TYPE_CHECKING:
    import numpy as np

_SCORES = ("h_score", "common_accuracy", "unknown_recall", "h3_score_honest", "h3_score_oracle", "auroc", "purity")


def demo(
    out: Annotated[Path, typer.Option(help="The run folder.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Decides every random choice.")] = 0,
) -> None:
    """Adapt from one archive of handwritten digits to another, in about a minute.

    The source is scikit-learn's digits, 0 to 5, with labels. The target is a sample of MNIST, 0 to 3 and 6 to 9,
    without. Which classes are common is not told.

    Example: `uniot demo --out runs/demo`
    """
    import numpy as np

    from uniot.cli.evaluate import score_run, show_run_scores
    from uniot.cli.run_files import finish_run
    from uniot.data.digits import DEMO_SETTINGS, load_digits_pair
    from uniot.estimator import UniOT
    from uniot.model_files import is_saved
    from uniot.pictures import PIXELS, write_pixels
    from uniot.run_folder import only_one_writer

    digits = load_digits_pair()
    screen = console()
    screen.print(
        f"Source: {len(digits.source_images)} digits of 8 × 8 pixels, labelled {_names(digits.source_labels)}."
    )
    screen.print(f"Target: {len(digits.target_images)} digits of MNIST, without labels.")
    began = time.monotonic()
    model = UniOT(random_state=seed, **DEMO_SETTINGS)
    with only_one_writer(out), training_progress() as on_step, warnings.catch_warnings():
        # They are among the last lines.
        warnings.simplefilter("ignore", UniotWarning)
        was_finished = is_saved(out)
        model.fit(
            digits.source_images,
            digits.source_labels,
            digits.target_images,
            run=out,
            oracle_y_target=digits.oracle_target_labels,
            on_step=on_step,
        )
        finish_run(model.model_, out, digits.target_names, {"demo": "digits"})
        write_pixels(out / PIXELS, digits.source_images, digits.target_images)
    took = time.monotonic() - began
    if was_finished:
        screen.print(f"{out} is already finished; nothing was trained.")
    show_prediction(model.model_, model.model_.target)
    show_run_scores(score_run(model.model_, digits.oracle_target_labels, out), _SCORES)
    common = _names(np.intersect1d(digits.source_labels, digits.oracle_target_labels))
    private = _names(np.setdiff1d(digits.oracle_target_labels, digits.source_labels))
    screen.print(f"The truth, which only the scores have seen: {common} are common, {private} are new in the target.")
    screen.print(_told_of_groups(model.groups_, digits.oracle_target_labels))
    show_private_classes(model.model_)
    show_reliability(model.model_)
    screen.print(f"{verdict(model.model_.target)} Took {took:.0f} s. Files: {out}/")
    screen.print(f"  {out / 'predictions.csv'}  one line per digit\n  {out / 'settings.toml'}  repeats the run")
    _report(out)
    screen.print(
        f"Next: uniot label {out} to name the new groups; uniot adapt labelled/ unlabelled/ --out run/ on yours."
    )


def _report(run: Path) -> None:
    """Writes the page to look at, where what it needs is installed."""
    from uniot.report import write_report

    try:
        written = write_report(run)
    except DataError as error:
        console().print(f"No report: {error}")
        return
    console().print(f"  {written.page}  all of it to look at: open it in a browser")


def _told_of_groups(groups: np.ndarray, truth: np.ndarray) -> str:
    """Which digit is the most frequent one of each group."""
    import numpy as np

    told = []
    for group in range(groups.max() + 1):
        digits, counts = np.unique(truth[groups == group], return_counts=True)
        told.append(f"{group} is mostly {digits[counts.argmax()]} ({100 * counts.max() / counts.sum():.0f} %)")
    return f"Groups: {', '.join(told)}." if told else "There is no group."


def _names(labels: Iterable[object]) -> str:
    return ", ".join(sorted({str(label) for label in labels}))
