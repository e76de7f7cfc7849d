"""`uniot adapt`: a labelled and an unlabelled collection in, a run folder out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uniot.cli.screen import console, show_prediction, training_progress, verdict
from uniot.errors import DataError

if TYPE_CHECKING:
    from uniot.estimator import UniOT


def adapt(
    source: Annotated[Path, typer.Argument(help="Labelled embeddings: an .npz with x (n, d) and y (n).")],
    target: Annotated[Path, typer.Argument(help="Unlabelled embeddings: an .npz with x (m, d), and ids if you like.")],
    out: Annotated[Path, typer.Option(help="The run folder. An interrupted run in it goes on.")],
    seed: Annotated[
        int | None, typer.Option(help="Decides every random choice; 0 unless --settings says otherwise.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps; chosen by the target's size.")] = None,
    private_classes: Annotated[int | None, typer.Option(help="Groups among the unknown, where you know it.")] = None,
    settings: Annotated[Path | None, typer.Option(help="A settings.toml, for instance of another run.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace another run in the folder.")] = False,
) -> None:
    """Label the target by the source, and find what is in neither.

    Example: `uniot adapt amazon.npz webcam.npz --out run/`
    """
    from uniot.data.embedding_files import read_embeddings
    from uniot.run_folder import only_one_writer

    labelled, unlabelled = read_embeddings(source), read_embeddings(target)
    if labelled.y is None:
        raise DataError(f"{source} holds no labels. Save them as y: `numpy.savez(file, x=embeddings, y=labels)`.")
    model = _estimator(settings, seed=seed, steps=steps, n_private_classes=private_classes)
    with only_one_writer(out):
        if overwrite:
            _clear(out)
        with training_progress() as on_step:
            model.fit(labelled.x, labelled.y, unlabelled.x, run=out, on_step=on_step)
        inputs = {"source": str(source), "target": str(target)}
        finish_run(model, out, unlabelled.ids, inputs)
    show_prediction(model.model_, model.model_.target)
    if unlabelled.y is not None:
        console().print(f"{target} holds labels (y). They were not used; score with the line below.")
    truth = target if unlabelled.y is not None else "labels.npz"
    console().print(f"{verdict(model.model_.target)} Every answer is in {out / 'predictions.csv'}.")
    console().print(f"Next: uniot predict {out} new.npz, or, with the truth, uniot evaluate {out} --labels {truth}")


def finish_run(model: UniOT, folder: Path, ids: list[str] | None, inputs: dict[str, Any]) -> None:
    """Writes what the run found; its checkpoints have done their work."""
    model.model_.save(folder, ids, inputs)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def _estimator(settings_file: Path | None, **given: int | None) -> UniOT:
    from uniot.estimator import UniOT
    from uniot.settings import Settings

    values: dict[str, Any] = {}
    if settings_file is not None:
        values = Settings.from_toml(settings_file, ignore=("inputs",)).model_dump()
    values |= {name: value for name, value in given.items() if value is not None}
    return UniOT(random_state=values.pop("seed", 0), **values)


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    names = (
        "model.safetensors",
        "features.safetensors",
        "settings.toml",
        "predictions.csv",
        "history.csv",
        "metrics.json",
    )
    for name in names:
        (folder / name).unlink(missing_ok=True)
